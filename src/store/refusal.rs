//! What a refusal of the server's means for whoever asked.

use tokio_postgres::error::SqlState;

use super::{StoreError, error::Cause, is_fatal};

impl StoreError {
    /// The message that a function of the contract refused with, and its hint.
    #[must_use]
    pub fn refusal(&self) -> Option<(String, Option<String>)> {
        let Cause::Statement(error) = &self.cause else {
            return None;
        };
        let error = error.as_db_error()?;
        Some((error.message().to_owned(), error.hint().map(str::to_owned)))
    }

    /// The server has looked at this statement and refuses it, for whatever reason; another one may pass.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(&self.cause, Cause::Statement(error) if !is_fatal(error))
    }

    /// A lock was not to be had in time, or other transactions got in the way: the same again may pass.
    #[must_use]
    pub fn is_contention(&self) -> bool {
        self.code().is_some_and(|code| {
            [
                SqlState::LOCK_NOT_AVAILABLE,
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::T_R_SERIALIZATION_FAILURE,
            ]
            .contains(code)
                || *code == SqlState::UNIQUE_VIOLATION && self.is_of_our_tables()
        })
    }

    /// The content of a row was refused: the same again fails again (class 22, or nesting too deep).
    #[must_use]
    pub fn is_content(&self) -> bool {
        self.code().is_some_and(|code| {
            let of_a_table = [SqlState::CHECK_VIOLATION, SqlState::NOT_NULL_VIOLATION];
            code.code().starts_with("22")
                || of_a_table.contains(code) && self.is_of_our_tables()
                || *code == SqlState::STATEMENT_TOO_COMPLEX
                || *code == SqlState::PROGRAM_LIMIT_EXCEEDED
        })
    }

    /// Whether the constraint is one of ours: an app's trigger can meet the app's own, and that is neither
    /// another claim's doing nor a leaf's.
    fn is_of_our_tables(&self) -> bool {
        let Cause::Statement(error) = &self.cause else {
            return false;
        };
        let schema = error.as_db_error().and_then(|error| error.schema());
        schema == Some("leafhopper")
    }
}
