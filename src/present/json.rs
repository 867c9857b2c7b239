//! All that is known of a call or a batch, as one JSON object. What PostgreSQL wrote goes through unread.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use super::{
    explain::explain,
    explain_batch::{self, remedies_of, remedies_to_undo, why_it_stands},
    remedy::Remedy,
    text::Fields,
};
use crate::store::operator::{
    CallRow,
    batches::{BatchDetails, Calls},
    show::Details,
};

/// The fields of a JSON object, unread.
pub(crate) type Object = BTreeMap<String, Box<RawValue>>;

/// A call: the columns of the view, and what belongs to it under the names of the tables.
///
/// # Errors
/// PostgreSQL's text is no JSON.
pub(crate) fn call(details: &Details) -> serde_json::Result<Object> {
    let said = explain(details);
    let null = || "null".to_owned();
    let head = details.waits_for.as_ref().map(|call| call.json.clone());
    let batch = match &details.batch {
        Some(batch) => Some(with(&batch.json, [("ended", raw(&details.ended)?)])?),
        None => None,
    };
    let fields = [
        ("attempt", raw(&details.attempts)?),
        ("result", raw(&details.result.clone().unwrap_or_else(null))?),
        ("batch", to_raw_value(&batch)?),
        ("operator_action", raw(&details.actions)?),
        ("waits_for_call", raw(&head.unwrap_or_else(null))?),
        ("same_key", rows(&details.same_key)?),
        ("holds_others", to_raw_value(&details.holds_others)?),
        ("explanation", to_raw_value(&said.why)?),
        ("commands", to_raw_value(&said.commands())?),
    ];
    with(&details.call.json, fields)
}

/// A batch: its row, and its calls by kind.
///
/// # Errors
/// PostgreSQL's text is no JSON.
pub(crate) fn batch(details: &BatchDetails) -> serde_json::Result<Object> {
    let said = explain_batch::explain(details);
    let mut waits_for: Vec<Object> = Vec::new();
    for call in &details.waits_for.first {
        let commands = commands(&remedies_of(details, call))?;
        waits_for.push(with(&call.json, [("commands", commands)])?);
    }
    let effects: Vec<Box<RawValue>> = serde_json::from_str(&details.effects)?;
    let mut told: Vec<Object> = Vec::new();
    for text in effects {
        let effect = Fields::read(text.get()).unwrap_or_default();
        let fields = [
            ("why", to_raw_value(&why_it_stands(details, &effect))?),
            ("commands", commands(&remedies_to_undo(details, &effect))?),
        ];
        told.push(with(text.get(), fields)?);
    }
    let standing = usize::try_from(details.batch.standing).unwrap_or(usize::MAX);
    let left_out = serde_json::json!({
        "ready": left_out(&details.ready, details.ready.first.len()),
        "compensation": left_out(&details.compensations, details.compensations.first.len()),
        "follow_up": left_out(&details.follow_ups, details.follow_ups.first.len()),
        "waits_for": left_out(&details.waits_for, details.waits_for.first.len()),
        "effect": standing.saturating_sub(told.len()),
    });
    let fields = [
        ("calls_by_kind", raw(&details.kinds)?),
        ("undone", to_raw_value(&details.undone)?),
        ("ready", rows(&details.ready.first)?),
        ("compensation", rows(&details.compensations.first)?),
        ("follow_up", rows(&details.follow_ups.first)?),
        ("waits_for", to_raw_value(&waits_for)?),
        ("effect", to_raw_value(&told)?),
        ("left_out", to_raw_value(&left_out)?),
        ("operator_action", raw(&details.actions)?),
        ("explanation", to_raw_value(&said.why)?),
        ("commands", to_raw_value(&said.commands())?),
    ];
    with(&details.batch.json, fields)
}

/// Takes out of a call's object what an app and its leaves have said to each other: bodies, headers, and the excerpts
/// of answers. What it is, and where it stands, stays.
///
/// # Errors
/// It is no object that [`call`] has made.
pub(crate) fn hide_bodies(call: &mut Object) -> serde_json::Result<()> {
    blank(call, &["body", "body_raw", "headers", "compensate"])?;
    let mut attempts: Vec<Object> = part(call, "attempt")?.unwrap_or_default();
    for attempt in &mut attempts {
        blank(attempt, &["body"])?;
    }
    call.insert("attempt".to_owned(), to_raw_value(&attempts)?);
    if let Some(mut result) = part::<Object>(call, "result")? {
        blank(
            &mut result,
            &["body", "body_raw", "headers", "request_hash"],
        )?;
        call.insert("result".to_owned(), to_raw_value(&result)?);
    }
    call.insert("bodies_hidden".to_owned(), to_raw_value(&true)?);
    Ok(())
}

/// A job's row without the body that a person gave for a leaf's.
///
/// # Errors
/// It is no JSON.
pub(crate) fn without_a_job_s_body(job: &str) -> serde_json::Result<String> {
    let mut job: Object = serde_json::from_str(job)?;
    if let Some(mut detail) = part::<Object>(&job, "detail")?
        && detail.contains_key("body")
    {
        blank(&mut detail, &["body"])?;
        job.insert("detail".to_owned(), to_raw_value(&detail)?);
    }
    serde_json::to_string(&job)
}

fn part<T: serde::de::DeserializeOwned>(
    object: &Object,
    name: &str,
) -> serde_json::Result<Option<T>> {
    let part = object.get(name);
    part.map_or(Ok(None), |part| serde_json::from_str(part.get()))
}

fn blank(object: &mut Object, names: &[&str]) -> serde_json::Result<()> {
    for name in names {
        object.insert((*name).to_owned(), to_raw_value(&())?);
    }
    Ok(())
}

/// How many of these calls are not among the first so many.
pub(crate) fn left_out(calls: &Calls, shown: usize) -> u64 {
    calls
        .number
        .saturating_sub(u64::try_from(shown).unwrap_or(u64::MAX))
}

fn raw(text: &str) -> serde_json::Result<Box<RawValue>> {
    RawValue::from_string(text.to_owned())
}

fn rows(calls: &[CallRow]) -> serde_json::Result<Box<RawValue>> {
    let rows: Vec<&str> = calls.iter().map(|call| call.json.as_str()).collect();
    raw(&format!("[{}]", rows.join(",")))
}

fn commands(remedies: &[Remedy]) -> serde_json::Result<Box<RawValue>> {
    let commands: Vec<String> = remedies.iter().map(Remedy::command).collect();
    to_raw_value(&commands)
}

/// A JSON object with further fields.
fn with<const N: usize>(
    json: &str,
    fields: [(&str, Box<RawValue>); N],
) -> serde_json::Result<Object> {
    let mut object: Object = serde_json::from_str(json)?;
    let fields = fields.into_iter();
    object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    Ok(object)
}
