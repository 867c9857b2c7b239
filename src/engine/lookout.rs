//! One look says which loops have something to do, so that an idle instance asks the database once in a poll interval and
//! not once for each loop.
//!
//! A loop that is told looks by itself. Where the look does not come back in time, or fails, all are told: so each acts
//! within a poll interval of what has become due, whatever becomes of the look.

use std::{collections::HashMap, pin::pin, time::Duration};

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{
    shutdown::Tasks,
    store::{StoreError, look::Seen},
};

/// The mark that this instance sleeps is set for so many poll intervals.
pub(super) const SLEEP: u32 = 8;

/// And counts as set for so many: two less, for the way to the database.
pub(super) const ASLEEP: u32 = 6;

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    let nudge = context.nudges.look.clone();
    let lookout = Lookout {
        started: Instant::now(),
        resumed: None,
    };
    driver::spawn(tasks, context, lookout, nudge, until);
}

#[derive(Debug)]
struct Lookout {
    started: Instant,
    resumed: Option<HashMap<String, f64>>,
}

impl Pass for Lookout {
    const NAME: &'static str = "lookout";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let poll = context.dispatch().poll_interval;
        if self.started.elapsed() < poll {
            // At the start every loop looks by itself, and all want a connection.
            return Ok(More::Later);
        }
        let leaves = context.lanes.names();
        let (asked, asleep) = (Instant::now(), context.asleep.ends_soon(poll));
        let sleep = asleep.map(|_| poll * SLEEP);
        let mut look = pin!(context.store.look_around(&leaves, sleep));
        let seen = loop {
            match timeout(poll, &mut look).await {
                Ok(Ok(seen)) => break seen,
                Ok(Err(error)) => {
                    tell_all(context);
                    return Err(error);
                }
                Err(_elapsed) => tell_all(context),
            }
        };
        if let Some(until) = asleep {
            context.asleep.renewed(until, asked + poll * ASLEEP);
        }
        context.saw_firsts(seen.work.clone());
        tell(context, &seen);
        self.resume(context, seen.resumed);
        Ok(More::Later)
    }

    fn interval(&self, context: &Shared) -> Duration {
        let poll = context.dispatch().poll_interval;
        match poll.saturating_sub(self.started.elapsed()) {
            Duration::ZERO => poll,
            // A little more, so that it is not too early by the clock's grain.
            left => left + Duration::from_millis(1),
        }
    }
}

impl Lookout {
    /// Closes breakers of leaves that a person has resumed since the last look.
    fn resume(&mut self, context: &Shared, resumed: HashMap<String, f64>) {
        // What was said before this instance started is no news.
        let before = self.resumed.get_or_insert_with(|| resumed.clone());
        for (leaf, at) in &resumed {
            if before.get(leaf).is_some_and(|before| before >= at) {
                continue;
            }
            if let Some(lane) = context.lanes.get(leaf) {
                context.close_breaker(&lane, "a person resumed it");
            }
        }
        *before = resumed;
    }
}

fn tell(context: &Shared, seen: &Seen) {
    let nudges = &context.nudges;
    // What waits for a place can be over.
    let probe_waits = context.lanes.all().iter().any(|lane| lane.probe_waits());
    let is_work = !seen.work.is_empty();
    let told = [
        // One in doubt may be sent again.
        (is_work || seen.doubts, &nudges.work),
        (seen.doubts || probe_waits, &nudges.doubt),
        (seen.ends, &nudges.end),
        (seen.held, &nudges.order),
        (seen.batches, &nudges.batch),
        (seen.jobs, &nudges.jobs),
    ];
    for (_, nudge) in told.iter().filter(|(is_there, _)| *is_there) {
        nudge.give();
    }
    if seen.another_database {
        context.doubt_origin();
    }
}

fn tell_all(context: &Shared) {
    context.doubt_origin();
    let nudges = &context.nudges;
    for nudge in [
        &nudges.work,
        &nudges.doubt,
        &nudges.end,
        &nudges.order,
        &nudges.batch,
        &nudges.jobs,
    ] {
        nudge.give();
    }
}
