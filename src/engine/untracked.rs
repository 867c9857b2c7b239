//! Takes up calls that the insert trigger did not see: rows of the outbox that are neither live nor final.
//!
//! It looks at a window of rows in each pass: the newest ones, and one window of a slow walk through all
//! others. Where it finds something, the next window follows at once.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{
    observe::Observation,
    shutdown::{Nudge, Tasks},
    store::StoreError,
};

/// Of the intervals at which new work is looked for, so many pass between two looks.
const POLLS: u32 = 10;

/// Above every id.
const TOP: i64 = i64::MAX;

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    let untracked = Untracked {
        newest: TOP,
        walk: TOP,
    };
    driver::spawn(tasks, context, untracked, Nudge::default(), until);
}

/// Where the next windows begin.
#[derive(Debug)]
struct Untracked {
    newest: i64,
    walk: i64,
}

impl Pass for Untracked {
    const NAME: &'static str = "untracked";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let newest = look(context, &mut self.newest).await?;
        if newest {
            return Ok(More::Now);
        }
        self.newest = TOP;
        let walk = look(context, &mut self.walk).await?;
        Ok(if walk { More::Now } else { More::Later })
    }

    fn interval(&self, context: &Shared) -> Duration {
        context.dispatch().poll_interval * POLLS
    }
}

/// Looks at one window and moves on to the one below it. Whether it has found something.
async fn look(context: &Shared, below: &mut i64) -> Result<bool, StoreError> {
    let Some(window) = context.store.take_up_untracked(*below).await? else {
        // Another instance is at it.
        return Ok(false);
    };
    *below = window.lowest.unwrap_or(TOP);
    if window.taken_up == 0 {
        return Ok(false);
    }
    context.observer.emit(Observation::TakenUp {
        calls: window.taken_up,
    });
    context.nudges.work.give();
    context.nudges.order.give();
    Ok(true)
}
