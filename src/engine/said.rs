//! Which failures at the database are worth a line in the log: each cause once, and few in a short time.

use std::time::Duration;

use tokio::time::Instant;

/// Of one outage, so many causes are remembered, and not logged again.
const CAUSES_MAX: usize = 32;

/// Where one follows the other, as while a server starts, no more than so many are logged in this time: what an outage
/// begins with need not be what it stays with.
const LINES_MAX: u32 = 8;
const LINES_IN: Duration = Duration::from_secs(10);

/// What was logged.
#[derive(Debug, Default)]
pub(super) struct Said {
    causes: Vec<Cause>,
    /// Something was said that no success has followed.
    told: bool,
    /// Lines, and since when they are counted.
    lines: u32,
    since: Option<Instant>,
}

#[derive(Debug)]
struct Cause {
    text: String,
    /// When it was said last.
    at: Instant,
    /// A success has come since.
    passed: bool,
}

impl Said {
    /// Whether the cause is to be logged now: once in an outage, and where it comes and goes, once in [`LINES_IN`].
    pub(super) fn is_news(&mut self, text: String, now: Instant) -> bool {
        if self.since.is_none_or(|since| now >= since + LINES_IN) {
            (self.lines, self.since) = (0, Some(now));
        }
        let known = self.causes.iter().position(|cause| cause.text == text);
        let is_known = known.is_some_and(|at| {
            let cause = &self.causes[at];
            !cause.passed || now < cause.at + LINES_IN
        });
        if is_known || self.lines >= LINES_MAX {
            return false;
        }
        if let Some(at) = known {
            self.causes.remove(at);
        } else if self.causes.len() >= CAUSES_MAX {
            self.causes.remove(0);
        }
        self.lines += 1;
        self.told = true;
        self.causes.push(Cause {
            text,
            at: now,
            passed: false,
        });
        true
    }

    /// The database answers, if only to some. Whether that is to be logged.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        self.causes.retain(|cause| now < cause.at + LINES_IN);
        for cause in &mut self.causes {
            cause.passed = true;
        }
        std::mem::take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_others_came_before_is_said_a_little_later() {
        let mut said = Said::default();
        let mut now = Instant::now();
        for number in 0..LINES_MAX {
            assert!(said.is_news(format!("passing {number}"), now));
        }
        assert!(!said.is_news("lasting".to_owned(), now));
        now += LINES_IN;
        assert!(said.is_news("lasting".to_owned(), now));
        assert!(!said.is_news("lasting".to_owned(), now));
        for number in 0..CAUSES_MAX * 4 {
            now += LINES_IN;
            said.is_news(format!("other {number}"), now);
        }
        assert_eq!(said.causes.len(), CAUSES_MAX);
    }

    #[test]
    fn what_fails_beside_what_works_is_said_now_and_then() {
        let mut said = Said::default();
        let mut now = Instant::now();
        let mut lines = 0;
        for _ in 0..100 {
            lines += u32::from(said.is_news("a lock".to_owned(), now));
            lines += u32::from(said.is_over(now));
            now += LINES_IN / 50;
        }
        assert_eq!(lines, 4);
        assert!(said.is_news("another".to_owned(), now));
    }
    #[test]
    fn an_outage_that_follows_a_moment_s_success_is_said() {
        let mut said = Said::default();
        let now = Instant::now();
        let refused = || "refused".to_owned();
        assert!(said.is_news(refused(), now));
        assert!(said.is_over(now + LINES_IN / 10));
        assert!(!said.is_news(refused(), now + LINES_IN / 3));
        assert!(said.is_news(refused(), now + LINES_IN));
        assert!(!said.is_news(refused(), now + LINES_IN * 100));
        assert!(said.is_over(now + LINES_IN * 101));
    }
}
