//! Batches: takes each from its calls to its end, whatever the state of their leaves.
//!
//! Whatever changes a batch or ends one of its calls has left a mark; a look at the batch then takes it one step further
//! (`look_at_batches.sql`), and what follows from its state is done: waiting calls are cancelled, effects are undone one
//! after the other, follow-ups are let go. All of it follows from the rows, so any instance goes on where one died.
//!
//! The announcement of a cancel is older than all this: a call that fails writes it with its own end, and no claim takes
//! a call of that batch from then on.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    context::Shared,
    driver::{self, More, Pass, UNTOLD},
    teardown,
};
use crate::{
    observe::Observation,
    shutdown::Tasks,
    store::{
        StoreError,
        batch::{Looked, MARKS, Mark, SWEEP, WALK},
    },
};

/// Marks are looked for this soon after some were last seen.
const AWAKE_POLL: Duration = Duration::from_millis(20);
const AWAKE_FOR: Duration = Duration::from_millis(500);

/// A batch that is not to be had now is looked at again after this.
const APART_FOR: Duration = Duration::from_secs(1);

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    let nudge = context.nudges.batch.clone();
    driver::spawn(tasks, context, Batcher::default(), nudge, until);
}

#[derive(Debug, Default)]
struct Batcher {
    /// Marks up to this one were read.
    read: i64,
    /// Unfinished batches up to this one were walked through.
    walked: Uuid,
    last_walk: Option<Instant>,
    last_mark: Option<Instant>,
    /// Batches that an app was just adding, or that are another instance's to look at, and when that was seen.
    apart: HashMap<Uuid, Instant>,
}

impl Pass for Batcher {
    const NAME: &'static str = "batcher";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let marks = context.store.batch_marks(self.read).await?;
        let full = marks.len() == MARKS;
        // From the start again: a mark commits when its transaction does, below others.
        self.read = marks.last().filter(|_| full).map_or(0, |mark| mark.id);
        let mut batches: BTreeSet<Uuid> = marks.iter().map(|mark| mark.batch).collect();
        self.walk(context, &mut batches).await?;
        let looked = self.look(context, batches, &marks).await?;
        if marks.is_empty() && looked.is_empty() {
            return Ok(More::Later);
        }
        if !marks.is_empty() && looked.iter().any(|batch| !batch.others) {
            self.last_mark = Some(Instant::now());
        }
        let moved = looked.iter().any(|batch| batch.before != batch.state);
        let swept = sweep(context, &looked).await?;
        release(context, &looked).await?;
        let undoing = looked.iter().filter(|batch| batch.state == "compensating");
        let undoing: Vec<Uuid> = undoing.map(|batch| batch.batch).collect();
        teardown::tear_down(context, &undoing).await?;
        // What was held by others is looked at again a little later.
        let more = moved || swept || (full && !looked.is_empty());
        Ok(if more { More::Now } else { More::Later })
    }

    fn interval(&self, _context: &Shared) -> Duration {
        match self.last_mark {
            Some(at) if at.elapsed() < AWAKE_FOR => AWAKE_POLL,
            _ => UNTOLD,
        }
    }
}

impl Batcher {
    /// Adds a page of those on their way to their end, now and then.
    async fn walk(
        &mut self,
        context: &Shared,
        batches: &mut BTreeSet<Uuid>,
    ) -> Result<(), StoreError> {
        // Each second nudge of the look, which comes once in an interval, with a tenth of it to spare.
        let pause = context.dispatch().poll_interval * 19 / 10;
        if self.last_walk.is_some_and(|at| at.elapsed() < pause) {
            return Ok(());
        }
        self.last_walk = Some(Instant::now());
        let page = context.store.unfinished_batches(self.walked).await?;
        let full = page.len() == WALK;
        self.walked = page.last().filter(|_| full).copied().unwrap_or_default();
        batches.extend(page);
        Ok(())
    }

    async fn look(
        &mut self,
        context: &Shared,
        batches: BTreeSet<Uuid>,
        marks: &[Mark],
    ) -> Result<Vec<Looked>, StoreError> {
        self.apart.retain(|_, at| at.elapsed() < APART_FOR);
        let batches: Vec<Uuid> = batches
            .into_iter()
            .filter(|batch| !self.apart.contains_key(batch))
            .collect();
        if batches.is_empty() || !context.may_go_on() {
            return Ok(Vec::new());
        }
        let leaves = teardown::leaves(context);
        let looking = context.store.look_at_batches(&batches, marks, &leaves);
        let (looked, contended) = looking.await?;
        let now = Instant::now();
        let others = looked.iter().filter(|batch| batch.others);
        let apart = contended.into_iter().chain(others.map(|batch| batch.batch));
        self.apart.extend(apart.map(|batch| (batch, now)));
        for batch in looked.iter().filter(|batch| batch.before != batch.state) {
            context.observer.emit(Observation::BatchMoved {
                batch: batch.batch,
                state: &batch.state,
            });
        }
        Ok(looked)
    }
}

/// Cancels what waits for nothing any more. `true` where something did.
async fn sweep(context: &Shared, looked: &[Looked]) -> Result<bool, StoreError> {
    let waiting = looked.iter().filter(|batch| batch.may_have_waiting);
    let batches: Vec<Uuid> = waiting.map(|batch| batch.batch).collect();
    let mut swept = false;
    loop {
        let cancelled = context.store.sweep_batches(&batches).await?;
        for (leaf, calls) in &cancelled {
            context.observer.emit(Observation::Ended {
                leaf: context.lanes.label(leaf),
                state: "cancelled",
                calls: *calls,
            });
        }
        if !cancelled.is_empty() {
            swept = true;
            context.call_news();
            // A cancelled head lets the next of its ordering key go.
            context.nudges.order.give();
        }
        let calls: u64 = cancelled.iter().map(|(_, calls)| calls).sum();
        if calls < u64::from(SWEEP.unsigned_abs()) || context.stop.claiming.is_cancelled() {
            return Ok(swept);
        }
    }
}

/// Lets follow-ups go whose phase has begun.
async fn release(context: &Shared, looked: &[Looked]) -> Result<(), StoreError> {
    let due = looked.iter().filter(|batch| batch.may_release);
    let batches: Vec<Uuid> = due.map(|batch| batch.batch).collect();
    if batches.is_empty() {
        return Ok(());
    }
    loop {
        let released = context.store.release_follow_ups(&batches).await?;
        if !released.is_empty() {
            context.nudges.work.give();
            context.nudges.order.give();
        }
        if More::behind(&released) == More::Later || context.stop.claiming.is_cancelled() {
            return Ok(());
        }
    }
}
