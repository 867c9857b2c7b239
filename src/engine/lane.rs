//! A lane: all that this instance keeps of one leaf. Lanes share nothing, so a leaf in trouble costs only
//! itself.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    breaker::{Breaker, Change, Kept, Permit},
    context::Nudges,
    rate::Bucket,
};
use crate::{
    config::{Config, Leaf, Replays},
    domain::outcome::Trouble,
    leaf::{LeafClient, LeafClientError},
    metrics::UNKNOWN,
    shutdown::Nudge,
    store::claim::Want,
};

/// At least each eighth claimed call of a leaf is its oldest, whatever its priority.
const AGED_EACH: u32 = 8;

/// One leaf.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: String,
    settings: RwLock<Arc<Settings>>,
    in_flight: AtomicU32,
    share: AtomicU32,
    /// The last claim took all that it could: a slot that becomes free is to be filled at once.
    backlog: AtomicBool,
    state: Mutex<State>,
}

/// What the configuration says of it; replaced as a whole by a reload.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) client: LeafClient,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    bucket: Bucket,
    rate_limited: bool,
    since_aged: u32,
    /// Slots that a claim under way may fill.
    reserved: u32,
    /// Probes among what is in flight.
    probes: u32,
    /// A call in doubt found no slot for its probe: the next claim leaves one.
    probe_waits: bool,
    /// The last slot was taken by a probe.
    probed_last: bool,
}

/// What an instance publishes of a lane.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Published {
    credentials: Vec<String>,
    blocked: Vec<String>,
    breaker_open: bool,
    rate_limited: bool,
    compensates: bool,
}

impl Lane {
    fn new(name: String, settings: Settings) -> Self {
        Self {
            name,
            settings: RwLock::new(Arc::new(settings)),
            in_flight: AtomicU32::new(0),
            share: AtomicU32::new(0),
            backlog: AtomicBool::new(false),
            state: Mutex::new(State {
                breaker: Breaker::default(),
                bucket: Bucket::new(Instant::now()),
                rate_limited: false,
                since_aged: 0,
                reserved: 0,
                probes: 0,
                probe_waits: false,
                probed_last: false,
            }),
        }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// What is under way, and what a claim under way may add.
    pub(crate) fn taken(&self) -> u32 {
        self.in_flight() + self.state().reserved
    }

    pub(crate) fn share(&self) -> u32 {
        self.share.load(Ordering::SeqCst)
    }

    /// Sets this instance's share of the leaf's limits.
    pub(crate) fn set_share(&self, concurrency: u32, rate: Option<f64>) {
        self.share.store(concurrency, Ordering::SeqCst);
        if let Some(rate) = rate {
            self.state().bucket.set_rate(rate, Instant::now());
        }
    }

    /// What it can take now, or when to look again. The slots are kept for the claim until [`Self::round_over`].
    pub(crate) fn want(&self, now: Instant) -> Result<Want, Option<Instant>> {
        let mut state = self.state();
        let want = self.look(&mut state, now);
        match &want {
            Ok(want) => state.reserved = want.slots,
            // Nobody has looked what waits: the next slot that becomes free is to be offered.
            Err(None) => self.backlog.store(true, Ordering::SeqCst),
            Err(Some(_)) => {}
        }
        want
    }

    /// Whether it could take more now.
    pub(crate) fn could_take(&self, now: Instant) -> bool {
        !matches!(self.look(&mut self.state(), now), Err(None))
    }

    fn look(&self, state: &mut State, now: Instant) -> Result<Want, Option<Instant>> {
        let settings = self.settings();
        let leaf = &settings.leaf;
        let mut free = self.share().saturating_sub(self.in_flight());
        // Where both calls and probes wait, a single slot is taken in turns.
        let left = u32::from(state.probe_waits && !(self.share() == 1 && state.probed_last));
        free = free.saturating_sub(left);
        let mut slots = match state.breaker.permit(now) {
            Permit::All => free,
            Permit::One => free.min(1),
            Permit::None(until) => return Err(Some(until)),
        };
        state.rate_limited = false;
        if leaf.rate.is_some() {
            let tokens = state.bucket.available(now).saturating_sub(left);
            state.rate_limited = tokens < slots;
            slots = slots.min(tokens);
        }
        if slots == 0 {
            // A slot that becomes free wakes the dispatcher; a token has to be waited for.
            return Err(state.rate_limited.then(|| now + state.bucket.next()));
        }
        let blocked = state.breaker.blocked(now);
        let mut credentials = leaf.secrets.names();
        credentials.push(String::new());
        credentials.retain(|name| !blocked.contains(name));
        Ok(Want {
            leaf: self.name.clone(),
            slots,
            timeout: leaf.timeout,
            give_up_after: leaf.retry.give_up_after,
            window: leaf.idempotency.as_ref().map(|dialect| dialect.window),
            aged: (state.since_aged + slots) / AGED_EACH,
            credentials,
            idempotency: leaf
                .idempotency
                .as_ref()
                .map(|dialect| (dialect.header.clone(), dialect.format)),
            replays_refusals: leaf
                .idempotency
                .as_ref()
                .is_some_and(|dialect| dialect.replays == Replays::All),
        })
    }

    /// A place for a probe with that credential, where one is free and breaker and rate allow it. While calls
    /// wait too, probes leave them half of the share, and take turns with them for a single slot.
    pub(crate) fn take_probe_slot(
        self: &Arc<Self>,
        credential: &str,
        nudges: &Nudges,
    ) -> Option<Slot> {
        let mut state = self.state();
        let now = Instant::now();
        let settings = self.settings();
        let free = self.share() > self.in_flight() + state.reserved;
        let turn = !self.has_backlog()
            || if self.share() > 1 {
                state.probes < self.share() / 2
            } else {
                !state.probed_last
            };
        let rated = settings.leaf.rate.is_some();
        if !free || !turn || (rated && state.bucket.available(now) <= state.reserved) {
            // A breaker keeps both back, and a claim must not wait for a probe that can't go either.
            state.probe_waits = !matches!(state.breaker.permit(now), Permit::None(_));
            return None;
        }
        state.probe_waits = false;
        let timeout = settings.leaf.timeout;
        state.breaker.admit(credential, now, timeout).ok()?;
        if rated {
            state.bucket.take(1);
        }
        state.probes += 1;
        state.probed_last = true;
        drop(state);
        Some(Slot::new(self, nudges, true))
    }

    /// A round of claiming is over: what it took has its slots. Says whether a probe waits for one.
    pub(crate) fn round_over(&self) -> bool {
        let mut state = self.state();
        state.reserved = 0;
        state.probe_waits
    }

    /// So many of the wanted calls were claimed.
    pub(crate) fn claimed(&self, want: &Want, calls: u32) {
        self.backlog.store(calls >= want.slots, Ordering::SeqCst);
        let mut state = self.state();
        state.probed_last = false;
        if self.settings().leaf.rate.is_some() {
            state.bucket.take(calls);
        }
        state.since_aged = if want.aged > 0 {
            0
        } else {
            state.since_aged + calls
        };
    }

    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::SeqCst)
    }

    /// An attempt was not made after all: its token of the rate is for another one.
    pub(crate) fn not_sent(&self) {
        self.state().bucket.give_back();
    }

    /// See [`Breaker::admit`].
    pub(crate) fn admit(&self, credential: &str, try_for: Duration) -> Result<(), Kept> {
        self.state()
            .breaker
            .admit(credential, Instant::now(), try_for)
    }

    /// See [`Breaker::heard`].
    pub(crate) fn heard(&self, credential: &str, trouble: Option<Trouble>) -> Option<Change> {
        self.state()
            .breaker
            .heard(credential, trouble, Instant::now())
    }

    /// See [`Breaker::close`].
    pub(crate) fn close_breaker(&self) -> bool {
        self.state().breaker.close()
    }

    pub(crate) fn breaker_is_open(&self) -> bool {
        self.state().breaker.is_open()
    }

    pub(crate) fn published(&self) -> Published {
        let leaf = &self.settings().leaf;
        let state = self.state();
        Published {
            credentials: leaf.secrets.names(),
            blocked: state.breaker.blocked(Instant::now()),
            breaker_open: state.breaker.leaf_is_open(),
            rate_limited: state.rate_limited,
            compensates: leaf.compensate.is_some(),
        }
    }
}

/// A place for one call under way, or for a probe. Given back when dropped, so a panic costs no place.
#[derive(Debug)]
pub(crate) struct Slot {
    lane: Arc<Lane>,
    probe: bool,
    freed: Nudge,
    probe_may_go: Nudge,
}

impl Slot {
    /// For a claimed call.
    pub(crate) fn take(lane: &Arc<Lane>, nudges: &Nudges) -> Self {
        Self::new(lane, nudges, false)
    }

    fn new(lane: &Arc<Lane>, nudges: &Nudges, probe: bool) -> Self {
        lane.in_flight.fetch_add(1, Ordering::SeqCst);
        Self {
            lane: Arc::clone(lane),
            probe,
            freed: nudges.slot.clone(),
            probe_may_go: nudges.doubt.clone(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.lane.state();
        if self.probe {
            state.probes = state.probes.saturating_sub(1);
        }
        self.lane.in_flight.fetch_sub(1, Ordering::SeqCst);
        if state.probe_waits {
            self.probe_may_go.give();
        }
        drop(state);
        if self.lane.has_backlog() {
            self.freed.give();
        }
    }
}

/// The lanes by name. A reload replaces settings, adds lanes, and takes away those that are gone; what is
/// under way in one that is gone still ends.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: RwLock<BTreeMap<String, Arc<Lane>>>,
}

impl Lanes {
    /// Takes over the leaves of a configuration; all of them or, on an error, none.
    pub(crate) fn configure(&self, config: &Config) -> Result<(), LeafClientError> {
        let mut clients = BTreeMap::new();
        for (name, leaf) in &config.leaves {
            let settings = Settings {
                leaf: Arc::clone(leaf),
                client: LeafClient::new(leaf)?,
            };
            clients.insert(name.clone(), settings);
        }
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|name, _| clients.contains_key(name));
        for (name, settings) in clients {
            if let Some(lane) = lanes.get(&name) {
                *lane
                    .settings
                    .write()
                    .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
            } else {
                lanes.insert(name.clone(), Arc::new(Lane::new(name, settings)));
            }
        }
        Ok(())
    }

    pub(crate) fn all(&self) -> Vec<Arc<Lane>> {
        self.lanes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Lane>> {
        self.lanes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lanes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .cloned()
            .collect()
    }

    /// The leaf as metrics and logs name it: what rows name and no configuration does is no label.
    pub(crate) fn label<'name>(&self, name: &'name str) -> &'name str {
        match self.get(name) {
            Some(_) => name,
            None => UNKNOWN,
        }
    }
}
