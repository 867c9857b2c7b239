//! Templates of paths and expressions over answers: MiniJinja with strict undefined, bounded in steps, in the
//! size of what they are made of and of what they make.
//!
//! They may come from rows, so they are data of somebody else's. In a path each interpolation is encoded as
//! one segment; one that comes out empty, or as a dot segment, is an error, since it would name another thing.
//!
//! Fuel counts instructions, and one instruction can repeat a string, or a list, a hundred million times. So
//! what multiplies is refused before anything runs ([`check`]); what is left makes no more than its source's
//! length times what it is given.

use minijinja::{
    Environment, Error, ErrorKind, UndefinedBehavior, Value,
    value::{Serde, ValueKind},
};

use super::path;

/// Instructions that one rendering may take; a usual template takes a few dozen.
const FUEL: u64 = 20_000;

/// A template or an expression may be so long, in bytes.
const SOURCE_MAX: usize = 4096;

/// The segment of a path that a value makes may be so long, in bytes.
const SEGMENT_MAX: usize = 1024;

/// Values may be joined so often.
const JOINS_MAX: usize = 16;

/// Filters whose value can be many times as large as what they are given: in a row, they multiply.
const MULTIPLIES: &[&str] = &[
    "batch",
    "chain",
    "e",
    "escape",
    "format",
    "indent",
    "join",
    "pprint",
    "replace",
    "slice",
    "tojson",
    "urlencode",
    "zip",
];

/// Statements that keep nothing: what is kept can be doubled again and again.
const STATEMENTS: &[&str] = &["if", "elif", "else", "endif", "for", "endfor"];

/// Why a template gives nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is too long to be looked at.
    #[error("it is {0} bytes long; {SOURCE_MAX} are allowed")]
    TooLong(usize),
    /// It could make more than there is memory for.
    #[error("{0} is not allowed here: it could make a value of any size")]
    Multiplies(String),
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

/// Renders a path over `values`, a JSON object of the names that it may use.
///
/// # Errors
/// It does not compile, names what is not there, or gives what is no path.
pub fn render_path(template: &str, values: &serde_json::Value) -> Result<String, TemplateError> {
    let mut environment = environment(template)?;
    check_template(template)?;
    environment.set_formatter(|output, _state, value| {
        let segment = segment(value)?;
        output.write_str(&segment).map_err(Error::from)
    });
    let path = environment.render_str(template, Value::from(Serde(values)))?;
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
    check_expression(expression)?;
    let value = environment
        .compile_expression(expression)?
        .eval(Value::from(Serde(values)))?;
    // Zero equals false, and is a value all the same.
    let is_false = value.kind() == ValueKind::Bool && !value.is_true();
    if value.is_undefined() || value.is_none() || is_false {
        return Ok(None);
    }
    serde_json::to_value(&value)
        .map(Some)
        .map_err(|error| TemplateError::Failed(format!("its value is no JSON: {error}")))
}

/// Refuses a template that could need more memory than its length times what it is given.
///
/// # Errors
/// What it may not hold.
pub fn check_template(source: &str) -> Result<(), TemplateError> {
    // A comment or raw text would hide where code begins.
    if source.contains("{#") {
        return Err(TemplateError::Multiplies("a comment".to_owned()));
    }
    let mut joins = 0;
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let (opening, code) = rest[at..].split_at(2);
        if opening == "{%" {
            let word = code.trim_start_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
            let word = &word[..ident(word)];
            if !STATEMENTS.contains(&word) {
                return Err(TemplateError::Multiplies(format!("`{{% {word} %}}`")));
            }
        }
        let closing = if opening == "{{" { "}}" } else { "%}" };
        rest = &code[scan(code, Some(closing), &mut joins)?..];
    }
    Ok(())
}

/// The same for an expression.
///
/// # Errors
/// What it may not hold.
pub fn check_expression(source: &str) -> Result<(), TemplateError> {
    scan(source, None, &mut 0).map(drop)
}

/// Looks at code up to `closing`, or to its end; gives where that is.
fn scan(code: &str, closing: Option<&str>, joins: &mut usize) -> Result<usize, TemplateError> {
    let mut quote = None;
    let mut at = 0;
    while let Some(character) = code[at..].chars().next() {
        let next = at + character.len_utf8();
        match (quote, character) {
            (Some(_), '\\') => {
                at = next + code[next..].chars().next().map_or(0, char::len_utf8);
                continue;
            }
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, _) if closing.is_some_and(|closing| code[at..].starts_with(closing)) => {
                return Ok(at);
            }
            (None, '*') => return Err(TemplateError::Multiplies("`*`".to_owned())),
            (None, '~' | '+') => {
                *joins += 1;
                if *joins > JOINS_MAX {
                    return Err(TemplateError::Multiplies(format!(
                        "more than {JOINS_MAX} times `~` or `+`"
                    )));
                }
            }
            (None, '|') => {
                let filter = code[next..].trim_start();
                let filter = &filter[..ident(filter)];
                if MULTIPLIES.contains(&filter) {
                    return Err(TemplateError::Multiplies(format!("the filter `{filter}`")));
                }
            }
            (None, _) => {}
        }
        at = next;
    }
    Ok(code.len())
}

fn ident(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len())
}

fn environment(source: &str) -> Result<Environment<'static>, TemplateError> {
    if source.len() > SOURCE_MAX {
        return Err(TemplateError::TooLong(source.len()));
    }
    let mut environment = Environment::new();
    // `map` takes a filter by its name, as text.
    for filter in MULTIPLIES {
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
        assert!(value("'x' * 100000000000").is_err());
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
