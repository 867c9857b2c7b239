//! What happens to calls without a claim of ours: they expire, their instance vanishes, the insert trigger did not see
//! them.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Store, StoreError, column, order::OrderingKey, trace};
use crate::domain::{call::CallId, trace::Trace};

const LOCK_WAIT: Duration = Duration::from_millis(100);

/// So many rows in one transaction: large enough to be rare, small enough to be short.
pub const CHUNK: i32 = 1000;

/// So many rows of the outbox are looked at for untracked calls in one statement.
const UNTRACKED_WINDOW: i32 = 2000;

/// A window of rows that was looked at for untracked calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its lowest id; `None` where no row lies below the given one.
    pub lowest: Option<CallId>,
    /// Some of its rows were untracked.
    pub found: bool,
}

/// What a look for untracked calls came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenUp {
    /// Of the newest rows.
    pub newest: Window,
    /// Of the walk through all others.
    pub walked: Window,
    /// So many were untracked, and are taken up now.
    pub calls: u64,
}

/// A call that ended by itself while it waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The call.
    pub call: CallId,
    /// Its leaf.
    pub leaf: String,
    /// `expired` or `failed`.
    pub state: String,
    /// Why, where the state does not say it all.
    pub reason: Option<String>,
    /// What may go next.
    pub ordering_key: Option<OrderingKey>,
    /// The batch that it belonged to, which it may cancel.
    pub batch: Option<Uuid>,
    /// It was to undo an effect.
    pub compensates: bool,
    /// Where it stood in its caller's trace.
    pub trace: Option<Trace>,
}

impl Store {
    /// Ends waiting calls whose time is over, at most [`CHUNK`] of them.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn expire(&self) -> Result<Vec<Ended>, StoreError> {
        const OPERATION: &str = "expire calls";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/expire.sql"),
                &[(&CHUNK, Type::INT4)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let leaf: String = column(OPERATION, row, "leaf")?;
                let ordering_key: Option<String> = column(OPERATION, row, "ordering_key")?;
                Ok(Ended {
                    call: column(OPERATION, row, "call_id")?,
                    ordering_key: ordering_key.map(|key| (leaf.clone(), key)),
                    leaf,
                    state: column(OPERATION, row, "state")?,
                    reason: column(OPERATION, row, "reason")?,
                    batch: column(OPERATION, row, "batch_id")?,
                    compensates: column(OPERATION, row, "compensates")?,
                    trace: trace(OPERATION, row)?,
                })
            })
            .collect()
    }

    /// Puts claims of `dead` instances, and of instances without a row, in doubt, at most [`CHUNK`] of them.
    /// Gives their leaves.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn reclaim(&self, dead: &[Uuid]) -> Result<Vec<String>, StoreError> {
        const OPERATION: &str = "reclaim calls of vanished instances";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/reclaim.sql"),
                &[(&dead, Type::UUID_ARRAY), (&CHUNK, Type::INT4)],
            )
            .await?;
        rows.iter()
            .map(|row| column(OPERATION, row, "leaf"))
            .collect()
    }

    /// Takes up untracked calls among the newest rows below each of two ids; `None` where another instance is at it.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn take_up_untracked(
        &self,
        newest: CallId,
        walked: Option<CallId>,
    ) -> Result<Option<TakenUp>, StoreError> {
        const OPERATION: &str = "take up untracked calls";
        let transaction = self.begin(OPERATION).await?;
        let locked = transaction
            .first(
                LOCK_WAIT,
                include_str!("../../sql/queries/untracked_lock.sql"),
                &[],
            )
            .await?;
        let is_ours = match locked.first() {
            Some(row) => column(OPERATION, row, "mine")?,
            None => false,
        };
        if !is_ours {
            transaction.commit().await?;
            return Ok(None);
        }
        let rows = transaction
            .last(
                include_str!("../../sql/queries/untracked_take_up.sql"),
                &[
                    (&newest, Type::INT8),
                    (&walked, Type::INT8),
                    (&UNTRACKED_WINDOW, Type::INT4),
                ],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        Ok(Some(TakenUp {
            newest: Window {
                lowest: column(OPERATION, row, "lowest_newest")?,
                found: column(OPERATION, row, "among_newest")?,
            },
            walked: Window {
                lowest: column(OPERATION, row, "lowest_walked")?,
                found: column(OPERATION, row, "among_walked")?,
            },
            calls: column::<i64>(OPERATION, row, "taken_up")?.unsigned_abs(),
        }))
    }
}
