//! Every series in one place; the help texts are the documentation.
//!
//! Two kinds: what this process did (counters and histograms, moved only by [`crate::observe`]) and what
//! the tables hold (gauges, set only by [`Metrics::set_counts`] and its siblings at a scrape). Labels come from
//! the configuration and from fixed lists, never from rows: calls for leaves that are not configured here
//! count under `(unknown)`. Known label values are touched at start, so that an alert has a zero to look at.

use std::collections::BTreeMap;

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, process_collector::ProcessCollector,
};

use crate::store::stats::{Count, Overview};

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
const STUCK: &[&str] = &["parked", "lease_over", "in_doubt", "due", "leaf_unknown"];
const BATCHES: &[&str] = &["open", "closing", "cancelling", "compensating"];

/// All series of this process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    calls: IntGaugeVec,
    oldest_due_age_seconds: GaugeVec,
    oldest_doubt_age_seconds: GaugeVec,
    stuck_calls: IntGaugeVec,
    batches: IntGaugeVec,
    paused: IntGaugeVec,
    instances: IntGauge,
    pub(crate) attempts_total: IntCounterVec,
    pub(crate) calls_finished_total: IntCounterVec,
    pub(crate) duplicates_prevented_total: IntCounterVec,
    pub(crate) call_duration_seconds: HistogramVec,
    pub(crate) commit_to_send_seconds: HistogramVec,
    pub(crate) in_flight: IntGaugeVec,
    pub(crate) concurrency_limit: IntGaugeVec,
    pub(crate) breaker_open: IntGaugeVec,
    pub(crate) claim_seconds: Histogram,
    pub(crate) record_seconds: Histogram,
    pub(crate) record_batch_size: Histogram,
    pub(crate) database_errors_total: IntCounter,
    pub(crate) database_up: Gauge,
    pub(crate) listening: IntGauge,
    pub(crate) config_reload_failed: IntGauge,
}

/// Registers a metric under its prefix; a name that is taken or not allowed is a fault of this file.
macro_rules! register {
    ($registry:expr, $made:expr) => {{
        let metric = $made.expect("the names in this file are valid");
        $registry
            .register(Box::new(metric.clone()))
            .expect("the names in this file are different");
        metric
    }};
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("leafhopper")
}

fn histogram(name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts::new(name, help)
        .namespace("leafhopper")
        .buckets(buckets.to_vec())
}

impl Metrics {
    /// All series at zero.
    ///
    /// # Panics
    /// Never: the names are constants of this file.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self::registered();
        metrics.touch_rows(UNKNOWN);
        metrics
    }

    fn registered() -> Self {
        let r = Registry::new();
        r.register(Box::new(ProcessCollector::for_self()))
            .expect("nothing is registered yet");
        let build = register!(
            r,
            IntGaugeVec::new(
                opts("build_info", "Always 1; the version is its label."),
                &["version"]
            )
        );
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            calls: register!(
                r,
                IntGaugeVec::new(
                    opts("calls", "Calls that are not final, from the database."),
                    &["leaf", "state"]
                )
            ),
            oldest_due_age_seconds: register!(
                r,
                GaugeVec::new(
                    opts(
                        "oldest_due_age_seconds",
                        "How long the oldest due call has been due."
                    ),
                    &["leaf"]
                )
            ),
            oldest_doubt_age_seconds: register!(
                r,
                GaugeVec::new(
                    opts(
                        "oldest_doubt_age_seconds",
                        "How long the oldest call in doubt has been so."
                    ),
                    &["leaf"]
                )
            ),
            stuck_calls: register!(
                r,
                IntGaugeVec::new(
                    opts(
                        "stuck_calls",
                        "Calls that will not move by themselves, or have not for long."
                    ),
                    &["leaf", "reason"]
                )
            ),
            batches: register!(
                r,
                IntGaugeVec::new(opts("batches", "Batches that are not final."), &["state"])
            ),
            paused: register!(
                r,
                IntGaugeVec::new(opts("paused", "Whether the leaf is paused."), &["leaf"])
            ),
            instances: register!(
                r,
                IntGauge::with_opts(opts("instances", "Instances whose lease runs."))
            ),
            attempts_total: register!(
                r,
                IntCounterVec::new(
                    opts("attempts_total", "Attempts by what they came to."),
                    &["leaf", "class"]
                )
            ),
            calls_finished_total: register!(
                r,
                IntCounterVec::new(
                    opts(
                        "calls_finished_total",
                        "Calls that this instance saw become final."
                    ),
                    &["leaf", "state"]
                )
            ),
            duplicates_prevented_total: register!(
                r,
                IntCounterVec::new(
                    opts(
                        "duplicates_prevented_total",
                        "Calls that were not sent since their effect stood."
                    ),
                    &["leaf", "how"]
                )
            ),
            call_duration_seconds: register!(
                r,
                HistogramVec::new(
                    histogram(
                        "call_duration_seconds",
                        "Time of one attempt, the body included.",
                        SECONDS
                    ),
                    &["leaf"]
                )
            ),
            commit_to_send_seconds: register!(
                r,
                HistogramVec::new(
                    histogram(
                        "commit_to_send_seconds",
                        "From when a call was due (at first: its insert) to its request.",
                        SECONDS
                    ),
                    &["leaf"]
                )
            ),
            in_flight: register!(
                r,
                IntGaugeVec::new(
                    opts("in_flight", "Calls that this instance holds."),
                    &["leaf"]
                )
            ),
            concurrency_limit: register!(
                r,
                IntGaugeVec::new(
                    opts(
                        "concurrency_limit",
                        "This instance's share of the leaf's concurrency."
                    ),
                    &["leaf"]
                )
            ),
            breaker_open: register!(
                r,
                IntGaugeVec::new(
                    opts(
                        "breaker_open",
                        "Whether the leaf, or one of its credentials, is not tried now."
                    ),
                    &["leaf"]
                )
            ),
            claim_seconds: register!(
                r,
                Histogram::with_opts(histogram(
                    "claim_seconds",
                    "Time of one round of claiming.",
                    SECONDS
                ))
            ),
            record_seconds: register!(
                r,
                Histogram::with_opts(histogram(
                    "record_seconds",
                    "Time to record one group.",
                    SECONDS
                ))
            ),
            record_batch_size: register!(
                r,
                Histogram::with_opts(histogram(
                    "record_batch_size",
                    "Calls recorded in one group.",
                    GROUP
                ))
            ),
            database_errors_total: register!(
                r,
                IntCounter::with_opts(opts(
                    "database_errors_total",
                    "Database operations that failed."
                ))
            ),
            database_up: register!(
                r,
                Gauge::with_opts(opts(
                    "database_up",
                    "Whether the last renewal of the lease succeeded."
                ))
            ),
            listening: register!(
                r,
                IntGauge::with_opts(opts(
                    "listening",
                    "Whether notifications arrive; without them polling finds work."
                ))
            ),
            config_reload_failed: register!(
                r,
                IntGauge::with_opts(opts(
                    "config_reload_failed",
                    "Whether the last reload was refused."
                ))
            ),
            registry: r,
        }
    }

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
        for reason in STUCK {
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
            for state in STATES {
                let calls = counts
                    .iter()
                    .filter(|c| c.state == *state)
                    .map(|c| c.calls)
                    .sum();
                self.calls
                    .with_label_values(&[leaf, state])
                    .set(signed(calls));
            }
            let oldest = |age: fn(&Count) -> f64| counts.iter().map(|c| age(c)).fold(0.0, f64::max);
            self.oldest_due_age_seconds
                .with_label_values(&[leaf])
                .set(oldest(|c| c.oldest_due.as_secs_f64()));
            self.oldest_doubt_age_seconds
                .with_label_values(&[leaf])
                .set(oldest(|c| c.oldest_doubt.as_secs_f64()));
            for reason in STUCK {
                let stuck: u64 = if leaf == UNKNOWN && *reason == "due" {
                    0
                } else if *reason == "leaf_unknown" {
                    let pending = counts
                        .iter()
                        .filter(|c| leaf == UNKNOWN && c.state == "pending");
                    pending.map(|c| c.calls).sum()
                } else {
                    let all = counts.iter().flat_map(|c| c.stuck);
                    all.filter(|(name, _)| name == reason)
                        .map(|(_, number)| number)
                        .sum()
                };
                self.stuck_calls
                    .with_label_values(&[leaf, reason])
                    .set(signed(stuck));
            }
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
        for state in BATCHES {
            let number = overview
                .batches
                .iter()
                .find(|(name, _)| name == state)
                .map_or(0, |b| b.1);
            self.batches.with_label_values(&[state]).set(signed(number));
        }
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

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
