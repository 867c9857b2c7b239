//! Changes by hand. Each is one transaction that says who acts, locks what it acts on, compares it with what
//! was shown, and keeps who did what and why.
//!
//! What may be done is decided by the schema's functions, which the app calls too; they raise when they
//! refuse, and a [`Refusal`] is what they said.

use std::{fmt, time::Duration};

use tokio_postgres::types::Type;

use super::{column, count};
use crate::{
    domain::call::CallId,
    store::{Store, StoreError, Transaction, int4},
};

/// A person can wait for an app's transaction that holds the call, but not for long.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(5);

/// So many calls are changed in one transaction: few enough that an app waits for none of them for long.
const GROUP: usize = 100;

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
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// What stands against it.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
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
        match error.refusal() {
            Some((message, hint)) if refused => Self::Refused(Refusal { message, hint }),
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

impl Store {
    /// Changes calls, in groups; what refuses in a group is told apart from what does not.
    pub async fn act(&self, by: &By, change: Change<'_>, targets: &[Target]) -> Report {
        let mut report = Report::default();
        // A confirmation that finds one standing is known only after its COMMIT: it goes alone.
        let size = match change {
            Change::Confirm { .. } => 1,
            Change::Retry
            | Change::Cancel
            | Change::Waive
            | Change::NotExecutedSend
            | Change::NotExecutedEnd => GROUP,
        };
        for group in targets.chunks(size) {
            // All of a group or nothing of it: mostly none of it refuses.
            let parts: Vec<&[Target]> = match self.act_together(by, change, group).await {
                Ok(done) => {
                    report.done.extend(done);
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
                match self.act_together(by, change, part).await {
                    Ok(done) => report.done.extend(done),
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

    /// Changes these calls in one transaction: all of them, or none.
    ///
    /// # Errors
    /// One of them may not be changed, or the database did not answer.
    pub async fn act_together(
        &self,
        by: &By,
        change: Change<'_>,
        targets: &[Target],
    ) -> Result<Vec<(CallId, String)>, ActError> {
        const OPERATION: &str = "change calls by hand";
        let ids: Vec<CallId> = targets.iter().map(|target| target.id).collect();
        let (transaction, locked) = self.lock(OPERATION, by, &ids).await?;
        for target in targets {
            let now = locked.iter().find(|(id, _)| *id == target.id);
            has_not_moved(target, now.map(|(_, attempts)| *attempts))?;
            if matches!(change, Change::Confirm { .. }) && now.is_none() {
                return Err(Refusal::new(
                    format!(
                        "call {} does not wait for this word: there is no such call, or it is confirmed",
                        target.id
                    ),
                    format!("look at it: leafhopper show {}", target.id),
                )
                .into());
            }
        }
        let rows = match change {
            Change::Retry => {
                let sql = include_str!("../../../sql/queries/act_retry.sql");
                let params = &[(&ids as _, Type::INT8_ARRAY), (&by.reason as _, Type::TEXT)];
                transaction.last(sql, params).await?
            }
            Change::Cancel => {
                let sql = include_str!("../../../sql/queries/act_cancel.sql");
                let params = &[(&ids as _, Type::INT8_ARRAY), (&by.reason as _, Type::TEXT)];
                transaction.last(sql, params).await?
            }
            Change::Waive => {
                let sql = include_str!("../../../sql/queries/act_waive.sql");
                let params = &[(&ids as _, Type::INT8_ARRAY), (&by.reason as _, Type::TEXT)];
                transaction.last(sql, params).await?
            }
            Change::NotExecutedSend | Change::NotExecutedEnd => {
                let send = change == Change::NotExecutedSend;
                let sql = include_str!("../../../sql/queries/act_not_executed.sql");
                let params = &[
                    (&ids as _, Type::INT8_ARRAY),
                    (&by.reason as _, Type::TEXT),
                    (&send as _, Type::BOOL),
                ];
                transaction.last(sql, params).await?
            }
            Change::Confirm { status, body } => {
                return confirm(transaction, by, &ids, status, body).await;
            }
        };
        rows.iter()
            .map(|row| {
                Ok((
                    column(OPERATION, row, "id")?,
                    column(OPERATION, row, "state")?,
                ))
            })
            .collect::<Result<_, StoreError>>()
            .map_err(ActError::from)
    }

    /// Lets the next call behind a head that failed go, once.
    ///
    /// # Errors
    /// No call waits for this one, it has moved, or the database did not answer.
    pub async fn release(&self, by: &By, head: Target) -> Result<Released, ActError> {
        const OPERATION: &str = "release calls behind a head";
        let (transaction, locked) = self.lock(OPERATION, by, &[head.id]).await?;
        let now = locked.first().map(|(_, attempts)| *attempts);
        has_not_moved(&head, now)?;
        let rows = transaction
            .last(
                include_str!("../../../sql/queries/act_release.sql"),
                &[(&head.id, Type::INT8), (&by.reason, Type::TEXT)],
            )
            .await?;
        let row = rows.first().ok_or_else(|| {
            Refusal::new(
                format!("no calls are held because of call {}", head.id),
                "name the head: a call that failed, was cancelled or expired at a leaf with \
                 after_failed_head = \"hold\"",
            )
        })?;
        Ok(Released {
            leaf: column(OPERATION, row, "leaf")?,
            ordering_key: column(OPERATION, row, "ordering_key")?,
            next: column(OPERATION, row, "next")?,
        })
    }

    /// Begins a change: who acts is said, the calls are locked. Gives the attempts of those that have a row
    /// to lock.
    pub(super) async fn lock(
        &self,
        operation: &'static str,
        by: &By,
        ids: &[CallId],
    ) -> Result<(Transaction, Vec<(CallId, u32)>), ActError> {
        let transaction = self.begin(operation).await?;
        let locked = transaction
            .first(
                LOCK_WAIT,
                include_str!("../../../sql/queries/act_lock.sql"),
                &[(&by.actor, Type::TEXT), (&ids, Type::INT8_ARRAY)],
            )
            .await?;
        let locked = locked
            .iter()
            .map(|row| {
                let attempts = count(column(operation, row, "attempts")?);
                Ok((column(operation, row, "call_id")?, attempts))
            })
            .collect::<Result<_, StoreError>>()?;
        Ok((transaction, locked))
    }
}

/// Dropped without an end, the transaction of a refusal is rolled back.
fn has_not_moved(target: &Target, now: Option<u32>) -> Result<(), Refusal> {
    match (target.attempts, now) {
        (Some(shown), Some(now)) if shown != now => Err(Refusal::new(
            format!(
                "call {} has moved: {now} attempts now, {shown} were expected",
                target.id
            ),
            format!("look at it again: leafhopper show {}", target.id),
        )),
        _ => Ok(()),
    }
}

async fn confirm(
    transaction: Transaction,
    by: &By,
    ids: &[CallId],
    status: u16,
    body: Option<&str>,
) -> Result<Vec<(CallId, String)>, ActError> {
    const OPERATION: &str = "confirm calls by hand";
    let rows = transaction
        .last(
            include_str!("../../../sql/queries/act_confirm.sql"),
            &[
                (&ids, Type::INT8_ARRAY),
                (&by.reason, Type::TEXT),
                (&int4(status), Type::INT4),
                (&body, Type::TEXT),
            ],
        )
        .await?;
    let mut done = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: CallId = column(OPERATION, row, "id")?;
        if !column::<bool>(OPERATION, row, "recorded")? {
            return Err(Refusal::new(
                format!(
                    "an effect stands already for the key of call {id}; nothing new was recorded"
                ),
                format!("look at it: leafhopper show {id}"),
            )
            .into());
        }
        done.push((id, "confirmed".to_owned()));
    }
    Ok(done)
}
