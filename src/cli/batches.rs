//! `batches`: a list. `cancel-batch`.

use std::path::Path;

use clap::{Args, builder::PossibleValuesParser};
use uuid::Uuid;

use super::{
    Exit,
    output::Out,
    select::{ask, by},
    settings,
    watch::WatchArgs,
};
use crate::{
    present::{
        standing::{batch_standing, numbers},
        text::{age, clean, counted},
    },
    store::operator::batches::{BATCH_STATES, BatchFilter, BatchRow},
};

/// `batches`
#[derive(Debug, Args)]
pub struct BatchesArgs {
    /// Only batches in this state.
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(BATCH_STATES))]
    state: Option<String>,
    /// Only batches that are stuck.
    #[arg(long)]
    stuck: bool,
    /// Go on behind this batch: the last one of the page before.
    #[arg(long, value_name = "UUID")]
    after: Option<Uuid>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// As an array of objects.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    watch: WatchArgs,
}

/// `cancel-batch`
#[derive(Debug, Args)]
pub struct CancelBatchArgs {
    /// The batch.
    #[arg(value_name = "UUID")]
    id: Uuid,
    /// Why; it is kept with the action.
    #[arg(long, value_name = "TEXT", value_parser = super::reason)]
    reason: String,
    /// Don't ask.
    #[arg(long, short)]
    yes: bool,
}

/// Lists batches.
pub(crate) async fn batches(
    args: BatchesArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    if let Some(after) = args.after
        && store.batch_rows(&[after]).await?.is_empty()
    {
        anyhow::bail!("there is no batch {after}");
    }
    let filter = BatchFilter {
        state: args.state,
        stuck: args.stuck,
    };
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let show = async |out: &mut Out<'_>| {
        let batches = store.batches(&filter, args.after, limit).await?;
        if args.json {
            let rows: Vec<&str> = batches.iter().map(|batch| batch.json.as_str()).collect();
            return Ok(out.array(&rows, args.watch.is_on())?);
        }
        if batches.is_empty() {
            writeln!(out.err, "no batch matches")?;
            return Ok(());
        }
        list(&batches, out)?;
        if let (true, Some(last)) = (batches.len() == limit, batches.last()) {
            out.out.flush()?;
            let shown = if limit == 1 {
                "1 batch".to_owned()
            } else {
                format!("{limit} batches")
            };
            writeln!(out.err, "{shown}; there may be more: --after {}", last.id)?;
        }
        Ok(())
    };
    args.watch.run(args.json, out, show).await?;
    Ok(Exit::Done)
}

fn list(batches: &[BatchRow], out: &mut Out<'_>) -> std::io::Result<()> {
    let rows: Vec<Vec<String>> = batches
        .iter()
        .map(|batch| {
            vec![
                batch.id.to_string(),
                batch.name.clone().unwrap_or_default(),
                batch_standing(batch),
                numbers(&batch.calls),
                batch.standing.to_string(),
                batch.age.map(age).unwrap_or_default(),
                batch.finished_ago.map(age).unwrap_or_default(),
            ]
        })
        .collect();
    out.table(
        &[
            "ID", "NAME", "STATE", "CALLS", "STANDING", "AGE", "FINISHED",
        ],
        &rows,
    )
}

/// Cancels a batch.
pub(crate) async fn cancel_batch(
    args: CancelBatchArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    let id = args.id;
    let Some(batch) = store.batch_rows(&[id]).await?.pop() else {
        anyhow::bail!("there is no batch {id}");
    };
    if !args.yes {
        let calls = numbers(&batch.calls);
        let standing = counted(
            usize::try_from(batch.standing).unwrap_or(usize::MAX),
            "effect",
        );
        let question = format!(
            "cancel batch {id} ({}; calls: {calls})? What waits is not sent; {standing} of it to be undone, \
             where that is configured.",
            batch_standing(&batch),
        );
        if !ask(out, &question)? {
            writeln!(out.err, "nothing is changed")?;
            return Ok(Exit::Done);
        }
    }
    let state = store.cancel_batch(&by(args.reason), id).await?;
    writeln!(out.out, "batch {id}: {}", clean(&state))?;
    Ok(Exit::Done)
}
