//! The log: to stderr, as text for people and as JSON for machines.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log. `filter` is as in `RUST_LOG`: a level, or `target=level,…`.
///
/// # Errors
/// The filter can't be read.
pub fn start(format: Option<Format>, filter: &str) -> Result<(), String> {
    // The pool's own lines say again, for each connection, what the sidecar says once.
    let filter = EnvFilter::try_new(format!("deadpool=error,{filter}"))
        .map_err(|error| format!("--log-level {filter}: {error}; for example: info"))?;
    let terminal = io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal { Format::Text } else { Format::Json });
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let started = match format {
        Format::Text => subscriber
            .with_ansi(terminal && crate::config::process_env("NO_COLOR").is_none())
            .try_init(),
        Format::Json => subscriber.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| error.to_string())
}
