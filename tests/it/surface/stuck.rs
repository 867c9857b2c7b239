//! What is stuck, by leaf and reason, and batches by what they are stuck in.

use serde_json::json;

use super::{STUCK_BATCHES, unsealed, until_metric};
use crate::harness::{
    Bed,
    app::call,
    leaf::{Gate, Leaf},
    sidecar::Config,
    wait::until,
};

#[tokio::test]
async fn what_is_stuck_is_said_to_be() {
    let bed = Bed::new().await;
    let gone = {
        let leaf = Leaf::start().await;
        leaf.url()
    };
    let config = Config::new(&bed.database.url)
        .leaf(
            "leaf",
            &gone,
            "retry = { initial = \"50ms\", max = \"50ms\" }",
        )
        .leaf("paused", &bed.leaf.url(), "")
        .leaf("customers", &bed.leaf.url(), "")
        .dispatch("lease = \"2s\"\nstuck_after = \"1s\"");
    let sidecar = config.start().await;
    bed.app
        .execute("UPDATE leafhopper.leaf_control SET paused = true WHERE leaf = 'paused'")
        .await;
    let mut ids = Vec::new();
    for leaf in ["leaf", "paused"] {
        ids.push(bed.app.insert(call(leaf)).await);
        // What waits for the end of a batch that more calls can come to is not stuck itself.
        let batch = unsealed(&bed).await;
        let follow_up = call(leaf).set("run_when", "batch_settled").batch(batch);
        bed.app.insert(follow_up).await;
    }
    // What is put off for want of a credential is no less due for that.
    let customer = call("customers").set("credential", "customer-7");
    ids.push(bed.app.insert(customer).await);
    assert_eq!(bed.app.call(ids[0]).await["stuck"], json!(false));
    // The breaker opens after five connections in a row that failed.
    let reasons = [
        ("leaf", "breaker_open"),
        ("paused", "leaf_paused"),
        ("customers", "credential_unknown"),
    ];
    for (id, (leaf, reason)) in ids.into_iter().zip(reasons) {
        until("it is stuck", async || {
            let call = bed.app.call(id).await;
            if call["stuck"] == json!(true) {
                Ok(())
            } else {
                Err(call)
            }
        })
        .await;
        let labels = [
            &format!("leaf=\"{leaf}\"") as &str,
            &format!("reason=\"{reason}\""),
        ];
        until_metric(&sidecar, "leafhopper_stuck_calls", &labels, 1.0).await;
        let age = sidecar
            .metric("leafhopper_oldest_due_age_seconds", &labels[..1])
            .await;
        // What is tried again and again is due only now and then.
        assert!(leaf != "paused" || age > 0.9, "{age}");
    }
}

/// Five batches, each stuck for another reason.
#[tokio::test]
async fn batches_that_are_stuck_are_counted_by_the_reason() {
    let bed = Bed::new().await;
    let undoing = Gate::closed();
    let undo = bed.leaf.always().method("DELETE").key("compensating");
    undo.waits_before_the_effect(&undoing).answers(204);
    let undo = bed
        .leaf
        .always()
        .method("DELETE")
        .key("teardown_incomplete");
    undo.refuses(403);
    bed.leaf.always().key("cancelling").resets();
    let settings = "in_doubt = \"park\"\n\
                    compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";
    let config = bed.config(settings).dispatch("stuck_after = \"1s\"");
    let sidecar = config.start().await;
    for reason in STUCK_BATCHES {
        let batch = unsealed(&bed).await;
        let (leaf, state) = match reason {
            "leaf_unknown" => ("gone", "confirmed"),
            "cancelling" => ("leaf", "parked"),
            _ => ("leaf", "confirmed"),
        };
        let row = call(leaf).key(reason).body(json!({ "key": reason }));
        let id = bed.app.insert(row.batch(batch)).await;
        if leaf == "gone" {
            let confirm = format!("SELECT leafhopper.confirm('gone', '{reason}', 200)");
            bed.app.execute(&confirm).await;
        }
        bed.app.until_state(id, state).await;
        if reason != "unsealed" {
            let cancel = format!("SELECT leafhopper.cancel_batch('{batch}', 'no longer wanted')");
            bed.app.execute(&cancel).await;
        }
    }
    for reason in STUCK_BATCHES {
        let labels = [&format!("reason=\"{reason}\"") as &str];
        until_metric(&sidecar, "leafhopper_stuck_batches", &labels, 1.0).await;
    }
    // One without a row is open, too.
    bed.app
        .insert(call("gone").batch(uuid::Uuid::new_v4()))
        .await;
    for (state, number) in [
        ("open", 2.0),
        ("closing", 0.0),
        ("cancelling", 1.0),
        ("compensating", 3.0),
    ] {
        let labels = [&format!("state=\"{state}\"") as &str];
        until_metric(&sidecar, "leafhopper_batches", &labels, number).await;
    }
    undoing.open();
    let compensating = ["reason=\"compensating\""];
    until_metric(&sidecar, "leafhopper_stuck_batches", &compensating, 0.0).await;
}
