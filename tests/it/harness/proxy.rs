//! A network that can fail, between the sidecar and PostgreSQL or a leaf.
//!
//! The proxy's port stays the same whatever happens behind it.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// As much as is moved at once; small, so that "after N bytes" has a meaning for a stalled reader, too.
const CHUNK: usize = 8 * 1024;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the sidecar to what is behind the proxy.
    Up,
    /// Back.
    Down,
}

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Up,
    Cut,
    Stalled,
    /// Up goes through, and nothing comes down.
    Mute,
}

impl Network {
    fn lets_through(self, direction: Direction) -> bool {
        match self {
            Self::Up => true,
            Self::Mute => direction == Direction::Up,
            Self::Cut | Self::Stalled => false,
        }
    }
}

#[derive(Debug)]
struct State {
    network: watch::Sender<Network>,
    /// How many more bytes may pass before the cut, by direction.
    allowance: watch::Sender<Option<(Direction, usize)>>,
    /// Connections accepted so far.
    accepted: watch::Sender<usize>,
    /// How often all connections were reset.
    resets: watch::Sender<usize>,
    /// Of these, so many are silent for ever.
    stranded: watch::Sender<usize>,
}

/// A TCP proxy on 127.0.0.1; it ends with this value.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens, and connects to `upstream` (`host:port`) for each connection that it takes.
    pub(crate) async fn start(upstream: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            network: watch::Sender::new(Network::Up),
            allowance: watch::Sender::new(None),
            accepted: watch::Sender::new(0),
            resets: watch::Sender::new(0),
            stranded: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, upstream.into(), Arc::clone(&state)));
        Self {
            address,
            state,
            _tasks: tasks,
        }
    }

    /// In front of the server of a `postgres://` or `http://` url.
    pub(crate) async fn in_front_of(url: &str) -> Self {
        let url = reqwest::Url::parse(url).unwrap();
        let port = url.port_or_known_default().unwrap_or(5432);
        Self::start(format!("{}:{port}", url.host_str().unwrap())).await
    }

    /// The same url through the proxy.
    pub(crate) fn url(&self, url: &str) -> String {
        let mut url = reqwest::Url::parse(url).unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(self.address.port())).unwrap();
        // Without a path, parsing has added a slash that the caller did not write.
        String::from(url).trim_end_matches('/').to_owned()
    }

    /// How many connections it has taken.
    pub(crate) fn connections(&self) -> usize {
        *self.state.accepted.borrow()
    }

    /// Resets the connections that there are, and takes new ones at once.
    pub(crate) fn reset(&self) {
        self.state.resets.send_modify(|resets| *resets += 1);
    }

    /// Resets every connection, and each new one, until [`Proxy::restore`].
    pub(crate) fn cut(&self) {
        self.state.network.send_replace(Network::Cut);
    }

    /// Cuts once this many more bytes have gone that way, over all connections; those bytes arrive.
    pub(crate) fn cut_after(&self, direction: Direction, bytes: usize) {
        self.state.allowance.send_replace(Some((direction, bytes)));
    }

    /// Lets nothing through, and keeps every connection, until [`Proxy::restore`].
    pub(crate) fn stall(&self) {
        self.state.network.send_replace(Network::Stalled);
    }

    /// Lets requests through and holds every answer back, until [`Proxy::restore`].
    pub(crate) fn hold_answers(&self) {
        self.state.network.send_replace(Network::Mute);
    }

    /// Lets nothing through on the connections that there are, for ever, and keeps them open; new ones work.
    pub(crate) fn strand(&self) {
        self.state.stranded.send_replace(self.connections());
    }

    /// Lets everything through again.
    pub(crate) fn restore(&self) {
        self.state.allowance.send_replace(None);
        self.state.network.send_replace(Network::Up);
    }

    /// Whether a cut is in force, also one that came by its count of bytes.
    pub(crate) fn is_cut(&self) -> bool {
        *self.state.network.borrow() == Network::Cut
    }
}

async fn accept(listener: TcpListener, upstream: String, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        state.accepted.send_modify(|accepted| *accepted += 1);
        let number = *state.accepted.borrow();
        connections.spawn(serve(client, number, upstream.clone(), Arc::clone(&state)));
        // Those that have ended are not kept.
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(client: TcpStream, number: usize, upstream: String, state: Arc<State>) {
    let mut network = state.network.subscribe();
    let mut resets = state.resets.subscribe();
    network
        .wait_for(|network| *network != Network::Stalled)
        .await
        .unwrap();
    if *network.borrow() == Network::Cut {
        client.set_zero_linger().unwrap();
        return;
    }
    let Ok(server) = TcpStream::connect(&upstream).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let ended_well = tokio::select! {
        // First, so that a byte beyond the allowance is never moved.
        biased;
        _ = network.wait_for(|network| *network == Network::Cut) => Some(false),
        _ = resets.changed() => Some(false),
        () = state.is_stranded(number) => None,
        ended = async {
            tokio::try_join!(
                pump(&mut client_read, &mut server_write, Direction::Up, &state),
                pump(&mut server_read, &mut client_write, Direction::Down, &state),
            )
        } => Some(ended.is_ok()),
    };
    let Some(ended_well) = ended_well else {
        // With both ends open.
        return std::future::pending().await;
    };
    if !ended_well {
        // Dropped like this, a connection is reset instead of closed.
        client_read.as_ref().set_zero_linger().ok();
        server_read.as_ref().set_zero_linger().ok();
    }
}

/// Moves bytes until an end of file, which it passes on.
async fn pump(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    direction: Direction,
    state: &State,
) -> io::Result<()> {
    let mut network = state.network.subscribe();
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = from.read(&mut buffer).await?;
        // What arrives during a stall waits here, and goes on after it.
        network
            .wait_for(|network| network.lets_through(direction))
            .await
            .map_err(io::Error::other)?;
        if read == 0 {
            return to.shutdown().await;
        }
        let passed = state.take_allowance(direction, read);
        to.write_all(&buffer[..passed]).await?;
        if passed < read || state.is_spent(direction) {
            to.flush().await?;
            state.network.send_replace(Network::Cut);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    }
}

impl State {
    /// Done once that connection is among those that were stranded.
    async fn is_stranded(&self, number: usize) {
        let mut stranded = self.stranded.subscribe();
        if stranded
            .wait_for(|stranded| number <= *stranded)
            .await
            .is_err()
        {
            std::future::pending().await
        }
    }

    fn take_allowance(&self, direction: Direction, read: usize) -> usize {
        let mut passed = read;
        self.allowance.send_modify(|allowance| {
            if let Some((limited, left)) = allowance
                && *limited == direction
            {
                passed = read.min(*left);
                *left -= passed;
            }
        });
        passed
    }

    fn is_spent(&self, direction: Direction) -> bool {
        *self.allowance.borrow() == Some((direction, 0))
    }
}
