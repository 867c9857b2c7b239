//! One call's life, from its claim to what is recorded of it. Read this first.
//!
//! claimed ([`super::dispatcher`]) → is its effect there already? → send ([`crate::leaf`]) → what was seen
//! → [`classify`] → [`decide`] → record ([`super::recorder`]) → its slot is free.
//!
//! An attempt runs to its end once it has started. Nothing drops it: between the send and the record, a
//! dropped future would be a call in doubt.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::{
    bodies,
    context::Shared,
    dispatcher::PUT_OFF,
    entry::Entry,
    lane::{Lane, Place, Settings, Slot},
    lease::BootTime,
    places,
    ramp::Fares,
    recorder::{self, Recorded},
};
use crate::{
    config::{Leaf, Proofs, Replays},
    domain::{
        call::{Claimed, Duty},
        decision::{Decision, FailReason, ParkReason, Policy, Standing, decide, is_safe},
        evidence::{Evidence, NotSent, Unanswered},
        outcome::{Class, Outcome, Trouble, classify},
        request::Request,
        trace::Trace,
    },
    observe::{About, Observation},
    step::reached,
    store::record::{Confirmed, Moved, Next},
    telemetry::{Exchange, Span},
};

/// Handles one call that was claimed in that term of the lease. The slot is held until the call is recorded,
/// so that work stops instead of piling up while the database can't be reached.
pub(super) async fn attempt(
    context: Shared,
    lane: Arc<Lane>,
    mut call: Claimed,
    (slot, mut place): (Slot, Place),
    term: u64,
    claimed: BootTime,
) {
    reached("attempt", "before");
    let settings = lane.settings();
    let leaf_undoes = settings.leaf.compensate.is_some();
    let mut span = Span::default();
    let mut duty = call.duty(settings.leaf.settle(), leaf_undoes);
    let mut again = Duration::ZERO;
    if duty == Duty::ReadBody {
        match bodies::read(&context, &lane, &mut call, &mut place).await {
            Ok(()) => duty = call.duty(settings.leaf.settle(), leaf_undoes),
            Err(delay) => again = delay,
        }
    }
    let recorded = if let Some((next, flaw)) = without_sending(&call, duty, again) {
        drop(place);
        lane.not_sent();
        recorder::record(&context, Entry::not_sent(&call, next, flaw)).await
    } else {
        let sending = send(&context, &lane, place, &call, term, claimed, &mut span);
        match std::panic::AssertUnwindSafe(sending).catch_unwind().await {
            Ok(recorded) => recorded,
            Err(_panic) => doubt(&context, &settings, &call).await,
        }
    };
    // What is not recorded stays held: released, it would be given back as never sent. The lease tells.
    if recorded != Recorded::Nothing {
        context.held.release(call.id, call.round);
        if let Some(begun) = &context.begun {
            begun.ended((call.id, call.round));
        }
    }
    reached("attempt", "done");
    report(&context, &call, recorded, about(&call, span.place()));
    drop(slot);
}

/// What becomes of a call that is not sent now, with what people read of it; `None` where it is to be sent. One without its body
/// is tried `again` after this time.
fn without_sending(call: &Claimed, duty: Duty, again: Duration) -> Option<(Next, Option<&str>)> {
    const OTHER_REQUEST: &str =
        "the effect of this key was confirmed for another method, path or body";
    Some(match duty {
        Duty::Send => return None,
        Duty::ReadBody => (not_now(call, again), None),
        // What the leaf already confirmed is never sent again.
        Duty::Confirmed(generation) => (Next::Prior(generation), None),
        Duty::KeyConflict => (Next::Fail(FailReason::KeyConflict), Some(OTHER_REQUEST)),
        Duty::BeingUndone => (Next::Wait(PUT_OFF), None),
        Duty::Unsendable => {
            let flaw = call.request.as_ref().err().map(String::as_str);
            (Next::Fail(FailReason::Unsendable), flaw)
        }
        Duty::Wait(time) => (Next::Retry(time), None),
    })
}

fn about<'a>(call: &'a Claimed, span: Option<&'a Trace>) -> About<'a> {
    About {
        call: call.id,
        leaf: &call.leaf,
        batch: call.batch,
        undoes: call.compensates,
        trace: call.trace.as_ref(),
        span,
    }
}

/// Sends the request and records what came of it.
async fn send(
    context: &Shared,
    lane: &Arc<Lane>,
    mut place: Place,
    call: &Claimed,
    term: u64,
    claimed: BootTime,
    span: &mut Span,
) -> Recorded {
    let settings = lane.settings();
    let (Ok(request), leaf) = (&call.request, &settings.leaf) else {
        return Recorded::Nothing;
    };
    let timeout = call.timeout.unwrap_or(leaf.timeout);
    let patience = places::patience(timeout);
    if !place.turn(patience, &context.stop.claiming).await {
        drop(place);
        lane.not_sent();
        return recorder::record(
            context,
            Entry::not_sent(call, not_now(call, Duration::ZERO), None),
        )
        .await;
    }
    // Counted from the claim: what the database was told of when this attempt can last be alive must hold.
    let timeout = timeout.saturating_sub(claimed.elapsed());
    let credential = request.credential.as_deref().unwrap_or_default();
    let proofs = leaf.secrets.proofs_for(request.credential.as_deref());
    // A breaker's only try is for a call that can be sent.
    let admitted = proofs.is_ok() && lane.admit(credential, timeout).is_ok();
    let (Ok(proofs), true) = (proofs, admitted) else {
        // Its credential has gone, its breaker has opened since the claim, or another call is the one to try.
        lane.not_sent();
        drop(place);
        return recorder::record(context, Entry::not_sent(call, not_now(call, PUT_OFF), None))
            .await;
    };

    let started = Instant::now();
    about_to_send(context, lane, call, claimed);
    let number = Exchange::Attempt(call.attempt);
    let method = &request.method;
    *span = context
        .telemetry
        .span(&about(call, None), number, method, leaf);
    let trace = span.place().or(call.trace.as_ref());
    let asked = (request, &proofs, trace);
    let evidence = exchange(context, &settings, asked, timeout, term).await;
    let took = started.elapsed();
    // What fails a batch is recorded before the place goes to another call of it.
    let _held = call.batch.map(|_| place);

    let said = leaf.rules.verdict(&evidence).unwrap_or_else(|flaw| {
        context.observer.emit(Observation::NoVerdict {
            about: about(call, span.place()),
            flaw: &flaw,
        });
        None
    });
    let mut outcome = classify(&evidence, &leaf.rules, said);
    if call.compensates {
        outcome = outcome.of_compensation(&evidence);
    }
    let class = outcome.class();
    let good = matches!(class, Class::Confirmed | Class::Exists);
    span.end(&evidence, class.as_str(), !good);
    listen_to(context, lane, credential, outcome, &evidence);
    context.observer.emit(Observation::Attempted {
        about: about(call, span.place()),
        attempt: call.attempt,
        class: class.as_str(),
        took,
    });

    let answered = matches!(evidence, Evidence::Answered(_));
    let decision = decide(&standing(call, leaf, &request.method, answered), outcome);
    reached("attempt", "decided");
    match (decision, evidence) {
        (Decision::Confirm, Evidence::Answered(answer)) => {
            recorder::record(context, Entry::confirmed(call, request, answer, took)).await
        }
        (decision, evidence) => {
            let next = next(&settings, call, decision);
            recorder::record(
                context,
                Entry::unconfirmed(call, next, outcome, evidence, took),
            )
            .await
        }
    }
}

/// The attempt has panicked, which is logged. Nobody knows how far it came; and held for as long as the process lives, its
/// call would be nobody's.
async fn doubt(context: &Shared, settings: &Settings, call: &Claimed) -> Recorded {
    let Ok(request) = &call.request else {
        return Recorded::Nothing;
    };
    let evidence = Evidence::Unanswered(Unanswered {
        error: "the attempt panicked".to_owned(),
        status: None,
    });
    let standing = standing(call, &settings.leaf, &request.method, false);
    let next = next(settings, call, decide(&standing, Outcome::InDoubt));
    let entry = Entry::unconfirmed(call, next, Outcome::InDoubt, evidence, Duration::ZERO);
    recorder::record(context, entry).await
}

/// For the metrics, and for the process that may come after a SIGKILL.
fn about_to_send(context: &Shared, lane: &Lane, call: &Claimed, claimed: BootTime) {
    context.observer.emit(Observation::Sending {
        leaf: &lane.name,
        waited: call.waited + claimed.elapsed(),
    });
    if let Some(begun) = &context.begun {
        begun.note((call.id, call.round));
    }
}

/// It was claimed, and is not sent now.
fn not_now(call: &Claimed, delay: Duration) -> Next {
    if call.in_doubt {
        Next::Resend(delay)
    } else {
        Next::Retry(delay)
    }
}

/// What is known of the call and of its leaf, for the decision.
fn standing(call: &Claimed, leaf: &Leaf, method: &str, answered: bool) -> Standing {
    let dedups = leaf.idempotency.is_some();
    let has_probe = call.has_probe || leaf.probe.is_some();
    Standing {
        spent: call.spent,
        max_attempts: call.max_attempts.unwrap_or(leaf.retry.max_attempts),
        in_doubt: call.in_doubt,
        policy: Policy::for_call(leaf.in_doubt, has_probe, dedups, method),
        has_probe,
        keyed: dedups,
        safe: is_safe(method),
        replayed: answered
            && leaf
                .idempotency
                .as_ref()
                .is_some_and(|dialect| dialect.replays == Replays::All),
    }
}

/// The HTTP exchange; given up only where the process must end, and then nobody knows, unless it was not sent yet.
async fn exchange(
    context: &Shared,
    settings: &Settings,
    (request, proofs, trace): (&Request, &Proofs, Option<&Trace>),
    timeout: Duration,
    term: u64,
) -> Evidence {
    let stopped = &context.stop.waiting;
    let may_send = || context.may_send_in(term) && !stopped.is_cancelled();
    let sending = settings
        .client
        .send(request, proofs, trace, timeout, &may_send);
    let mut sending = pin!(std::panic::AssertUnwindSafe(sending).catch_unwind());
    let unanswered = |error: &str| {
        Evidence::Unanswered(Unanswered {
            error: error.to_owned(),
            status: None,
        })
    };
    let ended = tokio::select! {
        ended = &mut sending => Some(ended),
        // One that has no connection yet says, asked once more, that it sent nothing.
        () = stopped.cancelled() => (&mut sending).now_or_never(),
    };
    match ended {
        Some(Ok(Evidence::NotSent(NotSent::LeaseOver))) if stopped.is_cancelled() => {
            let why = "the sidecar was stopped before it was sent";
            Evidence::NotSent(NotSent::Refused(why.to_owned()))
        }
        Some(ended) => ended.unwrap_or_else(|_panic| unanswered("the client panicked")),
        None => unanswered("the sidecar was stopped while it waited for the answer"),
    }
}

/// How the leaf fares decides how many of its places are used.
pub(super) fn note(context: &Shared, lane: &Lane, evidence: &Evidence) {
    let given_up = context.stop.waiting.is_cancelled();
    if lane.note(Fares::seen(evidence, given_up)) {
        context
            .observer
            .emit(Observation::CutDown { leaf: &lane.name });
    }
}

/// What the attempt says about the leaf as a whole.
fn listen_to(
    context: &Shared,
    lane: &Lane,
    credential: &str,
    outcome: Outcome,
    evidence: &Evidence,
) {
    note(context, lane, evidence);
    let trouble = match outcome {
        Outcome::Retry(retry) => retry.trouble,
        Outcome::Confirmed
        | Outcome::Exists
        | Outcome::InDoubt
        | Outcome::Rejected
        | Outcome::Unsendable => None,
    };
    // Without an answer and without a failed connection, nothing was learned.
    if trouble.is_none() && !matches!(evidence, Evidence::Answered(_)) {
        if matches!(evidence, Evidence::NotSent(_)) {
            lane.not_heard(credential);
        }
        return;
    }
    tell_breaker(context, lane, credential, trouble);
}

/// Lets the breaker know how the leaf took the request, and tells what that changes.
pub(super) fn tell_breaker(
    context: &Shared,
    lane: &Lane,
    credential: &str,
    trouble: Option<Trouble>,
) {
    if trouble == Some(Trouble::Credential) {
        context.nudges.credentials.give();
    }
    if let Some(change) = lane.heard(credential, trouble) {
        context.observer.emit(Observation::Breaker {
            leaf: &lane.name,
            open: change.open,
            why: &change.why,
        });
        context.nudges.members.give();
    }
}

/// The decision with its delay: the leaf's `Retry-After` is a lower bound to the backoff, up to a limit.
fn next(settings: &Settings, call: &Claimed, decision: Decision) -> (Next, bool) {
    let retry = &settings.leaf.retry;
    let delay = |at_least: Option<Duration>| {
        let at_least = at_least.map(|wanted| wanted.min(retry.retry_after_max));
        retry.schedule.delay(call.attempt, at_least)
    };
    match decision {
        Decision::Retry { spends, at_least } => (Next::Retry(delay(at_least)), spends),
        Decision::Resend { spends, at_least } => (Next::Resend(delay(at_least)), spends),
        Decision::Ask { exists } => {
            let delay = if exists { Duration::ZERO } else { delay(None) };
            (Next::Ask { delay, exists }, true)
        }
        Decision::Park(reason) => (Next::Park(reason), true),
        Decision::Fail(FailReason::Unsendable) => (Next::Fail(FailReason::Unsendable), false),
        Decision::Fail(reason) => (Next::Fail(reason), true),
        // Confirmed without an answer can't be; nobody knows what it would be.
        Decision::Confirm => (Next::Park(ParkReason::NoProbe), true),
    }
}

/// Tells everyone who wants to know.
fn report(context: &Shared, call: &Claimed, recorded: Recorded, about: About<'_>) {
    let mut ended = false;
    match recorded {
        Recorded::Confirmed(how) => {
            ended = how != Confirmed::Again;
            context.observer.emit(Observation::Confirmed { about, how });
            context.result_news();
        }
        Recorded::Moved(Next::Prior(_), Moved::To(_)) => {
            ended = true;
            context.observer.emit(Observation::Prior { about });
        }
        Recorded::Moved(next, Moved::To(state)) => {
            let reason = match next {
                Next::Park(reason) => Some(reason.as_str()),
                Next::Fail(reason) => Some(reason.as_str()),
                Next::Retry(_)
                | Next::Wait(_)
                | Next::Resend(_)
                | Next::Ask { .. }
                | Next::Prior(_) => None,
            };
            // What stood by then, or a cancel, can have decided it otherwise.
            let reason = reason.filter(|_| matches!(state.as_str(), "parked" | "failed"));
            ended = matches!(state.as_str(), "failed" | "cancelled" | "confirmed");
            if ended || state == "parked" {
                context.call_news();
            }
            if matches!(next, Next::Ask { exists: true, .. }) {
                context.nudges.doubt.give();
            }
            context.observer.emit(Observation::Moved {
                about,
                state: &state,
                reason,
            });
        }
        Recorded::Moved(_, Moved::Superseded | Moved::Locked) => {
            context.observer.emit(Observation::Superseded { about });
        }
        Recorded::Nothing => {}
    }
    if ended && call.batch.is_some() {
        context.nudges.batch.give();
    }
    if let (true, Some(key)) = (ended, &call.ordering_key) {
        context.head_ended((call.leaf.clone(), key.clone()));
    }
}
