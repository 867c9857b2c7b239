//! G6: every committed call reaches a final state or is visible as waiting, whatever dies in between.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use tokio::time::Instant;

use crate::harness::{
    Bed,
    app::{Call, call},
    leaf::{Gate, Remembers},
    wait::{holds_for, until, until_within},
};

const LEASE: &str = "lease = \"1s\"";

/// A dead instance's calls wait for the end of the time limit, so it is short; and longer than a busy machine stalls.
const KEYED: &str = "timeout = \"5s\"\n\
    retry = { initial = \"50ms\", max = \"50ms\", jitter = 0.0, max_attempts = 50 }\n\
    idempotency = { header = \"Idempotency-Key\", window = \"1h\" }";

fn named(leaf: &str, key: &str) -> Call {
    call(leaf).key(key).body(json!({ "key": key }))
}

#[tokio::test]
async fn what_a_killed_instance_had_under_way_goes_on_or_is_parked() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let gate = Gate::closed();
    // Executed before the kill, and not.
    bed.leaf
        .always()
        .times(4)
        .waits_before_the_answer(&gate)
        .answers(201);
    let config = bed
        .config(KEYED)
        .leaf("unkeyed", &bed.leaf.url(), "timeout = \"5s\"")
        .dispatch(LEASE);
    let mut first = config.start().await;
    let mut ids = BTreeMap::new();
    for (leaf, key) in [
        ("leaf", "k1"),
        ("leaf", "k2"),
        ("unkeyed", "u1"),
        ("unkeyed", "u2"),
    ] {
        ids.insert(key, bed.app.insert(named(leaf, key)).await);
    }
    gate.until_arrived(4).await;
    let second = config.start().await;
    first.kill();
    let killed = Instant::now();

    for key in ["k1", "k2"] {
        let row = bed.app.until_state(ids[key], "confirmed").await;
        assert_eq!(row["attempts"], 2);
    }
    for key in ["u1", "u2"] {
        let row = bed.app.until_state(ids[key], "parked").await;
        assert_eq!(
            (&row["reason"], &row["attempts"]),
            (&json!("no_probe"), &json!(1))
        );
        assert!(
            row["last_error"].as_str().unwrap().contains("vanished"),
            "{row}"
        );
        assert_eq!(bed.leaf.requests(key).len(), 1);
    }
    // A lease, three looks of the observer and its sweeps; the requests could last live as long.
    assert!(
        killed.elapsed() < Duration::from_secs(16),
        "{:?}",
        killed.elapsed()
    );
    bed.leaf.assert_each_effect_once(["k1", "k2", "u1", "u2"]);
    // The takeover shows.
    for (name, labels, number) in [
        (
            "leafhopper_attempts_total",
            &["class=\"in_doubt\""] as &[&str],
            4.0,
        ),
        ("leafhopper_instances", &[], 1.0),
        ("leafhopper_calls", &["state=\"dispatching\""], 0.0),
    ] {
        second.until_metric(name, labels, number).await;
    }
}

#[tokio::test]
async fn after_all_instances_were_killed_a_new_one_goes_on() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let gate = Gate::closed();
    bed.leaf
        .always()
        .times(6)
        .waits_before_the_effect(&gate)
        .answers(201);
    let config = bed
        .config(&format!("{KEYED}\nconcurrency = 6"))
        .dispatch(LEASE);
    let mut sidecars = [config.start().await, config.start().await];
    let mut ids = Vec::new();
    for number in 0..12 {
        ids.push(bed.app.insert(named("leaf", &format!("k{number}"))).await);
    }
    gate.until_arrived(6).await;
    for sidecar in &mut sidecars {
        sidecar.kill();
    }
    let _fresh = config.start().await;
    for id in ids {
        bed.app.until_state(id, "confirmed").await;
    }
    bed.leaf
        .assert_each_effect_once((0..12).map(|number| format!("k{number}")));
}

#[tokio::test]
async fn a_call_that_goes_down_with_its_instance_again_and_again_is_parked() {
    let bed = Bed::new().await;
    let config = bed.config(KEYED).dispatch(LEASE);
    let mut sidecar = config.start().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("deadly")
        .waits_before_the_effect(&gate)
        .answers(201);
    let id = bed.app.insert(named("leaf", "deadly")).await;
    let crashes = async || {
        let sql = format!("SELECT crashes FROM leafhopper.dispatch WHERE call_id = {id}");
        bed.app.rows(&sql).await[0]["crashes"].as_u64().unwrap()
    };
    for deaths in 1..=3 {
        until("it is under way", async || {
            let state = bed.app.state(id).await;
            if state == "dispatching" {
                Ok(())
            } else {
                Err(state)
            }
        })
        .await;
        sidecar.kill();
        sidecar.restart().await;
        until("the crash is counted", async || match crashes().await {
            counted if counted == deaths => Ok(()),
            other => Err(other),
        })
        .await;
    }
    let row = bed.app.until_state(id, "parked").await;
    assert_eq!(
        (&row["reason"], &row["attempts"]),
        (&json!("crash_suspect"), &json!(3))
    );
    // Others keep moving, and a person's word moves this one.
    let other = bed.app.insert(named("leaf", "harmless")).await;
    bed.app.until_state(other, "confirmed").await;
    gate.open();
    bed.app
        .execute(&format!(
            "SELECT leafhopper.resolve_not_executed({id}, 'mended')"
        ))
        .await;
    bed.app.until_state(id, "confirmed").await;
}

#[tokio::test]
async fn an_instance_that_does_not_know_the_leaf_leaves_its_calls_in_doubt_to_one_that_does() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .times(1)
        .waits_before_the_effect(&gate)
        .answers(201);
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let knows = bed.config(KEYED).dispatch(LEASE);
    let other = crate::harness::sidecar::Config::new(&bed.database.url);
    let other = other
        .leaf("other", &bed.leaf.url(), "timeout = \"1s\"")
        .dispatch(LEASE);
    let (mut knowing, _unknowing) = tokio::join!(knows.start(), other.start());
    let id = bed.app.insert(named("leaf", "k")).await;
    gate.until_arrived(1).await;
    knowing.kill();
    bed.app.until_state(id, "in_doubt").await;
    holds_for(
        Duration::from_millis(1500),
        "it stays in doubt",
        async || {
            let state = bed.app.state(id).await;
            if state == "in_doubt" {
                Ok(())
            } else {
                Err(state)
            }
        },
    )
    .await;
    knowing.restart().await;
    bed.app.until_state(id, "confirmed").await;
    bed.leaf.assert_each_effect_once(["k"]);
}

#[tokio::test]
async fn what_was_rolled_back_is_never_sent() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    bed.app.execute("BEGIN").await;
    bed.app.insert(named("leaf", "rolled back")).await;
    bed.app.execute("ROLLBACK").await;
    let id = bed.app.insert(named("leaf", "committed")).await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.leaf.all_requests().len(), 1);
}

#[tokio::test]
async fn twenty_thousand_calls_through_two_instances_have_one_effect_each() {
    const CALLS: usize = 20_000;
    let bed = Bed::new().await;
    let config = bed.config("concurrency = 256");
    let _sidecars = tokio::join!(config.start(), config.start());
    for first in (1..=CALLS).step_by(1_000) {
        let last = first + 999;
        let sql = format!(
            "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
             SELECT 'leaf', 'k' || n, '/things', jsonb_build_object('key', 'k' || n) \
               FROM generate_series({first}, {last}) n"
        );
        bed.app.execute(&sql).await;
    }
    until_within(
        Duration::from_secs(180),
        "nothing waits any more",
        async || {
            // Cheap, since it is asked a hundred times a second.
            let sql = "SELECT call_id, state FROM leafhopper.dispatch LIMIT 1";
            let waiting = bed.app.rows(sql).await;
            if waiting.is_empty() {
                Ok(())
            } else {
                Err(waiting)
            }
        },
    )
    .await;
    bed.leaf
        .assert_each_effect_once((1..=CALLS).map(|number| format!("k{number}")));
    assert_eq!(bed.leaf.all_requests().len(), CALLS);
    let left = "SELECT (SELECT count(*) FROM leafhopper.dispatch) AS live, \
                       (SELECT count(*) FROM leafhopper.finished) AS finished, \
                       (SELECT count(*) FROM leafhopper.attempt) AS attempts, \
                       (SELECT count(*) FROM leafhopper.call WHERE state = 'confirmed') AS confirmed";
    let expected = json!({"live": 0, "finished": 0, "attempts": 0, "confirmed": CALLS});
    assert_eq!(bed.app.rows(left).await, [expected]);
}
