//! Ordering keys: one call of each at a time. Looks at arrived calls, lets the next one go when a head has
//! ended, and repairs what a crash or a race left waiting.

use std::{sync::PoisonError, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass, UNTOLD},
};
use crate::{shutdown::Tasks, store::StoreError};

/// Work is looked for this soon after an ordered call was last seen.
const AWAKE_POLL: Duration = Duration::from_millis(5);
const AWAKE_FOR: Duration = Duration::from_millis(250);

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    let promoter = Promoter {
        last_work: None,
        last_sweep: None,
    };
    driver::spawn(
        tasks,
        context,
        promoter,
        context.nudges.order.clone(),
        until,
    );
}

#[derive(Debug)]
struct Promoter {
    last_work: Option<Instant>,
    last_sweep: Option<Instant>,
}

impl Pass for Promoter {
    const NAME: &'static str = "promoter";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let ended = {
            let mut ended = context
                .ended_heads
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *ended)
        };
        let mut promoted = 0;
        if !ended.is_empty() {
            promoted += self
                .tolerate(context.store.promote_next(&ended).await)?
                .unwrap_or(0);
        }
        let (looked_at, heads) = self
            .tolerate(context.store.promote_arrived().await)?
            .unwrap_or((0, 0));
        promoted += heads;
        // A tenth less, so that no nudge of the look, which comes once in an interval, is too early.
        let pause = context.dispatch().poll_interval * 9 / 10;
        if self.last_sweep.is_none_or(|at| at.elapsed() >= pause) {
            self.last_sweep = Some(Instant::now());
            let headless = context.store.headless_keys().await?;
            if !headless.is_empty() {
                promoted += self
                    .tolerate(context.store.promote_next(&headless).await)?
                    .unwrap_or(0);
            }
            promoted += context.store.free_keys().await?;
        }
        if promoted > 0 {
            context.nudges.work.give();
            context.nudges.slot.give();
        }
        if looked_at > 0 || !ended.is_empty() {
            self.last_work = Some(Instant::now());
        }
        Ok(if looked_at > 0 {
            More::Now
        } else {
            More::Later
        })
    }

    fn interval(&self, _context: &Shared) -> Duration {
        match self.last_work {
            Some(at) if at.elapsed() < AWAKE_FOR => AWAKE_POLL,
            _ => UNTOLD,
        }
    }
}

impl Promoter {
    /// Two promoters that meet at one key: one of them was first, and the sweep sees to the rest.
    fn tolerate<T>(&mut self, outcome: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_contention() => {
                self.last_sweep = None;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
