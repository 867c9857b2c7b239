//! Whether so much work comes in that looking for it all the time costs less than being told of each piece.
//!
//! A transaction that notifies commits alone: the queue of notifications has one lock, held over the flush of the log
//! (PostgreSQL, LISTEN/NOTIFY). A few hundred a second don't notice; above that, producers would wait for each other.

use std::time::Duration;

use tokio::time::Instant;

/// It is busy from so many calls, or notifications, within [`WINDOW`] on: four hundred a second.
const MANY: usize = 40;

const WINDOW: Duration = Duration::from_millis(100);

/// And for so long after.
const LASTS: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Busy {
    since: Instant,
    seen: usize,
    until: Option<Instant>,
}

impl Busy {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            seen: 0,
            until: None,
        }
    }

    /// So many calls have come in, or notifications.
    pub(super) fn saw(&mut self, many: usize, now: Instant) {
        if now.duration_since(self.since) > WINDOW {
            self.since = now;
            self.seen = 0;
        }
        self.seen = self.seen.saturating_add(many);
        if self.seen >= MANY {
            self.until = Some(now + LASTS);
        }
    }

    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_at_once_make_it_busy_for_a_while() {
        let start = Instant::now();
        let mut busy = Busy::new(start);
        assert!(!busy.is_busy(start));
        busy.saw(MANY, start);
        assert!(busy.is_busy(start));
        assert!(busy.is_busy(start + LASTS - Duration::from_millis(1)));
        assert!(!busy.is_busy(start + LASTS));
    }

    #[test]
    fn a_steady_stream_makes_it_busy_only_above_a_rate() {
        let at_rate = |each_second: u64| {
            let start = Instant::now();
            let mut busy = Busy::new(start);
            let mut now = start;
            while now < start + Duration::from_secs(2) {
                busy.saw(1, now);
                now += Duration::from_micros(1_000_000 / each_second);
            }
            busy.is_busy(now)
        };
        assert!(!at_rate(100));
        assert!(!at_rate(350));
        assert!(at_rate(450));
        assert!(at_rate(5_000));
    }
}
