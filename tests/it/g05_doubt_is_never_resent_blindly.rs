//! G5: after an attempt that may have been executed, nothing that could change the leaf is sent for that key
//! unless the leaf honours the same key, the method is idempotent, or somebody says what is true.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{Call, call},
    leaf::{Gate, Remembers, Reply},
    wait::{holds_for, until},
};

/// Quick, with exact delays, and a time limit that a stalled machine keeps to.
const QUICK: &str = "timeout = \"10s\"\nretry = { initial = \"50ms\", max = \"50ms\", jitter = 0.0, max_attempts = 3 }";

/// A leaf that honours keys.
fn keyed(lines: &str) -> String {
    format!("{QUICK}\nidempotency = {{ header = \"Idempotency-Key\", window = \"1h\"{lines} }}")
}

fn named(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

fn deletes(key: &str) -> Call {
    call("leaf")
        .key(key)
        .method("DELETE")
        .path(&format!("/effects/{key}"))
}

/// Nothing more is sent for the key than this many requests.
async fn stays_at(bed: &Bed, key: &str, requests: usize) {
    let what = format!("{requests} requests for {key}");
    holds_for(Duration::from_millis(700), &what, async || {
        let sent = bed.leaf.requests(key).len();
        if sent == requests { Ok(()) } else { Err(sent) }
    })
    .await;
}

async fn classes(bed: &Bed, id: i64) -> Vec<String> {
    let attempts = bed.app.attempts(id).await;
    let class = |attempt: &Value| attempt["class"].as_str().unwrap().to_owned();
    attempts.iter().map(class).collect()
}

/// The idempotency header of each request.
fn keys_sent(bed: &Bed, key: &str) -> Vec<Option<String>> {
    let requests = bed.leaf.requests(key);
    requests
        .iter()
        .map(|request| request.header("idempotency-key").map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn without_a_key_a_post_in_doubt_is_parked_and_never_sent_again() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    bed.leaf.always().key("lost").resets();
    bed.leaf.always().key("unexecuted").does_nothing().resets();
    for (key, effects) in [("lost", 1), ("unexecuted", 0)] {
        let id = bed.app.insert(named(key)).await;
        let row = bed.app.until_state(id, "parked").await;
        assert_eq!(
            (&row["reason"], &row["stuck"]),
            (&json!("no_probe"), &json!(true))
        );
        assert!(row["in_doubt_since"].is_string());
        assert_eq!(classes(&bed, id).await, ["in_doubt"]);
        // Another call of the same effect waits behind it.
        let second = bed.app.insert(named(key)).await;
        until("it waits", async || {
            let waiting = bed.app.call(second).await;
            let for_the_first = waiting["reason"] == "waits_for_key" && waiting["waits_for"] == id;
            if for_the_first { Ok(()) } else { Err(waiting) }
        })
        .await;
        stays_at(&bed, key, 1).await;
        assert_eq!(bed.leaf.effects(key), effects);
        assert_eq!(
            keys_sent(&bed, key),
            [None],
            "a leaf without the table gets no header"
        );
    }
}

#[tokio::test]
async fn the_same_key_goes_with_each_attempt_as_the_leaf_wants_it_written() {
    for (format, line, written) in [
        ("raw", ", format = \"raw\"", "a\"b:1"),
        ("quoted", ", format = \"quoted\"", "\"a\\\"b:1\""),
    ] {
        let bed = Bed::new().await;
        bed.leaf.honours("Idempotency-Key", Remembers::Successes);
        bed.leaf.always().times(2).resets();
        let _sidecar = bed.sidecar(&keyed(line)).await;
        let id = bed.app.insert(named("a\"b:1")).await;
        let row = bed.app.until_state(id, "confirmed").await;
        assert_eq!(row["attempts"], 3, "{format}");
        assert_eq!(classes(&bed, id).await, ["in_doubt", "in_doubt"]);
        assert_eq!(keys_sent(&bed, "a\"b:1"), vec![Some(written.to_owned()); 3]);
        bed.leaf.assert_each_effect_once(["a\"b:1"]);
        assert!(row["in_doubt_since"].is_null());
    }
}

#[tokio::test]
async fn an_idempotent_method_is_its_own_question() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    for method in ["PUT", "DELETE", "GET", "HEAD"] {
        bed.leaf.always().key(method).times(1).resets();
        let id = bed.app.insert(named(method).method(method)).await;
        bed.app.until_state(id, "confirmed").await;
        assert_eq!(bed.leaf.requests(method).len(), 2, "{method}");
    }
    for method in ["POST", "PATCH"] {
        bed.leaf.always().key(method).times(1).resets();
        let id = bed.app.insert(named(method).method(method)).await;
        bed.app.until_state(id, "parked").await;
        assert_eq!(bed.leaf.requests(method).len(), 1, "{method}");
    }
}

#[tokio::test]
async fn a_leaf_that_is_told_to_park_parks_whatever_could_be_sent_again() {
    let bed = Bed::new().await;
    let _sidecar = bed
        .sidecar(&format!("{}\nin_doubt = \"park\"", keyed("")))
        .await;
    bed.leaf.always().resets();
    for method in ["POST", "PUT", "DELETE", "GET"] {
        let id = bed.app.insert(named(method).method(method)).await;
        assert_eq!(
            bed.app.until_state(id, "parked").await["reason"],
            "no_probe"
        );
        assert_eq!(bed.leaf.requests(method).len(), 1, "{method}");
    }
}

#[tokio::test]
async fn a_key_that_the_leaf_has_forgotten_is_not_used_again() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let _sidecar = bed.sidecar(&keyed("")).await;
    let gate = Gate::closed();
    bed.leaf.always().waits_before_the_answer(&gate).resets();
    bed.leaf.always().times(1).resets();
    let id = bed.app.insert(named("a")).await;
    gate.until_arrived(1).await;
    // A second resend would end after the window, which counts from the first claim.
    bed.app
        .execute("UPDATE leafhopper.dispatch SET first_claimed_at = first_claimed_at - interval '1 hour'")
        .await;
    gate.open();
    let row = bed.app.until_state(id, "parked").await;
    assert_eq!(row["reason"], "key_expired");
    assert_eq!(bed.leaf.requests("a").len(), 2);
    stays_at(&bed, "a", 2).await;
}

#[tokio::test]
async fn attempts_used_up_in_doubt_are_parked_and_not_failed() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(&keyed("")).await;
    bed.leaf.always().key("always").resets();
    // The last answer is a certain no, and says nothing of the attempt before.
    bed.leaf.always().key("then 425").refuses(425);
    bed.leaf.always().key("then 425").times(1).resets();
    for key in ["always", "then 425"] {
        let id = bed.app.insert(named(key)).await;
        let row = bed.app.until_state(id, "parked").await;
        assert_eq!(
            (&row["reason"], &row["attempts"]),
            (&json!("attempts_exhausted"), &json!(3)),
            "{key}"
        );
        assert_eq!(bed.leaf.requests(key).len(), 3, "{key}");
    }
}

#[tokio::test]
async fn an_attempt_that_was_not_executed_does_not_end_the_doubt_of_the_one_before() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(&keyed("")).await;
    bed.leaf
        .always()
        .key("busy")
        .refuses(Reply::new(429).header("retry-after", "0"));
    bed.leaf
        .always()
        .key("busy")
        .times(1)
        .does_nothing()
        .resets();
    let id = bed.app.insert(named("busy")).await;
    bed.leaf.until_requests("busy", 4).await;
    let row = until("the doubt shows while the leaf is busy", async || {
        let row = bed.app.call(id).await;
        let doubt = row["in_doubt_since"].is_string();
        if doubt && row["state"] == "in_doubt" && row["last_status"] == 429 {
            Ok(row)
        } else {
            Err(row)
        }
    })
    .await;
    assert_eq!(row["attempts"], 1, "429 spends nothing");
    bed.leaf.behaves();
    bed.app.until_state(id, "confirmed").await;
    bed.leaf.assert_each_effect_once(["busy"]);
}

#[tokio::test]
async fn a_refusal_answers_an_earlier_attempt_only_under_its_key() {
    let plain = Bed::new().await;
    let keyed_bed = Bed::new().await;
    let sidecars = (
        plain.sidecar(QUICK).await,
        keyed_bed.sidecar(&keyed("")).await,
    );
    for (bed, state, reason) in [
        (&plain, "parked", "no_probe"),
        (&keyed_bed, "failed", "rejected"),
    ] {
        bed.leaf.has_already("gone");
        // The first DELETE works and its answer is lost, so the second finds nothing.
        bed.leaf
            .always()
            .key("gone")
            .method("DELETE")
            .times(1)
            .resets();
        let id = bed.app.insert(deletes("gone")).await;
        let row = bed.app.until_state(id, state).await;
        assert_eq!(
            (&row["reason"], &row["last_status"]),
            (&json!(reason), &json!(404))
        );
        assert_eq!(classes(bed, id).await, ["in_doubt", "failed"]);
        assert_eq!(bed.leaf.standing("gone"), 0);
    }
    // Without a doubt, a 404 is a plain no.
    let id = plain.app.insert(deletes("never-there")).await;
    assert_eq!(
        plain.app.until_state(id, "failed").await["reason"],
        "rejected"
    );
    // Of what changes nothing, the last answer is the answer.
    plain.leaf.always().key("read").refuses(404);
    plain.leaf.always().key("read").times(1).resets();
    let id = plain.app.insert(named("read").method("GET")).await;
    assert_eq!(
        plain.app.until_state(id, "failed").await["reason"],
        "rejected"
    );
    drop(sidecars);
}

/// A leaf that honours keys, with the next attempt so far away.
fn later(wait: &str) -> String {
    keyed("").replace("50ms", wait)
}

#[tokio::test]
async fn past_its_deadline_a_doubt_is_parked_and_not_sent_again() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(&later("6s")).await;
    bed.leaf.always().key("late").resets();
    let soon = "SELECT to_jsonb(clock_timestamp() + interval '5 s') AS soon";
    let deadline = bed.app.rows(soon).await[0]["soon"].clone();
    let id = bed
        .app
        .insert(named("late").set("deadline", deadline))
        .await;
    let row = bed.app.until_state(id, "parked").await;
    assert_eq!(row["reason"], "no_probe");
    assert_eq!(classes(&bed, id).await, ["in_doubt"]);
    assert_eq!(bed.leaf.requests("late").len(), 1);
    stays_at(&bed, "late", 1).await;
}

#[tokio::test]
async fn a_cancelled_doubt_is_not_sent_again() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(&later("1h")).await;
    bed.leaf.always().key("unwanted").resets();
    let id = bed.app.insert(named("unwanted")).await;
    bed.app.until_state(id, "in_doubt").await;
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({id}, 'unwanted')"))
        .await;
    let row = bed.app.until_state(id, "parked").await;
    assert_eq!(row["reason"], "no_probe");
    stays_at(&bed, "unwanted", 1).await;
    // It waits for what is true, and is never sent.
    bed.app
        .execute(&format!(
            "SELECT leafhopper.resolve_not_executed({id}, 'looked')"
        ))
        .await;
    assert_eq!(bed.app.state(id).await, "cancelled");
    stays_at(&bed, "unwanted", 1).await;
}

#[tokio::test]
async fn what_is_cancelled_while_its_request_is_under_way_ends_as_the_leaf_says() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(&keyed("")).await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("done")
        .waits_before_the_answer(&gate)
        .answers(201);
    bed.leaf
        .always()
        .key("lost")
        .waits_before_the_answer(&gate)
        .resets();
    bed.leaf
        .always()
        .key("undone")
        .waits_before_the_answer(&gate)
        .refuses(429);
    let mut ids = Vec::new();
    for key in ["done", "lost", "undone"] {
        ids.push(bed.app.insert(named(key)).await);
    }
    gate.until_arrived(3).await;
    for id in &ids {
        bed.app
            .execute(&format!("SELECT leafhopper.cancel({id}, 'unwanted')"))
            .await;
    }
    gate.open();
    bed.app.until_state(ids[0], "confirmed").await;
    assert_eq!(
        bed.app.until_state(ids[1], "parked").await["reason"],
        "no_probe"
    );
    assert_eq!(
        bed.app.until_state(ids[2], "cancelled").await["reason"],
        "unwanted"
    );
    for key in ["done", "lost", "undone"] {
        stays_at(&bed, key, 1).await;
    }
}

#[tokio::test]
async fn a_word_of_the_app_ends_a_doubt() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    bed.leaf.always().times(1).resets();
    let id = bed.app.insert(named("asked")).await;
    bed.app.until_state(id, "parked").await;
    let sql = "SELECT leafhopper.confirm('leaf', 'asked', 200, '{\"id\": 7}')";
    bed.app.execute(sql).await;
    assert_eq!(bed.app.state(id).await, "confirmed");
    let again = bed.app.insert(named("asked")).await;
    bed.app.until_state(again, "confirmed").await;
    assert_eq!(
        bed.leaf.requests("asked").len(),
        1,
        "what stands is not sent"
    );

    bed.leaf.always().times(1).does_nothing().resets();
    let id = bed.app.insert(named("redone")).await;
    bed.app.until_state(id, "parked").await;
    bed.app
        .execute(&format!(
            "SELECT leafhopper.resolve_not_executed({id}, 'looked')"
        ))
        .await;
    bed.app.until_state(id, "confirmed").await;
    bed.leaf.assert_each_effect_once(["redone"]);
}
