//! `retry`, `resolve`, `cancel`, `release`: changes of calls by hand.

use std::path::Path;

use clap::Args;
use serde_json::value::RawValue;

use super::{
    Exit,
    output::Out,
    select::{Meant, Selection, by},
    settings,
};
use crate::{
    domain::call::CallId,
    present::text::{clean, counted},
    store::{
        Store,
        operator::act::{Change, Report, Target},
    },
};

/// So many changed calls are named one by one.
const NAMED: usize = 20;

/// `retry`
#[derive(Debug, Args)]
pub struct RetryArgs {
    #[command(flatten)]
    selection: Selection,
}

/// `cancel`
#[derive(Debug, Args)]
pub struct CancelArgs {
    #[command(flatten)]
    selection: Selection,
}

/// `resolve`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("truth").required(true).args(["confirmed", "not_executed", "waive"]))]
pub struct ResolveArgs {
    #[command(flatten)]
    selection: Selection,
    /// The effect exists: this is the confirmation.
    #[arg(long)]
    confirmed: bool,
    /// The status to keep as the leaf's.
    #[arg(long, value_name = "N", requires = "confirmed", conflicts_with_all = ["not_executed", "waive"],
          default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..1000))]
    status: u16,
    /// The body to keep as the leaf's.
    #[arg(long, value_name = "JSON", requires = "confirmed", conflicts_with_all = ["not_executed", "waive"], value_parser = json)]
    body: Option<String>,
    /// The leaf has executed nothing: the call is sent again.
    #[arg(long)]
    not_executed: bool,
    /// Don't send it again: it ends as cancelled.
    #[arg(long, requires = "not_executed", conflicts_with_all = ["confirmed", "waive"])]
    no_send: bool,
    /// Of a compensation that failed or is parked: let the effect stand that it could not undo.
    #[arg(long)]
    waive: bool,
}

/// `release`
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The head: the call that ended and holds those behind it.
    #[arg(value_name = "ID")]
    id: CallId,
    /// Refuse if the call has another number of attempts by now.
    #[arg(long, value_name = "N")]
    expect_attempts: Option<u32>,
    /// Why; it is kept with the action.
    #[arg(long, value_name = "TEXT", value_parser = super::reason)]
    reason: String,
}

fn json(text: &str) -> Result<String, String> {
    serde_json::from_str::<Box<RawValue>>(text)
        .map(|_| text.to_owned())
        .map_err(|error| format!("not JSON: {error}"))
}

/// Sends failed calls again.
pub(crate) async fn retry(
    args: RetryArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    let meant = meant("retry", Change::Retry);
    change(&store, args.selection, Change::Retry, meant, out).await
}

/// Keeps calls from being sent.
pub(crate) async fn cancel(
    args: CancelArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    let meant = meant("cancel", Change::Cancel);
    change(&store, args.selection, Change::Cancel, meant, out).await
}

/// Takes a person's word for what is true of calls.
pub(crate) async fn resolve(
    args: ResolveArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    if args.waive {
        let meant = Meant {
            compensations: true,
            ..meant("waive", Change::Waive)
        };
        return change(&store, args.selection, Change::Waive, meant, out).await;
    }
    let (verb, change_to) = match (args.confirmed, args.no_send) {
        (true, _) => (
            "resolve as confirmed",
            Change::Confirm {
                status: args.status,
                body: args.body.as_deref(),
            },
        ),
        (false, false) => (
            "resolve as not executed, and send again,",
            Change::NotExecutedSend,
        ),
        (false, true) => ("resolve as not executed, and end,", Change::NotExecutedEnd),
    };
    let meant = meant(verb, change_to);
    change(&store, args.selection, change_to, meant, out).await
}

fn meant<'a>(verb: &'a str, change: Change<'_>) -> Meant<'a> {
    Meant {
        verb,
        states: change.usual_states(),
        compensations: false,
    }
}

/// Lets the next call behind a head go.
pub(crate) async fn release(
    args: &ReleaseArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    let head = Target {
        id: args.id,
        attempts: args.expect_attempts,
    };
    let released = store.release(&by(args.reason.clone()), head).await?;
    let goes = released.next.map_or_else(
        || "no call waits behind it".to_owned(),
        |next| format!("call {next} goes next"),
    );
    writeln!(
        out.out,
        "released ordering key {} of leaf {}: {goes}",
        clean(&released.ordering_key),
        clean(&released.leaf)
    )?;
    Ok(Exit::Done)
}

async fn change(
    store: &Store,
    selection: Selection,
    change: Change<'_>,
    meant: Meant<'_>,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let Some(chosen) = selection.choose(store, meant, out).await? else {
        return Ok(Exit::Done);
    };
    let report = store.act(&chosen.by, change, &chosen.targets).await;
    tell(&report, chosen.targets.len(), out)?;
    match report.fault {
        Some(fault) => Err(fault.into()),
        None if report.refused.is_empty() => Ok(Exit::Done),
        None => Ok(Exit::Failed),
    }
}

/// What became of it: each call where they are few, else how many.
fn tell(report: &Report, asked: usize, out: &mut Out<'_>) -> std::io::Result<()> {
    if report.done.len() <= NAMED {
        for (id, state) in &report.done {
            writeln!(out.out, "call {id}: {state}")?;
        }
    } else {
        writeln!(out.out, "changed {}", counted(report.done.len(), "call"))?;
    }
    let marked = report
        .done
        .iter()
        .filter(|(_, state)| matches!(state.as_str(), "dispatching" | "in_doubt"))
        .count();
    out.out.flush()?;
    if marked > 0 {
        // Only a cancel leaves a call in such a state.
        writeln!(
            out.err,
            "{} under way or in doubt: marked, not sent again; ends as confirmed or cancelled when it is known",
            counted(marked, "call")
        )?;
    }
    for (_, refusal) in report.refused.iter().take(NAMED) {
        writeln!(out.err, "refused: {}", clean(&refusal.to_string()))?;
    }
    if report.refused.len() > NAMED {
        let more = counted(report.refused.len() - NAMED, "more refusal");
        writeln!(out.err, "… and {more}")?;
    }
    let not_done = asked - report.done.len();
    if not_done > 0 && asked > 1 {
        writeln!(
            out.err,
            "{not_done} of {} not changed",
            counted(asked, "call")
        )?;
    }
    Ok(())
}
