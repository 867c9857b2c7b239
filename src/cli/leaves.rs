//! `pause` and `resume`.

use std::path::Path;

use clap::{Args, ValueEnum};

use super::{Exit, Usage, output::Out, select::by, settings};
use crate::{
    present::text::{clean, counted},
    store::{
        Store,
        operator::{act::By, leaves::Treatment},
    },
};

/// `pause`
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// The leaf.
    leaf: String,
    /// Why; it is kept with the action.
    #[arg(long, value_name = "TEXT", value_parser = super::reason)]
    reason: String,
}

/// `resume`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["leaf", "all"]))]
pub struct ResumeArgs {
    /// The leaf.
    leaf: Option<String>,
    /// All leaves; or, with --as, all sending, where it stopped because the database changed.
    #[arg(long)]
    all: bool,
    /// After the database changed: how what was claimed or pending before is treated.
    #[arg(
        long = "as",
        value_enum,
        value_name = "HOW",
        requires = "all",
        conflicts_with = "leaf"
    )]
    how: Option<How>,
    /// Why; it is kept with the action.
    #[arg(long, value_name = "TEXT", value_parser = super::reason)]
    reason: String,
}

/// [`Treatment`], as it is said on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    /// They may have been executed: each is in doubt, and looked into.
    Probe,
    /// They were not executed: each is sent.
    Resend,
}

impl From<How> for Treatment {
    fn from(how: How) -> Self {
        match how {
            How::Probe => Self::Probe,
            How::Resend => Self::Resend,
        }
    }
}

/// Stops sending to a leaf.
pub(crate) async fn pause(
    args: &PauseArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    let known = store.pause(&by(args.reason.clone()), &args.leaf).await?;
    let leaf = clean(&args.leaf);
    writeln!(
        out.out,
        "leaf {leaf} is paused; what is under way comes to its end"
    )?;
    if !known {
        out.out.flush()?;
        writeln!(
            out.err,
            "warning: no instance ever knew a leaf {leaf}; is that its name?"
        )?;
    }
    Ok(Exit::Done)
}

/// Sends again.
pub(crate) async fn resume(
    args: &ResumeArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let store = settings::store(config)?;
    let by = by(args.reason.clone());
    if args.all && go_on(&store, &by, args.how, out).await? {
        // A leaf that a person paused is another matter.
        let paused = store.overview().await?.paused;
        if !paused.is_empty() {
            let paused = clean(&paused.join(", "));
            out.out.flush()?;
            writeln!(out.err, "still paused: {paused}")?;
        }
        return Ok(Exit::Done);
    }
    let leaves = store.resume(&by, args.leaf.as_deref()).await?;
    for leaf in &leaves {
        writeln!(out.out, "leaf {} is resumed", clean(leaf))?;
    }
    if leaves.is_empty() {
        writeln!(out.err, "no leaf is known yet")?;
    }
    Ok(Exit::Done)
}

/// Where sending stopped because the database changed, it goes on as the person says. Gives whether it did.
async fn go_on(
    store: &Store,
    by: &By,
    how: Option<How>,
    out: &mut Out<'_>,
) -> anyhow::Result<bool> {
    let origin = store.origin().await?;
    let change = origin.changed();
    let how = match (change, how) {
        (None, None) => return Ok(false),
        (None, Some(_)) => anyhow::bail!(
            "the database has not changed, so there is nothing to treat as --as says: leave it out"
        ),
        (Some(change), None) => {
            let problem = format!(
                "the database changed ({}): say --as probe (what was claimed or pending may have been \
                 executed, and is looked into) or --as resend (it was not, and is sent)",
                clean(&change)
            );
            return Err(Usage(problem).into());
        }
        (Some(_), Some(how)) => how,
    };
    let moved = store.go_on(by, &origin.is, how.into()).await?;
    let calls = counted(moved, "call");
    writeln!(
        out.out,
        "sending goes on in {}; {calls} moved",
        clean(&origin.is.to_string())
    )?;
    Ok(true)
}
