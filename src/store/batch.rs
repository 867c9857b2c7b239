//! Batches: which are to be looked at, the look, and what follows from it for their calls.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Row, Store, StoreError, Transaction, column, int4, sweep::CHUNK};
use crate::domain::call::CallId;

const LOCK_WAIT: Duration = Duration::from_millis(100);

/// A look waits only for a row that somebody else is adding; an app may take longer.
const LOOK_WAIT: Duration = Duration::from_millis(25);

/// So many marks are read at once.
pub const MARKS: usize = 1000;

/// So many batches on their way to their end are walked through at once.
pub const WALK: usize = 1000;

/// So many calls are cancelled in one transaction: it takes a tenth of a second, and waits for nobody.
pub const SWEEP: i32 = 10_000;

/// "Look at this batch."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// `batch_mark.id`
    pub id: i64,
    /// The batch.
    pub batch: Uuid,
}

/// What this instance's configuration says of leaves.
#[derive(Debug, Clone, Default)]
pub struct Leaves {
    /// Those that it knows.
    pub known: Vec<String>,
    /// Those of them that have a compensation.
    pub compensated: Vec<String>,
}

/// A batch that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The batch.
    pub batch: Uuid,
    /// The state that it was in.
    pub before: String,
    /// The state that it is in.
    pub state: String,
    /// Calls of it may wait that will not be sent.
    pub may_have_waiting: bool,
    /// Follow-ups of it may be let go.
    pub may_release: bool,
    /// Only an instance that knows other leaves can tell what is to be done next: its mark stays for them.
    pub others: bool,
}

impl Store {
    /// Marks above `after`, the lowest first, at most [`MARKS`].
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn batch_marks(&self, after: i64) -> Result<Vec<Mark>, StoreError> {
        const OPERATION: &str = "read marks of batches";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/batch_marks.sql"),
                &[(&after, Type::INT8), (&int4(MARKS), Type::INT4)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Mark {
                    id: column(OPERATION, row, "id")?,
                    batch: column(OPERATION, row, "batch_id")?,
                })
            })
            .collect()
    }

    /// Batches on their way to their end above `after`, at most [`WALK`].
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn unfinished_batches(&self, after: Uuid) -> Result<Vec<Uuid>, StoreError> {
        const OPERATION: &str = "walk through batches";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/batch_unfinished.sql"),
                &[(&after, Type::UUID), (&int4(WALK), Type::INT4)],
            )
            .await?;
        ids(OPERATION, &rows)
    }

    /// Looks at each batch, and takes it one step further. Gives also those that an app is just adding: they keep their
    /// marks, and are in nobody's way.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn look_at_batches(
        &self,
        batches: &[Uuid],
        marks: &[Mark],
        leaves: &Leaves,
    ) -> Result<(Vec<Looked>, Vec<Uuid>), StoreError> {
        let (mut looked, mut contended) = (Vec::new(), Vec::new());
        let mut parts = vec![batches];
        while let Some(part) = parts.pop() {
            let of_part: Vec<Mark> = marks
                .iter()
                .filter(|mark| part.contains(&mark.batch))
                .copied()
                .collect();
            match (self.look(part, &of_part, leaves).await, part) {
                (Err(error), [one]) if error.is_contention() => contended.push(*one),
                (Err(error), _) if error.is_contention() => {
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([one, other]);
                }
                (seen, _) => looked.extend(seen?),
            }
        }
        Ok((looked, contended))
    }

    async fn look(
        &self,
        batches: &[Uuid],
        marks: &[Mark],
        leaves: &Leaves,
    ) -> Result<Vec<Looked>, StoreError> {
        const OPERATION: &str = "look at batches";
        let (transaction, locked) = self.lock_batches(OPERATION, LOOK_WAIT, batches).await?;
        let (mark_ids, of): (Vec<i64>, Vec<Uuid>) = marks.iter().map(|m| (m.id, m.batch)).unzip();
        let rows = transaction
            .last(
                include_str!("../../sql/queries/look_at_batches.sql"),
                &[
                    (&batches, Type::UUID_ARRAY),
                    (&locked, Type::UUID_ARRAY),
                    (&mark_ids, Type::INT8_ARRAY),
                    (&of, Type::UUID_ARRAY),
                    (&leaves.compensated, Type::TEXT_ARRAY),
                    (&leaves.known, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Looked {
                    batch: column(OPERATION, row, "id")?,
                    before: column(OPERATION, row, "before")?,
                    state: column(OPERATION, row, "state")?,
                    may_have_waiting: column(OPERATION, row, "may_have_waiting")?,
                    may_release: column(OPERATION, row, "may_release")?,
                    others: column(OPERATION, row, "others")?,
                })
            })
            .collect()
    }

    /// Begins a transaction that holds the rows of these batches. Gives it with those that it holds: not those that
    /// somebody else does, nor those without a row.
    pub(super) async fn lock_batches(
        &self,
        operation: &'static str,
        lock_wait: Duration,
        batches: &[Uuid],
    ) -> Result<(Transaction, Vec<Uuid>), StoreError> {
        let transaction = self.begin(operation).await?;
        let rows = transaction
            .first(
                lock_wait,
                include_str!("../../sql/queries/lock_batches.sql"),
                &[(&batches, Type::UUID_ARRAY)],
            )
            .await?;
        let locked = ids(operation, &rows)?;
        Ok((transaction, locked))
    }

    /// Cancels waiting calls of batches that are being cancelled, and of these, at most [`SWEEP`] of them. Gives how many
    /// of each leaf.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn sweep_batches(&self, batches: &[Uuid]) -> Result<Vec<(String, u64)>, StoreError> {
        const OPERATION: &str = "cancel calls of cancelled batches";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/sweep_batches.sql"),
                &[(&SWEEP, Type::INT4), (&batches, Type::UUID_ARRAY)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let calls: i64 = column(OPERATION, row, "calls")?;
                Ok((column(OPERATION, row, "leaf")?, calls.unsigned_abs()))
            })
            .collect()
    }

    /// Lets follow-ups of these batches go whose phase has begun, at most [`CHUNK`] of them. Gives them.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn release_follow_ups(&self, batches: &[Uuid]) -> Result<Vec<CallId>, StoreError> {
        const OPERATION: &str = "let follow-ups go";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/release_follow_ups.sql"),
                &[(&batches, Type::UUID_ARRAY), (&CHUNK, Type::INT4)],
            )
            .await?;
        rows.iter()
            .map(|row| column(OPERATION, row, "call_id"))
            .collect()
    }
}

fn ids(operation: &'static str, rows: &[Row]) -> Result<Vec<Uuid>, StoreError> {
    rows.iter()
        .map(|row| column(operation, row, "id"))
        .collect()
}
