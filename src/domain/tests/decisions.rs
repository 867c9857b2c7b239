//! [`decide`], [`resolve`] and [`Policy::for_call`] over all that they can be asked.

use std::time::Duration;

use crate::domain::{
    decision::{
        CRASHES_UNTIL_SUSPECT, Decision, Doubt, FailReason, ParkReason, Policy, Standing, WayOut,
        decide, is_idempotent, is_safe, resolve,
    },
    outcome::{Outcome, Retry, Trouble},
};

const POLICIES: [Policy; 3] = [Policy::Probe, Policy::Resend, Policy::Park];

fn retries() -> Vec<Retry> {
    let mut all = Vec::new();
    for spends in [false, true] {
        for not_before in [None, Some(Duration::from_secs(7))] {
            for trouble in [None, Some(Trouble::Credential), Some(Trouble::Connection)] {
                all.push(Retry {
                    spends,
                    not_before,
                    trouble,
                });
            }
        }
    }
    all
}

fn outcomes() -> Vec<Outcome> {
    let mut all = vec![
        Outcome::Confirmed,
        Outcome::Exists,
        Outcome::InDoubt,
        Outcome::Rejected,
        Outcome::Unsendable,
    ];
    all.extend(retries().into_iter().map(Outcome::Retry));
    all
}

/// Every standing with 0 to 4 spent of 1 to 3 (a reload can take attempts away that were spent already).
fn standings() -> Vec<Standing> {
    let mut all = Vec::new();
    for policy in POLICIES {
        for flags in 0..32 {
            for (spent, max_attempts) in
                (0..5).flat_map(|spent| (1..4).map(move |max| (spent, max)))
            {
                all.push(Standing {
                    spent,
                    max_attempts,
                    in_doubt: flags & 1 != 0,
                    policy,
                    has_probe: flags & 8 != 0,
                    keyed: flags & 2 != 0,
                    safe: flags & 4 != 0,
                    replayed: flags & 16 != 0,
                });
            }
        }
    }
    all
}

/// The rules of the contract, one after another; the first that applies decides.
fn expected(call: &Standing, outcome: Outcome) -> Decision {
    let last = call.spent + 1 >= call.max_attempts;
    let unclear_refusal = call.in_doubt && !call.keyed && !call.safe;
    let or_ask = |reason| match (call.has_probe, call.policy) {
        (true, Policy::Probe | Policy::Resend) => Decision::Ask { exists: false },
        _ => Decision::Park(reason),
    };
    match outcome {
        Outcome::Confirmed => Decision::Confirm,
        Outcome::Exists if call.has_probe => Decision::Ask { exists: true },
        Outcome::Exists => Decision::Park(ParkReason::NoProbe),
        Outcome::Retry(it) if it.spends && last && call.in_doubt => {
            or_ask(ParkReason::AttemptsExhausted)
        }
        Outcome::Retry(it) if it.spends && last => Decision::Fail(FailReason::AttemptsExhausted),
        Outcome::Retry(it) if call.in_doubt => Decision::Resend {
            spends: it.spends,
            at_least: it.not_before,
        },
        Outcome::Retry(it) => Decision::Retry {
            spends: it.spends,
            at_least: it.not_before,
        },
        Outcome::InDoubt if call.policy != Policy::Resend => or_ask(ParkReason::NoProbe),
        Outcome::InDoubt if last && call.safe => Decision::Fail(FailReason::AttemptsExhausted),
        Outcome::InDoubt if last => or_ask(ParkReason::AttemptsExhausted),
        Outcome::InDoubt if call.replayed && call.in_doubt => or_ask(ParkReason::NoProbe),
        Outcome::InDoubt => Decision::Resend {
            spends: true,
            at_least: None,
        },
        Outcome::Rejected if unclear_refusal => or_ask(ParkReason::NoProbe),
        Outcome::Rejected => Decision::Fail(FailReason::Rejected),
        Outcome::Unsendable if call.in_doubt => or_ask(ParkReason::NoProbe),
        Outcome::Unsendable => Decision::Fail(FailReason::Unsendable),
    }
}

#[test]
fn every_outcome_in_every_standing_is_decided_by_the_contract() {
    for call in standings() {
        for outcome in outcomes() {
            assert_eq!(
                decide(&call, outcome),
                expected(&call, outcome),
                "{call:?} {outcome:?}"
            );
        }
    }
}

#[test]
fn a_doubt_ends_only_by_a_word_of_the_leaf() {
    for call in standings()
        .into_iter()
        .filter(|call| call.in_doubt && !call.safe)
    {
        for outcome in outcomes() {
            let decision = decide(&call, outcome);
            match decision {
                Decision::Confirm => assert_eq!(outcome, Outcome::Confirmed),
                Decision::Fail(reason) => {
                    assert_eq!((reason, outcome), (FailReason::Rejected, Outcome::Rejected));
                    assert!(
                        call.keyed,
                        "a refusal answers an earlier attempt only under its key"
                    );
                }
                Decision::Retry { .. } => panic!("{call:?} forgets its doubt: {outcome:?}"),
                Decision::Resend { .. } | Decision::Ask { .. } | Decision::Park(_) => {}
            }
        }
    }
}

#[test]
fn no_attempt_is_made_beyond_the_last_one() {
    for call in standings()
        .into_iter()
        .filter(|call| call.spent + 1 >= call.max_attempts)
    {
        for outcome in outcomes() {
            let again = match decide(&call, outcome) {
                Decision::Retry { spends, .. } | Decision::Resend { spends, .. } => Some(spends),
                Decision::Confirm
                | Decision::Ask { .. }
                | Decision::Park(_)
                | Decision::Fail(_) => None,
            };
            assert_ne!(again, Some(true), "{call:?} {outcome:?}");
        }
    }
}

#[test]
fn a_doubt_is_resolved_by_the_first_reason_that_holds() {
    for policy in POLICIES {
        for (crashes, spent, max_attempts) in
            (0..6).flat_map(|crashes| (0..5).map(move |spent| (crashes, spent, 3)))
        {
            for flags in 0..128 {
                let replays_all = flags & 16 != 0;
                let (batch_closed, compensated) = (flags & 32 != 0, flags & 64 != 0);
                let (over, within_window) = (flags & 1 != 0, flags & 2 != 0);
                let (has_probe, exists) = (flags & 4 != 0, flags & 8 != 0);
                let doubt = Doubt {
                    spent,
                    max_attempts,
                    crashes,
                    policy,
                    has_probe,
                    exists,
                    over,
                    batch_closed,
                    compensated,
                    within_window,
                    replays_all,
                };
                // Where the leaf can be asked, only a call that may kill its instance waits for a person.
                let can_ask = has_probe && (policy != Policy::Park || exists);
                let reasons = [
                    (crashes >= CRASHES_UNTIL_SUSPECT, ParkReason::CrashSuspect),
                    (
                        over || exists || policy != Policy::Resend,
                        ParkReason::NoProbe,
                    ),
                    // What it would confirm can't be undone, or there is a better way to ask.
                    (
                        batch_closed && (can_ask || !compensated),
                        ParkReason::NoProbe,
                    ),
                    (spent >= max_attempts, ParkReason::AttemptsExhausted),
                    (replays_all && spent > 1, ParkReason::NoProbe),
                    (!within_window, ParkReason::KeyExpired),
                ];
                let first = reasons
                    .into_iter()
                    .find(|(holds, _)| *holds)
                    .map(|(_, reason)| reason);
                let expected = match first {
                    None => WayOut::Resend,
                    Some(_) if can_ask => WayOut::Ask,
                    Some(reason) => WayOut::Park(reason),
                };
                assert_eq!(resolve(&doubt), expected, "{doubt:?}");
            }
        }
    }
}

#[test]
fn the_policy_is_the_configured_one_or_what_leaf_and_method_offer() {
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
        let idempotent = !["POST", "PATCH"].contains(&method);
        assert_eq!(is_idempotent(method), idempotent, "{method}");
        assert_eq!(
            is_safe(method),
            ["GET", "HEAD"].contains(&method),
            "{method}"
        );
        for (probe, dedups) in [(false, false), (false, true), (true, false), (true, true)] {
            for policy in POLICIES {
                assert_eq!(
                    Policy::for_call(Some(policy), probe, dedups, method),
                    policy
                );
            }
            let default = match (probe, dedups || idempotent) {
                (true, _) => Policy::Probe,
                (false, true) => Policy::Resend,
                (false, false) => Policy::Park,
            };
            assert_eq!(
                Policy::for_call(None, probe, dedups, method),
                default,
                "{method}"
            );
        }
    }
    assert!(
        !is_idempotent("get") && !is_safe("OPTIONS"),
        "what is not known is not safe"
    );
}

#[test]
fn each_reason_is_a_word_that_the_database_takes() {
    let migration = include_str!("../../../sql/migrations/0001_tables.sql");
    for reason in [
        FailReason::Rejected,
        FailReason::AttemptsExhausted,
        FailReason::KeyConflict,
        FailReason::Unsendable,
    ] {
        assert!(
            migration.contains(&format!("'{}'", reason.as_str())),
            "{reason:?}"
        );
    }
    let parked = [
        ParkReason::NoProbe,
        ParkReason::KeyExpired,
        ParkReason::CrashSuspect,
        ParkReason::AttemptsExhausted,
        ParkReason::ProbeUnclear,
        ParkReason::ExistsUnmatched,
        ParkReason::Template,
    ];
    let words = [
        "no_probe",
        "key_expired",
        "crash_suspect",
        "attempts_exhausted",
        "probe_unclear",
        "exists_unmatched",
        "template",
    ];
    assert_eq!(parked.map(ParkReason::as_str), words);
}
