//! One table of the file while it is read: looks keys up, falls back to the defaults, collects what is
//! wrong, and knows in the end which keys nobody asked for.

use std::{cell::RefCell, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::error::Report;
use crate::suggest::closest;

/// A table of the file, and the table of the defaults that stands behind it.
#[derive(Debug)]
pub(super) struct Section<'a> {
    report: &'a Report<'a>,
    /// `leaf.git.probe`; empty for the whole file.
    path: String,
    /// Where the table is in the file.
    span: Option<Range<usize>>,
    given: Option<&'a DeTable<'a>>,
    default: Option<&'a DeTable<'a>>,
    /// The keys that were asked for: all that the table may hold.
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    pub(super) fn root(
        report: &'a Report<'a>,
        given: &'a DeTable<'a>,
        default: &'a DeTable<'a>,
    ) -> Self {
        Self {
            report,
            path: String::new(),
            span: None,
            given: Some(given),
            default: Some(default),
            known: RefCell::default(),
        }
    }

    /// The path of one of its keys.
    pub(super) fn path_of(&self, key: &str) -> String {
        match (self.path.as_str(), key) {
            ("", key) => key.to_owned(),
            (path, "") => path.to_owned(),
            (path, key) => format!("{path}.{key}"),
        }
    }

    /// Reports that something is wrong with `key`, or with the table as a whole (`""`).
    pub(super) fn fault(&self, key: &str, problem: impl Into<String>) {
        let span = self.value(key).map(Spanned::span);
        let at = span.or_else(|| self.span.clone());
        self.report.fault(at, self.path_of(key), problem);
    }

    /// Reports `problem` if `holds` is false.
    pub(super) fn check(&self, key: &str, holds: bool, problem: impl Into<String>) {
        if !holds {
            self.fault(key, problem);
        }
    }

    pub(super) fn warn(&self, key: &str, what: impl std::fmt::Display) {
        self.report.warn(self.path_of(key), what);
    }

    /// The value that the file itself gives.
    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.given?.get(key)
    }

    /// Whether the file itself gives it.
    pub(super) fn gives(&self, key: &'static str) -> bool {
        self.know(key);
        self.value(key).is_some()
    }

    fn know(&self, key: &'static str) {
        self.known.borrow_mut().push(key);
    }

    /// The file's value, else the default's. A faulty one is reported and the default stands in, so that
    /// reading goes on to the next fault.
    pub(super) fn get<T>(
        &self,
        key: &'static str,
        read: impl Fn(&DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        self.know(key);
        if let Some(value) = self.value(key) {
            match read(value.get_ref()) {
                Ok(value) => return Some(value),
                Err(problem) => self.fault(key, problem),
            }
        }
        let default = self.default?.get(key)?;
        read(default.get_ref()).ok()
    }

    /// As [`Self::get`], of a setting that `leafhopper.default.toml` names.
    pub(super) fn must<T>(
        &self,
        key: &'static str,
        read: impl Fn(&DeValue<'a>) -> Result<T, String>,
    ) -> T {
        self.get(key, read)
            .expect("leafhopper.default.toml names every setting that has a default")
    }

    /// As [`Self::get`]; its absence is a fault that `hint` helps with.
    pub(super) fn required<T>(
        &self,
        key: &'static str,
        hint: &str,
        read: impl Fn(&DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        if !self.gives(key) {
            self.fault(key, format!("missing; {hint}"));
        }
        self.get(key, read)
    }

    /// A table in it, if the file gives it.
    pub(super) fn table(&self, key: &'static str) -> Option<Section<'a>> {
        self.know(key);
        let value = self.value(key)?;
        if value.get_ref().is_table() {
            Some(self.inner(key, key))
        } else {
            self.fault(
                key,
                format!("is {}; a table is wanted", kind(value.get_ref())),
            );
            None
        }
    }

    /// A table in it, whose defaults hold if the file does not give it.
    pub(super) fn table_or_default(&self, key: &'static str) -> Section<'a> {
        self.table(key).unwrap_or_else(|| Section {
            given: None,
            ..self.inner(key, key)
        })
    }

    /// The table at `key`, with the defaults of `default_key`.
    pub(super) fn inner(&self, key: &str, default_key: &str) -> Section<'a> {
        let value = self.value(key);
        Section {
            report: self.report,
            path: self.path_of(key),
            span: value.map(Spanned::span),
            given: value.and_then(|value| value.get_ref().as_table()),
            default: self
                .default
                .and_then(|table| table.get(default_key)?.get_ref().as_table()),
            known: RefCell::default(),
        }
    }

    /// Its keys and their values, for tables whose keys are names.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a DeValue<'a>)> {
        self.given.into_iter().flat_map(|table| {
            table
                .iter()
                .map(|(key, value)| (key.get_ref().as_ref(), value.get_ref()))
        })
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(self) {
        let known = self.known.borrow();
        let Some(given) = self.given else {
            return;
        };
        for key in given.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let problem = match closest(name, &known) {
                    Some(near) => format!("unknown key; did you mean `{near}`?"),
                    None => {
                        let mut known = known.clone();
                        known.sort_unstable();
                        known.dedup();
                        format!("unknown key; known here: {}", known.join(", "))
                    }
                };
                self.report
                    .fault(Some(key.span()), self.path_of(name), problem);
            }
        }
    }
}

/// What kind of value it is, with an article.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
