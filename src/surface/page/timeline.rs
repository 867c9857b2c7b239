//! A call's life, out of what the tables keep of it.
//!
//! An attempt that was confirmed has no row of its own: the result is what is known of it. What nobody wrote down is not
//! shown.

use jiff::Timestamp;
use serde::Serialize;

use super::{
    body::Shown,
    latency::short,
    view::{Moment, tone},
};
use crate::{
    present::text::Fields,
    store::operator::{show::Details, watch::Claim},
};

/// Something that happened to a call, or that will.
#[derive(Debug, Serialize)]
pub(super) struct Event {
    moment: Moment,
    tone: &'static str,
    what: String,
    /// The leaf's status.
    status: Option<String>,
    /// What is known beside.
    detail: Vec<String>,
    excerpt: Option<Shown>,
    /// It is still to come.
    ahead: bool,
}

fn event(moment: Moment, tone: &'static str, what: impl Into<String>) -> Event {
    Event {
        moment,
        tone,
        what: what.into(),
        status: None,
        detail: Vec::new(),
        excerpt: None,
        ahead: false,
    }
}

/// All of it, in order.
pub(super) fn events(
    details: &Details,
    claim: Option<&Claim>,
    fields: &Fields,
    result: Option<&Fields>,
    now: Timestamp,
) -> Vec<Event> {
    let at = |text: Option<String>| text.map(|text| Moment::read(&text, now));
    let mut events = Vec::new();
    if let Some(moment) = at(fields.text("created_at")) {
        let mut inserted = event(moment, "over", "inserted");
        if details.call.undoes.is_some() {
            inserted
                .detail
                .push("by the sidecar, as its batch is undone".to_owned());
        }
        events.push(inserted);
    }
    let attempts = Fields::read_all(fields.raw("attempt").unwrap_or("[]"));
    events.extend(attempts.iter().filter_map(|row| attempt(row, now)));
    events.extend(claims(details, claim, &attempts, now));
    let doubted = |row: &Fields| row.cell("class") == "in_doubt";
    if !attempts.iter().any(doubted)
        && let Some(moment) = at(fields.text("in_doubt_since"))
    {
        let mut doubt = event(moment, "doubt", "in doubt");
        let why = "its instance was not heard of any more, or stopped while the leaf was at work";
        doubt.detail.push(why.to_owned());
        events.push(doubt);
    }
    for action in Fields::read_all(&details.actions) {
        let what = format!("by hand: {}", action.cell("action").replace('_', " "));
        if let Some(moment) = at(action.text("at")) {
            let mut by_hand = event(moment, "moving", what);
            let words = format!("{}: {}", action.cell("actor"), action.cell("reason"));
            by_hand.detail.push(words);
            events.push(by_hand);
        }
    }
    events.extend(ends(details, fields, result, now));
    if let Some(moment) = at(fields.text("undone_at")) {
        events.push(event(moment, "over", "undone"));
    }
    if let Some(moment) = at(fields.text("next_attempt_at"))
        && moment.at.is_some_and(|at| at > now)
    {
        let what = match details.call.state.as_str() {
            "in_doubt" => "looked into",
            _ => "due",
        };
        let mut next = event(moment, "waiting", what);
        next.ahead = true;
        events.push(next);
    }
    // What has no time on record stays where it was put.
    events.sort_by_key(|event| event.moment.at.unwrap_or(now));
    events
}

fn attempt(row: &Fields, now: Timestamp) -> Option<Event> {
    let class = row.cell("class");
    let number = row.cell("attempt");
    let what = match class.as_str() {
        "retry" => format!("attempt {number} was not executed, and is made again"),
        "in_doubt" => format!("attempt {number} may have been executed: in doubt"),
        "failed" => format!("attempt {number} was refused"),
        "exists" => format!("attempt {number}: the leaf says that it exists already"),
        "confirmed_again" => format!("attempt {number} was confirmed too, after the effect stood"),
        "probe_absent" => "asked: it is not there".to_owned(),
        "probe_unclear" => "asked: no clear answer".to_owned(),
        other => format!("attempt {number}: {other}"),
    };
    let finished = row.text("finished_at");
    let started = row.text("started_at");
    let begun = Moment::read(started.as_ref().or(finished.as_ref())?, now);
    let ended = finished.map(|text| Moment::read(&text, now));
    let took = ended.and_then(|ended| Some(ended.at?.duration_since(begun.at?)));
    let mut event = event(begun, tone(&class), what);
    event.status = row.text("status");
    event.detail.extend(row.text("error"));
    if let Some(took) = took.filter(|_| started.is_some()) {
        // The end is the database's time, the begin was reckoned back from it a moment later.
        let took = format!("took {}", short(took.as_secs_f64().max(0.0)));
        let by = row.text("instance");
        event
            .detail
            .push(by.map_or(took.clone(), |by| format!("{took}, by {by}")));
    }
    event.excerpt = row.text("body").map(|text| Shown::text(&text));
    Some(event)
}

fn claims(
    details: &Details,
    claim: Option<&Claim>,
    attempts: &[Fields],
    now: Timestamp,
) -> Vec<Event> {
    let mut events = Vec::new();
    let Some(claim) = claim else {
        return events;
    };
    let by = claim.instance.as_deref();
    let by = by.map_or_else(
        || "an instance that is gone".to_owned(),
        |by| format!("by {by}"),
    );
    if let (Some(first), true) = (
        &claim.first_claimed_at,
        claim.tries > 1 && attempts.is_empty(),
    ) {
        let moment = Moment::read(first, now);
        events.push(event(moment, "moving", "claimed for the first time"));
    }
    if let (Some(latest), true) = (&claim.claimed_at, details.call.state == "dispatching") {
        let what = format!("claimed for attempt {}", claim.tries);
        let mut claimed = event(Moment::read(latest, now), "moving", what);
        claimed
            .detail
            .push(format!("{by}: its request may be on its way"));
        events.push(claimed);
    }
    events
}

fn ends(
    details: &Details,
    fields: &Fields,
    result: Option<&Fields>,
    now: Timestamp,
) -> Option<Event> {
    let call = &details.call;
    let state = call.state.as_str();
    if !matches!(state, "confirmed" | "failed" | "cancelled" | "expired") {
        return None;
    }
    let moment = Moment::read(&fields.text("finished_at")?, now);
    let mut end = event(moment, tone(state), state);
    let Some(result) = result.filter(|_| state == "confirmed") else {
        end.detail.extend(call.reason.clone());
        return Some(end);
    };
    let owner = result.cell("call_id");
    end.what = if owner == call.id.to_string() {
        let attempt = result.text("attempt");
        match (result.cell("source").as_str(), attempt) {
            ("response", Some(attempt)) => {
                format!("confirmed: the leaf's answer to attempt {attempt}")
            }
            ("response", None) => "confirmed: the leaf's answer".to_owned(),
            ("adopted", _) => "confirmed: the leaf was asked, and it is there".to_owned(),
            ("application", _) => "confirmed: the app's word".to_owned(),
            ("operator", _) => "confirmed: a person's word".to_owned(),
            (_, _) => "confirmed".to_owned(),
        }
    } else {
        format!("confirmed from the record: the effect is that of call {owner}")
    };
    end.status = result.text("status");
    Some(end)
}
