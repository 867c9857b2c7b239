//! How far a request came: the proof behind [`NotSent`](crate::domain::evidence::NotSent).
//!
//! A request's body travels with it through reqwest and hyper, so it can tell what became of both. hyper asks
//! the body [`Body::is_end_stream`] after a connection has taken the request from its queue, and before it
//! writes the first byte (HTTP/1: `Dispatcher::poll_write`; HTTP/2: `ClientTask::poll`): it has to know
//! how the head is framed. So a body that was dropped without having been asked belongs to a request of
//! which nothing was written. That covers DNS, refused and timed-out connections, TLS, proxies,
//! and a request that hyper hands back because its kept connection closed before it was begun. (hyper-util sends
//! such a request again on another connection; reqwest can't switch that off, and it needs no switching off.)
//!
//! A kind of error proves less: a time limit for the whole may end while connecting or while
//! waiting for the answer, and looks the same.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::step::reached;

/// What a request's body has seen.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// A connection has begun with the request.
    begun: AtomicBool,
    /// A connection has asked for the body's bytes.
    body_asked: AtomicBool,
    /// The request is no more.
    dropped: AtomicBool,
}

impl Progress {
    fn begin(&self) {
        if !self.begun.swap(true, Ordering::SeqCst) {
            reached("request", "handed over");
        }
    }

    /// Whether a connection may have written a part of the request.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Whether nothing was written and nothing can be any more. To be asked after the exchange has been
    /// dropped: before, the request is still waiting.
    pub(crate) fn certainly_unwritten(&self) -> bool {
        // In this order: a connection begins with a request before it drops it.
        self.dropped.load(Ordering::SeqCst) && !self.begun.load(Ordering::SeqCst)
    }

    /// Whether a connection had come as far as the body's bytes.
    pub(crate) fn body_was_asked(&self) -> bool {
        self.body_asked.load(Ordering::SeqCst)
    }
}

/// A request's body that tells how far the request came.
#[derive(Debug)]
pub(crate) struct TrackedBody {
    bytes: Bytes,
    progress: Arc<Progress>,
}

impl TrackedBody {
    pub(crate) fn new(bytes: Bytes) -> (Self, Arc<Progress>) {
        let progress = Arc::new(Progress::default());
        let body = Self {
            bytes,
            progress: Arc::clone(&progress),
        };
        (body, progress)
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.progress.begin();
        self.progress.body_asked.store(true, Ordering::SeqCst);
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.progress.begin();
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        // Asked by the layers before hyper too; known exactly, so that the request has a Content-Length.
        SizeHint::with_exact(u64::try_from(self.bytes.len()).unwrap_or(u64::MAX))
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.progress.dropped.store(true, Ordering::SeqCst);
    }
}
