//! Whose turn it is: the most urgent call's, and the instance's whose share of the leaf it is.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Bed,
    app::{App, keyed},
    leaf::Gate,
    wait::until,
};

async fn until_all_confirmed(app: &App, count: usize) {
    until(&format!("{count} calls are confirmed"), async || {
        let rows = app.rows("SELECT count(*) FROM leafhopper.result").await;
        if rows[0]["count"] == json!(count) {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
}

#[tokio::test]
async fn urgent_calls_go_first_behind_calls_that_wait_for_their_key() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("same")
        .waits_before_the_effect(&gate)
        .answers(201);
    let other = Gate::closed();
    bed.leaf
        .always()
        .key("other")
        .waits_before_the_effect(&other)
        .answers(201);
    let _sidecar = bed.sidecar("concurrency = 2").await;
    bed.app.insert(keyed("leaf", "same")).await;
    bed.app.insert(keyed("leaf", "other")).await;
    gate.until_arrived(1).await;
    other.until_arrived(1).await;
    // In one transaction: low ones first, then many that wait for a key and are the most urgent, then an urgent one.
    bed.app
        .execute(
            "BEGIN;
             INSERT INTO leafhopper.outbox (leaf, path, key, priority) SELECT 'leaf', '/x', 'low-' || n, 5 FROM generate_series(1, 5) n;
             INSERT INTO leafhopper.outbox (leaf, path, key, body, priority)
                  SELECT 'leaf', '/things', 'same', '{\"key\": \"same\"}', -9 FROM generate_series(1, 20);
             INSERT INTO leafhopper.outbox (leaf, path, key, priority) VALUES ('leaf', '/urgent', 'urgent', -5);
             COMMIT",
        )
        .await;
    other.open();
    until("the urgent one is sent", async || {
        let paths: Vec<String> = bed
            .leaf
            .all_requests()
            .into_iter()
            .map(|r| r.path)
            .collect();
        if paths.iter().any(|path| path == "/urgent") {
            Ok(())
        } else {
            Err(paths)
        }
    })
    .await;
    let sent: Vec<String> = bed
        .leaf
        .all_requests()
        .into_iter()
        .map(|r| r.path)
        .collect();
    gate.open();
    assert_eq!(sent.get(2).map(String::as_str), Some("/urgent"), "{sent:?}");
    until_all_confirmed(&bed.app, 8).await;
}

#[tokio::test]
async fn an_instance_that_was_frozen_past_its_lease_waits_for_its_share() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(1500))
        .answers(201);
    let config = bed
        .config("concurrency = 4\ntimeout = \"3s\"")
        .dispatch("lease = \"2s\"");
    let a = config.start().await;
    let b = config.start().await;
    until("both have their share", async || {
        let shares = [
            a.metric("leafhopper_concurrency_limit", &[]).await,
            b.metric("leafhopper_concurrency_limit", &[]).await,
        ];
        if shares == [2.0, 2.0] {
            Ok(())
        } else {
            Err(shares)
        }
    })
    .await;
    b.signal(rustix::process::Signal::STOP);
    until("the other one has it all", async || {
        match a.metric("leafhopper_concurrency_limit", &[]).await {
            4.0 => Ok(()),
            share => Err(share),
        }
    })
    .await;
    bed.app
        .execute("INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, 40)")
        .await;
    until("it uses it", async || match bed.leaf.most_at_once(None) {
        4 => Ok(()),
        other => Err(other),
    })
    .await;
    b.signal(rustix::process::Signal::CONT);
    until_all_confirmed(&bed.app, 40).await;
    assert_eq!(bed.leaf.most_at_once(None), 4);
}
