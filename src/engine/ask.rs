//! One probe: asks the leaf whether the effect of a call in doubt is there, and records what it says.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    attempt::{note, tell_breaker},
    context::Shared,
    driver::backoff,
    entry::{stored_body, stored_headers, stored_text},
    lane::Lane,
    probe_place::ProbePlace,
    prober::RECORDING,
};
use crate::{
    config::{Leaf, Probe, duration_of},
    domain::{
        decision::{ParkReason, is_idempotent},
        evidence::{Answer, Evidence, NotSent},
        outcome::Trouble,
        probe::{AfterProbe, Asked, Body, Verdict, after, after_undo, judge},
        request::Request,
        template::{check_expression, check_path, render_path},
        trace::Trace,
    },
    observe::{About, Observation},
    step::reached,
    store::{
        doubt::DoubtRow,
        probe::{AskedCall, ProbeNext, ProbeRecord, ProbeRecorded},
    },
    telemetry::{Exchange, Span},
};

/// Of an answer that decided nothing, people see this much.
const EXCERPT_BYTES: usize = 2000;

/// A row may ask for no longer patience than this.
pub(super) const SETTLE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Reads a call in doubt whose turn to be asked about is taken; asks, judges, records. The place is free when it is recorded.
pub(super) async fn ask(context: Shared, lane: Arc<Lane>, doubt: DoubtRow, place: ProbePlace) {
    match context.store.asked_call(doubt.call).await {
        Ok(Some(call)) => ask_about(&context, &lane, doubt, call).await,
        // Its row has gone.
        Ok(None) => {}
        // Its turn comes again.
        Err(error) => context.failed(&error),
    }
    drop(place);
}

async fn ask_about(context: &Shared, lane: &Arc<Lane>, doubt: DoubtRow, call: AskedCall) {
    reached("probe", "before");
    let settings = lane.settings();
    let leaf = &settings.leaf;
    let started = Instant::now();
    let prepared = probe_of(&call, leaf.probe.as_ref()).and_then(|probe| {
        let values = serde_json::json!({ "call": call.seen });
        let path = render_path(&probe.path, &values).map_err(|flaw| format!("path: {flaw}"))?;
        Ok((probe, path))
    });
    let mut span = Span::default();
    let judged = match prepared {
        Err(flaw) => Judged {
            next: ProbeNext::Park(ParkReason::Template.as_str()),
            unclear: 0,
            status: None,
            history: Some(("probe_unclear", Some(format!("its probe: {flaw}")), None)),
            verdict: "unclear",
        },
        Ok((probe, path)) => {
            let about = about(&lane.name, &call, None);
            span = context
                .telemetry
                .span(&about, Exchange::Probe, &probe.method, leaf);
            let trace = span.place().or(call.trace.as_ref());
            let evidence = exchange(context, lane, &probe.method, path, &call, trace).await;
            listen_to(context, lane, call.credential.as_deref(), &evidence);
            let verdict = judge(&evidence, probe.found.as_deref(), &call.seen);
            span.end(&evidence, verdict.as_str(), !verdict.is_clear());
            judge_call(&doubt, &call, &probe, evidence, &verdict, leaf)
        }
    };
    let about = about(&lane.name, &call, span.place());
    context.observer.emit(Observation::Probed {
        about,
        verdict: judged.verdict,
    });
    let mut record = ProbeRecord {
        call: call.call,
        tries: doubt.tries,
        alive_until: doubt.alive_until,
        leaf: lane.name.clone(),
        key: call.key.clone(),
        next: judged.next,
        unclear: judged.unclear,
        max_attempts: doubt.max_attempts.unwrap_or(leaf.retry.max_attempts),
        status: judged.status,
        history: judged.history,
        took: started.elapsed(),
    };
    reached("probe", "judged");
    if let Some(recorded) = write(context, &mut record).await {
        told(context, about, &doubt, &call, &record, &recorded);
    }
    reached("probe", "done");
}

fn about<'a>(leaf: &'a str, call: &'a AskedCall, span: Option<&'a Trace>) -> About<'a> {
    About {
        call: call.call,
        leaf,
        batch: call.batch,
        undoes: call.compensates,
        trace: call.trace.as_ref(),
        span,
    }
}

/// The row's own probe, else the leaf's. The row's is checked here, at its first use.
fn probe_of(call: &AskedCall, leaf: Option<&Probe>) -> Result<Probe, String> {
    let Some(own) = &call.probe else {
        return leaf
            .cloned()
            .ok_or_else(|| "there is none any more".to_owned());
    };
    let own = own.as_ref().map_err(Clone::clone)?;
    // What is there and is not understood must not count as absent: without `found`, anything is found.
    let text = |name: &str| match own.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(format!("{name}: {other} is no text")),
    };
    let settle = match text("settle")? {
        None => leaf.map_or(crate::config::DEFAULT_SETTLE, |leaf| leaf.settle),
        Some(settle) => duration_of(&settle)
            .and_then(|time| {
                let fits = time <= SETTLE_MAX;
                fits.then_some(time)
                    .ok_or_else(|| format!("{settle:?} is longer than a year"))
            })
            .map_err(|flaw| format!("settle: {flaw}"))?,
    };
    let max_probes = match own.get("max_probes") {
        None => leaf.map_or(crate::config::DEFAULT_MAX_PROBES, |leaf| leaf.max_probes),
        Some(number) => number
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number > 0)
            .ok_or_else(|| format!("max_probes: {number} is no whole number above 0"))?,
    };
    // As the outbox's CHECK wants it, which may be gone: a probe changes nothing.
    let method = text("method")?.unwrap_or_else(|| "GET".to_owned());
    if !matches!(method.as_str(), "GET" | "HEAD") {
        return Err(format!("method: {method:?} is neither GET nor HEAD"));
    }
    let path = text("path")?.ok_or("path: it has none")?;
    check_path(&path, &["call"]).map_err(|flaw| format!("path: {flaw}"))?;
    let found = text("found")?;
    if let Some(found) = &found {
        check_expression(found, &["response", "call"]).map_err(|flaw| format!("found: {flaw}"))?;
    }
    Ok(Probe {
        method,
        path,
        found,
        settle,
        max_probes,
    })
}

async fn exchange(
    context: &Shared,
    lane: &Lane,
    method: &str,
    path: String,
    call: &AskedCall,
    trace: Option<&Trace>,
) -> Evidence {
    let settings = lane.settings();
    let not_known = |why: &str| Evidence::NotSent(NotSent::Refused(why.to_owned()));
    let Ok(proofs) = settings.leaf.secrets.proofs_for(call.credential.as_deref()) else {
        return not_known("its credential is not there");
    };
    let request = Request {
        method: method.to_owned(),
        path,
        headers: Vec::new(),
        body: None,
        content_type: None,
        idempotency: None,
        message_id: None,
        credential: call.credential.clone(),
    };
    let may_send = || context.may_send();
    let timeout = settings.leaf.timeout;
    let sending = settings
        .client
        .send(&request, &proofs, trace, timeout, &may_send);
    tokio::select! {
        evidence = sending => evidence,
        // It changes nothing at the leaf: another instance asks again.
        () = context.stop.waiting.cancelled() => not_known("the sidecar was stopped while it asked"),
    }
}

/// What the probe says about the leaf as a whole.
fn listen_to(context: &Shared, lane: &Lane, credential: Option<&str>, evidence: &Evidence) {
    note(context, lane, evidence);
    let trouble = match evidence {
        Evidence::Answered(answer) if matches!(answer.status, 401 | 407) => {
            Some(Trouble::Credential)
        }
        Evidence::Answered(_) => None,
        Evidence::NotSent(NotSent::Unconnected(_)) => Some(Trouble::Connection),
        Evidence::NotSent(_) => {
            lane.not_heard(credential.unwrap_or_default());
            return;
        }
        Evidence::Unanswered(_) => return,
    };
    tell_breaker(context, lane, credential.unwrap_or_default(), trouble);
}

/// What an answer means for the call, and what people will read of it.
struct Judged {
    next: ProbeNext,
    /// Unclear answers to count.
    unclear: u32,
    status: Option<u16>,
    /// Class, error, and an excerpt of the body.
    history: Option<(&'static str, Option<String>, Option<String>)>,
    verdict: &'static str,
}

fn judge_call(
    doubt: &DoubtRow,
    call: &AskedCall,
    probe: &Probe,
    evidence: Evidence,
    verdict: &Verdict,
    leaf: &Leaf,
) -> Judged {
    let retry = &leaf.retry;
    let counts = matches!(verdict, Verdict::Unclear { counts: true, .. });
    let unclear = u32::from(counts);
    let asked = Asked {
        exists: doubt.exists,
        first: doubt.tries <= 1,
        until_settled: match doubt.since_alive {
            Ok(since) => probe.settle.saturating_sub(since),
            Err(ahead) => probe.settle + ahead,
        },
        unclear: doubt.unclear + unclear,
        repeatable: is_idempotent(&doubt.method) || leaf.idempotency.is_some(),
        max_probes: probe.max_probes,
    };
    let status = match &evidence {
        Evidence::Answered(answer) => Some(answer.status),
        Evidence::Unanswered(unanswered) => unanswered.status,
        Evidence::NotSent(_) => None,
    };
    let excerpt = match &evidence {
        Evidence::Answered(answer) => {
            let bytes = &answer.body[..answer.body.len().min(EXCERPT_BYTES)];
            Some(stored_text(&String::from_utf8_lossy(bytes)))
        }
        Evidence::Unanswered(_) | Evidence::NotSent(_) => None,
    };
    let history = match verdict {
        Verdict::Found { .. } if call.compensates => {
            let why = "what it undoes is still there".to_owned();
            Some(("probe_unclear", Some(why), None))
        }
        Verdict::Found { .. } => None,
        Verdict::Absent | Verdict::Unmatched if call.compensates => None,
        Verdict::Absent => Some(("probe_absent", None, excerpt)),
        Verdict::Unmatched => {
            let why = "what is there is not this call's".to_owned();
            Some(("probe_absent", Some(why), excerpt))
        }
        Verdict::Unclear { why, .. } | Verdict::Unaskable(why) => {
            Some(("probe_unclear", Some(stored_text(why)), excerpt))
        }
    };
    let decide = if call.compensates { after_undo } else { after };
    let next = match decide(verdict, &asked) {
        AfterProbe::Adopt { body, weak } => adopt(call, evidence, body, weak),
        AfterProbe::NotExecuted => ProbeNext::NotExecuted,
        AfterProbe::Again(delay) => ProbeNext::Again(delay),
        AfterProbe::Backoff { counts, not_before } => {
            let failures = if counts {
                doubt.unclear + 1
            } else {
                retry.schedule.failures_within(doubt.in_doubt_for)
            };
            let at_least = not_before.map(|wanted| wanted.min(retry.retry_after_max));
            ProbeNext::Again(retry.schedule.delay(failures, at_least))
        }
        AfterProbe::Park(reason) => ProbeNext::Park(reason.as_str()),
        AfterProbe::Rejected => ProbeNext::Rejected,
    };
    Judged {
        next,
        unclear,
        status,
        history,
        verdict: verdict.as_str(),
    }
}

fn adopt(call: &AskedCall, evidence: Evidence, body: Body, weak: bool) -> ProbeNext {
    let answer = match evidence {
        Evidence::Answered(answer) => answer,
        Evidence::Unanswered(_) | Evidence::NotSent(_) => Answer {
            status: 200,
            headers: Vec::new(),
            retry_after: None,
            body: bytes::Bytes::new(),
            truncated: false,
        },
    };
    let truncated = answer.truncated && body == Body::Whole;
    let (body, body_raw) = match body {
        Body::None => (None, None),
        Body::Whole => stored_body(answer.body, truncated),
        Body::Value(value) => stored_body(value.to_string().into(), false),
    };
    ProbeNext::Adopt {
        headers: stored_headers(answer.headers),
        body,
        body_raw,
        truncated,
        weak,
        request_hash: call.request_hash,
    }
}

/// Records it; while the database is away it waits, as the place does. `None` where something else decided it, or where the
/// database refuses it: then the call becomes due again, and must not take a place each time.
async fn write(context: &Shared, record: &mut ProbeRecord) -> Option<ProbeRecorded> {
    let mut failures = 0;
    let since = Instant::now();
    loop {
        match context
            .store
            .record_probe(&context.identity.name, record)
            .await
        {
            Ok(recorded) => return recorded,
            Err(error) if error.is_content() && give_up_content(record) => {}
            Err(error) => {
                context.failed(&error);
                failures += 1;
                let refused = error.code().is_some() && since.elapsed() >= RECORDING;
                if refused || context.stop.waiting.is_cancelled() {
                    return None;
                }
                tokio::time::sleep(backoff().delay(failures, None)).await;
            }
        }
    }
}

/// Tells everyone who wants to know.
fn told(
    context: &Shared,
    about: About<'_>,
    doubt: &DoubtRow,
    asked: &AskedCall,
    record: &ProbeRecord,
    recorded: &ProbeRecorded,
) {
    match recorded.state.as_str() {
        "confirmed" if recorded.stood => context.observer.emit(Observation::Prior { about }),
        "confirmed" => {
            let how = if doubt.exists { "exists" } else { "probe" };
            let weak = matches!(record.next, ProbeNext::Adopt { weak: true, .. });
            context
                .observer
                .emit(Observation::Adopted { about, how, weak });
            context.result_news();
        }
        state => {
            let reason = recorded.reason.as_deref();
            context.observer.emit(Observation::Moved {
                about,
                state,
                reason,
            });
            match state {
                "pending" => context.nudges.work.give(),
                "in_doubt" => {}
                _ => context.call_news(),
            }
        }
    }
    let ended = !matches!(recorded.state.as_str(), "pending" | "in_doubt" | "parked");
    if ended {
        // Another call may have waited for its key.
        context.nudges.work.give();
    }
    if ended && asked.batch.is_some() {
        context.nudges.batch.give();
    }
    if let (true, Some(key)) = (ended, &asked.ordering_key) {
        context.head_ended((about.leaf.to_owned(), key.clone()));
    }
}

/// The database refuses the content: first as bytes, then without the body. `false` where there is nothing left
/// to give up, so that it is something else that refuses.
fn give_up_content(record: &mut ProbeRecord) -> bool {
    let had_history = record.history.take().is_some();
    let ProbeNext::Adopt {
        headers,
        body,
        body_raw,
        truncated,
        ..
    } = &mut record.next
    else {
        return had_history;
    };
    if let Some(text) = body.take() {
        *body_raw = Some(text.into_bytes());
        return true;
    }
    let had_body = body_raw.take().is_some();
    let had_headers = headers != "{}";
    *truncated |= had_body;
    "{}".clone_into(headers);
    had_history || had_body || had_headers
}
