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
    config::{Config, Leaf},
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
    /// Slots that the claim under way may still take.
    promised: u32,
    /// A probe has found no place.
    probe_waits: bool,
    /// Calls were claimed since the last probe got a place: the next place is a probe's, if one waits.
    claimed_since_probe: bool,
}

/// What an instance publishes of a lane.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Published {
    credentials: Vec<String>,
    blocked: Vec<String>,
    breaker_open: bool,
    rate_limited: bool,
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
                promised: 0,
                probe_waits: false,
                claimed_since_probe: false,
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

    pub(crate) fn share(&self) -> u32 {
        self.share.load(Ordering::SeqCst)
    }

    /// Sets this instance's share of the leaf's limits. Gives whether it keeps within it: calls under way
    /// and those that a claim under way may take, since its slots were counted by the former share.
    pub(crate) fn set_share(&self, concurrency: u32, rate: Option<f64>) -> bool {
        let mut state = self.state();
        self.share.store(concurrency, Ordering::SeqCst);
        if let Some(rate) = rate {
            state.bucket.set_rate(rate, Instant::now());
        }
        self.in_flight() + state.promised <= concurrency
    }

    /// The claim is over: what it took has its slots.
    pub(crate) fn claim_is_over(&self) {
        self.state().promised = 0;
    }

    /// What it can take now, or when to look again. The slots are promised until [`Self::claim_is_over`].
    pub(crate) fn want(&self, now: Instant) -> Result<Want, Option<Instant>> {
        let settings = self.settings();
        let leaf = &settings.leaf;
        let mut state = self.state();
        // Calls and probes take turns where there is too little room for both.
        let kept = u32::from(state.probe_waits && state.claimed_since_probe);
        let free = self.share().saturating_sub(self.in_flight() + kept);
        let mut slots = match state.breaker.permit(now) {
            Permit::All => free,
            Permit::One => free.min(1),
            Permit::None(until) => return Err(Some(until)),
        };
        state.rate_limited = false;
        if leaf.rate.is_some() {
            let tokens = state.bucket.available(now).saturating_sub(kept);
            state.rate_limited = tokens < slots;
            slots = slots.min(tokens);
        }
        if slots == 0 {
            // A slot that becomes free wakes the dispatcher; a token has to be waited for.
            return Err(state.rate_limited.then(|| now + state.bucket.next()));
        }
        state.promised = slots;
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
        })
    }

    /// A place for a probe, where one is free and its breaker and its rate allow it.
    pub(crate) fn take_slot(self: &Arc<Self>, nudges: &Nudges) -> Result<Slot, NoSlot> {
        let mut state = self.state();
        let now = Instant::now();
        let settings = self.settings();
        let rated = settings.leaf.rate.is_some();
        if self.share() <= self.in_flight() + state.promised
            || (rated && state.bucket.available(now) == 0)
        {
            return Err(NoSlot::Full);
        }
        state
            .breaker
            .admit_probe(now, settings.leaf.timeout)
            .map_err(|Kept| NoSlot::KeptBack)?;
        if rated {
            state.bucket.take(1);
        }
        state.claimed_since_probe = false;
        Ok(Slot::take(self, nudges))
    }

    /// Whether a probe waits for a place, as the latest look at the calls in doubt has shown.
    pub(crate) fn probe_waits(&self, waits: bool) {
        self.state().probe_waits = waits;
    }

    fn keeps_a_place_for_a_probe(&self) -> bool {
        let state = self.state();
        state.probe_waits && state.claimed_since_probe
    }

    /// See [`Breaker::reached`].
    pub(crate) fn reached(&self) -> Option<Change> {
        self.state().breaker.reached()
    }

    /// So many of the wanted calls were claimed.
    pub(crate) fn claimed(&self, want: &Want, calls: u32) {
        self.backlog.store(calls >= want.slots, Ordering::SeqCst);
        let mut state = self.state();
        if self.settings().leaf.rate.is_some() {
            state.bucket.take(calls);
        }
        state.claimed_since_probe |= calls > 0;
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
        let state = self.state();
        Published {
            credentials: self.settings().leaf.secrets.names(),
            blocked: state.breaker.blocked(Instant::now()),
            breaker_open: state.breaker.leaf_is_open(),
            rate_limited: state.rate_limited,
        }
    }
}

/// A place for one call under way. Given back when dropped, so a panic costs no place.
#[derive(Debug)]
pub(crate) struct Slot {
    lane: Arc<Lane>,
    freed: Nudge,
    doubt: Nudge,
}

/// Why there is no place for a probe now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// All are taken, or the rate is used up.
    Full,
    /// The leaf's breaker is open.
    KeptBack,
}

impl Slot {
    pub(crate) fn take(lane: &Arc<Lane>, nudges: &Nudges) -> Self {
        lane.in_flight.fetch_add(1, Ordering::SeqCst);
        Self {
            lane: Arc::clone(lane),
            freed: nudges.slot.clone(),
            doubt: nudges.doubt.clone(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.lane.in_flight.fetch_sub(1, Ordering::SeqCst);
        if self.lane.keeps_a_place_for_a_probe() {
            self.doubt.give();
        }
        if self.lane.backlog.load(Ordering::SeqCst) {
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

    /// The leaf as metrics and logs name it: what rows name and no configuration does is no label.
    pub(crate) fn label<'name>(&self, name: &'name str) -> &'name str {
        match self.get(name) {
            Some(_) => name,
            None => UNKNOWN,
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lanes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .cloned()
            .collect()
    }
}
