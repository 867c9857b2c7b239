//! Templates of paths and expressions over answers: MiniJinja with strict undefined, bounded in steps, in the
//! size of what they are made of and of what they make.
//!
//! They may come from rows, so they are data of somebody else's. In a path each interpolation is encoded as
//! one segment; one that comes out empty, or as a dot segment, is an error, since it would name another thing.

use std::{collections::HashSet, io};

use minijinja::{
    Environment, Error, ErrorKind, UndefinedBehavior, Value,
    value::{Serde, ValueKind},
};

use super::{bounds, path};

/// Instructions that one rendering may take; a usual template takes a few dozen.
const FUEL: u64 = 20_000;

/// A template or an expression may be so long, in bytes.
const SOURCE_MAX: usize = 4096;

/// A path may be so long, as in a row.
const PATH_MAX: usize = 8000;

/// The value of an expression may be longer than what it is made of by so much, in bytes of JSON.
const VALUE_SPARE: usize = 64 << 10;

/// The segment of a path that a value makes may be so long, in bytes.
const SEGMENT_MAX: usize = 1024;

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
        let detail = error
            .detail()
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
    if !template.starts_with('/') || template.starts_with("//") {
        return Err(format!(
            "{template:?} is appended to the base_url; it has to start with one `/`"
        ));
    }
    Ok(())
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
    environment.set_formatter(|output, _state, value| {
        let segment = segment(value)?;
        output.write_str(&segment).map_err(Error::from)
    });
    let path = environment.render_str(template, Value::from(Serde(values)))?;
    if path.len() > PATH_MAX {
        return Err(TemplateError::LongPath(path.len()));
    }
    match path::check(&path) {
        Ok(()) => Ok(path),
        Err(flaw) => Err(TemplateError::Path { path, flaw }),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(template: &str) -> Result<String, String> {
        let call = json!({ "call": { "key": "site:42", "body": {
            "owner": "ada", "name": "a/b c", "n": 7, "empty": "", "dots": "..", "list": [1], "none": null, "ü": "ü",
            "half": 1.5, "huge": 12_345_678_901_234_567_890_123.0, "long": "x".repeat(1000),
        }}});
        render_path(template, &call).map_err(|error| error.to_string())
    }

    #[test]
    fn each_interpolation_is_one_segment() {
        for (template, path) in [
            ("/repos/{{ call.body.owner }}", "/repos/ada"),
            (
                "/repos/{{ call.body.name }}?n={{ call.body.n }}",
                "/repos/a%2Fb%20c?n=7",
            ),
            ("/{{ call.key }}", "/site%3A42"),
            ("/{{ call.body['ü'] }}", "/%C3%BC"),
            ("/x{% if call.body.n == 7 %}/y{% endif %}", "/x/y"),
        ] {
            assert_eq!(rendered(template).as_deref(), Ok(path), "{template}");
        }
    }

    #[test]
    fn what_gives_no_path_says_why() {
        for (template, why) in [
            ("/{{ call.body.empty }}", "empty"),
            ("/{{ call.body.dots }}", "dot segment"),
            ("/{{ call.body.list }}", "neither text nor a number"),
            ("/{{ call.body.none }}", "not there"),
            ("/{{ call.body.missing }}", "undefined"),
            ("/{{ call.body.missing.deeper }}", "undefined"),
            ("{{ call.key }}", "exactly one"),
            ("/../x", "segment"),
            ("/{{ call.body.half }}", "no whole one"),
            ("/{{ call.body.huge }}", "no whole one"),
            (
                "/{% for i in range(100) %}{{ call.body.long }}{% endfor %}",
                "8000 are allowed",
            ),
            (
                "/{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
                "any size",
            ),
            ("/{{ call.key", "syntax error"),
            ("/{% for i in range(100000) %}x{% endfor %}", "fuel"),
        ] {
            let said = rendered(template).unwrap_err();
            assert!(said.to_lowercase().contains(why), "{template} says {said}");
        }
        let long = format!("/{}", "x".repeat(SOURCE_MAX));
        assert!(rendered(&long).unwrap_err().contains("allowed"));
    }

    #[test]
    fn an_expression_is_empty_or_has_a_value() {
        let values = json!({ "response": { "body": { "id": 1, "of": "k", "no": false, "zero": 0, "text": "" } },
                             "call": { "key": "k" } });
        let value = |text: &str| evaluate(text, &values);
        assert_eq!(
            value("response.body if response.body.of == call.key"),
            Ok(Some(values["response"]["body"].clone()))
        );
        assert_eq!(
            value("response.body if response.body.of == 'other'"),
            Ok(None)
        );
        assert_eq!(value("response.body.missing"), Ok(None));
        assert_eq!(value("response.body.no"), Ok(None));
        assert_eq!(value("none"), Ok(None));
        assert_eq!(value("response.body.zero"), Ok(Some(json!(0))));
        assert_eq!(value("response.body.text"), Ok(Some(json!(""))));
        assert!(value("response.body.missing.deeper").is_err());
        assert!(value("response.nothing.at.all").is_err());
        for hostile in [
            "'x' * 100000000000",
            "('x' * 10000)|replace('x', 'x' * 10000)",
            "[1] * 1000000000",
            "range(1000000000)|list",
            "'%1000000000s'|format('x')",
            // Lazy: it costs no fuel, and is gigabytes as soon as it is written down.
            "[range(100000)] * 100000",
        ] {
            assert!(value(hostile).is_err(), "{hostile}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_before_use() {
        let names = ["response", "call"];
        assert_eq!(
            check_expression("response.body if call.key", &names),
            Ok(())
        );
        assert_eq!(check_expression("range(3)|first", &names), Ok(()));
        let said = |text| check_expression(text, &names).unwrap_err();
        assert!(said("respnse").contains("`respnse` is not known here"));
        assert!(said("response.").contains("does not compile"));
        assert!(said(&"1".repeat(SOURCE_MAX + 1)).contains("allowed"));
        let said = |text| check_path(text, &["call"]).unwrap_err();
        assert!(said("/{{ response.x }}").contains("`response` is not known here"));
        assert!(said("x").contains("one `/`"));
    }

    #[test]
    fn what_could_make_a_value_of_any_size_is_refused_before_it_runs() {
        for expression in [
            "'x' * 100000000",
            "([1] * 100000000)|length",
            "9 ** 9",
            "'xx'|replace('x', 'xxxxxxxx')",
            "['a', 'b'] | join('long')",
            "'%0999999999d' |format(1)",
            "'a\\'b' * 9",
            "[['a', 'b']]|map('join', 'x')|list",
        ] {
            let said = evaluate(expression, &json!({})).unwrap_err().to_string();
            assert!(
                said.contains("any size") || said.contains("unknown filter"),
                "{expression}: {said}"
            );
        }
        let often = ["'x'"; 20].join("~");
        assert!(evaluate(&often, &json!({})).is_err());
        for template in [
            "/{% set a = call.key ~ call.key %}{{ a }}",
            "/{%- set a = 1 -%}x",
            "/{% raw %}{{ ' {% endraw %}{{ [1] * 100000000 }}",
            "/{# {{ ' #}{{ [1] * 100000000 }}",
            "/{% for i in [1] * 100000000 %}{% endfor %}",
            "/{{ '}}' * 9 }}",
            "/{% macro a() %}{% endmacro %}",
        ] {
            let said = rendered(template).unwrap_err();
            assert!(said.contains("any size"), "{template}: {said}");
        }
        assert_eq!(
            evaluate("'a*b' ~ \"|join\"", &json!({})),
            Ok(Some(json!("a*b|join")))
        );
        assert_eq!(rendered("/a*b/{{ 'c' }}").as_deref(), Ok("/a*b/c"));
    }
}
