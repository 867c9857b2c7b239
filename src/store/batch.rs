//! Batches: which are to be looked at, the look, and the teardown.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Row, Store, StoreError, Transaction, column, int4, sweep::CHUNK};
use crate::domain::{call::CallId, compensation::Undo};

const LOCK_WAIT: Duration = Duration::from_millis(100);

/// A look waits only for a row that somebody else is adding: another look does it within this, an app perhaps not.
const LOOK_WAIT: Duration = Duration::from_millis(25);

/// So many marks are read at once.
pub const MARKS: usize = 1000;

/// So many batches on their way to their end are walked through at once.
pub const WALK: usize = 1000;

/// Of one batch that undoes in any order, so many effects at once: their results are in memory together.
const EFFECTS: i32 = 16;

/// "Look at this batch."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// `batch_mark.id`
    pub id: i64,
    /// The batch.
    pub batch: Uuid,
}

/// What this instance's configuration says of leaves.
#[derive(Debug, Clone, Default)]
pub struct Leaves {
    /// Those that it knows.
    pub known: Vec<String>,
    /// Those of them that have a compensation.
    pub compensated: Vec<String>,
}

/// A batch that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The batch.
    pub batch: Uuid,
    /// The state that it was in.
    pub before: String,
    /// The state that it is in.
    pub state: String,
    /// Calls of it may wait that will not be sent.
    pub may_have_waiting: bool,
    /// Follow-ups of it may be let go.
    pub may_release: bool,
    /// Only an instance that knows other leaves can tell what is to be done next: its mark stays for them.
    pub others: bool,
}

/// An effect that is to be undone.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The batch.
    pub batch: Uuid,
    /// The call whose effect it is.
    pub call: CallId,
    /// Its leaf.
    pub leaf: String,
    /// The generation of its result.
    pub generation: i32,
    /// Nothing told it from somebody else's when it was adopted.
    pub weak: bool,
    /// The row's own compensation.
    pub compensate: Option<String>,
    /// What templates see: `call` and `result`.
    pub seen: Value,
    /// The compensation that is there already, and whose request is to be made anew.
    pub remake: Option<CallId>,
}

/// What is done about an effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Compensation {
    /// The request that undoes it.
    pub undo: Undo,
    /// A person has to look at it first: the reason, and what is wrong.
    pub park: Option<(&'static str, Option<String>)>,
}

/// A teardown under way: the transaction holds the batches' rows.
pub(crate) struct Teardown {
    transaction: Transaction,
    /// What is to be undone now.
    pub(crate) effects: Vec<Effect>,
    /// Batches of which nothing is left.
    pub(crate) done: Vec<Uuid>,
}

impl Store {
    /// Marks above `after`, the lowest first, at most [`MARKS`].
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn batch_marks(&self, after: i64) -> Result<Vec<Mark>, StoreError> {
        const OPERATION: &str = "read marks of batches";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/batch_marks.sql"),
                &[(&after, Type::INT8), (&int4(MARKS), Type::INT4)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Mark {
                    id: column(OPERATION, row, "id")?,
                    batch: column(OPERATION, row, "batch_id")?,
                })
            })
            .collect()
    }

    /// Batches on their way to their end above `after`, at most [`WALK`].
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn unfinished_batches(&self, after: Uuid) -> Result<Vec<Uuid>, StoreError> {
        const OPERATION: &str = "walk through batches";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/batch_unfinished.sql"),
                &[(&after, Type::UUID), (&int4(WALK), Type::INT4)],
            )
            .await?;
        ids(OPERATION, &rows)
    }

    /// Looks at each batch, and takes it one step further. Gives also those that an app is just adding: they keep their
    /// marks, and are in nobody's way.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn look_at_batches(
        &self,
        batches: &[Uuid],
        marks: &[Mark],
        leaves: &Leaves,
    ) -> Result<(Vec<Looked>, Vec<Uuid>), StoreError> {
        let (mut looked, mut contended) = (Vec::new(), Vec::new());
        let mut parts = vec![batches];
        while let Some(part) = parts.pop() {
            let of_part: Vec<Mark> = marks
                .iter()
                .filter(|mark| part.contains(&mark.batch))
                .copied()
                .collect();
            match (self.look(part, &of_part, leaves).await, part) {
                (Err(error), [one]) if error.is_contention() => contended.push(*one),
                (Err(error), _) if error.is_contention() => {
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([one, other]);
                }
                (seen, _) => looked.extend(seen?),
            }
        }
        Ok((looked, contended))
    }

    async fn look(
        &self,
        batches: &[Uuid],
        marks: &[Mark],
        leaves: &Leaves,
    ) -> Result<Vec<Looked>, StoreError> {
        const OPERATION: &str = "look at batches";
        let (transaction, locked) = self.lock_batches(OPERATION, LOOK_WAIT, batches).await?;
        let (mark_ids, of): (Vec<i64>, Vec<Uuid>) = marks.iter().map(|m| (m.id, m.batch)).unzip();
        let rows = transaction
            .last(
                include_str!("../../sql/queries/look_at_batches.sql"),
                &[
                    (&batches, Type::UUID_ARRAY),
                    (&locked, Type::UUID_ARRAY),
                    (&mark_ids, Type::INT8_ARRAY),
                    (&of, Type::UUID_ARRAY),
                    (&leaves.compensated, Type::TEXT_ARRAY),
                    (&leaves.known, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Looked {
                    batch: column(OPERATION, row, "id")?,
                    before: column(OPERATION, row, "before")?,
                    state: column(OPERATION, row, "state")?,
                    may_have_waiting: column(OPERATION, row, "may_have_waiting")?,
                    may_release: column(OPERATION, row, "may_release")?,
                    others: column(OPERATION, row, "others")?,
                })
            })
            .collect()
    }

    async fn lock_batches(
        &self,
        operation: &'static str,
        lock_wait: Duration,
        batches: &[Uuid],
    ) -> Result<(Transaction, Vec<Uuid>), StoreError> {
        let transaction = self.begin(operation).await?;
        let rows = transaction
            .first(
                lock_wait,
                include_str!("../../sql/queries/lock_batches.sql"),
                &[(&batches, Type::UUID_ARRAY)],
            )
            .await?;
        let locked = ids(operation, &rows)?;
        Ok((transaction, locked))
    }

    /// Cancels waiting calls of batches that are being cancelled, and of these, at most [`CHUNK`] of them. Gives their
    /// leaves.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn sweep_batches(&self, batches: &[Uuid]) -> Result<Vec<String>, StoreError> {
        const OPERATION: &str = "cancel calls of cancelled batches";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/sweep_batches.sql"),
                &[(&CHUNK, Type::INT4), (&batches, Type::UUID_ARRAY)],
            )
            .await?;
        rows.iter()
            .map(|row| column(OPERATION, row, "leaf"))
            .collect()
    }

    /// Lets follow-ups of these batches go whose phase has begun, at most [`CHUNK`] of them. Gives them.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn release_follow_ups(&self, batches: &[Uuid]) -> Result<Vec<CallId>, StoreError> {
        const OPERATION: &str = "let follow-ups go";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/release_follow_ups.sql"),
                &[(&batches, Type::UUID_ARRAY), (&CHUNK, Type::INT4)],
            )
            .await?;
        rows.iter()
            .map(|row| column(OPERATION, row, "call_id"))
            .collect()
    }

    /// What is to be undone now of these batches, while their rows are held.
    ///
    /// # Errors
    /// The database did not answer.
    pub(crate) async fn tear_down(
        &self,
        batches: &[Uuid],
        leaves: &Leaves,
    ) -> Result<Teardown, StoreError> {
        const OPERATION: &str = "tear batches down";
        let (transaction, locked) = self.lock_batches(OPERATION, LOCK_WAIT, batches).await?;
        let rows = transaction
            .next(
                include_str!("../../sql/queries/effects_to_undo.sql"),
                &[
                    (&locked, Type::UUID_ARRAY),
                    (&leaves.compensated, Type::TEXT_ARRAY),
                    (&leaves.known, Type::TEXT_ARRAY),
                    (&EFFECTS, Type::INT4),
                ],
            )
            .await?;
        let mut effects = Vec::new();
        let mut done = Vec::new();
        for row in &rows {
            if column(OPERATION, row, "done")? {
                done.push(column(OPERATION, row, "batch")?);
            } else if let Some(effect) = effect(OPERATION, row)? {
                effects.push(effect);
            }
        }
        Ok(Teardown {
            transaction,
            effects,
            done,
        })
    }
}

impl Teardown {
    /// Adds what undoes the effects, lets it go or parks it, and ends the teardowns that are done. Gives the
    /// compensations with the reason of those that are parked.
    ///
    /// # Errors
    /// The database did not answer, or refuses the content of a request.
    pub(crate) async fn finish(
        self,
        undo: &[(&Effect, Compensation)],
    ) -> Result<Vec<(CallId, Option<&'static str>)>, StoreError> {
        const OPERATION: &str = "tear batches down";
        let transaction = self.transaction;
        let (again, new): (Vec<_>, Vec<_>) =
            undo.iter().partition(|(effect, _)| effect.remake.is_some());
        let mut made: Vec<(CallId, &Compensation)> = Vec::new();
        if !new.is_empty() {
            let calls: Vec<CallId> = new.iter().map(|(effect, _)| effect.call).collect();
            let generations: Vec<i32> = new.iter().map(|(effect, _)| effect.generation).collect();
            let (methods, paths, bodies) = requests(&new);
            let rows = transaction
                .next(
                    include_str!("../../sql/queries/add_compensations.sql"),
                    &[
                        (&calls, Type::INT8_ARRAY),
                        (&generations, Type::INT4_ARRAY),
                        (&methods, Type::TEXT_ARRAY),
                        (&paths, Type::TEXT_ARRAY),
                        (&bodies, Type::TEXT_ARRAY),
                    ],
                )
                .await?;
            for row in &rows {
                let undoes: CallId = column(OPERATION, row, "undoes")?;
                let id: CallId = column(OPERATION, row, "id")?;
                let of = new.iter().find(|(effect, _)| effect.call == undoes);
                made.extend(of.map(|(_, compensation)| (id, compensation)));
            }
        }
        if !again.is_empty() {
            let ids: Vec<Option<CallId>> = again.iter().map(|(effect, _)| effect.remake).collect();
            let (methods, paths, bodies) = requests(&again);
            let rows = transaction
                .next(
                    include_str!("../../sql/queries/remake_compensations.sql"),
                    &[
                        (&ids, Type::INT8_ARRAY),
                        (&methods, Type::TEXT_ARRAY),
                        (&paths, Type::TEXT_ARRAY),
                        (&bodies, Type::TEXT_ARRAY),
                    ],
                )
                .await?;
            for row in &rows {
                let id: CallId = column(OPERATION, row, "id")?;
                let of = again.iter().find(|(effect, _)| effect.remake == Some(id));
                made.extend(of.map(|(_, compensation)| (id, compensation)));
            }
        }
        if !self.done.is_empty() {
            transaction
                .next(
                    include_str!("../../sql/queries/end_teardowns.sql"),
                    &[(&self.done, Type::UUID_ARRAY)],
                )
                .await?;
        }
        let ids: Vec<CallId> = made.iter().map(|(id, _)| *id).collect();
        let (reasons, flaws): (Vec<Option<&str>>, Vec<Option<&str>>) = made
            .iter()
            .map(|(_, compensation)| match &compensation.park {
                Some((reason, flaw)) => (Some(*reason), flaw.as_deref()),
                None => (None, None),
            })
            .unzip();
        transaction
            .last(
                include_str!("../../sql/queries/release_compensations.sql"),
                &[
                    (&ids, Type::INT8_ARRAY),
                    (&reasons, Type::TEXT_ARRAY),
                    (&flaws, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        Ok(made
            .iter()
            .map(|(id, compensation)| (*id, compensation.park.as_ref().map(|(reason, _)| *reason)))
            .collect())
    }
}

type Requests<'a> = (Vec<&'a str>, Vec<&'a str>, Vec<Option<String>>);

fn requests<'a>(undo: &[&'a (&Effect, Compensation)]) -> Requests<'a> {
    let mut requests = Requests::default();
    for (_, compensation) in undo {
        let undo = &compensation.undo;
        requests.0.push(&undo.method);
        requests.1.push(&undo.path);
        requests.2.push(undo.body.as_ref().map(Value::to_string));
    }
    requests
}

/// The effect of this row, where something is to be done about it now.
fn effect(operation: &'static str, row: &Row) -> Result<Option<Effect>, StoreError> {
    let Some(call) = column::<Option<CallId>>(operation, row, "call_id")? else {
        return Ok(None);
    };
    let compensation: Option<CallId> = column(operation, row, "compensation")?;
    let held: Option<bool> = column(operation, row, "compensation_held")?;
    let remake = compensation.filter(|_| held == Some(true));
    let in_turn: bool = column(operation, row, "in_turn")?;
    let leaf_unknown: bool = column(operation, row, "leaf_unknown")?;
    let due = remake.is_some() || (compensation.is_none() && in_turn);
    if leaf_unknown || !due {
        return Ok(None);
    }
    let parsed = |name| -> Result<Value, StoreError> {
        let text: &str = column(operation, row, name)?;
        // What jsonb gives out is JSON; deeper than the parser goes, templates don't go either.
        Ok(serde_json::from_str(text).unwrap_or_default())
    };
    Ok(Some(Effect {
        batch: column(operation, row, "batch")?,
        call,
        leaf: column(operation, row, "leaf")?,
        generation: column(operation, row, "generation")?,
        weak: column(operation, row, "weak")?,
        compensate: column(operation, row, "compensate")?,
        seen: serde_json::json!({ "call": parsed("seen")?, "result": parsed("result")? }),
        remake,
    }))
}

fn ids(operation: &'static str, rows: &[Row]) -> Result<Vec<Uuid>, StoreError> {
    rows.iter()
        .map(|row| column(operation, row, "id"))
        .collect()
}
