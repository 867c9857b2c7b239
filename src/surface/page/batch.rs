//! `/batches/{id}`: what its calls did, what its teardown waits for, what of it stands and why.

use std::collections::BTreeMap;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::{
    actions::{Deed, deeds_of},
    call::Tried,
    problem::{PageProblem, from_store},
    render,
    view::{Button, Line, Moment, button, now_of, tone},
    visit::Visit,
};
use crate::{
    domain::call::CallId,
    present::{
        explain_batch::{explain, remedies_of, remedies_to_undo, why_it_stands},
        json::left_out,
        remedy::Remedy,
        standing::batch_standing,
        text::Fields,
    },
    store::operator::{
        CallRow, STATES,
        batches::{BatchDetails, Calls},
        watch::LastWords,
    },
    surface::Surface,
};

/// What the template is given.
#[derive(Debug, Serialize)]
struct BatchPage {
    id: String,
    name: Option<String>,
    standing: String,
    tone: &'static str,
    stuck: bool,
    why: String,
    buttons: Vec<Button>,
    others: Vec<Button>,
    /// How many calls of each kind are in which state.
    kinds: Vec<Kind>,
    /// The states that any of them is in.
    states: Vec<&'static str>,
    effects: u64,
    undone: u64,
    options: Vec<&'static str>,
    times: Vec<(&'static str, Moment)>,
    waits_for: Vec<Waiting>,
    waits_more: u64,
    stands: Vec<Effect>,
    stands_more: u64,
    lists: Vec<List>,
    deeds: Vec<Deed>,
    tried: Tried,
}

#[derive(Debug, Serialize)]
struct Kind {
    name: &'static str,
    /// In the order of the states.
    numbers: Vec<u64>,
    all: u64,
}

#[derive(Debug, Serialize)]
struct Waiting {
    call: Line,
    buttons: Vec<Button>,
}

#[derive(Debug, Serialize)]
struct Effect {
    call: String,
    leaf: String,
    key: String,
    why: String,
    waived: bool,
    /// The call that undoes it.
    undo: Option<Line>,
    buttons: Vec<Button>,
}

#[derive(Debug, Serialize)]
struct List {
    title: &'static str,
    calls: Vec<Line>,
    more: u64,
}

/// What leaves said last.
struct Words {
    of: BTreeMap<CallId, LastWords>,
    /// Their bodies are shown, too.
    bodies: bool,
}

/// `GET /batches/{id}`
pub(super) async fn batch(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    visit: Visit,
) -> Result<Response, PageProblem> {
    page(&surface, &visit, &id, StatusCode::OK, Tried::default()).await
}

/// A batch's page, under a status that an action came to.
pub(super) async fn page(
    surface: &Surface,
    visit: &Visit,
    id: &str,
    status: StatusCode,
    tried: Tried,
) -> Result<Response, PageProblem> {
    let fault = |error| from_store(visit, error);
    let details = match id.parse::<Uuid>() {
        Ok(id) => surface.people().batch(id).await.map_err(fault)?,
        Err(_no_uuid) => None,
    };
    let Some(details) = details else {
        return Err(PageProblem::none(
            visit,
            &format!("There is no batch {id}."),
        ));
    };
    let undoing: Vec<CallId> = details.undoing.iter().map(|call| call.id).collect();
    let words = surface.people().last_words(&undoing).await.map_err(fault)?;
    let words = Words {
        of: words,
        bodies: surface.show_bodies,
    };
    let page = of(&details, &words, tried);
    Ok(render::page(visit, status, "batch.html", &page))
}

fn of(details: &BatchDetails, words: &Words, tried: Tried) -> BatchPage {
    let batch = &details.batch;
    let said = explain(details);
    let row = Fields::read(&batch.json).unwrap_or_default();
    let now = now_of(&row.cell("created_at"), batch.age.unwrap_or_default());
    let effects = Fields::read_all(&details.effects);
    let torn_down = matches!(
        batch.state.as_str(),
        "cancelling" | "compensating" | "cancelled"
    );
    let stands: Vec<Effect> = if torn_down {
        effects
            .iter()
            .map(|row| effect(details, row, words))
            .collect()
    } else {
        Vec::new()
    };
    let stands_more = if torn_down {
        let shown = u64::try_from(stands.len()).unwrap_or(u64::MAX);
        batch.standing.saturating_sub(shown)
    } else {
        0
    };
    let (states, kinds) = kinds(&details.kinds);
    BatchPage {
        id: batch.id.to_string(),
        name: batch.name.clone(),
        standing: batch_standing(batch),
        tone: if batch.reason.as_deref() == Some("teardown_incomplete") {
            "bad"
        } else {
            tone(&batch.state)
        },
        stuck: batch.stuck,
        why: said.why,
        // What would move a call stands with that call, below.
        buttons: said
            .remedies
            .iter()
            .filter(|remedy| matches!(remedy, Remedy::CancelBatch(_)))
            .map(|remedy| button(remedy, None))
            .collect(),
        others: if batch.state == "open" && said.remedies.is_empty() {
            vec![button(&Remedy::CancelBatch(batch.id), None)]
        } else {
            Vec::new()
        },
        kinds,
        states,
        effects: batch.standing,
        undone: details.undone,
        options: options(&row),
        times: times(&row, now),
        waits_for: details
            .waits_for
            .first
            .iter()
            .map(|call| waiting(details, call))
            .collect(),
        waits_more: left_out(&details.waits_for, details.waits_for.first.len()),
        stands,
        stands_more,
        lists: [
            ("Calls", &details.ready),
            ("Undoing", &details.compensations),
            ("Follow-ups", &details.follow_ups),
        ]
        .into_iter()
        .filter(|(_, calls)| calls.number > 0)
        .map(|(title, calls)| list(title, calls))
        .collect(),
        deeds: deeds_of(&details.actions, now),
        tried,
    }
}

fn times(row: &Fields, now: Timestamp) -> Vec<(&'static str, Moment)> {
    let times = [
        ("inserted", "created_at"),
        ("in this state since", "changed_at"),
        ("without a live call since", "idle_since"),
        ("ended", "finished_at"),
    ];
    let told = times.into_iter().filter_map(|(label, name)| {
        let text = row.text(name)?;
        Some((label, Moment::read(&text, now)))
    });
    told.collect()
}

fn list(title: &'static str, calls: &Calls) -> List {
    List {
        title,
        calls: calls.first.iter().map(Line::of).collect(),
        more: left_out(calls, calls.first.len()),
    }
}

fn waiting(details: &BatchDetails, call: &CallRow) -> Waiting {
    // Of what undoes, they stand with the effect.
    let remedies = if call.undoes.is_none() {
        remedies_of(details, call)
    } else {
        Vec::new()
    };
    Waiting {
        call: Line::of(call),
        buttons: remedies
            .iter()
            .map(|remedy| button(remedy, Some(call)))
            .collect(),
    }
}

fn effect(details: &BatchDetails, row: &Fields, words: &Words) -> Effect {
    let undo = row.cell("compensation");
    let undo = details
        .undoing
        .iter()
        .find(|call| call.id.to_string() == undo);
    Effect {
        call: row.cell("call_id"),
        leaf: row.cell("leaf"),
        key: row.cell("key"),
        why: why_it_stands(details, row),
        waived: row.cell("compensation_reason") == "waived",
        undo: undo.map(|call| Line::of(call).with_words(words.of.get(&call.id), words.bodies)),
        buttons: remedies_to_undo(details, row)
            .iter()
            .map(|remedy| button(remedy, undo))
            .collect(),
    }
}

fn kinds(json: &str) -> (Vec<&'static str>, Vec<Kind>) {
    let kinds = Fields::read(json).unwrap_or_default();
    let read: Vec<(&'static str, Fields)> = [
        ("calls", "ready"),
        ("undoing", "compensation"),
        ("follow-ups", "follow_up"),
    ]
    .into_iter()
    .filter_map(|(name, kind)| Some((name, Fields::read(&kinds.text(kind)?)?)))
    .collect();
    let number = |fields: &Fields, state: &str| -> u64 {
        let number = fields.text(state);
        number.and_then(|n| n.parse().ok()).unwrap_or_default()
    };
    let states: Vec<&'static str> = STATES
        .iter()
        .copied()
        .filter(|state| read.iter().any(|(_, fields)| number(fields, state) > 0))
        .collect();
    let kinds = read.iter().map(|(name, fields)| {
        let numbers: Vec<u64> = states.iter().map(|state| number(fields, state)).collect();
        Kind {
            name,
            all: numbers.iter().sum(),
            numbers,
        }
    });
    let kinds = kinds.collect();
    (states, kinds)
}

fn options(row: &Fields) -> Vec<&'static str> {
    [
        ("allow_failures", "true", "failures are allowed"),
        ("sealed", "false", "not sealed: more calls may come"),
        ("undo_order", "any", "undone in any order"),
    ]
    .into_iter()
    .filter(|(name, value, _)| row.cell(name) == *value)
    // What no longer takes calls has no more to come.
    .filter(|(name, ..)| *name != "sealed" || row.cell("state") == "open")
    .map(|(_, _, says)| says)
    .collect()
}
