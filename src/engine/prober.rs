//! Calls in doubt: finds the way out of each that is due.
//!
//! In doubt is never just sent again. Where the leaf honours the call's idempotency key, or the method is
//! idempotent, the same request is the question. Where there is a probe, the leaf is asked: found is adopted
//! as the confirmation, absent is believed once the attempt has settled. Else somebody has to say.
//!
//! A probe takes one of the leaf's places and waits behind its breaker, like an attempt. It changes nothing at
//! the leaf, so it may be lost with its process: its call becomes due again.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    ask::ask,
    context::Shared,
    driver::{self, More, Pass},
    lane::Lane,
    probe_place::ProbePlace,
};
use crate::{
    config::Replays,
    domain::{
        call::CallId,
        decision::{Doubt, Policy, WayOut, is_safe, resolve},
    },
    observe::{About, Observation},
    shutdown::Tasks,
    store::{
        StoreError,
        doubt::{DoubtRow, Scope, Settle},
    },
};

/// Beyond its time limit, a probe's record may take this long before somebody else asks again.
pub(super) const RECORDING: Duration = Duration::from_secs(5);

pub(super) fn spawn(tasks: &Tasks, context: &Shared, attempts: &Tasks, until: &CancellationToken) {
    let prober = Prober {
        attempts: attempts.clone(),
    };
    driver::spawn(tasks, context, prober, context.nudges.doubt.clone(), until);
}

#[derive(Debug)]
struct Prober {
    attempts: Tasks,
}

impl Pass for Prober {
    const NAME: &'static str = "prober";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let scopes: Vec<Scope> = context.lanes.all().iter().map(|lane| scope(lane)).collect();
        // What can't be ended keeps nothing else from being asked about.
        let failure = end_answered(context, &scopes).await.err();
        let doubts = context.store.doubts(&scopes).await?;
        let mut places = Vec::new();
        let decided: Vec<(&DoubtRow, Settle)> = doubts
            .iter()
            .filter_map(|doubt| Some((doubt, settle(context, doubt, &mut places)?)))
            .collect();
        for lane in context.lanes.all() {
            lane.looked_at_doubts(&context.nudges);
        }
        if decided.is_empty() {
            return failure.map_or(Ok(More::Later), Err);
        }
        let settled = context.store.settle_doubts(&decided).await?;
        let mut asked = Vec::new();
        for (call, state) in &settled {
            let settle = decided.iter().find(|(doubt, _)| doubt.call == *call);
            match settle.map(|(doubt, settle)| (*doubt, *settle)) {
                Some((doubt, Settle::Ask(_))) => asked.push(doubt.clone()),
                Some((doubt, settle)) => settled_without_asking(context, doubt, state, settle),
                None => {}
            }
        }
        self.ask(context, asked, places);
        match failure {
            Some(error) => Err(error),
            None if settled.is_empty() => Ok(More::Later),
            None => Ok(More::Now),
        }
    }
}

impl Prober {
    /// Starts the probes of calls whose turn is taken in the database.
    fn ask(
        &self,
        context: &Shared,
        doubts: Vec<DoubtRow>,
        mut places: Vec<(CallId, Arc<Lane>, ProbePlace)>,
    ) {
        for doubt in doubts {
            let place = places.iter().position(|(id, ..)| *id == doubt.call);
            if let Some(at) = place {
                let (_, lane, place) = places.swap_remove(at);
                self.attempts
                    .spawn("probe", ask(context.clone(), lane, doubt, place));
            }
        }
    }
}

/// Ends what is in doubt and whose effect stands.
async fn end_answered(context: &Shared, scopes: &[Scope]) -> Result<(), StoreError> {
    for answered in context.store.answer_doubts(scopes).await? {
        context.observer.emit(Observation::Prior {
            about: About {
                call: answered.call,
                leaf: &answered.leaf,
                batch: answered.batch,
                undoes: answered.compensates,
                trace: answered.trace.as_ref(),
                span: None,
            },
        });
        if let Some(key) = answered.ordering_key {
            context.head_ended((answered.leaf, key));
        }
    }
    Ok(())
}

fn scope(lane: &Lane) -> Scope {
    let leaf = &lane.settings().leaf;
    Scope {
        leaf: lane.name.clone(),
        timeout: leaf.timeout,
        window: leaf.idempotency.as_ref().map(|dialect| dialect.window),
        blocked: lane.published().blocked,
    }
}

/// The way out of one doubt; `None` where its leaf has gone from the configuration, or where it must be asked
/// and there is no place: it stays due.
fn settle(
    context: &Shared,
    doubt: &DoubtRow,
    places: &mut Vec<(CallId, Arc<Lane>, ProbePlace)>,
) -> Option<Settle> {
    let lane = context.lanes.get(&doubt.leaf)?;
    let settings = lane.settings();
    let leaf = &settings.leaf;
    let has_probe = doubt.has_probe || leaf.probe.is_some();
    let dedups = leaf.idempotency.is_some();
    let way_out = resolve(&Doubt {
        spent: doubt.spent,
        max_attempts: doubt.max_attempts.unwrap_or(leaf.retry.max_attempts),
        crashes: doubt.crashes,
        policy: Policy::for_call(leaf.in_doubt, has_probe, dedups, &doubt.method),
        has_probe,
        exists: doubt.exists,
        over: doubt.over,
        batch_closed: doubt.batch_closed,
        // What changes nothing leaves nothing to be undone.
        compensated: doubt.compensated || leaf.compensate.is_some() || is_safe(&doubt.method),
        within_window: doubt.within_window,
        replays_all: leaf
            .idempotency
            .as_ref()
            .is_some_and(|dialect| dialect.replays == Replays::All),
    });
    match way_out {
        WayOut::Park(reason) => Some(Settle::Park(reason.as_str())),
        WayOut::Resend => Some(Settle::Resend {
            asks: doubt.batch_closed,
        }),
        // Nothing is sent to a leaf that is paused.
        WayOut::Ask if doubt.paused => None,
        WayOut::Ask => {
            let credential = doubt.credential.as_deref().unwrap_or_default();
            let place = lane.take_probe_place(credential, doubt.large, &context.nudges)?;
            places.push((doubt.call, Arc::clone(&lane), place));
            Some(Settle::Ask(leaf.timeout + RECORDING))
        }
    }
}

fn settled_without_asking(context: &Shared, doubt: &DoubtRow, state: &str, settle: Settle) {
    let about = About {
        call: doubt.call,
        leaf: &doubt.leaf,
        batch: doubt.batch,
        undoes: doubt.compensates,
        trace: doubt.trace.as_ref(),
        span: None,
    };
    let reason = match settle {
        Settle::Park(reason) => Some(reason),
        Settle::Resend { .. } | Settle::Ask(_) => None,
    };
    context.observer.emit(match reason {
        Some(_) => Observation::Moved {
            about,
            state,
            reason,
        },
        None => Observation::Resent { about },
    });
    if reason.is_some() {
        context.call_news();
    } else {
        context.nudges.work.give();
    }
}
