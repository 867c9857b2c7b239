//! One call with everything that is known of it.

use tokio_postgres::types::Type;

use super::{CallRow, batches::BatchRow, column, leaves::LeafRow};
use crate::{
    domain::call::CallId,
    store::{Store, StoreError},
};

const OPERATION: &str = "show a call";

/// Of attempts and of actions by hand, the latest so many.
const HISTORY: i64 = 500;

/// Of a batch's calls that ended without a confirmation, the first so many.
const ENDED: i64 = 20;

/// Everything that is known of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    /// The call; its JSON has all columns of the view.
    pub call: CallRow,
    /// If it has failed it may be retried: its batch is open, or its phase is under way.
    pub may_run_again: bool,
    /// Seconds until it is looked at next.
    pub due_in: Option<f64>,
    /// Instances whose lease runs.
    pub instances: u64,
    /// Calls behind it wait, since it ended without a confirmation.
    pub holds_others: bool,
    /// Rows of `attempt`, the oldest first: a JSON array.
    pub attempts: String,
    /// The row of `result` that answers it: a JSON object.
    pub result: Option<String>,
    /// Rows of `operator_action`, the oldest first: a JSON array.
    pub actions: String,
    /// Its batch.
    pub batch: Option<BatchRow>,
    /// The calls of its batch that ended without a confirmation, the first ones: a JSON array.
    pub ended: String,
    /// The call that it waits for.
    pub waits_for: Option<CallRow>,
    /// Other calls of the same leaf and key, the newest first.
    pub same_key: Vec<CallRow>,
    /// The leaves, where it is its leaf that keeps the call.
    pub leaves: Vec<LeafRow>,
}

impl Store {
    /// The call with this id, or `None`.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn call(&self, id: CallId) -> Result<Option<Details>, StoreError> {
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/show_call.sql"),
                &[
                    (&id, Type::INT8),
                    (&HISTORY, Type::INT8),
                    (&ENDED, Type::INT8),
                ],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let call = CallRow::read(OPERATION, row)?;
        let mut others: Vec<CallId> = column(OPERATION, row, "same_key")?;
        others.extend(call.waits_for);
        others.sort_unstable();
        others.dedup();
        let mut same_key = self.calls_by_id(&others).await?;
        same_key.reverse();
        let waits_for = same_key
            .iter()
            .find(|other| Some(other.id) == call.waits_for)
            .cloned();
        same_key.retain(|other| other.leaf == call.leaf && other.key == call.key);
        let batch = match call.batch {
            Some(batch) => self.batch_rows(&[batch]).await?.pop(),
            None => None,
        };
        let leaves = match call.reason.as_deref() {
            Some("leaf_unknown" | "leaf_paused" | "breaker_open") => self.leaves().await?,
            _ => Vec::new(),
        };
        Ok(Some(Details {
            may_run_again: column(OPERATION, row, "may_run_again")?,
            due_in: column(OPERATION, row, "due_in")?,
            instances: column::<i64>(OPERATION, row, "instances")?.unsigned_abs(),
            holds_others: column(OPERATION, row, "holds_others")?,
            attempts: column(OPERATION, row, "attempts_json")?,
            result: column(OPERATION, row, "result_json")?,
            actions: column(OPERATION, row, "actions_json")?,
            batch,
            ended: column(OPERATION, row, "ended_json")?,
            waits_for,
            same_key,
            leaves,
            call,
        }))
    }
}
