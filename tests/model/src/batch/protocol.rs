//! What is varied: the calls, the leaf, the bounds, and the rule that is broken.

use super::world::{Budget, CALLS};

/// What a call is to its batch: `run_when`, and whether it has a `compensate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// There is no such call in this world.
    Unused,
    /// 'ready', without a compensation.
    Ready,
    /// 'ready', and its effect can be undone.
    Undoable,
    /// `batch_succeeded`
    WhenSucceeded,
    /// `batch_failed`
    WhenFailed,
    /// `batch_settled`
    WhenSettled,
    /// The compensation of the call with this number.
    Undo(usize),
}

impl Role {
    /// The batch settles or closes when no such call is live.
    #[must_use]
    pub fn is_waited_for(self) -> bool {
        matches!(self, Self::Ready | Self::Undoable)
    }

    /// It runs after the others, once it is released.
    #[must_use]
    pub fn follows(self) -> bool {
        matches!(
            self,
            Self::WhenSucceeded | Self::WhenFailed | Self::WhenSettled
        )
    }
}

/// A rule of the protocol that a variant leaves out. Each must make a property fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The transaction that cancels also settles the batch, if it finds no live call.
    SettledByTheCancel,
    /// Success is decided and written at once: open → succeeded.
    SuccessInOneStep,
    /// The claim locks the batch's row FOR SHARE and waits for it; the cancel waits for the calls that it cancels.
    ClaimWaitsForTheBatch,
    /// Live calls are counted, up at each insert and down at each end.
    CountedLiveCalls,
    /// A look is one statement. It finds the calls as they were before it had the lock, and the batch's state as it
    /// is then.
    LookInOneStatement,
    /// The same, but it changes only a state that it has found in its snapshot, too.
    LookGuardedByItsState,
    /// A look deletes all marks of its batch that there are when it ends.
    UnreadMarksDeleted,
    /// A look that finds the batch's row locked deletes what marks it has read.
    MarksDeletedWhereSkipped,
    /// The claim looks at the batch before the snapshot that finds the call.
    BatchLookedAtFirst,
    /// Calls in doubt do not hold the batch.
    DoubtsDoNotHold,
    /// Parked calls do not hold the batch.
    ParkedDoNotHold,
    /// A batch that is cancelled is never looked at again.
    TeardownEndsForGood,
    /// Nothing keeps a second compensation of an effect out: no unique key, and the look is one statement. A look whose
    /// snapshot is younger than its lock does that, too.
    UndoneTwice,
    /// A late confirmation takes away the end that is still the only word of its batch's failure.
    AnnouncementGivesWay,
    /// The announcement is taken back in a transaction of its own before the batch's row says it.
    AnnouncementMovesInTwo,
    /// A batch that is closing counts as over where a call ends or a doubt is resolved.
    ClosingCountsAsOver,
    /// A call that was never claimed ends while its batch is closing. The look that decides on success may not have
    /// seen it.
    EndedWhileClosing,
    /// `seal()` leaves no mark.
    SealedWithoutMark,
    /// A look takes back announcements only where it cancels the batch.
    LateAnnouncementStays,
    /// A look waits for the ends whose announcements it takes back. A word that makes one of them give way has it, and
    /// waits for the batch's row.
    LookWaitsForEnds,
    /// Waiting calls are swept only while their batch is cancelling.
    SweptWhileCancelling,
    /// A compensation is sent whether or not its result still stands.
    UndoneUnasked,
    /// The effect is made again by another call of its key although a request of its compensation can still arrive.
    RedoneWhileAlive,
    /// A refusal ends a call of which an earlier request can arrive, or was executed; see
    /// [`crate::protocol::Broken::RefusalEndsTheDoubt`].
    RefusalEndsTheDoubt,
    /// A compensation is sent although a request of the call that it undoes can still arrive.
    ///
    /// A late confirmation ends its call while a newer attempt is under way; where a doubt is sent again, the request
    /// before the one that was confirmed can be late; and a word ends a call in doubt whose request can be on its way.
    UndoneWhileAlive,
}

/// One world to check.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// The batch's calls.
    pub calls: [Role; CALLS],
    /// So many of them are there from the start; the inserts of the others commit at any time.
    pub early: usize,
    /// The app has inserted the batch's row, and says later that there are no more calls.
    pub unsealed: bool,
    /// A doubt waits for somebody's word; otherwise the leaf is asked.
    pub parks: bool,
    /// The same request is sent again while the call is in doubt and its batch is open.
    pub resends: bool,
    /// Transactions that can be open at the same time.
    pub open: usize,
    /// What can happen to the batch, and how often.
    pub budget: Budget,
    /// The rule that is broken.
    pub broken: Option<Broken>,
}

impl Protocol {
    /// The sound protocol, a leaf that can be asked, three transactions open at the same time.
    #[must_use]
    pub fn new(calls: [Role; CALLS], early: usize, budget: Budget) -> Self {
        Self {
            calls,
            early,
            unsealed: false,
            parks: false,
            resends: false,
            open: 3,
            budget,
            broken: None,
        }
    }

    /// The same without one rule.
    #[must_use]
    pub fn without(self, rule: Broken) -> Self {
        Self {
            broken: Some(rule),
            ..self
        }
    }

    /// What the call at this place is. After the batch's own calls come their compensations, in the same order.
    #[must_use]
    pub fn role(&self, place: usize) -> Role {
        if place < CALLS {
            self.calls[place]
        } else if self.calls[place - CALLS] == Role::Undoable {
            Role::Undo(place - CALLS)
        } else {
            Role::Unused
        }
    }

    /// The calls for which the batch waits.
    pub fn waited_for(&self) -> impl Iterator<Item = usize> + use<> {
        let calls = self.calls;
        (0..CALLS).filter(move |call| calls[*call].is_waited_for())
    }

    /// The calls whose effects can be undone.
    pub fn undoable(&self) -> impl Iterator<Item = usize> + use<> {
        let calls = self.calls;
        (0..CALLS).filter(move |call| calls[*call] == Role::Undoable)
    }

    /// Whether nothing tells these calls from one another.
    #[must_use]
    pub fn are_alike(&self, one: usize, other: usize) -> bool {
        self.calls[one] == self.calls[other] && (one < self.early) == (other < self.early)
    }

    /// Whether that rule is broken.
    #[must_use]
    pub fn breaks(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    /// A look is one statement, whose snapshot is older than its lock.
    #[must_use]
    pub fn looks_in_one_statement(&self) -> bool {
        matches!(
            self.broken,
            Some(Broken::LookInOneStatement | Broken::LookGuardedByItsState | Broken::UndoneTwice)
        )
    }
}
