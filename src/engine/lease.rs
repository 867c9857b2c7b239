//! This instance's own view of its lease: until when it may send.
//!
//! On a clock that counts the time in which the machine was suspended: an instance that wakes up after an
//! hour must not find its lease still running (`clock_gettime(2)`, `CLOCK_BOOTTIME`).

use std::{
    sync::atomic::{AtomicU64, Ordering},
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
}

/// Until when this instance may send. Starts run out.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    until_millis: AtomicU64,
}

impl Lease {
    /// The lease was renewed by a request that was made at `asked`. A tenth of it is kept back: the
    /// database's clock may run a little faster than this one.
    pub(crate) fn renewed(&self, asked: BootTime, lease: Duration) {
        let until = asked.0 + lease - lease / 10;
        let millis = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.until_millis.fetch_max(millis, Ordering::SeqCst);
    }

    /// Somebody else took over.
    pub(crate) fn lost(&self) {
        self.until_millis.store(0, Ordering::SeqCst);
    }

    /// Whether something may be sent now.
    pub(crate) fn runs(&self) -> bool {
        BootTime::now().0.as_millis() < u128::from(self.until_millis.load(Ordering::SeqCst))
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
}
