//! Batches: takes each from its calls to its end, whatever the state of their leaves.
//!
//! Whatever changes a batch or ends one of its calls has left a mark; a look at the batch then takes it one step further
//! (`look_at_batches.sql`), and what follows from its state is done: waiting calls are cancelled, effects are undone one
//! after the other, follow-ups are let go. All of it follows from the rows, so any instance goes on where one died.
//!
//! The announcement of a cancel is older than all this: a call that fails writes it with its own end, and no claim takes
//! a call of that batch from then on.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    context::Shared,
    driver::{self, More, Pass},
    teardown,
};
use crate::{
    observe::Observation,
    shutdown::Tasks,
    store::{
        StoreError,
        batch::{Looked, MARKS, Mark, WALK},
        sweep::CHUNK,
    },
};

/// Marks are looked for this soon after some were last seen.
const AWAKE_POLL: Duration = Duration::from_millis(20);
const AWAKE_FOR: Duration = Duration::from_millis(500);

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
}

impl Pass for Batcher {
    const NAME: &'static str = "batcher";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let marks = context.store.batch_marks(self.read).await?;
        let full = marks.len() == MARKS;
        // From the start again: a mark commits when its transaction does, below others.
        self.read = marks.last().filter(|_| full).map_or(0, |mark| mark.id);
        if !marks.is_empty() {
            self.last_mark = Some(Instant::now());
        }
        let mut batches: BTreeSet<Uuid> = marks.iter().map(|mark| mark.batch).collect();
        let walked_full = self.walk(context, &mut batches).await?;
        let looked = look(context, &batches, &marks).await?;
        let moved = looked.iter().any(|batch| batch.before != batch.state);
        let swept = sweep(context, &looked).await?;
        let released = release(context, &looked).await?;
        let undoing: Vec<Uuid> = of_state(&looked, "compensating").collect();
        teardown::tear_down(context, &undoing).await?;
        // What was held by others is looked at again a little later.
        let more = moved || (full && !looked.is_empty()) || walked_full;
        Ok(if more || swept == More::Now || released == More::Now {
            More::Now
        } else {
            More::Later
        })
    }

    fn interval(&self, context: &Shared) -> Duration {
        match self.last_mark {
            Some(at) if at.elapsed() < AWAKE_FOR => AWAKE_POLL,
            _ => context.dispatch().poll_interval,
        }
    }
}

impl Batcher {
    /// Adds a page of those on their way to their end, now and then. `true` where there are more.
    async fn walk(
        &mut self,
        context: &Shared,
        batches: &mut BTreeSet<Uuid>,
    ) -> Result<bool, StoreError> {
        let pause = context.dispatch().poll_interval * 2;
        let under_way = !self.walked.is_nil();
        if !under_way && self.last_walk.is_some_and(|at| at.elapsed() < pause) {
            return Ok(false);
        }
        self.last_walk = Some(Instant::now());
        let page = context.store.unfinished_batches(self.walked).await?;
        let full = page.len() == WALK;
        self.walked = page.last().filter(|_| full).copied().unwrap_or_default();
        batches.extend(page);
        Ok(full)
    }
}

fn of_state<'a>(looked: &'a [Looked], state: &'a str) -> impl Iterator<Item = Uuid> + 'a {
    let of_state = looked.iter().filter(move |batch| batch.state == state);
    of_state.map(|batch| batch.batch)
}

async fn look(
    context: &Shared,
    batches: &BTreeSet<Uuid>,
    marks: &[Mark],
) -> Result<Vec<Looked>, StoreError> {
    if batches.is_empty() || !context.may_go_on() {
        return Ok(Vec::new());
    }
    let batches: Vec<Uuid> = batches.iter().copied().collect();
    let leaves = teardown::leaves(context);
    let looked = context
        .store
        .look_at_batches(&batches, marks, &leaves)
        .await?;
    for batch in looked.iter().filter(|batch| batch.before != batch.state) {
        context.observer.emit(Observation::BatchMoved {
            batch: batch.batch,
            state: &batch.state,
        });
    }
    Ok(looked)
}

async fn sweep(context: &Shared, looked: &[Looked]) -> Result<More, StoreError> {
    let waiting = looked.iter().filter(|batch| batch.may_have_waiting);
    let batches: Vec<Uuid> = waiting.map(|batch| batch.batch).collect();
    let mut more = More::Later;
    loop {
        let cancelled = context.store.sweep_batches(&batches).await?;
        for leaf in &cancelled {
            context.observer.emit(Observation::Ended {
                leaf: context.lanes.label(leaf),
                state: "cancelled",
            });
        }
        if !cancelled.is_empty() {
            more = More::Now;
            context.call_news();
            // A cancelled head lets the next of its ordering key go.
            context.nudges.order.give();
        }
        if More::behind(&cancelled) == More::Later || context.stop.claiming.is_cancelled() {
            return Ok(more);
        }
    }
}

async fn release(context: &Shared, looked: &[Looked]) -> Result<More, StoreError> {
    let due = looked.iter().filter(|batch| batch.may_release);
    let batches: Vec<Uuid> = due.map(|batch| batch.batch).collect();
    if batches.is_empty() {
        return Ok(More::Later);
    }
    loop {
        let released = context.store.release_follow_ups(&batches).await?;
        if released > 0 {
            context.nudges.work.give();
            context.nudges.order.give();
        }
        let chunk = usize::try_from(CHUNK).unwrap_or(usize::MAX);
        if released < chunk || context.stop.claiming.is_cancelled() {
            return Ok(More::Later);
        }
    }
}
