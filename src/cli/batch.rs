//! `batch`: one batch with what its calls did, what it waits for, and what of it stands.

use std::path::Path;

use clap::Args;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::{
    Exit,
    batches::{batch_standing, numbers},
    calls::standing,
    explain_batch::{commands_of, explain, why_it_stands},
    output::{Colour, Fields, Out, clean, clean_json, wrap},
    settings,
    show::{Object, by_hand, field, section, with},
};
use crate::store::operator::{
    CallRow,
    batches::{BatchDetails, Calls},
};

/// Of each kind so many are shown; `--json` has more.
const SHOWN: usize = 20;

/// `batch`
#[derive(Debug, Args)]
pub struct BatchArgs {
    /// The batch.
    #[arg(value_name = "UUID")]
    id: Uuid,
    /// As one object: the batch's row, and its calls by kind.
    #[arg(long)]
    json: bool,
}

/// Shows a batch.
pub(crate) async fn batch(
    args: &BatchArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let Some(details) = settings::store(config)?.batch(args.id).await? else {
        anyhow::bail!("there is no batch {}", args.id);
    };
    if args.json {
        writeln!(out.out, "{}", clean_json(&json(&details)?))?;
    } else {
        print(&details, out)?;
    }
    Ok(Exit::Done)
}

fn left_out(calls: &Calls, shown: usize) -> u64 {
    calls
        .number
        .saturating_sub(u64::try_from(shown).unwrap_or(u64::MAX))
}

/// One object. What PostgreSQL wrote goes through unread.
fn json(details: &BatchDetails) -> anyhow::Result<String> {
    let said = explain(details);
    let raw = |text: &str| RawValue::from_string(text.to_owned());
    let rows = |calls: &Calls| {
        let rows: Vec<&str> = calls.first.iter().map(|call| call.json.as_str()).collect();
        raw(&format!("[{}]", rows.join(",")))
    };
    let mut waits_for: Vec<Object> = Vec::new();
    for call in &details.waits_for.first {
        let commands = to_raw_value(&commands_of(details, call))?;
        waits_for.push(with(&call.json, [("commands", commands)])?);
    }
    let mut effects: Vec<Object> = Vec::new();
    for (text, effect) in raw_effects(details)? {
        let fields = [
            ("why", to_raw_value(&why_it_stands(details, &effect))?),
            (
                "commands",
                to_raw_value(&commands_to_undo(details, &effect))?,
            ),
        ];
        effects.push(with(text.get(), fields)?);
    }
    let standing = usize::try_from(details.batch.standing).unwrap_or(usize::MAX);
    let left_out = serde_json::json!({
        "ready": left_out(&details.ready, details.ready.first.len()),
        "compensation": left_out(&details.compensations, details.compensations.first.len()),
        "follow_up": left_out(&details.follow_ups, details.follow_ups.first.len()),
        "waits_for": left_out(&details.waits_for, details.waits_for.first.len()),
        "effect": standing.saturating_sub(effects.len()),
    });
    let fields = [
        ("calls_by_kind", raw(&details.kinds)?),
        ("undone", to_raw_value(&details.undone)?),
        ("ready", rows(&details.ready)?),
        ("compensation", rows(&details.compensations)?),
        ("follow_up", rows(&details.follow_ups)?),
        ("waits_for", to_raw_value(&waits_for)?),
        ("effect", to_raw_value(&effects)?),
        ("left_out", to_raw_value(&left_out)?),
        ("operator_action", raw(&details.actions)?),
        ("explanation", to_raw_value(&said.why)?),
        ("commands", to_raw_value(&said.commands)?),
    ];
    Ok(serde_json::to_string_pretty(&with(
        &details.batch.json,
        fields,
    )?)?)
}

/// The effects that stand, each as its text and as its fields.
fn raw_effects(details: &BatchDetails) -> anyhow::Result<Vec<(Box<RawValue>, Fields)>> {
    let effects: Vec<Box<RawValue>> = serde_json::from_str(&details.effects)?;
    let effects = effects.into_iter();
    Ok(effects
        .map(|effect| {
            let fields = Fields::read(effect.get()).unwrap_or_default();
            (effect, fields)
        })
        .collect())
}

/// The commands for the call that should undo the effect, where it waits for a person.
fn commands_to_undo(details: &BatchDetails, effect: &Fields) -> Vec<String> {
    let id = effect.cell("compensation");
    let call = details
        .undoing
        .iter()
        .find(|call| call.id.to_string() == id);
    match call {
        Some(call) if matches!(call.state.as_str(), "parked" | "failed") => {
            commands_of(details, call)
        }
        _ => Vec::new(),
    }
}

fn print(details: &BatchDetails, out: &mut Out<'_>) -> anyhow::Result<()> {
    let batch = &details.batch;
    let said = explain(details);
    let colour = match batch.state.as_str() {
        _ if batch.stuck || batch.reason.is_some() => Colour::Red,
        "succeeded" => Colour::Green,
        _ => Colour::Yellow,
    };
    let state = out.paint(colour, &clean(&batch_standing(batch)));
    writeln!(out.out, "batch {}  {state}\n", batch.id)?;
    writeln!(out.out, "{}", wrap(&clean(&said.why), out.width))?;
    for command in &said.commands {
        writeln!(out.out, "    {}", clean(command))?;
    }
    writeln!(out.out)?;
    row(details, out)?;
    waits_for(details, out)?;
    if matches!(
        batch.state.as_str(),
        "cancelling" | "compensating" | "cancelled"
    ) {
        stands(details, out)?;
    }
    let state = |call: &CallRow| standing(call);
    let undone = |call: &CallRow| {
        let fields = Fields::read(&call.json).unwrap_or_default();
        fields
            .text("undone_at")
            .map(|_| "undone".to_owned())
            .unwrap_or_default()
    };
    let usual = |call: &CallRow| {
        [
            call.leaf.clone(),
            call.key.clone(),
            state(call),
            call.attempts.to_string(),
        ]
    };
    table(
        details,
        "Calls",
        &details.ready,
        &["LEAF", "KEY", "STATE", "ATTEMPTS", "EFFECT"],
        out,
        |call| usual(call).into_iter().chain([undone(call)]).collect(),
    )?;
    table(
        details,
        "Undoing",
        &details.compensations,
        &["UNDOES", "LEAF", "KEY", "STATE", "ATTEMPTS"],
        out,
        |call| {
            let undoes = call.undoes.map(|id| id.to_string()).unwrap_or_default();
            [undoes].into_iter().chain(usual(call)).collect()
        },
    )?;
    table(
        details,
        "Follow-ups",
        &details.follow_ups,
        &["WHEN", "LEAF", "KEY", "STATE", "ATTEMPTS"],
        out,
        |call| {
            [call.run_when.clone()]
                .into_iter()
                .chain(usual(call))
                .collect()
        },
    )?;
    by_hand(&details.actions, out)?;
    Ok(())
}

fn row(details: &BatchDetails, out: &mut Out<'_>) -> std::io::Result<()> {
    let fields = Fields::read(&details.batch.json).unwrap_or_default();
    let kinds = Fields::read(&details.kinds).unwrap_or_default();
    field(out, "name", details.batch.name.clone())?;
    for (name, kind) in [
        ("calls", "ready"),
        ("undoing", "compensation"),
        ("follow-ups", "follow_up"),
    ] {
        field(out, name, kinds.text(kind).map(|kind| numbers(&kind)))?;
    }
    field(out, "standing", Some(details.batch.standing.to_string()))?;
    field(out, "undone", Some(details.undone.to_string()))?;
    for (name, usual) in [
        ("sealed", "true"),
        ("allow_failures", "false"),
        ("undo_order", "newest_first"),
    ] {
        let text = fields.text(name).filter(|text| text != usual);
        field(out, name, text)?;
    }
    for name in ["created_at", "changed_at", "idle_since", "finished_at"] {
        field(out, name, fields.text(name))?;
    }
    Ok(())
}

/// What has to end before the batch goes on, each with the commands that move it.
fn waits_for(details: &BatchDetails, out: &mut Out<'_>) -> std::io::Result<()> {
    let calls = &details.waits_for;
    if calls.number == 0 {
        return Ok(());
    }
    section(out, "Waits for")?;
    for call in calls.first.iter().take(SHOWN) {
        writeln!(
            out.out,
            "  call {}  {} {}  {}",
            call.id,
            clean(&call.leaf),
            clean(&call.key),
            clean(&standing(call))
        )?;
        // Of what undoes, they stand with the effect.
        if call.undoes.is_none() {
            command_lines(&commands_of(details, call), out)?;
        }
    }
    more(details, left_out(calls, SHOWN), out)
}

/// The effects that stand, each with the reason.
fn stands(details: &BatchDetails, out: &mut Out<'_>) -> std::io::Result<()> {
    let effects = Fields::read_all(&details.effects);
    if effects.is_empty() {
        return Ok(());
    }
    section(out, "Stands")?;
    for effect in effects.iter().take(SHOWN) {
        writeln!(
            out.out,
            "  call {}  {} {}: {}",
            effect.cell("call_id"),
            clean(&effect.cell("leaf")),
            clean(&effect.cell("key")),
            clean(&why_it_stands(details, effect))
        )?;
        command_lines(&commands_to_undo(details, effect), out)?;
    }
    let shown = u64::try_from(effects.len().min(SHOWN)).unwrap_or(u64::MAX);
    more(details, details.batch.standing.saturating_sub(shown), out)
}

fn command_lines(commands: &[String], out: &mut Out<'_>) -> std::io::Result<()> {
    for command in commands {
        writeln!(out.out, "      {}", clean(command))?;
    }
    Ok(())
}

fn more(details: &BatchDetails, left_out: u64, out: &mut Out<'_>) -> std::io::Result<()> {
    if left_out == 0 {
        return Ok(());
    }
    let id = details.batch.id;
    writeln!(
        out.out,
        "  … and {left_out} more: leafhopper calls --batch {id}"
    )
}

fn table(
    details: &BatchDetails,
    title: &str,
    calls: &Calls,
    header: &[&str],
    out: &mut Out<'_>,
    cells: impl Fn(&CallRow) -> Vec<String>,
) -> std::io::Result<()> {
    if calls.number == 0 {
        return Ok(());
    }
    section(out, title)?;
    let header: Vec<&str> = ["ID"].into_iter().chain(header.iter().copied()).collect();
    let rows: Vec<Vec<String>> = calls
        .first
        .iter()
        .take(SHOWN)
        .map(|call| {
            [call.id.to_string()]
                .into_iter()
                .chain(cells(call))
                .collect()
        })
        .collect();
    out.table(&header, &rows)?;
    more(details, left_out(calls, SHOWN), out)
}
