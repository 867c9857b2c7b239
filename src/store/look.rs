//! One look at what there is to do, for all loops.

use std::{collections::HashMap, time::Duration};

use tokio_postgres::types::Type;

use super::{Store, StoreError, column};

/// What there is to do. It may be too much, never too little.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each loop")]
pub struct Seen {
    /// Calls that may be claimed.
    pub work: bool,
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
            work: column(OPERATION, row, "work")?,
            doubts: column(OPERATION, row, "doubts")?,
            ends: column(OPERATION, row, "ends")?,
            held: column(OPERATION, row, "held")?,
            batches: column(OPERATION, row, "batches")?,
            jobs: column(OPERATION, row, "jobs")?,
            resumed: leaves.into_iter().zip(times).collect(),
        })
    }
}
