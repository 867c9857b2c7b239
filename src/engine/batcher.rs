//! Batches: writes down that one is cancelled, and cancels its waiting calls, whatever their leaf's state.
//!
//! The announcement itself is older: a call that fails writes it with its own end, and no claim takes a call
//! of that batch from then on.

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{observe::Observation, shutdown::Tasks, store::StoreError};

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    driver::spawn(tasks, context, Batcher, context.nudges.batch.clone(), until);
}

#[derive(Debug)]
struct Batcher;

impl Pass for Batcher {
    const NAME: &'static str = "batcher";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let cancelled = context.store.sweep_batches().await?;
        for leaf in &cancelled {
            context.observer.emit(Observation::Ended {
                leaf: context.lanes.label(leaf),
                state: "cancelled",
            });
        }
        if !cancelled.is_empty() {
            context.call_news();
            // A cancelled head lets the next of its ordering key go.
            context.nudges.order.give();
        }
        // After the calls: a batch whose row can't be written keeps none of them waiting.
        context.store.announce_batches().await?;
        Ok(More::behind(&cancelled))
    }

    fn interval(&self, context: &Shared) -> std::time::Duration {
        context.dispatch().poll_interval * 2
    }
}
