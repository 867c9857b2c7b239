//! Record what attempts came to: a group of calls in one transaction.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Param, Row, Store, StoreError, column, int4};
use crate::domain::{
    call::CallId,
    decision::{FailReason, ParkReason},
    outcome::Class,
};

/// Recording waits for nobody's lock for longer than this; then the group is split and the blocked call
/// waits alone.
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// A leaf's confirmation of one call.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Confirmation {
    /// The call.
    pub call: CallId,
    /// Its leaf.
    pub leaf: String,
    /// Its effect key.
    pub key: String,
    /// The attempt's number.
    pub attempt: u32,
    /// Which generation of the effect it makes, as it was at the claim. 0 where that is not known.
    #[serde(default)]
    pub generation: u32,
    /// The status.
    pub status: u16,
    /// The kept headers, as a JSON object.
    pub headers: String,
    /// The body where `jsonb` can hold it.
    pub body: Option<ByteString>,
    /// The body otherwise.
    pub body_raw: Option<Bytes>,
    /// Whether the body is not whole.
    pub truncated: bool,
    /// What the confirmation answers.
    pub request_hash: [u8; 32],
    /// How long the attempt took.
    pub took: Duration,
}

/// What became of a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// It is the effect's result.
    Recorded,
    /// A result stood already; the call ends as confirmed, this answer is kept as history.
    Stood,
    /// The same, and the result is the word of the app or of a person for the only request that was ever sent.
    Said,
    /// The call was final; this answer is kept as history.
    Again,
    /// Another transaction holds the call: again.
    Locked,
}

/// An attempt that did not confirm.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Unconfirmed {
    /// The call.
    pub call: CallId,
    /// The claim's round.
    pub round: i64,
    /// Its leaf.
    pub leaf: String,
    /// Its effect key.
    pub key: String,
    /// The attempt's number.
    pub attempt: u32,
    /// What follows.
    pub next: Next,
    /// Whether it counts against `max_attempts`.
    pub spends: bool,
    /// For the history; absent where nothing was sent and nothing refused.
    pub history: Option<History>,
}

/// What follows for a call that was not confirmed by this attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Next {
    /// Pending again, due after this delay.
    Retry(Duration),
    /// Pending again, due after this delay, although its effect stands: that is about to be undone.
    Wait(Duration),
    /// In doubt; the same request goes again after this delay.
    Resend(Duration),
    /// In doubt; the leaf is asked after this delay. It has said that the effect exists, or not.
    Ask {
        /// When.
        delay: Duration,
        /// Whether `exists_on` said so.
        exists: bool,
    },
    /// Parked for this reason.
    Park(ParkReason),
    /// Failed for this reason.
    Fail(FailReason),
    /// Confirmed from this generation of the standing result.
    Prior(u32),
}

/// What people read of an attempt.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct History {
    /// Its class.
    pub class: Class,
    /// The status, where there was one.
    pub status: Option<u16>,
    /// What went wrong.
    pub error: Option<String>,
    /// The beginning of the answer's body.
    pub excerpt: Option<String>,
    /// How long it took.
    pub took: Duration,
}

/// What became of an attempt that did not confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// The call is in this state now.
    ///
    /// `pending`, `in_doubt`, `parked`, `confirmed`, `cancelled` or `failed`.
    To(String),
    /// A newer attempt decides, or the call is final.
    Superseded,
    /// Another transaction holds the call: again.
    Locked,
}

/// What a group's statement gives.
#[derive(Debug)]
pub struct RecordedGroup<T> {
    /// Of each call.
    pub calls: Vec<T>,
    /// A call that waited for the key of one of these may go.
    pub frees: bool,
}

impl<T> RecordedGroup<T> {
    fn of(
        operation: &'static str,
        rows: &[Row],
        call: impl FnMut(&Row) -> Result<T, StoreError>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            calls: rows.iter().map(call).collect::<Result<_, _>>()?,
            frees: rows
                .first()
                .map_or(Ok(false), |row| column(operation, row, "frees"))?,
        })
    }
}

impl Store {
    /// Records those of a group of confirmations of whose calls nothing else is known; gives their calls. The rest is
    /// for [`Self::record_confirmed`].
    ///
    /// # Errors
    /// Nothing is recorded, or all that it would have given: [`Self::record_confirmed`] finds out.
    pub async fn record_plain(
        &self,
        group: &[&Confirmation],
    ) -> Result<RecordedGroup<CallId>, StoreError> {
        const OPERATION: &str = "record confirmations";
        let answers = Answers::of(group);
        let generations: Vec<i32> = group.iter().map(|c| int4(c.generation)).collect();
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/record_plain.sql"),
                &answers.and([(&generations, Type::INT4_ARRAY)]),
            )
            .await?;
        RecordedGroup::of(OPERATION, &rows, |row| column(OPERATION, row, "call_id"))
    }

    /// Records a group of confirmations; all of it or, on an error, nothing that is known of.
    ///
    /// # Errors
    /// It is safe to record the group again: what is recorded already answers as it did.
    pub async fn record_confirmed(
        &self,
        instance: &str,
        group: &[&Confirmation],
    ) -> Result<RecordedGroup<(CallId, Confirmed)>, StoreError> {
        const OPERATION: &str = "record confirmations once more";
        let answers = Answers::of(group);
        let took: Vec<f64> = group.iter().map(|c| c.took.as_secs_f64()).collect();
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/record_confirmed.sql"),
                &answers.and([(&took, Type::FLOAT8_ARRAY), (&instance, Type::TEXT)]),
            )
            .await?;
        RecordedGroup::of(OPERATION, &rows, |row| {
            let outcome = match column::<&str>(OPERATION, row, "outcome")? {
                "recorded" => Confirmed::Recorded,
                "stood" => Confirmed::Stood,
                "said" => Confirmed::Said,
                "locked" => Confirmed::Locked,
                _ => Confirmed::Again,
            };
            Ok((column(OPERATION, row, "call_id")?, outcome))
        })
    }

    /// Records a group of attempts that did not confirm, made by one instance.
    ///
    /// # Errors
    /// It is safe to record the group again: what is recorded already changes nothing.
    pub async fn record_other(
        &self,
        instance: Uuid,
        instance_name: &str,
        group: &[&Unconfirmed],
    ) -> Result<RecordedGroup<(CallId, Moved)>, StoreError> {
        const OPERATION: &str = "record attempts";
        let calls: Vec<CallId> = group.iter().map(|u| u.call).collect();
        let rounds: Vec<i64> = group.iter().map(|u| u.round).collect();
        let leaves: Vec<&str> = group.iter().map(|u| u.leaf.as_str()).collect();
        let keys: Vec<&str> = group.iter().map(|u| u.key.as_str()).collect();
        let attempts: Vec<i32> = group.iter().map(|u| int4(u.attempt)).collect();
        let spent: Vec<i32> = group.iter().map(|u| i32::from(u.spends)).collect();
        let columns: Vec<Columns> = group.iter().map(|u| Columns::of(u.next)).collect();
        let kinds: Vec<&str> = columns.iter().map(|c| c.kind).collect();
        let delays: Vec<f64> = columns.iter().map(|c| c.delay.as_secs_f64()).collect();
        let resends: Vec<bool> = columns.iter().map(|c| c.kind == "doubt").collect();
        let reasons: Vec<Option<&str>> = columns.iter().map(|c| c.reason).collect();
        let generations: Vec<Option<i32>> = columns.iter().map(|c| c.generation).collect();
        let history: Vec<Option<&History>> = group.iter().map(|u| u.history.as_ref()).collect();
        let classes: Vec<Option<&str>> = history
            .iter()
            .map(|h| h.map(|h| h.class.as_str()))
            .collect();
        let statuses: Vec<Option<i32>> = history
            .iter()
            .map(|h| h.and_then(|h| h.status.map(i32::from)))
            .collect();
        let errors: Vec<Option<&str>> = history
            .iter()
            .map(|h| h.and_then(|h| h.error.as_deref()))
            .collect();
        let excerpts: Vec<Option<&str>> = history
            .iter()
            .map(|h| h.and_then(|h| h.excerpt.as_deref()))
            .collect();
        let took: Vec<f64> = history
            .iter()
            .map(|h| h.map_or(0.0, |h| h.took.as_secs_f64()))
            .collect();
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/record_other.sql"),
                &[
                    (&instance, Type::UUID),
                    (&instance_name, Type::TEXT),
                    (&calls, Type::INT8_ARRAY),
                    (&rounds, Type::INT8_ARRAY),
                    (&leaves, Type::TEXT_ARRAY),
                    (&keys, Type::TEXT_ARRAY),
                    (&attempts, Type::INT4_ARRAY),
                    (&kinds, Type::TEXT_ARRAY),
                    (&spent, Type::INT4_ARRAY),
                    (&delays, Type::FLOAT8_ARRAY),
                    (&resends, Type::BOOL_ARRAY),
                    (&reasons, Type::TEXT_ARRAY),
                    (&classes, Type::TEXT_ARRAY),
                    (&statuses, Type::INT4_ARRAY),
                    (&errors, Type::TEXT_ARRAY),
                    (&excerpts, Type::TEXT_ARRAY),
                    (&took, Type::FLOAT8_ARRAY),
                    (&generations, Type::INT4_ARRAY),
                ],
            )
            .await?;
        RecordedGroup::of(OPERATION, &rows, |row| {
            let moved = match column::<&str>(OPERATION, row, "outcome")? {
                "locked" => Moved::Locked,
                "superseded" => Moved::Superseded,
                state => Moved::To(state.to_owned()),
            };
            Ok((column(OPERATION, row, "call_id")?, moved))
        })
    }
}

/// What leaves have answered, as both statements for confirmations take it.
struct Answers<'a> {
    calls: Vec<CallId>,
    leaves: Vec<&'a str>,
    keys: Vec<&'a str>,
    attempts: Vec<i32>,
    statuses: Vec<i32>,
    headers: Vec<&'a str>,
    bodies: Vec<Option<&'a str>>,
    raw: Vec<Option<&'a [u8]>>,
    truncated: Vec<bool>,
    hashes: Vec<&'a [u8]>,
}

impl<'a> Answers<'a> {
    fn of(group: &[&'a Confirmation]) -> Self {
        Self {
            calls: group.iter().map(|c| c.call).collect(),
            leaves: group.iter().map(|c| c.leaf.as_str()).collect(),
            keys: group.iter().map(|c| c.key.as_str()).collect(),
            attempts: group.iter().map(|c| int4(c.attempt)).collect(),
            statuses: group.iter().map(|c| i32::from(c.status)).collect(),
            headers: group.iter().map(|c| c.headers.as_str()).collect(),
            bodies: group.iter().map(|c| c.body.as_deref()).collect(),
            raw: group.iter().map(|c| c.body_raw.as_deref()).collect(),
            truncated: group.iter().map(|c| c.truncated).collect(),
            hashes: group.iter().map(|c| c.request_hash.as_slice()).collect(),
        }
    }

    /// As parameters 1 to 10, and what only one of the statements takes behind them.
    fn and<'p, const MORE: usize>(&'p self, more: [Param<'p>; MORE]) -> Vec<Param<'p>> {
        let answers: [Param<'p>; 10] = [
            (&self.calls, Type::INT8_ARRAY),
            (&self.leaves, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.attempts, Type::INT4_ARRAY),
            (&self.statuses, Type::INT4_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&self.bodies, Type::TEXT_ARRAY),
            (&self.raw, Type::BYTEA_ARRAY),
            (&self.truncated, Type::BOOL_ARRAY),
            (&self.hashes, Type::BYTEA_ARRAY),
        ];
        answers.into_iter().chain(more).collect()
    }
}

/// [`Next`] as the statement takes it.
struct Columns {
    kind: &'static str,
    delay: Duration,
    reason: Option<&'static str>,
    generation: Option<i32>,
}

impl Columns {
    fn of(next: Next) -> Self {
        let none = Self {
            kind: "retry",
            delay: Duration::ZERO,
            reason: None,
            generation: None,
        };
        match next {
            Next::Retry(delay) => Self { delay, ..none },
            Next::Wait(delay) => Self {
                kind: "wait",
                delay,
                ..none
            },
            Next::Resend(delay) => Self {
                kind: "doubt",
                delay,
                ..none
            },
            Next::Ask { delay, exists } => Self {
                kind: if exists { "exists" } else { "ask" },
                delay,
                ..none
            },
            Next::Park(reason) => Self {
                kind: "park",
                reason: Some(reason.as_str()),
                ..none
            },
            Next::Fail(reason) => Self {
                kind: "failed",
                reason: Some(reason.as_str()),
                ..none
            },
            Next::Prior(generation) => Self {
                kind: "prior",
                generation: Some(int4(generation)),
                ..none
            },
        }
    }
}
