//! Every series in one place; the help texts are the documentation.
//!
//! Two kinds: what this process did (counters and histograms, moved only by [`crate::observe`]) and what
//! the tables hold (gauges, set only by [`Metrics::set_counts`] and its siblings at a scrape). Labels come from
//! the configuration and from fixed lists, never from rows: calls for leaves that are not configured here
//! count under `(unknown)`, and a leaf's gauges go with it. Known label values are touched at start, so that an alert has a zero to look at.

use std::collections::{BTreeMap, HashMap};

use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
    core::{Collector, MetricVec, MetricVecBuilder},
    process_collector::ProcessCollector,
};

use crate::store::{
    operator::{FAILED_REASONS, PARKED_REASONS, PENDING_REASONS},
    prune::Counts,
    stats::{Count, Overview},
};

/// From below the time of one round trip to beyond the longest usual time limit of a leaf.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Calls in one transaction.
const GROUP: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The label of leaves that no configuration of this instance names.
pub const UNKNOWN: &str = "(unknown)";

const STATES: &[&str] = &["pending", "dispatching", "accepted", "in_doubt", "parked"];
const FINAL: &[&str] = &["confirmed", "failed", "cancelled", "expired"];
const CLASSES: &[&str] = &[
    "confirmed",
    "confirmed_again",
    "exists",
    "retry",
    "in_doubt",
    "failed",
];
/// Of stuck calls that the view gives no reason: in doubt for long, dispatching past the lease, due and not sent.
const STUCK: &[&str] = &["in_doubt", "lease_over", "due"];
/// Of pending calls that the view gives no reason: it is their turn, or not yet.
const PENDING: &[&str] = &["due", "not_due"];
const BATCHES: &[&str] = &["open", "closing", "cancelling", "compensating"];
const STUCK_BATCHES: &[&str] = &[
    "cancelling",
    "compensating",
    "teardown_incomplete",
    "leaf_unknown",
    "unsealed",
];

/// A kind of series that can be made of a name, a help text, labels and buckets.
trait Series: Collector + Clone + Sized + 'static {
    fn make(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> prometheus::Result<Self>;
}

macro_rules! series {
    ($($kind:ident: |$name:ident, $help:ident, $labels:ident, $buckets:ident| $made:expr;)*) => {$(
        impl Series for $kind {
            fn make(
                $name: &str,
                $help: &str,
                $labels: &[&str],
                $buckets: &[f64],
            ) -> prometheus::Result<Self> {
                $made
            }
        }
    )*};
}

series! {
    IntCounter: |name, help, _labels, _buckets| Self::with_opts(opts(name, help));
    IntGauge: |name, help, _labels, _buckets| Self::with_opts(opts(name, help));
    IntCounterVec: |name, help, labels, _buckets| Self::new(opts(name, help), labels);
    IntGaugeVec: |name, help, labels, _buckets| Self::new(opts(name, help), labels);
    GaugeVec: |name, help, labels, _buckets| Self::new(opts(name, help), labels);
    Histogram: |name, help, _labels, buckets| Self::with_opts(histogram(name, help, buckets));
    HistogramVec: |name, help, labels, buckets| Self::new(histogram(name, help, buckets), labels);
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help.trim()).namespace("leafhopper")
}

fn histogram(name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec())
}

/// Declares the series once: the field's name is the metric's, its documentation the help text.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident [$($label:literal),*] $buckets:expr;)*) => {
        /// All series of this process.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            $($(#[doc = $help])+ pub(crate) $name: $kind,)*
        }

        impl Metrics {
            /// All series at zero.
            ///
            /// # Panics
            /// Never: the names are constants of this file, valid and different.
            #[must_use]
            pub fn new() -> Self {
                let registry = Registry::new();
                let metrics = Self {
                    $($name: {
                        let help = concat!($($help),+);
                        let made = $kind::make(stringify!($name), help, &[$($label),*], $buckets);
                        let metric = made.expect("a valid name");
                        registry.register(Box::new(metric.clone())).expect("a name of its own");
                        metric
                    },)*
                    registry,
                };
                let process = ProcessCollector::for_self();
                metrics.registry.register(Box::new(process)).expect("names of its own");
                metrics.build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
                metrics.touch_rows(UNKNOWN);
                for table in Counts::NAMES {
                    metrics.pruned_rows_total.with_label_values(&[table]);
                }
                metrics.set_overview(&[], &Overview::default());
                metrics
            }
        }
    };
}

metrics! {
    /// Calls that are not final, from the database.
    calls: IntGaugeVec ["leaf", "state"] &[];
    /// Pending calls by what they wait for, from the database; `due` and `not_due` wait for nothing but their turn.
    pending_calls: IntGaugeVec ["leaf", "reason"] &[];
    /// How long the oldest due call has been due.
    oldest_due_age_seconds: GaugeVec ["leaf"] &[];
    /// How long the oldest call in doubt has been so.
    oldest_doubt_age_seconds: GaugeVec ["leaf"] &[];
    /// Calls that will not move by themselves, or have not for long.
    stuck_calls: IntGaugeVec ["leaf", "reason"] &[];
    /// Batches that are not final.
    batches: IntGaugeVec ["state"] &[];
    /// Batches that wait for somebody, or have not moved for long.
    stuck_batches: IntGaugeVec ["reason"] &[];
    /// Whether the leaf is paused.
    paused: IntGaugeVec ["leaf"] &[];
    /// Instances whose lease runs.
    instances: IntGauge [] &[];
    /// Attempts by what they came to.
    attempts_total: IntCounterVec ["leaf", "class"] &[];
    /// Calls that this instance saw become final.
    calls_finished_total: IntCounterVec ["leaf", "state"] &[];
    /// Calls that this instance saw fail, by the reason.
    calls_failed_total: IntCounterVec ["leaf", "reason"] &[];
    /// Calls that were inserted while triggers were off, and were taken up.
    untracked_calls_total: IntCounter [] &[];
    /// Rows of what ended long ago that this instance took away.
    pruned_rows_total: IntCounterVec ["table"] &[];
    /// Calls that were not sent since their effect stood.
    duplicates_prevented_total: IntCounterVec ["leaf", "how"] &[];
    /// Effects that a probe without `found` took for a call's own.
    weak_adoptions_total: IntCounterVec ["leaf"] &[];
    /// Probes by what they found.
    probes_total: IntCounterVec ["leaf", "verdict"] &[];
    /// Time of one attempt, the body included.
    call_duration_seconds: HistogramVec ["leaf"] SECONDS;
    /// From when a call was due (at first: its insert) to its request.
    commit_to_send_seconds: HistogramVec ["leaf"] SECONDS;
    /// Calls that this instance holds.
    in_flight: IntGaugeVec ["leaf"] &[];
    /// This instance's share of the leaf's concurrency.
    concurrency_limit: IntGaugeVec ["leaf"] &[];
    /// Whether the leaf, or one of its credentials, is not tried now.
    breaker_open: IntGaugeVec ["leaf"] &[];
    /// Time of one round of claiming.
    claim_seconds: Histogram [] SECONDS;
    /// Time to record one group.
    record_seconds: Histogram [] SECONDS;
    /// Calls recorded in one group.
    record_batch_size: Histogram [] GROUP;
    /// Database operations that failed.
    database_errors_total: IntCounter [] &[];
    /// Whether the last renewal of the lease succeeded.
    database_up: IntGauge [] &[];
    /// Whether the database is another one than it was, so that nothing is sent until a person says how to go on.
    database_changed: IntGauge [] &[];
    /// Whether notifications arrive; without them polling finds work.
    listening: IntGauge [] &[];
    /// Whether the last reload, or a changed file that the configuration names, was refused.
    config_reload_failed: IntGauge [] &[];
    /// Always 1; the version is its label.
    build_info: IntGaugeVec ["version"] &[];
}

impl Metrics {
    /// Touches every series of a leaf, so that it shows as zero and not as missing.
    pub fn touch(&self, leaf: &str) {
        self.touch_rows(leaf);
        for class in CLASSES {
            self.attempts_total.with_label_values(&[leaf, class]);
        }
        for how in ["result", "probe", "exists"] {
            self.duplicates_prevented_total
                .with_label_values(&[leaf, how]);
        }
        self.weak_adoptions_total.with_label_values(&[leaf]);
        for verdict in ["found", "absent", "unclear"] {
            self.probes_total.with_label_values(&[leaf, verdict]);
        }
        for gauge in [
            &self.in_flight,
            &self.concurrency_limit,
            &self.breaker_open,
            &self.paused,
        ] {
            gauge.with_label_values(&[leaf]);
        }
        for histogram in [&self.call_duration_seconds, &self.commit_to_send_seconds] {
            histogram.with_label_values(&[leaf]);
        }
    }

    /// What rows can have whose leaf is not known here; nothing is ever sent for them.
    fn touch_rows(&self, leaf: &str) {
        for state in STATES {
            self.calls.with_label_values(&[leaf, state]);
        }
        for state in FINAL {
            self.calls_finished_total.with_label_values(&[leaf, state]);
        }
        for reason in FAILED_REASONS {
            self.calls_failed_total.with_label_values(&[leaf, reason]);
        }
        for reason in pending_reasons() {
            self.pending_calls.with_label_values(&[leaf, reason]);
        }
        for reason in stuck_reasons() {
            self.stuck_calls.with_label_values(&[leaf, reason]);
        }
        for gauge in [&self.oldest_due_age_seconds, &self.oldest_doubt_age_seconds] {
            gauge.with_label_values(&[leaf]);
        }
    }

    /// Sets what the tables hold. What is not counted is zero.
    pub fn set_counts(&self, known: &[String], counts: &[Count]) {
        let mut by_leaf: BTreeMap<&str, Vec<&Count>> = known
            .iter()
            .map(|leaf| (leaf.as_str(), Vec::new()))
            .collect();
        by_leaf.insert(UNKNOWN, Vec::new());
        for count in counts {
            let leaf = if known.contains(&count.leaf) {
                count.leaf.as_str()
            } else {
                UNKNOWN
            };
            by_leaf.entry(leaf).or_default().push(count);
        }
        for (leaf, counts) in by_leaf {
            let sum = |of: fn(&Count) -> u64, is: &dyn Fn(&Count) -> bool| {
                signed(counts.iter().filter(|c| is(c)).map(|c| of(c)).sum())
            };
            for state in STATES {
                self.calls
                    .with_label_values(&[leaf, state])
                    .set(sum(|c| c.calls, &|c| c.state == *state));
            }
            for reason in pending_reasons() {
                self.pending_calls
                    .with_label_values(&[leaf, reason])
                    .set(sum(|c| c.calls, &|c| {
                        c.state == "pending" && pending_reason(c) == reason
                    }));
            }
            for reason in stuck_reasons() {
                self.stuck_calls
                    .with_label_values(&[leaf, reason])
                    .set(sum(|c| c.stuck, &|c| stuck_reason(c) == reason));
            }
            let oldest = |age: fn(&Count) -> f64| counts.iter().map(|c| age(c)).fold(0.0, f64::max);
            self.oldest_due_age_seconds
                .with_label_values(&[leaf])
                .set(oldest(|c| c.oldest_due.as_secs_f64()));
            self.oldest_doubt_age_seconds
                .with_label_values(&[leaf])
                .set(oldest(|c| c.oldest_doubt.as_secs_f64()));
        }
    }

    /// Sets instances, pauses and batches.
    pub fn set_overview(&self, known: &[String], overview: &Overview) {
        self.instances.set(signed(overview.instances));
        for leaf in known {
            self.paused
                .with_label_values(&[leaf])
                .set(i64::from(overview.paused.contains(leaf)));
        }
        for (gauge, labels, counted) in [
            (&self.batches, BATCHES, &overview.batches),
            (&self.stuck_batches, STUCK_BATCHES, &overview.stuck_batches),
        ] {
            for label in labels {
                let found = counted.iter().find(|(name, _)| name == label);
                let number = found.map_or(0, |(_, number)| *number);
                gauge.with_label_values(&[label]).set(signed(number));
            }
        }
    }

    /// Takes away the gauges of leaves that are not known any more: nobody would set them again, and an alert on one would
    /// not end. What was counted stays.
    pub fn forget_gone(&self, known: &[String]) {
        for gauges in [
            &self.calls,
            &self.pending_calls,
            &self.stuck_calls,
            &self.paused,
            &self.in_flight,
            &self.concurrency_limit,
            &self.breaker_open,
        ] {
            forget_gone(gauges, known);
        }
        for gauges in [&self.oldest_due_age_seconds, &self.oldest_doubt_age_seconds] {
            forget_gone(gauges, known);
        }
    }

    /// How long attempts took: for each bound of [`SECONDS`], how many took no longer; and how many there were.
    pub(crate) fn durations(&self, leaf: &str) -> (Vec<(f64, u64)>, u64) {
        let histogram = self.call_duration_seconds.with_label_values(&[leaf]);
        let metric = prometheus::core::Metric::metric(&histogram);
        let histogram = metric.get_histogram();
        let buckets = histogram.get_bucket().iter();
        let buckets = buckets.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        (buckets.collect(), histogram.get_sample_count())
    }

    /// The text exposition, version 0.0.4.
    #[must_use]
    pub fn render(&self) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_else(|error| format!("# {error}\n"))
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn forget_gone<B: MetricVecBuilder>(gauges: &MetricVec<B>, known: &[String]) {
    for family in gauges.collect() {
        for gauge in family.get_metric() {
            let labels: HashMap<&str, &str> = gauge
                .get_label()
                .iter()
                .map(|label| (label.name(), label.value()))
                .collect();
            let stays = labels
                .get("leaf")
                .is_none_or(|leaf| *leaf == UNKNOWN || known.iter().any(|name| name == leaf));
            if !stays {
                // An error means that another scrape was quicker.
                drop(gauges.remove(&labels));
            }
        }
    }
}

fn pending_reasons() -> impl Iterator<Item = &'static str> {
    PENDING_REASONS.iter().chain(PENDING).copied()
}

fn stuck_reasons() -> impl Iterator<Item = &'static str> {
    let parked = PARKED_REASONS.iter();
    parked.chain(PENDING_REASONS).chain(STUCK).copied()
}

/// Why calls are pending, as a label.
fn pending_reason(count: &Count) -> &str {
    match count.reason.as_deref() {
        Some(reason) => reason,
        None if count.later => "not_due",
        None => "due",
    }
}

/// Why calls are stuck, as a label.
fn stuck_reason(count: &Count) -> &str {
    match count.state.as_str() {
        "dispatching" => "lease_over",
        "in_doubt" => "in_doubt",
        "pending" => pending_reason(count),
        _ => count.reason.as_deref().unwrap_or_default(),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
