//! What could keep a batch from being cancelled: an app that holds its row, and a crowd of calls.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use super::{LINES, standing, thing, until_standing};
use crate::harness::{
    Bed,
    app::{App, call},
    wait::{until, until_within},
};

#[tokio::test]
async fn an_app_that_holds_the_batch_s_row_delays_nobody() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let _sidecar = bed.sidecar("concurrency = 1").await;
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id) VALUES ('{batch}')"
        ))
        .await;
    let app = App::connect(&bed.database.url).await;
    app.execute(&format!(
        "BEGIN; SELECT FROM leafhopper.batch WHERE id = '{batch}' FOR UPDATE"
    ))
    .await;
    the_failure_and_others_are_not_delayed(&bed, batch).await;
    app.execute("COMMIT").await;
    is_announced(&bed, batch).await;
}

#[tokio::test]
async fn an_app_that_has_not_committed_the_batch_s_row_delays_nobody() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let _sidecar = bed.sidecar("concurrency = 1").await;
    let batch = Uuid::new_v4();
    let app = App::connect(&bed.database.url).await;
    app.execute(&format!(
        "BEGIN; INSERT INTO leafhopper.batch (id, name) VALUES ('{batch}', 'mine')"
    ))
    .await;
    the_failure_and_others_are_not_delayed(&bed, batch).await;
    app.execute("COMMIT").await;
    is_announced(&bed, batch).await;
}

/// While an app's transaction holds the row of this batch.
async fn the_failure_and_others_are_not_delayed(bed: &Bed, batch: Uuid) {
    // It would else be as long as the transaction, which has no end here.
    const SOON: Duration = Duration::from_secs(20);
    let other = Uuid::new_v4();
    let began = Instant::now();
    let bad = bed.app.insert(thing("bad").batch(batch)).await;
    bed.app.until_state(bad, "failed").await;
    let sibling = bed.app.insert(thing("sibling").batch(batch)).await;
    let free = bed.app.insert(thing("free")).await;
    bed.app.until_state(free, "confirmed").await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    // Another batch fails, and the calls that wait in both are cancelled.
    bed.app.insert(thing("bad").key("bad-2").batch(other)).await;
    bed.app
        .insert(call("nobody").key("elsewhere").batch(other))
        .await;
    until_within(SOON, "both batches are cancelled", async || {
        let found = [
            standing(&bed.app, batch).await,
            standing(&bed.app, other).await,
        ];
        let expected = json!({ "failed rejected": 1, "cancelled batch_cancelled": 1 });
        if found.iter().all(|found| *found == expected) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
    assert_eq!(bed.app.state(sibling).await, "cancelled");
    assert!(bed.leaf.requests("sibling").is_empty());
    is_announced(bed, other).await;
}

async fn is_announced(bed: &Bed, batch: Uuid) {
    let sql = format!("SELECT state FROM leafhopper.batch WHERE id = '{batch}'");
    until("the batch's own row says it", async || {
        let rows = bed.app.rows(&sql).await;
        match rows.as_slice() {
            [row] if row["state"] != "open" => Ok(()),
            _ => Err(rows),
        }
    })
    .await;
}

#[tokio::test]
async fn five_thousand_siblings_are_cancelled_by_the_thousand() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let _sidecar = bed.sidecar(LINES).await;
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.outbox (leaf, path, batch_id)
             SELECT 'nobody', '/x', '{batch}' FROM generate_series(1, 5000)"
        ))
        .await;
    let began = Instant::now();
    bed.app.insert(thing("bad").batch(batch)).await;
    until_standing(
        &bed.app,
        batch,
        json!({ "failed rejected": 1, "cancelled batch_cancelled": 5000 }),
    )
    .await;
    let took = began.elapsed();
    println!("5000 siblings are cancelled in {took:?}");
    assert!(took < Duration::from_secs(12), "it took {took:?}");
}

#[tokio::test]
async fn when_every_call_fails_at_once_over_two_sidecars_all_are_counted() {
    let bed = Bed::new().await;
    bed.leaf.always().refuses(404);
    let _a = bed.sidecar("concurrency = 16").await;
    let _b = bed.sidecar("concurrency = 16").await;
    for _ in 0..5 {
        let batch = Uuid::new_v4();
        let before = bed.leaf.all_requests().len();
        bed.app
            .execute(&format!(
                "INSERT INTO leafhopper.outbox (leaf, path, batch_id)
                 SELECT 'leaf', '/x', '{batch}' FROM generate_series(1, 40)"
            ))
            .await;
        let failed = until("all forty are final", async || {
            let found = standing(&bed.app, batch).await;
            let number = |name: &str| found[name].as_u64().unwrap_or_default();
            let failed = number("failed rejected");
            if failed + number("cancelled batch_cancelled") == 40 && failed > 0 {
                Ok(failed)
            } else {
                Err(found)
            }
        })
        .await;
        let sent = bed.leaf.all_requests().len() - before;
        assert_eq!(u64::try_from(sent).unwrap(), failed);
        is_announced(&bed, batch).await;
    }
}
