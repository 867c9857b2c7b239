//! The claims that this instance holds: what may not be given back, and what tells a lost commit.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::domain::call::CallId;

/// Rounds of claiming and the calls that they took.
#[derive(Debug, Default)]
pub(crate) struct Held {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_round: i64,
    open: BTreeSet<i64>,
    calls: HashMap<CallId, i64>,
}

/// What is held at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The last round that was begun.
    pub(crate) last_round: i64,
    /// Rounds whose outcome is not known yet.
    pub(crate) open: Vec<i64>,
    /// The held calls with their rounds.
    pub(crate) calls: Vec<(CallId, i64)>,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a round: from now until it is closed, what it may have claimed is not given back.
    pub(crate) fn open_round(&self) -> i64 {
        let mut state = self.state();
        state.last_round += 1;
        let round = state.last_round;
        state.open.insert(round);
        round
    }

    /// The round's outcome is known: it took these calls. After a lost reply it is closed without calls,
    /// and what it took is given back.
    pub(crate) fn close_round(&self, round: i64, calls: impl IntoIterator<Item = CallId>) {
        let mut state = self.state();
        state
            .calls
            .extend(calls.into_iter().map(|call| (call, round)));
        state.open.remove(&round);
    }

    /// The claim is over: its call is recorded.
    pub(crate) fn release(&self, call: CallId, round: i64) {
        let mut state = self.state();
        // A later claim of the same call may be held already.
        if state.calls.get(&call) == Some(&round) {
            state.calls.remove(&call);
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.state();
        Snapshot {
            last_round: state.last_round,
            open: state.open.iter().copied().collect(),
            calls: state
                .calls
                .iter()
                .map(|(call, round)| (*call, *round))
                .collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.state().calls.len()
    }
}
