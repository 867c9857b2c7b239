//! Claims that nobody works on any more: of instances that vanished, and this one's own whose commit's
//! reply was lost.
//!
//! No index has them alone: what is in doubt or parked lies between them. But each comes about by something that this
//! process sees: an instance is dead or its row is gone (heartbeat), a statement has failed, a leaf was taken away. So it
//! looks when that is seen, and for a while after.

use std::{collections::BTreeMap, sync::PoisonError, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass, UNTOLD},
};
use crate::{domain::call::Claimed, observe::Observation, shutdown::Tasks, store::StoreError};

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    driver::spawn(
        tasks,
        context,
        Reclaimer,
        context.nudges.claims.clone(),
        until,
    );
}

#[derive(Debug)]
struct Reclaimer;

impl Pass for Reclaimer {
    const NAME: &'static str = "reclaimer";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        // What keeps its own from being given back keeps none of the dead ones' where they are.
        let failure = give_back(context).await.err();
        let dead = context
            .dead
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let reclaimed = context.store.reclaim(&dead).await?;
        let mut by_leaf = BTreeMap::new();
        for leaf in &reclaimed {
            *by_leaf.entry(context.lanes.label(leaf)).or_default() += 1;
        }
        for (leaf, calls) in by_leaf {
            context
                .observer
                .emit(Observation::Reclaimed { leaf, calls });
        }
        if !reclaimed.is_empty() {
            context.nudges.doubt.give();
        }
        if !dead.is_empty() {
            context.store.unregister(None, &dead).await?;
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(More::behind(&reclaimed)),
        }
    }

    fn interval(&self, context: &Shared) -> Duration {
        if context.claims_are_in_question() {
            context.dispatch().poll_interval * 2
        } else {
            UNTOLD
        }
    }
}

/// The lost statement may commit late, so this is done again and again.
async fn give_back(context: &Shared) -> Result<(), StoreError> {
    // Listed before the statement begins: a round that opens later is not touched by it.
    let held = context.held.snapshot();
    let calls: Vec<i64> = held.calls.iter().map(|(call, _)| *call).collect();
    let id = context.identity.id;
    let given = context
        .store
        .give_back(id, held.last_round, &held.open, &calls)
        .await?;
    if given.calls > 0 {
        context
            .observer
            .emit(Observation::GivenBack { calls: given.calls });
        if given.cancelled {
            context.nudges.batch.give();
            context.call_news();
        }
        context.nudges.work.give();
        context.nudges.doubt.give();
    }
    Ok(())
}

/// What was claimed as the stop began is not sent. It is free at once: what is under way may take all of the grace.
pub(super) async fn set_free(context: &Shared, calls: &[Claimed]) {
    for call in calls {
        context.held.release(call.id, call.round);
    }
    if let Err(error) = give_back(context).await {
        // As the instance leaves, it is tried again.
        context.failed(&error);
    }
}

/// At a graceful stop: whatever is left of this instance's claims was not sent; its row goes.
pub(super) async fn leave(context: &Shared) {
    let left = async {
        give_back(context).await?;
        context
            .store
            .unregister(Some(context.identity.id), &[])
            .await?;
        context.store.notify("leafhopper_instance").await
    };
    if let Err(error) = left.await {
        context.failed(&error);
    }
}
