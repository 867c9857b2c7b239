//! `show`: one call with everything that is known of it.

use std::path::Path;

use clap::Args;

use super::{
    Exit,
    calls::list,
    output::{Colour, Out, wrap},
    settings,
};
use crate::{
    domain::call::CallId,
    present::{
        explain::explain,
        json,
        standing::{batch_standing, standing},
        text::{Fields, clean, no_call, shorten},
    },
    store::operator::{CallRow, show::Details},
};

/// Of a body, so many characters are shown; `--json` has all of it.
const BODY: usize = 1000;

/// Of the history, the latest so many are shown; `--json` has more.
const HISTORY: usize = 20;

/// `show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The call.
    #[arg(value_name = "ID", value_parser = super::call_id)]
    id: CallId,
    /// As one object: the columns of the view, and what belongs to it under the names of the tables.
    #[arg(long)]
    json: bool,
}

/// Shows a call.
pub(crate) async fn show(
    args: &ShowArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    let Some(details) = store.call(args.id).await? else {
        let pruned = store.may_have_been_pruned(args.id).await?;
        anyhow::bail!(no_call(args.id, pruned));
    };
    if args.json {
        out.json(&json::call(&details)?)?;
    } else {
        print(&details, out)?;
    }
    Ok(Exit::Done)
}

fn print(details: &Details, out: &mut Out<'_>) -> anyhow::Result<()> {
    let call = &details.call;
    let said = explain(details);
    let colour = match call.state.as_str() {
        "confirmed" => Colour::Green,
        "failed" | "parked" => Colour::Red,
        _ => Colour::Yellow,
    };
    let state = out.paint(colour, &clean(&standing(call)));
    writeln!(out.out, "call {}  {state}\n", call.id)?;
    writeln!(out.out, "{}", wrap(&clean(&said.why), out.width))?;
    for command in &said.commands() {
        writeln!(out.out, "    {}", clean(command))?;
    }
    let fields = Fields::read(&call.json).unwrap_or_default();
    writeln!(out.out)?;
    request(call, &fields, out)?;
    standing_fields(&fields, made(details), out)?;
    history(details, out)?;
    if let Some(result) = details.result.as_deref().and_then(Fields::read) {
        section(out, "Result")?;
        for name in [
            "seq",
            "generation",
            "call_id",
            "status",
            "source",
            "weak",
            "truncated",
            "confirmed_at",
            "undone_at",
            "headers",
            "body",
            "body_raw",
        ] {
            field(out, name, result.text(name))?;
        }
    }
    if let Some(batch) = &details.batch {
        section(out, "Batch")?;
        let fields = Fields::read(&batch.json).unwrap_or_default();
        for name in ["id", "name"] {
            field(out, name, fields.text(name))?;
        }
        field(out, "state", Some(batch_standing(batch)))?;
        for name in ["sealed", "allow_failures", "calls", "standing"] {
            field(out, name, fields.text(name))?;
        }
        for ended in Fields::read_all(&details.ended) {
            let line = format!(
                "{} {} {}",
                ended.cell("id"),
                ended.cell("state"),
                ended.cell("reason")
            );
            field(out, "ended", Some(line))?;
        }
        writeln!(out.out, "    leafhopper batch {}", batch.id)?;
    }
    by_hand(&details.actions, out)?;
    if let Some(other) = &details.waits_for {
        section(out, "Waits for")?;
        list(std::slice::from_ref(other), out)?;
    }
    if !details.same_key.is_empty() {
        section(out, "Other calls of the same effect key")?;
        list(&details.same_key, out)?;
    }
    Ok(())
}

fn request(call: &CallRow, fields: &Fields, out: &mut Out<'_>) -> std::io::Result<()> {
    field(out, "leaf", Some(call.leaf.clone()))?;
    field(out, "key", Some(call.key.clone()))?;
    let line = format!("{} {}", fields.cell("method"), fields.cell("path"));
    field(out, "request", Some(line))?;
    for name in [
        "headers",
        "body",
        "body_raw",
        "content_type",
        "credential",
        "meta",
    ] {
        let text = fields.text(name).filter(|text| text != "{}");
        field(out, name, text)?;
    }
    for name in ["ordering_key", "probe", "compensate", "undoes"] {
        field(out, name, fields.text(name))?;
    }
    let text = fields.text("priority").filter(|text| text != "0");
    field(out, "priority", text)?;
    let text = fields.text("run_when").filter(|text| text != "ready");
    field(out, "run_when", text)
}

/// Requests that are on record without a confirmation.
fn made(details: &Details) -> usize {
    let attempts = Fields::read_all(&details.attempts);
    let sent = attempts
        .iter()
        .filter(|attempt| !attempt.cell("class").starts_with("probe_"));
    sent.count()
}

fn standing_fields(fields: &Fields, made: usize, out: &mut Out<'_>) -> std::io::Result<()> {
    for name in [
        "created_at",
        "not_before",
        "deadline",
        "timeout",
        "max_attempts",
        "attempts",
        "last_status",
        "last_error",
        "claimed_by",
        "next_attempt_at",
        "in_doubt_since",
        "finished_at",
        "undone_at",
    ] {
        let text = fields.text(name).map(|text| match text.parse::<usize>() {
            // What was refused a connection, or turned away by a 429 or a 401, spends none.
            Ok(spent) if name == "attempts" && made > spent => {
                format!("{spent} spent, {made} made")
            }
            _ => text,
        });
        field(out, name, text)?;
    }
    Ok(())
}

fn history(details: &Details, out: &mut Out<'_>) -> std::io::Result<()> {
    let attempts = Fields::read_all(&details.attempts);
    if attempts.is_empty() {
        return Ok(());
    }
    section(out, "Attempts that did not confirm")?;
    let left_out = attempts.len().saturating_sub(HISTORY);
    if left_out > 0 {
        writeln!(out.out, "  ({left_out} earlier ones: --json)")?;
    }
    let rows: Vec<Vec<String>> = attempts
        .iter()
        .skip(left_out)
        .map(|attempt| {
            // What was wrong, and what the leaf said.
            let seen = [attempt.text("error"), attempt.text("body")];
            let seen: Vec<String> = seen.into_iter().flatten().collect();
            vec![
                attempt.cell("attempt"),
                attempt.cell("class"),
                attempt.cell("status"),
                moment(&attempt.cell("finished_at")),
                shorten(&seen.join(": "), BODY),
            ]
        })
        .collect();
    out.table(&["NO", "CLASS", "STATUS", "ENDED", "SEEN"], &rows)
}

/// What people did, and why.
pub(super) fn by_hand(actions: &str, out: &mut Out<'_>) -> std::io::Result<()> {
    let actions = Fields::read_all(actions);
    if actions.is_empty() {
        return Ok(());
    }
    section(out, "By hand")?;
    let rows: Vec<Vec<String>> = actions
        .iter()
        .map(|action| {
            vec![
                moment(&action.cell("at")),
                action.cell("actor"),
                action.cell("action"),
                action.cell("reason"),
            ]
        })
        .collect();
    out.table(&["AT", "WHO", "WHAT", "WHY"], &rows)
}

/// To the second; PostgreSQL's JSON is ISO 8601 in the session's time zone.
fn moment(time: &str) -> String {
    match (time.split_once('.'), time.rsplit_once('+')) {
        (Some((to_seconds, _)), Some((_, zone))) => format!("{to_seconds}+{zone}"),
        _ => time.to_owned(),
    }
}

pub(super) fn section(out: &mut Out<'_>, title: &str) -> std::io::Result<()> {
    writeln!(out.out, "\n{title}")
}

/// One field a line; nothing where there is no value.
pub(super) fn field(out: &mut Out<'_>, name: &str, value: Option<String>) -> std::io::Result<()> {
    match value {
        Some(value) => writeln!(out.out, "  {name:<16}{}", clean(&shorten(&value, BODY))),
        None => Ok(()),
    }
}
