//! Instances that know different things, and a configuration that changes: what has begun is ended, and what one instance can't
//! know is left to another.

use std::time::Duration;

use uuid::Uuid;

use super::{
    UNDOES, calls, confirmed, reread, row, thing, undone, unsealed, until_finished, until_gone,
    until_no_mark_is_left, until_undoing, withdraw,
};
use crate::harness::{
    Bed,
    leaf::Gate,
    sidecar::Config,
    wait::{holds_for, until},
};

#[tokio::test]
async fn what_comes_late_is_left_to_an_instance_that_knows_its_leaf() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let knows = bed.config(UNDOES);
    let mut one = knows.start().await;
    let batch = Uuid::new_v4();
    let bad = bed.app.insert(thing("bad").batch(batch)).await;
    bed.app.until_state(bad, "failed").await;
    let late = bed.app.insert(thing("late").batch(batch)).await;
    bed.app.until_state(late, "cancelled").await;
    until_finished(&bed.app, batch, "cancelled").await;
    one.stop().await;
    let other = Config::new(&bed.database.url).leaf("other", &bed.leaf.url(), "");
    let _other = other.start().await;
    bed.leaf.has_already("late");
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'late', 201, NULL)")
        .await;
    holds_for(
        Duration::from_secs(1),
        "it is to be looked at",
        async || {
            let marks = bed.app.rows("SELECT * FROM leafhopper.batch_mark").await;
            if marks.is_empty() { Err(marks) } else { Ok(()) }
        },
    )
    .await;
    let _again = knows.start().await;
    until_gone(&bed, "late", batch).await;
    until_finished(&bed.app, batch, "cancelled").await;
    until_no_mark_is_left(&bed.app).await;
    assert_eq!(undone(&bed.leaf), ["late"]);
}

#[tokio::test]
async fn an_undoing_that_has_begun_is_awaited_whatever_is_configured_by_then() {
    let bed = Bed::new().await;
    let undoing = Gate::closed();
    let effect = bed.leaf.always().key("k").method("DELETE");
    effect.waits_before_the_effect(&undoing).answers(204);
    let sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("k").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    let told = thing("told").set("run_when", "batch_failed").batch(batch);
    bed.app.insert(told).await;
    withdraw(&bed.app, batch).await;
    undoing.until_arrived(1).await;
    reread(&sidecar, &bed.config("concurrency = 8")).await;
    holds_for(
        Duration::from_millis(700),
        "its teardown is under way",
        async || {
            let row = row(&bed.app, batch).await;
            if row["state"] == "compensating" && bed.leaf.requests("told").is_empty() {
                Ok(())
            } else {
                Err((row, calls(&bed.app, batch).await))
            }
        },
    )
    .await;
    undoing.open();
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(bed.leaf.requests("told").len(), 1);
}

/// Sixteen are undone at once; as many wait for an instance that is not there.
#[tokio::test]
async fn in_any_order_what_nobody_here_can_undo_holds_no_other() {
    let bed = Bed::new().await;
    let both = bed.config(UNDOES).leaf("gone", &bed.leaf.url(), "");
    let mut first = both.start().await;
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, sealed, undo_order) VALUES ('{batch}', false, 'any')"
        ))
        .await;
    let older = bed.app.insert(thing("older").batch(batch)).await;
    bed.app.until_state(older, "confirmed").await;
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.outbox (leaf, key, path, batch_id) \
             SELECT 'gone', 'gone ' || n, '/things', '{batch}' FROM generate_series(1, 16) AS n"
        ))
        .await;
    bed.app.until_all_confirmed(17).await;
    first.stop().await;
    withdraw(&bed.app, batch).await;
    let _second = bed.sidecar(UNDOES).await;
    until_gone(&bed, "older", batch).await;
    assert_eq!(row(&bed.app, batch).await["state"], "compensating");
}

#[tokio::test]
async fn a_call_waits_for_an_undoing_that_has_begun_whatever_is_configured_by_then() {
    let bed = Bed::new().await;
    bed.leaf.always().key("k").method("DELETE").refuses(403);
    let sidecar = bed.sidecar(UNDOES).await;
    let batch = confirmed(&bed, &["k"]).await;
    withdraw(&bed.app, batch).await;
    let undoing = until_undoing(&bed, "k", "failed").await;
    reread(&sidecar, &bed.config("concurrency = 8")).await;
    let again = bed.app.insert(thing("k")).await;
    until("it waits", async || {
        let call = bed.app.call(again).await;
        if call["reason"] == "waits_for_key" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    let waive = format!("SELECT leafhopper.waive({undoing}, 'it stays')");
    bed.app.execute(&waive).await;
    bed.app.until_state(again, "confirmed").await;
    assert_eq!(bed.leaf.effects("k"), 1);
}

#[tokio::test]
async fn what_was_waived_is_left_to_nobody_where_its_leaf_is_gone() {
    let bed = Bed::new().await;
    bed.leaf.always().key("k").method("DELETE").refuses(403);
    let mut knows = bed.sidecar(UNDOES).await;
    let batch = confirmed(&bed, &["k"]).await;
    withdraw(&bed.app, batch).await;
    let undoing = until_undoing(&bed, "k", "failed").await;
    knows.stop().await;
    let other = Config::new(&bed.database.url).leaf("other", &bed.leaf.url(), "");
    let _other = other.start().await;
    let waive = format!("SELECT leafhopper.waive({undoing}, 'it stays')");
    bed.app.execute(&waive).await;
    until_finished(&bed.app, batch, "cancelled").await;
    until_no_mark_is_left(&bed.app).await;
}
