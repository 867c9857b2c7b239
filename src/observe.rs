//! Everything that can happen to calls and to this instance's hold on the database, as one enum, and the one
//! place where it becomes a metric and a log line. (What a loop has to say that concerns no metric, it logs.)
//!
//! Only the engine emits. A new observation does not compile before its metric and its log level are
//! decided. Bodies, headers and secrets are never part of one.
//!
//! Log levels: `error` is for a person to act on; `warn` may become that; `info` is what an operator wants
//! to have read afterwards; `debug` is one line for each call.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    domain::call::CallId,
    metrics::Metrics,
    store::{StoreError, record::Confirmed},
};

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Observation<'a> {
    /// A request goes out now.
    Sending { leaf: &'a str, waited: Duration },
    /// An attempt has ended.
    Attempted {
        leaf: &'a str,
        call: CallId,
        attempt: u32,
        class: &'static str,
        took: Duration,
    },
    /// A leaf's `verdict` could not be evaluated: the table decides.
    NoVerdict { leaf: &'a str, flaw: &'a str },
    /// A confirmation was written down.
    Confirmed {
        leaf: &'a str,
        call: CallId,
        how: Confirmed,
    },
    /// A leaf was asked about a call in doubt.
    Probed {
        leaf: &'a str,
        call: CallId,
        verdict: &'static str,
    },
    /// What a probe found is the call's confirmation.
    Adopted {
        leaf: &'a str,
        call: CallId,
        how: &'static str,
        /// Nothing told it from somebody else's.
        weak: bool,
    },
    /// A call was answered by a result that stood already.
    Prior { leaf: &'a str, call: CallId },
    /// A call is in this state now, by its attempt.
    Moved {
        leaf: &'a str,
        call: CallId,
        state: &'a str,
        reason: Option<&'a str>,
    },
    /// A newer attempt, or somebody's word, had decided the call.
    Superseded { leaf: &'a str, call: CallId },
    /// Calls ended without an attempt: expired, gave up, their batch was cancelled.
    Ended {
        leaf: &'a str,
        state: &'a str,
        calls: u64,
    },
    /// A batch has come a step further.
    BatchMoved { batch: Uuid, state: &'a str },
    /// Calls of instances that vanished are in doubt now.
    Reclaimed { leaf: &'a str, calls: u64 },
    /// Claims that nothing was sent for were given back: their commit's reply was lost, or a stop came between.
    GivenBack { calls: usize },
    /// Calls that the insert trigger had not seen were taken up.
    TakenUp { calls: u64 },
    /// A call in doubt was settled.
    Settled {
        call: CallId,
        state: &'a str,
        reason: Option<&'static str>,
    },
    /// A round of claiming took so many calls.
    Claimed { calls: usize, took: Duration },
    /// A group was recorded.
    Recorded { calls: usize, took: Duration },
    /// The lease was renewed.
    Renewed,
    /// The lease could not be renewed.
    RenewalFailed,
    /// Somebody took this instance for dead.
    TakenForDead,
    /// A breaker opened or closed.
    Breaker {
        leaf: &'a str,
        open: bool,
        why: &'a str,
    },
    /// Notifications arrive, or do not.
    Listening(bool),
    /// A database operation failed; `first` with its cause since the last success.
    DatabaseError { error: &'a StoreError, first: bool },
    /// The database is not the one it was: all sending stops.
    DatabaseChanged { difference: &'a str },
}

/// Where observations go. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    metrics: Arc<Metrics>,
}

impl Observer {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts and logs what happened.
    pub(crate) fn emit(&self, observation: Observation<'_>) {
        use Observation as O;
        let m = &self.metrics;
        match observation {
            O::Sending { leaf, waited } => {
                m.commit_to_send_seconds
                    .with_label_values(&[leaf])
                    .observe(waited.as_secs_f64());
            }
            O::Attempted {
                leaf,
                call,
                attempt,
                class,
                took,
            } => {
                m.attempts_total.with_label_values(&[leaf, class]).inc();
                m.call_duration_seconds
                    .with_label_values(&[leaf])
                    .observe(took.as_secs_f64());
                tracing::debug!(
                    call.id = call,
                    call.leaf = leaf,
                    attempt.number = attempt,
                    attempt.class = class,
                    attempt.seconds = took.as_secs_f64(),
                    "attempt {attempt} of call {call} came to {class}"
                );
            }
            O::NoVerdict { leaf, flaw } => {
                tracing::warn!(
                    call.leaf = leaf,
                    "leaf {leaf}: the status decides, since its {flaw}"
                );
            }
            O::Confirmed { leaf, call, how } => self.confirmed(leaf, call, how),
            O::Prior { leaf, call } => {
                m.duplicates_prevented_total
                    .with_label_values(&[leaf, "result"])
                    .inc();
                m.calls_finished_total
                    .with_label_values(&[leaf, "confirmed"])
                    .inc();
                tracing::debug!(
                    call.id = call,
                    call.leaf = leaf,
                    "call {call}'s effect stood already"
                );
            }
            O::Moved {
                leaf,
                call,
                state,
                reason,
            } => self.moved(leaf, call, state, reason),
            O::Superseded { leaf, call } => {
                tracing::debug!(
                    call.id = call,
                    call.leaf = leaf,
                    "call {call} was decided by somebody else"
                );
            }
            other => self.of_others(other),
        }
    }

    /// What happens to calls without an attempt of this instance, and to groups of them.
    fn of_others(&self, observation: Observation<'_>) {
        use Observation as O;
        let m = &self.metrics;
        match observation {
            O::Ended { leaf, state, calls } => {
                m.calls_finished_total
                    .with_label_values(&[leaf, state])
                    .inc_by(calls);
                if state == "failed" {
                    // Nothing else fails a call without an attempt.
                    m.calls_failed_total
                        .with_label_values(&[leaf, "gave_up"])
                        .inc_by(calls);
                }
            }
            O::BatchMoved { batch, state } => match state {
                "cancelling" | "compensating" | "cancelled" => tracing::info!(
                    batch.id = %batch,
                    batch.state = state,
                    "batch {batch} is {state}"
                ),
                _ => tracing::debug!(
                    batch.id = %batch,
                    batch.state = state,
                    "batch {batch} is {state}"
                ),
            },
            O::Reclaimed { leaf, calls } => {
                m.attempts_total
                    .with_label_values(&[leaf, "in_doubt"])
                    .inc_by(calls);
                tracing::warn!(
                    call.leaf = leaf,
                    calls,
                    "leaf {leaf}: {calls} calls of instances that vanished are in doubt"
                );
            }
            O::GivenBack { calls } => tracing::warn!(calls, "{calls} claims were given back"),
            O::TakenUp { calls } => {
                m.untracked_calls_total.inc_by(calls);
                tracing::warn!(
                    calls,
                    "{calls} calls that were inserted while triggers were off are taken up"
                );
            }
            O::Settled {
                call,
                state,
                reason,
            } => match reason {
                Some(reason) => tracing::warn!(
                    call.id = call,
                    call.state = state,
                    call.reason = reason,
                    "call {call} is parked: {reason}; `leafhopper show {call}` tells how to move it"
                ),
                None => tracing::info!(
                    call.id = call,
                    "call {call} is to be sent again with the same key"
                ),
            },
            O::Claimed { calls, took } => {
                m.claim_seconds.observe(took.as_secs_f64());
                if calls > 0 {
                    tracing::trace!(calls, "claimed {calls} calls");
                }
            }
            O::Recorded { calls, took } => {
                m.record_seconds.observe(took.as_secs_f64());
                m.record_batch_size
                    .observe(f64::from(u32::try_from(calls).unwrap_or(u32::MAX)));
            }
            other => self.of_probes(other),
        }
    }

    fn of_probes(&self, observation: Observation<'_>) {
        use Observation as O;
        let m = &self.metrics;
        match observation {
            O::Probed {
                leaf,
                call,
                verdict,
            } => {
                m.probes_total.with_label_values(&[leaf, verdict]).inc();
                tracing::debug!(
                    call.id = call,
                    call.leaf = leaf,
                    probe.verdict = verdict,
                    "the probe of call {call} came to {verdict}"
                );
            }
            O::Adopted {
                leaf,
                call,
                how,
                weak,
            } => {
                if weak {
                    m.weak_adoptions_total.with_label_values(&[leaf]).inc();
                }
                m.duplicates_prevented_total
                    .with_label_values(&[leaf, how])
                    .inc();
                m.calls_finished_total
                    .with_label_values(&[leaf, "confirmed"])
                    .inc();
                tracing::info!(
                    call.id = call,
                    call.leaf = leaf,
                    adoption.weak = weak,
                    "call {call}'s effect was found at the leaf: confirmed"
                );
            }
            other => self.of_the_instance(other),
        }
    }

    fn confirmed(&self, leaf: &str, call: CallId, how: Confirmed) {
        let m = &self.metrics;
        match how {
            Confirmed::Recorded | Confirmed::Stood | Confirmed::Said => {
                m.calls_finished_total
                    .with_label_values(&[leaf, "confirmed"])
                    .inc();
            }
            Confirmed::Again | Confirmed::Locked => {}
        }
        if matches!(how, Confirmed::Stood | Confirmed::Again) {
            m.attempts_total
                .with_label_values(&[leaf, "confirmed_again"])
                .inc();
            tracing::error!(
                call.id = call,
                call.leaf = leaf,
                "call {call} was confirmed a second time: the leaf may hold its effect twice"
            );
        }
    }

    fn moved(&self, leaf: &str, call: CallId, state: &str, reason: Option<&str>) {
        let m = &self.metrics;
        match state {
            "failed" | "cancelled" | "expired" | "confirmed" => {
                m.calls_finished_total
                    .with_label_values(&[leaf, state])
                    .inc();
                // A cancelled one may have a person's words for it.
                if let ("failed", Some(reason)) = (state, reason) {
                    m.calls_failed_total
                        .with_label_values(&[leaf, reason])
                        .inc();
                }
                tracing::info!(
                    call.id = call,
                    call.leaf = leaf,
                    call.state = state,
                    call.reason = reason,
                    "call {call} has ended: {state}"
                );
            }
            "parked" => tracing::warn!(
                call.id = call,
                call.leaf = leaf,
                call.reason = reason,
                "call {call} is parked; `leafhopper show {call}` tells how to move it"
            ),
            _ => tracing::debug!(
                call.id = call,
                call.leaf = leaf,
                call.state = state,
                "call {call}: {state}"
            ),
        }
    }

    fn of_the_instance(&self, observation: Observation<'_>) {
        use Observation as O;
        let m = &self.metrics;
        match observation {
            O::Renewed => m.database_up.set(1),
            O::RenewalFailed => m.database_up.set(0),
            O::TakenForDead => {
                tracing::error!("another instance took this one for dead: its lease had run out");
            }
            O::Breaker {
                leaf,
                open: true,
                why,
            } => {
                tracing::warn!(call.leaf = leaf, "leaf {leaf} is not tried: {why}");
            }
            O::Breaker {
                leaf,
                open: false,
                why,
            } => {
                tracing::info!(call.leaf = leaf, "leaf {leaf} is tried again: {why}");
            }
            O::Listening(listening) => {
                m.listening.set(i64::from(listening));
                if listening {
                    tracing::info!("notifications arrive");
                }
            }
            O::DatabaseError { error, first } => {
                m.database_errors_total.inc();
                if first {
                    tracing::warn!(database.operation = error.operation(), "{error}");
                }
            }
            O::DatabaseChanged { difference } => {
                tracing::error!(
                    "all sending has stopped: {difference}; `leafhopper resume --all --as probe|resend --reason …` \
                     says how to go on"
                );
            }
            // Told by the functions above. No `_`: what is new is to be told, too.
            O::Sending { .. }
            | O::Attempted { .. }
            | O::NoVerdict { .. }
            | O::Confirmed { .. }
            | O::Prior { .. }
            | O::Moved { .. }
            | O::Superseded { .. }
            | O::Probed { .. }
            | O::Adopted { .. }
            | O::Ended { .. }
            | O::BatchMoved { .. }
            | O::Reclaimed { .. }
            | O::GivenBack { .. }
            | O::TakenUp { .. }
            | O::Settled { .. }
            | O::Claimed { .. }
            | O::Recorded { .. } => {}
        }
    }
}
