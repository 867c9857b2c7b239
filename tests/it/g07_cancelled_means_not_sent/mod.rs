//! Cancelled means not sent: once a batch is cancelled, none of its calls is sent any more, whenever it was
//! inserted. What is in flight runs to its end.

mod in_the_way;

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{
    Bed,
    app::{App, Call, call},
    leaf::Gate,
    wait::{holds_for, until},
};

/// Soon enough for tests, and the first answer of a leaf that says "later" is not the last.
const LINES: &str = "concurrency = 3\nretry = { initial = \"20ms\", max = \"50ms\" }";

fn thing(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

/// How many calls of a batch are in which state, with which reason.
async fn standing(app: &App, batch: Uuid) -> Value {
    let counts = app
        .rows(&format!(
            "SELECT coalesce(jsonb_object_agg(what, calls), '{{}}') AS counts FROM (
                 SELECT concat_ws(' ', state, reason) AS what, count(*) AS calls
                   FROM leafhopper.call WHERE batch_id = '{batch}' GROUP BY 1) AS counted"
        ))
        .await;
    counts[0]["counts"].clone()
}

async fn until_standing(app: &App, batch: Uuid, wanted: Value) {
    until(&format!("the batch stands at {wanted}"), async || {
        let found = standing(app, batch).await;
        if found == wanted { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test]
async fn a_failed_call_cancels_those_that_wait_and_lets_those_in_flight_end() {
    let bed = Bed::new().await;
    let (flying, bad) = (Gate::closed(), Gate::closed());
    for key in ["flying-1", "flying-2"] {
        bed.leaf
            .always()
            .key(key)
            .waits_before_the_effect(&flying)
            .answers(201);
    }
    bed.leaf
        .always()
        .key("bad")
        .waits_before_the_effect(&bad)
        .refuses(422);
    let batch = Uuid::new_v4();
    let mut in_flight = Vec::new();
    for key in ["flying-1", "flying-2"] {
        in_flight.push(bed.app.insert(thing(key).batch(batch)).await);
    }
    bed.app.insert(thing("bad").batch(batch)).await;
    for number in 0..20 {
        bed.app
            .insert(thing(&format!("waiting-{number}")).batch(batch))
            .await;
    }
    let _sidecar = bed.sidecar(LINES).await;
    flying.until_arrived(2).await;
    bad.until_arrived(1).await;

    bad.open();
    until_standing(
        &bed.app,
        batch,
        json!({ "dispatching": 2, "failed rejected": 1, "cancelled batch_cancelled": 20 }),
    )
    .await;
    flying.open();
    for id in in_flight {
        bed.app.until_state(id, "confirmed").await;
    }
    assert_eq!(bed.leaf.all_requests().len(), 3);
    until("the batch is no longer open", async || {
        let sql = format!("SELECT state FROM leafhopper.batch WHERE id = '{batch}'");
        let rows = bed.app.rows(&sql).await;
        if rows.len() == 1 && rows[0]["state"] != "open" {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_that_comes_to_a_cancelled_batch_is_never_sent() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let _sidecar = bed.sidecar(LINES).await;
    let batch = Uuid::new_v4();
    // Inserted before the failure, committed after it.
    let late = App::connect(&bed.database.url).await;
    late.execute("BEGIN").await;
    let late_call = late.insert(thing("late").batch(batch)).await;

    let bad = bed.app.insert(thing("bad").batch(batch)).await;
    bed.app.until_state(bad, "failed").await;
    let mut calls = vec![late_call];
    late.execute("COMMIT").await;
    for number in 0..5 {
        calls.push(
            bed.app
                .insert(thing(&format!("after-{number}")).batch(batch))
                .await,
        );
    }
    for call in &calls {
        // By the cancel, or by the end that the batch has come to since.
        let row = bed.app.until_state(*call, "cancelled").await;
        let reason = row["reason"].as_str().unwrap();
        assert!(["batch_cancelled", "batch_finished"].contains(&reason));
    }
    // Of a call that failed before the batch's own row says so, too.
    assert_eq!(bed.leaf.all_requests().len(), 1);
}

#[tokio::test]
async fn calls_that_keep_coming_while_the_batch_is_cancelled_are_not_sent_after_its_end_is_committed()
 {
    let bed = Bed::new().await;
    let bad = Gate::closed();
    bed.leaf
        .always()
        .key("bad")
        .waits_before_the_effect(&bad)
        .refuses(422);
    let _a = bed.sidecar("concurrency = 50").await;
    let _b = bed.sidecar("concurrency = 50").await;
    let batch = Uuid::new_v4();
    let failing = bed.app.insert(thing("bad").batch(batch)).await;
    bad.until_arrived(1).await;
    let producer = App::connect(&bed.database.url).await;
    // Until fifty were inserted behind the failure, which was committed before this saw it.
    let (mut number, mut after) = (0, 0);
    until("fifty came after the failure", async || {
        for _ in 0..50 {
            if number == 50 {
                bad.open();
            }
            let failed = bed.app.state(failing).await == "failed";
            let when = if failed { "after" } else { "before" };
            after += usize::from(failed);
            let key = format!("{when}-{number}");
            producer.insert(thing(&key).batch(batch)).await;
            number += 1;
        }
        if after >= 50 { Ok(()) } else { Err(number) }
    })
    .await;
    until("nothing of the batch is alive", async || {
        let found = standing(&bed.app, batch).await;
        let live = ["pending batch_cancelled", "pending", "dispatching"];
        if live.iter().all(|state| found.get(state).is_none()) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
    let mut late = bed.leaf.all_requests();
    late.retain(|request| request.key.starts_with("after-"));
    assert!(late.is_empty(), "sent after the cancel: {late:?}");
}

#[tokio::test]
async fn a_batch_that_allows_failures_goes_on() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, allow_failures) VALUES ('{batch}', true)"
        ))
        .await;
    for key in ["bad", "b", "c", "d", "e"] {
        bed.app.insert(thing(key).batch(batch)).await;
    }
    let _sidecar = bed.sidecar("concurrency = 1").await;
    until_standing(
        &bed.app,
        batch,
        json!({ "failed rejected": 1, "confirmed": 4 }),
    )
    .await;
}

#[tokio::test]
async fn failures_that_are_retried_cancel_nothing() {
    let bed = Bed::new().await;
    bed.leaf.always().key("b").times(2).refuses(429);
    bed.leaf.always().key("c").times(1).refuses(425);
    let batch = Uuid::new_v4();
    for key in ["a", "b", "c", "d"] {
        bed.app.insert(thing(key).batch(batch)).await;
    }
    let _sidecar = bed.sidecar(LINES).await;
    until_standing(&bed.app, batch, json!({ "confirmed": 4 })).await;
    bed.leaf.assert_each_effect_once(["a", "b", "c", "d"]);
}

#[tokio::test]
async fn an_expired_call_cancels_its_batch_whatever_its_leaf_s_state() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(LINES).await;
    bed.app
        .execute(
            "UPDATE leafhopper.leaf_control SET paused = true WHERE leaf = 'leaf';
             INSERT INTO leafhopper.outbox (leaf, path, batch_id) VALUES ('nobody', '/x', gen_random_uuid())",
        )
        .await;
    let batch = Uuid::new_v4();
    let deadline = bed
        .app
        .rows("SELECT clock_timestamp() + interval '200 milliseconds' AS at")
        .await[0]["at"]
        .clone();
    bed.app.insert(thing("paused").batch(batch)).await;
    let unknown = call("nobody").batch(batch);
    bed.app.insert(unknown.clone()).await;
    let mine = bed.app.insert(unknown.set("deadline", deadline)).await;
    bed.app.until_state(mine, "expired").await;
    until_standing(
        &bed.app,
        batch,
        json!({ "expired": 1, "cancelled batch_cancelled": 2 }),
    )
    .await;
    assert!(bed.leaf.all_requests().is_empty());
    let others = bed
        .app
        .rows("SELECT state FROM leafhopper.call WHERE leaf = 'nobody' AND state = 'pending'")
        .await;
    assert_eq!(others.len(), 1, "another batch is not touched");
}

#[tokio::test]
async fn to_cancel_one_call_or_the_batch_cancels_the_rest() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_effect(&gate)
        .answers(201);
    let _sidecar = bed.sidecar("concurrency = 2").await;
    let (one, whole) = (Uuid::new_v4(), Uuid::new_v4());
    let first = bed.app.insert(thing("one-flying").batch(one)).await;
    let second = bed.app.insert(thing("whole-flying").batch(whole)).await;
    gate.until_arrived(2).await;
    let named = bed.app.insert(thing("one-named").batch(one)).await;
    bed.app.insert(thing("one-waits").batch(one)).await;
    bed.app.insert(thing("whole-waits").batch(whole)).await;

    bed.app
        .execute(&format!(
            "SELECT leafhopper.cancel({named}, 'the order was withdrawn');
             SELECT leafhopper.cancel_batch('{whole}', 'so was this one')"
        ))
        .await;
    let expected = json!({
        "dispatching": 1, "cancelled batch_cancelled": 1, "cancelled the order was withdrawn": 1
    });
    until_standing(&bed.app, one, expected).await;
    let expected = json!({ "dispatching": 1, "cancelled batch_cancelled": 1 });
    until_standing(&bed.app, whole, expected).await;
    gate.open();
    for id in [first, second] {
        bed.app.until_state(id, "confirmed").await;
    }
    assert_eq!(bed.leaf.all_requests().len(), 2);
}

#[tokio::test]
async fn a_call_in_flight_that_is_cancelled_is_not_sent_again() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_effect(&gate)
        .refuses(429);
    let _sidecar = bed.sidecar(LINES).await;
    let batch = Uuid::new_v4();
    let id = bed.app.insert(thing("a").batch(batch)).await;
    gate.until_arrived(1).await;
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({id}, 'no more')"))
        .await;
    gate.open();
    let row = bed.app.until_state(id, "cancelled").await;
    assert_eq!(row["reason"], "no more");
    let sibling = bed.app.insert(thing("b").batch(batch)).await;
    bed.app.until_state(sibling, "cancelled").await;
    assert_eq!(bed.leaf.all_requests().len(), 1);
}

#[tokio::test]
async fn siblings_that_wait_for_whatever_are_cancelled() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("held")
        .waits_before_the_effect(&gate)
        .answers(201);
    bed.leaf.always().key("later").refuses(429);
    bed.leaf.always().key("bad").refuses(422);
    let lines = "concurrency = 8\nretry = { initial = \"1h\", max = \"1h\" }";
    let config = bed.config(lines).leaf("other", &bed.leaf.url(), "");
    let _sidecar = config.start().await;
    bed.app
        .execute("UPDATE leafhopper.leaf_control SET paused = true WHERE leaf = 'other'")
        .await;
    let batch = Uuid::new_v4();
    // The holder of a key and the head of an ordering key are not of the batch.
    let head = thing("held").set("ordering_key", "line");
    bed.app.insert(head).await;
    gate.until_arrived(1).await;
    let later = bed.app.insert(thing("later").batch(batch)).await;
    until("it is tried", async || {
        let call = bed.app.call(later).await;
        if call["reason"] == "retry" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    for waiting in [
        call("other"),
        call("nobody"),
        thing("held"),
        thing("ordered").set("ordering_key", "line"),
        thing("not before").set("not_before", "2100-01-01T00:00:00Z"),
        thing("credential").set("credential", "unknown"),
        thing("success").set("run_when", "batch_succeeded"),
    ] {
        bed.app.insert(waiting.batch(batch)).await;
    }
    for follow_up in ["batch_failed", "batch_settled"] {
        bed.app
            .insert(thing(follow_up).set("run_when", follow_up).batch(batch))
            .await;
    }
    bed.app.insert(thing("bad").batch(batch)).await;
    until_standing(
        &bed.app,
        batch,
        json!({ "failed rejected": 1, "cancelled batch_cancelled": 8, "confirmed": 2 }),
    )
    .await;
    gate.open();
    let mut sent = Vec::new();
    for request in bed.leaf.all_requests() {
        sent.push(request.key);
    }
    let ready = ["held", "later", "bad"];
    let after_its_end = ["batch_failed", "batch_settled"];
    assert_eq!(sent, [&ready[..], &after_its_end].concat());
}

#[tokio::test]
async fn follow_ups_wait_for_their_batch_visibly() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(LINES).await;
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
        ))
        .await;
    let done = bed.app.insert(thing("a").batch(batch)).await;
    let mut waiting = Vec::new();
    for phase in ["batch_succeeded", "batch_failed", "batch_settled"] {
        let follow_up = thing(phase).set("run_when", phase).batch(batch);
        waiting.push(bed.app.insert(follow_up).await);
    }
    bed.app.until_state(done, "confirmed").await;
    holds_for(Duration::from_millis(300), "the wait", async || {
        for id in &waiting {
            let call = bed.app.call(*id).await;
            if call["reason"] != "waits_for_batch" || call["stuck"] == json!(true) {
                return Err(call);
            }
        }
        Ok(())
    })
    .await;
    assert_eq!(bed.leaf.all_requests().len(), 1);
}
