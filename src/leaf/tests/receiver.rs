//! A hand-written TCP receiver that does what its script says, and counts what it sees.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Notify,
    task::JoinSet,
    time::timeout,
};

use super::SHORT;

/// This machine, and a port that is free.
const LOCAL: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// What a receiver does next on a connection. At the end of its script it closes.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Reads an HTTP/1 request to the end of its body.
    Read,
    /// Reads HTTP/2 frames to the end of a stream, the connection's preface first.
    ReadHttp2,
    Write(&'static [u8]),
    /// Writes the same again and again, as long as somebody reads.
    WriteForEver(&'static [u8]),
    /// Does nothing more, and keeps the connection.
    Hang,
    /// Closes so that the other side sees a reset.
    Reset,
}

impl fmt::Debug for Step {
    /// Bytes as text, for people who read a failed test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("Read"),
            Self::ReadHttp2 => f.write_str("ReadHttp2"),
            Self::Write(bytes) => write!(f, "Write({})", bytes.escape_ascii()),
            Self::WriteForEver(bytes) => write!(f, "WriteForEver({})", bytes.escape_ascii()),
            Self::Hang => f.write_str("Hang"),
            Self::Reset => f.write_str("Reset"),
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    connections: AtomicUsize,
    /// Connections whose script has ended.
    ended: AtomicUsize,
    change: Notify,
    requests: Mutex<Vec<String>>,
}

/// A receiver at work; it ends with its value.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    /// Plays the n-th script on the n-th connection, and closes those after the last at once.
    pub(super) async fn start(scripts: &[&[Step]]) -> Self {
        Self::start_at(LOCAL, scripts).await
    }

    /// The same at this address.
    pub(super) async fn start_at(address: SocketAddr, scripts: &[&[Step]]) -> Self {
        let scripts: Vec<Vec<Step>> = scripts.iter().map(|script| script.to_vec()).collect();
        Self::serve(address, move |n, stream, seen| {
            let script = scripts.get(n).cloned().unwrap_or_default();
            async move {
                if script.iter().any(|step| matches!(step, Step::Reset)) {
                    stream.set_zero_linger().unwrap();
                }
                play(stream, &script, &seen).await;
            }
        })
        .await
    }

    /// Plays one script on every connection, behind what `wrap` makes of it (TLS).
    pub(super) async fn wrapped<S, F>(
        script: &'static [Step],
        wrap: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        F: Future<Output = std::io::Result<S>> + Send + 'static,
    {
        Self::serve(LOCAL, move |_, stream, seen| {
            let wrapping = wrap(stream);
            async move {
                if let Ok(stream) = wrapping.await {
                    play(stream, script, &seen).await;
                }
            }
        })
        .await
    }

    async fn serve<F: Future<Output = ()> + Send + 'static>(
        address: SocketAddr,
        each: impl Fn(usize, TcpStream, Arc<Seen>) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let seen = Arc::clone(&seen);
            async move {
                let mut connections = JoinSet::new();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let n = seen.connections.fetch_add(1, Ordering::SeqCst);
                    let playing = each(n, stream, Arc::clone(&seen));
                    let seen = Arc::clone(&seen);
                    connections.spawn(async move {
                        playing.await;
                        seen.ended.fetch_add(1, Ordering::SeqCst);
                        seen.change.notify_one();
                    });
                }
            }
        });
        Self {
            address,
            seen,
            _tasks: tasks,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Waits until all that was ever written to this receiver is read. The senders are gone by now.
    pub(super) async fn drained(&self) {
        // Connections are accepted in order, so the ones before this one are counted when it is.
        let mut last = TcpStream::connect(self.address).await.unwrap();
        last.write_all(b"LAST\r\n\r\n").await.unwrap();
        last.shutdown().await.unwrap();
        last.read_to_end(&mut Vec::new()).await.unwrap();
        while self.seen.ended.load(Ordering::SeqCst) < self.connections() {
            self.seen.change.notified().await;
        }
    }

    /// The requests that were read, heads and bodies.
    pub(super) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }
}

/// An address at which nobody listens.
pub(super) async fn refusing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// An address that answers no connection: its queue is full, and the kernel drops what comes.
/// It stays so as long as the returned value lives.
pub(super) async fn black_hole() -> (SocketAddr, impl Sized) {
    black_hole_at(LOCAL).await
}

/// The same at this address.
pub(super) async fn black_hole_at(address: SocketAddr) -> (SocketAddr, impl Sized) {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.unwrap();
    socket.bind(address).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(SHORT, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
    }
    (address, (listener, waiting))
}

async fn play(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: &[Step], seen: &Seen) {
    let mut preface = 24;
    for step in script {
        let done = match step {
            Step::Read => read_request(&mut stream, seen).await,
            Step::ReadHttp2 => read_http2(&mut stream, std::mem::take(&mut preface), seen).await,
            Step::Write(bytes) => stream.write_all(bytes).await.ok(),
            Step::WriteForEver(bytes) => loop {
                if stream.write_all(bytes).await.is_err() {
                    break None;
                }
            },
            Step::Hang => std::future::pending().await,
            // `set_zero_linger` was set; dropping resets.
            Step::Reset => None,
        };
        if done.is_none() {
            return;
        }
    }
    // TLS flushes and says goodbye only when asked; a peer that is gone already is no fault.
    drop(stream.shutdown().await);
}

/// Notes a whole request; `None` where the peer closed before its end.
async fn read_request(stream: &mut (impl AsyncRead + Unpin), seen: &Seen) -> Option<()> {
    let mut text = Vec::new();
    let mut length = None;
    loop {
        if length.is_none() && text.ends_with(b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&text).to_lowercase();
            let claimed = head
                .split_once("content-length: ")
                .and_then(|(_, rest)| rest.split_once("\r\n"))
                .map_or(0, |(number, _)| number.parse().unwrap());
            length = Some(text.len() + claimed);
        }
        if length == Some(text.len()) {
            break;
        }
        text.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(text).unwrap();
    seen.requests.lock().unwrap().push(text);
    Some(())
}

/// Notes a stream whose last frame has come (flag `END_STREAM` of HEADERS or DATA, RFC 9113 section 6).
async fn read_http2(
    stream: &mut (impl AsyncRead + Unpin),
    preface: usize,
    seen: &Seen,
) -> Option<()> {
    stream.read_exact(&mut vec![0; preface]).await.ok()?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.ok()?;
        let (kind, flags) = (head[3], head[4]);
        if kind <= 1 && flags & 1 == 1 {
            let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            seen.requests
                .lock()
                .unwrap()
                .push(format!("stream {number}"));
            return Some(());
        }
    }
}
