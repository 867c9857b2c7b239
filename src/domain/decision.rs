//! What follows from an outcome for one call: [`decide`] after an attempt, [`resolve`] for a call in doubt.

use std::time::Duration;

use super::outcome::{Outcome, Retry};

/// What is done with a call in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The leaf is asked.
    Probe,
    /// The same request with the same key is sent again.
    Resend,
    /// It waits for somebody to say what is true.
    Park,
}

impl Policy {
    /// The policy for one call: the leaf's own word, else by what the leaf and the method offer.
    #[must_use]
    pub fn for_call(configured: Option<Self>, has_probe: bool, dedups: bool, method: &str) -> Self {
        if let Some(policy) = configured {
            policy
        } else if has_probe {
            Self::Probe
        } else if dedups || is_idempotent(method) {
            Self::Resend
        } else {
            Self::Park
        }
    }
}

/// Whether sending it twice does what sending it once does (RFC 9110 section 9.2.2).
#[must_use]
pub fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "PUT" | "DELETE")
}

/// Whether it changes nothing at the leaf (RFC 9110 section 9.2.1).
#[must_use]
pub fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

/// Why a call waits for somebody to say what is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// It may have been executed and the leaf can't be asked.
    NoProbe,
    /// The leaf no longer remembers its idempotency key.
    KeyExpired,
    /// It went down with its instance too often.
    CrashSuspect,
    /// Its attempts are used up, and the last one may have been executed.
    AttemptsExhausted,
    /// The leaf was asked, and its answers say neither that the effect is there nor that it is not.
    ProbeUnclear,
    /// The leaf says that the thing exists, and what is there is not ours.
    ExistsUnmatched,
    /// The probe, or the request that undoes, can't be made of this row.
    Template,
    /// It undoes what was adopted without a matcher: not surely ours.
    WeakAdoption,
}

impl ParkReason {
    /// The word for it in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoProbe => "no_probe",
            Self::KeyExpired => "key_expired",
            Self::CrashSuspect => "crash_suspect",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::ProbeUnclear => "probe_unclear",
            Self::ExistsUnmatched => "exists_unmatched",
            Self::Template => "template",
            Self::WeakAdoption => "weak_adoption",
        }
    }
}

/// Why a call has failed: the leaf said no, or was certainly never reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// The leaf refused it.
    Rejected,
    /// Its attempts are used up, none of them executed.
    AttemptsExhausted,
    /// The key stands for another request.
    KeyConflict,
    /// The row can't be sent.
    Unsendable,
}

impl FailReason {
    /// The word for it in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::KeyConflict => "key_conflict",
            Self::Unsendable => "unsendable",
        }
    }
}

/// What is known of the call when its attempt has ended.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// What was spent of `max_attempts` before this attempt.
    pub spent: u32,
    /// The row's own limit, else the leaf's.
    pub max_attempts: u32,
    /// An earlier attempt may have been executed.
    pub in_doubt: bool,
    /// What is done with this call in doubt.
    pub policy: Policy,
    /// Whether there is a probe for it.
    pub has_probe: bool,
    /// Whether the leaf honours an idempotency key.
    pub keyed: bool,
    /// Whether the request changes nothing at the leaf.
    pub safe: bool,
    /// The leaf gives its first answer again, whatever that was, and this one was complete.
    pub replayed: bool,
}

/// What follows from one attempt for its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Final, with the leaf's word.
    Confirm,
    /// Certainly nothing was executed: again, after a backoff of at least this long.
    Retry {
        /// Whether it counts against `max_attempts`.
        spends: bool,
        /// The leaf's `Retry-After`.
        at_least: Option<Duration>,
    },
    /// In doubt, and the same request with the same key is the way out of it.
    Resend {
        /// Whether it counts against `max_attempts`.
        spends: bool,
        /// The leaf's `Retry-After`.
        at_least: Option<Duration>,
    },
    /// In doubt, and the leaf is to be asked.
    Ask {
        /// The leaf has said that the effect exists (`exists_on`).
        exists: bool,
    },
    /// Nobody knows, and nothing here can find out.
    Park(ParkReason),
    /// Final: the leaf said no, or was never reached.
    Fail(FailReason),
}

/// Decides one call's next state from its attempt's outcome.
///
/// A doubt stays until something resolves it: an attempt that certainly was not executed says nothing
/// about the one before it.
#[must_use]
pub fn decide(call: &Standing, outcome: Outcome) -> Decision {
    match outcome {
        Outcome::Confirmed => Decision::Confirm,
        Outcome::Exists if call.has_probe => Decision::Ask { exists: true },
        Outcome::Exists => Decision::Park(ParkReason::NoProbe),
        Outcome::Retry(retry) => decide_retry(call, retry),
        Outcome::InDoubt => decide_doubt(call),
        // Of a leaf that dedups, a refusal under the same key answers the earlier attempt too. Without a
        // key, "404" to the second DELETE may well be the first one's success.
        Outcome::Rejected if call.in_doubt && !call.keyed && !call.safe => {
            ask_or_park(call, ParkReason::NoProbe)
        }
        Outcome::Rejected => Decision::Fail(FailReason::Rejected),
        Outcome::Unsendable if call.in_doubt => ask_or_park(call, ParkReason::NoProbe),
        Outcome::Unsendable => Decision::Fail(FailReason::Unsendable),
    }
}

/// This attempt was certainly not executed.
fn decide_retry(call: &Standing, retry: Retry) -> Decision {
    let Retry {
        spends, not_before, ..
    } = retry;
    let used_up = spends && call.spent + 1 >= call.max_attempts;
    match (used_up, call.in_doubt) {
        (true, true) => ask_or_park(call, ParkReason::AttemptsExhausted),
        (true, false) => Decision::Fail(FailReason::AttemptsExhausted),
        (false, true) => Decision::Resend {
            spends,
            at_least: not_before,
        },
        (false, false) => Decision::Retry {
            spends,
            at_least: not_before,
        },
    }
}

/// This attempt may have been executed.
fn decide_doubt(call: &Standing) -> Decision {
    let used_up = call.spent + 1 >= call.max_attempts;
    match call.policy {
        Policy::Park => Decision::Park(ParkReason::NoProbe),
        Policy::Probe => ask_or_park(call, ParkReason::NoProbe),
        // Nothing can have been executed by a request that changes nothing.
        Policy::Resend if used_up && call.safe => Decision::Fail(FailReason::AttemptsExhausted),
        Policy::Resend if used_up => ask_or_park(call, ParkReason::AttemptsExhausted),
        // The first answer came again and says no more than before.
        Policy::Resend if call.in_doubt && call.replayed => ask_or_park(call, ParkReason::NoProbe),
        Policy::Resend => Decision::Resend {
            spends: true,
            at_least: None,
        },
    }
}

/// Where the leaf can be asked, no person has to.
fn ask_or_park(call: &Standing, reason: ParkReason) -> Decision {
    if call.has_probe && call.policy != Policy::Park {
        Decision::Ask { exists: false }
    } else {
        Decision::Park(reason)
    }
}

/// A call in doubt whose way out is to be found, as its row shows it.
#[derive(Debug, Clone, Copy)]
pub struct Doubt {
    /// What is spent of `max_attempts`.
    pub spent: u32,
    /// The row's own limit, else the leaf's.
    pub max_attempts: u32,
    /// How often its instance vanished with it, in a row.
    pub crashes: u32,
    /// What is done with this call in doubt.
    pub policy: Policy,
    /// Whether there is a probe for it.
    pub has_probe: bool,
    /// The leaf has said that the effect exists.
    pub exists: bool,
    /// No new attempt may begin: its deadline has passed, or it was cancelled.
    pub over: bool,
    /// Its batch is not open: what it did is undone, where there is something that undoes it.
    pub batch_closed: bool,
    /// There is a compensation for it.
    pub compensated: bool,
    /// Another attempt would end within the leaf's memory of the key.
    pub within_window: bool,
    /// The leaf gives its first answer again, whatever that was: a second resend learns nothing.
    pub replays_all: bool,
}

/// So many crashes in a row make a call suspect of causing them.
pub const CRASHES_UNTIL_SUSPECT: u32 = 3;

/// How a call in doubt goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayOut {
    /// The leaf is asked.
    Ask,
    /// The same request is sent again, with the same key.
    Resend,
    /// A person has to say.
    Park(ParkReason),
}

/// Finds the way out of a doubt.
#[must_use]
pub fn resolve(doubt: &Doubt) -> WayOut {
    // What the leaf says to be there is asked for whatever is done with other doubts.
    let can_ask = doubt.has_probe && (doubt.policy != Policy::Park || doubt.exists);
    let ask_or = |reason| {
        if can_ask {
            WayOut::Ask
        } else {
            WayOut::Park(reason)
        }
    };
    // For a batch that is not open, the resend is a question: where none is better, and its answer can be undone.
    let batch_forbids = doubt.batch_closed && (can_ask || !doubt.compensated);
    if doubt.crashes >= CRASHES_UNTIL_SUSPECT {
        // To ask sends nothing that could bring the next instance down; what is not there is not sent again.
        ask_or(ParkReason::CrashSuspect)
    } else if doubt.over || doubt.exists || doubt.policy != Policy::Resend || batch_forbids {
        ask_or(ParkReason::NoProbe)
    } else if doubt.spent >= doubt.max_attempts {
        ask_or(ParkReason::AttemptsExhausted)
    } else if doubt.replays_all && doubt.spent > 1 {
        ask_or(ParkReason::NoProbe)
    } else if !doubt.within_window {
        ask_or(ParkReason::KeyExpired)
    } else {
        WayOut::Resend
    }
}
