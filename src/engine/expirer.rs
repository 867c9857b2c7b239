//! Ends waiting calls at their time: deadlines, and what was tried for too long. For every leaf, known or
//! not, paused or not.

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{
    observe::{About, Observation},
    shutdown::Tasks,
    store::StoreError,
};

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    driver::spawn(tasks, context, Expirer, context.nudges.end.clone(), until);
}

#[derive(Debug)]
struct Expirer;

impl Pass for Expirer {
    const NAME: &'static str = "expirer";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let ended = context.store.expire().await?;
        let more = More::behind(&ended);
        for call in ended {
            context.observer.emit(Observation::Moved {
                about: About {
                    call: call.call,
                    leaf: context.lanes.label(&call.leaf),
                    batch: call.batch,
                    undoes: call.compensates,
                    trace: call.trace.as_ref(),
                    span: None,
                },
                state: &call.state,
                reason: call.reason.as_deref(),
            });
            if call.batch.is_some() {
                context.nudges.batch.give();
            }
            if let Some(key) = call.ordering_key {
                context.head_ended(key);
            }
            context.call_news();
        }
        Ok(more)
    }
}
