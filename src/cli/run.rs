//! `run` and `demo`: what goes on until it is told to stop.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{Exit, output::Out, settings};
use crate::{
    app::{self, Ended, Setup},
    config, demo,
};

/// `run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// First bring the schema to what this leafhopper needs.
    #[arg(long)]
    migrate: bool,
}

/// `demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The folder of PostgreSQL's programs; looked for if not given.
    #[arg(
        long,
        value_name = "DIR",
        env = "LEAFHOPPER_POSTGRES_BIN",
        hide_env_values = true
    )]
    postgres: Option<PathBuf>,
    /// End by itself: 0 if the leaves' ledger and the database agree, else 1. Without it everything stays up until
    /// Ctrl-C.
    #[arg(long)]
    once: bool,
}

/// Runs a sidecar.
pub(crate) async fn run(args: &RunArgs, path: &Path) -> anyhow::Result<Exit> {
    let setup = Setup {
        config: settings::whole(path)?,
        file: path.to_owned(),
        migrate: args.migrate,
    };
    Ok(match app::run(setup, &config::process_env).await? {
        Ended::Clean => Exit::Done,
        Ended::Doubts | Ended::Broken | Ended::AtOnce => Exit::Failed,
    })
}

/// Runs the demonstration; done where the leaves' ledger and the database agree.
pub(crate) async fn demo(args: DemoArgs, out: &mut Out<'_>) -> anyhow::Result<Exit> {
    let settings = demo::Settings {
        postgres: args.postgres,
        once: args.once,
    };
    out.out.flush()?;
    // Its story is read while it happens, so it goes past what collects a list's lines.
    Ok(if demo::run(settings, &mut io::stdout()).await? {
        Exit::Done
    } else {
        Exit::Failed
    })
}
