//! Templates to HTML.
//!
//! What rows hold is text, always: every value that a template writes is escaped for HTML, and before that made harmless
//! to read (control characters, and those that change how a line is laid out, are shown as escapes). Both happen in one
//! place, [`write()`], and no template and no code here marks anything as safe.

use std::sync::LazyLock;

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use minijinja::{
    AutoEscape, Environment, Error, Output, State, UndefinedBehavior, Value, context,
    escape_formatter, syntax::SyntaxConfig, value::Serde,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{
    assets,
    visit::{Said, Visit},
};
use crate::present::text::clean;

macro_rules! templates {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("html/", $name)))),*] };
}

const TEMPLATES: &[(&str, &str)] = templates![
    "base.html",
    "batch.html",
    "batches.html",
    "bulk.html",
    "call.html",
    "calls.html",
    "enter.html",
    "job.html",
    "jobs.html",
    "login.html",
    "macros.html",
    "overview.html",
    "problem.html",
    "search.html",
];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_name| AutoEscape::Html);
    environment.set_formatter(write);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    environment.set_syntax(syntax.build().expect("the usual delimiters"));
    for (name, source) in TEMPLATES {
        environment
            .add_template(name, source)
            .unwrap_or_else(|error| panic!("the template {name} does not compile: {error:#}"));
    }
    environment
});

/// Every value that a template writes goes through here.
fn write(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        // A macro's result: what it is made of came through here.
        _ if value.is_safe() => escape_formatter(out, state, value),
        Some(text) => escape_formatter(out, state, &Value::from(clean(text))),
        None => escape_formatter(out, state, value),
    }
}

/// A page, as HTML.
fn html(name: &str, values: Value) -> Result<String, Error> {
    ENVIRONMENT.get_template(name)?.render(values)
}

/// What every page shows beside its own matter.
#[derive(Debug, Serialize)]
struct Frame<'a> {
    css: &'static str,
    js: &'static str,
    icon: &'static str,
    version: &'static str,
    /// Where it is, for links back.
    here: &'a str,
    /// The name of who has logged in.
    session: Option<&'a str>,
    /// The name to be kept with actions, where nobody logs in.
    who: &'a str,
    said: Option<&'a Said>,
    /// Not rendered in full, since nobody may read here.
    bare: bool,
}

fn frame(visit: Option<&Visit>) -> Frame<'_> {
    Frame {
        css: assets::CSS.path(),
        js: assets::JS.path(),
        icon: assets::ICON.path(),
        version: env!("CARGO_PKG_VERSION"),
        here: visit.map_or("/", |visit| visit.here.as_str()),
        session: visit.and_then(|visit| visit.session.as_ref().map(|s| s.name.as_str())),
        who: visit.map_or("", |visit| visit.who.as_str()),
        said: visit.and_then(|visit| visit.said.as_ref()),
        bare: visit.is_none(),
    }
}

/// A page for this visit, with that status.
pub(super) fn page<T: Serialize>(
    visit: &Visit,
    status: StatusCode,
    name: &str,
    values: &T,
) -> Response {
    let mut response = rendered(Some(visit), status, name, values);
    if visit.said.is_some() && !visit.is_poll {
        response
            .headers_mut()
            .append(header::SET_COOKIE, Said::forget());
    }
    if status == StatusCode::OK
        && let Some(shown) = visit.has.as_ref()
        && response.headers().get(header::ETAG) == Some(shown)
    {
        let tag = [(header::ETAG, shown.clone())];
        return (StatusCode::NOT_MODIFIED, tag).into_response();
    }
    response
}

/// A page for somebody who may read nothing here.
pub(super) fn bare_page<T: Serialize>(status: StatusCode, name: &str, values: &T) -> Response {
    rendered(None, status, name, values)
}

fn rendered<T: Serialize>(
    visit: Option<&Visit>,
    status: StatusCode,
    name: &str,
    values: &T,
) -> Response {
    let values = context! {
        frame => Value::from(Serde(frame(visit))),
        page => Value::from(Serde(values)),
    };
    let text = match html(name, values) {
        Ok(text) => text,
        Err(error) => {
            tracing::error!("the page {name} can't be rendered: {error:#}");
            let text = "This page can't be shown: the log says why.\n";
            return (StatusCode::INTERNAL_SERVER_ERROR, text).into_response();
        }
    };
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    if let Ok(tag) = HeaderValue::from_str(&tag_of(text.as_bytes())) {
        headers.insert(header::ETAG, tag);
    }
    (status, headers, text).into_response()
}

/// A strong entity tag (RFC 9110, section 8.8.3).
pub(super) fn tag_of(content: &[u8]) -> String {
    format!("\"{}\"", hash_of(content))
}

/// Sixteen digits that change with the content.
pub(super) fn hash_of(content: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = Sha256::digest(content);
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        // Writing to a String can't fail.
        let _ok = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rows_hold_stays_text() {
        let mut environment = ENVIRONMENT.clone();
        let source = "{% macro m(x) %}<b title=\"{{ x }}\">{{ x }}</b>{% endmacro %}{{ m(row) }}";
        environment
            .add_template("probe.html", source)
            .expect("a template");
        let row = "</b><script>alert('x')</script>\" onload=\"y\u{202e}\u{1b}[2J\n";
        let text = environment
            .get_template("probe.html")
            .expect("it is there")
            .render(context! { row })
            .expect("it renders");
        assert_eq!(text.matches('<').count(), 2, "{text}");
        assert!(!text.contains("onload=\""), "{text}");
        assert!(text.contains("\\u{202e}\\u{1b}[2J\\n"), "{text}");
    }

    #[test]
    fn no_template_marks_anything_as_safe() {
        for (name, source) in TEMPLATES {
            for word in ["safe", "autoescape", "style=", "onclick", "<script>"] {
                assert!(!source.contains(word), "{name} has {word}");
            }
        }
    }

    #[test]
    fn every_template_compiles() {
        for (name, _) in TEMPLATES {
            assert!(ENVIRONMENT.get_template(name).is_ok(), "{name}");
        }
    }
}
