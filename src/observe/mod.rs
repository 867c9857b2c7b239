//! Everything that can happen to calls and to this instance's hold on the database, as one enum, and the one
//! place where it becomes a metric and a log line. (What a loop has to say that concerns no metric, it logs.)
//!
//! Only the engine emits. A new observation does not compile before its metric and its log level are
//! decided. Bodies, headers and secrets are never part of one.
//!
//! Log levels: `error` says that something is broken, or that an effect may be there twice: somebody acts now. `warn`
//! says that a call, a batch, a leaf or a setting waits for somebody, or may soon. `info` is what an operator wants
//! to have read afterwards; `debug` is one line for each call. Each field and what it means: `docs/logs.md`.

mod calls;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use uuid::Uuid;

use crate::{
    metrics::Metrics,
    store::{StoreError, prune::Counts, record::Confirmed},
};

pub(crate) use calls::About;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Observation<'a> {
    /// A request goes out now.
    Sending { leaf: &'a str, waited: Duration },
    /// An attempt has ended.
    Attempted {
        about: About<'a>,
        attempt: u32,
        class: &'static str,
        took: Duration,
    },
    /// A leaf's `verdict` could not be evaluated: the table decides.
    NoVerdict { about: About<'a>, flaw: &'a str },
    /// A confirmation was written down.
    Confirmed { about: About<'a>, how: Confirmed },
    /// A leaf was asked about a call in doubt.
    Probed {
        about: About<'a>,
        verdict: &'static str,
    },
    /// What a probe found is the call's confirmation.
    Adopted {
        about: About<'a>,
        how: &'static str,
        /// Nothing told it from somebody else's.
        weak: bool,
    },
    /// A call was answered by a result that stood already.
    Prior { about: About<'a> },
    /// A call is in this state now, by its attempt, a probe, or its time.
    Moved {
        about: About<'a>,
        state: &'a str,
        reason: Option<&'a str>,
    },
    /// A newer attempt, or somebody's word, had decided the call.
    Superseded { about: About<'a> },
    /// Waiting calls ended with their batch.
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
    /// Rows of what ended long ago were taken away.
    Pruned { rows: &'a Counts },
    /// All that may have grown old was looked at; so much of it is gone.
    Swept { rows: &'a Counts },
    /// A call in doubt is to be sent again with the same key.
    Resent { about: About<'a> },
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
    /// A leaf has failed again and again: it gets one request at a time, and more as it answers.
    CutDown { leaf: &'a str },
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
    refused: Arc<[AtomicBool; 2]>,
}

/// What of the configuration can be refused, so that what was there before stays in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The file, at a reload.
    Reload = 0,
    /// Files that it names and that have changed: a leaf's certificates, its proxy's password.
    Files = 1,
}

impl Observer {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            refused: Arc::default(),
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Keeps whether this is refused now, for the metric and the page.
    pub(crate) fn set_refused(&self, what: Refused, refused: bool) {
        self.refused[what as usize].store(refused, Ordering::Relaxed);
        let any = self.is_refused(Refused::Reload) || self.is_refused(Refused::Files);
        self.metrics.config_reload_failed.set(i64::from(any));
    }

    /// Whether this is refused now.
    pub(crate) fn is_refused(&self, what: Refused) -> bool {
        self.refused[what as usize].load(Ordering::Relaxed)
    }

    /// Counts and logs what happened.
    pub(crate) fn emit(&self, observation: Observation<'_>) {
        self.of_one_call(observation);
    }

    /// What happens to groups of calls, and to batches.
    fn of_others(&self, observation: Observation<'_>) {
        use Observation as O;
        let m = &self.metrics;
        match observation {
            O::Ended { leaf, state, calls } => {
                m.calls_finished_total
                    .with_label_values(&[leaf, state])
                    .inc_by(calls);
                tracing::debug!(
                    call.leaf = leaf,
                    call.state = state,
                    calls,
                    "leaf {leaf}: {calls} waiting calls have ended with their batch: {state}"
                );
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
            O::GivenBack { calls } => tracing::info!(calls, "{calls} claims were given back"),
            O::TakenUp { calls } => {
                m.untracked_calls_total.inc_by(calls);
                tracing::warn!(
                    calls,
                    "{calls} calls that were inserted while triggers were off are taken up"
                );
            }
            O::Pruned { rows } => {
                for (table, number) in rows.each() {
                    m.pruned_rows_total
                        .with_label_values(&[table])
                        .inc_by(number);
                }
            }
            O::Swept { rows } => {
                let told = rows.each().filter(|(_, number)| *number > 0);
                let told: Vec<_> = told
                    .map(|(name, number)| format!("{number} {name}"))
                    .collect();
                if !told.is_empty() {
                    tracing::info!("pruned what had ended long ago: {}", told.join(", "));
                }
            }
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
            other => self.of_the_instance(other),
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
            O::CutDown { leaf } => {
                tracing::warn!(
                    call.leaf = leaf,
                    "leaf {leaf} fails again and again: it gets one request at a time, and one more with each answer"
                );
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
            | O::Pruned { .. }
            | O::Swept { .. }
            | O::Resent { .. }
            | O::Claimed { .. }
            | O::Recorded { .. } => {}
        }
    }
}
