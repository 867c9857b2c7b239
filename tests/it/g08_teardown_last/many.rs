//! A batch of very many calls: its cancel is quick, takes no memory, and is in nobody's way.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use super::{UNDOES, thing, until_finished, withdraw};
use crate::harness::{Bed, app::App, wait::until_within};

/// Beside other tests, their cancel gets more time than the goal, to which the ignored test holds it.
const CALLS: u32 = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_calls_are_cancelled_soon_in_little_memory_and_in_nobody_s_way() {
    cancel_many(Duration::from_secs(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures: to be run alone"]
async fn a_hundred_thousand_calls_are_cancelled_within_the_goal() {
    cancel_many(Duration::from_secs(2)).await;
}

async fn cancel_many(limit: Duration) {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar(UNDOES).await;
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.outbox (leaf, path, batch_id)
             SELECT 'nobody', '/x', '{batch}' FROM generate_series(1, {CALLS})"
        ))
        .await;
    let memory = sidecar.peak_memory();
    let app = App::connect(&bed.database.url).await;
    // An app goes on inserting, into this batch and beside it.
    let stop = tokio_util::sync::CancellationToken::new();
    let inserts = async {
        let mut longest = Duration::ZERO;
        while !stop.is_cancelled() {
            let began = Instant::now();
            app.insert(thing("late").set("leaf", "nobody").batch(batch))
                .await;
            app.insert(thing("other").set("leaf", "nobody").batch(Uuid::new_v4()))
                .await;
            longest = longest.max(began.elapsed());
        }
        longest
    };
    let cancel = async {
        let began = Instant::now();
        withdraw(&bed.app, batch).await;
        let answered = began.elapsed();
        until_within(limit * 3, "every call is cancelled", async || {
            let sql = format!(
                "SELECT EXISTS (SELECT FROM leafhopper.dispatch WHERE batch_id = '{batch}' AND call_id <= {CALLS}) AS live"
            );
            let live = bed.app.rows(&sql).await;
            if live == [json!({ "live": false })] { Ok(()) } else { Err(live) }
        })
        .await;
        let took = began.elapsed();
        stop.cancel();
        (answered, took)
    };
    let (longest, (answered, took)) = tokio::join!(inserts, cancel);
    let grown = sidecar.peak_memory().saturating_sub(memory);
    println!(
        "{CALLS} calls: cancel_batch() {answered:?}, all cancelled {took:?}, an app's longest insert {longest:?}, \
         memory + {} KiB",
        grown / 1024
    );
    assert!(took < limit, "it took {took:?}");
    assert!(
        longest < Duration::from_secs(1).max(took / 4),
        "an app waited {longest:?} for its inserts"
    );
    assert!(grown < 32 << 20, "{grown} bytes more");
    until_finished(&bed.app, batch, "cancelled").await;
}
