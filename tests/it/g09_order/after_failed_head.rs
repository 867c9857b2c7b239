//! What becomes of those behind a head that ended without a confirmation.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{QUICK, arrivals, never_sent, step, until_behind};
use crate::harness::{Bed, app::call, leaf::Gate, wait::holds_for};

const HOLD: &str = "after_failed_head = \"hold\"\nretry = { initial = \"30ms\", max = \"60ms\" }";

#[tokio::test]
async fn a_head_that_fails_lets_the_next_one_go() {
    let bed = Bed::new().await;
    bed.leaf.always().key("a").refuses(422);
    let _sidecar = bed.sidecar(QUICK).await;
    let head = bed.app.insert(step("line", "a")).await;
    let next = bed.app.insert(step("line", "b")).await;
    bed.app.until_state(head, "failed").await;
    bed.app.until_state(next, "confirmed").await;
}

#[tokio::test]
async fn a_head_that_is_cancelled_or_expires_lets_the_next_one_go() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    let waits = json!("2100-01-01T00:00:00Z");
    let soon = bed
        .app
        .rows("SELECT clock_timestamp() + interval '200 milliseconds' AS at")
        .await[0]["at"]
        .clone();
    let cancelled = bed
        .app
        .insert(step("c", "c-1").set("not_before", waits.clone()))
        .await;
    let after_cancelled = bed.app.insert(step("c", "c-2")).await;
    let expires = bed
        .app
        .insert(
            step("e", "e-1")
                .set("not_before", waits)
                .set("deadline", soon),
        )
        .await;
    let after_expired = bed.app.insert(step("e", "e-2")).await;
    until_behind(&bed.app, after_cancelled, cancelled).await;
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({cancelled}, 'no more')"))
        .await;
    bed.app.until_state(after_cancelled, "confirmed").await;
    bed.app.until_state(expires, "expired").await;
    bed.app.until_state(after_expired, "confirmed").await;
}

#[tokio::test]
async fn where_it_is_said_so_a_failed_head_holds_the_key_until_it_is_retried() {
    let bed = Bed::new().await;
    bed.leaf.always().key("a").times(1).refuses(422);
    let _sidecar = bed.sidecar(HOLD).await;
    let head = bed.app.insert(step("line", "a")).await;
    let next = bed.app.insert(step("line", "b")).await;
    bed.app.until_state(head, "failed").await;
    until_behind(&bed.app, next, head).await;
    never_sent(&bed, "b").await;
    // One that comes later waits, too; another key does not.
    let later = bed.app.insert(step("line", "c")).await;
    let other = bed.app.insert(step("elsewhere", "d")).await;
    bed.app.until_state(other, "confirmed").await;
    until_behind(&bed.app, later, head).await;

    bed.app
        .execute(&format!("SELECT leafhopper.retry({head}, 'mended')"))
        .await;
    for id in [head, next, later] {
        bed.app.until_state(id, "confirmed").await;
    }
    assert_eq!(arrivals(&bed), ["a", "d", "a", "b", "c"]);
}

#[tokio::test]
async fn a_held_key_that_is_released_goes_on_behind_its_failed_head() {
    let bed = Bed::new().await;
    bed.leaf.always().key("a").refuses(422);
    let _sidecar = bed.sidecar(HOLD).await;
    let head = bed.app.insert(step("line", "a")).await;
    let next = bed.app.insert(step("line", "b")).await;
    bed.app.until_state(head, "failed").await;
    until_behind(&bed.app, next, head).await;
    bed.app
        .execute(&format!(
            "DELETE FROM leafhopper.order_hold WHERE head = {head}"
        ))
        .await;
    bed.app.until_state(next, "confirmed").await;
}

#[tokio::test]
async fn every_end_of_a_head_without_a_confirmation_holds_the_key() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let _sidecar = bed.sidecar(HOLD).await;
    let waits = json!("2100-01-01T00:00:00Z");
    let soon = bed
        .app
        .rows("SELECT clock_timestamp() + interval '200 milliseconds' AS at")
        .await[0]["at"]
        .clone();
    let batch = Uuid::new_v4();
    let heads = [
        step("cancelled", "1"),
        step("expired", "2").set("deadline", soon),
        step("with its batch", "3").batch(batch),
    ];
    let mut lines = Vec::new();
    for head in heads {
        let next = head.clone().key("next").set("batch_id", Value::Null);
        let next = next.set("deadline", Value::Null);
        let head = bed.app.insert(head.set("not_before", waits.clone())).await;
        let next = bed.app.insert(next).await;
        until_behind(&bed.app, next, head).await;
        lines.push((head, next));
    }
    bed.app
        .execute(&format!(
            "SELECT leafhopper.cancel({}, 'no more')",
            lines[0].0
        ))
        .await;
    let bad = call("leaf").key("bad").body(json!({ "key": "bad" }));
    bed.app.insert(bad.batch(batch)).await;
    for ((head, next), state) in lines.into_iter().zip(["cancelled", "expired", "cancelled"]) {
        bed.app.until_state(head, state).await;
        holds_for(Duration::from_millis(250), "the hold", async || {
            let call = bed.app.call(next).await;
            if call["reason"] == "waits_for_order" && call["waits_for"] == json!(head) {
                Ok(())
            } else {
                Err(call)
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_behind_the_head_that_is_cancelled_holds_nothing() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("a")
        .waits_before_the_effect(&gate)
        .answers(201);
    let _sidecar = bed.sidecar(HOLD).await;
    let head = bed.app.insert(step("line", "a")).await;
    gate.until_arrived(1).await;
    let second = bed.app.insert(step("line", "b")).await;
    let third = bed.app.insert(step("line", "c")).await;
    until_behind(&bed.app, third, head).await;
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({second}, 'no more')"))
        .await;
    gate.open();
    bed.app.until_state(third, "confirmed").await;
    assert_eq!(arrivals(&bed), ["a", "c"]);
}
