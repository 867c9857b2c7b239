//! Tells listeners of the app that there are new results, or that calls failed, expired, were cancelled or
//! parked: without content, at most once each 50 ms.

use std::{sync::atomic::Ordering, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{shutdown::Tasks, store::StoreError};

/// No more than one notification of a kind in this time.
const SPACING: Duration = Duration::from_millis(50);

/// Nothing is to be told without a nudge.
const IDLE: Duration = Duration::from_secs(600);

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    driver::spawn(tasks, context, Notifier, context.nudges.news.clone(), until);
}

#[derive(Debug)]
struct Notifier;

impl Pass for Notifier {
    const NAME: &'static str = "notifier";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let news = &context.news;
        let mut told = false;
        for (flag, channel) in [
            (&news.results, "leafhopper_result"),
            (&news.calls, "leafhopper_call"),
        ] {
            if flag.swap(false, Ordering::SeqCst) {
                told = true;
                if let Err(error) = context.store.notify(channel).await {
                    flag.store(true, Ordering::SeqCst);
                    return Err(error);
                }
            }
        }
        if told {
            tokio::time::sleep(SPACING).await;
        }
        let more = news.results.load(Ordering::SeqCst) || news.calls.load(Ordering::SeqCst);
        Ok(if more { More::Now } else { More::Later })
    }

    fn interval(&self, _context: &Shared) -> Duration {
        IDLE
    }
}
