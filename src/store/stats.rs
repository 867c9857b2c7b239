//! What the tables hold, for the gauges. Its cost follows the work in hand, never the history.

use std::time::Duration;

use super::{Store, StoreError, column, seconds};
use crate::domain::call::CallId;

/// The live calls of one leaf in one state, for one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// The leaf, as rows name it: it may be unknown here.
    pub leaf: String,
    /// The state.
    pub state: String,
    /// Why they are in it, as the view says.
    pub reason: Option<String>,
    /// They are pending, and not due yet.
    pub later: bool,
    /// How many.
    pub calls: u64,
    /// How many of them are stuck, as the contract defines it.
    pub stuck: u64,
    /// The first of these.
    pub first_stuck: Option<CallId>,
    /// The age of the oldest that is due.
    pub oldest_due: Duration,
    /// The age of the oldest doubt.
    pub oldest_doubt: Duration,
}

/// What is counted apart from calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overview {
    /// Instances whose lease runs.
    pub instances: u64,
    /// Leaves that are paused.
    pub paused: Vec<String>,
    /// Batches that are not final, by state.
    pub batches: Vec<(String, u64)>,
    /// Stuck ones of them, by the reason.
    pub stuck_batches: Vec<(String, u64)>,
}

impl Store {
    /// Live calls by leaf, state and reason.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn counts(&self) -> Result<Vec<Count>, StoreError> {
        const OPERATION: &str = "count calls";
        let rows = self
            .query(OPERATION, include_str!("../../sql/queries/stats.sql"), &[])
            .await?;
        rows.iter()
            .map(|row| {
                let number = |name| column::<i64>(OPERATION, row, name).map(i64::unsigned_abs);
                Ok(Count {
                    leaf: column(OPERATION, row, "leaf")?,
                    state: column(OPERATION, row, "state")?,
                    reason: column(OPERATION, row, "reason")?,
                    later: column(OPERATION, row, "later")?,
                    calls: number("calls")?,
                    stuck: number("stuck")?,
                    first_stuck: column(OPERATION, row, "first_stuck")?,
                    oldest_due: seconds(column(OPERATION, row, "oldest_due")?),
                    oldest_doubt: seconds(column(OPERATION, row, "oldest_doubt")?),
                })
            })
            .collect()
    }

    /// Instances, pauses and batches.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn overview(&self) -> Result<Overview, StoreError> {
        const OPERATION: &str = "count instances and batches";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/stats_instances.sql"),
                &[],
            )
            .await?;
        let mut overview = Overview::default();
        for row in &rows {
            let number = column::<i64>(OPERATION, row, "number")?.unsigned_abs();
            let name: Option<String> = column(OPERATION, row, "name")?;
            match (column::<&str>(OPERATION, row, "kind")?, name) {
                ("instance", _) => overview.instances = number,
                ("paused", Some(leaf)) => overview.paused.push(leaf),
                ("batch", Some(state)) => overview.batches.push((state, number)),
                ("stuck_batch", Some(reason)) => overview.stuck_batches.push((reason, number)),
                _ => {}
            }
        }
        Ok(overview)
    }
}
