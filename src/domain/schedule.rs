//! How long to wait before the next attempt: the one place that uses the `backoff` crate.
//!
//! Attempts are counted in the database, not in a running loop, so the crate's state is rebuilt for
//! each call of [`Schedule::delay`]. Of the crate only its arithmetic is used, and its traps are closed:
//! its elapsed-time limit (15 minutes by default) is off, its jitter is applied after its cap and so is
//! clamped again here, and a factor above 1 (which gives delays of zero) can't be configured.

use std::time::Duration;

use backoff::{ExponentialBackoff, backoff::Backoff as _};

/// Exponential delays, bounded and jittered. Checked when the configuration is loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The delay after the first attempt.
    pub initial: Duration,
    /// No delay is longer.
    pub max: Duration,
    /// What each delay is multiplied by for the next one; at least 1.
    pub multiplier: f64,
    /// A delay is drawn from ± this part of it; 0 to 1.
    pub jitter: f64,
}

impl Schedule {
    /// The delay before the attempt that follows `failures` failed ones (1 for the first retry),
    /// without jitter. Never more than `max`, never overflowing.
    #[must_use]
    pub fn base(&self, failures: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial.as_secs_f64() * self.multiplier.powi(exponent);
        if seconds.is_finite() && seconds < self.max.as_secs_f64() {
            Duration::from_secs_f64(seconds)
        } else {
            self.max
        }
    }

    /// How many failures have been waited for when so much time has passed: the place in the schedule of
    /// something that is tried again and again without being counted.
    #[must_use]
    pub fn failures_within(&self, time: Duration) -> u32 {
        let mut failures = 1;
        let mut waited = self.base(failures);
        while waited < time && self.base(failures) < self.max {
            failures += 1;
            waited += self.base(failures);
        }
        failures
    }

    /// The delay with jitter, at least `lower_bound` (a leaf's `Retry-After`) and else at most `max`.
    ///
    /// A bound that decides is itself jittered, upwards: whoever tells a thousand calls to come back in a minute is not
    /// to meet them all at once.
    #[must_use]
    pub fn delay(&self, failures: u32, lower_bound: Option<Duration>) -> Duration {
        let delay = self.jittered(self.base(failures)).min(self.max);
        match lower_bound {
            Some(bound) if bound > delay => {
                bound.saturating_add(self.jittered(bound).abs_diff(bound))
            }
            _ => delay,
        }
    }

    fn jittered(&self, delay: Duration) -> Duration {
        let mut state = ExponentialBackoff {
            current_interval: delay,
            randomization_factor: self.jitter.clamp(0.0, 1.0),
            max_interval: delay,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        state.next_backoff().unwrap_or(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_kept_by_all_and_spread_upwards() {
        let schedule = Schedule {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(60),
            multiplier: 2.0,
            jitter: 0.3,
        };
        let bound = Duration::from_secs(100);
        let delays: Vec<Duration> = (0..100).map(|_| schedule.delay(1, Some(bound))).collect();
        let (least, most) = (delays.iter().min(), delays.iter().max());
        assert!(least >= Some(&bound) && most <= Some(&Duration::from_secs(130)));
        assert!(most > Some(&Duration::from_secs(115)), "{most:?}");
        // One that the backoff is longer than changes nothing.
        let delay = schedule.delay(7, Some(Duration::from_secs(1)));
        assert!((42..=60).contains(&delay.as_secs()), "{delay:?}");
    }
}
