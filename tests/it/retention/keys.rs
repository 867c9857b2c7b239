//! What belongs to one key goes together, and only when nothing needs it any more.

use serde_json::json;
use uuid::Uuid;

use super::{age, age_calls, counts, keys, prune, thing, until_batch};
use crate::harness::{Bed, wait::until};

#[tokio::test]
async fn calls_of_one_key_go_together() {
    let bed = Bed::new().await;
    bed.leaf.always().key("no").refuses(422);
    let sidecar = bed.sidecar("").await;
    for _ in 0..2 {
        let id = bed.app.insert(thing("no")).await;
        bed.app.until_state(id, "failed").await;
    }
    age(&bed.app, 31).await;
    // A call that lives needs them, and one that has ended lately.
    let later = thing("no").set("not_before", "2100-01-01T00:00:00Z");
    let id = bed.app.insert(later).await;
    assert_eq!(prune(&sidecar).await, counts([]));
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({id}, 'test')"))
        .await;
    assert_eq!(prune(&sidecar).await, counts([]));
    age(&bed.app, 31).await;
    assert_eq!(
        prune(&sidecar).await,
        counts([("calls", 3), ("attempts", 2)])
    );
}

#[tokio::test]
async fn a_key_that_is_used_again_and_again_keeps_what_made_it_and_no_more() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let (batch, first) = (Uuid::from_u128(1), thing("k").batch(Uuid::from_u128(1)));
    let made = bed.app.insert(first).await;
    bed.app.until_state(made, "confirmed").await;
    until_batch(&bed.app, batch, "succeeded").await;
    for _ in 0..3 {
        let id = bed.app.insert(thing("k")).await;
        bed.app.until_state(id, "confirmed").await;
    }
    age(&bed.app, 31).await;
    let last = bed.app.insert(thing("k")).await;
    bed.app.until_state(last, "confirmed").await;
    // Those that were confirmed from the record.
    assert_eq!(prune(&sidecar).await, counts([("calls", 3)]));
    let left = "SELECT id FROM leafhopper.outbox ORDER BY id";
    assert_eq!(
        bed.app.rows(left).await,
        [json!({"id": made}), json!({"id": last})]
    );
    age(&bed.app, 31).await;
    assert_eq!(
        prune(&sidecar).await,
        counts([("calls", 2), ("batches", 1)])
    );
    bed.leaf.assert_each_effect_once(["k"]);
}

/// A result goes with all that is known of its key, and not while a call of it is there: without it that call would be
/// sent again.
#[tokio::test]
async fn a_result_goes_with_its_key() {
    let bed = Bed::new().await;
    let compensate = "compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";
    let config = bed.config(compensate);
    let sidecar = config
        .toml("[retention]\nresults = \"60d\"\nresult_bodies = \"45d\"")
        .start()
        .await;
    // One key with two generations, the first of which was undone by its batch.
    bed.leaf.always().key("no").refuses(422);
    let batch = Uuid::from_u128(1);
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
        ))
        .await;
    let undone = bed.app.insert(thing("k").batch(batch)).await;
    bed.app.until_state(undone, "confirmed").await;
    bed.app.insert(thing("no").batch(batch)).await;
    until_batch(&bed.app, batch, "cancelled").await;
    for key in ["k", "used"] {
        let id = bed.app.insert(thing(key)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'said', 200, '{\"a\": 1}')")
        .await;

    age(&bed.app, 46).await;
    let used = bed.app.insert(thing("used")).await;
    bed.app.until_state(used, "confirmed").await;
    let expected = counts([
        ("calls", 5 - 1),
        ("attempts", 1),
        ("batches", 1),
        // The word of what undid the first has none.
        ("result_bodies", 4),
    ]);
    assert_eq!(prune(&sidecar).await, expected);
    let bodies = "SELECT count(*) FROM leafhopper.result WHERE body IS NOT NULL OR NOT truncated AND key NOT LIKE '%undo%'";
    assert_eq!(bed.app.rows(bodies).await, [json!({"count": 0})]);

    // Of the two generations the second is not old yet.
    age(&bed.app, 15).await;
    bed.app
        .execute(
            "UPDATE leafhopper.result SET confirmed_at = now() WHERE key = 'k' AND generation = 2",
        )
        .await;
    assert_eq!(prune(&sidecar).await, counts([("results", 1)]));
    age_calls(&bed.app, "k", 61).await;
    assert_eq!(prune(&sidecar).await, counts([("results", 3)]));
    let left = bed.app.rows("SELECT key FROM leafhopper.result").await;
    assert_eq!(left, [json!({"key": "used"})]);
    assert_eq!(keys(&bed.app).await, ["used", "used"]);
    bed.leaf.assert_each_effect_once(["used"]);

    // Nothing is known of the key any more, so it is sent, and is the first generation again.
    let again = bed.app.insert(thing("k")).await;
    bed.app.until_state(again, "confirmed").await;
    assert_eq!(bed.app.results("leaf", "k").await[0]["generation"], 1);
    assert_eq!(bed.leaf.effects("k"), 3);
}

/// What undoes an effect may be made of its body.
#[tokio::test]
async fn the_bodies_of_a_batch_that_is_not_over_stay() {
    let bed = Bed::new().await;
    let config = bed.config("").toml("[retention]\nresult_bodies = \"1d\"");
    let sidecar = config.start().await;
    let (open, over) = (Uuid::from_u128(1), Uuid::from_u128(2));
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{open}', false)"
        ))
        .await;
    for batch in [open, over] {
        let id = bed.app.insert(thing(&batch.to_string()).batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    until_batch(&bed.app, over, "succeeded").await;
    age(&bed.app, 2).await;
    assert_eq!(prune(&sidecar).await, counts([("result_bodies", 1)]));
    let with_body = "SELECT batch_id FROM leafhopper.result WHERE body IS NOT NULL";
    assert_eq!(
        bed.app.rows(with_body).await,
        [json!({"batch_id": open.to_string()})]
    );
    bed.app
        .execute(&format!("SELECT leafhopper.seal('{open}')"))
        .await;
    until_batch(&bed.app, open, "succeeded").await;
    assert_eq!(prune(&sidecar).await, counts([("result_bodies", 1)]));
}

/// More than goes in one statement: what may be sent again goes first, and the batch's row last.
#[tokio::test]
async fn a_large_batch_goes_in_parts() {
    let bed = Bed::new().await;
    let batch = Uuid::from_u128(1);
    bed.app
        .execute(&format!(
            "SET session_replication_role = replica; \
             INSERT INTO leafhopper.outbox (leaf, key, path, batch_id, run_when) \
             SELECT 'leaf', 'k' || n, '/', '{batch}', CASE WHEN n % 2 = 0 THEN 'ready' ELSE 'batch_settled' END \
               FROM generate_series(1, 2500) AS n; \
             INSERT INTO leafhopper.result (leaf, key, generation, call_id, batch_id, status, source) \
             SELECT leaf, key, 1, id, batch_id, 200, 'response' FROM leafhopper.outbox WHERE run_when = 'ready'; \
             INSERT INTO leafhopper.finished (call_id, batch_id, state, reason) \
             SELECT id, batch_id, 'failed', 'rejected' FROM leafhopper.outbox WHERE run_when <> 'ready'; \
             INSERT INTO leafhopper.batch (id, state, last_phase_at, finished_at) VALUES ('{batch}', 'succeeded', now(), now()); \
             SET session_replication_role = origin"
        ))
        .await;
    age(&bed.app, 31).await;
    // Somebody is to look at it: a late confirmation may have to be undone.
    let mark = format!("INSERT INTO leafhopper.batch_mark (batch_id) VALUES ('{batch}')");
    bed.app.execute(&mark).await;
    let parts = super::races::parts(&bed).await;
    assert!(parts.iter().all(|part| part.0 == 0), "{parts:?}");
    bed.app.execute("DELETE FROM leafhopper.batch_mark").await;
    let parts = super::races::parts(&bed).await;
    let calls: Vec<_> = parts.iter().filter(|part| part.0 > 0).copied().collect();
    // 1250 of them have failed.
    assert_eq!(calls, [(1000, 250), (1000, 0), (500, 0)]);
    assert_eq!(keys(&bed.app).await, [""; 0]);
    let batches = bed.app.rows("SELECT id FROM leafhopper.batch").await;
    assert!(batches.is_empty(), "{batches:?}");
}

/// All its calls have ended, and it is not over: an effect stands that somebody may still undo.
#[tokio::test]
async fn a_batch_whose_teardown_is_incomplete_stays() {
    let bed = Bed::new().await;
    bed.leaf.always().key("no").refuses(422);
    bed.leaf
        .always()
        .key("stands")
        .method("DELETE")
        .refuses(403);
    let sidecar = bed.sidecar(super::UNDOES).await;
    let batch = Uuid::from_u128(1);
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
        ))
        .await;
    let stands = bed.app.insert(thing("stands").batch(batch)).await;
    bed.app.until_state(stands, "confirmed").await;
    bed.app.insert(thing("no").batch(batch)).await;
    let undoing = until("what would undo it has failed", async || {
        let failed =
            "SELECT c.id FROM leafhopper.call c WHERE c.undoes IS NOT NULL AND c.state = 'failed'";
        let failed = bed.app.rows(failed).await;
        failed.first().map(|row| row["id"].clone()).ok_or(failed)
    })
    .await;
    age(&bed.app, 31).await;
    assert_eq!(prune(&sidecar).await, counts([]));
    bed.app
        .execute(&format!("SELECT leafhopper.waive({undoing}, 'test')"))
        .await;
    until_batch(&bed.app, batch, "cancelled").await;
    assert_eq!(prune(&sidecar).await, counts([]));
    age(&bed.app, 31).await;
    assert_eq!(
        prune(&sidecar).await,
        counts([("calls", 3), ("batches", 1), ("attempts", 2)])
    );
}
