//! A leaf that comes back after an outage is not hit at once: its places come back one by one, and what it told to come
//! back at one moment comes spread out.

use std::time::Duration;

use crate::harness::{
    Bed,
    leaf::{Gate, Reply},
    sidecar::Sidecar,
    wait::{holds_for, until},
};

/// How long nothing more must come, where something more would come at once.
const A_WHILE: Duration = Duration::from_millis(300);

async fn until_limit(sidecar: &Sidecar, wanted: f64) {
    until(&format!("the limit is {wanted}"), async || {
        let limit = sidecar.metric("leafhopper_concurrency_limit", &[]).await;
        if (limit - wanted).abs() < 0.1 {
            Ok(())
        } else {
            Err(limit)
        }
    })
    .await;
}

#[tokio::test]
async fn a_leaf_that_answers_again_gets_its_places_back_one_by_one() {
    let bed = Bed::new().await;
    bed.leaf.always().refuses(503);
    let config = bed.config(
        "concurrency = 8\noutcome = { 503 = \"retry\" }\nretry = { initial = \"10ms\", max = \"50ms\", max_attempts = 1000 }",
    );
    let sidecar = config.start().await;
    until_limit(&sidecar, 8.0).await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, 40)",
        )
        .await;
    until_limit(&sidecar, 1.0).await;
    // From now on it does all that it is asked, once it gets to it.
    let gate = Gate::closed();
    bed.leaf.behaves();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    gate.until_arrived(1).await;
    let before = bed.leaf.all_requests().len();
    holds_for(A_WHILE, "one request at a time", async || {
        match bed.leaf.all_requests().len() - before {
            0 => Ok(()),
            more => Err(more),
        }
    })
    .await;
    let (_, page) = sidecar.get("/").await;
    assert!(page.contains("1 at once here"), "{page}");
    gate.open();
    bed.app.until_all_confirmed(40).await;
    until_limit(&sidecar, 8.0).await;
}

#[tokio::test]
async fn what_a_leaf_sends_away_until_one_moment_comes_back_spread_out() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .refuses(Reply::new(429).header("retry-after", "100"));
    let _sidecar = bed.config("concurrency = 8").start().await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, 20)",
        )
        .await;
    let waits = until("all were sent away", async || {
        let waits: Vec<f64> = bed
            .app
            .rows(
                "SELECT date_part('epoch', c.next_attempt_at - a.finished_at) AS wait
                   FROM leafhopper.call c JOIN leafhopper.attempt a ON a.call_id = c.id
                  WHERE c.state = 'pending' ORDER BY 1",
            )
            .await
            .iter()
            .filter_map(|row| row["wait"].as_f64())
            .collect();
        if waits.len() == 20 {
            Ok(waits)
        } else {
            Err(waits)
        }
    })
    .await;
    let (first, last) = (waits[0], waits[19]);
    assert!(first > 99.0, "none comes before its time: {waits:?}");
    // Of 20 within 30 s these would be as near to each other once in a hundred thousand times.
    assert!(last - first > 10.0, "they come at once: {waits:?}");
    assert!(last < 140.0, "none waits for much longer: {waits:?}");
}
