//! Takes up calls that the insert trigger did not see: rows of the outbox that are neither live nor final.
//!
//! It looks at two windows of rows in each pass: the newest ones, and one of a slow walk through all
//! others. Where it finds something, the next one follows at once.

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
const POLLS: u32 = 20;

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
        // A run among the newest comes to its end first.
        let walks = self.newest == TOP;
        let walk = walks.then_some(self.walk);
        let Some(looked) = context.store.take_up_untracked(self.newest, walk).await? else {
            // Another instance is at it.
            return Ok(More::Later);
        };
        let lowest = looked.newest.lowest.filter(|_| looked.newest.found);
        self.newest = lowest.unwrap_or(TOP);
        if walks {
            self.walk = looked.walked.lowest.unwrap_or(TOP);
        }
        if looked.calls > 0 {
            context.observer.emit(Observation::TakenUp {
                calls: looked.calls,
            });
            context.nudges.work.give();
            context.nudges.order.give();
        }
        let found = looked.newest.found || looked.walked.found;
        Ok(if found { More::Now } else { More::Later })
    }

    fn interval(&self, context: &Shared) -> Duration {
        context.dispatch().poll_interval * POLLS
    }
}
