//! A leaf's rate limit: a bucket of tokens, filled at this instance's share of the rate.
//!
//! Of its own and not a limiter crate's, since a claim must know how many tokens there are before it asks
//! the database for as many calls, and take only those that it used.

use std::time::Duration;

use tokio::time::Instant;

/// A tenth of a second's tokens may be used at once.
const BURST: f64 = 0.1;

/// A token for each attempt.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            per_second: 0.0,
            tokens: 0.0,
            filled: now,
        }
    }

    fn capacity(&self) -> f64 {
        (self.per_second * BURST).max(1.0)
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled);
        self.filled = now;
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second).min(self.capacity());
    }

    /// Sets the share of the rate, in attempts per second.
    pub(crate) fn set_rate(&mut self, per_second: f64, now: Instant) {
        self.fill(now);
        self.per_second = per_second;
        self.tokens = self.tokens.min(self.capacity());
    }

    /// How many attempts may be made now.
    pub(crate) fn available(&mut self, now: Instant) -> u32 {
        self.fill(now);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 0, and a float saturates"
        )]
        let whole = self.tokens.floor() as u32;
        whole
    }

    /// Uses tokens.
    pub(crate) fn take(&mut self, tokens: u32) {
        self.tokens -= f64::from(tokens);
    }

    /// An attempt that was not made gives its token back.
    pub(crate) fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.capacity());
    }

    /// How long until there are so many tokens, or as many as it holds.
    pub(crate) fn until(&self, tokens: u32) -> Duration {
        if self.per_second <= 0.0 {
            return Duration::from_secs(1);
        }
        Duration::try_from_secs_f64(
            (f64::from(tokens).min(self.capacity()) - self.tokens).max(0.0) / self.per_second,
        )
        .unwrap_or(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_and_one_burst_is_given() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        bucket.set_rate(50.0, start);
        let mut taken = 0;
        for step in 0..1000_u32 {
            let now = start + Duration::from_millis(10) * step;
            let available = bucket.available(now);
            bucket.take(available);
            taken += available;
        }
        assert!(
            (495..=505).contains(&taken),
            "10 s at 50/s and a burst of 5 gave {taken}"
        );
    }
}
