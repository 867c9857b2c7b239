//! `prune`: takes away at once what is older than `[retention]` says.

use std::{path::Path, time::Duration};

use clap::Args;

use super::{
    Exit,
    output::Out,
    select::{ask, by},
    settings,
};
use crate::{
    config::Retention,
    store::{
        Store,
        prune::{Begins, Counts, Step, Sweep},
    },
};

/// How often it is tried to get the turn from an instance that prunes, and how long to wait in between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// `prune`
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Why; it is kept with the action.
    #[arg(long, value_name = "TEXT", value_parser = super::reason)]
    reason: String,
    /// Don't ask.
    #[arg(long, short)]
    yes: bool,
    /// Count what would be pruned, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// How many rows, as an object.
    #[arg(long)]
    json: bool,
}

/// Prunes.
pub(crate) async fn prune(
    args: PruneArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    // What may go depends on the leaves, too: a file that contradicts itself must not take anything away.
    let config = settings::whole(config)?;
    let store = settings::open(&config.database)?;
    let retention = config.retention;
    if let Some(change) = store.origin().await?.changed() {
        anyhow::bail!(
            "the database changed ({change}): nothing is pruned before `leafhopper resume --all --as probe|resend` \
             has said how to go on"
        );
    }
    let counted = run(&store, Sweep::counting(retention.clone())).await?;
    if counted.are_none() {
        nothing(&retention, out)?;
        return tell(&counted, args.json, out);
    }
    let words = words(&counted);
    if args.dry_run {
        writeln!(out.err, "would prune {words}; nothing is changed")?;
        return tell(&counted, args.json, out);
    }
    if !args.yes && !ask(out, &format!("prune {words}?"))? {
        writeln!(out.err, "nothing is changed")?;
        return Ok(Exit::Done);
    }
    store.note(&by(args.reason), "prune").await?;
    let pruned = run(&store, Sweep::pruning(retention, Begins::default())).await?;
    if !args.json {
        writeln!(out.err, "pruned {}", self::words(&pruned))?;
    }
    tell(&pruned, args.json, out)
}

/// Takes a sweep to its end.
async fn run(store: &Store, mut sweep: Sweep) -> anyhow::Result<Counts> {
    let mut counts = Counts::default();
    let mut waited = 0;
    loop {
        match sweep.step(store).await? {
            Step::Went(more) => {
                counts.add(&more);
                waited = 0;
            }
            Step::Busy if waited < TRIES => {
                waited += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Step::Busy => anyhow::bail!("somebody else prunes, and does not come to an end"),
            Step::Over => return Ok(counts),
        }
    }
}

fn nothing(retention: &Retention, out: &mut Out<'_>) -> std::io::Result<()> {
    match retention.interval() {
        Some(_) => writeln!(out.err, "nothing is older than [retention] says"),
        None => writeln!(out.err, "[retention] keeps all for ever"),
    }
}

/// As one object; else it was said in words already.
fn tell(counts: &Counts, json: bool, out: &mut Out<'_>) -> anyhow::Result<Exit> {
    if json {
        let object: serde_json::Map<_, _> = counts
            .each()
            .map(|(name, number)| (name.to_owned(), number.into()))
            .collect();
        out.json(&object)?;
    }
    Ok(Exit::Done)
}

fn words(counts: &Counts) -> String {
    let some = counts.each().filter(|(_, number)| *number > 0);
    let some: Vec<_> = some
        .map(|(name, number)| format!("{number} {}", name.replace('_', " ")))
        .collect();
    some.join(", ")
}
