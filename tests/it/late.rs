//! Calls that commit late, where the head of the claim's index is slow: claims begin behind ids that were sent already.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Bed,
    app::{App, keyed},
    leaf::Leaf,
    wait::until,
};

/// A backup, and what has come and gone since: dead entries that nothing removes, before all that waits.
async fn slow_head(bed: &Bed) -> App {
    let backup = App::connect(&bed.database.url).await;
    backup
        .execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM leafhopper.dispatch")
        .await;
    bed.app
        .execute(
            "BEGIN;
             INSERT INTO leafhopper.dispatch (call_id, leaf, key, run_when, priority, enqueued_at)
                  SELECT -n, 'leaf', 'dead-' || n, 'ready', 0, now() FROM generate_series(1, 100000) n;
             DELETE FROM leafhopper.dispatch WHERE call_id < 0;
             COMMIT",
        )
        .await;
    // The claim that takes this one walks over all of them, and knows then that they are there.
    bed.app.insert(keyed("leaf", "warm")).await;
    bed.leaf.until_requests("warm", 1).await;
    backup
}

#[tokio::test]
async fn one_that_commits_behind_a_few_others_is_sent_at_once() {
    let bed = Bed::new().await;
    let other = Leaf::start().await;
    let config = bed.config("").leaf("other", &other.url(), "");
    let _sidecar = config.start().await;
    let backup = slow_head(&bed).await;
    let slow = App::connect(&bed.database.url).await;
    for (name, leaf) in [("leaf", &bed.leaf), ("other", &other)] {
        for round in 0..3 {
            let key = |what: &str| format!("{what}-{round}");
            slow.execute("BEGIN").await;
            slow.insert(keyed(name, &key("late"))).await;
            bed.app.insert(keyed(name, &key("quick"))).await;
            leaf.until_requests(&key("quick"), 1).await;
            slow.execute("COMMIT").await;
            for next in 0..10 {
                let next = key(&format!("next-{next}"));
                bed.app.insert(keyed(name, &next)).await;
                leaf.until_requests(&next, 1).await;
            }
            assert_eq!(leaf.requests(&key("late")).len(), 1, "{name} {round}");
        }
    }
    backup.execute("ROLLBACK").await;
}

#[tokio::test]
async fn many_that_commit_behind_many_others_are_found_by_the_look() {
    let bed = Bed::new().await;
    // So slow that no more than two are claimed at once.
    bed.leaf
        .always()
        .takes(Duration::from_millis(20))
        .answers(201);
    let config = bed.config("concurrency = 2").poll_interval("300ms");
    let _sidecar = config.start().await;
    let backup = slow_head(&bed).await;
    let slow = App::connect(&bed.database.url).await;
    let insert = |count: u32| {
        format!(
            "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, {count})"
        )
    };
    slow.execute(&format!("BEGIN; {}", insert(150))).await;
    bed.app.execute(&insert(200)).await;
    let until_confirmed = async |count: u32| {
        until(&format!("{count} calls are confirmed"), async || {
            let rows = bed.app.rows("SELECT count(*) FROM leafhopper.result").await;
            if rows[0]["count"] == json!(count) {
                Ok(())
            } else {
                Err(rows)
            }
        })
        .await;
    };
    until_confirmed(201).await;
    slow.execute("COMMIT").await;
    until_confirmed(351).await;
    backup.execute("ROLLBACK").await;
}
