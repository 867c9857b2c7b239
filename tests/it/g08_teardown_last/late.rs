//! What comes late is part of the teardown, too: confirmations after the cancel, after the deadline, after a takeover;
//! and what an effect is after it was undone.

use serde_json::json;
use uuid::Uuid;

use super::{
    UNDOES, calls, row, seal, thing, undone, unsealed, until_batch, until_finished, until_gone,
    until_no_mark_is_left, withdraw,
};
use crate::harness::{
    Bed,
    app::App,
    leaf::{Gate, Reply},
    sidecar::Config,
    wait::{holds_for, until},
};

#[tokio::test]
async fn a_confirmation_after_the_teardown_opens_it_again() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = Uuid::new_v4();
    let bad = bed.app.insert(thing("bad").batch(batch)).await;
    bed.app.until_state(bad, "failed").await;
    bed.app
        .insert(thing("told").set("run_when", "batch_settled").batch(batch))
        .await;
    let late = bed.app.insert(thing("late").batch(batch)).await;
    bed.app.until_state(late, "cancelled").await;
    until_finished(&bed.app, batch, "cancelled").await;
    // It was executed all the same, says the app, which has seen it.
    bed.leaf.has_already("late");
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'late', 201, '{\"id\": 1}')")
        .await;
    until_gone(&bed, "late", batch).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["late"]);
    assert_eq!(
        bed.leaf.requests("told").len(),
        1,
        "its last phase runs once"
    );
    assert!(!bed.app.results("leaf", "late").await[0]["undone_at"].is_null());
}

#[tokio::test]
async fn an_answer_that_an_instance_kept_through_an_outage_is_undone_after_the_teardown() {
    let bed = Bed::new().await;
    let (gate, bad) = (Gate::closed(), Gate::closed());
    bed.leaf
        .always()
        .key("kept")
        .method("POST")
        .waits_before_the_answer(&gate)
        .answers(201);
    bed.leaf
        .always()
        .key("bad")
        .waits_before_the_effect(&bad)
        .refuses(422);
    let lines = format!("timeout = \"6s\"\nin_doubt = \"park\"\n{UNDOES}");
    let (way, config) = bed.behind_a_proxy(&lines).await;
    let _first = config.dispatch("lease = \"1s\"").start().await;
    let batch = unsealed(&bed.app).await;
    let kept = bed.app.insert(thing("kept").batch(batch)).await;
    gate.until_arrived(1).await;
    // The first has its answer, and nobody to tell it to; the second finds a call that it can't ask about.
    way.cut();
    gate.open();
    let _second = bed.config(&lines).dispatch("lease = \"1s\"").start().await;
    bed.app.until_state(kept, "parked").await;
    bad.open();
    bed.app.insert(thing("bad").batch(batch)).await;
    until_batch(&bed.app, batch, "cancelling").await;
    bed.app
        .execute(&format!(
            "SELECT leafhopper.resolve_not_executed({kept}, 'I thought so')"
        ))
        .await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert!(undone(&bed.leaf).is_empty());
    assert_eq!(bed.leaf.standing("kept"), 1);

    way.restore();
    until_gone(&bed, "kept", batch).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["kept"]);
}

/// Its result is written while it is in flight, so at its end nothing is left to be written.
#[tokio::test]
async fn a_call_that_ends_after_somebody_s_word_for_it_ends_its_batch() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("told")
        .waits_before_the_answer(&gate)
        .answers(201);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = Uuid::new_v4();
    bed.app.insert(thing("told").batch(batch)).await;
    gate.until_arrived(1).await;
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'told', 200, NULL)")
        .await;
    until_no_mark_is_left(&bed.app).await;
    gate.open();
    until_finished(&bed.app, batch, "succeeded").await;
}

#[tokio::test]
async fn what_is_in_doubt_when_a_sibling_expires_is_found_and_undone() {
    let bed = Bed::new().await;
    bed.leaf.always().key("slow").method("POST").resets();
    // It is in doubt until the leaf has said what it shows.
    let asked = Gate::closed();
    let look = bed.leaf.always().key("slow").method("GET").times(1);
    look.waits_before_the_answer(&asked)
        .answers(Reply::json(200, &json!({ "id": 1, "key": "slow" })));
    let config = bed.config(UNDOES).probe("leaf", "settle = \"600ms\"");
    let _sidecar = config.start().await;
    let batch = Uuid::new_v4();
    bed.app.insert(thing("slow").batch(batch)).await;
    asked.until_arrived(1).await;
    let expires = thing("waits")
        .batch(batch)
        .set("leaf", "nobody")
        .set("deadline", "-infinity");
    let expires = bed.app.insert(expires).await;
    bed.app.until_state(expires, "expired").await;
    asked.open();
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(
        (bed.leaf.effects("slow"), bed.leaf.standing("slow")),
        (1, 0)
    );
}

#[tokio::test]
async fn after_it_was_undone_the_same_key_is_a_new_effect_with_another_idempotency_key() {
    let bed = Bed::new().await;
    let idempotency = "[leaf.leaf.idempotency]\nheader = \"Idempotency-Key\"\nwindow = \"24h\"";
    let _sidecar = bed.config(UNDOES).toml(idempotency).start().await;
    for generation in 1..=3 {
        let batch = unsealed(&bed.app).await;
        let id = bed.app.insert(thing("again").batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
        assert_eq!(bed.leaf.standing("again"), 1);
        withdraw(&bed.app, batch).await;
        until_finished(&bed.app, batch, "cancelled").await;
        assert_eq!(bed.leaf.effects("again"), generation);
        assert_eq!(bed.leaf.standing("again"), 0);
        let calls = calls(&bed.app, batch).await;
        assert_eq!(
            calls,
            [
                "again confirmed".to_owned(),
                format!("again:undo:{generation} confirmed")
            ]
        );
    }
    let requests = bed.leaf.requests("again");
    let mut keys: Vec<&str> = requests
        .iter()
        .filter_map(|request| request.header("idempotency-key"))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 6, "each call has a key of its own: {keys:?}");
}

#[tokio::test]
async fn a_call_of_the_key_and_its_undoing_exclude_each_other() {
    let bed = Bed::new().await;
    let undoing = Gate::closed();
    bed.leaf
        .always()
        .key("both")
        .method("DELETE")
        .waits_before_the_effect(&undoing)
        .answers(204);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("both").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    withdraw(&bed.app, batch).await;
    undoing.until_arrived(1).await;
    let redo = bed.app.insert(thing("both")).await;
    until("the new call waits for the key", async || {
        let call = bed.app.call(redo).await;
        if call["reason"] == "waits_for_key" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    undoing.open();
    bed.app.until_state(redo, "confirmed").await;
    assert_eq!(
        (bed.leaf.effects("both"), bed.leaf.standing("both")),
        (2, 1)
    );
    until_finished(&bed.app, batch, "cancelled").await;
}

#[tokio::test]
async fn an_effect_that_is_forgotten_is_not_undone_and_its_key_is_free() {
    let bed = Bed::new().await;
    bed.leaf.always().key("gone").method("DELETE").refuses(503);
    let lines = UNDOES.replace("\"20ms\", max = \"50ms\"", "\"30s\", max = \"30s\"");
    let lines = format!("outcome = {{ 503 = \"retry\" }}\n{lines}");
    let _sidecar = bed.sidecar(&lines).await;
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("gone").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    withdraw(&bed.app, batch).await;
    until("its undoing waits for its next try", async || {
        let rows = bed
            .app
            .rows("SELECT state, reason FROM leafhopper.call WHERE key = 'gone:undo:1'")
            .await;
        if rows == [json!({ "state": "pending", "reason": "retry" })] {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
    bed.app
        .execute("SELECT leafhopper.forget('leaf', 'gone')")
        .await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf).len(), 1, "the try before");
    let again = bed.app.insert(thing("gone")).await;
    bed.app.until_state(again, "confirmed").await;
    assert_eq!(bed.app.results("leaf", "gone").await.len(), 2);
}

#[tokio::test]
async fn what_another_batch_has_confirmed_is_not_undone_by_this_one() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    let (owner, other) = (unsealed(&bed.app).await, unsealed(&bed.app).await);
    let first = bed.app.insert(thing("shared").batch(owner)).await;
    bed.app.until_state(first, "confirmed").await;
    let second = bed.app.insert(thing("shared").batch(other)).await;
    bed.app.until_state(second, "confirmed").await;
    withdraw(&bed.app, other).await;
    until_finished(&bed.app, other, "cancelled").await;
    assert_eq!(bed.leaf.standing("shared"), 1);
    assert!(undone(&bed.leaf).is_empty());
    // Its owner undoes it, and that shows at both.
    withdraw(&bed.app, owner).await;
    until_finished(&bed.app, owner, "cancelled").await;
    assert_eq!(bed.leaf.standing("shared"), 0);
    for id in [first, second] {
        assert!(!bed.app.call(id).await["undone_at"].is_null());
    }
}

#[tokio::test]
async fn an_open_transaction_that_holds_the_batch_delays_its_teardown_and_nothing_else() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    bed.leaf.always().key("bad-2").refuses(422);
    let _sidecar = bed.sidecar(UNDOES).await;
    let held = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("held").batch(held)).await;
    bed.app.until_state(id, "confirmed").await;
    let app = App::connect(&bed.database.url).await;
    app.execute(&format!(
        "BEGIN; SELECT FROM leafhopper.batch WHERE id = '{held}' FOR UPDATE"
    ))
    .await;
    bed.app.insert(thing("bad").batch(held)).await;
    // Another batch is torn down meanwhile.
    let free = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("free").batch(free)).await;
    bed.app.until_state(id, "confirmed").await;
    bed.app.insert(thing("bad-2").batch(free)).await;
    until_finished(&bed.app, free, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["free"]);
    app.execute("COMMIT").await;
    until_finished(&bed.app, held, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["free", "held"]);
}

#[tokio::test]
async fn whoever_is_killed_in_the_middle_of_a_teardown_another_goes_on_and_undoes_each_once() {
    let bed = Bed::new().await;
    let third = Gate::closed();
    bed.leaf.always().key("e").method("DELETE").answers(204);
    bed.leaf
        .always()
        .key("c")
        .method("DELETE")
        .waits_before_the_answer(&third)
        .answers(204);
    let config = || -> Config {
        bed.config(&format!("timeout = \"6s\"\n{UNDOES}"))
            .probe("leaf", "settle = \"50ms\"")
            .dispatch("lease = \"1s\"")
    };
    let mut first = config().start().await;
    let batch = unsealed(&bed.app).await;
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        let id = bed.app.insert(thing(key).batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    withdraw(&bed.app, batch).await;
    third.until_arrived(1).await;
    first.kill();
    third.open();
    let _second = config().start().await;
    until_finished(&bed.app, batch, "cancelled").await;
    for key in keys {
        assert_eq!(bed.leaf.standing(key), 0, "{key}");
    }
    // The one whose answer was lost was asked about, not repeated.
    assert_eq!(undone(&bed.leaf), ["e", "d", "c", "b", "a"]);
    let words = bed
        .app
        .rows("SELECT count(*) AS words FROM leafhopper.result WHERE key ~ ':undo:'")
        .await;
    assert_eq!(words, [json!({ "words": 5 })]);
}

#[tokio::test]
async fn an_unsealed_batch_waits_for_its_seal_and_a_sealed_one_closes() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("a").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    until("it is known to be idle", async || {
        let row = row(&bed.app, batch).await;
        if row["idle_since"].is_null() {
            Err(row)
        } else {
            Ok(())
        }
    })
    .await;
    holds_for(
        std::time::Duration::from_millis(300),
        "it is open",
        async || {
            let row = row(&bed.app, batch).await;
            if row["state"] == "open" {
                Ok(())
            } else {
                Err(row)
            }
        },
    )
    .await;
    let id = bed.app.insert(thing("b").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    seal(&bed.app, batch).await;
    let row = until_finished(&bed.app, batch, "succeeded").await;
    assert!(row["idle_since"].is_null());
}
