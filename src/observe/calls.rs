//! What happens to one call: its lines name it in the same way, whatever they say.

use uuid::Uuid;

use super::{Observation, Observer};
use crate::{
    domain::{call::CallId, trace::Trace},
    store::record::Confirmed,
};

/// The call that something is about, as its lines name it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) call: CallId,
    pub(crate) leaf: &'a str,
    pub(crate) batch: Option<Uuid>,
    /// It undoes an effect of its batch.
    pub(crate) undoes: bool,
    /// Where its row stands in its caller's trace.
    pub(crate) trace: Option<&'a Trace>,
    /// The span of the request that was made for it, where there is one.
    pub(crate) span: Option<&'a Trace>,
}

impl<'a> About<'a> {
    fn trace_id(self) -> Option<&'a str> {
        self.span.or(self.trace).map(Trace::trace_id)
    }

    fn span_id(self) -> Option<&'a str> {
        self.span.map(Trace::span_id)
    }
}

/// A line about one call: it names the call in the same way, whatever it says.
macro_rules! say {
    ($level:ident, $about:expr, $($rest:tt)+) => {
        tracing::$level!(
            call.id = $about.call,
            call.leaf = $about.leaf,
            batch.id = $about.batch.map(display),
            trace_id = $about.trace_id(),
            span_id = $about.span_id(),
            $($rest)+
        )
    };
}

impl Observer {
    /// What happens to one call.
    pub(super) fn of_one_call(&self, observation: Observation<'_>) {
        use Observation as O;
        let m = &self.metrics;
        match observation {
            O::Sending { leaf, waited } => {
                m.commit_to_send_seconds
                    .with_label_values(&[leaf])
                    .observe(waited.as_secs_f64());
            }
            O::Attempted {
                about,
                attempt,
                class,
                took,
            } => {
                m.attempts_total
                    .with_label_values(&[about.leaf, class])
                    .inc();
                m.call_duration_seconds
                    .with_label_values(&[about.leaf])
                    .observe(took.as_secs_f64());
                say!(
                    debug,
                    about,
                    attempt.number = attempt,
                    attempt.class = class,
                    attempt.seconds = took.as_secs_f64(),
                    "attempt {attempt} of call {} came to {class}",
                    about.call
                );
            }
            O::NoVerdict { about, flaw } => {
                say!(
                    warn,
                    about,
                    "leaf {}: the status decides, since its {flaw}",
                    about.leaf
                );
            }
            O::Confirmed { about, how } => self.confirmed(about, how),
            O::Prior { about } => {
                m.duplicates_prevented_total
                    .with_label_values(&[about.leaf, "result"])
                    .inc();
                m.calls_finished_total
                    .with_label_values(&[about.leaf, "confirmed"])
                    .inc();
                say!(
                    debug,
                    about,
                    call.state = "confirmed",
                    "call {}'s effect stood already",
                    about.call
                );
            }
            O::Moved {
                about,
                state,
                reason,
            } => self.moved(about, state, reason),
            O::Resent { about } => say!(
                info,
                about,
                "call {} is to be sent again with the same key",
                about.call
            ),
            O::Superseded { about } => say!(
                debug,
                about,
                "call {} was decided by somebody else",
                about.call
            ),
            O::Probed { about, verdict } => self.probed(about, verdict),
            O::Adopted { about, how, weak } => self.adopted(about, how, weak),
            other => self.of_others(other),
        }
    }

    fn probed(&self, about: About<'_>, verdict: &str) {
        let m = &self.metrics;
        m.probes_total
            .with_label_values(&[about.leaf, verdict])
            .inc();
        say!(
            debug,
            about,
            probe.verdict = verdict,
            "the probe of call {} came to {verdict}",
            about.call
        );
    }

    fn adopted(&self, about: About<'_>, how: &str, weak: bool) {
        let m = &self.metrics;
        let leaf = about.leaf;
        if weak {
            m.weak_adoptions_total.with_label_values(&[leaf]).inc();
        }
        m.duplicates_prevented_total
            .with_label_values(&[leaf, how])
            .inc();
        m.calls_finished_total
            .with_label_values(&[leaf, "confirmed"])
            .inc();
        say!(
            info,
            about,
            call.state = "confirmed",
            adoption.weak = weak,
            "call {}'s effect was found at the leaf: confirmed",
            about.call
        );
    }

    fn confirmed(&self, about: About<'_>, how: Confirmed) {
        let m = &self.metrics;
        let (leaf, call) = (about.leaf, about.call);
        match how {
            Confirmed::Recorded | Confirmed::Stood | Confirmed::Said => {
                m.calls_finished_total
                    .with_label_values(&[leaf, "confirmed"])
                    .inc();
                say!(
                    debug,
                    about,
                    call.state = "confirmed",
                    "call {call} is confirmed"
                );
            }
            Confirmed::Again | Confirmed::Locked => {}
        }
        if matches!(how, Confirmed::Stood | Confirmed::Again) {
            m.attempts_total
                .with_label_values(&[leaf, "confirmed_again"])
                .inc();
            say!(
                error,
                about,
                "call {call} was confirmed a second time: the leaf may hold its effect twice; \
                 `leafhopper show {call}` has both answers"
            );
        }
    }

    fn moved(&self, about: About<'_>, state: &str, reason: Option<&str>) {
        let m = &self.metrics;
        let (leaf, call) = (about.leaf, about.call);
        let ended = matches!(state, "failed" | "cancelled" | "expired" | "confirmed");
        if ended {
            m.calls_finished_total
                .with_label_values(&[leaf, state])
                .inc();
        }
        if let ("failed", Some(reason)) = (state, reason) {
            m.calls_failed_total
                .with_label_values(&[leaf, reason])
                .inc();
        }
        let why = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        match (state, about.batch) {
            ("failed" | "expired" | "parked", Some(batch)) if about.undoes => say!(
                warn,
                about,
                call.state = state,
                call.reason = reason,
                "call {call}, which undoes an effect of batch {batch}, came to nothing: {state}{why}. The effect stands, \
                 and the teardown waits; `leafhopper batch {batch}` tells how to move it"
            ),
            ("parked", _) => say!(
                warn,
                about,
                call.state = state,
                call.reason = reason,
                "call {call} is parked{why}; `leafhopper show {call}` tells how to move it"
            ),
            // The leaf's no is an answer to the app; for any other failure something has to be mended.
            ("failed", _) if reason != Some("rejected") => say!(
                warn,
                about,
                call.state = state,
                call.reason = reason,
                "call {call} has failed{why}; `leafhopper show {call}` tells what is wrong"
            ),
            _ if ended => say!(
                info,
                about,
                call.state = state,
                call.reason = reason,
                "call {call} has ended: {state}{why}"
            ),
            _ => say!(debug, about, call.state = state, "call {call}: {state}"),
        }
    }
}
