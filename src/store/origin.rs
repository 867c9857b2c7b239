//! Which database this is. One that was restored, cloned, or lost commits must not be sent from blindly.

use std::{fmt, time::Duration};

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Store, StoreError, column};
use crate::domain::call::CallId;

const LOCK_WAIT: Duration = Duration::from_secs(2);

/// What tells one database from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Of the cluster, drawn at initdb; a physical copy has the same.
    pub system_identifier: i64,
    /// Grows with each promotion and each point-in-time recovery.
    pub timeline: i32,
    /// `current_database()`
    pub database_name: String,
    /// A database that was dropped and restored has another.
    pub database_oid: i64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "system {}, timeline {}, database {} (oid {})",
            self.system_identifier, self.timeline, self.database_name, self.database_oid
        )
    }
}

/// The identity now, and the one that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Of the database that answers.
    pub is: Identity,
    /// As the first instance kept it; `None` where none ever ran.
    pub was: Option<Identity>,
    /// Sending is stopped for this reason.
    pub change: Option<String>,
}

impl Origin {
    /// Why nothing may be sent until a person says how to go on: what was written down, or else what differs.
    #[must_use]
    pub fn changed(&self) -> Option<String> {
        self.change.clone().or_else(|| self.difference())
    }

    /// How the database differs from the one that it was. A new timeline alone says so too: whether commits
    /// were lost with it only a living instance can witness.
    #[must_use]
    pub fn difference(&self) -> Option<String> {
        let was = self.was.as_ref()?;
        (*was != self.is).then(|| format!("the outbox was in {was}, and now is in {}", self.is))
    }

    /// Nothing but the timeline differs: a standby was promoted, or this is a recovery to a point in time.
    #[must_use]
    pub fn only_timeline_differs(&self) -> bool {
        self.was.as_ref().is_some_and(|was| {
            was.timeline != self.is.timeline
                && Identity {
                    timeline: self.is.timeline,
                    ..was.clone()
                } == self.is
        })
    }
}

impl Store {
    /// Reads the identity. It fails on a standby, which has no current WAL file.
    ///
    /// # Errors
    /// The database did not answer, or is read-only.
    pub async fn origin(&self) -> Result<Origin, StoreError> {
        const OPERATION: &str = "read the database's identity";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/identity.sql"),
                &[],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        let was = match column::<Option<i64>>(OPERATION, row, "was_system_identifier")? {
            None => None,
            Some(system_identifier) => Some(Identity {
                system_identifier,
                timeline: column(OPERATION, row, "was_timeline")?,
                database_name: column(OPERATION, row, "was_database_name")?,
                database_oid: column(OPERATION, row, "was_database_oid")?,
            }),
        };
        let changed: bool = column(OPERATION, row, "changed")?;
        let change: Option<String> = column(OPERATION, row, "change")?;
        Ok(Origin {
            is: Identity {
                system_identifier: column(OPERATION, row, "system_identifier")?,
                timeline: column(OPERATION, row, "timeline")?,
                database_name: column(OPERATION, row, "database_name")?,
                database_oid: column(OPERATION, row, "database_oid")?,
            },
            was,
            change: changed.then(|| change.unwrap_or_default()),
        })
    }

    /// Keeps the identity, where none is kept yet.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn keep_identity(&self, identity: &Identity) -> Result<(), StoreError> {
        self.write(
            "keep the database's identity",
            LOCK_WAIT,
            include_str!("../../sql/queries/keep_identity.sql"),
            &[
                (&identity.system_identifier, Type::INT8),
                (&identity.timeline, Type::INT4),
                (&identity.database_name, Type::TEXT),
                (&identity.database_oid, Type::INT8),
            ],
        )
        .await
        .map(drop)
    }

    /// Says that this instance found all that it knows to be committed on this timeline. `true` where every
    /// other instance that lives has found so too.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn witnessed(&self, instance: Uuid, timeline: i32) -> Result<bool, StoreError> {
        const OPERATION: &str = "witness the new timeline";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/witnessed.sql"),
                &[(&instance, Type::UUID), (&timeline, Type::INT4)],
            )
            .await?;
        rows.first()
            .map_or(Ok(false), |row| column(OPERATION, row, "by_all"))
    }

    /// Takes a new timeline for the origin's.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn follow_timeline(&self, timeline: i32) -> Result<(), StoreError> {
        self.write(
            "follow the new timeline",
            LOCK_WAIT,
            include_str!("../../sql/queries/follow_timeline.sql"),
            &[(&timeline, Type::INT4)],
        )
        .await
        .map(drop)
    }

    /// Stops all sending, of all instances, until a person says how to go on.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn halt(&self, difference: &str) -> Result<(), StoreError> {
        self.write(
            "stop all sending",
            LOCK_WAIT,
            include_str!("../../sql/queries/halt.sql"),
            &[(&difference, Type::TEXT)],
        )
        .await
        .map(drop)
    }

    /// What the database lost of what this instance knows to be committed, or `None`.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn lost(
        &self,
        instance: Uuid,
        beat: i64,
        held: &[(CallId, i64)],
    ) -> Result<Option<String>, StoreError> {
        const OPERATION: &str = "look for lost commits";
        let (calls, rounds): (Vec<CallId>, Vec<i64>) = held.iter().copied().unzip();
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/witness.sql"),
                &[
                    (&instance, Type::UUID),
                    (&calls, Type::INT8_ARRAY),
                    (&rounds, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        let found: Option<i64> = column(OPERATION, row, "beat")?;
        let unclaimed: i64 = column(OPERATION, row, "unclaimed")?;
        let missing: i64 = column(OPERATION, row, "missing")?;
        if found.is_some_and(|found| found < beat) {
            Ok(Some(
                "a renewal of this instance's lease is lost".to_owned(),
            ))
        } else if unclaimed + missing > 0 {
            Ok(Some(format!(
                "{} committed claims of this instance are lost",
                unclaimed + missing
            )))
        } else {
            Ok(None)
        }
    }
}
