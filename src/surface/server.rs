//! The listener: connections and requests within limits, so that a slow or greedy client costs little and holds
//! nothing up, and a stop that lets answers under way go out.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, Request},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use super::{
    problem::Problem,
    slots::{Slot, Slots},
};
use crate::shutdown::Tasks;

/// A request's head has to be there within this time. A connection that waits for its next request is closed after
/// it, too.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// A request's head is no longer than this.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// A request's body has to be there within this time.
const BODY_LIMIT: Duration = Duration::from_secs(5);

/// A request's body is no longer than this: as much as is kept of a leaf's answer, for which a person may give one.
pub(super) const BODY_BYTES_MAX: usize = 1024 * 1024;

/// An answer has begun within this time: longer than any one statement may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// What a client does not take within this time is not sent any more, and its connection is closed.
const TAKING_LIMIT: Duration = Duration::from_secs(30);

/// After an accept that failed for a lack of the machine's.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Serves until `end`; then answers under way go out. Who waits for `tasks` waits for them.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    tasks: &Tasks,
    end: CancellationToken,
) {
    let slots = Slots::default();
    loop {
        let next = async { (slots.room().await, listener.accept().await) };
        let (room, accepted) = tokio::select! {
            next = next => next,
            () = end.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(slot) = room.and_then(|room| slots.take(room, peer.ip())) else {
                    tracing::debug!("a connection more than {}'s share is closed", peer.ip());
                    continue;
                };
                let requests = Requests {
                    router: router.clone(),
                    peer,
                    tasks: tasks.clone(),
                    slot: Arc::new(slot),
                };
                tasks.spawn("connection", connection(stream, requests, end.clone()));
            }
            Err(error) if is_the_client_s(&error) => {}
            Err(error) => {
                tracing::warn!("a connection to the HTTP listener can't be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The connection was gone before it was accepted; all else is a lack of file descriptors or memory.
fn is_the_client_s(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}

/// The requests of one connection.
#[derive(Clone)]
struct Requests {
    router: Router,
    peer: SocketAddr,
    tasks: Tasks,
    slot: Arc<Slot>,
}

impl Requests {
    /// Answers one. It goes on, and keeps the connection's place, where the client goes away meanwhile: what it has asked
    /// of the database goes on there, too, and whoever asks and goes, again and again, must not have more of that under
    /// way than one who waits.
    async fn answer(self, mut request: Request<Incoming>) -> Result<Response, Gone> {
        request.extensions_mut().insert(ConnectInfo(self.peer));
        let (answer, answered) = oneshot::channel();
        let Self {
            mut router,
            tasks,
            slot,
            ..
        } = self;
        tasks.spawn("request", async move {
            let Ok(response) = router.call(request).await;
            // An error means that nobody waits for it any more.
            drop(answer.send(response));
            drop(slot);
        });
        answered.await.map_err(|_panicked| Gone)
    }
}

/// There is no answer: what was to make it has panicked, which is logged.
#[derive(Debug, thiserror::Error)]
#[error("there is no answer")]
struct Gone;

async fn connection(stream: TcpStream, requests: Requests, end: CancellationToken) {
    let limit = u32::try_from(TAKING_LIMIT.as_millis()).unwrap_or(u32::MAX);
    let limited = rustix::net::sockopt::set_tcp_user_timeout(&stream, limit);
    if let Err(error) = limited
        .map_err(io::Error::from)
        .and_then(|()| stream.set_nodelay(true))
    {
        tracing::debug!("a connection without its options: {error}");
        return;
    }
    let service = service_fn(move |request| requests.clone().answer(request));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // How it ends is the client's affair: it went away, was too slow, or spoke no HTTP.
    tokio::select! {
        ended = connection.as_mut() => drop(ended),
        () = end.cancelled() => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
}

/// Gives up a request whose answer is too long in coming. What it was about to change is rolled back where it was not
/// committed.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    match timeout(ANSWER_LIMIT, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => {
            let detail = format!(
                "there is no answer after {} s: look at what it was about before you try again",
                ANSWER_LIMIT.as_secs()
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
        }
    }
}

/// A request's whole body, of at most `bytes_max`.
///
/// # Errors
/// It is too long, too slow, or broken off.
pub(super) async fn body(body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let read = axum::body::to_bytes(body, bytes_max);
    match timeout(BODY_LIMIT, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(Problem::new(
            if is_too_long(&error) {
                StatusCode::PAYLOAD_TOO_LARGE
            } else {
                StatusCode::BAD_REQUEST
            },
            format!("the request's body can't be read (at most {bytes_max} bytes are): {error}"),
        )),
        Err(_elapsed) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!(
                "the request's body was not there within {} s",
                BODY_LIMIT.as_secs()
            ),
        )),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
