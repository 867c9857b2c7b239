//! `calls`: a list.

use std::path::Path;

use clap::{Args, ValueEnum};

use super::{
    Exit,
    output::Out,
    select::{FilterArgs, hint_at_reason},
    settings,
    watch::WatchArgs,
};
use crate::{
    domain::call::CallId,
    present::{
        standing::standing,
        text::{age, counted},
    },
    store::operator::{
        CallRow,
        list::{Order, Page},
    },
};

/// `calls`
#[derive(Debug, Args)]
pub struct CallsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Only these calls.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i64).range(1..))]
    id: Vec<CallId>,
    /// Which come first.
    #[arg(long, value_enum, default_value_t = First::Newest)]
    first: First,
    /// Go on behind this call: the last one of the page before.
    #[arg(long, value_name = "ID")]
    after: Option<CallId>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// As an array of objects, with the columns of the view but for bodies, headers and templates.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Which end of a list comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum First {
    Newest,
    Oldest,
}

/// Lists calls.
pub(crate) async fn calls(
    args: CallsArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let page = Page {
        order: match args.first {
            First::Newest => Order::Newest,
            First::Oldest => Order::Oldest,
        },
        after: args.after,
        limit: usize::try_from(args.limit).unwrap_or(usize::MAX),
    };
    let filter = args.filter.filter(args.id);
    let store = settings::store(config)?;
    let show = async |out: &mut Out<'_>| {
        let calls = store.calls(&filter, page).await?;
        if args.json {
            let rows: Vec<&str> = calls.iter().map(|call| call.json.as_str()).collect();
            return Ok(out.array(&rows, args.watch.is_on())?);
        }
        if calls.is_empty() {
            writeln!(out.err, "no call matches")?;
            hint_at_reason(&filter, out)?;
            return Ok(());
        }
        list(&calls, out)?;
        if let (true, Some(last)) = (calls.len() == page.limit, calls.last()) {
            out.out.flush()?;
            writeln!(
                out.err,
                "{}; there may be more: --after {}",
                counted(calls.len(), "call"),
                last.id
            )?;
        }
        Ok(())
    };
    args.watch.run(args.json, out, show).await?;
    Ok(Exit::Done)
}

/// A table of calls.
pub(crate) fn list(calls: &[CallRow], out: &mut Out<'_>) -> std::io::Result<()> {
    let rows: Vec<Vec<String>> = calls
        .iter()
        .map(|call| {
            vec![
                call.id.to_string(),
                call.leaf.clone(),
                call.key.clone(),
                standing(call),
                call.attempts.to_string(),
                call.last_status.map(|s| s.to_string()).unwrap_or_default(),
                age(call.age),
            ]
        })
        .collect();
    out.table(
        &["ID", "LEAF", "KEY", "STATE", "ATTEMPTS", "STATUS", "AGE"],
        &rows,
    )
}
