//! The state of a batch's world: its row, its calls with their compensations, what is under way. Plain values.

use super::{
    protocol::{Broken, Protocol, Role},
    rows::{Batch, Call, State},
};

/// A batch's own calls.
pub const CALLS: usize = 3;
/// These, and a compensation of each.
pub const PLACES: usize = 2 * CALLS;
/// Looks that can be under way at the same time: one for each instance.
pub const LOOKS: usize = 2;
/// As often as it likes.
pub const ALWAYS: u8 = u8::MAX;

/// A set of places, a bit for each.
pub type Set = u8;

/// What a look's snapshot makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Verdict {
    /// The batch's next state.
    pub to: Option<Batch>,
    /// The compensations that it inserts.
    pub undo: Set,
    /// The follow-ups that it lets go.
    pub release: Set,
    /// The follow-ups that can't run any more.
    pub drop: Set,
    /// The announcements that it takes back, since the batch's row says so.
    pub clear: Set,
    /// Observed: it decides on success although a call has ended without one.
    pub rash: bool,
}

/// What a look finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Snapshot {
    /// The batch's state.
    pub batch: Batch,
    /// `batch.sealed`
    pub sealed: bool,
    /// The calls' states.
    pub states: [State; PLACES],
    /// What is held for the batch.
    pub held: Set,
    /// What announces its failure.
    pub announces: Set,
    /// The count that a variant keeps.
    pub count: i8,
}

/// The transaction of a batcher's look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Look {
    /// It has read the marks, and has the lock of the batch's row where there is one.
    Begun {
        /// There is a row.
        locked: bool,
        /// A variant has looked at the calls already.
        seen: Option<Snapshot>,
    },
    /// Its second statement has its snapshot, and what follows.
    Decided { locked: bool, verdict: Verdict },
}

/// How often each thing can still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Budget {
    /// A process dies while it has an attempt.
    pub deaths: u8,
    /// A request is believed to be lost, and is not.
    pub late: u8,
    /// The leaf says no.
    pub refusals: u8,
    /// A call ends before it is claimed.
    pub expiries: u8,
    /// `cancel_batch()`
    pub cancels: u8,
    /// `confirm()`, for a call of the batch.
    pub words: u8,
    /// `forget()`
    pub forgets: u8,
    /// Another batch makes an effect again that was undone.
    pub redos: u8,
}

/// What must not happen. Observed by the model, not known to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Wrong {
    /// A claim younger than the commit that cancels the batch has taken a call.
    pub claimed_after_the_cancel: bool,
    /// A batch has succeeded although a call had ended without success.
    pub succeeded_over_a_failure: bool,
    /// What a compensation undid was another batch's.
    pub undid_anothers: bool,
    /// A batch that was decided got another outcome.
    pub left_its_end: bool,
}

/// What the latest step brought about, where a property asks whether it happens at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum News {
    /// A look found a live call in a batch that was closing.
    Reopened,
    /// A look put a batch that was torn down back to compensating.
    TornDownAgain,
    /// A late answer became a result.
    HeardLate,
    /// A failure was announced after the batch's row had said that it is cancelled.
    AnnouncedLate,
    /// A look's insert of the batch's row met another one's.
    RowWasThere,
    /// A doubt of a cancelled batch ended as not executed.
    DoubtCancelled,
    /// A compensation found nothing to undo when it was claimed.
    NothingToUndo,
    /// The effect that a compensation was to undo was gone.
    FoundUndone,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct World {
    /// The batch's row, as committed.
    pub batch: Batch,
    /// `batch.sealed`
    pub sealed: bool,
    /// The rows of `batch_mark`, by which of the looks have read them: a bit for each of the four sets.
    pub marks: u8,
    /// Calls, then compensations.
    pub calls: [Call; PLACES],
    /// Looks under way.
    pub looks: [Option<Look>; LOOKS],
    /// The app's transaction with `cancel_batch()`, which has the lock of the batch's row.
    pub cancel: Option<Cancel>,
    /// The count of live calls that a variant keeps.
    pub count: i8,
    /// Observed: the batch is cancelled, by its row or by an announcement.
    pub announced: bool,
    /// What can still happen.
    pub budget: Budget,
    /// What went wrong.
    pub wrong: Wrong,
    /// What has just happened.
    pub news: Option<News>,
}

/// The app's `cancel_batch()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cancel {
    /// It found no live call; a variant settles the batch with that.
    pub settles: bool,
}

impl World {
    /// The early calls are inserted, and nobody has looked.
    #[must_use]
    pub fn new(protocol: &Protocol) -> Self {
        let mut world = Self {
            batch: if protocol.unsealed {
                Batch::Open
            } else {
                Batch::Absent
            },
            sealed: !protocol.unsealed,
            marks: 0,
            calls: [Call::default(); PLACES],
            looks: [None; LOOKS],
            cancel: None,
            count: 0,
            announced: false,
            budget: protocol.budget,
            wrong: Wrong::default(),
            news: None,
        };
        for call in 0..protocol.early {
            world.insert(protocol, call);
        }
        world
    }

    /// Inserts a call, with its mark.
    pub fn insert(&mut self, protocol: &Protocol, place: usize) {
        let role = protocol.role(place);
        self.calls[place].state = State::Pending;
        self.calls[place].held = role.follows();
        if protocol.breaks(Broken::CountedLiveCalls) {
            self.count += i8::from(role.is_waited_for());
        }
        self.mark();
    }

    /// Adds a mark, which no look has read.
    pub fn mark(&mut self) {
        self.marks |= 1;
    }

    /// Some call for which the batch waits is live.
    #[must_use]
    pub fn has_live_calls(&self, protocol: &Protocol) -> bool {
        protocol
            .waited_for()
            .any(|call| self.calls[call].state.is_live())
    }

    /// Some end that is not in the batch's row yet cancels the batch.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.calls.iter().any(|call| call.announces)
    }

    /// A result of the batch stands that can be undone.
    pub fn standing(&self, protocol: &Protocol) -> impl Iterator<Item = usize> {
        protocol
            .undoable()
            .filter(|call| self.calls[*call].state == State::Confirmed)
    }

    /// Whether another transaction can be opened.
    #[must_use]
    pub fn has_room(&self, protocol: &Protocol) -> bool {
        let of_calls = |call: &Call| {
            usize::from(call.claim.is_some())
                + usize::from(call.ending.is_some())
                + usize::from(call.word)
        };
        let open = self.calls.iter().map(of_calls).sum::<usize>()
            + self.looks.iter().flatten().count()
            + usize::from(self.cancel.is_some());
        open < protocol.open
    }

    /// Some look has the lock of the batch's row.
    #[must_use]
    pub fn is_locked_by_a_look(&self) -> bool {
        self.looks.iter().flatten().any(|look| {
            matches!(
                look,
                Look::Begun { locked: true, .. } | Look::Decided { locked: true, .. }
            )
        })
    }

    /// Nothing is under way and no look is to come.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.marks == 0
            && self.looks.iter().all(Option::is_none)
            && self.cancel.is_none()
            && self.calls.iter().all(Call::rests)
    }

    /// The batch has ended, and so have its calls; nothing of a teardown is left. Or there was nothing yet.
    #[must_use]
    pub fn is_at_its_end(&self, protocol: &Protocol) -> bool {
        let untouched = protocol
            .waited_for()
            .all(|call| self.calls[call].state == State::Unseen);
        // One that waits for its seal is shown.
        let waits = self.batch.is_open() && (untouched || !self.sealed);
        self.rests()
            && !self.is_announced()
            && (self.batch.is_final() || waits)
            && (self.batch != Batch::Cancelled || self.standing(protocol).next().is_none())
    }

    /// Brings what has no order into one: the two looks, and calls that nothing tells from one another.
    pub fn tidy(&mut self, protocol: &Protocol) {
        if self.looks[0] < self.looks[1] {
            self.looks.swap(0, 1);
            let (first, second) = (self.marks & 0b0010, self.marks & 0b0100);
            self.marks = (self.marks & 0b1001) | first << 1 | second >> 1;
        }
        for (one, other) in [(0, 1), (1, 2), (0, 1)] {
            if protocol.are_alike(one, other) {
                *self = (*self).min(self.exchanged(one, other));
            }
        }
    }

    /// The same with two calls in each other's place.
    fn exchanged(&self, one: usize, other: usize) -> Self {
        let mut world = *self;
        world.calls.swap(one, other);
        world.calls.swap(CALLS + one, CALLS + other);
        let swap = |set: Set| exchanged(exchanged(set, one, other), CALLS + one, CALLS + other);
        for look in world.looks.iter_mut().flatten() {
            if let Look::Decided { verdict, .. } = look {
                *verdict = Verdict {
                    undo: swap(verdict.undo),
                    release: swap(verdict.release),
                    drop: swap(verdict.drop),
                    clear: swap(verdict.clear),
                    ..*verdict
                };
            }
        }
        world
    }
}

fn exchanged(set: Set, one: usize, other: usize) -> Set {
    let rest = set & !(1 << one | 1 << other);
    rest | (set >> one & 1) << other | (set >> other & 1) << one
}

/// The places of a set.
pub fn places(set: Set) -> impl Iterator<Item = usize> {
    (0..PLACES).filter(move |place| set & (1 << place) != 0)
}

/// The set of the places for which something holds.
pub fn set_of(mut holds: impl FnMut(usize) -> bool) -> Set {
    (0..PLACES)
        .filter(|place| holds(*place))
        .fold(0, |set, place| set | 1 << place)
}

/// Whether the call at this place is one of a kind.
#[must_use]
pub fn is_undo(protocol: &Protocol, place: usize) -> bool {
    matches!(protocol.role(place), Role::Undo(_))
}
