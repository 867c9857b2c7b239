//! What is varied: the leaf, the keys, the bounds, and the rule that is broken.

use crate::world::{Budget, CALLS};

/// What the leaf offers against doubt, and what the protocol does with it (`in_doubt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// It can be asked.
    Probed,
    /// It honours an idempotency key for a while.
    Deduplicating,
    /// The method does twice what it does once.
    Idempotent,
    /// Nothing: a doubt waits for somebody's word.
    Parking,
}

/// A rule of the protocol that a variant leaves out. Each must make a property fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A lease that runs out makes its calls pending, not a doubt.
    ResendOnExpiry,
    /// `settle` counts from the claim, not from when the attempt can last have been alive.
    SettleFromTheClaim,
    /// The prior result is looked up in the snapshot that finds the call.
    PriorInTheClaimsSnapshot,
    /// `NOT EXISTS` alone excludes others of a key.
    NoUniqueIndex,
    /// What an attempt that did not confirm says is recorded whoever holds the call by then.
    RecordWithoutTheClaim,
    /// The same of refusals only.
    LateRefusal,
    /// A confirmation is recorded only while the call's row names its claim, as all else is.
    ConfirmationOfTheClaimOnly,
    /// A call waits while another of its key is not final, whether or not that one is under way.
    WaitForAnyOther,
    /// Nobody sweeps what is held for a key.
    NoSweepOfHeld,
    /// Nobody gives back what a lost reply claimed.
    NoGiveBack,
    /// A lease that was renewed after a gap covers what was claimed before it.
    LeaseWithoutTerms,
    /// A takeover takes whatever claim it finds on a row once it has locked it: another instance's, or a newer one of
    /// the same instance. Its `alive_until` then leaves out the end of a lease that still runs.
    TakeoverOfAnyClaim,
    /// An effect is forgotten although an attempt of its key can still be alive.
    ///
    /// `forget()` refuses while a call of the key is dispatching, in doubt or parked. But a late confirmation ends its
    /// call while a newer attempt is under way, and `confirm()` ends one in doubt, whose attempt can be alive.
    ForgetWhileAlive,
    /// A refusal under the same key is believed although the request before it can still arrive.
    ///
    /// `decide` fails the call at once where the leaf dedups. A leaf that remembers only what succeeded can still
    /// execute the first request, when it arrives after the second.
    RefusalEndsTheDoubt,
}

impl Protocol {
    /// The sound protocol, one claim's slot, two transactions open at the same time.
    #[must_use]
    pub fn new(leaf: Leaf, one_key: bool, budget: Budget) -> Self {
        Self {
            leaf,
            one_key,
            budget,
            open: 2,
            slots: 1,
            probes: 1,
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
}

/// One world to check.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// The leaf.
    pub leaf: Leaf,
    /// Both calls mean the same effect.
    pub one_key: bool,
    /// What can go wrong, and how often.
    pub budget: Budget,
    /// Transactions that can be open at the same time, 3 at most.
    pub open: usize,
    /// Calls that one claim takes at most.
    pub slots: u32,
    /// Probes that can be under way at the same time, 2 at most.
    pub probes: usize,
    /// The rule that is broken.
    pub broken: Option<Broken>,
}

impl Protocol {
    /// The key of a call.
    #[must_use]
    pub fn key(&self, call: usize) -> usize {
        if self.one_key { 0 } else { call }
    }

    /// The calls of a key.
    pub fn calls_of(&self, key: usize) -> impl Iterator<Item = usize> + use<> {
        let one_key = self.one_key;
        (0..CALLS).filter(move |call| one_key || *call == key)
    }

    /// The other calls of a call's key.
    pub fn others(&self, call: usize) -> impl Iterator<Item = usize> + use<> {
        self.calls_of(self.key(call))
            .filter(move |other| *other != call)
    }

    /// The keys.
    pub fn keys(&self) -> std::ops::Range<usize> {
        0..if self.one_key { 1 } else { CALLS }
    }

    /// Whether that rule is broken.
    #[must_use]
    pub fn breaks(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    /// Sending again is how doubts of this leaf are resolved.
    #[must_use]
    pub fn resends(&self) -> bool {
        matches!(self.leaf, Leaf::Deduplicating | Leaf::Idempotent)
    }
}
