//! A claimed call: everything that one attempt needs to know of it.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::{request::Request, trace::Trace};

/// `outbox.id`
pub type CallId = i64;

/// Somebody has deleted what was claimed.
pub(crate) const ROW_GONE: &str = "its row in leafhopper.outbox is gone";

/// A call that this instance has claimed: nobody else may send for it until the claim is given up.
///
/// It is not `Clone`: what consumes it ends the claim.
#[derive(Debug)]
pub struct Claimed {
    /// The call.
    pub id: CallId,
    /// The round of claiming it was taken in; with the instance it names the claim.
    pub round: i64,
    /// The leaf's name.
    pub leaf: String,
    /// The effect key.
    pub key: String,
    /// Calls with the same one wait for this call's end.
    pub ordering_key: Option<String>,
    /// The number of this attempt; the first is 1.
    pub attempt: u32,
    /// What is spent of `max_attempts` before this attempt.
    pub spent: u32,
    /// An earlier attempt may have been executed.
    pub in_doubt: bool,
    /// How long it was due before it was claimed.
    pub waited: Duration,
    /// What is to be sent, or what is wrong with the row.
    pub request: Result<Request, String>,
    /// The request's body is large, and still in its row.
    pub body_is_apart: bool,
    /// The row's own limit.
    pub max_attempts: Option<u32>,
    /// The row's own time limit.
    pub timeout: Option<Duration>,
    /// Whether the row brings a probe of its own.
    pub has_probe: bool,
    /// It undoes an effect.
    pub compensates: bool,
    /// The batch that it belongs to.
    pub batch: Option<Uuid>,
    /// Where it stands in its caller's trace.
    pub trace: Option<Trace>,
    /// What stands for this effect already.
    pub prior: Option<Prior>,
    /// Which generation of the effect this call would make.
    pub generation: u32,
    /// Seconds since a request that made or undid the generation before can last have been alive, where the end of one
    /// is not known. Negative where that is ahead.
    pub since_alive: Option<f64>,
}

/// A standing result for the call's leaf and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prior {
    /// The result's generation.
    pub generation: u32,
    /// The hash of the request that it answers; `None` agrees with all.
    pub request_hash: Option<Vec<u8>>,
    /// The batch that owns the effect has failed, and undoes it where something says how.
    pub being_undone: Option<UndoneBy>,
}

/// What says how an effect is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoneBy {
    /// Its row; or its undoing has begun.
    Row,
    /// Its leaf, if that has a compensation.
    Leaf,
}

/// What is to be done with a claimed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Nothing, before the body is read: it is a part of what the effect is bound to.
    ReadBody,
    /// The effect stands: the call is confirmed from this generation, nothing is sent.
    Confirmed(u32),
    /// The effect stands, but of another request under the same key.
    KeyConflict,
    /// The effect stands, and is about to be undone: neither is it this call's, nor may it be made anew yet.
    BeingUndone,
    /// The row can't be sent.
    Unsendable,
    /// It is to be sent, not before this time: a request for the generation before can still arrive.
    Wait(Duration),
    /// It is to be sent.
    Send,
}

impl Claimed {
    /// Record first: what stands for the effect decides before anything is sent. `settle` is how long after an attempt can
    /// last have been alive its request can still have an effect; `leaf_undoes` says whether the leaf has a compensation.
    #[must_use]
    pub fn duty(&self, settle: Option<Duration>, leaf_undoes: bool) -> Duty {
        if self.body_is_apart && self.request.is_ok() {
            return Duty::ReadBody;
        }
        let Some(prior) = &self.prior else {
            return match self.until_settled(settle) {
                _ if self.request.is_err() => Duty::Unsendable,
                Some(wait) if !self.in_doubt => Duty::Wait(wait),
                _ => Duty::Send,
            };
        };
        let being_undone = match prior.being_undone {
            Some(UndoneBy::Row) => true,
            Some(UndoneBy::Leaf) => leaf_undoes,
            None => false,
        };
        if being_undone && !self.in_doubt {
            return Duty::BeingUndone;
        }
        match (&prior.request_hash, &self.request) {
            (Some(hash), Ok(request)) if hash.as_slice() != request.hash() => Duty::KeyConflict,
            _ => Duty::Confirmed(prior.generation),
        }
    }

    /// The body has been read; `None` where its row has gone.
    pub fn read(&mut self, body: Option<Bytes>) {
        self.body_is_apart = false;
        match (&mut self.request, body) {
            (Ok(request), Some(body)) => request.body = Some(body),
            (request, _) => *request = Err(ROW_GONE.to_owned()),
        }
    }

    fn until_settled(&self, settle: Option<Duration>) -> Option<Duration> {
        let wait = settle?.as_secs_f64() - self.since_alive?;
        let wait = Duration::try_from_secs_f64(wait).unwrap_or_default();
        (wait > Duration::ZERO).then_some(wait)
    }
}
