//! `batch`: one batch with what its calls did, what it waits for, and what of it stands.

use std::{collections::BTreeMap, path::Path};

use clap::Args;
use uuid::Uuid;

use super::{
    Exit,
    output::{Colour, Out, wrap},
    settings,
    show::{by_hand, field, section},
};
use crate::{
    domain::call::CallId,
    present::{
        explain_batch::{explain, remedies_of, remedies_to_undo, why_it_stands},
        json::{self, left_out},
        remedy::Remedy,
        standing::{batch_standing, numbers, standing},
        text::{Fields, clean, no_batch, shorten},
    },
    store::operator::{
        CallRow,
        batches::{BatchDetails, Calls},
        watch::LastWords,
    },
};

/// Of each kind so many are shown; `--json` has more.
const SHOWN: usize = 20;

/// Of a leaf's words, so many characters; `show` has more.
const WORDS: usize = 300;

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
    let store = settings::store(config)?;
    let Some(details) = store.batch(args.id).await? else {
        anyhow::bail!(no_batch(args.id));
    };
    if args.json {
        out.json(&json::batch(&details)?)?;
    } else {
        let undoing: Vec<CallId> = details.undoing.iter().map(|call| call.id).collect();
        let words = store.last_words(&undoing).await?;
        print(&details, &words, out)?;
    }
    Ok(Exit::Done)
}

/// What leaves said last to calls.
type Words = BTreeMap<CallId, LastWords>;

fn print(details: &BatchDetails, words: &Words, out: &mut Out<'_>) -> anyhow::Result<()> {
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
    for command in &said.commands() {
        writeln!(out.out, "    {}", clean(command))?;
    }
    writeln!(out.out)?;
    row(details, out)?;
    waits_for(details, out)?;
    if matches!(
        batch.state.as_str(),
        "cancelling" | "compensating" | "cancelled"
    ) {
        stands(details, words, out)?;
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
            command_lines(&remedies_of(details, call), out)?;
        }
    }
    more(details, left_out(calls, SHOWN), out)
}

/// The effects that stand, each with the reason.
fn stands(details: &BatchDetails, words: &Words, out: &mut Out<'_>) -> std::io::Result<()> {
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
        let undo: Option<CallId> = effect.text("compensation").and_then(|id| id.parse().ok());
        if let Some(words) = undo.and_then(|id| words.get(&id)) {
            let said = clean(&shorten(&words.body, WORDS));
            writeln!(out.out, "      the leaf said: {said}")?;
        }
        command_lines(&remedies_to_undo(details, effect), out)?;
    }
    let shown = u64::try_from(effects.len().min(SHOWN)).unwrap_or(u64::MAX);
    more(details, details.batch.standing.saturating_sub(shown), out)
}

fn command_lines(remedies: &[Remedy], out: &mut Out<'_>) -> std::io::Result<()> {
    for remedy in remedies {
        writeln!(out.out, "      {}", clean(&remedy.command()))?;
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
