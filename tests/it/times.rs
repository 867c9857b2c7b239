//! The times and counts that start, delay and end a call: when it may go, its deadline, how long and how
//! often it is tried, and what `Retry-After` adds.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{
    Bed,
    app::{App, Call, call},
    leaf::{Gate, Reply},
    wait::holds_for,
};

fn thing(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

async fn in_a_while(app: &App, milliseconds: u32) -> Value {
    let sql = format!("SELECT clock_timestamp() + {milliseconds} * interval '1 ms' AS at");
    app.rows(&sql).await[0]["at"].clone()
}

#[tokio::test]
async fn a_call_is_not_sent_before_its_time_and_soon_after() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let began = Instant::now();
    let at = in_a_while(&bed.app, 500).await;
    let id = bed.app.insert(thing("a").set("not_before", at)).await;
    let past = thing("b").set("not_before", "-infinity");
    let past = bed.app.insert(past.set("deadline", "infinity")).await;
    bed.app.until_state(past, "confirmed").await;
    bed.app.until_state(id, "confirmed").await;
    let sent = bed.leaf.requests("a")[0].at.duration_since(began);
    assert!(sent > Duration::from_millis(495), "{sent:?}");
    assert!(sent < Duration::from_secs(10), "{sent:?}");
}

#[tokio::test]
async fn a_deadline_ends_a_call_at_its_time_whatever_it_waits_for() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf.always().key("late").refuses(429);
    bed.leaf
        .always()
        .key("held")
        .waits_before_the_effect(&gate)
        .answers(201);
    let config = bed
        .config("retry = { initial = \"1h\", max = \"1h\" }")
        .leaf("paused", &bed.leaf.url(), "");
    let _sidecar = config.start().await;
    bed.app
        .execute("UPDATE leafhopper.leaf_control SET paused = true WHERE leaf = 'paused'")
        .await;
    let holder = bed.app.insert(thing("held").set("ordering_key", "o")).await;
    gate.until_arrived(1).await;
    let at = in_a_while(&bed.app, 6000).await;
    let mut ids = Vec::new();
    for waiting in [
        call("nobody"),
        call("paused"),
        thing("late"),
        thing("held"),
        thing("ordered").set("ordering_key", "o"),
        thing("credential").set("credential", "unknown"),
        thing("not yet").set("not_before", "2100-01-01T00:00:00Z"),
    ] {
        ids.push(bed.app.insert(waiting.set("deadline", at.clone())).await);
    }
    holds_for(Duration::from_millis(300), "that they wait", async || {
        let gone = bed
            .app
            .rows("SELECT * FROM leafhopper.call WHERE state = 'expired'")
            .await;
        if gone.is_empty() { Ok(()) } else { Err(gone) }
    })
    .await;
    for id in ids {
        let call = bed.app.until_state(id, "expired").await;
        assert_eq!(call["stuck"], json!(false));
    }
    // What it says is when its transaction began.
    let late = bed
        .app
        .rows(&format!(
            "SELECT max(finished_at) - {} AS late,
                    max(finished_at) > {0} + interval '10 s' OR min(finished_at) < {0} - interval '50 ms' AS wrong
               FROM leafhopper.finished",
            format_args!("'{}'::timestamptz", at.as_str().unwrap())
        ))
        .await;
    assert_eq!(late[0]["wrong"], json!(false), "{late:?}");
    gate.open();
    bed.app.until_state(holder, "confirmed").await;
    assert_eq!(bed.leaf.all_requests().len(), 2);
}

#[tokio::test]
async fn a_deadline_that_passed_while_no_sidecar_ran_ends_its_call_unsent() {
    let bed = Bed::new().await;
    let at = in_a_while(&bed.app, 0).await;
    let batch = uuid::Uuid::new_v4();
    let late = bed
        .app
        .insert(thing("a").set("deadline", at).batch(batch))
        .await;
    let sibling = bed.app.insert(call("nobody").batch(batch)).await;
    let _sidecar = bed.sidecar("").await;
    bed.app.until_state(late, "expired").await;
    let sibling = bed.app.until_state(sibling, "cancelled").await;
    assert_eq!(sibling["reason"], "batch_cancelled");
    assert!(bed.leaf.all_requests().is_empty());
}

#[tokio::test]
async fn what_was_tried_for_too_long_is_given_up() {
    let bed = Bed::new().await;
    bed.leaf.always().refuses(429);
    let _sidecar = bed
        .sidecar("retry = { initial = \"20ms\", max = \"40ms\", give_up_after = \"5s\" }")
        .await;
    let id = bed.app.insert(thing("a")).await;
    let call = bed.app.until_state(id, "failed").await;
    assert_eq!(
        (&call["reason"], &call["attempts"], &call["last_status"]),
        (&json!("gave_up"), &json!(0), &json!(429))
    );
    let tried = bed.leaf.requests("a").len();
    assert!(tried > 1, "{tried}");
    assert_eq!(bed.app.attempts(id).await.len(), tried);
}

#[tokio::test]
async fn attempts_are_counted_to_their_limit_and_no_further() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .does_nothing()
        .answers(Reply::new(503).header("retry-after", "0"));
    let _sidecar = bed
        .sidecar("retry = { initial = \"10ms\", max = \"20ms\", max_attempts = 3 }")
        .await;
    for (limit, expected) in [(Some(1), 1), (Some(2), 2), (None, 3), (Some(4), 4)] {
        let key = format!("limit-{expected}");
        let id = bed.app.insert(thing(&key).set("max_attempts", limit)).await;
        let call = bed.app.until_state(id, "failed").await;
        assert_eq!(
            (&call["reason"], &call["attempts"]),
            (&json!("attempts_exhausted"), &json!(expected))
        );
        assert_eq!(bed.leaf.requests(&key).len(), expected);
        let numbers: Vec<Value> = bed
            .app
            .attempts(id)
            .await
            .iter()
            .map(|attempt| attempt["attempt"].clone())
            .collect();
        assert_eq!(json!(numbers), json!((1..=expected).collect::<Vec<_>>()));
    }
}

#[tokio::test]
async fn retry_after_is_a_lower_bound_and_nonsense_in_it_is_none() {
    let bed = Bed::new().await;
    let reply = |value: &str| Reply::new(429).header("retry-after", value);
    for (key, value) in [
        ("second", "1"),
        ("negative", "-5"),
        ("text", "abc"),
        ("past", "Wed, 21 Oct 2015 07:28:00 GMT"),
        ("huge", "18446744073709551616"),
    ] {
        bed.leaf.always().key(key).times(1).refuses(reply(value));
    }
    let _sidecar = bed
        .sidecar("retry = { initial = \"20ms\", max = \"40ms\", retry_after_max = \"2s\" }")
        .await;
    let mut ids = Vec::new();
    for key in ["negative", "text", "past", "second", "huge"] {
        ids.push((key, bed.app.insert(thing(key)).await));
    }
    for (key, id) in ids {
        bed.app.until_state(id, "confirmed").await;
        let sent = bed.leaf.requests(key);
        let gap = sent[1].at.duration_since(sent[0].at);
        let least = if key == "second" { 950 } else { 0 };
        assert!(gap >= Duration::from_millis(least), "{key}: {gap:?}");
        assert!(gap < Duration::from_secs(10), "{key}: {gap:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_never_due_can_be_looked_at() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let id = bed
        .app
        .insert_values("not_before", "'infinity'")
        .await
        .to_string();
    for arguments in [&["show", &id][..], &["calls"], &["show", &id, "--json"]] {
        let output = sidecar.command(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {output:#?}");
    }
    assert!(sidecar.metric("leafhopper_calls", &[]).await > 0.9);
    let output = sidecar.command(&["cancel", &id, "--reason", "never"]).await;
    assert!(output.status.success(), "{output:#?}");
}

#[tokio::test]
async fn a_call_with_a_large_body_is_not_sent_with_what_the_wait_for_room_left_of_its_time() {
    let bed = Bed::new().await;
    bed.leaf.always().takes(Duration::from_secs(8)).answers(201);
    // Enough for one after a stall, and less than both take.
    let lines = "concurrency = 2\nbody_memory = \"1MiB\"\ntimeout = \"15s\"\nin_doubt = \"park\"";
    let _sidecar = bed.sidecar(lines).await;
    // Of text that can't be compressed, and together too large for the leaf's memory.
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path, body)
             SELECT 'leaf', '/things', to_jsonb(b.body)
               FROM generate_series(1, 2) AS c,
                    (SELECT string_agg(md5(n::text), '') AS body FROM generate_series(1, 20000) AS n) AS b",
        )
        .await;
    bed.app.until_all_confirmed(2).await;
    assert_eq!(bed.leaf.all_requests().len(), 2, "each was sent once");
}
