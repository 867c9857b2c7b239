//! One look at what there is to do, for all loops.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio_postgres::{Row, types::Type};

use super::{Store, StoreError, claim::Start, column};
use crate::domain::call::CallId;

/// What there is to do. It may be too much, never too little.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each loop")]
pub struct Seen {
    /// The leaves with calls that may be claimed, and where the first of them are found.
    pub work: BTreeMap<String, Start>,
    /// Calls in doubt that are due.
    pub doubts: bool,
    /// Calls whose time is over.
    pub ends: bool,
    /// Calls that wait for a key, or for their turn.
    pub held: bool,
    /// Batches that have changed, or are on their way to their end.
    pub batches: bool,
    /// Changes of many calls.
    pub jobs: bool,
    /// The database is not the one that it was, or that was written down.
    pub another_database: bool,
    /// When a person last said of each leaf that it is well again, in seconds of the epoch.
    pub resumed: HashMap<String, f64>,
}

impl Store {
    /// Looks for what there is to do at these leaves, and renews the mark that this instance sleeps for this long.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn look_around(
        &self,
        leaves: &[String],
        sleep: Option<Duration>,
    ) -> Result<Seen, StoreError> {
        const OPERATION: &str = "look around";
        let sleep = sleep.map(|sleep| sleep.as_secs_f64());
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/look_around.sql"),
                &[(&leaves, Type::TEXT_ARRAY), (&sleep, Type::FLOAT8)],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        let leaves: Vec<String> = column(OPERATION, row, "resumed")?;
        let times: Vec<f64> = column(OPERATION, row, "resumed_at")?;
        Ok(Seen {
            work: firsts(OPERATION, row)?,
            doubts: column(OPERATION, row, "doubts")?,
            ends: column(OPERATION, row, "ends")?,
            held: column(OPERATION, row, "held")?,
            batches: column(OPERATION, row, "batches")?,
            jobs: column(OPERATION, row, "jobs")?,
            another_database: column(OPERATION, row, "another_database")?,
            resumed: leaves.into_iter().zip(times).collect(),
        })
    }
}

fn firsts(operation: &'static str, row: &Row) -> Result<BTreeMap<String, Start>, StoreError> {
    let leaves: Vec<String> = column(operation, row, "work")?;
    let priorities: Vec<Option<i16>> = column(operation, row, "first_priority")?;
    let calls: Vec<Option<CallId>> = column(operation, row, "first_call")?;
    let due: Vec<Option<f64>> = column(operation, row, "first_due")?;
    let firsts = leaves.into_iter().zip(priorities).zip(calls).zip(due);
    let firsts = firsts.map(|(((leaf, priority), call), due)| {
        let start = Start {
            fresh: priority.zip(call).into_iter().collect(),
            due: due.unwrap_or(f64::INFINITY),
        };
        (leaf, start)
    });
    Ok(firsts.collect())
}
