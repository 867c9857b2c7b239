//! The leaves, each as a lane: what waits for it, what is under way, and why it does not move.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use super::{
    latency::{Latency, short},
    view::{Button, Moment, pause, resume},
    visit::percent,
    watched::Seen,
};
use crate::{
    engine,
    present::text::age,
    store::{operator::leaves::LeafRow, stats::Count},
    surface::Surface,
};

/// Leaves that no instance knows are named by rows, so there can be any number of them.
const UNKNOWN: usize = 20;

/// One leaf.
#[derive(Debug, Default, Serialize)]
pub(super) struct Lane {
    name: String,
    to: String,
    waiting: u64,
    /// Of these, so many are not due yet.
    later: u64,
    in_flight: u64,
    /// How many at once, of this instance.
    share: u32,
    in_doubt: u64,
    parked: u64,
    /// In the last hour.
    failed: u64,
    /// There are more than were counted, of this leaf or of others.
    failed_more: bool,
    stuck: u64,
    oldest_due: String,
    oldest_doubt: String,
    per_minute: String,
    half: String,
    most: String,
    /// What keeps it from being sent to: `paused`, `unknown`, `not tried`, `slowed`, `rate limited`.
    signs: Vec<Sign>,
    button: Option<Button>,
    /// The numbers are this instance's own.
    own: bool,
}

#[derive(Debug, Serialize)]
struct Sign {
    word: &'static str,
    tone: &'static str,
    says: String,
}

fn sign(word: &'static str, tone: &'static str, says: impl Into<String>) -> Sign {
    Sign {
        word,
        tone,
        says: says.into(),
    }
}

/// This instance's lanes, without a word of the database.
pub(super) fn own(surface: &Surface) -> (Vec<Lane>, Duration) {
    let (latencies, lately) = latencies(surface);
    let lanes = surface.context.lanes.all();
    let lanes = lanes.iter().map(|lane| Lane {
        name: lane.name.clone(),
        in_flight: lane.in_flight().into(),
        share: lane.share(),
        signs: if lane.breaker_is_open() {
            vec![sign("not tried", "bad", "its breaker is open")]
        } else {
            slowed(lane).into_iter().collect()
        },
        own: true,
        ..with_latency(latencies.get(&lane.name))
    });
    (lanes.collect(), lately)
}

/// All lanes, and how many unknown ones are left out.
pub(super) fn all(surface: &Surface, seen: &Seen) -> (Vec<Lane>, usize, Duration) {
    let (latencies, lately) = latencies(surface);
    let (known, others): (Vec<&LeafRow>, Vec<&LeafRow>) =
        seen.leaves.iter().partition(|leaf| leaf.instances > 0);
    let mut counts: BTreeMap<&str, Vec<&Count>> = BTreeMap::new();
    for count in &seen.tables.counts {
        counts.entry(&count.leaf).or_default().push(count);
    }
    let none = Vec::new();
    let failed = |leaf: &str| {
        let number = seen.failed.by_leaf.get(leaf).copied();
        (number.unwrap_or_default(), seen.failed.more)
    };
    let mut lanes: Vec<Lane> = known
        .iter()
        .map(|leaf| {
            let name = leaf.name.as_str();
            let counts = counts.get(name).unwrap_or(&none);
            let mut lane = counted(name, counts, latencies.get(name));
            let per_minute = seen.per_minute.get(name);
            (lane.failed, lane.failed_more) = failed(name);
            lane.per_minute = per_minute.map_or_else(|| "0".to_owned(), |number| rate(*number));
            let here = surface.context.lanes.get(name);
            lane.share = here.as_ref().map_or(0, |lane| lane.share());
            lane.signs = signs(leaf);
            if !leaf.breaker_open {
                lane.signs.extend(here.and_then(|lane| slowed(&lane)));
            }
            lane.button = Some(if leaf.paused {
                resume(name)
            } else {
                pause(name)
            });
            lane
        })
        .collect();
    let is_known = |leaf: &str| known.iter().any(|known| known.name == leaf);
    let mut unknown = counts.iter().filter(|(leaf, _)| !is_known(leaf));
    let shown = unknown.by_ref().take(UNKNOWN);
    lanes.extend(shown.map(|(leaf, counts)| {
        let says = "no running instance has it in its configuration";
        let mut signs = vec![sign("unknown", "bad", says)];
        let control = others.iter().find(|other| other.name == *leaf);
        signs.extend(control.and_then(|leaf| paused(leaf)));
        let (failed, failed_more) = failed(leaf);
        Lane {
            signs,
            failed,
            failed_more,
            per_minute: "0".to_owned(),
            ..counted(leaf, counts, None)
        }
    }));
    (lanes, unknown.count(), lately)
}

fn latencies(surface: &Surface) -> (BTreeMap<String, Latency>, Duration) {
    let names = surface.context.lanes.names();
    let metrics = surface.context.observer.metrics();
    surface
        .page
        .watched
        .latencies
        .look(metrics, &names, Instant::now())
}

fn with_latency(latency: Option<&Latency>) -> Lane {
    Lane {
        half: latency.map(|l| short(l.half)).unwrap_or_default(),
        most: latency.map(|l| short(l.most)).unwrap_or_default(),
        ..Lane::default()
    }
}

fn counted(leaf: &str, counts: &[&Count], latency: Option<&Latency>) -> Lane {
    let sum = |states: &[&str]| -> u64 {
        let of_state = counts.iter().filter(|c| states.contains(&c.state.as_str()));
        of_state.map(|count| count.calls).sum()
    };
    let oldest = |of: fn(&Count) -> Duration| {
        let ages = counts.iter().map(|count| of(count));
        let oldest = ages.max().filter(|oldest| !oldest.is_zero());
        oldest
            .map(|oldest| age(oldest.as_secs_f64()))
            .unwrap_or_default()
    };
    Lane {
        name: leaf.to_owned(),
        to: percent(leaf),
        waiting: sum(&["pending"]),
        later: counts.iter().filter(|c| c.later).map(|c| c.calls).sum(),
        in_flight: sum(&["dispatching", "accepted"]),
        in_doubt: sum(&["in_doubt"]),
        parked: sum(&["parked"]),
        stuck: counts.iter().map(|count| count.stuck).sum(),
        oldest_due: oldest(|count| count.oldest_due),
        oldest_doubt: oldest(|count| count.oldest_doubt),
        ..with_latency(latency)
    }
}

fn paused(leaf: &LeafRow) -> Option<Sign> {
    let says = leaf.pause.as_ref().map_or_else(String::new, |pause| {
        let since = Moment::read(&pause.at, Timestamp::now());
        format!("by {}, {}: {}", pause.actor, since.rel, pause.reason)
    });
    leaf.paused.then(|| sign("paused", "doubt", says))
}

/// This instance has cut it down, since it failed again and again.
fn slowed(lane: &engine::Lane) -> Option<Sign> {
    let (limit, share) = (lane.limit(), lane.share());
    let says =
        format!("it failed again and again: {limit} at once here, one more with each answer");
    (limit < share).then(|| sign("slowed", "doubt", says))
}

fn signs(leaf: &LeafRow) -> Vec<Sign> {
    let mut signs: Vec<Sign> = paused(leaf).into_iter().collect();
    if !leaf.blocked.is_empty() {
        let named = leaf.blocked.iter().map(|name| match name.as_str() {
            "" => format!("the token of [leaf.{}] auth", leaf.name),
            name => format!("credential {name}"),
        });
        let named: Vec<String> = named.take(5).collect();
        // 407 does so, too, but comes from what stands before the leaf.
        let says = format!("401 or 407: refuses {}", named.join(", "));
        signs.push(sign("refused", "bad", says));
    }
    if leaf.breaker_open {
        let says = "it could not be reached: one call at a time tries";
        signs.push(sign("not tried", "bad", says));
    }
    if leaf.rate_limited {
        let says = "its rate is used up for the moment";
        signs.push(sign("rate limited", "waiting", says));
    }
    signs
}

fn rate(per_minute: f64) -> String {
    if per_minute < 10.0 && per_minute.fract() > 0.05 {
        format!("{per_minute:.1}")
    } else {
        format!("{per_minute:.0}")
    }
}
