//! Changes by hand. Each is one transaction that says who acts, locks what it acts on, compares it with what
//! was shown, and keeps who did what and why.
//!
//! What may be done is decided by the schema's functions, which the app calls too; they raise when they
//! refuse, and a [`Refusal`] is what they said.

use std::{fmt, time::Duration};

use tokio_postgres::{error::SqlState, types::Type};

use super::{
    apply::{
        Applied, Attempts, LOCK, apply, attempts, has_not_moved, holds_nothing, ids_of, release,
    },
    column,
};
use crate::{
    domain::call::CallId,
    store::{Param, Store, StoreError, Transaction},
};

/// A person can wait for an app's transaction that holds the call, but not for long.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(5);

pub(super) const OPERATION: &str = "change calls by hand";

/// So many calls are changed in one transaction: few enough that an app waits for none of them for long.
pub(super) const GROUP: usize = 100;

/// Who acts, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// Kept as `operator_action.actor`.
    pub actor: String,
    /// Kept as `operator_action.reason`; not empty.
    pub reason: String,
}

/// A call to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The call.
    pub id: CallId,
    /// The attempts that it was shown with; another number means that it has moved since.
    pub attempts: Option<u32>,
}

/// What is done to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// A failed call is sent again.
    Retry,
    /// A call is not to be sent.
    Cancel,
    /// A parked call was not executed, and is sent again.
    NotExecutedSend,
    /// A parked call was not executed, and is not sent again.
    NotExecutedEnd,
    /// What a compensation could not undo stands.
    Waive,
    /// The effect exists.
    Confirm {
        /// The status that stands for the leaf's.
        status: u16,
        /// JSON that stands for the leaf's body.
        body: Option<&'a str>,
    },
    /// The next call behind a head that ended without a confirmation goes, once.
    Release,
}

impl Change<'_> {
    /// The states of calls that it is for.
    #[must_use]
    pub fn states(&self) -> &'static [&'static str] {
        match self {
            Self::Retry => &["failed"],
            Self::Cancel => &["pending", "dispatching", "in_doubt"],
            Self::NotExecutedSend | Self::NotExecutedEnd | Self::Confirm { .. } => &["parked"],
            Self::Waive => &["parked", "failed"],
            Self::Release => &["failed", "cancelled", "expired"],
        }
    }

    /// Those of them that are meant where a filter names none: what is under way is cancelled only by its name.
    #[must_use]
    pub fn usual_states(&self) -> &'static [&'static str] {
        match self {
            Self::Cancel => &["pending"],
            other => other.states(),
        }
    }
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// What stands against it.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
    /// There is nothing of that name or number.
    pub absent: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl Refusal {
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: Some(hint.into()),
            absent: false,
        }
    }

    pub(super) fn absent(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            absent: true,
            ..Self::new(message, hint)
        }
    }
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// It may not be made.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database did not do it.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ActError {
    fn from(error: StoreError) -> Self {
        if error.is_contention() {
            return Refusal::new(
                format!("another transaction is in the way: {error}"),
                "try again when it has ended",
            )
            .into();
        }
        // What a function raises, and a row's constraint. All else is a
        // fault of the database or of the role's rights: the next call would fare no better.
        let refused = error.code().is_some_and(|code| {
            ["22", "23", "55", "P0"]
                .iter()
                .any(|class| code.code().starts_with(class))
        });
        let absent = error.code() == Some(&SqlState::NO_DATA_FOUND);
        match error.refusal() {
            Some((message, hint)) if refused => Self::Refused(Refusal {
                message,
                hint,
                absent,
            }),
            _ => Self::Store(error),
        }
    }
}

/// What became of a change to several calls.
#[derive(Debug, Default)]
pub struct Report {
    /// The changed calls, with the state that each is in now.
    pub done: Vec<(CallId, String)>,
    /// The calls that may not be changed.
    pub refused: Vec<(CallId, Refusal)>,
    /// What ended the work before its end.
    pub fault: Option<StoreError>,
}

/// A head whose followers go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The leaf.
    pub leaf: String,
    /// The ordering key.
    pub ordering_key: String,
    /// The call that goes next.
    pub next: Option<CallId>,
}

impl Report {
    fn add(&mut self, applied: Applied) {
        self.done.extend(applied.done);
        self.refused.extend(applied.refused);
    }
}

impl Store {
    /// Changes calls, in groups; what refuses in a group is told apart from what does not.
    pub async fn act(&self, by: &By, change: Change<'_>, targets: &[Target]) -> Report {
        let mut report = Report::default();
        for group in targets.chunks(GROUP) {
            // All of a group or nothing of it: mostly none of it refuses.
            let parts: Vec<&[Target]> = match self.together(by, change, group).await {
                Ok(applied) => {
                    report.add(applied);
                    continue;
                }
                Err(ActError::Store(fault)) => {
                    report.fault = Some(fault);
                    break;
                }
                Err(ActError::Refused(refusal)) => match group {
                    [one] => {
                        report.refused.push((one.id, refusal));
                        continue;
                    }
                    _ => group.chunks(1).collect(),
                },
            };
            for part in parts {
                match self.together(by, change, part).await {
                    Ok(applied) => report.add(applied),
                    Err(ActError::Refused(refusal)) => {
                        report
                            .refused
                            .extend(part.iter().map(|target| (target.id, refusal.clone())));
                    }
                    Err(ActError::Store(fault)) => {
                        report.fault = Some(fault);
                        return report;
                    }
                }
            }
        }
        report
    }

    /// Changes one call. Gives the state that it is in now.
    ///
    /// # Errors
    /// It may not be changed, or the database did not answer.
    pub async fn act_on(
        &self,
        by: &By,
        change: Change<'_>,
        target: Target,
    ) -> Result<String, ActError> {
        let Applied { done, refused } = self.together(by, change, &[target]).await?;
        if let Some((_, refusal)) = refused.into_iter().next() {
            return Err(refusal.into());
        }
        let (_, state) = done
            .into_iter()
            .next()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        Ok(state)
    }

    /// Changes these calls in one transaction: all of them, or none.
    async fn together(
        &self,
        by: &By,
        change: Change<'_>,
        targets: &[Target],
    ) -> Result<Applied, ActError> {
        let (transaction, locked) = self.lock(OPERATION, by, &ids_of(targets)).await?;
        let applied = apply(&transaction, by, change, targets, &locked).await?;
        transaction.commit().await?;
        Ok(applied)
    }

    /// Lets the next call behind a head that failed go, once.
    ///
    /// # Errors
    /// No call waits for this one, it has moved, or the database did not answer.
    pub async fn release(&self, by: &By, head: Target) -> Result<Released, ActError> {
        let (transaction, locked) = self.lock(OPERATION, by, &[head.id]).await?;
        has_not_moved(&head, &locked)?;
        let rows = release(&transaction, by, &[head.id]).await?;
        let row = rows.first().ok_or_else(|| holds_nothing(head.id))?;
        let released = Released {
            leaf: column(OPERATION, row, "leaf")?,
            ordering_key: column(OPERATION, row, "ordering_key")?,
            next: column(OPERATION, row, "next")?,
        };
        transaction.commit().await?;
        Ok(released)
    }

    /// Begins a change: who acts is said, the calls are locked. Gives the attempts of those that have a row
    /// to lock.
    pub(super) async fn lock(
        &self,
        operation: &'static str,
        by: &By,
        ids: &[CallId],
    ) -> Result<(Transaction, Attempts), ActError> {
        let transaction = self.begin(operation).await?;
        let params: [Param<'_>; 2] = [(&by.actor, Type::TEXT), (&ids, Type::INT8_ARRAY)];
        let locked = transaction.first(LOCK_WAIT, LOCK, &params).await?;
        Ok((transaction, attempts(operation, &locked)?))
    }
}
