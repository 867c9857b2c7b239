//! The teardown: which effects are to be undone now, and the calls that do it. All in one transaction, which holds the
//! batches' rows.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Row, Store, StoreError, Transaction, batch::Leaves, column, int4};
use crate::domain::{call::CallId, compensation::Undo};

const OPERATION: &str = "tear batches down";

const LOCK_WAIT: Duration = Duration::from_millis(100);

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
    /// Nothing told it from somebody else's when it was adopted, and nobody has said since that it is ours.
    pub weak: bool,
    /// The row's own compensation.
    pub compensate: Option<String>,
    /// What templates see: `call` and `result`.
    pub seen: Value,
    /// Seconds until no other request of the call is alive, where the end of one is not known.
    pub alive_for: Option<f64>,
    /// The `settle` of the row's own probe.
    pub settle: Option<String>,
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
    /// It is not sent before this time has passed.
    pub delay: Duration,
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
    /// What is to be undone now of these batches, at most so many `effects` of each, while their rows are held.
    ///
    /// # Errors
    /// The database did not answer.
    pub(crate) async fn tear_down(
        &self,
        batches: &[Uuid],
        effects: usize,
        leaves: &Leaves,
    ) -> Result<Teardown, StoreError> {
        let (transaction, locked) = self.lock_batches(OPERATION, LOCK_WAIT, batches).await?;
        let rows = transaction
            .next(
                include_str!("../../sql/queries/effects_to_undo.sql"),
                &[
                    (&locked, Type::UUID_ARRAY),
                    (&leaves.compensated, Type::TEXT_ARRAY),
                    (&leaves.known, Type::TEXT_ARRAY),
                    (&int4(effects), Type::INT4),
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
    /// compensations with what they undo, and with the reason of those that are parked.
    ///
    /// # Errors
    /// The database did not answer, or refuses the content of a request.
    pub(crate) async fn finish<'a>(
        self,
        undo: &'a [(&Effect, Compensation)],
    ) -> Result<Vec<(CallId, &'a Effect, Option<&'static str>)>, StoreError> {
        let mut made = self.add(undo).await?;
        made.extend(self.remake(undo).await?);
        if !self.done.is_empty() {
            self.transaction
                .next(
                    include_str!("../../sql/queries/end_teardowns.sql"),
                    &[(&self.done, Type::UUID_ARRAY)],
                )
                .await?;
        }
        let ids: Vec<CallId> = made.iter().map(|(id, ..)| *id).collect();
        let (mut reasons, mut flaws, mut delays) = (Vec::new(), Vec::new(), Vec::new());
        for (.., compensation) in &made {
            let park = compensation.park.as_ref();
            reasons.push(park.map(|(reason, _)| *reason));
            flaws.push(park.and_then(|(_, flaw)| flaw.as_deref()));
            delays.push(compensation.delay.as_secs_f64());
        }
        self.transaction
            .last(
                include_str!("../../sql/queries/release_compensations.sql"),
                &[
                    (&ids, Type::INT8_ARRAY),
                    (&reasons, Type::TEXT_ARRAY),
                    (&flaws, Type::TEXT_ARRAY),
                    (&delays, Type::FLOAT8_ARRAY),
                ],
            )
            .await?;
        let effects = made.into_iter().zip(reasons);
        Ok(effects
            .map(|((id, effect, _), reason)| (id, effect, reason))
            .collect())
    }

    /// Effects that nobody has begun to undo.
    async fn add<'a>(
        &self,
        undo: &'a [(&Effect, Compensation)],
    ) -> Result<Vec<Made<'a>>, StoreError> {
        let new: Vec<_> = undo
            .iter()
            .filter(|(effect, _)| effect.remake.is_none())
            .collect();
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let calls: Vec<CallId> = new.iter().map(|(effect, _)| effect.call).collect();
        let generations: Vec<i32> = new.iter().map(|(effect, _)| effect.generation).collect();
        let (methods, paths, bodies) = requests(&new);
        let rows = self
            .transaction
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
        let mut made = Vec::new();
        for row in &rows {
            let undoes: CallId = column(OPERATION, row, "undoes")?;
            let id: CallId = column(OPERATION, row, "id")?;
            let of = new.iter().find(|(effect, _)| effect.call == undoes);
            made.extend(of.map(|(effect, compensation)| (id, *effect, compensation)));
        }
        Ok(made)
    }

    /// Effects whose compensation is there already, and gets another request.
    async fn remake<'a>(
        &self,
        undo: &'a [(&Effect, Compensation)],
    ) -> Result<Vec<Made<'a>>, StoreError> {
        let again: Vec<_> = undo
            .iter()
            .filter(|(effect, _)| effect.remake.is_some())
            .collect();
        if again.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Option<CallId>> = again.iter().map(|(effect, _)| effect.remake).collect();
        let (methods, paths, bodies) = requests(&again);
        let rows = self
            .transaction
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
        let mut made = Vec::new();
        for row in &rows {
            let id: CallId = column(OPERATION, row, "id")?;
            let of = again.iter().find(|(effect, _)| effect.remake == Some(id));
            made.extend(of.map(|(effect, compensation)| (id, *effect, compensation)));
        }
        Ok(made)
    }
}

/// A compensation that has a row now: its call, what it undoes, and what was decided about it.
type Made<'a> = (CallId, &'a Effect, &'a Compensation);

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
    let sent: Option<bool> = column(operation, row, "compensation_sent")?;
    let remake = compensation.filter(|_| held == Some(true));
    let in_turn: bool = column(operation, row, "in_turn")?;
    let leaf_unknown: bool = column(operation, row, "leaf_unknown")?;
    let due = remake.is_some() || (compensation.is_none() && in_turn);
    if leaf_unknown || !due {
        return Ok(None);
    }
    // What jsonb gives out is JSON; deeper than the parser goes, templates don't go either.
    let parsed = |name| -> Result<Value, StoreError> {
        column(operation, row, name).map(|text| serde_json::from_str(text).unwrap_or_default())
    };
    Ok(Some(Effect {
        batch: column(operation, row, "batch")?,
        call,
        leaf: column(operation, row, "leaf")?,
        generation: column(operation, row, "generation")?,
        // Only somebody's word can have sent the undoing of such a one before.
        weak: column(operation, row, "weak")? && sent != Some(true),
        compensate: column(operation, row, "compensate")?,
        seen: serde_json::json!({ "call": parsed("seen")?, "result": parsed("result")? }),
        alive_for: column(operation, row, "alive_for")?,
        settle: column(operation, row, "settle")?,
        remake,
    }))
}
