//! Checks templates and expressions when they are loaded: that they compile, and that they speak only of
//! what there will be.

use std::collections::HashSet;

use minijinja::{Environment, Error, UndefinedBehavior};
use serde_json::{Map, Number, Value};
use toml::de::DeValue;

use super::{section::kind, values::string};
use crate::domain::template::{check_expression, check_template};

/// A template of a path: compiles, speaks of `names` only, starts with one `/`.
pub(super) fn path(
    names: &'static [&'static str],
) -> impl Fn(&DeValue<'_>) -> Result<String, String> {
    move |value| {
        let text = string(value)?;
        template(&text, names)?;
        if !text.starts_with('/') || text.starts_with("//") {
            return Err(format!(
                "{text:?} is appended to the base_url; it has to start with one `/`"
            ));
        }
        Ok(text)
    }
}

/// An expression that compiles and speaks of `names` only.
pub(super) fn expression(
    names: &'static [&'static str],
) -> impl Fn(&DeValue<'_>) -> Result<String, String> {
    move |value| {
        let text = string(value)?;
        let environment = environment();
        let expression = environment
            .compile_expression(&text)
            .map_err(|source| broken("expression", &source))?;
        speaks_only_of(&expression.undeclared_variables(false), names)?;
        check_expression(&text).map_err(|flaw| flaw.to_string())?;
        Ok(text)
    }
}

/// A JSON body whose strings are templates that speak of `names` only.
pub(super) fn body(
    names: &'static [&'static str],
) -> impl Fn(&DeValue<'_>) -> Result<Value, String> {
    move |value| json(value, names)
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
}

fn template(text: &str, names: &[&str]) -> Result<(), String> {
    let environment = environment();
    let template = environment
        .template_from_str(text)
        .map_err(|source| broken("template", &source))?;
    speaks_only_of(&template.undeclared_variables(false), names)?;
    check_template(text).map_err(|flaw| flaw.to_string())
}

fn broken(what: &str, source: &Error) -> String {
    // The Display of a MiniJinja error names the template's file, which there is none of here.
    let detail = source.detail().unwrap_or("it can't be read");
    format!("the {what} does not compile: {} ({detail})", source.kind())
}

fn speaks_only_of(used: &HashSet<String>, names: &[&str]) -> Result<(), String> {
    // What the environment brings along (`range`, `dict` …) is not undeclared in a template's sense, but
    // is listed.
    let environment = environment();
    let mut unknown: Vec<&str> = used
        .iter()
        .map(String::as_str)
        .filter(|used| {
            !names.contains(used) && environment.globals().all(|(name, _)| name != *used)
        })
        .collect();
    unknown.sort_unstable();
    match unknown.first() {
        None => Ok(()),
        Some(first) => Err(format!(
            "`{first}` is not known here; there is {}",
            names.join(" and ")
        )),
    }
}

fn json(value: &DeValue<'_>, names: &[&str]) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => {
            template(text, names)?;
            Value::String(text.as_ref().to_owned())
        }
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map(Value::from)
            .map_err(|_source| format!("{integer} is too large"))?,
        DeValue::Float(float) => float
            .as_str()
            .parse()
            .ok()
            .and_then(Number::from_f64)
            .map(Value::Number)
            .ok_or_else(|| format!("JSON has no {float}"))?,
        DeValue::Datetime(_) => {
            return Err(format!(
                "holds {}; JSON has none, write it as a string",
                kind(value)
            ));
        }
        DeValue::Array(items) => items
            .iter()
            .map(|item| json(item.get_ref(), names))
            .collect::<Result<_, _>>()
            .map(Value::Array)?,
        DeValue::Table(table) => {
            let mut object = Map::new();
            for (key, value) in table {
                object.insert(
                    key.get_ref().as_ref().to_owned(),
                    json(value.get_ref(), names)?,
                );
            }
            Value::Object(object)
        }
    })
}
