//! Checks templates and expressions when they are loaded: that they compile, and that they speak only of
//! what there will be.

use serde_json::{Map, Number, Value};
use toml::de::DeValue;

use super::{section::kind, values::string};
use crate::domain::template;

/// A template of a path: compiles, speaks of `names` only, starts with one `/`.
pub(super) fn path(
    names: &'static [&'static str],
) -> impl Fn(&DeValue<'_>) -> Result<String, String> {
    move |value| {
        let text = string(value)?;
        template::check_path(&text, names)?;
        Ok(text)
    }
}

/// An expression that compiles and speaks of `names` only.
pub(super) fn expression(
    names: &'static [&'static str],
) -> impl Fn(&DeValue<'_>) -> Result<String, String> {
    move |value| {
        let text = string(value)?;
        template::check_expression(&text, names)?;
        Ok(text)
    }
}

/// A JSON body whose strings are templates that speak of `names` only.
pub(super) fn body(
    names: &'static [&'static str],
) -> impl Fn(&DeValue<'_>) -> Result<Value, String> {
    move |value| json(value, names)
}

fn json(value: &DeValue<'_>, names: &[&str]) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => {
            template::check_template(text, names)?;
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
