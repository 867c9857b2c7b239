//! How long the dispatcher rests between two rounds, and whether it is told of work meanwhile.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    busy::Busy,
    context::Shared,
    driver::UNTOLD,
    lookout::{ASLEEP, SLEEP},
};
use crate::store::StoreError;

/// While it is busy it looks this often; else so long after work of which no notification told: perhaps none does.
pub(super) const AWAKE_POLL: Duration = Duration::from_millis(2);

/// And this often after work of which one told: of its first retries nobody tells.
const LIGHT_POLL: Duration = Duration::from_millis(20);

/// So long after the last work.
const AWAKE_FOR: Duration = Duration::from_millis(250);

/// What decides it.
pub(super) struct Rest {
    context: Shared,
    untold_work: Instant,
    last_work: Instant,
    busy: Busy,
}

impl Rest {
    pub(super) fn new(context: &Shared) -> Self {
        let now = Instant::now();
        Self {
            context: context.clone(),
            untold_work: now,
            last_work: now,
            busy: Busy::new(now),
        }
    }

    /// How many notifications have come since the last round. They count even where nothing can be taken.
    pub(super) async fn told(&mut self) -> usize {
        let told = self.context.told_of_work();
        let now = Instant::now();
        self.busy.saw(told, now);
        if self.busy.is_busy(now) {
            // Another instance may have set the mark, which sleeps.
            self.wake(told > 0).await;
        }
        told
    }

    /// So many calls were taken in a round of which so many notifications had told.
    pub(super) async fn found(&mut self, taken: usize, told: usize) {
        let now = Instant::now();
        self.last_work = now;
        if told == 0 {
            self.untold_work = now;
        }
        self.busy.saw(taken.saturating_sub(told), now);
        if self.busy.is_busy(now) {
            self.wake(false).await;
        }
    }

    /// How long to wait for the next round, if nothing tells before; `part` says when to look at the rest, where the last one
    /// has looked at a part.
    pub(super) async fn wait(&self, part: Option<Instant>) -> Duration {
        let poll = self.context.dispatch().poll_interval;
        let now = Instant::now();
        let wait = if self.busy.is_busy(now) {
            AWAKE_POLL
        } else {
            match self.sleep_announced(poll).await {
                Ok(true) => {}
                Ok(false) => return Duration::ZERO,
                Err(error) => {
                    self.context.failed(&error);
                    return poll;
                }
            }
            if self.untold_work.elapsed() < AWAKE_FOR {
                AWAKE_POLL
            } else if self.last_work.elapsed() < AWAKE_FOR {
                LIGHT_POLL
            } else {
                // The look tells it, or that it can't tell.
                UNTOLD
            }
        };
        match part {
            Some(at) => wait.min(at.saturating_duration_since(now).max(AWAKE_POLL)),
            None => wait,
        }
    }

    /// Much work comes: it looks by itself, and producers are spared the notification, for which their commits wait
    /// for each other.
    async fn wake(&self, is_set: bool) {
        if (self.context.asleep.ends() || is_set)
            && let Err(error) = self.context.store.announce_awake().await
        {
            self.context.failed(&error);
        }
    }

    /// Says in the database that this instance sleeps, so that an insert wakes it. `false` the first time:
    /// what came in before the mark was set is looked for once more.
    async fn sleep_announced(&self, poll: Duration) -> Result<bool, StoreError> {
        // The mark outlives the sleep by so much that it needs renewal only now and then.
        if self.context.asleep.covers(poll) {
            return Ok(true);
        }
        self.context.store.announce_sleep(poll * SLEEP).await?;
        self.context.asleep.announced(poll * ASLEEP);
        Ok(false)
    }
}
