//! What all loops share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    asleep::Asleep, begun::Begun, entry::Entry, held::Held, lane::Lane, lanes::Lanes, lease::Lease,
    recorder::Recording, said::Said,
};
use crate::{
    config::{Dispatch, Retention},
    observe::{Observation, Observer},
    shutdown::{Nudge, Stop},
    store::{Store, StoreError, claim::Start, order::OrderingKey},
    telemetry::Telemetry,
};

/// So long after a failure a statement that nobody heard of again may still take effect, with time to spare.
const LATE: Duration = Duration::from_secs(60);

/// So many bodies are read at once: claims and records need the connections, too.
const READERS: usize = 2;

/// Who this instance is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// Names its claims; new for each process.
    pub(crate) id: Uuid,
    /// Host and process, for people.
    pub(crate) name: String,
}

/// Hints between loops.
#[derive(Debug, Default)]
pub(crate) struct Nudges {
    /// New work may be there.
    pub(crate) work: Nudge,
    /// A slot has become free.
    pub(crate) slot: Nudge,
    /// Instances came or went, or a person closed a breaker.
    pub(crate) members: Nudge,
    /// A call in doubt may be due.
    pub(crate) doubt: Nudge,
    /// A batch may be cancelled.
    pub(crate) batch: Nudge,
    /// An ordering key may have a next call.
    pub(crate) order: Nudge,
    /// A credential was refused: its file may have changed.
    pub(crate) credentials: Nudge,
    /// A call's time may be over.
    pub(crate) end: Nudge,
    /// A claim may be nobody's.
    pub(crate) claims: Nudge,
    /// A person may have resumed a leaf.
    pub(crate) look: Nudge,
    /// It may be another database now.
    pub(crate) origin: Nudge,
    /// There is something to tell listeners.
    pub(crate) news: Nudge,
    /// A job was begun.
    pub(crate) jobs: Nudge,
}

/// When each loop last turned, for liveness.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    loops: Mutex<Vec<(&'static str, Instant, Duration)>>,
}

impl Turns {
    /// The loop has turned, and will again within `patience` if it lives.
    pub(crate) fn turned(&self, name: &'static str, patience: Duration) {
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match loops.iter_mut().find(|(known, ..)| *known == name) {
            Some(turn) => *turn = (name, now, patience),
            None => loops.push((name, now, patience)),
        }
    }

    /// Loops that have not turned within their patience.
    fn stalled(&self) -> Vec<&'static str> {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let late = loops
            .iter()
            .filter(|(_, at, patience)| at.elapsed() > *patience);
        late.map(|(name, ..)| *name).collect()
    }
}

/// What happened since listeners were last told.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) results: AtomicBool,
    pub(crate) calls: AtomicBool,
}

/// All that the loops share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) observer: Observer,
    pub(crate) telemetry: Telemetry,
    pub(crate) identity: Identity,
    pub(crate) lanes: Lanes,
    pub(crate) held: Held,
    pub(crate) lease: Lease,
    pub(crate) stop: Stop,
    pub(crate) nudges: Nudges,
    pub(crate) turns: Turns,
    pub(crate) news: News,
    /// Notifications of work since the dispatcher last looked.
    pub(crate) hints: AtomicUsize,
    pub(crate) recorder: mpsc::UnboundedSender<Recording>,
    /// Ordering keys whose head has ended.
    pub(crate) ended_heads: Mutex<Vec<OrderingKey>>,
    /// Where the last look has found the first calls of each leaf.
    firsts: Mutex<BTreeMap<String, Start>>,
    /// Instances that this one has seen to be dead.
    pub(crate) dead: Mutex<Vec<Uuid>>,
    /// The last renewal of the lease that was committed.
    pub(crate) last_beat: AtomicI64,
    /// The database was found changed; nothing is sent.
    pub(crate) database_changed: AtomicBool,
    /// Whether it is the same database has to be asked.
    pub(crate) origin_doubted: AtomicBool,
    /// The schema has gone on to where this program can't work with it.
    pub(crate) outgrown: CancellationToken,
    /// The last round of claiming went through.
    pub(crate) claims_work: AtomicBool,
    /// The last group was recorded.
    pub(crate) records_work: AtomicBool,
    /// For the process that starts after this one's SIGKILL.
    pub(crate) begun: Option<Begun>,
    /// What could not be recorded before the process ends.
    unrecorded: Mutex<Vec<Entry>>,
    /// Turns to read a large body.
    pub(crate) reading: Semaphore,
    failing: AtomicU32,
    said: Mutex<Said>,
    pub(crate) asleep: Asleep,
    /// Until then a claim of this instance may turn up that it does not hold.
    claims_in_question: Mutex<Option<Instant>>,
    dispatch: RwLock<Dispatch>,
    retention: RwLock<Retention>,
}

impl Context {
    pub(crate) fn new(
        store: Store,
        observer: Observer,
        identity: Identity,
        lanes: Lanes,
        dispatch: Dispatch,
        stop: Stop,
        recorder: mpsc::UnboundedSender<Recording>,
    ) -> Self {
        Self {
            store,
            observer,
            telemetry: Telemetry::default(),
            identity,
            lanes,
            held: Held::default(),
            lease: Lease::default(),
            stop,
            nudges: Nudges::default(),
            turns: Turns::default(),
            news: News::default(),
            hints: AtomicUsize::new(0),
            recorder,
            ended_heads: Mutex::default(),
            firsts: Mutex::default(),
            dead: Mutex::default(),
            last_beat: AtomicI64::new(0),
            database_changed: AtomicBool::new(false),
            origin_doubted: AtomicBool::new(true),
            outgrown: CancellationToken::new(),
            claims_work: AtomicBool::new(false),
            records_work: AtomicBool::new(true),
            begun: None,
            unrecorded: Mutex::default(),
            reading: Semaphore::new(READERS),
            failing: AtomicU32::new(0),
            said: Mutex::default(),
            asleep: Asleep::default(),
            claims_in_question: Mutex::default(),
            dispatch: RwLock::new(dispatch),
            retention: RwLock::default(),
        }
    }

    /// Notes each send for the process that may come after a SIGKILL.
    pub(crate) fn noting(self, begun: Option<Begun>) -> Self {
        Self { begun, ..self }
    }

    /// Makes a span for each request to a leaf.
    pub(crate) fn traced(self, telemetry: Telemetry) -> Self {
        Self { telemetry, ..self }
    }

    pub(crate) fn dispatch(&self) -> Dispatch {
        self.dispatch
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_dispatch(&self, dispatch: Dispatch) {
        *self
            .dispatch
            .write()
            .unwrap_or_else(PoisonError::into_inner) = dispatch;
    }

    /// How long what has ended is kept; until it is set, for ever.
    pub(crate) fn retention(&self) -> Retention {
        self.retention
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        *self
            .retention
            .write()
            .unwrap_or_else(PoisonError::into_inner) = retention;
    }

    /// A database operation failed. Since a success, each cause is logged once: an outage is a line or two,
    /// and not the broken connection hides why no other one comes about.
    pub(crate) fn failed(&self, error: &StoreError) {
        // It may have been a claim.
        self.question_claims();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let first = said.is_news(error.rough_cause(), Instant::now());
        // Only now: a success that comes in between would take it for over before it is said, and the next outage for told.
        self.failing.fetch_add(1, Ordering::Relaxed);
        drop(said);
        self.observer
            .emit(Observation::DatabaseError { error, first });
    }

    /// A database operation went through.
    pub(crate) fn worked(&self) {
        let failures = self.failing.swap(0, Ordering::Relaxed);
        if failures > 0 {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let was_told = said.is_over(Instant::now());
            drop(said);
            if was_told {
                tracing::info!(
                    failures,
                    "the database answers again after {failures} failures"
                );
            }
            self.doubt_origin();
        }
    }

    /// It may be another database: one that came back, or that differs.
    pub(crate) fn doubt_origin(&self) {
        self.origin_doubted.store(true, Ordering::SeqCst);
        self.nudges.origin.give();
    }

    /// How many notifications of work have come since this was last asked.
    pub(crate) fn told_of_work(&self) -> usize {
        self.hints.swap(0, Ordering::Relaxed)
    }

    /// What a leaf refused, or did not answer, may be well now.
    pub(crate) fn close_breaker(&self, lane: &Lane, why: &str) {
        if lane.close_breaker() {
            self.observer.emit(Observation::Breaker {
                leaf: &lane.name,
                open: false,
                why,
            });
            self.nudges.work.give();
        }
    }

    /// A claim of this instance may turn up that it does not hold.
    pub(crate) fn question_claims(&self) {
        let mut until = self
            .claims_in_question
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *until = Some(Instant::now() + LATE);
        self.nudges.claims.give();
    }

    /// Whether it may.
    pub(crate) fn claims_are_in_question(&self) -> bool {
        let until = self
            .claims_in_question
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// The process ends, and nobody could record this.
    pub(crate) fn keep_for_journal(&self, entry: Entry) {
        let mut unrecorded = self
            .unrecorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unrecorded.push(entry);
    }

    /// What was kept for the journal.
    pub(crate) fn unrecorded(&self) -> Vec<Entry> {
        std::mem::take(
            &mut self
                .unrecorded
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Whether this is the database that it was, or a person has said how to go on.
    pub(crate) fn may_go_on(&self) -> bool {
        !self.database_changed.load(Ordering::SeqCst)
    }

    /// Whether something may be sent now.
    pub(crate) fn may_send(&self) -> bool {
        self.lease.runs() && self.may_go_on()
    }

    /// Whether what was claimed in that term of the lease may be sent now.
    pub(crate) fn may_send_in(&self, term: u64) -> bool {
        self.lease.runs_in(term) && self.may_go_on()
    }

    /// Nothing is sent any more, until a person says how to go on.
    pub(crate) fn stop_all_sending(&self) {
        self.database_changed.store(true, Ordering::SeqCst);
    }

    /// Listeners are to be told that there are new results.
    pub(crate) fn result_news(&self) {
        self.news.results.store(true, Ordering::SeqCst);
        self.nudges.news.give();
    }

    /// Listeners are to be told that calls failed, expired, were cancelled or parked.
    pub(crate) fn call_news(&self) {
        self.news.calls.store(true, Ordering::SeqCst);
        self.nudges.news.give();
    }

    /// What the look saw first of each leaf.
    pub(crate) fn saw_firsts(&self, firsts: BTreeMap<String, Start>) {
        *self.firsts.lock().unwrap_or_else(PoisonError::into_inner) = firsts;
    }

    /// That, where the look came after the last time that this was asked.
    pub(crate) fn take_firsts(&self) -> BTreeMap<String, Start> {
        let mut firsts = self.firsts.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *firsts)
    }

    /// An ordered call has ended: the next of its key may go.
    pub(crate) fn head_ended(&self, key: OrderingKey) {
        self.ended_heads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(key);
        self.nudges.order.give();
    }

    /// Loops that should turn and do not. In a stop, which is bounded, they end one after another.
    pub(crate) fn stalled(&self) -> Vec<&'static str> {
        if self.stop.claiming.is_cancelled() {
            Vec::new()
        } else {
            self.turns.stalled()
        }
    }

    /// Why this instance is not ready, or `None`.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        if self.stop.claiming.is_cancelled() {
            Some("stopping")
        } else if !self.may_go_on() {
            Some(
                "the database is not the one it was: leafhopper resume --all --as probe|resend --reason …",
            )
        } else if !self.lease.runs() {
            Some("its lease does not run: the database can't be reached")
        } else if !self.claims_work.load(Ordering::SeqCst) {
            Some("claiming does not work: the database does not answer, or refuses")
        } else if !self.records_work.load(Ordering::SeqCst) {
            Some("recording does not work: the database does not answer, or refuses")
        } else {
            None
        }
    }
}

/// A shared context.
pub(crate) type Shared = Arc<Context>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_has_not_turned_within_its_patience_is_stalled() {
        let turns = Turns::default();
        turns.turned("quick", Duration::from_hours(1));
        turns.turned("late", Duration::from_hours(1));
        assert_eq!(turns.stalled(), Vec::<&str>::new());
        turns.turned("late", Duration::ZERO);
        while turns.stalled().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(turns.stalled(), ["late"]);
        turns.turned("late", Duration::from_hours(1));
        assert_eq!(turns.stalled(), Vec::<&str>::new());
    }
}
