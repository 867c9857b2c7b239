//! The log: one event is one line, whatever is in it; lines name calls and traces by stable fields; none holds a body or
//! a secret, at any level.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{
    Bed,
    app::{App, keyed},
    leaf::Reply,
    sidecar::{LOG_FORMAT, LOG_LEVEL, LOUD, Sidecar},
    wait::until,
};

const TOKEN: &str = "token-5Tg8nB2vXq";
const SENT: &str = "sent-body-0Jm3kR7wLc";
const ANSWERED: &str = "answered-body-4Zp9dH6yUe";
const KEY: &str = "effect-key-1Vs5fQ8xNa";
const PATH: &str = "/things/in-the-path-6Wb2gM0tKi";

/// Breaks a line, writes another one, paints, and turns the rest around.
const EVIL: &str =
    "evil\nERROR forged\r\n{\"level\":\"ERROR\",\"message\":\"forged\"}\u{1b}[31m\u{9b}2J\u{202e}";

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn traced(call: crate::harness::app::Call) -> crate::harness::app::Call {
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    call.set(
        "meta",
        json!({ "traceparent": parent, "tracestate": "rojo=1" }),
    )
}

/// The app's own trigger on the results says something that must not get out of its line, and shows the row.
async fn refuses_evilly(app: &App) {
    app.execute(&format!(
        "CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.key = 'refused' THEN
                 RAISE EXCEPTION USING MESSAGE = $evil${EVIL}$evil$, DETAIL = 'Failing row contains ' || NEW.body::text;
             END IF;
             RETURN NEW; END $$;
         CREATE TRIGGER evil BEFORE INSERT ON leafhopper.result FOR EACH ROW EXECUTE FUNCTION evil()"
    ))
    .await;
}

#[tokio::test]
async fn an_event_is_a_line_whatever_comes_from_outside_and_holds_no_body_and_no_secret() {
    for (format, level, hidden) in [
        ("text", "trace", vec![TOKEN, SENT, ANSWERED, KEY, PATH]),
        // What libraries say is ours to answer for, too.
        ("json", LOUD, vec![TOKEN, SENT, ANSWERED]),
    ] {
        let bed = Bed::new().await;
        refuses_evilly(&bed.app).await;
        let answer = Reply::json(200, &json!({ "said": ANSWERED }));
        bed.leaf.always().answers(answer);
        let sidecar = bed
            .config("auth = { bearer = { env = \"TOKEN\" } }\nverdict = \"response.body.said\"")
            .sidecar()
            .environment("TOKEN", TOKEN)
            .environment(LOG_FORMAT, format)
            .environment(LOG_LEVEL, level)
            .start()
            .await;
        let sent = |key: &str| keyed("leaf", key).body(json!({ "key": key, "sent": SENT }));
        let refused = bed.app.insert(sent("refused")).await;
        let kept = bed.app.insert(sent(KEY).path(PATH)).await;
        bed.app.insert(keyed(&format!("leaf {EVIL}"), EVIL)).await;
        bed.app.until_state(kept, "confirmed").await;
        let said = until("the database's words are said", async || {
            let lines = sidecar.lines();
            let said = lines.iter().find(|line| line.contains("evil\\n"));
            said.cloned().ok_or(lines)
        })
        .await;
        // Readable, and still one line; without the row that the server shows.
        assert!(said.contains("forged"), "{said}");
        assert!(!said.contains("Failing row"), "{said}");
        let of_libraries = sidecar.lines().iter().any(|line| line.contains("hyper"));
        assert_eq!(of_libraries, level == LOUD);
        for line in sidecar.lines() {
            assert_is_a_line(&line, format);
            for secret in &hidden {
                assert!(!line.contains(secret), "{level}: {secret} in {line}");
            }
        }
        bed.app
            .execute("DROP TRIGGER evil ON leafhopper.result")
            .await;
        bed.app.until_state(refused, "confirmed").await;
    }
}

fn assert_is_a_line(line: &str, format: &str) {
    let harmful = |c: char| c.is_control() || c == '\u{202e}';
    assert!(!line.contains(harmful), "{line:?}");
    let (timestamp, level) = if format == "json" {
        let event: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
        let text = |name: &str| event[name].as_str().unwrap().to_owned();
        assert!(!text("target").is_empty(), "{line}");
        let _message = text("message");
        (text("timestamp"), text("level"))
    } else {
        let mut words = line.split_whitespace();
        (words.next().unwrap().into(), words.next().unwrap().into())
    };
    assert!(
        timestamp.len() == 27 && timestamp.ends_with('Z') && timestamp.as_bytes()[10] == b'T',
        "{line}"
    );
    let levels = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];
    assert!(levels.contains(&level.as_str()), "{line}");
    assert!(level != "ERROR", "nothing here is an error: {line}");
}

/// The lines about a call, once one of them has these words in its message.
async fn lines_about(sidecar: &Sidecar, call: i64, words: &str) -> Vec<Value> {
    until(&format!("call {call}: {words}"), async || {
        let mut lines = sidecar.log();
        lines.retain(|line| line["call.id"] == call);
        let said = |line: &Value| line["message"].as_str().unwrap().contains(words);
        if lines.iter().any(said) {
            Ok(lines)
        } else {
            Err(lines)
        }
    })
    .await
}

#[tokio::test]
async fn each_line_about_a_call_names_it_its_leaf_its_batch_and_its_trace() {
    let bed = Bed::new().await;
    bed.leaf.on("/lost").resets();
    bed.leaf.on("/no").refuses(422);
    let quick = "retry = { initial = \"10ms\", max = \"20ms\" }";
    let asked = bed.leaf.url();
    let sidecar = bed
        .config(quick)
        .leaf("asked", &asked, quick)
        .probe("asked", "settle = \"1ms\"")
        .sidecar()
        .environment(LOG_LEVEL, "debug")
        .start()
        .await;
    let batch = Uuid::new_v4();
    let rows = [
        (keyed("leaf", "a"), "is confirmed"),
        (
            keyed("leaf", "b").path("/no"),
            "has ended: failed (rejected)",
        ),
        (keyed("leaf", "c").path("/lost"), "is parked (no_probe)"),
        (keyed("asked", "d").path("/lost"), "was found at the leaf"),
        (
            keyed("leaf", "a").path("/things?again"),
            "has failed (key_conflict)",
        ),
        (
            keyed("leaf", "e").set("deadline", "2020-01-01"),
            "has ended: expired",
        ),
    ];
    for (row, words) in rows {
        // Of a batch of its own, which a failure of another one does not cancel.
        let batch = Uuid::new_v4();
        let call = bed.app.insert(traced(row.batch(batch))).await;
        for line in lines_about(&sidecar, call, words).await {
            let leaf = line["call.leaf"].as_str().unwrap();
            assert!(["leaf", "asked"].contains(&leaf), "{line}");
            assert_eq!(line["batch.id"], batch.to_string(), "{line}");
            assert_eq!(line["trace_id"], TRACE, "{line}");
            assert_eq!(line["span_id"], Value::Null, "{line}");
        }
    }
    for request in bed.leaf.all_requests() {
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        assert_eq!(request.header("traceparent"), Some(parent.as_str()));
        assert_eq!(request.header("tracestate"), Some("rojo=1"));
    }
    // Without a trace, or with one that is none, nothing is made up.
    let broken = keyed("leaf", "f").set("meta", json!({ "traceparent": "00-0-0-0" }));
    let call = bed.app.insert(broken.batch(batch)).await;
    for line in lines_about(&sidecar, call, "is confirmed").await {
        assert_eq!(line["trace_id"], Value::Null, "{line}");
    }
    let request = bed.leaf.requests("f").remove(0);
    assert_eq!(request.header("traceparent"), None);
}

#[tokio::test]
async fn an_undo_that_comes_to_nothing_is_a_warning_that_says_where_to_look() {
    let bed = Bed::new().await;
    bed.leaf.on("/undo/refused").refuses(403);
    bed.leaf.on("/undo/lost").resets();
    let sidecar = bed
        .config("compensate = { method = \"POST\", path = \"/undo/{{ call.key }}\" }")
        .start()
        .await;
    for (key, state) in [("refused", "failed"), ("lost", "parked")] {
        let batch = Uuid::new_v4();
        bed.app.execute("BEGIN").await;
        let made = bed
            .app
            .insert(traced(keyed("leaf", key).batch(batch)))
            .await;
        let waits = keyed("leaf", "waits").set("not_before", "infinity");
        bed.app.insert(waits.batch(batch)).await;
        bed.app.execute("COMMIT").await;
        bed.app.until_state(made, "confirmed").await;
        let cancel = format!("SELECT leafhopper.cancel_batch('{batch}', 'a test')");
        bed.app.execute(&cancel).await;
        let line = until("the warning is there", async || {
            let log = sidecar.log();
            let of_batch =
                |line: &&Value| line["level"] == "WARN" && line["batch.id"] == batch.to_string();
            let warned = log.iter().find(of_batch);
            warned.cloned().ok_or(log)
        })
        .await;
        let words = format!("`leafhopper batch {batch}` tells how to move it");
        assert!(
            line["message"].as_str().unwrap().ends_with(&words),
            "{line}"
        );
        assert_eq!(line["call.state"], state, "{line}");
        assert_eq!(line["trace_id"], TRACE, "{line}");
        let undo = format!(
            "SELECT id FROM leafhopper.call WHERE batch_id = '{batch}' AND key = '{key}:undo:1'"
        );
        assert_eq!(
            bed.app.rows(&undo).await,
            [json!({ "id": line["call.id"] })]
        );
    }
}

#[test]
fn every_field_is_explained_and_every_explanation_is_of_a_field() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("docs/logs.md")).unwrap();
    let table = guide.split("\n| field |").nth(1).unwrap();
    let rows = table.split("\n\n").next().unwrap().lines().skip(2);
    let explained: BTreeSet<String> = rows
        .map(|row| row.split('|').nth(1).unwrap().trim().to_owned())
        .collect();
    let mut used = BTreeSet::new();
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                // Tests have lines of their own.
                let code = text.split("#[cfg(test)]").next().unwrap();
                used.extend(fields_of(code));
            }
        }
    }
    assert!(used.len() > 15, "{used:?}");
    assert_eq!(used, explained);
}

/// The names of fields in the log's macros: what stands before the message, and before the `=` where there is one.
fn fields_of(code: &str) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    let levels = ["error", "warn", "info", "debug", "trace", "$level"];
    let macros = levels.map(|level| (format!("tracing::{level}!("), 0));
    for (name, own) in macros.into_iter().chain([("say!(".to_owned(), 2)]) {
        for call in code.split(&name).skip(1) {
            for argument in arguments(call).skip(own) {
                if argument.starts_with(['"', '$']) {
                    break;
                }
                let field = argument.split(" =").next().unwrap();
                let field = field.trim_start_matches(['?', '%']).trim();
                if !argument.starts_with("target:") {
                    fields.insert(field.to_owned());
                }
            }
        }
    }
    fields
}

/// What lies between commas, up to the closing parenthesis.
fn arguments(text: &str) -> impl Iterator<Item = String> {
    let (mut depth, mut quoted, mut before) = (0, false, ' ');
    let mut parts = vec![String::new()];
    for c in text.chars() {
        if c == '"' && before != '\\' {
            quoted = !quoted;
        }
        match c {
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            break;
        }
        if c == ',' && depth == 0 && !quoted {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(c);
        }
        before = c;
    }
    let parts = parts.into_iter().map(|part| part.trim().to_owned());
    parts.filter(|part| !part.is_empty())
}

#[test]
fn fields_are_found_in_macros() {
    let code = "tracing::warn!(a.b = f(1, 2), c, %d, \"x = {y}, {z}\", y, z = 1); \
                say!(info, about, e.f = true, \"g\"); tracing::$level!(h = $about.h, $($rest)+)";
    let found: Vec<String> = fields_of(code).into_iter().collect();
    assert_eq!(found, ["a.b", "c", "d", "e.f", "h"]);
}
