//! Prunes what is older than `[retention]` says, little by little.
//!
//! The instance that has lived longest does it. Where two take themselves for that one, a statement that meets the other's
//! leaves it the turn; and none takes what another transaction holds.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{
    observe::Observation,
    shutdown::{Nudge, Tasks},
    store::{
        StoreError,
        prune::{Begins, Counts, Step, Sweep},
    },
};

/// Where all is kept for ever, so long passes until the next look at the configuration, which can have been read again.
const NOTHING: Duration = Duration::from_mins(1);

/// After each step so many times as long as it took: a sweep is at work for a fifth of the time.
const AFTER_A_STEP: u32 = 4;

/// After a sweep so many times as long as it has looked for nothing, at rows that may not go: a twentieth of the time.
const AFTER_A_SWEEP: u32 = 20;

/// Now and then a sweep begins at the first row: one with a low number can have been committed late.
const FROM_THE_START: Duration = Duration::from_hours(24);

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    let janitor = Janitor {
        rest: NOTHING,
        started: false,
        under_way: None,
        begins: Begins::default(),
        began_at_start: Instant::now(),
    };
    driver::spawn(tasks, context, janitor, Nudge::default(), until);
}

#[derive(Debug)]
struct Janitor {
    /// Until the next pass.
    rest: Duration,
    /// The first pass only waits: at the start every loop wants a connection.
    started: bool,
    under_way: Option<UnderWay>,
    /// Where the next sweep begins.
    begins: Begins,
    began_at_start: Instant,
}

/// A sweep, and what it has come to.
#[derive(Debug)]
struct UnderWay {
    sweep: Sweep,
    pruned: Counts,
    /// What the steps took that found nothing to prune.
    in_vain: Duration,
}

impl Pass for Janitor {
    const NAME: &'static str = "janitor";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let retention = context.retention();
        let Some(interval) = retention.interval().filter(|_| context.may_go_on()) else {
            self.under_way = None;
            self.rest = NOTHING;
            return Ok(More::Later);
        };
        if !std::mem::replace(&mut self.started, true) {
            self.rest = interval;
            return Ok(More::Later);
        }
        let same = |under_way: &mut UnderWay| *under_way.sweep.retention() == retention;
        let mut under_way = match self.under_way.take_if(same) {
            Some(under_way) => under_way,
            None if has_lived_longest(context).await? => {
                UnderWay::new(Sweep::pruning(retention, self.begins_at()))
            }
            None => {
                self.rest = interval;
                return Ok(More::Later);
            }
        };
        let begun = Instant::now();
        // Planned for its own numbers: what a window holds changes from one to the next.
        let step = under_way.sweep.step(&context.store.planning()).await;
        let took = begun.elapsed();
        self.rest = took * AFTER_A_STEP;
        match step {
            Ok(Step::Went(rows)) => {
                if rows.are_none() {
                    under_way.in_vain += took;
                }
                under_way.pruned.add(&rows);
                context.observer.emit(Observation::Pruned { rows: &rows });
            }
            Ok(Step::Busy) => self.rest = interval,
            Ok(Step::Over) => {
                let rows = &under_way.pruned;
                context.observer.emit(Observation::Swept { rows });
                self.begins = under_way.sweep.begins();
                self.rest = interval.max(under_way.in_vain * AFTER_A_SWEEP);
                return Ok(More::Later);
            }
            Err(error) => {
                self.under_way = Some(under_way);
                return Err(error);
            }
        }
        self.under_way = Some(under_way);
        Ok(More::Later)
    }

    fn interval(&self, _context: &Shared) -> Duration {
        self.rest
    }
}

impl Janitor {
    fn begins_at(&mut self) -> Begins {
        if self.began_at_start.elapsed() > FROM_THE_START {
            self.began_at_start = Instant::now();
            self.begins = Begins::default();
        }
        self.begins.clone()
    }
}

impl UnderWay {
    fn new(sweep: Sweep) -> Self {
        Self {
            sweep,
            pruned: Counts::default(),
            in_vain: Duration::ZERO,
        }
    }
}

/// Whether no other instance that lives is older. (Their ids grow with the time at which they began.)
async fn has_lived_longest(context: &Shared) -> Result<bool, StoreError> {
    let members = context.store.members().await?;
    let alive = members.iter().filter(|member| member.alive);
    let oldest = alive.map(|member| member.id).min();
    Ok(oldest == Some(context.identity.id))
}
