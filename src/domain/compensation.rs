//! The request that undoes an effect, made of the call and of what the leaf confirmed.

use serde_json::Value;

use super::template::{
    self, ROUNDED, check_path, check_template, is_rounded, render_path, render_value,
};

/// What its templates may speak of.
pub const SPEAKS_OF: &[&str] = &["call", "result"];

/// `[leaf.NAME.compensate]`, or the `compensate` of a row: how an effect is undone.
#[derive(Debug, Clone, PartialEq)]
pub struct Compensate {
    /// The method that undoes.
    pub method: String,
    /// Template of the path.
    pub path: String,
    /// A JSON body whose strings are templates.
    pub body: Option<Value>,
}

/// The request that undoes one effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Undo {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The JSON body.
    pub body: Option<Value>,
}

impl Compensate {
    /// The `compensate` of a row. The schema has checked its keys, and that method and path are text.
    ///
    /// # Errors
    /// Which part of it can't be used, and why.
    pub fn of_row(text: &str) -> Result<Self, String> {
        let row: Value =
            serde_json::from_str(text).map_err(|error| format!("it can't be read: {error}"))?;
        let part = |name: &str| {
            let text = row.get(name).and_then(Value::as_str).map(str::to_owned);
            text.ok_or_else(|| format!("{name}: it has none"))
        };
        let compensate = Self {
            method: part("method")?,
            path: part("path")?,
            body: row.get("body").filter(|body| !body.is_null()).cloned(),
        };
        check_path(&compensate.path, SPEAKS_OF).map_err(|flaw| format!("path: {flaw}"))?;
        if let Some(body) = &compensate.body {
            check_body(body).map_err(|flaw| format!("body: {flaw}"))?;
        }
        Ok(compensate)
    }

    /// The request for one effect. `values` has the `call` and its `result`.
    ///
    /// # Errors
    /// Which template can't be rendered over these values, and why.
    pub fn render(&self, values: &Value) -> Result<Undo, String> {
        Ok(Undo {
            method: self.method.clone(),
            path: render_path(&self.path, values).map_err(|flaw| format!("path: {flaw}"))?,
            body: match &self.body {
                Some(body) => Some(rendered(body, values).map_err(|flaw| format!("body: {flaw}"))?),
                None => None,
            },
        })
    }
}

fn check_body(body: &Value) -> Result<(), String> {
    match body {
        Value::String(text) => check_template(text, SPEAKS_OF),
        Value::Array(items) => items.iter().try_for_each(check_body),
        Value::Object(parts) => parts.values().try_for_each(check_body),
        Value::Number(_) if is_rounded(body) => Err(ROUNDED.to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn rendered(body: &Value, values: &Value) -> Result<Value, template::TemplateError> {
    Ok(match body {
        Value::String(text) => render_value(text, values)?,
        Value::Array(items) => items
            .iter()
            .map(|item| rendered(item, values))
            .collect::<Result<_, _>>()
            .map(Value::Array)?,
        Value::Object(parts) => parts
            .iter()
            .map(|(name, part)| Ok((name.clone(), rendered(part, values)?)))
            .collect::<Result<_, template::TemplateError>>()
            .map(Value::Object)?,
        Value::Null | Value::Bool(_) | Value::Number(_) => body.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values() -> Value {
        json!({
            "call": { "path": "/repos/a%20b", "body": { "owner": "acme", "amount": 1250 } },
            "result": { "status": 201, "body": { "id": 17, "name": "o/x" } },
        })
    }

    #[test]
    fn a_request_is_made_of_the_call_and_of_what_was_confirmed() {
        let text = r#"{"method": "POST", "path": "/repos/{{ call.body.owner }}/{{ result.body.name }}",
            "body": {"of": "{{ result.body.id }}", "note": "undo {{ result.body.id }}",
                     "parts": [{"amount": "{{ call.body.amount }}"}, true, null, 1.5]}}"#;
        let undo = Compensate::of_row(text).unwrap().render(&values());
        assert_eq!(
            undo,
            Ok(Undo {
                method: "POST".into(),
                path: "/repos/acme/o%2Fx".into(),
                // One expression alone keeps the type of its value.
                body: Some(
                    json!({ "of": 17, "note": "undo 17", "parts": [{ "amount": 1250 }, true, null, 1.5] })
                ),
            })
        );
        let text = r#"{"method": "DELETE", "path": "{{ call.path }}"}"#;
        let undo = Compensate::of_row(&text.replace("{{ call.path }}", "/x")).unwrap();
        assert_eq!(undo.render(&values()).unwrap().body, None);
    }

    #[test]
    fn what_can_t_be_made_says_which_part() {
        for (compensate, part) in [
            (
                r#"{"method": "DELETE", "path": "/{{ result.body.gone }}"}"#,
                "path: ",
            ),
            (
                r#"{"method": "PUT", "path": "/", "body": {"a": "{{ result.body.gone }}"}}"#,
                "body: ",
            ),
            (
                r#"{"method": "PUT", "path": "/", "body": ["x {{ result.body.gone }}"]}"#,
                "body: ",
            ),
            // It would name another thing.
            (
                r#"{"method": "PUT", "path": "/", "body": "{{ result.body.long }}"}"#,
                "body: ",
            ),
            (
                r#"{"method": "PUT", "path": "/", "body": ["{{ result.body }}"]}"#,
                "body: ",
            ),
            (
                r#"{"method": "PUT", "path": "/", "body": "no {{ result.body.long }}"}"#,
                "body: ",
            ),
        ] {
            let mut values = values();
            values["result"]["body"]["long"] =
                serde_json::from_str("123456789012345678901234567890").unwrap();
            let flaw = Compensate::of_row(compensate).unwrap().render(&values);
            assert!(
                flaw.as_ref().is_err_and(|flaw| flaw.starts_with(part)),
                "{flaw:?}"
            );
        }
        for (compensate, part) in [
            (
                r#"{"method": "PUT", "path": "/{{ oops }}"}"#,
                "path: `oops`",
            ),
            (
                r#"{"method": "PUT", "path": "/", "body": {"a": ["{{ oops }}"]}}"#,
                "body: `oops`",
            ),
            (
                r#"{"method": "PUT", "path": "/", "body": "{{ 'a' * 9 }}"}"#,
                "body: ",
            ),
            (
                r#"{"method": "PUT", "path": "/", "body": {"id": 123456789012345678901}}"#,
                "body: ",
            ),
        ] {
            let flaw = Compensate::of_row(compensate);
            assert!(
                flaw.as_ref().is_err_and(|flaw| flaw.starts_with(part)),
                "{flaw:?}"
            );
        }
    }
}
