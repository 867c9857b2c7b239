//! Leaves that are paused and resumed by hand, and all sending after the database changed.

use tokio_postgres::types::Type;

use super::{
    act::{ActError, By, LOCK_WAIT, Refusal},
    column,
};
use crate::store::{Store, StoreError, origin::Identity};

/// What becomes of calls that were claimed or pending before the database changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// They may have been executed: each is in doubt, and looked into.
    Probe,
    /// They were not executed: each is sent.
    Resend,
}

impl Store {
    /// Stops sending to a leaf. Gives whether an instance has ever said that it knows this leaf.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn pause(&self, by: &By, leaf: &str) -> Result<bool, ActError> {
        const OPERATION: &str = "pause a leaf";
        let (transaction, _) = self.lock(OPERATION, by, &[]).await?;
        let rows = transaction
            .last(
                include_str!("../../../sql/queries/act_pause.sql"),
                &[(&leaf, Type::TEXT), (&by.reason, Type::TEXT)],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        Ok(column(OPERATION, row, "known")?)
    }

    /// Sends to a leaf again, or to all where none is named; breakers are closed. Gives the leaves.
    ///
    /// # Errors
    /// No such leaf is known, or the database did not answer.
    pub async fn resume(&self, by: &By, leaf: Option<&str>) -> Result<Vec<String>, ActError> {
        const OPERATION: &str = "resume a leaf";
        let (transaction, _) = self.lock(OPERATION, by, &[]).await?;
        let rows = transaction
            .last(
                include_str!("../../../sql/queries/act_resume.sql"),
                &[(&leaf, Type::TEXT), (&by.reason, Type::TEXT)],
            )
            .await?;
        if let (Some(leaf), true) = (leaf, rows.is_empty()) {
            return Err(Refusal::new(
                format!("no instance ever knew a leaf \"{leaf}\", and nobody paused it"),
                "see the leaves in the configuration",
            )
            .into());
        }
        let leaves: Result<Vec<String>, StoreError> = rows
            .iter()
            .map(|row| column(OPERATION, row, "leaf"))
            .collect();
        Ok(leaves?)
    }

    /// Goes on in this database after it changed, and keeps who said so. Gives how many calls were moved.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn go_on(
        &self,
        by: &By,
        identity: &Identity,
        treatment: Treatment,
    ) -> Result<usize, ActError> {
        let (action, doubt) = match treatment {
            Treatment::Probe => ("resume_all_probe", true),
            Treatment::Resend => ("resume_all_resend", false),
        };
        let transaction = self.begin("go on after the database changed").await?;
        transaction
            .first(
                LOCK_WAIT,
                include_str!("../../../sql/queries/act_note.sql"),
                &[
                    (&by.actor, Type::TEXT),
                    (&action, Type::TEXT),
                    (&by.reason, Type::TEXT),
                ],
            )
            .await?;
        let rows = transaction
            .last(
                include_str!("../../../sql/queries/go_on.sql"),
                &[
                    (&doubt, Type::BOOL),
                    (&identity.system_identifier, Type::INT8),
                    (&identity.timeline, Type::INT4),
                    (&identity.database_name, Type::TEXT),
                    (&identity.database_oid, Type::INT8),
                ],
            )
            .await?;
        Ok(rows.len())
    }
}
