//! The rows of a batch and of its calls, and what is under way for a call.

/// `leafhopper.batch.state`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Batch {
    /// It has no row, which means that it is open.
    #[default]
    Absent,
    /// Calls are claimed.
    Open,
    /// Success is announced, and not yet looked at.
    Closing,
    /// Final.
    Succeeded,
    /// Cancelled, and not yet settled.
    Cancelling,
    /// Settled; its effects are being undone.
    Compensating,
    /// Final, unless a late confirmation comes.
    Cancelled,
}

impl Batch {
    /// Its calls may be claimed.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Absent | Self::Open)
    }

    /// It is neither cancelled nor has it succeeded.
    #[must_use]
    pub fn is_undecided(self) -> bool {
        self.is_open() || self == Self::Closing
    }

    /// Nothing more will happen to it by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Cancelled)
    }
}

/// Where a call stands: `leafhopper.dispatch.state`, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum State {
    /// Its insert has not committed yet, or it is a compensation that nobody has asked for.
    #[default]
    Unseen,
    /// To be claimed, once it is not held.
    Pending,
    /// Claimed: it may have been sent.
    Dispatching,
    /// It may have been executed.
    InDoubt,
    /// It waits for somebody's word.
    Parked,
    /// Final, with a standing result.
    Confirmed,
    /// Final; `undone_at` of its result is set.
    Undone,
    /// Final: the leaf said no, or its time was over.
    Failed,
    /// Final: not to be sent any more.
    Cancelled,
}

impl State {
    /// It has a row in `leafhopper.dispatch`.
    #[must_use]
    pub fn is_live(self) -> bool {
        self == Self::Pending || self.is_under_way()
    }

    /// It may have been sent, and how that ended is not known.
    #[must_use]
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Dispatching | Self::InDoubt | Self::Parked)
    }

    /// It ended, and has no result.
    #[must_use]
    pub fn has_failed(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }
}

/// How far the transaction of a claim has come; it takes one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Claim {
    /// It has found its batch open, and has no snapshot that shows the call.
    LookedAtTheBatch,
    /// Its snapshot shows the call.
    Found {
        /// Observed: the commit that cancels the batch is older than this snapshot.
        late: bool,
    },
    /// It has the call's row and waits for its batch's.
    Waits,
}

/// How far an attempt has come in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attempt {
    /// The claim's commit is known; the request is sent, or is about to be.
    Sent,
    /// The leaf said that it was done; to be recorded.
    Confirmed,
    /// The leaf said no; to be recorded.
    Refused,
}

/// A request whose sender has no answer, and will get none unless it comes late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Wire {
    /// There is none.
    #[default]
    Empty,
    /// It can arrive.
    Request,
    /// It is believed to be lost.
    Forgotten,
}

/// The transaction that ends a call, or resolves a doubt: what its snapshot makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ending {
    /// Why.
    pub kind: Kind,
    /// The batch is neither cancelled nor has it succeeded.
    pub undecided: bool,
}

/// Why a call ends, or a doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The leaf said no.
    Refused,
    /// Its deadline has passed, or the app has cancelled it, before it was claimed.
    Expired,
    /// A probe or a person says that it was not executed; of a compensation, that the effect is there.
    NotExecuted,
}

/// A call, and what is under way for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Call {
    /// As committed.
    pub state: State,
    /// `held = 'batch'`
    pub held: bool,
    /// `finished.fails_batch`: this end is the announcement, and the batch's row does not say so yet.
    pub announces: bool,
    /// `in_doubt_since` is set.
    pub doubtful: bool,
    /// A claim that would take it.
    pub claim: Option<Claim>,
    /// The attempt that its latest claim began.
    pub attempt: Option<Attempt>,
    /// What would end it.
    pub ending: Option<Ending>,
    /// An earlier request of it.
    pub wire: Wire,
    /// Its late answer, to be recorded: `confirm()`, or a process that was taken for dead.
    pub heard: bool,
    /// The transaction of a word of the app that it is confirmed; it has the row's lock.
    pub word: bool,
    /// A result stands that such a word has left while the call was claimed.
    pub said: bool,
    /// The leaf's books: its effect is there.
    pub stands: bool,
    /// The same of an effect with its key that is another batch's.
    pub redone: bool,
    /// Observed: it has been claimed.
    pub claimed: bool,
    /// Observed: how many compensations it has got.
    pub undos: u8,
}

impl Call {
    /// A request of it can arrive at the leaf, as far as anybody can know.
    #[must_use]
    pub fn may_arrive(&self) -> bool {
        self.attempt == Some(Attempt::Sent) || self.wire == Wire::Request
    }

    /// Nothing is under way for it, and it is final or was never inserted.
    #[must_use]
    pub fn rests(&self) -> bool {
        !self.state.is_live()
            && self.claim.is_none()
            && self.attempt.is_none()
            && self.ending.is_none()
            && !self.word
            && self.wire == Wire::Empty
            && !self.heard
    }
}
