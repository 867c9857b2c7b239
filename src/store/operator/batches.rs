//! Batches: a list, one with everything that is known of it, and its cancel by hand.

use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{
    CallRow,
    act::{ActError, By},
    column,
};
use crate::{
    domain::call::CallId,
    store::{Store, StoreError},
};

/// Every state of `leafhopper.batch`.
pub const BATCH_STATES: &[&str] = &[
    "open",
    "closing",
    "succeeded",
    "cancelling",
    "compensating",
    "cancelled",
    "finished",
];

/// So many batches are read in one statement: each has its calls counted.
const CHUNK: usize = 50;

/// Of a batch's calls of each kind, and of its effects that stand, the first so many.
const SHOWN: i64 = 50;

/// Which batches. All that is given must hold; nothing given means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchFilter {
    /// One of [`BATCH_STATES`].
    pub state: Option<String>,
    /// Only stuck ones.
    pub stuck: bool,
}

/// A batch as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchRow {
    /// Its id.
    pub id: Uuid,
    /// The app's name for it.
    pub name: Option<String>,
    /// One of [`BATCH_STATES`].
    pub state: String,
    /// What it waits for, where that is somebody.
    pub reason: Option<String>,
    /// As the contract defines it.
    pub stuck: bool,
    /// How many effects of its calls stand.
    pub standing: u64,
    /// How many of its calls are in which state: a JSON object.
    pub calls: String,
    /// Seconds since it was inserted, by the database's clock.
    pub age: Option<f64>,
    /// Seconds since all its calls were final.
    pub finished_ago: Option<f64>,
    /// The row as a JSON object.
    pub json: String,
}

/// The first of some calls, and how many there are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calls {
    /// The first ones.
    pub first: Vec<CallRow>,
    /// All of them.
    pub number: u64,
}

/// Everything that is known of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchDetails {
    /// Its row.
    pub batch: BatchRow,
    /// A call has cancelled it, and its row does not say so yet.
    pub announced: bool,
    /// How many of its calls of each kind are in which state: a JSON object of objects.
    pub kinds: String,
    /// How many effects were undone.
    pub undone: u64,
    /// The calls that are sent from the start.
    pub ready: Calls,
    /// The calls that undo.
    pub compensations: Calls,
    /// The calls that wait for the batch's end.
    pub follow_ups: Calls,
    /// The calls that have to end before the batch goes on, those that wait for a person first.
    pub waits_for: Calls,
    /// The effects that stand, those whose undoing waits for a person first, then the newest: a JSON array.
    pub effects: String,
    /// The calls that undo these.
    pub undoing: Vec<CallRow>,
    /// The first call that ended without a confirmation: a JSON object.
    pub first_end: Option<String>,
    /// Rows of `operator_action`, the oldest first: a JSON array.
    pub actions: String,
}

impl BatchRow {
    fn read(operation: &'static str, row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: column(operation, row, "id")?,
            name: column(operation, row, "name")?,
            state: column(operation, row, "state")?,
            reason: column(operation, row, "reason")?,
            stuck: column(operation, row, "stuck")?,
            standing: number(operation, row, "standing")?,
            calls: column(operation, row, "calls_json")?,
            age: column(operation, row, "age")?,
            finished_ago: column(operation, row, "finished_ago")?,
            json: column(operation, row, "json")?,
        })
    }
}

fn number(operation: &'static str, row: &Row, name: &str) -> Result<u64, StoreError> {
    column::<i64>(operation, row, name).map(i64::unsigned_abs)
}

impl Store {
    /// The batches that match, the newest first, behind that one; at most `limit`.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn batches(
        &self,
        filter: &BatchFilter,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<BatchRow>, StoreError> {
        const OPERATION: &str = "list batches";
        let mut found: Vec<BatchRow> = Vec::new();
        let mut after = after;
        while found.len() < limit {
            let size = CHUNK.min(limit - found.len());
            let rows = self
                .query(
                    OPERATION,
                    include_str!("../../../sql/queries/list_batches.sql"),
                    &[
                        (&filter.state, Type::TEXT),
                        (&filter.stuck, Type::BOOL),
                        (&after, Type::UUID),
                        (&i64::try_from(size).unwrap_or(i64::MAX), Type::INT8),
                    ],
                )
                .await?;
            let ids: Vec<Uuid> = rows
                .iter()
                .map(|row| column(OPERATION, row, "id"))
                .collect::<Result<_, _>>()?;
            found.extend(self.batch_rows(&ids).await?);
            if ids.len() < size {
                break;
            }
            after = ids.last().copied();
        }
        Ok(found)
    }

    /// These batches, in this order. Those that don't exist are left out.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn batch_rows(&self, ids: &[Uuid]) -> Result<Vec<BatchRow>, StoreError> {
        const OPERATION: &str = "count the calls of batches";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/batch_rows.sql"),
                &[(&ids, Type::UUID_ARRAY)],
            )
            .await?;
        rows.iter()
            .map(|row| BatchRow::read(OPERATION, row))
            .collect()
    }

    /// The batch with this id, or `None`.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn batch(&self, id: Uuid) -> Result<Option<BatchDetails>, StoreError> {
        const OPERATION: &str = "show a batch";
        let Some(batch) = self.batch_rows(&[id]).await?.pop() else {
            return Ok(None);
        };
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/show_batch.sql"),
                &[(&id, Type::UUID), (&SHOWN, Type::INT8)],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        let mut ids: Vec<CallId> = Vec::new();
        for kind in ["ready", "compensation", "follow_up", "waits_for", "undoing"] {
            ids.extend(column::<Vec<CallId>>(OPERATION, row, kind)?);
        }
        ids.sort_unstable();
        ids.dedup();
        let calls = self.calls_by_id(&ids).await?;
        let named = |kind| -> Result<Vec<CallRow>, StoreError> {
            let ids: Vec<CallId> = column(OPERATION, row, kind)?;
            let found = |id: &CallId| calls.iter().find(|call| call.id == *id).cloned();
            Ok(ids.iter().filter_map(found).collect())
        };
        let some = |kind, total| -> Result<Calls, StoreError> {
            Ok(Calls {
                first: named(kind)?,
                number: number(OPERATION, row, total)?,
            })
        };
        Ok(Some(BatchDetails {
            announced: column(OPERATION, row, "announced")?,
            kinds: column(OPERATION, row, "kinds_json")?,
            undone: number(OPERATION, row, "undone")?,
            ready: some("ready", "ready_calls")?,
            compensations: some("compensation", "compensation_calls")?,
            follow_ups: some("follow_up", "follow_up_calls")?,
            waits_for: some("waits_for", "waiting_calls")?,
            effects: column(OPERATION, row, "effects_json")?,
            undoing: named("undoing")?,
            first_end: column(OPERATION, row, "first_end_json")?,
            actions: column(OPERATION, row, "actions_json")?,
            batch,
        }))
    }

    /// Cancels a batch. Gives the state that it is in now.
    ///
    /// # Errors
    /// It is not open, or there is none, or the database did not answer.
    pub async fn cancel_batch(&self, by: &By, batch: Uuid) -> Result<String, ActError> {
        const OPERATION: &str = "cancel a batch by hand";
        let (transaction, _) = self.lock(OPERATION, by, &[]).await?;
        let rows = transaction
            .last(
                include_str!("../../../sql/queries/act_cancel_batch.sql"),
                &[(&batch, Type::UUID), (&by.reason, Type::TEXT)],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        Ok(column(OPERATION, row, "state")?)
    }
}
