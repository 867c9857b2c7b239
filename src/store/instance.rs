//! Instances: their rows are their leases, and what they publish of themselves.

use std::{collections::BTreeSet, time::Duration};

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Row, Store, StoreError, column};

const LOCK_WAIT: Duration = Duration::from_millis(500);

/// An instance as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: Uuid,
    /// Grows with each renewal.
    pub beat: i64,
    /// Whether its lease runs, by the database's clock.
    pub alive: bool,
    /// The membership that its shares rest on.
    pub membership: String,
    /// The leaves that it knows.
    pub leaves: BTreeSet<String>,
}

/// What a renewal tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Grows with each renewal.
    pub number: i64,
    /// The oldest program that can work with the schema as it is now.
    pub oldest_reader: i32,
}

impl Store {
    /// Writes this instance's row, with the beat after `last_beat`; nothing where it is there already.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn register(
        &self,
        id: Uuid,
        name: &str,
        lease: Duration,
        leaves: &str,
        last_beat: i64,
    ) -> Result<(), StoreError> {
        self.write(
            "register the instance",
            LOCK_WAIT,
            include_str!("../../sql/queries/register.sql"),
            &[
                (&id, Type::UUID),
                (&name, Type::TEXT),
                (&lease.as_secs_f64(), Type::FLOAT8),
                (&leaves, Type::TEXT),
                (&last_beat, Type::INT8),
            ],
        )
        .await
        .map(drop)
    }

    /// Renews the lease. The members are all instances, ordered by id. No beat: the row is gone, somebody took this
    /// instance for dead.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn heartbeat(
        &self,
        id: Uuid,
        lease: Duration,
        leaves: &str,
        membership: &str,
    ) -> Result<(Option<Beat>, Vec<Member>), StoreError> {
        const OPERATION: &str = "renew the lease";
        // Alone in its transaction: an idle instance asks for little else.
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/heartbeat.sql"),
                &[
                    (&id, Type::UUID),
                    (&lease.as_secs_f64(), Type::FLOAT8),
                    (&leaves, Type::TEXT),
                    (&membership, Type::TEXT),
                ],
            )
            .await?;
        let mut beat = None;
        let mut members = Vec::new();
        for row in &rows {
            if let Some(number) = column(OPERATION, row, "renewed")? {
                let oldest_reader = column(OPERATION, row, "oldest_reader")?;
                beat = Some(Beat {
                    number,
                    oldest_reader,
                });
            }
            members.push(member(OPERATION, row)?);
        }
        Ok((beat, members))
    }

    /// All instances, ordered by id.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn members(&self) -> Result<Vec<Member>, StoreError> {
        const OPERATION: &str = "read the instances";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/members.sql"),
                &[],
            )
            .await?;
        rows.iter().map(|row| member(OPERATION, row)).collect()
    }

    /// Removes the rows of instances that hold no claim: `leaving`, and of the `dead` those whose lease is over.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn unregister(&self, leaving: Option<Uuid>, dead: &[Uuid]) -> Result<(), StoreError> {
        self.write(
            "remove instances",
            LOCK_WAIT,
            include_str!("../../sql/queries/unregister.sql"),
            &[(&leaving, Type::UUID), (&dead, Type::UUID_ARRAY)],
        )
        .await
        .map(drop)
    }

    /// Publishes what functions and the view must know: each leaf, whether it holds calls behind a failed
    /// head, and what counts as stuck.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn publish_leaves(
        &self,
        leaves: &[(String, bool)],
        stuck_after: Duration,
    ) -> Result<(), StoreError> {
        let names: Vec<&str> = leaves.iter().map(|(name, _)| name.as_str()).collect();
        let holds: Vec<bool> = leaves.iter().map(|(_, hold)| *hold).collect();
        self.write(
            "publish the leaves",
            LOCK_WAIT,
            include_str!("../../sql/queries/publish_leaves.sql"),
            &[
                (&names, Type::TEXT_ARRAY),
                (&holds, Type::BOOL_ARRAY),
                (&stuck_after.as_secs_f64(), Type::FLOAT8),
            ],
        )
        .await
        .map(drop)
    }

    /// Removes the row of an instance whose process is known to be dead.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn bury(&self, id: Uuid) -> Result<(), StoreError> {
        self.write(
            "remove a dead instance",
            LOCK_WAIT,
            include_str!("../../sql/queries/bury.sql"),
            &[(&id, Type::UUID)],
        )
        .await
        .map(drop)
    }
}

fn member(operation: &'static str, row: &Row) -> Result<Member, StoreError> {
    let leaves: Vec<String> = column(operation, row, "leaf_names")?;
    Ok(Member {
        id: column(operation, row, "id")?,
        beat: column(operation, row, "beat")?,
        alive: column(operation, row, "alive")?,
        membership: column(operation, row, "membership")?,
        leaves: leaves.into_iter().collect(),
    })
}
