//! Calls in doubt that a probe resolves, beside what else goes on.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Bed,
    app::{call, keyed},
    leaf::{Gate, Reply},
    wait::holds_for,
};

#[tokio::test]
async fn a_doubt_is_asked_about_although_calls_fill_every_place() {
    let bed = Bed::new().await;
    bed.leaf
        .on("/x")
        .takes(Duration::from_millis(50))
        .answers(201);
    bed.leaf.on("/things").resets();
    let _sidecar = bed
        .config("concurrency = 1\nretry = { initial = \"30ms\", max = \"60ms\" }")
        .poll_interval("2s")
        .toml("[leaf.leaf.probe]\npath = \"/effects/{{ call.key }}\"\nsettle = \"0s\"")
        .start()
        .await;
    let id = bed.app.insert(keyed("leaf", "k").set("priority", -1)).await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, 2000)",
        )
        .await;
    // The others take their place for 100 s.
    bed.app.until_state(id, "confirmed").await;
    let waiting = bed
        .app
        .rows("SELECT count(*) FROM leafhopper.dispatch WHERE state = 'pending'")
        .await;
    assert!(
        waiting[0]["count"].as_i64() > Some(0),
        "the others were done first"
    );
    bed.leaf.assert_each_effect_once(["k"]);
}

#[tokio::test]
async fn an_absence_that_was_seen_before_a_late_end_of_the_attempt_sends_nothing() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf.on("/things").does_nothing().times(1).resets();
    bed.leaf
        .on("/effects/k")
        .times(1)
        .waits_before_the_answer(&gate)
        .refuses(404);
    let _sidecar = bed
        .config("retry = { initial = \"300ms\", max = \"300ms\", jitter = 0.0 }")
        .toml("[leaf.leaf.probe]\npath = \"/effects/{{ call.key }}\"\nsettle = \"3s\"")
        .start()
        .await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "in_doubt").await;
    // Its attempt is long past, as the one of an instance that vanished.
    bed.app
        .execute("UPDATE leafhopper.dispatch SET alive_until = alive_until - interval '1 hour'")
        .await;
    gate.until_arrived(1).await;
    // That instance was frozen, and its attempt has ended just now without an answer.
    let before = tokio::time::Instant::now();
    bed.app
        .execute("UPDATE leafhopper.dispatch SET alive_until = clock_timestamp()")
        .await;
    gate.open();
    bed.app.until_state(id, "confirmed").await;
    assert!(
        before.elapsed() >= Duration::from_secs(3),
        "settle was not kept"
    );
}

#[tokio::test]
async fn a_probe_of_a_row_that_could_take_all_memory_parks_its_call() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").answers(Reply::new(500));
    let _sidecar = bed
        .config("retry = { initial = \"30ms\", max = \"60ms\" }")
        .start()
        .await;
    let probe = json!({ "path": "/{{ ([1] * 100000000)|length }}" });
    let id = bed.app.insert(keyed("leaf", "k").set("probe", probe)).await;
    let call = bed.app.until_state(id, "parked").await;
    assert_eq!(call["reason"], "template");
}

#[tokio::test]
async fn a_doubt_that_is_over_before_there_is_a_place_to_ask_about_it_keeps_none() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf.on("/things").does_nothing().resets();
    bed.leaf
        .on("/x")
        .waits_before_the_answer(&gate)
        .answers(201);
    let _sidecar = bed
        .config("concurrency = 1\nretry = { initial = \"1h\", max = \"1h\" }")
        .toml("[leaf.leaf.probe]\npath = \"/effects/{{ call.key }}\"\nsettle = \"0s\"")
        .start()
        .await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "in_doubt").await;
    bed.app.insert(call("leaf").path("/x")).await;
    gate.until_arrived(1).await;
    // Its turn comes while the only place is taken.
    bed.app
        .execute("UPDATE leafhopper.dispatch SET due_at = now() WHERE state = 'in_doubt'")
        .await;
    let asked = async || match bed.leaf.all_requests().len() {
        2 => Ok(()),
        other => Err(other),
    };
    holds_for(Duration::from_millis(500), "nothing is asked", asked).await;
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'k', 201::int, NULL)")
        .await;
    bed.app.until_state(id, "confirmed").await;
    gate.open();
    let next = bed.app.insert(call("leaf").path("/x")).await;
    bed.app.until_state(next, "confirmed").await;
}
