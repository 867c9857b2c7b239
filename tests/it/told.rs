//! A sidecar that is told of each call looks at nothing else but once in a poll interval. What its own work makes due, and what
//! comes together with something else, is found at once all the same: here a poll interval is longer than a test waits.

use std::time::Duration;

use serde_json::json;

use crate::{
    harness::{
        Bed,
        app::{App, call},
        sidecar::Sidecar,
        wait::{holds_for, until},
    },
    producer::until_sleeping,
};

/// Who is found by a look comes later than any `until` waits.
const POLL: &str = "25s";

async fn sleeping(bed: &Bed, lines: &str) -> Sidecar {
    let sidecar = bed.config(lines).poll_interval(POLL).start().await;
    until_sleeping(&bed.app).await;
    // As it starts, it looks for a while.
    holds_for(Duration::from_millis(600), "", async || Ok::<(), ()>(())).await;
    sidecar
}

async fn until_confirmed(app: &App, calls: u64) {
    until("all are confirmed", async || {
        let rows = app.rows("SELECT count(*) FROM leafhopper.result").await;
        if rows[0]["count"] == calls {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
}

#[tokio::test]
async fn calls_that_wait_for_a_key_follow_at_once() {
    let bed = Bed::new().await;
    let _sidecar = sleeping(&bed, "").await;
    // Another path each is another request: the one before has to be over first.
    for path in ["/first", "/second"] {
        bed.leaf
            .on(path)
            .takes(Duration::from_millis(400))
            .refuses(422);
    }
    for path in ["/first", "/second", "/third"] {
        bed.app.insert(call("leaf").key("k").path(path)).await;
    }
    until_confirmed(&bed.app, 1).await;
}

#[tokio::test]
async fn calls_behind_many_that_wait_for_one_key_are_found_at_once() {
    let bed = Bed::new().await;
    let _sidecar = sleeping(&bed, "").await;
    bed.app.insert(call("leaf").key("warm")).await;
    until_confirmed(&bed.app, 1).await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
             SELECT 'leaf', CASE WHEN n <= 80 THEN 'one' ELSE 'k' || n END, '/x', '{}' FROM generate_series(1, 180) AS n",
        )
        .await;
    // Of one key one result.
    until_confirmed(&bed.app, 102).await;
}

#[tokio::test]
async fn producers_are_spared_the_notification_where_a_leaf_is_full() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_secs(60))
        .answers(201);
    let _sidecar = sleeping(&bed, "concurrency = 1").await;
    until("the mark is taken back", async || {
        let insert = "INSERT INTO leafhopper.outbox (leaf, path) VALUES ('leaf', '/x')";
        bed.app.execute(&[insert; 50].join(";COMMIT;")).await;
        let mark = bed
            .app
            .rows("SELECT last_value FROM leafhopper.sleeping_until")
            .await;
        if mark == [json!({ "last_value": 1 })] {
            Ok(())
        } else {
            Err(mark)
        }
    })
    .await;
}
