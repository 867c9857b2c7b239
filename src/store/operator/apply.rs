//! The statements of a change by hand, in a transaction that its caller begins and ends.

use tokio_postgres::{Row, types::Type};

use super::{
    act::{ActError, By, Change, OPERATION, Refusal, Target},
    column, count,
};
use crate::{
    domain::call::CallId,
    store::{Param, StoreError, Transaction, int4},
};

/// Says who acts, and locks calls.
pub(super) const LOCK: &str = include_str!("../../../sql/queries/act_lock.sql");

/// What became of calls that were changed together.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) done: Vec<(CallId, String)>,
    /// Of these, nothing new was recorded; what the others say stands all the same.
    pub(super) refused: Vec<(CallId, Refusal)>,
}

/// The attempts of calls that are locked.
pub(super) type Attempts = Vec<(CallId, u32)>;

/// As `Store::lock`, in a transaction that has begun.
pub(super) async fn lock_further(
    transaction: &Transaction,
    by: &By,
    ids: &[CallId],
) -> Result<Attempts, ActError> {
    let params: [Param<'_>; 2] = [(&by.actor, Type::TEXT), (&ids, Type::INT8_ARRAY)];
    let locked = transaction.next(LOCK, &params).await?;
    Ok(attempts(OPERATION, &locked)?)
}

/// What a lock found.
pub(super) fn attempts(operation: &'static str, locked: &[Row]) -> Result<Attempts, StoreError> {
    let attempts = locked.iter().map(|row| {
        let attempts = count(column(operation, row, "attempts")?);
        Ok((column(operation, row, "call_id")?, attempts))
    });
    attempts.collect()
}

/// Their ids.
pub(super) fn ids_of(targets: &[Target]) -> Vec<CallId> {
    targets.iter().map(|target| target.id).collect()
}

/// Changes calls that are locked, in a transaction that goes on. Where one is refused the transaction is of no more
/// use, unless it goes back to a savepoint.
pub(super) async fn apply(
    transaction: &Transaction,
    by: &By,
    change: Change<'_>,
    targets: &[Target],
    locked: &Attempts,
) -> Result<Applied, ActError> {
    for target in targets {
        has_not_moved(target, locked)?;
    }
    let ids = ids_of(targets);
    let (calls, why): (Param<'_>, Param<'_>) = ((&ids, Type::INT8_ARRAY), (&by.reason, Type::TEXT));
    let rows = match change {
        Change::Retry => {
            let sql = include_str!("../../../sql/queries/act_retry.sql");
            transaction.next(sql, &[calls, why]).await?
        }
        Change::Cancel => {
            let sql = include_str!("../../../sql/queries/act_cancel.sql");
            transaction.next(sql, &[calls, why]).await?
        }
        Change::Waive => {
            let sql = include_str!("../../../sql/queries/act_waive.sql");
            transaction.next(sql, &[calls, why]).await?
        }
        Change::NotExecutedSend | Change::NotExecutedEnd => {
            let send = change == Change::NotExecutedSend;
            let sql = include_str!("../../../sql/queries/act_not_executed.sql");
            let params = [calls, why, (&send, Type::BOOL)];
            transaction.next(sql, &params).await?
        }
        Change::Release => {
            let rows = release(transaction, by, &ids).await?;
            let freed = rows
                .iter()
                .map(|row| column::<CallId>(OPERATION, row, "id"))
                .collect::<Result<Vec<_>, _>>()?;
            if let Some(id) = ids.iter().find(|id| !freed.contains(id)) {
                return Err(holds_nothing(*id).into());
            }
            rows
        }
        Change::Confirm { status, body } => {
            return confirm(transaction, by, &ids, locked, status, body).await;
        }
    };
    let done = rows.iter().map(|row| {
        Ok((
            column(OPERATION, row, "id")?,
            column(OPERATION, row, "state")?,
        ))
    });
    Ok(Applied {
        done: done.collect::<Result<_, StoreError>>()?,
        refused: Vec::new(),
    })
}

/// Frees what waits behind these heads.
pub(super) async fn release(
    transaction: &Transaction,
    by: &By,
    ids: &[CallId],
) -> Result<Vec<Row>, StoreError> {
    let sql = include_str!("../../../sql/queries/act_release.sql");
    let params: [Param<'_>; 2] = [(&ids, Type::INT8_ARRAY), (&by.reason, Type::TEXT)];
    transaction.next(sql, &params).await
}

/// That call is no such head.
pub(super) fn holds_nothing(id: CallId) -> Refusal {
    Refusal::new(
        format!("no calls are held because of call {id}"),
        "name the head: a call that failed, was cancelled or expired at a leaf with \
         after_failed_head = \"hold\"",
    )
}

/// Whether the call is as it was shown.
pub(super) fn has_not_moved(target: &Target, locked: &Attempts) -> Result<(), Refusal> {
    let now = locked.iter().find(|(id, _)| *id == target.id);
    match (target.attempts, now) {
        (Some(shown), Some((_, now))) if shown != *now => Err(Refusal::new(
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
    transaction: &Transaction,
    by: &By,
    ids: &[CallId],
    locked: &Attempts,
    status: u16,
    body: Option<&str>,
) -> Result<Applied, ActError> {
    let waits = |id: &CallId| locked.iter().any(|(locked, _)| locked == id);
    if let Some(id) = ids.iter().find(|id| !waits(id)) {
        return Err(Refusal::new(
            format!(
                "call {id} does not wait for this word: there is no such call, or it is confirmed"
            ),
            format!("look at it: leafhopper show {id}"),
        )
        .into());
    }
    let rows = transaction
        .next(
            include_str!("../../../sql/queries/act_confirm.sql"),
            &[
                (&ids, Type::INT8_ARRAY),
                (&by.reason, Type::TEXT),
                (&int4(status), Type::INT4),
                (&body, Type::TEXT),
            ],
        )
        .await?;
    let mut applied = Applied::default();
    for row in &rows {
        let id: CallId = column(OPERATION, row, "id")?;
        if column::<bool>(OPERATION, row, "recorded")? {
            applied.done.push((id, "confirmed".to_owned()));
        } else {
            let refusal = Refusal::new(
                format!(
                    "an effect stands already for the key of call {id}; nothing new was recorded"
                ),
                format!("look at it: leafhopper show {id}"),
            );
            applied.refused.push((id, refusal));
        }
    }
    Ok(applied)
}
