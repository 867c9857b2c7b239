//! Calls in doubt: finds the way out of each that is due.
//!
//! In doubt is never just sent again. Where the leaf honours the call's idempotency key, or the method is
//! idempotent, the same request is the question; else somebody has to say what is true.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{
    domain::decision::{Doubt, ParkReason, Policy, resolve},
    observe::Observation,
    shutdown::Tasks,
    store::{
        StoreError,
        doubt::{DoubtRow, Scope},
    },
};

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    driver::spawn(
        tasks,
        context,
        Resolver,
        context.nudges.doubt.clone(),
        until,
    );
}

#[derive(Debug)]
struct Resolver;

impl Pass for Resolver {
    const NAME: &'static str = "resolver";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let scopes: Vec<Scope> = context
            .lanes
            .all()
            .iter()
            .map(|lane| {
                let leaf = &lane.settings().leaf;
                Scope {
                    leaf: lane.name.clone(),
                    timeout: leaf.timeout,
                    window: leaf.idempotency.as_ref().map(|dialect| dialect.window),
                }
            })
            .collect();
        for (call, leaf, ordering_key) in context.store.answer_doubts(&scopes).await? {
            context
                .observer
                .emit(Observation::Prior { leaf: &leaf, call });
            if let Some(key) = ordering_key {
                context.head_ended((leaf, key));
            }
        }
        let doubts = context.store.doubts(&scopes).await?;
        let decided: Vec<(&DoubtRow, Option<ParkReason>)> = doubts
            .iter()
            .filter_map(|doubt| Some((doubt, way_out(context, doubt)?)))
            .collect();
        if decided.is_empty() {
            return Ok(More::Later);
        }
        let reasons: Vec<(&DoubtRow, Option<&'static str>)> = decided
            .iter()
            .map(|(doubt, reason)| (*doubt, reason.map(ParkReason::as_str)))
            .collect();
        let settled = context.store.settle_doubts(&reasons).await?;
        for (call, state) in &settled {
            let reason = reasons
                .iter()
                .find(|(doubt, _)| doubt.call == *call)
                .and_then(|r| r.1);
            context.observer.emit(Observation::Settled {
                call: *call,
                state,
                reason,
            });
        }
        context
            .news
            .calls
            .store(true, std::sync::atomic::Ordering::SeqCst);
        context.nudges.news.give();
        context.nudges.work.give();
        Ok(if settled.is_empty() {
            More::Later
        } else {
            More::Now
        })
    }

    fn interval(&self, context: &Shared) -> Duration {
        context.dispatch().poll_interval * 2
    }
}

/// `None` where the leaf has gone from the configuration meanwhile.
fn way_out(context: &Shared, doubt: &DoubtRow) -> Option<Option<ParkReason>> {
    let settings = context.lanes.get(&doubt.leaf)?.settings();
    let leaf = &settings.leaf;
    let has_probe = doubt.has_probe || leaf.probe.is_some();
    let dedups = leaf.idempotency.is_some();
    Some(resolve(&Doubt {
        spent: doubt.spent,
        max_attempts: doubt.max_attempts.unwrap_or(leaf.retry.max_attempts),
        crashes: doubt.crashes,
        policy: Policy::for_call(leaf.in_doubt, has_probe, dedups, &doubt.method),
        over: doubt.over,
        within_window: leaf
            .idempotency
            .as_ref()
            .is_none_or(|dialect| doubt.since_first_claim + leaf.timeout <= dialect.window),
    }))
}
