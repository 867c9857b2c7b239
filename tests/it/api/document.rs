//! The OpenAPI document: current, valid, and true of what is answered.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use super::Client;
use crate::{
    clients::python_with,
    harness::{Bed, app::keyed},
};

fn file() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json")
}

fn committed() -> Value {
    serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap()
}

/// `docs/openapi.json` is what the program says; `LEAFHOPPER_UPDATE_OPENAPI=1` writes it.
#[tokio::test]
async fn the_committed_document_is_the_program_s() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let (status, text) = sidecar.get("/api/v1/openapi.json").await;
    assert_eq!(status, 200, "{text}");
    let text = format!("{}\n", text.trim_end());
    if std::env::var_os("LEAFHOPPER_UPDATE_OPENAPI").is_some_and(|value| value == "1") {
        std::fs::write(file(), &text).unwrap();
    }
    let committed = std::fs::read_to_string(file()).unwrap_or_default();
    let line = committed.lines().zip(text.lines()).find(|(a, b)| a != b);
    assert!(
        committed == text,
        "LEAFHOPPER_UPDATE_OPENAPI=1 writes it; the first difference: {line:?}"
    );
}

/// What is a route is in the document, since both are made of one list. So nothing may be a route in another way; and
/// that what the document names is served, `access` shows.
#[test]
fn no_route_of_the_api_is_added_behind_the_document_s_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/surface/api");
    let mut handlers = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for way in [".route(", ".nest(", "routing::"] {
            assert!(!text.contains(way), "{}: {way}", path.display());
        }
        handlers += text.matches("#[utoipa::path(").count();
    }
    let operations = committed()["paths"]
        .as_object()
        .unwrap()
        .values()
        .map(|item| item.as_object().unwrap().len())
        .sum::<usize>();
    assert_eq!(handlers, operations, "a handler that is no route");
}

#[test]
fn the_document_is_valid() {
    let Some(python) = python_with("openapi_spec_validator") else {
        return;
    };
    let program = "import sys, json, openapi_spec_validator as v\n\
                   v.OpenAPIV31SpecValidator(json.load(open(sys.argv[1]))).validate()\n\
                   try:\n    v.OpenAPIV31SpecValidator({'openapi': '3.1.0'}).validate()\n\
                   except Exception: pass\nelse: sys.exit('it finds nothing')";
    let output = Command::new(python)
        .args(["-c", program])
        .arg(file())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// What `value` has that its schema does not say, or not so.
fn differences(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches('#');
        return differences(root, root.pointer(name).unwrap(), value, at, found);
    }
    let options = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(options) = options {
        let fits = options.iter().any(|option| {
            let mut flaws = Vec::new();
            differences(root, option, value, at, &mut flaws);
            flaws.is_empty()
        });
        if !fits {
            found.push(format!("{at}: {value} is none of {options:?}"));
        }
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(format!("{at}: {value} is not among {allowed:?}"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let fits = kinds.contains(&kind) || kind == "integer" && kinds.contains(&"number");
    if !kinds.is_empty() && !fits {
        found.push(format!("{at}: {value} is no {kinds:?}"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        differences(
            root,
            &schema["items"],
            item,
            &format!("{at}[{index}]"),
            found,
        );
    }
    let mut known = serde_json::Map::new();
    properties(root, schema, value, at, &mut known, found);
    for (name, item) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match (known.get(name), schema.get("additionalProperties")) {
            (Some(schema), _) | (None, Some(schema)) => {
                differences(root, schema, item, &at, found);
            }
            (None, None) if known.is_empty() => {}
            (None, None) => found.push(format!("{at}: the document does not name it")),
        }
    }
}

/// The properties of an object, of all of its parts. Those that it lacks are told.
fn properties(
    root: &Value,
    schema: &Value,
    value: &Value,
    at: &str,
    known: &mut serde_json::Map<String, Value>,
    found: &mut Vec<String>,
) {
    if let Some(name) = schema["$ref"].as_str() {
        let part = root.pointer(name.trim_start_matches('#')).unwrap();
        return properties(root, part, value, at, known, found);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        properties(root, part, value, at, known, found);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        known.insert(name.clone(), property.clone());
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
            found.push(format!("{at}: {name} is missing"));
        }
    }
}

fn assert_as_said(document: &Value, method: &str, path: &str, status: u16, answer: &Value) {
    let operation = &document["paths"][path][method]["responses"][status.to_string()];
    let operation = match operation["$ref"].as_str() {
        Some(name) => document.pointer(name.trim_start_matches('#')).unwrap(),
        None => operation,
    };
    let contents = operation["content"].as_object();
    let contents = contents.unwrap_or_else(|| panic!("{method} {path} {status}: {operation}"));
    let schema = &contents.values().next().unwrap()["schema"];
    let mut found = Vec::new();
    differences(document, schema, answer, "answer", &mut found);
    assert!(
        found.is_empty(),
        "{method} {path} {status}: {found:#?}\n{answer:#}"
    );
}

#[tokio::test]
async fn what_is_answered_is_as_the_document_says() {
    let bed = Bed::new().await;
    bed.leaf.always().key("no").refuses(422);
    bed.leaf.always().key("lost").resets();
    let sidecar = bed.sidecar("in_doubt = \"park\"").await;
    let client = Client::new(&sidecar);
    let document = committed();
    let batch = uuid::Uuid::new_v4();
    let mut ids = Vec::new();
    for (key, state) in [("yes", "confirmed"), ("no", "failed"), ("lost", "parked")] {
        let row = keyed("leaf", key).set("meta", json!({ "a": [1, { "b": null }] }));
        // A batch of one: it ends with its call.
        let row = if key == "no" { row.batch(batch) } else { row };
        let id = bed.app.insert(row).await;
        bed.app.until_state(id, state).await;
        ids.push(id);
    }
    bed.app.insert(keyed("nobody", "waits")).await;
    let why = json!({ "reason": "a test" });
    let dry = json!({ "filter": { "leaf": "leaf" }, "reason": "a test", "dry_run": true });
    let many = json!({ "filter": { "leaf": "leaf" }, "reason": "a test" });
    let confirmed = json!({ "as": "confirmed", "reason": "a test", "body": [1] });
    let lost = ids[2].to_string();
    let acts = [
        ("/api/v1/calls/{id}/cancel", lost.clone(), &why, 409),
        ("/api/v1/calls/{id}/resolve", lost.clone(), &confirmed, 200),
        ("/api/v1/calls/{id}/retry", ids[1].to_string(), &why, 409),
        ("/api/v1/calls/retry", String::new(), &dry, 200),
        ("/api/v1/calls/retry", String::new(), &many, 202),
        ("/api/v1/leaves/{name}/pause", "leaf".to_owned(), &why, 200),
        ("/api/v1/jobs/{id}/cancel", "9".to_owned(), &why, 404),
    ];
    for (path, id, body, status) in acts {
        let named = path.replace("{id}", &id).replace("{name}", &id);
        let answer = client.post(&named, body).await.expect(status);
        assert_as_said(&document, "post", path, status, &answer);
    }
    for (path, id) in [
        ("/api/v1/calls", String::new()),
        ("/api/v1/calls/{id}", ids[0].to_string()),
        ("/api/v1/calls/{id}", ids[1].to_string()),
        ("/api/v1/calls/{id}", lost),
        ("/api/v1/batches", String::new()),
        ("/api/v1/batches/{id}", batch.to_string()),
        ("/api/v1/leaves", String::new()),
        ("/api/v1/instances", String::new()),
        ("/api/v1/jobs", String::new()),
        ("/api/v1/jobs/{id}", "1".to_owned()),
    ] {
        let answer = client.get(&path.replace("{id}", &id)).await.expect(200);
        assert_as_said(&document, "get", path, 200, &answer);
    }
    let resumed = client.post("/api/v1/resume", &why).await.expect(200);
    assert_as_said(&document, "post", "/api/v1/resume", 200, &resumed);
}
