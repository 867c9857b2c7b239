//! Renews the lease, publishes what this instance can do, and shares the leaves' limits out among the
//! instances that live.
//!
//! The n-th of L instances that know a leaf gets N / L of its concurrency, and one more if n < N mod L. A
//! share shrinks at once. It grows only after a look in which every live instance, this one too, had published the
//! same membership, which each does only when no more of its calls are under way than its new share: so the limit is
//! never exceeded by instances that live, whoever comes or goes, and however long a renewal waits for its row. Requests of one
//! whose lease is over may still be under way, for as long as their time limits say.

use std::{
    collections::HashMap,
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    context::Shared,
    driver::{self, More, Pass},
    lease::BootTime,
};
use crate::{
    observe::Observation,
    shutdown::Tasks,
    store::{
        StoreError,
        instance::Member,
        migrate::{KNOWN, MigrateError},
    },
};

/// So often in one lease it is renewed.
const RENEWALS: u32 = 6;

/// An instance is dead for this one only after so many of these without a renewal, however the database's
/// clock stands: after an outage everyone gets the time to renew first.
const SILENT_INTERVALS: u32 = 2;

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    let pass = Heartbeat::default();
    driver::spawn(tasks, context, pass, context.nudges.members.clone(), until);
}

#[derive(Debug, Default)]
struct Heartbeat {
    /// Whether this instance has had a row.
    registered: bool,
    /// Commits are lost, and that is not written down yet.
    lost: bool,
    /// The membership that the shares rest on.
    membership: String,
    /// The membership that the others were told of.
    told: String,
    /// What was published of the configuration.
    settings: Option<(Vec<(String, bool)>, Duration)>,
    /// The beat of each other instance, and since when it is the same, in an unbroken row of looks.
    seen: HashMap<Uuid, (i64, Instant)>,
}

impl Pass for Heartbeat {
    const NAME: &'static str = "heartbeat";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let renewed = self.renew(context).await;
        match &renewed {
            Ok(_) => context.observer.emit(Observation::Renewed),
            Err(error) => {
                context.observer.emit(Observation::RenewalFailed);
                look_at_schema(context, error).await;
                // Only an unbroken row of looks says that somebody else does not renew.
                self.seen.clear();
            }
        }
        let members = renewed?;
        self.look_at_others(context, &members);
        let more = self.share_out(context, &members);
        Ok(more)
    }

    fn interval(&self, context: &Shared) -> Duration {
        context.dispatch().lease / RENEWALS
    }
}

impl Heartbeat {
    /// Renews the lease, or begins a new one. Says who else there is.
    async fn renew(&mut self, context: &Shared) -> Result<Vec<Member>, StoreError> {
        let dispatch = context.dispatch();
        let published: serde_json::Map<String, serde_json::Value> = context
            .lanes
            .all()
            .iter()
            .map(|lane| {
                let value = serde_json::to_value(lane.published()).unwrap_or_default();
                (lane.name.clone(), value)
            })
            .collect();
        let leaves = serde_json::Value::Object(published).to_string();
        self.publish_settings(context).await?;
        let asked = BootTime::now();
        context.lease.shortened(asked, dispatch.lease);
        let id = context.identity.id;
        let (beat, mut members) = context
            .store
            .heartbeat(id, dispatch.lease, &leaves, &self.membership)
            .await?;
        if beat.is_some_and(|beat| beat.oldest_reader > KNOWN) {
            context.outgrown.cancel();
        }
        let beat = beat.map(|beat| beat.number);
        if beat.is_none() && context.stop.claiming.is_cancelled() {
            // It takes its leave; what it has under way is recorded without a row.
            context.lease.lost();
            return Ok(members);
        }
        self.look_for_losses(context, beat).await?;
        match beat {
            Some(beat) => {
                self.start_over_after_a_gap(context);
                context.lease.renewed(asked, dispatch.lease);
                context.last_beat.store(beat, Ordering::SeqCst);
                if self.told != self.membership {
                    // Their shares wait for it; without the hint they see it at their next renewal.
                    context.store.notify("leafhopper_instance").await?;
                    self.told.clone_from(&self.membership);
                }
            }
            None => {
                if self.registered {
                    context.observer.emit(Observation::TakenForDead);
                }
                // What was claimed is in doubt for the others; this instance starts anew.
                context.lease.lost();
                self.start_over_after_a_gap(context);
                let name = &context.identity.name;
                let last_beat = context.last_beat.load(Ordering::SeqCst);
                context
                    .store
                    .register(id, name, dispatch.lease, &leaves, last_beat)
                    .await?;
                context.lease.renewed(asked, dispatch.lease);
                context.store.notify("leafhopper_instance").await?;
                members = context.store.members().await?;
            }
        }
        self.registered = true;
        Ok(members)
    }

    /// Only this instance counts its beats up, and nobody takes it for dead while its lease runs, or in
    /// another database: otherwise commits are lost. Said here, before the next renewal hides it.
    async fn look_for_losses(
        &mut self,
        context: &Shared,
        beat: Option<i64>,
    ) -> Result<(), StoreError> {
        let known = context.last_beat.load(Ordering::SeqCst);
        let lost = match beat {
            Some(beat) => beat <= known,
            None if known == 0 => false,
            None => context.lease.runs() || context.store.origin().await?.difference().is_some(),
        };
        if lost || self.lost {
            self.lost = true;
            let difference = "a renewal of this instance's lease is lost";
            context.stop_all_sending();
            context
                .observer
                .emit(Observation::DatabaseChanged { difference });
            context.store.halt(difference).await?;
            self.lost = false;
            context.doubt_origin();
        }
        Ok(())
    }

    /// While its lease did not run, others may have taken over its shares: they are theirs until all agree again.
    fn start_over_after_a_gap(&mut self, context: &Shared) {
        if context.lease.runs() {
            return;
        }
        for lane in context.lanes.all() {
            lane.set_share(0, None);
        }
        self.membership.clear();
    }

    /// What functions and the view must know of the configuration, at start and after a reload.
    async fn publish_settings(&mut self, context: &Shared) -> Result<(), StoreError> {
        let lanes = context.lanes.all();
        let stuck_after = context.dispatch().stuck_after;
        let leaves: Vec<(String, bool)> = lanes
            .iter()
            .map(|lane| {
                let hold = lane.settings().leaf.after_failed_head;
                (
                    lane.name.clone(),
                    hold == crate::config::AfterFailedHead::Hold,
                )
            })
            .collect();
        let settings = (leaves, stuck_after);
        if self.settings.as_ref() != Some(&settings) {
            context
                .store
                .publish_leaves(&settings.0, stuck_after)
                .await?;
            self.settings = Some(settings);
        }
        Ok(())
    }

    /// Others whose lease is over, for the database's clock and for this instance's own looks.
    fn look_at_others(&mut self, context: &Shared, members: &[Member]) {
        let silence = self.interval(context) * SILENT_INTERVALS;
        let mut dead = Vec::new();
        let mut seen = HashMap::new();
        for member in members
            .iter()
            .filter(|member| member.id != context.identity.id)
        {
            let since = match self.seen.get(&member.id) {
                Some((beat, since)) if *beat == member.beat => *since,
                _ => Instant::now(),
            };
            seen.insert(member.id, (member.beat, since));
            if !member.alive && since.elapsed() >= silence {
                dead.push(member.id);
            }
        }
        let gone = self.seen.keys().any(|id| !seen.contains_key(id));
        if gone || !dead.is_empty() {
            context.nudges.claims.give();
        }
        self.seen = seen;
        *context.dead.lock().unwrap_or_else(PoisonError::into_inner) = dead;
    }

    /// Sets each lane's share. Asks for another pass at once where there is something to publish.
    fn share_out(&mut self, context: &Shared, members: &[Member]) -> More {
        let id = context.identity.id;
        let alive: Vec<&Member> = members
            .iter()
            .filter(|member| member.alive || member.id == id)
            .collect();
        let membership = fingerprint(&alive);
        let agreed = all_agree(&alive, &membership, &self.membership);
        // Nor has this one a share of a leaf that it does not know any more, where another one has.
        let has_another = |leaf: &String| {
            let mut others = alive.iter().filter(|member| member.id != id);
            others.any(|member| member.leaves.contains(leaf))
        };
        let mut within = !context.lanes.leaving().iter().any(has_another);
        for lane in context.lanes.all() {
            let settings = lane.settings();
            let knowing: Vec<Uuid> = alive
                .iter()
                .filter(|member| member.id == id || member.leaves.contains(&lane.name))
                .map(|member| member.id)
                .collect();
            let target = share(settings.leaf.concurrency, &knowing, id);
            let now = if agreed {
                target
            } else {
                target.min(lane.share())
            };
            let of = f64::from(u32::try_from(knowing.len().max(1)).unwrap_or(u32::MAX));
            let rate = settings
                .leaf
                .rate
                .map(|rate| if now == 0 { 0.0 } else { rate / of });
            let grew = now > lane.share();
            lane.set_share(now, rate);
            within &= lane.in_flight() <= target;
            if grew {
                context.nudges.slot.give();
                context.nudges.work.give();
            }
        }
        if within && self.membership != membership {
            self.membership = membership;
            // The others wait for this to be published.
            return More::Now;
        }
        let own = alive.iter().find(|member| member.id == id);
        if self.membership == membership && own.is_some_and(|own| own.membership != membership) {
            // Published only now: the next look tells whether all agree.
            return More::Now;
        }
        More::Later
    }
}

/// A statement that the server does not understand any more (PostgreSQL, appendix A: class 42): the schema may have gone
/// on without this program.
async fn look_at_schema(context: &Shared, error: &StoreError) {
    let not_understood = error.code().is_some_and(|it| it.code().starts_with("42"));
    if not_understood && let Err(MigrateError::Newer { .. }) = context.store.check_schema().await {
        context.outgrown.cancel();
    }
}

/// Whether all who live had published this membership before they were looked at, this one too: another may have looked just
/// before it did. After a gap this one has no membership, whatever its row says.
fn all_agree(alive: &[&Member], membership: &str, own: &str) -> bool {
    own == membership && alive.iter().all(|member| member.membership == membership)
}

/// The membership in one word: who lives, and which leaves each knows.
fn fingerprint(alive: &[&Member]) -> String {
    let mut hasher = Sha256::new();
    for member in alive {
        hasher.update(member.id.as_bytes());
        for leaf in &member.leaves {
            hasher.update(leaf.as_bytes());
            hasher.update([0]);
        }
        hasher.update([1]);
    }
    hasher
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The share of one of `knowing`, which are in the order of their ids.
fn share(limit: u32, knowing: &[Uuid], id: Uuid) -> u32 {
    let of = u32::try_from(knowing.len().max(1)).unwrap_or(u32::MAX);
    let place = knowing
        .iter()
        .position(|known| *known == id)
        .unwrap_or_default();
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    limit / of + u32::from(place < limit % of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u128, membership: &str) -> Member {
        Member {
            id: Uuid::from_u128(id),
            beat: 1,
            alive: true,
            membership: membership.to_owned(),
            leaves: ["leaf".to_owned()].into(),
        }
    }

    #[test]
    fn nobody_grows_before_a_look_at_what_all_have_published() {
        // Two that have waited past their leases, each seeing the other dead: neither has said so before it looked.
        assert!(!all_agree(&[&member(1, "both")], "alone", ""));
        assert!(!all_agree(&[&member(1, "both")], "alone", "alone"));
        assert!(all_agree(&[&member(1, "alone")], "alone", "alone"));
        // The row of before a gap.
        assert!(!all_agree(&[&member(1, "alone")], "alone", ""));
        let (one, other) = (member(1, "both"), member(2, "alone"));
        assert!(!all_agree(&[&one, &other], "both", "both"));
    }

    #[test]
    fn shares_add_up_to_the_limit() {
        for limit in 0..40 {
            for instances in 1..9_u128 {
                let ids: Vec<Uuid> = (0..instances).map(Uuid::from_u128).collect();
                let sum: u32 = ids.iter().map(|id| share(limit, &ids, *id)).sum();
                assert_eq!(sum, limit, "{instances} instances");
            }
        }
    }
}
