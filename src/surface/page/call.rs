//! `/calls/{id}`: why a call is where it is, what would move it, and its life.

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde::Serialize;

use super::{
    actions::{Deed, deeds_of},
    body::Shown,
    problem::{PageProblem, from_store},
    render,
    timeline::{Event, events},
    view::{Button, Line, Moment, button, end, now_of, tone},
    visit::{Visit, percent},
};
use crate::{
    domain::call::CallId,
    present::{
        explain::explain,
        json,
        remedy::Remedy,
        standing::{batch_standing, numbers},
        text::Fields,
    },
    store::operator::{CallRow, batches::BatchRow, show::Details, watch::Claim},
    surface::{Surface, problem::Problem},
};

/// What the template is given.
#[derive(Debug, Serialize)]
struct CallPage {
    call: Line,
    why: String,
    buttons: Vec<Button>,
    /// What else can be done.
    others: Vec<Button>,
    facts: Vec<Fact>,
    request: Exchange,
    result: Option<Exchange>,
    events: Vec<Event>,
    deeds: Vec<Deed>,
    batch: Option<BatchFacts>,
    waits_for: Option<Line>,
    same_key: Vec<Line>,
    /// The list of all calls of its key.
    key_list: String,
    /// Bodies, headers and excerpts are not shown.
    hidden: bool,
    tried: Tried,
}

/// What somebody has filled in that was refused.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Tried {
    pub(super) deed: String,
    pub(super) reason: String,
    pub(super) status: String,
    pub(super) body: String,
}

/// One line of what is known.
#[derive(Debug, Serialize)]
pub(super) struct Fact {
    label: &'static str,
    text: String,
    moment: Option<Moment>,
    to: Option<String>,
}

/// What was sent, or what came back.
#[derive(Debug, Default, Serialize)]
struct Exchange {
    line: String,
    facts: Vec<Fact>,
    headers: Vec<(String, String)>,
    body: Option<Shown>,
}

#[derive(Debug, Serialize)]
struct BatchFacts {
    id: String,
    name: Option<String>,
    standing: String,
    tone: &'static str,
    stuck: bool,
    calls: String,
    effects: u64,
    ended: Vec<Ended>,
}

#[derive(Debug, Serialize)]
struct Ended {
    id: String,
    state: String,
    reason: String,
}

/// `GET /calls/{id}`
pub(super) async fn call(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    visit: Visit,
) -> Result<Response, PageProblem> {
    page(&surface, &visit, &id, StatusCode::OK, Tried::default()).await
}

/// A call's page, under a status that an action came to.
pub(super) async fn page(
    surface: &Surface,
    visit: &Visit,
    id: &str,
    status: StatusCode,
    tried: Tried,
) -> Result<Response, PageProblem> {
    let fault = |error| from_store(visit, error);
    let details = match id.parse::<CallId>() {
        Ok(id) => surface.people().call(id).await.map_err(fault)?,
        Err(_no_number) => None,
    };
    let Some(details) = details else {
        return Err(PageProblem::none(visit, &format!("There is no call {id}.")));
    };
    let claim = surface
        .people()
        .claim_of(details.call.id)
        .await
        .map_err(fault)?;
    let told = told(&details, surface.show_bodies)
        .map_err(|flaw| PageProblem::new(visit, &Problem::from(flaw)))?;
    let page = of(&details, claim.as_ref(), &told, !surface.show_bodies, tried);
    Ok(render::page(visit, status, "call.html", &page))
}

/// All that is known of the call, without what is not to be shown.
fn told(details: &Details, show_bodies: bool) -> serde_json::Result<Fields> {
    let mut object = json::call(details)?;
    if !show_bodies {
        json::hide_bodies(&mut object)?;
    }
    Ok(Fields::of(object))
}

fn of(
    details: &Details,
    claim: Option<&Claim>,
    fields: &Fields,
    hidden: bool,
    tried: Tried,
) -> CallPage {
    let call = &details.call;
    let said = explain(details);
    let now = now_of(&fields.cell("created_at"), call.age);
    let result = fields.raw("result").and_then(Fields::read);
    CallPage {
        call: Line::of(call),
        buttons: said
            .remedies
            .iter()
            .map(|remedy| button(remedy, Some(call)))
            .collect(),
        others: others(call, &said.remedies),
        why: said.why,
        facts: standing_facts(fields, claim, now),
        request: request(fields),
        events: events(details, claim, fields, result.as_ref(), now),
        result: result.map(|result| answer(&result, call.id, now)),
        deeds: deeds_of(&details.actions, now),
        batch: details
            .batch
            .as_ref()
            .map(|batch| batch_facts(batch, &details.ended)),
        waits_for: details.waits_for.as_ref().map(Line::of),
        same_key: details.same_key.iter().map(Line::of).collect(),
        key_list: format!(
            "/calls?leaf={}&key={}",
            percent(&call.leaf),
            percent(&call.key)
        ),
        hidden,
        tried,
    }
}

/// What can be done beside what would move it.
fn others(call: &CallRow, remedies: &[Remedy]) -> Vec<Button> {
    let mut others = Vec::new();
    if call.state == "parked" {
        others.push(end(call));
    }
    let cancel = Remedy::Cancel(call.id);
    let can = matches!(
        call.state.as_str(),
        "pending" | "dispatching" | "accepted" | "in_doubt"
    );
    if can && call.undoes.is_none() && !remedies.contains(&cancel) {
        others.push(button(&cancel, Some(call)));
    }
    others
}

fn fact(label: &'static str, text: impl Into<String>) -> Fact {
    Fact {
        label,
        text: text.into(),
        moment: None,
        to: None,
    }
}

fn standing_facts(fields: &Fields, claim: Option<&Claim>, now: jiff::Timestamp) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (label, name) in [("last status", "last_status"), ("claimed by", "claimed_by")] {
        facts.extend(fields.text(name).map(|text| fact(label, text)));
    }
    let mut spent = fields.cell("attempts");
    if let Some(most) = fields.text("max_attempts") {
        spent = format!("{spent} of {most}");
    }
    if let Some(claim) = claim.filter(|claim| claim.tries > 0) {
        spent = match claim.tries {
            1 => format!("{spent} spent, claimed once"),
            tries => format!("{spent} spent, claimed {tries} times"),
        };
        if claim.crashes > 0 {
            spent = format!("{spent}; instances went down with it: {}", claim.crashes);
        }
    }
    facts.push(fact("attempts", spent));
    for (label, name) in [
        ("inserted", "created_at"),
        ("in doubt since", "in_doubt_since"),
        ("looked at next", "next_attempt_at"),
        ("not before", "not_before"),
        ("deadline", "deadline"),
        ("ended", "finished_at"),
        ("undone", "undone_at"),
    ] {
        facts.extend(moment(label, fields.text(name), now));
    }
    if let Some(claim) = claim {
        // Only for as long as they are still to come.
        for (label, text, counts) in [
            (
                "given up",
                &claim.give_up_at,
                fields.cell("state") == "pending",
            ),
            ("its request can be alive until", &claim.alive_until, true),
        ] {
            let ahead = moment(label, text.clone().filter(|_| counts), now);
            facts.extend(ahead.filter(|fact| {
                let moment = fact.moment.as_ref().and_then(|moment| moment.at);
                moment.is_some_and(|at| at > now)
            }));
        }
        if let Some(why) = &claim.cancel_requested {
            facts.push(fact("to be cancelled", why));
        }
    }
    if let Some(undoes) = fields.text("undoes") {
        let mut fact = fact("undoes", format!("call {undoes}"));
        fact.to = Some(format!("/calls/{undoes}"));
        facts.push(fact);
    }
    facts
}

fn moment(label: &'static str, text: Option<String>, now: jiff::Timestamp) -> Option<Fact> {
    let moment = Moment::read(&text?, now);
    Some(Fact {
        moment: Some(moment),
        ..fact(label, "")
    })
}

fn request(fields: &Fields) -> Exchange {
    let mut facts = Vec::new();
    for (label, name, usual) in [
        ("credential", "credential", ""),
        ("ordering key", "ordering_key", ""),
        ("priority", "priority", "0"),
        ("runs when", "run_when", "ready"),
        ("timeout", "timeout", ""),
        ("content type", "content_type", ""),
        ("meta", "meta", "{}"),
        ("its own probe", "probe", ""),
        ("its own compensation", "compensate", ""),
    ] {
        let text = fields.text(name).filter(|text| text != usual);
        facts.extend(text.map(|text| fact(label, text)));
    }
    if let Some(trace) = trace_id(fields) {
        facts.push(fact("trace", trace));
    }
    Exchange {
        line: format!("{} {}", fields.cell("method"), fields.cell("path")),
        facts,
        headers: headers(fields),
        body: body(fields),
    }
}

fn answer(result: &Fields, call: CallId, now: jiff::Timestamp) -> Exchange {
    let mut facts = Vec::new();
    let source = result.cell("source");
    let says = match source.as_str() {
        "response" => "the leaf's answer",
        "adopted" => "adopted: a probe found it",
        "application" => "the app's word",
        "operator" => "a person's word",
        other => other,
    };
    facts.push(fact("source", says));
    let own = result.text("call_id");
    if let Some(owner) = own.filter(|owner| *owner != call.to_string()) {
        let mut fact = fact("of", format!("call {owner}"));
        fact.to = Some(format!("/calls/{owner}"));
        facts.push(fact);
    }
    facts.extend(moment("confirmed", result.text("confirmed_at"), now));
    facts.extend(moment("undone", result.text("undone_at"), now));
    for (label, name, usual) in [
        ("generation", "generation", "1"),
        ("sequence number", "seq", ""),
        ("weak", "weak", "false"),
        ("truncated", "truncated", "false"),
    ] {
        let text = result.text(name).filter(|text| text != usual);
        facts.extend(text.map(|text| fact(label, text)));
    }
    Exchange {
        line: result.cell("status"),
        facts,
        headers: headers(result),
        body: body(result),
    }
}

fn headers(fields: &Fields) -> Vec<(String, String)> {
    let headers = fields.text("headers").unwrap_or_default();
    let headers: std::collections::BTreeMap<String, String> =
        serde_json::from_str(&headers).unwrap_or_default();
    headers.into_iter().collect()
}

fn body(fields: &Fields) -> Option<Shown> {
    if let Some(json) = fields.raw("body") {
        return Some(Shown::json(json));
    }
    let raw = fields.text("body_raw")?;
    Some(Shown::bytes(&raw))
}

/// The trace of `meta.traceparent` (W3C Trace Context, section 3.2.2).
fn trace_id(fields: &Fields) -> Option<String> {
    let meta = Fields::read(&fields.text("meta")?)?;
    let parent = meta.text("traceparent")?;
    let id = parent.split('-').nth(1)?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

fn batch_facts(batch: &BatchRow, ended: &str) -> BatchFacts {
    let ended = Fields::read_all(ended);
    BatchFacts {
        id: batch.id.to_string(),
        name: batch.name.clone(),
        standing: batch_standing(batch),
        tone: tone(&batch.state),
        stuck: batch.stuck,
        calls: numbers(&batch.calls),
        effects: batch.standing,
        ended: ended
            .iter()
            .map(|call| Ended {
                id: call.cell("id"),
                state: call.cell("state"),
                reason: call.cell("reason"),
            })
            .collect(),
    }
}
