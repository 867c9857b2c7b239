//! A lane: all that this instance keeps of one leaf. Lanes share nothing, so a leaf in trouble costs only
//! itself.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    ageing::Ageing,
    breaker::{Breaker, Change, Kept, Permit},
    context::Nudges,
    places::Places,
    probe_place::ProbePlace,
    ramp::Fares,
    rate::Bucket,
};
use crate::{
    config::{Leaf, Replays},
    domain::outcome::Trouble,
    leaf::{LeafClient, Memory},
    shutdown::Nudge,
    store::claim::{Start, Want},
};

/// No more than so many are claimed at once, or than find a place soon. What is sent together comes back together, and then
/// more places are free than calls wait for.
const AT_ONCE: u32 = 64;

/// One leaf.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: String,
    settings: RwLock<Arc<Settings>>,
    /// Calls that are claimed and not recorded yet.
    claimed: AtomicU32,
    /// Claimed calls that wait for room for their bodies.
    pub(super) waits_for_room: AtomicU32,
    large_probe: Arc<Semaphore>,
    /// The last claim took all that it could: a slot that becomes free is to be filled at once.
    backlog: AtomicBool,
    state: Mutex<State>,
}

/// What the configuration says of it; replaced as a whole by a reload.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) client: LeafClient,
    /// For the bodies of requests.
    pub(crate) bodies: Memory,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    bucket: Bucket,
    rate_limited: bool,
    ageing: Ageing,
    /// So many a claim under way may take.
    reserved: u32,
    places: Places,
}

/// What an instance publishes of a lane.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Published {
    credentials: Vec<String>,
    pub(super) blocked: Vec<String>,
    breaker_open: bool,
    rate_limited: bool,
    compensates: bool,
}

impl Lane {
    pub(super) fn new(name: String, settings: Settings) -> Self {
        Self {
            name,
            settings: RwLock::new(Arc::new(settings)),
            claimed: AtomicU32::new(0),
            waits_for_room: AtomicU32::new(0),
            large_probe: Arc::new(Semaphore::new(1)),
            backlog: AtomicBool::new(false),
            state: Mutex::new(State {
                breaker: Breaker::default(),
                bucket: Bucket::new(Instant::now()),
                rate_limited: false,
                ageing: Ageing::default(),
                reserved: 0,
                places: Places::default(),
            }),
        }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a reload of the configuration says.
    pub(super) fn set_settings(&self, settings: Settings) {
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests under way.
    pub(crate) fn in_flight(&self) -> u32 {
        self.state().places.taken()
    }

    pub(crate) fn share(&self) -> u32 {
        self.state().places.share()
    }

    /// Requests that may be under way now.
    pub(crate) fn limit(&self) -> u32 {
        self.state().places.limit()
    }

    /// Takes note of how the leaf fares. `true` where that leaves it one place.
    pub(super) fn note(&self, fares: Fares) -> bool {
        self.state().places.note(fares)
    }

    /// Sets this instance's share of the leaf's limits.
    pub(crate) fn set_share(&self, concurrency: u32, rate: Option<f64>) {
        let mut state = self.state();
        state.places.set_share(concurrency);
        if let Some(rate) = rate {
            state.bucket.set_rate(rate, Instant::now());
        }
    }

    /// What it can take now, or when to look again. Its tokens are kept for the claim until [`Self::round_over`].
    pub(crate) fn want(&self, now: Instant) -> Result<Want, Option<Instant>> {
        let mut state = self.state();
        let want = self.look(&mut state, now);
        match &want {
            Ok(want) => state.reserved = want.slots,
            // Nobody has looked what waits: the next place that becomes free is to be offered.
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
        let free = state.places.free();
        let mut slots = match state.breaker.permit(now) {
            Permit::All => self.worth_claiming(&mut state.places, now),
            Permit::One => free.min(1),
            Permit::None(until) => return Err(Some(until)),
        };
        state.rate_limited = false;
        if leaf.rate.is_some() {
            let left = state.places.left_for_probe();
            let tokens = state.bucket.available(now).saturating_sub(left);
            state.rate_limited = tokens < slots;
            slots = slots.min(tokens);
            if slots == 0 && state.rate_limited {
                return Err(Some(now + state.bucket.until(left + 1)));
            }
        }
        if slots == 0 {
            // A slot that becomes free wakes the dispatcher; a token has to be waited for.
            return Err(None);
        }
        let blocked = state.breaker.blocked(now);
        let mut credentials = leaf.secrets.names();
        credentials.push(String::new());
        credentials.retain(|name| !blocked.contains(name));
        if credentials.is_empty() {
            // Nothing of it can be sent: so nothing is put off, call by call, again and again.
            return Err(state.breaker.credential_again(now));
        }
        Ok(Want {
            leaf: self.name.clone(),
            slots,
            timeout: leaf.timeout,
            give_up_after: leaf.retry.give_up_after,
            window: leaf.idempotency.as_ref().map(|dialect| dialect.window),
            aged: state.ageing.owed(slots),
            credentials,
            idempotency: leaf
                .idempotency
                .as_ref()
                .map(|dialect| (dialect.header.clone(), dialect.format)),
            replays_refusals: leaf
                .idempotency
                .as_ref()
                .is_some_and(|dialect| dialect.replays == Replays::All),
            from: Start::default(),
        })
    }

    /// How many calls are worth claiming: for places that are free, and to wait for those that soon will be. As
    /// many again may wait for their record; then work stops instead of piling up.
    fn worth_claiming(&self, places: &mut Places, now: Instant) -> u32 {
        let (free, ahead, queued) = (places.free(), places.ahead(now), places.queued());
        let no_memory = self.waits_for_room.load(Ordering::SeqCst) > 0;
        if no_memory || (queued > 0 && !places.runs_dry()) {
            return 0;
        }
        let limit = places.limit().saturating_add(ahead).saturating_mul(2);
        let unclaimed = limit.saturating_sub(self.claimed.load(Ordering::SeqCst));
        let wanted = free
            .saturating_add(ahead)
            .saturating_sub(queued)
            .min(unclaimed);
        wanted.min(ahead.max(AT_ONCE))
    }

    /// A place for the request of a claimed call, or its turn to get one. Taken as it is claimed: so the next round
    /// counts it, and calls go in the order in which they are claimed.
    pub(crate) fn enter(self: &Arc<Self>, nudges: &Nudges) -> Place {
        let turn = self.state().places.enter();
        Place::new(self, nudges, false, turn)
    }

    /// A place for a probe with that credential, where one is free and breaker and rate allow it. Those of `large` calls go
    /// one after another: as values for templates a body takes several times its bytes.
    pub(crate) fn take_probe_place(
        self: &Arc<Self>,
        credential: &str,
        large: bool,
        nudges: &Nudges,
    ) -> Option<ProbePlace> {
        let turn = match large.then(|| Arc::clone(&self.large_probe).try_acquire_owned()) {
            None => None,
            Some(turn) => Some(turn.ok()?),
        };
        let mut state = self.state();
        let now = Instant::now();
        let settings = self.settings();
        let room = state.places.has_room_for_probe(self.has_backlog());
        let rated = settings.leaf.rate.is_some();
        if !room || (rated && state.bucket.available(now) <= state.reserved) {
            // A breaker keeps both back, and a call must not wait for a probe that can't go either.
            let kept_back = matches!(state.breaker.permit(now), Permit::None(_))
                || state.breaker.blocked(now).iter().any(|it| it == credential);
            if !kept_back {
                state.places.keep_for_probe();
            }
            return None;
        }
        let timeout = settings.leaf.timeout;
        if state.breaker.admit(credential, now, timeout).is_err() {
            return None;
        }
        if rated {
            state.bucket.take(1);
        }
        state.places.enter_as_probe();
        drop(state);
        let place = Place::new(self, nudges, true, None);
        Some(ProbePlace::new(turn, place, nudges))
    }

    /// All that is in doubt was looked at: a place is kept for a probe only while one waits for it.
    pub(crate) fn looked_at_doubts(&self, nudges: &Nudges) {
        if self.state().places.looked_at_doubts() && self.has_backlog() {
            nudges.slot.give();
        }
    }

    /// Whether a probe waits for a place.
    pub(crate) fn probe_waits(&self) -> bool {
        self.state().places.probe_waits()
    }

    /// A round of claiming is over. Says whether a probe waits for a place.
    pub(crate) fn round_over(&self) -> bool {
        let mut state = self.state();
        state.reserved = 0;
        state.places.probe_waits()
    }

    /// So many of the wanted calls were claimed, and so many of these as the oldest.
    pub(crate) fn claimed(&self, want: &Want, calls: u32, aged: u32, none_left: bool) {
        self.backlog.store(calls >= want.slots, Ordering::SeqCst);
        let mut state = self.state();
        if self.settings().leaf.rate.is_some() {
            state.bucket.take(calls);
        }
        let none_left = none_left && aged < want.aged;
        let places = state.places.limit();
        state.ageing.claimed(calls, aged, none_left, places);
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

    /// See [`Breaker::not_heard`].
    pub(crate) fn not_heard(&self, credential: &str) {
        self.state().breaker.not_heard(credential, Instant::now());
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

/// A claimed call, until it is recorded. Given back when dropped, so a panic costs nothing.
#[derive(Debug)]
pub(crate) struct Slot {
    lane: Arc<Lane>,
    freed: Nudge,
}

impl Slot {
    pub(crate) fn take(lane: &Arc<Lane>, nudges: &Nudges) -> Self {
        lane.claimed.fetch_add(1, Ordering::SeqCst);
        Self {
            lane: Arc::clone(lane),
            freed: nudges.slot.clone(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let state = self.lane.state();
        // A round that is just looking at the lane sees this, or is seen to have left some.
        self.lane.claimed.fetch_sub(1, Ordering::SeqCst);
        if self.lane.has_backlog() && state.places.runs_dry() {
            self.freed.give();
        }
    }
}

/// A request under way, of a call or of a probe, or the turn to become one. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    lane: Arc<Lane>,
    probe: bool,
    /// Where it waits for its turn.
    turn: Option<oneshot::Receiver<()>>,
    freed: Nudge,
    probe_may_go: Nudge,
}

impl Place {
    fn new(
        lane: &Arc<Lane>,
        nudges: &Nudges,
        probe: bool,
        turn: Option<oneshot::Receiver<()>>,
    ) -> Self {
        Self {
            lane: Arc::clone(lane),
            probe,
            turn,
            freed: nudges.slot.clone(),
            probe_may_go: nudges.doubt.clone(),
        }
    }

    /// Waits for its turn. `false` where that did not come within `patience`, or before `stopped`.
    pub(crate) async fn turn(&mut self, patience: Duration, stopped: &CancellationToken) -> bool {
        let Some(turn) = &mut self.turn else {
            return true;
        };
        let heard = tokio::select! {
            heard = tokio::time::timeout(patience, &mut *turn) => heard.is_ok_and(|it| it.is_ok()),
            () = stopped.cancelled() => false,
        };
        if heard {
            self.turn = None;
        }
        heard
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Its turn may have come meanwhile.
        if let Some(turn) = &mut self.turn {
            turn.close();
            if turn.try_recv().is_err() {
                return;
            }
        }
        let mut state = self.lane.state();
        state.places.leave(self.probe);
        if state.places.probe_waits() {
            self.probe_may_go.give();
        }
        if self.lane.has_backlog() && state.places.runs_dry() {
            self.freed.give();
        }
    }
}
