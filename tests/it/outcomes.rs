//! What a leaf does, and what is recorded of it: one line for each behaviour.
//!
//! Where a call is left in doubt, it shows here as `parked no_probe`: nobody can ask these leaves, and they
//! honour no key.

use std::fmt::Write as _;

use serde_json::json;

use crate::harness::{
    Bed,
    app::call,
    leaf::{On, Reply},
    sidecar::Config,
    wait::until,
};

/// A leaf's behaviour towards one call, and what comes of the call.
struct Case {
    name: &'static str,
    /// A leaf of the configuration.
    leaf: &'static str,
    /// A column of the row that is not the default.
    row: Option<(&'static str, serde_json::Value)>,
    script: fn(On<'_>),
    /// As [`story`] tells it.
    expected: String,
}

/// `name, leaf [, column = value]: behaviour => story;`
macro_rules! cases {
    ($($name:literal, $leaf:ident $(, $column:ident = $value:literal)?: $script:expr => $expected:expr;)*) => {
        vec![$(Case {
            name: $name,
            leaf: stringify!($leaf),
            row: { let row: Option<(&'static str, serde_json::Value)> = None; $(let row = row.or(Some((stringify!($column), json!($value))));)? row },
            script: $script,
            expected: $expected.to_string(),
        }),*]
    };
}

fn confirmed(status: u16) -> String {
    format!("confirmed | spent 1 | last {status} | sent 1 |")
}

fn rejected(status: u16) -> String {
    format!("failed rejected | spent 1 | last {status} | sent 1 | failed {status}")
}

fn in_doubt(status: u16) -> String {
    format!("parked no_probe | spent 1 | last {status} | sent 1 | in_doubt {status}")
}

/// With [`QUICK`], which allows two attempts.
fn retried(status: u16) -> String {
    format!(
        "failed attempts_exhausted | spent 2 | last {status} | sent 2 | retry {status} retry {status}"
    )
}

fn with(status: u16, header: &str, value: &str) -> Reply {
    Reply::new(status).header(header, value)
}

fn retry_after(status: u16, value: &str) -> Reply {
    with(status, "retry-after", value)
}

/// Quick, with two attempts at most, and a time limit that a stalled machine keeps to.
const QUICK: &str = "timeout = \"10s\"\n\
    retry = { initial = \"20ms\", max = \"40ms\", jitter = 0.0, max_attempts = 2, retry_after_max = \"50ms\" }";

/// The test ends before a retry.
const SLOW: &str = "retry = { initial = \"1h\", max = \"1h\", jitter = 0.0 }";

/// `state reason | spent N | last STATUS | sent N | the history`.
async fn story(bed: &Bed, name: &str, id: i64) -> String {
    let call = bed.app.call(id).await;
    let mut story = call["state"].as_str().unwrap().to_owned();
    if let Some(reason) = call["reason"].as_str() {
        write!(story, " {reason}").unwrap();
    }
    let (spent, last) = (&call["attempts"], &call["last_status"]);
    let sent = bed.leaf.requests(name).len();
    write!(story, " | spent {spent} | last {last} | sent {sent} |").unwrap();
    for attempt in bed.app.attempts(id).await {
        write!(story, " {}", attempt["class"].as_str().unwrap()).unwrap();
        if let Some(status) = attempt["status"].as_u64() {
            write!(story, " {status}").unwrap();
        }
        let (answer, error) = (&attempt["body"], &attempt["error"]);
        assert_ne!(
            answer.is_string(),
            error.is_string(),
            "an answer or an error: {attempt}"
        );
    }
    story
}

/// Runs all cases beside one another through one sidecar, until each has come to its end.
async fn check(bed: &Bed, config: Config, cases: Vec<Case>) {
    let mut ids = Vec::new();
    for case in &cases {
        (case.script)(bed.leaf.always().key(case.name));
        let mut row = call(case.leaf)
            .key(case.name)
            .set("headers", json!({ "X-Effect-Key": case.name }));
        if let Some((column, value)) = &case.row {
            row = row.set(column, value.clone());
        }
        ids.push(bed.app.insert(row).await);
    }
    let _sidecar = config.start().await;
    until("every case has come to its end", async || {
        let mut wrong = Vec::new();
        for (case, id) in cases.iter().zip(&ids) {
            let story = story(bed, case.name, *id).await;
            if story != case.expected {
                wrong.push(format!("{}: {story}, not {}", case.name, case.expected));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    })
    .await;
}

#[tokio::test]
async fn an_answer_is_classed_by_its_status() {
    let bed = Bed::new().await;
    let mut config = bed.config(QUICK);
    for name in ["locked", "proxied"] {
        config = config.leaf(name, &bed.leaf.url(), SLOW);
    }
    let cases = cases! {
        "200", leaf: |on| on.answers(200) => confirmed(200);
        "201", leaf: |on| on.answers(201) => confirmed(201);
        "202", leaf: |on| on.answers(202) => confirmed(202);
        "204", leaf: |on| on.answers(Reply::bytes(204, "")) => confirmed(204);
        "205", leaf: |on| on.answers(Reply::bytes(205, "")) => confirmed(205);
        "299", leaf: |on| on.answers(299) => confirmed(299);
        "103 first", leaf: |on| on.answers_raw("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            => confirmed(200);
        "a broken header", leaf: |on| on.answers_raw("HTTP/1.1 200 OK\r\na b: \x01\r\ncontent-length: 0\r\n\r\n") => confirmed(200);
        "300", leaf: |on| on.refuses(300) => rejected(300);
        "302", leaf: |on| on.refuses(with(302, "location", "/effects/302")) => rejected(302);
        "304", leaf: |on| on.refuses(304) => rejected(304);
        "307", leaf: |on| on.refuses(with(307, "location", "/things")) => rejected(307);
        "308", leaf: |on| on.refuses(with(308, "location", "http://127.0.0.1:1/")) => rejected(308);
        "400", leaf: |on| on.refuses(400) => rejected(400);
        "403", leaf: |on| on.refuses(403) => rejected(403);
        "404", leaf: |on| on.refuses(404) => rejected(404);
        "408", leaf: |on| on.refuses(408) => in_doubt(408);
        "409", leaf: |on| on.refuses(409) => rejected(409);
        "410", leaf: |on| on.refuses(410) => rejected(410);
        "422", leaf: |on| on.refuses(Reply::json(422, &json!({"error": "no"}))) => rejected(422);
        "425", leaf: |on| on.refuses(425) => retried(425);
        "429", leaf: |on| on.times(3).refuses(429) => "confirmed | spent 1 | last 201 | sent 4 | retry 429 retry 429 retry 429";
        "429, seconds", leaf: |on| on.times(1).refuses(retry_after(429, "1")) => "confirmed | spent 1 | last 201 | sent 2 | retry 429";
        "429, garbage", leaf: |on| on.times(1).refuses(retry_after(429, "soon")) => "confirmed | spent 1 | last 201 | sent 2 | retry 429";
        "500", leaf: |on| on.refuses(500) => in_doubt(500);
        "502", leaf: |on| on.refuses(502) => in_doubt(502);
        "503", leaf: |on| on.refuses(503) => in_doubt(503);
        "503, seconds", leaf: |on| on.refuses(retry_after(503, "1")) => retried(503);
        "503, date", leaf: |on| on.refuses(retry_after(503, "Fri, 31 Dec 9999 23:59:59 GMT")) => retried(503);
        "503, huge", leaf: |on| on.refuses(retry_after(503, "99999999999999999999")) => retried(503);
        "503, garbage", leaf: |on| on.refuses(retry_after(503, "-1")) => in_doubt(503);
        "503, past", leaf: |on| on.refuses(retry_after(503, "Sun, 06 Nov 1994 08:49:37 GMT")) => in_doubt(503);
        "504", leaf: |on| on.refuses(504) => in_doubt(504);
        "599", leaf: |on| on.refuses(599) => in_doubt(599);
        "600", leaf: |on| on.answers(600) => in_doubt(600);
        "999", leaf: |on| on.answers(999) => in_doubt(999);
        "401", locked: |on| on.refuses(401) => "pending breaker_open | spent 0 | last 401 | sent 1 | retry 401";
        "407", proxied: |on| on.refuses(407) => "pending breaker_open | spent 0 | last 407 | sent 1 | retry 407";
        "a failing GET", leaf, method = "GET": |on| on.refuses(500)
            => "failed attempts_exhausted | spent 2 | last 500 | sent 2 | in_doubt 500 in_doubt 500";
        "one attempt", leaf, max_attempts = 1: |on| on.refuses(425)
            => "failed attempts_exhausted | spent 1 | last 425 | sent 1 | retry 425";
        "three attempts", leaf, max_attempts = 3: |on| on.refuses(425)
            => "failed attempts_exhausted | spent 3 | last 425 | sent 3 | retry 425 retry 425 retry 425";
    };
    check(&bed, config, cases).await;
}

#[tokio::test]
async fn a_leaf_s_own_mapping_goes_before_the_table() {
    let bed = Bed::new().await;
    let mapped = format!(
        "{QUICK}\noutcome = {{ 200 = \"in_doubt\", 404 = \"retry\", 409 = \"confirmed\", 429 = \"failed\", \
         500 = \"failed\", 503 = \"retry\" }}"
    );
    let config = bed
        .config(&mapped)
        .leaf("asked", &bed.leaf.url(), "exists_on = [409]")
        .toml("[leaf.asked.probe]\npath = \"/effects/x\"");
    let cases = cases! {
        "200", leaf: |on| on.answers(200) => in_doubt(200);
        "404", leaf: |on| on.refuses(404) => retried(404);
        "409", leaf: |on| on.refuses(409) => confirmed(409);
        "429", leaf: |on| on.refuses(429) => rejected(429);
        "500", leaf: |on| on.refuses(500) => rejected(500);
        "503", leaf: |on| on.times(1).refuses(503) => "confirmed | spent 2 | last 201 | sent 2 | retry 503";
        "409 exists", asked: |on| on.refuses(409) => "failed rejected | spent 1 | last 409 | sent 1 | exists 409 probe_absent 404";
    };
    check(&bed, config, cases).await;
}

#[tokio::test]
async fn without_a_whole_answer_only_what_was_never_sent_is_sent_again() {
    let bed = Bed::new().await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let config = bed
        .config(QUICK)
        .leaf("refusing", &refusing, SLOW)
        .leaf("nowhere", "http://nowhere.invalid", SLOW)
        .leaf("hasty", &bed.leaf.url(), &QUICK.replace("10s", "5s"))
        .leaf("patient", &bed.leaf.url(), "timeout = \"1h\"");
    let silent = "parked no_probe | spent 1 | last null | sent 1 | in_doubt";
    let unconnected = "pending retry | spent 0 | last null | sent 0 | retry";
    let cases = cases! {
        "refused", refusing: |on| on.answers(200) => unconnected;
        "no such name", nowhere: |on| on.answers(200) => unconnected;
        "closed", leaf: |on| on.closes() => silent;
        "reset", leaf: |on| on.resets() => silent;
        "reset unread", leaf: |on| on.resets_before_reading() => silent;
        "hangs", hasty: |on| on.hangs() => silent;
        "the row's timeout", patient, timeout = "5 s": |on| on.hangs() => silent;
        "stalls", hasty: |on| on.stalls_mid_body(Reply::bytes(200, "half of it")) => in_doubt(200);
        "truncated", leaf: |on| on.truncates(Reply::bytes(200, "half of it")) => in_doubt(200);
        "half a refusal", leaf: |on| on.does_nothing().truncates(Reply::bytes(404, "half of it")) => in_doubt(404);
        "not HTTP", leaf: |on| on.answers_raw("hello\r\n\r\n") => silent;
        "half a head", leaf: |on| on.answers_raw("HTTP/1.1 200 OK\r\ncontent-le") => silent;
        "a broken status", leaf: |on| on.answers_raw("HTTP/1.1 okay\r\ncontent-length: 0\r\n\r\n") => silent;
        "two lengths", leaf: |on| on.answers_raw("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab") => silent;
        "broken chunks", leaf: |on| on.answers_raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n") => in_doubt(200);
    };
    check(&bed, config, cases).await;
}

#[tokio::test]
async fn a_used_connection_that_closes_without_a_byte_leaves_a_doubt_too() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("concurrency = 1").await;
    let named = |key: &str| call("leaf").body(json!({ "key": key }));
    let first = bed.app.insert(named("first")).await;
    bed.app.until_state(first, "confirmed").await;
    bed.leaf.always().key("second").closes();
    let second = bed.app.insert(named("second")).await;
    bed.app.until_state(second, "parked").await;
    let requests = bed.leaf.requests("second").len();
    assert_eq!(requests, 1, "the HTTP client sends nothing twice by itself");
    bed.leaf.assert_each_effect_once(["first", "second"]);
}

#[tokio::test]
async fn retry_after_is_a_lower_bound_and_has_an_upper_one() {
    let bed = Bed::new().await;
    let quick = "retry = { initial = \"20ms\", max = \"40ms\", retry_after_max = \"1h\" }";
    let _sidecar = bed.config(quick).start().await;
    let far = "Fri, 31 Dec 9999 23:59:59 GMT";
    let (date, later) = (
        "Tue, 01 Jan 2030 00:00:00 GMT",
        "Tue, 01 Jan 2030 00:10:00 GMT",
    );
    for (name, reply, seconds) in [
        ("429", retry_after(429, "600"), 600.0),
        ("425", retry_after(425, "600"), 600.0),
        ("503", retry_after(503, "600"), 600.0),
        ("huge", retry_after(503, "99999999999999999999"), 3600.0),
        ("far", retry_after(503, far), 3600.0),
        ("date", retry_after(503, later).header("date", date), 600.0),
    ] {
        bed.leaf.always().key(name).refuses(reply);
        let id = bed
            .app
            .insert(call("leaf").body(json!({ "key": name })))
            .await;
        let wait = until(&format!("{name} waits"), async || {
            let sql = format!(
                "SELECT reason, extract(epoch FROM next_attempt_at - now())::float8 AS wait \
                   FROM leafhopper.call WHERE id = {id}"
            );
            let row = bed.app.rows(&sql).await.remove(0);
            if row["reason"] == "retry" {
                Ok(row["wait"].as_f64().unwrap())
            } else {
                Err(row)
            }
        })
        .await;
        assert!(
            // A moment lies between the two clocks that are read; above it is the jitter.
            (seconds - 15.0..=seconds * 1.3 + 0.5).contains(&wait),
            "{name}: {wait} s"
        );
    }
}
