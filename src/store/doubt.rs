//! Calls in doubt: which of them are due, and how they go on.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Store, StoreError, body::LARGE, column, count, int4, seconds, trace};
use crate::domain::{call::CallId, trace::Trace};

const LOCK_WAIT: Duration = Duration::from_millis(100);

/// So many of each leaf in one look.
const CHUNK: i32 = 500;

/// A leaf whose calls in doubt are looked at.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The leaf.
    pub leaf: String,
    /// Its time limit for an attempt.
    pub timeout: Duration,
    /// How long it remembers an idempotency key.
    pub window: Option<Duration>,
    /// The credentials that are kept back from it.
    pub blocked: Vec<String>,
}

/// A call in doubt that is due.
#[derive(Debug, Clone)]
pub struct DoubtRow {
    /// The call.
    pub call: CallId,
    /// Its leaf.
    pub leaf: String,
    /// Its method.
    pub method: String,
    /// Claims so far; the decision holds only while this is unchanged.
    pub tries: i32,
    /// What is spent of `max_attempts`.
    pub spent: u32,
    /// How often its instance vanished with it, in a row.
    pub crashes: u32,
    /// The row's own limit.
    pub max_attempts: Option<u32>,
    /// Whether the row brings a probe of its own.
    pub has_probe: bool,
    /// Its body is large, or that of the call which it undoes.
    pub large: bool,
    /// The leaf has said that the effect exists.
    pub exists: bool,
    /// Which of the leaf's credentials.
    pub credential: Option<String>,
    /// The leaf is paused.
    pub paused: bool,
    /// How long the call has been in doubt.
    pub in_doubt_for: Duration,
    /// Probes whose answer was unclear.
    pub unclear: u32,
    /// The time since its latest attempt can last have been alive; how long until then, where that is ahead.
    pub since_alive: Result<Duration, Duration>,
    /// The same moment in seconds of the database's epoch; what is decided holds only while it is unchanged.
    pub alive_until: Option<f64>,
    /// No attempt may begin any more: its deadline, or somebody's word.
    pub over: bool,
    /// Its batch is not open.
    pub batch_closed: bool,
    /// The row brings a compensation of its own.
    pub compensated: bool,
    /// Another attempt would end within the leaf's memory of the key.
    pub within_window: bool,
    /// The batch that it belongs to.
    pub batch: Option<Uuid>,
    /// It undoes an effect.
    pub compensates: bool,
    /// Where it stands in its caller's trace.
    pub trace: Option<Trace>,
}

/// A call in doubt that somebody's word has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredDoubt {
    /// The call.
    pub call: CallId,
    /// Its leaf.
    pub leaf: String,
    /// What may go next.
    pub ordering_key: Option<String>,
    /// The batch that it belonged to.
    pub batch: Option<Uuid>,
    /// It undid an effect.
    pub compensates: bool,
    /// Where it stood in its caller's trace.
    pub trace: Option<Trace>,
}

impl Store {
    /// Calls in doubt that are due and have no open way out.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn doubts(&self, scopes: &[Scope]) -> Result<Vec<DoubtRow>, StoreError> {
        const OPERATION: &str = "look at calls in doubt";
        let leaves: Vec<&str> = scopes.iter().map(|scope| scope.leaf.as_str()).collect();
        let timeouts: Vec<f64> = scopes
            .iter()
            .map(|scope| scope.timeout.as_secs_f64())
            .collect();
        let windows: Vec<Option<f64>> = scopes
            .iter()
            .map(|scope| scope.window.map(|window| window.as_secs_f64()))
            .collect();
        let blocked: Vec<String> = scopes
            .iter()
            .map(|scope| serde_json::Value::from(scope.blocked.clone()).to_string())
            .collect();
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/doubts.sql"),
                &[
                    (&leaves, Type::TEXT_ARRAY),
                    (&CHUNK, Type::INT4),
                    (&timeouts, Type::FLOAT8_ARRAY),
                    (&windows, Type::FLOAT8_ARRAY),
                    (&LARGE, Type::INT4),
                    (&blocked, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let max_attempts: Option<i32> = column(OPERATION, row, "max_attempts")?;
                let alive: Option<f64> = column(OPERATION, row, "since_alive")?;
                let alive = alive.unwrap_or_default();
                Ok(DoubtRow {
                    call: column(OPERATION, row, "call_id")?,
                    leaf: column(OPERATION, row, "leaf")?,
                    method: column(OPERATION, row, "method")?,
                    tries: column(OPERATION, row, "tries")?,
                    spent: count(column(OPERATION, row, "attempts")?),
                    crashes: count(column(OPERATION, row, "crashes")?),
                    max_attempts: max_attempts.map(count),
                    has_probe: column(OPERATION, row, "has_probe")?,
                    large: column::<Option<bool>>(OPERATION, row, "large")?.unwrap_or(false),
                    exists: column(OPERATION, row, "exists_said")?,
                    credential: column(OPERATION, row, "credential")?,
                    paused: column(OPERATION, row, "paused")?,
                    in_doubt_for: seconds(column(OPERATION, row, "in_doubt_for")?),
                    unclear: count(column(OPERATION, row, "probes")?),
                    alive_until: column(OPERATION, row, "alive_until")?,
                    since_alive: if alive < 0.0 {
                        Err(seconds(-alive))
                    } else {
                        Ok(seconds(alive))
                    },
                    over: column(OPERATION, row, "deadline_passed")?
                        || column(OPERATION, row, "cancelled")?,
                    batch_closed: column(OPERATION, row, "batch_closed")?,
                    compensated: column(OPERATION, row, "compensated")?,
                    within_window: column(OPERATION, row, "within_window")?,
                    batch: column(OPERATION, row, "batch_id")?,
                    compensates: column(OPERATION, row, "compensates")?,
                    trace: trace(OPERATION, row)?,
                })
            })
            .collect()
    }

    /// Ends calls in doubt that are due and whose effect stands by somebody's word.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn answer_doubts(&self, scopes: &[Scope]) -> Result<Vec<AnsweredDoubt>, StoreError> {
        const OPERATION: &str = "answer calls in doubt";
        let leaves: Vec<&str> = scopes.iter().map(|scope| scope.leaf.as_str()).collect();
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/answer_doubts.sql"),
                &[(&leaves, Type::TEXT_ARRAY), (&CHUNK, Type::INT4)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(AnsweredDoubt {
                    call: column(OPERATION, row, "call_id")?,
                    leaf: column(OPERATION, row, "leaf")?,
                    ordering_key: column(OPERATION, row, "ordering_key")?,
                    batch: column(OPERATION, row, "batch_id")?,
                    compensates: column(OPERATION, row, "compensates")?,
                    trace: trace(OPERATION, row)?,
                })
            })
            .collect()
    }

    /// Writes down how each call goes on. Gives those of which it took effect, with their states.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn settle_doubts(
        &self,
        decided: &[(&DoubtRow, Settle)],
    ) -> Result<Vec<(CallId, String)>, StoreError> {
        const OPERATION: &str = "settle calls in doubt";
        let calls: Vec<CallId> = decided.iter().map(|(doubt, _)| doubt.call).collect();
        let tries: Vec<i32> = decided.iter().map(|(doubt, _)| int4(doubt.tries)).collect();
        let columns = decided.iter().map(|(_, settle)| match settle {
            Settle::Park(reason) => ("park", Some(*reason), 0.0, false),
            Settle::Resend { asks } => ("resend", None, 0.0, *asks),
            Settle::Ask(takes) => ("ask", None, takes.as_secs_f64(), false),
        });
        let (mut kinds, mut reasons, mut takes, mut asks) = (vec![], vec![], vec![], vec![]);
        for (kind, reason, time, question) in columns {
            kinds.push(kind);
            reasons.push(reason);
            takes.push(time);
            asks.push(question);
        }
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/settle_doubts.sql"),
                &[
                    (&calls, Type::INT8_ARRAY),
                    (&tries, Type::INT4_ARRAY),
                    (&kinds, Type::TEXT_ARRAY),
                    (&reasons, Type::TEXT_ARRAY),
                    (&takes, Type::FLOAT8_ARRAY),
                    (&asks, Type::BOOL_ARRAY),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok((
                    column(OPERATION, row, "call_id")?,
                    column(OPERATION, row, "state")?,
                ))
            })
            .collect()
    }
}

/// How a call in doubt goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// A person has to say, for this reason.
    Park(&'static str),
    /// The same request is sent again.
    Resend {
        /// Its batch is cancelled, and the resend is the question.
        asks: bool,
    },
    /// The leaf is asked; that can take so long, and then anyone may ask again.
    Ask(Duration),
}
