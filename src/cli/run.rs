//! `run` and `demo`: what goes on until it is told to stop.

use std::path::PathBuf;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::{output::Out, settings};
use crate::store::migrate;

/// `run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// First bring the schema to what this leafhopper needs.
    #[arg(long)]
    migrate: bool,
}

/// Runs a sidecar. Gives the exit code.
pub(crate) async fn run(args: &RunArgs, path: PathBuf, out: &mut Out<'_>) -> anyhow::Result<u8> {
    let config = settings::whole(&path)?;
    if args.migrate {
        let connect = settings::direct(&config.database)?;
        for migration in migrate::migrate(&connect).await? {
            tracing::info!(
                "applied migration {}: {}",
                migration.version,
                migration.name
            );
        }
    }
    out.out.flush()?;
    crate::app::run(config, path, CancellationToken::new()).await
}

/// Runs the demonstration. Gives the exit code.
pub(crate) async fn demo(out: &mut Out<'_>) -> anyhow::Result<u8> {
    out.out.flush()?;
    crate::demo::run(CancellationToken::new()).await
}
