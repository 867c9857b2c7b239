//! The teardown of failed batches: makes the calls that undo what was confirmed.
//!
//! Each is a call of its own, with all the guarantees of one. Here is only decided which comes next and what it says;
//! its row is added while the batch's row is held, and once for each effect however many instances are at it.

use std::time::Duration;

use uuid::Uuid;

use super::{ask::SETTLE_MAX, context::Shared, entry::stored_text};
use crate::{
    config::{DEFAULT_SETTLE, duration_of},
    domain::{
        compensation::{Compensate, Undo},
        decision::ParkReason,
        trace::Trace,
    },
    observe::{About, Observation},
    store::{
        StoreError,
        batch::Leaves,
        teardown::{Compensation, Effect},
    },
};

/// So many batches in one transaction.
const GROUP: usize = 8;

/// Of one batch that undoes in any order, so many effects at once: their results are in memory together.
const EFFECTS: usize = 16;

/// What the configuration says of leaves, by now.
pub(super) fn leaves(context: &Shared) -> Leaves {
    let mut leaves = Leaves::default();
    for lane in context.lanes.all() {
        if lane.settings().leaf.compensate.is_some() {
            leaves.compensated.push(lane.name.clone());
        }
        leaves.known.push(lane.name.clone());
    }
    leaves
}

/// Begins to undo what is to be undone next of these batches.
pub(super) async fn tear_down(context: &Shared, batches: &[Uuid]) -> Result<(), StoreError> {
    for group in batches.chunks(GROUP) {
        match begin(context, group, EFFECTS, None).await {
            Err(error) if error.is_contention() || error.is_content() => {}
            begun => {
                begun?;
                continue;
            }
        }
        for batch in group {
            match begin_alone(context, std::slice::from_ref(batch)).await {
                // Somebody holds it: the next walk's.
                Err(error) if error.is_contention() => {}
                begun => begun?,
            }
        }
    }
    Ok(())
}

/// One batch, whose requests the database may refuse. Then it is one effect at a time, so that only the one is parked
/// whose request it is; the next look takes the next one.
async fn begin_alone(context: &Shared, batch: &[Uuid]) -> Result<(), StoreError> {
    match begin(context, batch, EFFECTS, None).await {
        Err(error) if error.is_content() => {}
        begun => return begun,
    }
    match begin(context, batch, 1, None).await {
        Err(error) if error.is_content() => {
            let flaw = format!("the database refuses it: {}", error.cause());
            begin(context, batch, 1, Some(&flaw)).await
        }
        begun => begun,
    }
}

/// At most so many `effects` of each batch. `refused` says that no request that is made of them can be stored, and why.
async fn begin(
    context: &Shared,
    batches: &[Uuid],
    effects: usize,
    refused: Option<&str>,
) -> Result<(), StoreError> {
    let mut teardown = context
        .store
        .tear_down(batches, effects, &leaves(context))
        .await?;
    let effects = std::mem::take(&mut teardown.effects);
    let done = teardown.done.clone();
    let undo: Vec<(&Effect, Compensation)> = effects
        .iter()
        .map(|effect| {
            let made = match refused {
                Some(flaw) => Err(flaw.to_owned()),
                None => made(context, effect),
            };
            (effect, compensation(effect, made, delay(context, effect)))
        })
        .collect();
    let added = teardown.finish(&undo).await?;
    for batch in done {
        let state = "cancelled";
        context
            .observer
            .emit(Observation::BatchMoved { batch, state });
    }
    for (call, effect, reason) in &added {
        if reason.is_some() {
            // As its own row will have it, which is made of this one's.
            let meta = &effect.seen["call"]["meta"];
            let trace = Trace::of(meta["traceparent"].as_str(), meta["tracestate"].as_str());
            context.observer.emit(Observation::Moved {
                about: About {
                    call: *call,
                    leaf: &effect.leaf,
                    batch: Some(effect.batch),
                    undoes: true,
                    trace: trace.as_ref(),
                    span: None,
                },
                state: "parked",
                reason: *reason,
            });
            context.call_news();
        }
    }
    if !added.is_empty() {
        context.nudges.work.give();
    }
    Ok(())
}

/// The request that undoes the effect: by the row's own compensation, else the leaf's.
fn made(context: &Shared, effect: &Effect) -> Result<Undo, String> {
    let compensate = match &effect.compensate {
        Some(row) => Compensate::of_row(row),
        None => context
            .lanes
            .get(&effect.leaf)
            .and_then(|lane| lane.settings().leaf.compensate.clone())
            .ok_or_else(|| "there is none any more".to_owned()),
    };
    compensate?.render(&effect.seen)
}

/// Another request of the call can still arrive, and would make the effect again after it was undone: so it must be over,
/// and the leaf settled.
fn delay(context: &Shared, effect: &Effect) -> Duration {
    let lane = context.lanes.get(&effect.leaf);
    let of_leaf = lane.map_or(Some(DEFAULT_SETTLE), |lane| lane.settings().leaf.settle());
    let (Some(alive_for), Some(of_leaf)) = (effect.alive_for, of_leaf) else {
        return Duration::ZERO;
    };
    let settle = match effect.settle.as_deref().map(duration_of) {
        Some(Ok(settle)) => settle.min(SETTLE_MAX),
        Some(Err(_)) | None => of_leaf,
    };
    Duration::try_from_secs_f64(settle.as_secs_f64() + alive_for).unwrap_or_default()
}

fn compensation(effect: &Effect, made: Result<Undo, String>, delay: Duration) -> Compensation {
    match made {
        Ok(undo) => Compensation {
            undo,
            delay,
            // Nothing tells it from somebody else's: a person has to say that it is ours.
            park: effect
                .weak
                .then_some((ParkReason::WeakAdoption.as_str(), None)),
        },
        Err(flaw) => Compensation {
            delay,
            // A row needs a request. This one is made anew before it is sent.
            undo: Undo {
                method: "DELETE".to_owned(),
                path: "/".to_owned(),
                body: None,
            },
            park: Some((
                ParkReason::Template.as_str(),
                Some(stored_text(&format!("its compensation: {flaw}"))),
            )),
        },
    }
}
