//! The world's state: the tables, the processes, the network, the leaf, the clocks. Plain values, so that two ways to
//! one state meet there.

use crate::database::Transaction;

/// Calls, by their ids.
pub const CALLS: usize = 2;
/// Instances that run at the same time.
pub const PROCESSES: usize = 2;
/// Transactions that can be open at the same time.
pub const OPEN: usize = 3;
/// Probes that can be under way at the same time.
pub const PROBES: usize = 2;
/// Claims of one call that can be told apart; `crate::properties` shows that they suffice.
pub const ROUNDS: usize = 8;

/// Where a call stands: `leafhopper.dispatch.state`, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum State {
    /// Its insert has not committed yet. A lower id can commit after a higher one.
    #[default]
    Unseen,
    /// To be claimed, or held for its key.
    Pending,
    /// Claimed: it may have been sent.
    Dispatching,
    /// It may have been executed.
    InDoubt,
    /// It waits for somebody's word.
    Parked,
    /// Final, by a result of its own or another's.
    Confirmed,
    /// Final: the leaf said no.
    Failed,
}

impl State {
    /// In the predicate of the index `dispatch_one_at_a_time`.
    #[must_use]
    pub fn excludes(self) -> bool {
        matches!(self, Self::Dispatching | Self::InDoubt | Self::Parked)
    }

    /// It has a row in `leafhopper.dispatch`.
    #[must_use]
    pub fn is_live(self) -> bool {
        self == Self::Pending || self.excludes()
    }

    /// Nothing more will happen to it by itself.
    #[must_use]
    pub fn rests(self) -> bool {
        matches!(self, Self::Parked | Self::Confirmed | Self::Failed)
    }
}

/// What `alive_until` of a call was last set by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Alive {
    /// The claim: its time limit.
    #[default]
    Claimed,
    /// The takeover: the later of the time limit and the lease's end.
    TakenOver,
    /// The takeover of a claim whose instance it took for gone: the time limit alone.
    TakenFromNobody,
    /// The record: the attempt's end.
    Recorded,
}

/// One call's row, as far as the protocol looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Row {
    /// `dispatch.state`, or how the call ended.
    pub state: State,
    /// `held = 'key'`.
    pub held: bool,
    /// In doubt, and being asked about: `due_at` is in the future.
    pub asked: bool,
    /// In doubt, and to be sent again.
    pub resend: bool,
    /// `in_doubt_since` is set.
    pub doubtful: bool,
    /// What `alive_until` stands for.
    pub alive: Alive,
    /// The latest claim's instance.
    pub instance: u8,
    /// The latest claim's round. Here it counts each call's claims, which names them as well as the instance's
    /// own count does.
    pub round: u8,
    /// `tries`: goes back by one when a claim is given back.
    pub tries: u8,
    /// Confirmed: from which generation.
    pub generation: u8,
}

impl Row {
    /// The row with the two instances in each other's place.
    #[must_use]
    pub fn mirrored(self, swap: impl Fn(u8) -> u8) -> Self {
        // A row that nobody has claimed names none.
        let instance = if self.round > 0 {
            swap(self.instance)
        } else {
            0
        };
        Self { instance, ..self }
    }

    /// The row of a final call; what its past was is forgotten.
    #[must_use]
    pub fn ended(state: State, generation: u8) -> Self {
        Self {
            state,
            generation,
            ..Self::default()
        }
    }
}

/// What `leafhopper.result` holds for one key: its latest generation. Those before are undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Effect {
    /// 0: there is none.
    pub generation: u8,
    /// `forget()` was called.
    pub undone: bool,
    /// The generations that rest on somebody's word, a bit for each.
    pub words: u8,
}

impl Effect {
    /// The standing generation: `leafhopper.standing()`.
    #[must_use]
    pub fn standing(self) -> Option<u8> {
        (self.generation > 0 && !self.undone).then_some(self.generation)
    }

    /// The generation that a confirmation would get: `1 + max(generation) WHERE undone_at IS NOT NULL`.
    #[must_use]
    pub fn next(self) -> u8 {
        if self.undone {
            self.generation + 1
        } else {
            self.generation.max(1)
        }
    }
}

/// Time as one call's latest attempt sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Clock {
    /// The attempt can be alive.
    #[default]
    Alive,
    /// `alive_until` has passed.
    Over,
    /// So has `settle` since then.
    Settled,
}

/// How an attempt ended for its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Nothing was sent: this generation stands.
    Prior(u8),
    /// The leaf said so.
    Confirmed,
    /// No answer came.
    Doubt,
    /// Certainly not executed: not sent, or the leaf said so.
    NotExecuted,
    /// The leaf said no.
    Refused,
}

/// How far an attempt has come in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The claim's commit is known.
    Claimed,
    /// `may_send` said yes; the request is about to be written. Here a process can be frozen.
    Checked,
    /// The request is written.
    Waiting,
    /// To be recorded.
    Ended(Outcome),
}

/// A claim that a process holds: `domain/call.rs`, `engine/held.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// With the instance it names the claim.
    pub round: u8,
    /// The call was in doubt before.
    pub doubtful: bool,
    /// The lease has had a gap since the claim began (`Lease::runs_in`).
    pub stale: bool,
    /// Its request was written after a freeze that outlasted the lease: the late request which `settle` is for.
    pub late: bool,
    /// How far it has come.
    pub stage: Stage,
    /// The generation of the effect that it would make.
    pub generation: u8,
    /// A record whose reply was lost has committed (`known` in the statements).
    pub known: bool,
    /// Observed, not known to the protocol: an effect stood from the lock of the row to the look for it.
    pub stood: bool,
}

/// One running sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Process {
    /// `leafhopper.instance.id`; a new one after each crash.
    pub id: u8,
    /// Its own view of its lease: `engine/lease.rs`.
    pub lease: bool,
    /// At most one for each call.
    pub attempts: [Option<Attempt>; CALLS],
}

/// A probe under way: `engine/ask.rs`. Whose it is makes no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Probe {
    /// The call that is asked about.
    pub call: u8,
    /// `tries`, as it was seen.
    pub tries: u8,
    /// `alive_until`, as it was seen.
    pub alive: Alive,
    /// `settle` had passed when it was looked at, before the leaf was asked.
    pub settled: bool,
    /// What the leaf said.
    pub found: Option<bool>,
}

/// How often each fault can still happen, and each word of the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Budget {
    /// A process dies, and starts again under a new identity.
    pub crashes: u8,
    /// A process can't renew its lease for a while, or is frozen.
    pub lapses: u8,
    /// The reply to a commit is lost.
    pub lost_replies: u8,
    /// A request or an answer is lost, or late.
    pub lost_answers: u8,
    /// The leaf says no, or that it did nothing.
    pub refusals: u8,
    /// `confirm()`.
    pub confirms: u8,
    /// `forget()`.
    pub forgets: u8,
}

/// What must not happen. Observed by the model, not known to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Wrong {
    /// A request was written although an effect stood when its call was claimed.
    pub sent_although_it_stood: bool,
    /// A request was written while another attempt of its key was alive.
    pub sent_beside_another: bool,
    /// A request was written while an earlier one of its key could arrive, or had been executed.
    pub sent_blindly: bool,
    /// A confirmation that was heard did not become its live call's end.
    pub confirmation_dropped: bool,
}

/// What the latest step brought about, where a property asks whether it happens at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum News {
    /// A dead or silent instance's claim became a doubt.
    TakenOver,
    /// A claim became a doubt although its instance's lease runs.
    TakenFromALiveOne,
    /// A probe's finding became the confirmation.
    Adopted,
    /// A probe's absence was believed.
    AbsenceBelieved,
    /// A call ended from a result that stood.
    PriorUsed,
    /// A claim met another in the unique index.
    MetInTheIndex,
    /// A claim whose reply was lost was given back.
    GivenBack,
    /// An attempt that was taken over decided its call all the same.
    LateRecord,
    /// An attempt was recorded that no longer decides.
    Superseded,
    /// A request was written by a process that had been frozen.
    LateSend,
    /// The leaf answered a second request from its memory.
    Deduplicated,
    /// The leaf was sent one effect of an idempotent method again.
    Repeated,
    /// A confirmation met a final call.
    ConfirmedAgain,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct World {
    /// The calls' rows, as committed.
    pub rows: [Row; CALLS],
    /// The keys' results, as committed.
    pub effects: [Effect; CALLS],
    /// Open transactions, in no order of meaning.
    pub open: [Option<Transaction>; OPEN],
    /// Instances whose lease runs for the database's clock, a bit for each identity.
    pub leases: u8,
    /// How many identities there have been.
    pub identities: u8,
    /// The running sidecars.
    pub processes: [Process; PROCESSES],
    /// Probes under way.
    pub probes: [Option<Probe>; PROBES],
    /// Each call's time.
    pub clocks: [Clock; CALLS],
    /// The leaf has forgotten the idempotency key of an effect key.
    pub windows_over: [bool; CALLS],
    /// Requests on their way: for each call and round the generation, 0 where there is none.
    pub wire: [[u8; ROUNDS]; CALLS],
    /// The leaf's ledger: how often it made the effect of a key, for each generation from 1.
    pub ledger: [[u8; 3]; CALLS],
    /// What can still go wrong.
    pub budget: Budget,
    /// What went wrong.
    pub wrong: Wrong,
    /// What has just happened.
    pub news: Option<News>,
}

impl World {
    /// Nothing has been inserted; two instances run.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        let mut processes = [Process::default(); PROCESSES];
        for (id, process) in (0_u8..).zip(&mut processes) {
            *process = Process {
                id,
                lease: true,
                ..Process::default()
            };
        }
        Self {
            rows: [Row::default(); CALLS],
            effects: [Effect::default(); CALLS],
            open: [None; OPEN],
            leases: 0b11,
            identities: 2,
            processes,
            probes: [None; PROBES],
            clocks: [Clock::default(); CALLS],
            windows_over: [false; CALLS],
            wire: [[0; ROUNDS]; CALLS],
            ledger: [[0; 3]; CALLS],
            budget,
            wrong: Wrong::default(),
            news: None,
        }
    }

    /// The same world with the two processes in each other's place: nothing tells one from the other.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let [first, second] = self.processes;
        let swap = |instance: u8| match instance {
            id if id == first.id => second.id,
            id if id == second.id => first.id,
            id => id,
        };
        let leases = (0..self.identities).filter(|id| self.lease_runs(*id));
        let mut world = *self;
        world.leases = leases.fold(0, |set, id| set | 1 << swap(id));
        world.rows = self.rows.map(|row| row.mirrored(swap));
        world.open = self.open.map(|open| open.map(|open| open.mirrored(swap)));
        world.processes = [
            Process {
                id: first.id,
                ..second
            },
            Process {
                id: second.id,
                ..first
            },
        ];
        world
    }

    /// Whether that instance's lease runs, for the database's clock.
    #[must_use]
    pub fn lease_runs(&self, instance: u8) -> bool {
        self.leases & (1 << instance) != 0
    }

    /// The attempts of a call, in any process.
    pub fn attempts_of(&self, call: usize) -> impl Iterator<Item = (&Process, &Attempt)> {
        self.processes
            .iter()
            .filter_map(move |process| Some((process, process.attempts[call].as_ref()?)))
    }

    /// A request of the call can still arrive.
    #[must_use]
    pub fn on_the_wire(&self, call: usize) -> bool {
        self.wire[call].iter().any(|generation| *generation > 0)
    }
}
