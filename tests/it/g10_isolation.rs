//! Isolation: a leaf that is slow, down, paused, flooded or unknown delays no other leaf, and its calls wait
//! visibly.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::harness::{
    Bed,
    app::{App, Call, call},
    leaf::{Gate, Leaf},
    wait::{holds_for, until},
};

fn to(leaf: &str, key: &str) -> Call {
    call(leaf).key(key).body(json!({ "key": key }))
}

async fn until_reason(app: &App, id: i64, reason: &str) {
    until(&format!("call {id} waits with {reason}"), async || {
        let call = app.call(id).await;
        if call["state"] == "pending" && call["reason"] == reason {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
}

async fn flood(app: &App, leaf: &str, calls: usize) {
    app.execute(&format!(
        "INSERT INTO leafhopper.outbox (leaf, path) SELECT '{leaf}', '/x' FROM generate_series(1, {calls})"
    ))
    .await;
}

/// How long 20 calls took from their insert to the leaf, one after another; sorted.
async fn times_to(bed: &Bed, leaf: &str) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in 0..20 {
        let key = format!("{leaf}-{number}-{}", bed.leaf.all_requests().len());
        let began = Instant::now();
        bed.app.insert(to(leaf, &key)).await;
        let requests = bed.leaf.until_requests(&key, 1).await;
        times.push(requests[0].at.duration_since(began));
    }
    times.sort();
    times
}

/// On a busy machine both are slow; what waits for a poll, or for the other leaf that hangs, takes far longer.
fn assert_hardly_slower(alone: &[Duration], beside: &[Duration]) {
    let allowed = alone[10] * 3 + Duration::from_millis(500);
    assert!(beside[10] < allowed, "alone {alone:?}, beside {beside:?}");
    assert!(beside[19] < Duration::from_secs(10), "{beside:?}");
}

#[tokio::test]
async fn a_leaf_that_hangs_with_a_backlog_does_not_slow_another() {
    let bed = Bed::new().await;
    let kiln = Leaf::start().await;
    kiln.always().hangs();
    let config = bed
        .config("")
        .leaf("kiln", &kiln.url(), "concurrency = 4")
        .poll_interval("25s");
    let _sidecar = config.start().await;
    let alone = times_to(&bed, "leaf").await;
    flood(&bed.app, "kiln", 2000).await;
    until("its slots are taken", async || {
        match kiln.all_requests().len() {
            4 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let beside = times_to(&bed, "leaf").await;
    println!("alone {alone:?}\nbeside {beside:?}");
    assert_hardly_slower(&alone, &beside);
}

#[tokio::test]
async fn the_first_call_after_a_leaf_s_slots_are_full_does_not_wait_for_a_poll() {
    let bed = Bed::new().await;
    let kiln = Leaf::start().await;
    kiln.always().hangs();
    let config = bed
        .config("")
        .leaf("kiln", &kiln.url(), "concurrency = 4")
        .leaf("oven", &kiln.url(), "concurrency = 4")
        .poll_interval("25s");
    let _sidecar = config.start().await;
    bed.app.insert(to("leaf", "before")).await;
    bed.leaf.until_requests("before", 1).await;
    for (leaf, hang) in [("kiln", 4), ("oven", 8)] {
        flood(&bed.app, leaf, 100).await;
        until("its slots are taken", async || {
            match kiln.all_requests().len() {
                number if number == hang => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }
    let began = Instant::now();
    bed.app.insert(to("leaf", "after")).await;
    let after = bed.leaf.until_requests("after", 1).await;
    let took = after[0].at.duration_since(began);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn a_leaf_that_is_down_or_floods_does_not_slow_another() {
    let bed = Bed::new().await;
    let gone = {
        let leaf = Leaf::start().await;
        leaf.url()
    };
    let busy = Leaf::start().await;
    busy.always().takes(Duration::from_millis(20)).answers(201);
    let config = bed
        .config("")
        .leaf("gone", &gone, "concurrency = 4")
        .leaf("busy", &busy.url(), "concurrency = 4")
        .poll_interval("25s");
    let _sidecar = config.start().await;
    let alone = times_to(&bed, "leaf").await;
    flood(&bed.app, "gone", 1000).await;
    flood(&bed.app, "busy", 1000).await;
    let beside = times_to(&bed, "leaf").await;
    println!("alone {alone:?}\nbeside {beside:?}");
    assert_hardly_slower(&alone, &beside);
}

#[tokio::test]
async fn an_unknown_leaf_s_call_waits_visibly_until_an_instance_comes_that_knows_it() {
    let bed = Bed::new().await;
    let _first = bed.config("").dispatch("lease = \"2s\"").start().await;
    let new = bed.app.insert(to("new", "new")).await;
    let known = bed.app.insert(to("leaf", "known")).await;
    bed.app.until_state(known, "confirmed").await;
    until_reason(&bed.app, new, "leaf_unknown").await;
    let call = bed.app.call(new).await;
    assert_eq!(
        (&call["attempts"], &call["stuck"]),
        (&json!(0), &json!(true))
    );

    let config = bed.config("").leaf("new", &bed.leaf.url(), "");
    let mut second = config.dispatch("lease = \"2s\"").start().await;
    bed.app.until_state(new, "confirmed").await;
    // Once that one has gone, the leaf is unknown again.
    assert!(second.stop().await.success());
    let again = bed.app.insert(to("new", "again")).await;
    until_reason(&bed.app, again, "leaf_unknown").await;
}

#[tokio::test]
async fn a_paused_leaf_s_calls_wait_visibly_until_it_is_resumed() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("flying")
        .waits_before_the_effect(&gate)
        .answers(201);
    let config = bed.config("").leaf("other", &bed.leaf.url(), "");
    let sidecar = config.start().await;
    let flying = bed.app.insert(to("leaf", "flying")).await;
    gate.until_arrived(1).await;
    bed.app
        .execute("UPDATE leafhopper.leaf_control SET paused = true WHERE leaf = 'leaf'")
        .await;
    let mut waiting = Vec::new();
    for number in 0..5 {
        waiting.push(bed.app.insert(to("leaf", &format!("w-{number}"))).await);
    }
    let other = bed.app.insert(to("other", "other")).await;
    bed.app.until_state(other, "confirmed").await;
    for id in &waiting {
        until_reason(&bed.app, *id, "leaf_paused").await;
    }
    let labels = ["leaf=\"leaf\""];
    sidecar
        .until_metric("leafhopper_paused", &labels, 1.0)
        .await;
    // What was under way ends.
    gate.open();
    bed.app.until_state(flying, "confirmed").await;
    holds_for(
        Duration::from_millis(250),
        "the pause",
        async || match bed.leaf.all_requests().len() {
            2 => Ok(()),
            more => Err(more),
        },
    )
    .await;
    bed.app
        .execute("UPDATE leafhopper.leaf_control SET paused = false WHERE leaf = 'leaf'")
        .await;
    for id in waiting {
        bed.app.until_state(id, "confirmed").await;
    }
}

#[tokio::test]
async fn an_instance_that_does_not_know_a_leaf_never_fails_its_calls() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .times(1)
        .waits_before_the_answer(&gate)
        .answers(201);
    bed.leaf.honours(
        "Idempotency-Key",
        crate::harness::leaf::Remembers::Successes,
    );
    let lease = "lease = \"1s\"";
    let knows = bed
        .config("")
        .leaf(
            "new",
            &bed.leaf.url(),
            "timeout = \"6s\"\nidempotency = { header = \"Idempotency-Key\", window = \"1h\" }",
        )
        .dispatch(lease);
    let mut new = knows.start().await;
    let id = bed.app.insert(to("new", "a")).await;
    gate.until_arrived(1).await;
    new.kill();
    // Only one that does not know the leaf is left: it takes the claim away from the dead one, and no more.
    let mut old = bed.config("").dispatch(lease).start().await;
    bed.app.until_state(id, "in_doubt").await;
    holds_for(Duration::from_millis(1500), "the doubt", async || {
        let call = bed.app.call(id).await;
        if call["state"] == "in_doubt" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    assert_eq!(bed.leaf.effects("a"), 1);
    let _new = knows.start().await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.leaf.effects("a"), 1);
    assert!(old.stop().await.success());
}

#[tokio::test]
async fn a_leaf_that_is_taken_out_of_the_configuration_keeps_its_calls_waiting() {
    let bed = Bed::new().await;
    let with = bed.config("").leaf("other", &bed.leaf.url(), "");
    let sidecar = with.start().await;
    let first = bed.app.insert(to("other", "a")).await;
    bed.app.until_state(first, "confirmed").await;
    sidecar.rewrite(&bed.config(""));
    sidecar.signal(rustix::process::Signal::HUP);
    until("the leaf is gone", async || {
        let rows = bed
            .app
            .rows("SELECT 1 FROM leafhopper.instance WHERE leaves ? 'other'")
            .await;
        if rows.is_empty() { Ok(()) } else { Err(rows) }
    })
    .await;
    let second = bed.app.insert(to("other", "b")).await;
    until_reason(&bed.app, second, "leaf_unknown").await;
    sidecar.rewrite(&with);
    sidecar.signal(rustix::process::Signal::HUP);
    bed.app.until_state(second, "confirmed").await;
}

#[tokio::test]
async fn calls_of_one_key_or_credential_that_can_t_go_keep_no_other_call_waiting() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("same")
        .waits_before_the_effect(&gate)
        .answers(201);
    // A poll for each few of them would take minutes.
    let config = bed.config("concurrency = 4").poll_interval("2s");
    let _sidecar = config.start().await;
    let first = bed.app.insert(to("leaf", "same")).await;
    gate.until_arrived(1).await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path, key, body)
             SELECT 'leaf', '/things', 'same', '{\"key\": \"same\"}' FROM generate_series(1, 200);
             INSERT INTO leafhopper.outbox (leaf, path, credential)
             SELECT 'leaf', '/x', 'nobody' FROM generate_series(1, 200)",
        )
        .await;
    let behind = bed.app.insert(to("leaf", "behind")).await;
    bed.app.until_state(behind, "confirmed").await;
    gate.open();
    bed.app.until_state(first, "confirmed").await;
    until("all of the key are confirmed", async || {
        let left = bed
            .app
            .rows("SELECT count(*) FROM leafhopper.dispatch WHERE key = 'same'")
            .await;
        if left[0]["count"] == 0 {
            Ok(())
        } else {
            Err(left)
        }
    })
    .await;
    assert_eq!(bed.leaf.requests("same").len(), 1);
}
