//! What is wrong with a configuration: all of it, in one error.

use std::{
    cell::RefCell,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

/// One thing that is wrong, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line of the file, from 1; `None` for what is not in the file.
    pub line: Option<usize>,
    /// The key's path, `leaf.git.probe.settle`; empty for the file as a whole.
    pub key: String,
    /// What is wrong and what would be right. Never holds a secret.
    pub problem: String,
}

/// Every fault of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// In the order of the file's lines. Never empty.
    pub faults: Vec<Fault>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file.display())?;
            if let Some(line) = fault.line {
                write!(f, ":{line}")?;
            }
            if !fault.key.is_empty() {
                write!(f, ": {}", fault.key)?;
            }
            write!(f, ": {}", fault.problem)?;
        }
        Ok(())
    }
}

/// Collects faults and warnings while a file is read.
#[derive(Debug)]
pub(super) struct Report<'a> {
    text: &'a str,
    faults: RefCell<Vec<Fault>>,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Report<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            faults: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub(super) fn fault(
        &self,
        at: Option<Range<usize>>,
        key: impl Into<String>,
        problem: impl Into<String>,
    ) {
        let fault = Fault {
            line: at.map(|span| self.position(span.start).0),
            key: key.into(),
            problem: problem.into(),
        };
        self.faults.borrow_mut().push(fault);
    }

    pub(super) fn warn(&self, key: impl fmt::Display, what: impl fmt::Display) {
        self.warnings.borrow_mut().push(format!("{key}: {what}"));
    }

    /// Line and column, both from 1, of a byte offset.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        (line, column)
    }

    /// The warnings, or the error if anything was wrong.
    pub(super) fn finish(self, file: &Path) -> Result<Vec<String>, ConfigError> {
        let mut faults = self.faults.into_inner();
        if faults.is_empty() {
            return Ok(self.warnings.into_inner());
        }
        // Stable: faults of one line stay in the order in which they were found.
        faults.sort_by_key(|fault| fault.line);
        Err(ConfigError {
            file: file.to_owned(),
            faults,
        })
    }
}
