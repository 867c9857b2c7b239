//! What can go wrong with a throw-away server, and what its user can do about it.

use std::{io, process::ExitStatus, time::Duration};

use super::binaries::BinariesError;

/// Why a server did not start, or did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is none on this machine.
    #[error(transparent)]
    Binaries(#[from] BinariesError),
    /// A folder, a file or a process could not be made.
    #[error("can't {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("{program} failed with {status}; it said:\n{said}")]
    Failed {
        /// Which one.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it printed.
        said: String,
    },
    /// The server ended while it was starting.
    #[error("the PostgreSQL server ended with {status} while starting; the end of its log:\n{log}")]
    EndedEarly {
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The server neither became ready nor ended.
    #[error("the PostgreSQL server was not ready after {waited:?}; the end of its log:\n{log}")]
    NotReady {
        /// For how long it was waited for.
        waited: Duration,
        /// The end of its log.
        log: String,
    },
}

/// As much of a log as explains a failure.
const LOG_TAIL_LINES: usize = 20;

/// The end of a longer text.
pub(super) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

/// For `map_err`.
pub(super) fn failed_to(what: &str) -> impl FnOnce(io::Error) -> ClusterError {
    move |source| ClusterError::Io {
        what: what.to_owned(),
        source,
    }
}
