//! What people ask for: lists, one call with everything, and changes by hand.
//!
//! The command line, the HTTP API and the page use these functions, so they can't disagree. Rows travel as
//! the JSON text that PostgreSQL makes of them: numbers and times arrive unchanged, `infinity` too.

pub mod act;
mod apply;
pub mod batches;
pub mod health;
pub mod job;
pub mod leaves;
pub mod list;
pub mod show;
pub mod watch;

use tokio_postgres::{Row, error::SqlState};
use uuid::Uuid;

use super::{StoreError, column, count};
use crate::domain::call::CallId;

/// Every state of `leafhopper.call`.
pub const STATES: &[&str] = &[
    "pending",
    "dispatching",
    "accepted",
    "in_doubt",
    "parked",
    "confirmed",
    "failed",
    "cancelled",
    "expired",
];

/// The reasons of pending calls, which the view works out. `untracked` is not among them: such a call has no
/// row in `dispatch` to be found by.
pub const PENDING_REASONS: &[&str] = &[
    "leaf_unknown",
    "leaf_paused",
    "credential_unknown",
    "breaker_open",
    "rate_limited",
    "waits_for_key",
    "waits_for_order",
    "waits_for_batch",
    "batch_cancelled",
    "retry",
    "database_changed",
];

/// The reasons of parked calls. Failed ones may be `attempts_exhausted`, too.
pub const PARKED_REASONS: &[&str] = &[
    "no_probe",
    "probe_unclear",
    "template",
    "exists_unmatched",
    "key_expired",
    "crash_suspect",
    "attempts_exhausted",
    "weak_adoption",
];

/// The reasons of failed calls.
pub const FAILED_REASONS: &[&str] = &[
    "rejected",
    "attempts_exhausted",
    "gave_up",
    "key_conflict",
    "unsendable",
];

/// A call as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRow {
    /// Its id.
    pub id: CallId,
    /// The leaf, as the row names it.
    pub leaf: String,
    /// The effect key.
    pub key: String,
    /// One of [`STATES`].
    pub state: String,
    /// Why it is in that state; free text where a person cancelled it.
    pub reason: Option<String>,
    /// The call that it waits for.
    pub waits_for: Option<CallId>,
    /// What is spent of its attempts.
    pub attempts: u32,
    /// The leaf's last status.
    pub last_status: Option<i32>,
    /// Its batch.
    pub batch: Option<Uuid>,
    /// When it is sent: `ready`, or the phase of its batch.
    pub run_when: String,
    /// Of a compensation: the call whose effect it undoes.
    pub undoes: Option<CallId>,
    /// As the contract defines it.
    pub stuck: bool,
    /// Seconds since it was inserted, by the database's clock.
    pub age: f64,
    /// The row as a JSON object.
    pub json: String,
}

impl CallRow {
    fn read(operation: &'static str, row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: column(operation, row, "id")?,
            leaf: column(operation, row, "leaf")?,
            key: column(operation, row, "key")?,
            state: column(operation, row, "state")?,
            reason: column(operation, row, "reason")?,
            waits_for: column(operation, row, "waits_for")?,
            attempts: count(column(operation, row, "attempts")?),
            last_status: column(operation, row, "last_status")?,
            batch: column(operation, row, "batch_id")?,
            run_when: column(operation, row, "run_when")?,
            undoes: column(operation, row, "undoes")?,
            stuck: column(operation, row, "stuck")?,
            age: column(operation, row, "age")?,
            json: column(operation, row, "json")?,
        })
    }
}

impl StoreError {
    /// There is no schema, or an older one.
    #[must_use]
    pub fn lacks_schema(&self) -> bool {
        self.code().is_some_and(|code| {
            [
                SqlState::UNDEFINED_TABLE,
                SqlState::UNDEFINED_COLUMN,
                SqlState::UNDEFINED_FUNCTION,
                SqlState::INVALID_SCHEMA_NAME,
            ]
            .contains(code)
        })
    }
}
