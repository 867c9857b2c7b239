//! Templates of paths and expressions over answers: MiniJinja with strict undefined, bounded in steps, in the
//! size of what they are made of and of what they make.
//!
//! They may come from rows, so they are data of somebody else's. In a path each interpolation is encoded as
//! one segment; one that comes out empty, or as a dot segment, is an error, since it would name another thing.
//! Only the call's own path is a path already, and stays as it is.

use std::{
    collections::HashSet,
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use minijinja::{
    Environment, Error, ErrorKind, UndefinedBehavior, Value, context,
    value::{Serde, ValueKind},
};

use super::{bounds, path};

/// Instructions that one rendering may take; a usual template takes a few dozen.
const FUEL: u64 = 20_000;

/// A template or an expression may be so long, in bytes.
pub(super) const SOURCE_MAX: usize = 4096;

/// A path may be so long, as in a row.
const PATH_MAX: usize = 8000;

/// The value of an expression may be longer than what it is made of by so much, in bytes of JSON.
const VALUE_SPARE: usize = 64 << 10;

/// The segment of a path that a value makes may be so long, in bytes.
const SEGMENT_MAX: usize = 1024;

/// From here on, what is neither an `i64` nor a `u64` may have been another whole number.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// What is wrong with one.
pub(super) const ROUNDED: &str = "a number is too large to be the same again; make it text";

/// Why a template gives nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is too long to be looked at.
    #[error("it is {0} bytes long; {SOURCE_MAX} are allowed")]
    TooLong(usize),
    /// It could make more than there is memory for.
    #[error("{0} is not allowed here: it could make a value of any size")]
    Multiplies(String),
    /// It gives more than a path may be.
    #[error("it gives a path of {0} bytes; {PATH_MAX} are allowed")]
    LongPath(usize),
    /// It does not compile, or fails on these values.
    #[error("{0}")]
    Failed(String),
    /// It gives a path that can't be sent.
    #[error("it gives {path:?}: {flaw}")]
    Path {
        /// What came out.
        path: String,
        /// What is wrong with it.
        flaw: path::PathError,
    },
}

impl From<Error> for TemplateError {
    fn from(error: Error) -> Self {
        // What could not be calculated is a piece of a body.
        let detail = error
            .detail()
            .filter(|detail| !detail.starts_with("unable to calculate"))
            .map_or_else(String::new, |detail| format!(": {detail}"));
        Self::Failed(format!("{}{detail}", error.kind()))
    }
}

/// Checks a path's template before it is used: it compiles, starts with one `/`, and speaks of `names` only.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn check_path(template: &str, names: &[&str]) -> Result<(), String> {
    check_template(template, names)?;
    let starts = template.starts_with('/') || starts_with_call_path(template);
    if !starts || template.starts_with("//") {
        return Err(format!(
            "{template:?} is appended to the base_url; it has to start with one `/`"
        ));
    }
    Ok(())
}

/// Whether it begins with `{{ call.path }}`.
fn starts_with_call_path(template: &str) -> bool {
    let code = template.strip_prefix("{{").map(str::trim_start);
    let rest = code.and_then(|code| code.strip_prefix("call.path"));
    rest.is_some_and(|rest| rest.trim_start().starts_with("}}"))
}

/// Checks any template before it is used: it compiles, and speaks of `names` only.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn check_template(template: &str, names: &[&str]) -> Result<(), String> {
    let environment = environment(template).map_err(|flaw| flaw.to_string())?;
    let compiled = environment
        .template_from_str(template)
        .map_err(|source| broken("template", &source))?;
    speaks_only_of(&environment, &compiled.undeclared_variables(false), names)?;
    bounds::of_template(template).map_err(|flaw| flaw.to_string())
}

/// Checks an expression before it is used: it compiles, and speaks of `names` only. One that names what is
/// not there would come out empty, which means something.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn check_expression(expression: &str, names: &[&str]) -> Result<(), String> {
    let environment = environment(expression).map_err(|flaw| flaw.to_string())?;
    let compiled = environment
        .compile_expression(expression)
        .map_err(|source| broken("expression", &source))?;
    speaks_only_of(&environment, &compiled.undeclared_variables(false), names)?;
    bounds::of_expression(expression).map_err(|flaw| flaw.to_string())
}

fn broken(what: &str, source: &Error) -> String {
    // The Display of a MiniJinja error names the template's file, which there is none of here.
    let detail = source.detail().unwrap_or("it can't be read");
    format!("the {what} does not compile: {} ({detail})", source.kind())
}

fn speaks_only_of(
    environment: &Environment<'_>,
    used: &HashSet<String>,
    names: &[&str],
) -> Result<(), String> {
    // What the environment brings along (`range`, `dict` …) is not undeclared in a template's sense, but
    // is listed.
    let unknown = used
        .iter()
        .map(String::as_str)
        .filter(|used| {
            !names.contains(used) && environment.globals().all(|(name, _)| name != *used)
        })
        .min();
    match unknown {
        None => Ok(()),
        Some(first) => Err(format!(
            "`{first}` is not known here; there is {}",
            names.join(" and ")
        )),
    }
}

/// Renders a path over `values`, a JSON object of the names that it may use.
///
/// # Errors
/// It does not compile, names what is not there, or gives what is no path.
pub fn render_path(template: &str, values: &serde_json::Value) -> Result<String, TemplateError> {
    let mut environment = environment(template)?;
    bounds::of_template(template)?;
    // Whoever wrote the template can't call anything else a path.
    environment.remove_filter("safe");
    let written = AtomicUsize::new(0);
    environment.set_formatter(move |output, _state, value| {
        let part = match value.as_str() {
            Some(path) if value.is_safe() => path.to_owned(),
            _ => segment(value)?,
        };
        // Before there is more of it than a path may be.
        let length = written.fetch_add(part.len(), Ordering::Relaxed) + part.len();
        if length > PATH_MAX {
            let detail = format!("its parts are longer than a path, {PATH_MAX} are allowed");
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        output.write_str(&part).map_err(Error::from)
    });
    let path = environment.render_str(template, with_call_path(values))?;
    if path.len() > PATH_MAX {
        return Err(TemplateError::LongPath(path.len()));
    }
    match path::check(&path) {
        Ok(()) => Ok(path),
        Err(flaw) => Err(TemplateError::Path { path, flaw }),
    }
}

/// The values, with the call's path as text that is not to be encoded.
fn with_call_path(values: &serde_json::Value) -> Value {
    let plain = Value::from(Serde(values));
    let (call, path) = (&values["call"], &values["call"]["path"]);
    let Some(path) = path.as_str() else {
        return plain;
    };
    let path = Value::from_safe_string(path.to_owned());
    context! { call => context! { path, ..Value::from(Serde(call)) }, ..plain }
}

/// Renders one string of a JSON body over `values`. A single `{{ expression }}` keeps the type of its value; in other
/// text, values are written out.
///
/// # Errors
/// It does not compile, names what is not there, or gives more than there is room for.
pub fn render_value(
    template: &str,
    values: &serde_json::Value,
) -> Result<serde_json::Value, TemplateError> {
    let mut environment = environment(template)?;
    bounds::of_template(template)?;
    if let Some(expression) = single_expression(template) {
        let value = environment
            .compile_expression(expression)?
            .eval(Value::from(Serde(values)))?;
        if value.is_undefined() {
            let what = format!("`{}` is not there", expression.trim());
            return Err(TemplateError::Failed(what));
        }
        let value = within(&value, size_of(values))?;
        if is_rounded(&value) {
            return Err(TemplateError::Failed(ROUNDED.to_owned()));
        }
        return Ok(value);
    }
    let room = size_of(values).saturating_add(VALUE_SPARE);
    let written = AtomicUsize::new(0);
    environment.set_formatter(move |output, _state, value| {
        if value.is_undefined() {
            let why = "a part of the text is not there";
            return Err(Error::new(ErrorKind::UndefinedError, why));
        }
        if value.kind() == ValueKind::Number
            && !value.is_integer()
            && f64::try_from(value.clone()).is_ok_and(|number| number.abs() >= EXACT_BELOW)
        {
            return Err(Error::new(ErrorKind::InvalidOperation, ROUNDED));
        }
        let part = value.to_string();
        if written.fetch_add(part.len(), Ordering::Relaxed) + part.len() > room {
            let why = "it is larger than what it is made of";
            return Err(Error::new(ErrorKind::InvalidOperation, why));
        }
        output.write_str(&part).map_err(Error::from)
    });
    let text = environment.render_str(template, Value::from(Serde(values)))?;
    Ok(serde_json::Value::String(text))
}

/// Whether it holds a whole number of so many digits that it is not the one that it was.
pub(super) fn is_rounded(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Number(number) => {
            number.is_f64()
                && number
                    .as_f64()
                    .is_some_and(|number| number.abs() >= EXACT_BELOW)
        }
        serde_json::Value::Array(items) => items.iter().any(is_rounded),
        serde_json::Value::Object(parts) => parts.values().any(is_rounded),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::String(_) => {
            false
        }
    }
}

/// The expression of a template that is nothing else.
fn single_expression(template: &str) -> Option<&str> {
    let code = template.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let more = ["{{", "}}", "{%"].iter().any(|mark| code.contains(mark));
    (!more).then_some(code.trim_matches('-'))
}

/// Evaluates an expression over `values`. `None` where it comes out undefined, none or false.
///
/// # Errors
/// It does not compile, or asks for something of a thing that is not there.
pub fn evaluate(
    expression: &str,
    values: &serde_json::Value,
) -> Result<Option<serde_json::Value>, TemplateError> {
    let environment = environment(expression)?;
    bounds::of_expression(expression)?;
    let value = environment
        .compile_expression(expression)?
        .eval(Value::from(Serde(values)))?;
    // Zero equals false, and is a value all the same.
    let is_false = value.kind() == ValueKind::Bool && !value.is_true();
    if value.is_undefined() || value.is_none() || is_false {
        return Ok(None);
    }
    within(&value, size_of(values)).map(Some)
}

/// The value as JSON. What an expression makes can be lazy, and so much larger than the fuel that it took:
/// it may be as large as what it is made of, and a little more.
fn within(value: &Value, size: usize) -> Result<serde_json::Value, TemplateError> {
    let mut text = Limited {
        bytes: Vec::new(),
        left: size.saturating_add(VALUE_SPARE),
    };
    serde_json::to_writer(&mut text, value)
        .and_then(|()| serde_json::from_slice(&text.bytes))
        .map_err(|error| TemplateError::Failed(format!("its value is no JSON: {error}")))
}

/// The bytes of a value as JSON.
fn size_of(values: &serde_json::Value) -> usize {
    let mut text = Counted(0);
    // Writing to a counter does not fail, and a JSON value is JSON.
    serde_json::to_writer(&mut text, values).ok();
    text.0
}

/// Counts what is written.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what is written, up to a limit.
struct Limited {
    bytes: Vec<u8>,
    left: usize,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len())
            .ok_or_else(|| io::Error::other("it is too large"))?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn environment(source: &str) -> Result<Environment<'static>, TemplateError> {
    if source.len() > SOURCE_MAX {
        return Err(TemplateError::TooLong(source.len()));
    }
    let mut environment = Environment::new();
    // `map` takes a filter by its name, as text.
    for filter in bounds::MULTIPLIES {
        environment.remove_filter(filter);
    }
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    Ok(environment)
}

/// One value as one segment (RFC 3986 section 2.3: all but the unreserved characters are encoded).
fn segment(value: &Value) -> Result<String, Error> {
    let refused = |why: &str| Error::new(ErrorKind::InvalidOperation, why.to_owned());
    if value.is_undefined() || value.is_none() {
        return Err(Error::new(
            ErrorKind::UndefinedError,
            "a part of the path is not there",
        ));
    }
    if value.as_str().is_none() && value.as_object().is_some() {
        return Err(refused("a part of the path is neither text nor a number"));
    }
    if value.kind() == ValueKind::Number && !value.is_integer() {
        // What JSON wrote as 1.10 or with thirty digits would come out as another text.
        return Err(refused(
            "a part of the path is a number that is no whole one, or too large; make it text",
        ));
    }
    let text = value.to_string();
    match text.as_str() {
        "" => return Err(refused("a part of the path is empty")),
        "." | ".." => return Err(refused("a part of the path is a dot segment")),
        _ if text.len() > SEGMENT_MAX => return Err(refused("a part of the path is too long")),
        _ => {}
    }
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                segment.push(char::from(byte));
            }
            other => segment.push_str(&format!("%{other:02X}")),
        }
    }
    Ok(segment)
}
