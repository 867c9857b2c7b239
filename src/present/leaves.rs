//! Leaves: what they are sent, and what keeps them from it.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use crate::store::{
    operator::leaves::{LeafRow, Pause},
    stats::Count,
};

/// A leaf, and its calls that are not final.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Leaf {
    /// The name, as rows and the configuration have it.
    pub(crate) name: String,
    /// Whether a live instance knows it. Calls for one that none knows wait.
    pub(crate) known: bool,
    /// So many live instances know it.
    pub(crate) instances: u64,
    /// Whether a person has paused it.
    pub(crate) paused: bool,
    /// Who did, and why; null also where that was done by other means than a command.
    pub(crate) pause: Option<PausedBy>,
    /// Whether calls behind a head of an ordering key that failed wait for `retry` or `release`.
    pub(crate) holds_after_failed_head: bool,
    /// An instance has found that it can't be reached, or that it refuses its auth.
    pub(crate) breaker_open: bool,
    /// Credentials that it refuses; an empty one is the leaf's own auth.
    pub(crate) blocked_credentials: Vec<String>,
    /// An instance sends as much as the rate allows, and more waits.
    pub(crate) rate_limited: bool,
    /// How many calls at once it is sent at most, over all instances, as this instance is configured; null where it does not
    /// know the leaf.
    pub(crate) concurrency: Option<u32>,
    /// The same of calls a second; null also where there is no limit.
    pub(crate) rate: Option<f64>,
    /// Calls that wait to be sent.
    pub(crate) pending: u64,
    /// Calls that are claimed: a request may be on its way.
    pub(crate) in_flight: u64,
    /// Calls that may have been executed.
    pub(crate) in_doubt: u64,
    /// Calls that wait for a person.
    pub(crate) parked: u64,
    /// Calls of these that are stuck.
    pub(crate) stuck: u64,
    /// For how many seconds the oldest that is due has been due.
    pub(crate) oldest_due_age_seconds: f64,
    /// For how many seconds the oldest doubt has lasted.
    pub(crate) oldest_doubt_age_seconds: f64,
    /// How many calls are in a state for which reason.
    pub(crate) reasons: BTreeMap<String, u64>,
}

/// Who paused a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PausedBy {
    /// Who.
    pub(crate) actor: String,
    /// Why.
    pub(crate) reason: String,
    /// When.
    #[schema(format = DateTime)]
    pub(crate) at: String,
}

impl From<Pause> for PausedBy {
    fn from(pause: Pause) -> Self {
        Self {
            actor: pause.actor,
            reason: pause.reason,
            at: pause.at,
        }
    }
}

/// Every leaf that an instance, a person or a live call names, by name.
pub(crate) fn leaves(rows: Vec<LeafRow>, counts: &[Count]) -> Vec<Leaf> {
    let mut leaves: BTreeMap<String, Leaf> = rows
        .into_iter()
        .map(|row| (row.name.clone(), Leaf::from(row)))
        .collect();
    for count in counts {
        let leaf = leaves.entry(count.leaf.clone()).or_insert_with(|| Leaf {
            name: count.leaf.clone(),
            ..Leaf::default()
        });
        leaf.add(count);
    }
    leaves.into_values().collect()
}

impl From<LeafRow> for Leaf {
    fn from(row: LeafRow) -> Self {
        Self {
            name: row.name,
            known: row.instances > 0,
            instances: row.instances,
            paused: row.paused,
            pause: row.pause.map(PausedBy::from),
            holds_after_failed_head: row.holds_after_failed_head,
            breaker_open: row.breaker_open,
            blocked_credentials: row.blocked,
            rate_limited: row.rate_limited,
            ..Self::default()
        }
    }
}

impl Leaf {
    fn add(&mut self, count: &Count) {
        let number = match count.state.as_str() {
            "pending" => &mut self.pending,
            "in_doubt" => &mut self.in_doubt,
            "parked" => &mut self.parked,
            _ => &mut self.in_flight,
        };
        *number += count.calls;
        self.stuck += count.stuck;
        self.oldest_due_age_seconds = self
            .oldest_due_age_seconds
            .max(count.oldest_due.as_secs_f64());
        self.oldest_doubt_age_seconds = self
            .oldest_doubt_age_seconds
            .max(count.oldest_doubt.as_secs_f64());
        if let Some(reason) = &count.reason {
            *self.reasons.entry(reason.clone()).or_default() += count.calls;
        }
    }
}
