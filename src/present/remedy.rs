//! What would move a call or a batch: the command line writes it as a command, the page as a button.

use uuid::Uuid;

use super::text::clean;
use crate::{domain::call::CallId, store::operator::leaves::Treatment};

/// Something that a person can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Say that the effect of this call exists.
    Confirm(CallId),
    /// Say that this call was not executed: it is sent again.
    NotExecuted(CallId),
    /// Let the effect stand that this compensation could not undo.
    Waive(CallId),
    /// Send this failed call again.
    Retry(CallId),
    /// Keep this call from being sent.
    Cancel(CallId),
    /// Let the next call behind this head go, once.
    Release(CallId),
    /// Send to this leaf again.
    Resume(String),
    /// Go on after the database changed.
    ResumeAll(Treatment),
    /// Cancel this batch.
    CancelBatch(Uuid),
    /// Look at this call.
    ShowCall(CallId),
    /// Look at this batch.
    ShowBatch(Uuid),
    /// Look whether all is well.
    Check,
}

impl Remedy {
    /// As a command, with a place for the reason.
    pub(crate) fn command(&self) -> String {
        match self {
            Self::Confirm(id) => format!("leafhopper resolve {id} --confirmed --reason '…'"),
            Self::NotExecuted(id) => format!("leafhopper resolve {id} --not-executed --reason '…'"),
            Self::Waive(id) => format!("leafhopper resolve {id} --waive --reason '…'"),
            Self::Retry(id) => format!("leafhopper retry {id} --reason '…'"),
            Self::Cancel(id) => format!("leafhopper cancel {id} --reason '…'"),
            Self::Release(id) => format!("leafhopper release {id} --reason '…'"),
            Self::Resume(leaf) => format!("leafhopper resume {} --reason '…'", quoted(leaf)),
            Self::ResumeAll(Treatment::Probe) => {
                "leafhopper resume --all --as probe --reason '…'".to_owned()
            }
            Self::ResumeAll(Treatment::Resend) => {
                "leafhopper resume --all --as resend --reason '…'".to_owned()
            }
            Self::CancelBatch(id) => format!("leafhopper cancel-batch {id} --reason '…'"),
            Self::ShowCall(id) => format!("leafhopper show {id}"),
            Self::ShowBatch(id) => format!("leafhopper batch {id}"),
            Self::Check => "leafhopper check".to_owned(),
        }
    }
}

/// For a shell: as it is where that is safe.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", clean(word).replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_of_a_row_can_not_end_the_command_that_is_shown() {
        assert_eq!(quoted("git"), "git");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("x'; rm -rf ~ #"), "'x'\\''; rm -rf ~ #'");
        assert_eq!(quoted("--all"), "'--all'");
    }
}
