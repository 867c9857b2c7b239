//! This instance's own view of its lease: until when it may send.
//!
//! On a clock that counts the time in which the machine was suspended: an instance that wakes up after an
//! hour must not find its lease still running (`clock_gettime(2)`, `CLOCK_BOOTTIME`).

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// A moment on the clock that counts suspended time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanos))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// Until when this instance may send. Starts run out.
///
/// A term is a time without a gap: once the lease has run out, others may have taken over what was claimed
/// before, and a renewal does not give it back.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    until: Option<BootTime>,
    term: u64,
}

impl Lease {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease was renewed by a request that was made at `asked`. A tenth of it is kept back: the
    /// database's clock may run a little faster than this one.
    pub(crate) fn renewed(&self, asked: BootTime, lease: Duration) {
        let mut state = self.state();
        // Not whether it still ran at `asked`: the request may have been carried out much later.
        if !state.runs() {
            state.term += 1;
        }
        let until = BootTime(asked.0 + lease - lease / 10);
        state.until = state.until.max(Some(until));
    }

    /// A renewal is asked for that may make the lease shorter than it was, whether or not its reply comes.
    pub(crate) fn shortened(&self, asked: BootTime, lease: Duration) {
        let mut state = self.state();
        let until = BootTime(asked.0 + lease - lease / 10);
        state.until = state.until.map(|known| known.min(until));
    }

    /// Somebody else took over.
    pub(crate) fn lost(&self) {
        self.state().until = None;
    }

    /// The latest term.
    pub(crate) fn term(&self) -> u64 {
        self.state().term
    }

    /// Whether something may be sent now.
    pub(crate) fn runs(&self) -> bool {
        self.state().runs()
    }

    /// Whether what was claimed in that term may be sent now.
    pub(crate) fn runs_in(&self, term: u64) -> bool {
        let state = self.state();
        state.term == term && state.runs()
    }
}

impl State {
    fn runs(&self) -> bool {
        self.until.is_some_and(|until| BootTime::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_runs_from_the_request_and_less_than_its_length() {
        let lease = Lease::default();
        assert!(
            !lease.runs(),
            "before the first renewal nothing may be sent"
        );
        let now = BootTime::now();
        lease.renewed(now, Duration::from_secs(30));
        assert!(lease.runs());
        lease.lost();
        assert!(!lease.runs());
        lease.renewed(
            BootTime(now.0.saturating_sub(Duration::from_secs(28))),
            Duration::from_secs(30),
        );
        assert!(!lease.runs(), "the last tenth is kept back");
    }

    #[test]
    fn a_lease_that_gets_shorter_is_shorter_from_the_request_on() {
        let lease = Lease::default();
        let now = BootTime::now();
        lease.renewed(now, Duration::from_secs(30));
        lease.shortened(now, Duration::from_secs(60));
        assert!(lease.runs(), "a longer one takes nothing away");
        let earlier = BootTime(now.0.saturating_sub(Duration::from_secs(5)));
        lease.shortened(earlier, Duration::from_secs(2));
        assert!(!lease.runs());
    }

    #[test]
    fn what_was_claimed_before_a_gap_is_not_sent_after_it() {
        let lease = Lease::default();
        let long = Duration::from_secs(30);
        lease.renewed(BootTime::now(), long);
        let term = lease.term();
        lease.renewed(BootTime::now(), long);
        assert!(lease.runs_in(term), "a renewal in time goes on");
        lease.lost();
        assert!(!lease.runs_in(term));
        lease.renewed(BootTime::now(), long);
        assert!(lease.runs() && !lease.runs_in(term));

        let lease = Lease::default();
        let now = BootTime::now();
        lease.renewed(BootTime(now.0.saturating_sub(long)), long);
        let term = lease.term();
        assert!(!lease.runs_in(term), "it has run out by itself");
        lease.renewed(now, long);
        assert!(lease.runs() && !lease.runs_in(term));
    }
}
