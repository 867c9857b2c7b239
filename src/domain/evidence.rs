//! What was seen on the wire while one attempt was made. Facts only: [`super::outcome`] judges them.
//!
//! The line that matters is between [`Evidence::NotSent`] and the rest. `NotSent` is an allow-list:
//! only what certainly never reached the leaf's application belongs there, each entry with a test.
//! Anything that is not recognised is [`Evidence::Unanswered`].

use std::time::Duration;

use bytes::Bytes;

/// All that one attempt saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Evidence {
    /// Certainly nothing of the request reached the leaf's application.
    NotSent(NotSent),
    /// The request, or a part of it, may have reached the leaf, and no complete answer came back.
    Unanswered(Unanswered),
    /// A complete answer (its body perhaps cut at the configured size).
    Answered(Answer),
}

/// Why certainly nothing was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// The request can't be made of this row, whatever is tried: a header that HTTP does not allow, a
    /// header that is the leaf's own. Says what is wrong and what would be right.
    Unsendable(String),
    /// No connection came about: DNS, refused, TLS, connect time-out, proxy.
    Unconnected(String),
    /// Its own time, or what was left of it, was too short for a connection: that says nothing of the leaf.
    OutOfTime(String),
    /// The leaf refused an HTTP/2 stream unprocessed (RFC 9113 section 8.7).
    Refused(String),
    /// This instance's lease was over before anything was written.
    LeaseOver,
}

/// The request may have been executed and nobody said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// What went wrong, for people; never holds a secret.
    pub error: String,
    /// The status, where the headers had arrived before the answer broke off.
    pub status: Option<u16>,
}

/// A complete answer of the leaf.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The final status; 1xx answers are skipped.
    pub status: u16,
    /// The headers that are kept, names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// `Retry-After` as a delay from now; absent where it is missing or can't be read.
    pub retry_after: Option<Duration>,
    /// The body's bytes, cut at the leaf's `max_response_bytes`.
    pub body: Bytes,
    /// Whether the body was longer than what is kept.
    pub truncated: bool,
}
