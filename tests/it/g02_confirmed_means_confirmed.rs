//! G2, confirmed means confirmed: a call is `confirmed` only with a result that came from the leaf, or from
//! an explicit word of the app.

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{call, keyed, literal},
    leaf::Reply,
};

#[tokio::test]
async fn a_confirmation_is_the_leaf_s_answer() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    bed.leaf.always().answers(
        Reply::json(202, &json!({"id": 7}))
            .header("location", "/things/7")
            .header("etag", "\"e\""),
    );
    let id = bed.app.insert(call("leaf").key("k")).await;
    let row = bed.app.until_state(id, "confirmed").await;
    assert_eq!(
        (&row["attempts"], &row["last_status"], &row["reason"]),
        (&json!(1), &json!(202), &Value::Null)
    );
    assert!(row["finished_at"].is_string(), "{row:#}");

    let results = bed.app.results("leaf", "k").await;
    let [result] = results.as_slice() else {
        panic!("one result: {results:#?}")
    };
    for (column, expected) in [
        ("generation", json!(1)),
        ("call_id", json!(id)),
        ("status", json!(202)),
        ("body", json!({"id": 7})),
        ("body_raw", Value::Null),
        ("source", json!("response")),
        ("weak", json!(false)),
        ("truncated", json!(false)),
        ("undone_at", Value::Null),
    ] {
        assert_eq!(result[column], expected, "{column}");
    }
    assert_eq!(result["headers"]["location"], "/things/7");
    assert_eq!(result["headers"]["etag"], "\"e\"");
}

#[tokio::test]
async fn results_are_numbered_to_poll_by() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let mut last = 0;
    for n in 0..3 {
        let key = format!("k{n}");
        let id = bed.app.insert(call("leaf").key(&key)).await;
        bed.app.until_state(id, "confirmed").await;
        let seq = bed.app.results("leaf", &key).await[0]["seq"]
            .as_i64()
            .unwrap();
        assert!(seq > last, "{seq} after {last}");
        last = seq;
    }
}

#[tokio::test]
async fn what_does_not_confirm_leaves_no_result() {
    let bed = Bed::new().await;
    let elsewhere = format!("{}/elsewhere", bed.leaf.url());
    let leaf = &bed.leaf;
    let on = |key: &str| leaf.on("/things").key(key);
    on("404").refuses(404);
    on("redirect").answers(Reply::new(302).header("location", &elsewhere));
    on("304").answers(304);
    on("500").answers(500);
    on("reset").resets();
    on("closed").closes();
    on("garbage").answers_raw("200 OK\r\n\r\n");
    on("half").truncates(Reply::json(200, &json!({"half": "of it"})));
    on("stalls").stalls_mid_body(Reply::json(200, &json!({"half": "of it"})));
    on("hangs").hangs();
    let _sidecar = bed.sidecar("").await;
    let mut calls = Vec::new();
    for (key, state, reason) in [
        ("404", "failed", "rejected"),
        ("redirect", "failed", "rejected"),
        ("304", "failed", "rejected"),
        ("500", "parked", "no_probe"),
        ("reset", "parked", "no_probe"),
        ("closed", "parked", "no_probe"),
        ("garbage", "parked", "no_probe"),
        ("half", "parked", "no_probe"),
        ("stalls", "parked", "no_probe"),
        ("hangs", "parked", "no_probe"),
    ] {
        // Only what never ends is given up.
        let timeout = matches!(key, "stalls" | "hangs").then_some("5 s");
        let row = keyed("leaf", key).set("timeout", timeout);
        calls.push((key, bed.app.insert(row).await, state, reason));
    }
    for (key, id, state, reason) in calls {
        let row = bed.app.until_state(id, state).await;
        assert_eq!(row["reason"], reason, "{key}");
        assert_eq!(
            bed.app.results("leaf", key).await,
            [] as [Value; 0],
            "{key}"
        );
        assert_eq!(leaf.requests(key).len(), 1, "{key}");
        assert_eq!(bed.app.attempts(id).await.len(), 1, "{key}");
    }
    let followed = leaf
        .all_requests()
        .into_iter()
        .filter(|r| r.path == "/elsewhere");
    assert_eq!(followed.count(), 0, "no redirect is followed");
}

#[tokio::test]
async fn a_confirmation_is_recorded_whatever_its_body() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("max_response_bytes = \"64KiB\"").await;
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let digits = |count: usize| "1".repeat(count);
    // What the leaf sends; then as what it is kept.
    for (name, reply, kept) in [
        ("no body", Reply::new(204), "nothing"),
        ("empty", Reply::bytes(200, ""), "nothing"),
        ("json null", Reply::bytes(200, "null"), "null"),
        (
            "json",
            Reply::bytes(200, "{\"a\": [1.50]}"),
            "{\"a\": [1.50]}",
        ),
        ("long number", Reply::bytes(200, digits(40_000)), "json"),
        ("too long a number", Reply::bytes(200, "1e400000"), "bytes"),
        ("text", Reply::bytes(200, "created"), "bytes"),
        ("two values", Reply::bytes(200, "1 2"), "bytes"),
        (
            "NUL escape",
            Reply::bytes(200, "{\"a\": \"\\u0000\"}"),
            "bytes",
        ),
        (
            "lone surrogate",
            Reply::bytes(200, "{\"a\": \"\\ud800\"}"),
            "bytes",
        ),
        ("NUL", Reply::bytes(200, "a\0b"), "bytes"),
        ("no UTF-8", Reply::bytes(200, [0xff, 0xfe]), "bytes"),
        ("nested", Reply::bytes(200, nested(100)), "json"),
        (
            "nested too deeply",
            Reply::bytes(200, nested(20_000)),
            "bytes",
        ),
        (
            "too long",
            Reply::bytes(200, digits(300 * 1024)),
            "bytes, cut",
        ),
    ] {
        bed.leaf.on("/things").key(name).answers(reply);
        let id = bed.app.insert(keyed("leaf", name)).await;
        bed.app.until_state(id, "confirmed").await;
        let seen = bed
            .app
            .rows(&format!(
                "SELECT CASE WHEN body IS NOT NULL AND {name} IN ('json null', 'json') THEN body::text \
                             WHEN body IS NOT NULL THEN 'json' \
                             WHEN body_raw IS NOT NULL THEN 'bytes' \
                             ELSE 'nothing' END || CASE WHEN truncated THEN ', cut' ELSE '' END AS kept \
                   FROM leafhopper.result WHERE key = {name}",
                name = literal(name)
            ))
            .await;
        assert_eq!(seen, [json!({ "kept": kept })], "{name}");
        assert_eq!(bed.leaf.requests(name).len(), 1, "{name}");
    }
}

#[tokio::test]
async fn an_app_s_word_confirms_and_says_whose_it_was() {
    let bed = Bed::new().await;
    let id = bed.app.insert(call("leaf").key("k")).await;
    let said = bed
        .app
        .rows("SELECT leafhopper.confirm('leaf', 'k', 201, '{\"id\": 3}') AS recorded")
        .await;
    assert_eq!(said, [json!({"recorded": true})]);
    let row = bed.app.call(id).await;
    assert_eq!(
        (&row["state"], &row["attempts"]),
        (&json!("confirmed"), &json!(0))
    );
    let result = bed.app.results("leaf", "k").await.remove(0);
    assert_eq!(
        (
            &result["source"],
            &result["call_id"],
            &result["body"],
            &result["status"]
        ),
        (
            &json!("application"),
            &json!(id),
            &json!({"id": 3}),
            &json!(201)
        )
    );

    // Written once, never overwritten.
    let again = bed
        .app
        .rows("SELECT leafhopper.confirm('leaf', 'k', 200, '{\"id\": 4}') AS recorded")
        .await;
    assert_eq!(again, [json!({"recorded": false})]);
    assert_eq!(bed.app.results("leaf", "k").await, [result]);
}
