//! `--watch`: a list again and again, until it is interrupted.

use std::{pin::pin, time::Duration};

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

    /// Calls `list` once, or until the process is interrupted; where it is neither JSON nor on a terminal, with the time before
    /// each list. A database that is away is said so, and waited for.
    ///
    /// # Errors
    /// The list can't be had or written; while watching, only the latter.
    pub(super) async fn run(
        self,
        json: bool,
        out: &mut Out<'_>,
        mut list: impl AsyncFnMut(&mut Out<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(seconds) = self.watch else {
            return list(out).await;
        };
        // One wait for all rounds: a signal that comes while a list is under way is not lost.
        let mut interrupted = pin!(tokio::signal::ctrl_c());
        loop {
            if out.is_terminal() {
                // Clears the screen (ECMA-48: ED, CUP).
                write!(out.out, "\u{1b}[2J\u{1b}[H")?;
            } else if !json {
                // In a file nothing else tells one list from the next.
                writeln!(out.out, "-- {}", jiff::Timestamp::now().strftime("%FT%TZ"))?;
            }
            let listed = tokio::select! {
                biased;
                signal = &mut interrupted => return Ok(signal?),
                listed = list(out) => listed,
            };
            match listed {
                Ok(()) => {}
                Err(error) if error.is::<StoreError>() => {
                    writeln!(out.err, "{error}; trying again")?
                }
                Err(error) => return Err(error),
            }
            out.out.flush()?;
            tokio::select! {
                signal = &mut interrupted => return Ok(signal?),
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            }
        }
    }
}
