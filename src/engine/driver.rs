//! Runs a pass on a timer and on a nudge, one at a time.
//!
//! A pass is one idempotent round over the work; it takes no input, so after a restart, or in another
//! instance, the same code does the same. One that fails waits for the next round, with backoff.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::context::Shared;
use crate::{
    domain::schedule::Schedule,
    shutdown::{Nudge, Tasks},
    store::{StoreError, sweep::CHUNK},
};

/// Beyond its interval, a pass may take as long as its statements and its wait for a connection may.
const PATIENCE: Duration = Duration::from_secs(60);

/// A loop that the look tells of what is due looks this often all the same: what the look does not see comes late, and is
/// not left.
pub(super) const UNTOLD: Duration = Duration::from_secs(120);

/// Whether there is more to do at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// The pass was cut at its limit.
    Now,
    /// It has done all that is due.
    Later,
}

impl More {
    /// Whether a sweep that met these rows was cut at [`CHUNK`].
    pub(super) fn behind<Row>(met: &[Row]) -> Self {
        if met.len() >= usize::try_from(CHUNK).unwrap_or(usize::MAX) {
            Self::Now
        } else {
            Self::Later
        }
    }
}

/// One round of a loop.
pub(super) trait Pass: Send + 'static {
    /// The loop's name.
    const NAME: &'static str;

    /// Does what is due.
    fn pass(&mut self, context: &Shared) -> impl Future<Output = Result<More, StoreError>> + Send;

    /// The longest time until the next pass.
    fn interval(&self, _context: &Shared) -> Duration {
        UNTOLD
    }
}

/// How soon a pass that failed is tried again.
pub(crate) fn backoff() -> Schedule {
    Schedule {
        initial: Duration::from_millis(200),
        max: Duration::from_secs(3),
        multiplier: 2.0,
        jitter: 0.3,
    }
}

/// Spawns the loop; it ends when `until` is cancelled, between two passes.
pub(super) fn spawn<P: Pass>(
    tasks: &Tasks,
    context: &Shared,
    mut pass: P,
    nudge: Nudge,
    until: &CancellationToken,
) {
    let context = context.clone();
    let stopped = until.clone();
    tasks.spawn_loop(P::NAME, until.clone(), async move {
        let mut failures = 0;
        let mut last = Instant::now();
        while !stopped.is_cancelled() {
            let wait = match pass.pass(&context).await {
                Ok(more) => {
                    if failures > 0 {
                        context.worked();
                    }
                    failures = 0;
                    if more == More::Now {
                        Duration::ZERO
                    } else {
                        pass.interval(&context)
                    }
                }
                Err(error) => {
                    context.failed(&error);
                    failures += 1;
                    backoff().delay(failures, None)
                }
            };
            context.turns.turned(P::NAME, wait + PATIENCE);
            // A nudge shortens the wait, but not a backoff.
            let nudged = async {
                if failures > 0 {
                    std::future::pending().await
                } else {
                    nudge.taken().await
                }
            };
            let slept = tokio::select! {
                () = stopped.cancelled() => return,
                slept = timeout(wait, nudged) => slept,
            };
            // Nudges in a burst are answered by one pass each millisecond, not by one each.
            if slept.is_ok() && last.elapsed() < Duration::from_millis(1) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            last = Instant::now();
        }
    });
}
