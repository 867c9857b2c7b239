//! `--watch`: a list again and again, until it is interrupted.

use std::time::Duration;

use clap::Args;

use super::output::Out;
use crate::store::StoreError;

/// Lists anew.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct WatchArgs {
    /// List again each so many seconds, until interrupted; with --json, one array a line.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) watch: Option<u64>,
}

impl WatchArgs {
    /// Whether the list comes more than once.
    pub(super) fn is_on(self) -> bool {
        self.watch.is_some()
    }

    /// Calls `list` once, or until the process is interrupted. A database that is away is said so, and waited for.
    ///
    /// # Errors
    /// The list can't be had or written; while watching, only the latter.
    pub(super) async fn run(
        self,
        out: &mut Out<'_>,
        mut list: impl AsyncFnMut(&mut Out<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(seconds) = self.watch else {
            return list(out).await;
        };
        loop {
            if out.is_terminal() {
                // Clears the screen (ECMA-48: ED, CUP).
                write!(out.out, "\u{1b}[2J\u{1b}[H")?;
            }
            if let Err(error) = list(out).await {
                if !error.is::<StoreError>() {
                    return Err(error);
                }
                writeln!(out.err, "{error:#}; trying again")?;
            }
            out.out.flush()?;
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
                interrupted = tokio::signal::ctrl_c() => return Ok(interrupted?),
            }
        }
    }
}
