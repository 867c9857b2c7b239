//! Leaves that are paused and resumed by hand, and all sending after the database changed.

use tokio_postgres::{Row, types::Type};

use super::{
    act::{ActError, By, LOCK_WAIT, Refusal},
    column,
};
use crate::{
    domain::call::CallId,
    store::{Store, StoreError, origin::Identity},
};

/// Keeps who did what to everything.
const NOTE: &str = include_str!("../../../sql/queries/act_note.sql");

/// What becomes of calls that were claimed or pending before the database changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// They may have been executed: each is in doubt, and looked into.
    Probe,
    /// They were not executed: each is sent.
    Resend,
}

/// A leaf, and what instances and people say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafRow {
    /// Its name.
    pub name: String,
    /// So many live instances know it.
    pub instances: u64,
    /// Nothing is sent to it.
    pub paused: bool,
    /// Who paused it.
    pub pause: Option<Pause>,
    /// Calls behind a head of an ordering key that failed wait.
    pub holds_after_failed_head: bool,
    /// An instance has found that it can't be reached, or that its auth is refused.
    pub breaker_open: bool,
    /// An instance sends as much as the rate allows.
    pub rate_limited: bool,
    /// Credentials that it refuses; an empty one is the leaf's own.
    pub blocked: Vec<String>,
}

/// A person's word that nothing is to be sent to a leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When, as JSON has it.
    pub at: String,
}

impl LeafRow {
    fn read(operation: &'static str, row: &Row) -> Result<Self, StoreError> {
        let actor: Option<String> = column(operation, row, "actor")?;
        let pause = match actor {
            Some(actor) => Some(Pause {
                actor,
                reason: column(operation, row, "reason")?,
                at: column(operation, row, "at")?,
            }),
            None => None,
        };
        Ok(Self {
            name: column(operation, row, "leaf")?,
            instances: column::<i64>(operation, row, "instances")?.unsigned_abs(),
            paused: column(operation, row, "paused")?,
            pause,
            holds_after_failed_head: column(operation, row, "holds")?,
            breaker_open: column(operation, row, "breaker_open")?,
            rate_limited: column(operation, row, "rate_limited")?,
            blocked: column(operation, row, "blocked")?,
        })
    }
}

impl Store {
    /// Keeps that a person does this to everything, and why.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn note(&self, by: &By, action: &str) -> Result<(), StoreError> {
        let params = &[
            (&by.actor as _, Type::TEXT),
            (&action as _, Type::TEXT),
            (&by.reason as _, Type::TEXT),
        ];
        self.write("keep an action", LOCK_WAIT, NOTE, params)
            .await
            .map(drop)
    }

    /// The leaves that an instance knows or has known, and those that a person has paused, by name.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn leaves(&self) -> Result<Vec<LeafRow>, StoreError> {
        const OPERATION: &str = "list leaves";
        let sql = include_str!("../../../sql/queries/list_leaves.sql");
        let rows = self.query(OPERATION, sql, &[]).await?;
        rows.iter()
            .map(|row| LeafRow::read(OPERATION, row))
            .collect()
    }

    /// The instances, each as a JSON object; those whose lease runs first.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn instance_rows(&self) -> Result<Vec<String>, StoreError> {
        const OPERATION: &str = "show instances";
        let sql = include_str!("../../../sql/queries/show_instances.sql");
        let rows = self.query(OPERATION, sql, &[]).await?;
        rows.iter()
            .map(|row| column(OPERATION, row, "json"))
            .collect()
    }

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
            return Err(Refusal::absent(
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
        const OPERATION: &str = "go on after the database changed";
        let transaction = self.begin(OPERATION).await?;
        transaction
            .first(
                LOCK_WAIT,
                NOTE,
                &[
                    (&by.actor, Type::TEXT),
                    (&action, Type::TEXT),
                    (&by.reason, Type::TEXT),
                ],
            )
            .await?;
        let rows = transaction
            .next(
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
        let moved: Result<Vec<CallId>, StoreError> = rows
            .iter()
            .map(|row| column(OPERATION, row, "call_id"))
            .collect();
        let moved = moved?;
        transaction
            .last(
                include_str!("../../../sql/queries/act_cancel_marked.sql"),
                &[(&moved, Type::INT8_ARRAY)],
            )
            .await?;
        Ok(moved.len())
    }
}
