//! G3, record first: nothing is sent for an effect that stands already, by the leaf's word or the app's.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{App, Call, call, keyed, literal},
    leaf::{Gate, Remembers, Reply},
    sidecar::Sidecar,
    wait::{holds_for, until},
};

/// A leaf that honours idempotency keys, and is tried again late.
const KEYED: &str = "retry = { initial = \"10m\" }\nidempotency = { header = \"Idempotency-Key\", window = \"1d\" }";

async fn confirm(app: &App, key: &str) -> bool {
    let sql = format!(
        "SELECT leafhopper.confirm('leaf', {}) AS said",
        literal(key)
    );
    app.rows(&sql).await[0]["said"].as_bool().unwrap()
}

async fn forget(app: &App, key: &str) -> Result<(), (String, String)> {
    let sql = format!("SELECT leafhopper.forget('leaf', {})", literal(key));
    let refused = app.client().batch_execute(&sql).await.err();
    refused.map_or(Ok(()), |error| {
        let error = error.as_db_error().unwrap().clone();
        let hint = error.hint().unwrap_or_default().to_owned();
        Err((error.message().to_owned(), hint))
    })
}

fn with_key(key: &str) -> Call {
    keyed("leaf", key)
}

#[tokio::test]
async fn an_effect_that_the_leaf_confirmed_is_not_asked_for_again() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let first = bed.app.insert(with_key("k")).await;
    bed.app.until_state(first, "confirmed").await;
    let second = bed.app.insert(with_key("k")).await;
    let row = bed.app.until_state(second, "confirmed").await;
    assert_eq!(
        (&row["attempts"], &row["last_status"]),
        (&json!(0), &json!(201))
    );
    assert_eq!(bed.leaf.requests("k").len(), 1);
    let results = bed.app.results("leaf", "k").await;
    assert_eq!(results.len(), 1);
    assert_eq!(
        results[0]["call_id"], first,
        "the result stays the first call's"
    );
    sidecar
        .until_metric(
            "leafhopper_duplicates_prevented_total",
            &["how=\"result\""],
            1.0,
        )
        .await;
}

#[tokio::test]
async fn a_key_stands_for_one_method_path_and_body() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let raw = |text: &str| call("leaf").key("k").body_raw("application/json", text);
    let first = bed.app.insert(with_key("k")).await;
    bed.app.until_state(first, "confirmed").await;
    let mut calls = Vec::new();
    for (what, row, agrees) in [
        ("method", with_key("k").method("PUT"), false),
        ("path", with_key("k").path("/others"), false),
        ("query", with_key("k").path("/things?a=b"), false),
        (
            "body",
            with_key("k").body(json!({"key": "k", "more": 1})),
            false,
        ),
        ("no body", call("leaf").key("k"), false),
        ("other bytes", raw("{\"key\":\"k\"}"), false),
        ("the same bytes", raw("{\"key\": \"k\"}"), true),
        (
            "headers",
            with_key("k").set("headers", json!({"x-a": "b"})),
            true,
        ),
        ("order of keys", with_key("k"), true),
        ("priority", with_key("k").set("priority", 3), true),
        ("timeout", with_key("k").set("timeout", "3 s"), true),
        ("meta", with_key("k").set("meta", json!({"a": 1})), true),
        ("ordering key", with_key("k").set("ordering_key", "o"), true),
    ] {
        calls.push((what, bed.app.insert(row).await, agrees));
    }
    for (what, id, agrees) in calls {
        let row = until(&format!("{what} has ended"), async || {
            let row = bed.app.call(id).await;
            if row["finished_at"].is_string() {
                Ok(row)
            } else {
                Err(row)
            }
        })
        .await;
        let expected = if agrees {
            ("confirmed", Value::Null)
        } else {
            ("failed", json!("key_conflict"))
        };
        assert_eq!(
            (row["state"].as_str().unwrap(), row["reason"].clone()),
            expected,
            "{what}"
        );
        assert_eq!(row["attempts"], 0, "{what}");
    }
    assert_eq!(bed.leaf.all_requests().len(), 1);
    assert_eq!(bed.app.results("leaf", "k").await.len(), 1);
}

#[tokio::test]
async fn one_taken_key_among_many_rows_harms_no_other() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let first = bed.app.insert(with_key("k-50")).await;
    bed.app.until_state(first, "confirmed").await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
             SELECT 'leaf', 'k-' || n, '/things', jsonb_build_object('key', 'k-' || n) \
               FROM generate_series(1, 100) AS n",
        )
        .await;
    until_all_confirmed(&bed.app).await;
    bed.leaf
        .assert_each_effect_once((1..=100).map(|n| format!("k-{n}")));
}

#[tokio::test]
async fn an_app_s_word_agrees_with_every_request() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    assert!(confirm(&bed.app, "k").await);
    for row in [
        with_key("k"),
        with_key("k").method("PUT").path("/x"),
        call("leaf").key("k"),
    ] {
        let id = bed.app.insert(row).await;
        bed.app.until_state(id, "confirmed").await;
    }
    assert!(bed.leaf.all_requests().is_empty());
}

#[tokio::test]
async fn a_word_answers_waiting_calls_at_once() {
    let bed = Bed::new().await;
    let mut calls = Vec::new();
    for row in [
        with_key("k"),
        with_key("k").set("not_before", "2100-01-01"),
        with_key("k").set("ordering_key", "o"),
        with_key("k").method("PUT"),
    ] {
        calls.push(bed.app.insert(row).await);
    }
    let other = bed.app.insert(with_key("other")).await;
    assert!(confirm(&bed.app, "k").await);
    for id in calls {
        assert_eq!(bed.app.state(id).await, "confirmed");
    }
    assert_eq!(bed.app.state(other).await, "pending");
    let _sidecar = bed.sidecar("").await;
    bed.app.until_state(other, "confirmed").await;
    assert!(bed.leaf.requests("k").is_empty());
}

#[tokio::test]
async fn a_word_during_the_request_ends_the_call_whatever_its_attempt_says() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("outcome = { 409 = \"retry\" }").await;
    let gate = Gate::closed();
    let on = |key: &str| {
        let on = bed.leaf.on("/things").key(key);
        on.waits_before_the_answer(&gate)
    };
    on("500").answers(500);
    on("404").refuses(404);
    on("409").refuses(409);
    on("429").refuses(Reply::new(429).header("retry-after", "100"));
    on("reset").resets();
    on("201").answers(201);
    on("hangs").hangs();
    let keys = ["500", "404", "409", "429", "reset", "201", "hangs"];
    let mut calls = Vec::new();
    for key in keys {
        let timeout = (key == "hangs").then_some("6 s");
        let row = with_key(key).set("timeout", timeout);
        calls.push((key, bed.app.insert(row).await));
    }
    gate.until_arrived(keys.len()).await;
    for key in keys {
        assert!(confirm(&bed.app, key).await, "{key}");
    }
    for (key, id) in &calls {
        assert_eq!(bed.app.state(*id).await, "dispatching", "{key}");
    }
    gate.open();
    for (key, id) in calls {
        bed.app.until_state(id, "confirmed").await;
        let results = bed.app.results("leaf", key).await;
        assert_eq!(results.len(), 1, "{key}");
        assert_eq!(results[0]["source"], "application", "{key}");
        // What the attempt saw is kept.
        let class = match key {
            "404" => "failed",
            "409" | "429" => "retry",
            "201" => "confirmed_again",
            _ => "in_doubt",
        };
        assert_eq!(bed.app.attempts(id).await[0]["class"], class, "{key}");
        assert_eq!(bed.leaf.requests(key).len(), 1, "{key}");
    }
}

#[tokio::test]
async fn a_word_answers_calls_that_are_parked_or_in_doubt() {
    let bed = Bed::new().await;
    bed.leaf.always().answers(500);
    let config = bed.config(KEYED).leaf("plain", &bed.leaf.url(), "");
    let _sidecar = config.start().await;
    let doubt = bed.app.insert(with_key("doubt")).await;
    let parked = bed.app.insert(call("plain").key("parked")).await;
    bed.app.until_state(doubt, "in_doubt").await;
    bed.app.until_state(parked, "parked").await;
    // They wait behind the ones above.
    let behind = bed.app.insert(with_key("doubt")).await;
    until("it waits for the key", async || {
        let row = bed.app.call(behind).await;
        if row["reason"] == "waits_for_key" && row["waits_for"] == doubt {
            Ok(())
        } else {
            Err(row)
        }
    })
    .await;
    assert!(confirm(&bed.app, "doubt").await);
    bed.app
        .execute("SELECT leafhopper.confirm('plain', 'parked', 200)")
        .await;
    for id in [doubt, behind, parked] {
        assert_eq!(bed.app.state(id).await, "confirmed");
    }
    assert_eq!(bed.leaf.all_requests().len(), 2);
}

#[tokio::test]
async fn a_word_during_the_request_outlives_the_instance() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf.always().waits_before_the_effect(&gate).hangs();
    let config = bed.config("timeout = \"2s\"").dispatch("lease = \"1s\"");
    let mut first = config.start().await;
    let id = bed.app.insert(with_key("k")).await;
    gate.until_arrived(1).await;
    first.kill();
    assert!(confirm(&bed.app, "k").await);
    let _second = config.start().await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.leaf.requests("k").len(), 1);
    assert_eq!(
        bed.app.results("leaf", "k").await[0]["source"],
        "application"
    );
}

#[tokio::test]
async fn what_was_forgotten_has_another_generation_with_another_idempotency_key() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let _sidecar = bed.sidecar(KEYED).await;
    for generation in 1..=3 {
        let id = bed.app.insert(with_key("k")).await;
        bed.app.until_state(id, "confirmed").await;
        assert_eq!(bed.leaf.effects("k"), generation);
        assert_eq!(forget(&bed.app, "k").await, Ok(()));
        let row = bed.app.call(id).await;
        assert_eq!(row["state"], "confirmed", "what was confirmed stays so");
        assert!(row["undone_at"].is_string());
    }
    let results = bed.app.results("leaf", "k").await;
    let generations: Vec<_> = results.iter().map(|r| r["generation"].clone()).collect();
    assert_eq!(generations, [1, 2, 3]);
    let mut values: Vec<_> = bed
        .leaf
        .requests("k")
        .iter()
        .map(|request| request.header("idempotency-key").unwrap().to_owned())
        .collect();
    assert_eq!(values[0], "k", "the first generation is the key itself");
    values.dedup();
    assert_eq!(values.len(), 3, "{values:?}");

    let (message, hint) = forget(&bed.app, "k").await.unwrap_err();
    assert_eq!(message, "no effect stands for leaf \"leaf\", key \"k\"");
    assert!(hint.contains("leafhopper.result"), "{hint}");
}

#[tokio::test]
async fn nothing_is_forgotten_while_a_call_of_the_key_is_open() {
    let bed = Bed::new().await;
    bed.leaf.always().answers(500);
    let gate = Gate::closed();
    bed.leaf
        .on("/things")
        .key("flight")
        .waits_before_the_answer(&gate)
        .answers(201);
    let config = bed.config(KEYED).leaf("plain", &bed.leaf.url(), "");
    let sidecar = config.start().await;
    let flight = bed.app.insert(with_key("flight")).await;
    let doubt = bed.app.insert(with_key("doubt")).await;
    gate.until_arrived(1).await;
    bed.app.until_state(doubt, "in_doubt").await;
    for (key, id, state) in [
        ("flight", flight, "dispatching"),
        ("doubt", doubt, "in_doubt"),
    ] {
        let (message, hint) = forget(&bed.app, key).await.unwrap_err();
        assert_eq!(
            message,
            format!(
                "call {id} of leaf \"leaf\", key \"{key}\" is {state}; its effect can't be forgotten now"
            )
        );
        assert!(hint.contains("wait until it is final"), "{hint}");
    }
    // Also where a word stands for the key meanwhile.
    assert!(confirm(&bed.app, "flight").await);
    forget(&bed.app, "flight").await.unwrap_err();
    gate.open();
    bed.app.until_state(flight, "confirmed").await;
    // The answer to the only request is what the app had heard of: no second effect to alert anybody of.
    let labels = ["class=\"confirmed_again\""];
    let again = sidecar.metric("leafhopper_attempts_total", &labels).await;
    assert!(again < 0.5, "{again}");
    assert_eq!(forget(&bed.app, "flight").await, Ok(()));
}

#[tokio::test]
async fn duplicates_inserted_at_once_are_one_request() {
    let bed = Bed::new().await;
    let config = bed.config("concurrency = 8");
    let _sidecars: [Sidecar; 2] = tokio::join!(config.start(), config.start()).into();
    bed.leaf
        .always()
        .takes(Duration::from_millis(30))
        .answers(201);
    let apps =
        futures_util::future::join_all((0..10).map(|_| App::connect(&bed.database.url))).await;
    let inserts = apps.iter().map(async |app| {
        for _ in 0..5 {
            app.execute("BEGIN").await;
            app.insert(with_key("k")).await;
            app.insert(with_key("l")).await;
            app.execute("COMMIT").await;
        }
    });
    futures_util::future::join_all(inserts).await;
    until_all_confirmed(&bed.app).await;
    for key in ["k", "l"] {
        assert_eq!(bed.leaf.requests(key).len(), 1, "{key}");
        assert_eq!(bed.app.results("leaf", key).await.len(), 1, "{key}");
    }
    holds_for(
        Duration::from_millis(200),
        "one request each",
        async || match bed.leaf.all_requests().len() {
            2 => Ok(()),
            n => Err(n),
        },
    )
    .await;
}

async fn until_all_confirmed(app: &App) {
    until("all calls are confirmed", async || {
        let states = "SELECT state, reason, count(*) FROM leafhopper.call GROUP BY state, reason";
        let states = app.rows(states).await;
        match states.as_slice() {
            [one] if one["state"] == "confirmed" => Ok(()),
            _ => Err(states),
        }
    })
    .await;
}
