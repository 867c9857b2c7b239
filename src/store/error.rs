//! What goes wrong at the database, in words that may stand in a log.

use std::sync::Arc;

use tokio_postgres::error::{DbError, SqlState};

use super::connect::{OpenError, said_by_server};

/// A fault of the database or the way to it. `Display` names the operation and the server's message: the whole chain of
/// causes, so that there is none behind it for others to say once more.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {}", describe(.cause))]
pub struct StoreError {
    operation: &'static str,
    pub(super) cause: Cause,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    #[error("no connection to {to}")]
    NoConnection {
        /// As [`super::connect::Connect`] shows itself: without the password.
        to: Arc<str>,
        source: Box<super::pool::PoolError>,
    },
    #[error("no connection to {to}: {error}")]
    NotOpened { to: String, error: OpenError },
    #[error("failed")]
    Statement(#[source] tokio_postgres::Error),
    #[error("row {row} can't be read: {flaw}")]
    Row { row: String, flaw: String },
    #[error("{0}")]
    Other(String),
}

/// The whole chain: since tokio-postgres 0.7.15 an error's own text is no more than "db error".
fn describe(cause: &Cause) -> String {
    let mut error: &dyn std::error::Error = cause;
    let mut text = error.to_string();
    while let Some(source) = error.source() {
        let next = match source.downcast_ref() {
            Some(said) => said_by_server(said) + right_of(said),
            None => source.to_string(),
        };
        // What only says that there is more behind it.
        let empty =
            next == "db error" || next.starts_with("Error occurred while creating a new object");
        if !empty && !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        error = source;
    }
    text
}

/// Who hears of it first decides what it is called.
const ENDED_BY_THE_OTHER_SIDE: [&str; 8] = [
    "connection closed",
    "Connection reset by peer (os error 104)",
    "Software caused connection abort (os error 103)",
    "Broken pipe (os error 32)",
    "unexpected end of file",
    "early eof",
    "tls handshake eof",
    "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof",
];

/// What only says how far it had come.
const STAGES: [&str; 3] = [
    "error communicating with the server: ",
    "error connecting to server: ",
    "error performing TLS handshake: ",
];

const ENDED: &str = "ended by the other side";

fn rough(cause: &str) -> String {
    let mut text = cause.to_owned();
    for stage in STAGES {
        text = text.replace(stage, "");
    }
    for name in ENDED_BY_THE_OTHER_SIDE {
        text = text.replace(name, ENDED);
    }
    for way in ["with TLS", "without TLS"] {
        text = text.replace(&format!("{ENDED}; and {way}: {ENDED}"), ENDED);
    }
    text
}

/// What gives a right that is lacked.
fn right_of(error: &DbError) -> &'static str {
    if *error.code() != SqlState::INSUFFICIENT_PRIVILEGE {
        ""
    } else if error
        .message()
        .starts_with("permission denied for database")
    {
        "; the role that owns the schema leafhopper needs CREATE on its database: GRANT CREATE ON DATABASE … TO …"
    } else {
        "; `leafhopper migrate`, as the schema's owner, grants what is needed: --grant-sidecar, --grant-operator, --grant-readonly"
    }
}

impl StoreError {
    pub(crate) fn row(operation: &'static str, row: impl ToString, flaw: impl ToString) -> Self {
        Self {
            operation,
            cause: Cause::Row {
                row: row.to_string(),
                flaw: flaw.to_string(),
            },
        }
    }

    pub(crate) fn other(operation: &'static str, message: impl Into<String>) -> Self {
        Self {
            operation,
            cause: Cause::Other(message.into()),
        }
    }

    pub(super) fn no_connection(
        operation: &'static str,
        to: Arc<str>,
        error: super::pool::PoolError,
    ) -> Self {
        Self {
            operation,
            cause: Cause::NoConnection {
                to,
                source: Box::new(error),
            },
        }
    }

    /// A connection of its own, outside of a pool, did not come about.
    pub(super) fn not_opened(
        operation: &'static str,
        to: &super::connect::Connect,
        error: OpenError,
    ) -> Self {
        Self {
            operation,
            cause: Cause::NotOpened {
                to: to.to_string(),
                error,
            },
        }
    }

    pub(crate) fn statement(operation: &'static str, error: tokio_postgres::Error) -> Self {
        Self {
            operation,
            cause: Cause::Statement(error),
        }
    }

    /// What was being done.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// What went wrong, without what was being done.
    #[must_use]
    pub fn cause(&self) -> String {
        describe(&self.cause)
    }

    /// The cause in fewer words: the same for all that a connection which the other side ended is noticed by, in the
    /// middle of a statement or while it is opened, with TLS and without.
    pub(crate) fn rough_cause(&self) -> String {
        rough(&self.cause())
    }

    /// The server's error code, where the server answered (PostgreSQL, appendix A).
    #[must_use]
    pub fn code(&self) -> Option<&SqlState> {
        match &self.cause {
            Cause::Statement(error) => error.code(),
            Cause::NoConnection { .. }
            | Cause::NotOpened { .. }
            | Cause::Row { .. }
            | Cause::Other(_) => None,
        }
    }

    /// The server's error code, where it refused the connection itself: a login, a database that is not there.
    #[must_use]
    pub fn refused_connection(&self) -> Option<&SqlState> {
        match &self.cause {
            Cause::NoConnection { source, .. } => match source.as_ref() {
                super::pool::PoolError::Backend(error) => error.code(),
                _ => None,
            },
            Cause::NotOpened { error, .. } => error.code(),
            Cause::Statement(_) | Cause::Row { .. } | Cause::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rough;

    #[test]
    fn what_the_other_side_ended_is_one_cause_by_any_name() {
        let closed = "connection closed";
        let reset = "error communicating with the server: Connection reset by peer (os error 104)";
        let at_once = "error connecting to server: Connection reset by peer (os error 104)";
        for first in [closed, reset, at_once] {
            for then in [closed, reset, at_once] {
                let both = format!("no connection to a: {first}; and without TLS: {then}");
                assert_eq!(rough(&both), rough("no connection to a: connection closed"));
            }
        }
        let refused =
            "no connection to a: error connecting to server: Connection refused (os error 111)";
        let shut = "no connection to a: connection closed; and without TLS: FATAL: the database system is shutting down";
        let causes = [
            "failed: connection closed",
            "no connection to a: connection closed",
            refused,
            shut,
        ];
        for (at, cause) in causes.iter().enumerate() {
            assert!(
                causes[..at]
                    .iter()
                    .all(|other| rough(other) != rough(cause)),
                "{cause}"
            );
        }
    }
}
