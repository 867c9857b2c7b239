//! How long a leaf's answers take lately, out of counters that only grow: what was counted since an earlier look.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::metrics::Metrics;

/// What is told is of about this long, where somebody has looked before.
const LATELY: Duration = Duration::from_mins(5);

/// A look is kept at most so often.
const EACH: Duration = Duration::from_secs(10);

/// The counters at one time: buckets by leaf.
#[derive(Debug)]
struct Look {
    at: Instant,
    leaves: BTreeMap<String, Buckets>,
}

/// For each bound how many took no longer, and how many there were.
type Buckets = (Vec<(f64, u64)>, u64);

/// The looks of the last minutes.
#[derive(Debug)]
pub(super) struct Latencies {
    looks: Mutex<VecDeque<Look>>,
}

impl Default for Latencies {
    /// When the process starts, all counters are zero.
    fn default() -> Self {
        let start = Look {
            at: Instant::now(),
            leaves: BTreeMap::new(),
        };
        Self {
            looks: Mutex::new(VecDeque::from([start])),
        }
    }
}

/// Seconds within which half of the attempts ended, and nineteen of twenty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Latency {
    pub(super) half: f64,
    pub(super) most: f64,
}

impl Latencies {
    /// Looks; gives each leaf's latency, and over how long that is.
    pub(super) fn look(
        &self,
        metrics: &Metrics,
        leaves: &[String],
        now: Instant,
    ) -> (BTreeMap<String, Latency>, Duration) {
        let counted = leaves.iter();
        let counted: BTreeMap<String, Buckets> = counted
            .map(|leaf| (leaf.clone(), metrics.durations(leaf)))
            .collect();
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        // The first look is the one to compare with: the last of those that are old enough, or the oldest there is.
        while looks
            .get(1)
            .is_some_and(|second| now.duration_since(second.at) >= LATELY)
        {
            looks.pop_front();
        }
        let (told, over) = looks.front().map_or_else(Default::default, |first| {
            let told = counted.iter().filter_map(|(leaf, buckets)| {
                let latency = since(first.leaves.get(leaf), buckets)?;
                Some((leaf.clone(), latency))
            });
            (told.collect(), now.duration_since(first.at))
        });
        if looks
            .back()
            .is_none_or(|last| now.duration_since(last.at) >= EACH)
        {
            looks.push_back(Look {
                at: now,
                leaves: counted,
            });
        }
        (told, over)
    }
}

/// Of what was counted since; `None` where nothing was.
fn since(before: Option<&Buckets>, (buckets, count): &Buckets) -> Option<Latency> {
    let earlier = |index: usize| -> u64 {
        let bucket = before.and_then(|(buckets, _)| buckets.get(index));
        bucket.map_or(0, |(_, count)| *count)
    };
    let new = buckets.iter().enumerate();
    let new: Vec<(f64, u64)> = new
        .map(|(index, (bound, count))| (*bound, count.saturating_sub(earlier(index))))
        .collect();
    let count = count.saturating_sub(before.map_or(0, |(_, count)| *count));
    (count > 0).then(|| Latency {
        half: quantile(&new, count, 0.5),
        most: quantile(&new, count, 0.95),
    })
}

/// Between a bucket's bounds the times are taken to lie evenly; what is beyond the last bound is infinite.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn quantile(buckets: &[(f64, u64)], count: u64, part: f64) -> f64 {
    let rank = count as f64 * part;
    let (mut lower, mut below) = (0.0, 0);
    for (bound, up_to) in buckets {
        if *up_to as f64 >= rank {
            let here = (*up_to - below).max(1) as f64;
            return lower + (bound - lower) * (rank - below as f64) / here;
        }
        (lower, below) = (*bound, *up_to);
    }
    f64::INFINITY
}

/// A short time, in words.
pub(super) fn short(seconds: f64) -> String {
    if seconds.is_infinite() {
        "over 1 min".to_owned()
    } else if seconds < 0.01 {
        format!("{:.1} ms", seconds * 1e3)
    } else if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{seconds:.1} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_of_the_last_minutes() {
        let metrics = Metrics::new();
        let leaves = ["git".to_owned()];
        let times = metrics.call_duration_seconds.with_label_values(&["git"]);
        let latencies = Latencies::default();
        let start = Instant::now();
        let at = |minutes| start + Duration::from_mins(minutes);
        assert_eq!(latencies.look(&metrics, &leaves, start).0, BTreeMap::new());
        for _ in 0..100 {
            times.observe(0.004);
        }
        let (told, over) = latencies.look(&metrics, &leaves, at(1));
        assert_eq!(over.as_secs(), 60);
        assert!(told["git"].most < 0.005, "{told:?}");
        for minute in 2..8 {
            latencies.look(&metrics, &leaves, at(minute));
        }
        // By now those are too long ago; two that were slow count alone.
        times.observe(20.0);
        times.observe(20.0);
        let (told, over) = latencies.look(&metrics, &leaves, at(7));
        assert_eq!(over.as_secs(), 300);
        assert!(told["git"].half > 10.0, "{told:?}");
    }

    #[test]
    fn quantiles_lie_inside_their_bucket() {
        let buckets = [(0.1, 50), (0.2, 90), (1.0, 95)];
        assert!((quantile(&buckets, 100, 0.5) - 0.1).abs() < 1e-9);
        assert!((quantile(&buckets, 100, 0.95) - 1.0).abs() < 1e-9);
        assert!(quantile(&buckets, 100, 0.99).is_infinite());
        assert_eq!(short(0.0042), "4.2 ms");
        assert_eq!(short(0.25), "250 ms");
        assert_eq!(short(2.0), "2.0 s");
    }
}
