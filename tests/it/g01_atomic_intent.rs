//! G1, atomic intent: a call exists exactly when the transaction that inserted it committed.

use std::time::Duration;

use crate::harness::{
    Bed,
    app::{App, keyed},
    wait::{holds_for, until},
};

const TABLES: [&str; 4] = ["outbox", "dispatch", "finished", "result"];

async fn rows_in_all(app: &App) -> i64 {
    let counts = TABLES.map(|table| format!("(SELECT count(*) FROM leafhopper.{table})"));
    let rows = app
        .rows(&format!("SELECT {} AS n", counts.join(" + ")))
        .await;
    rows[0]["n"].as_i64().unwrap()
}

#[tokio::test]
async fn a_call_is_sent_after_its_commit_and_not_before() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    bed.app.execute("BEGIN").await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    let other = App::connect(&bed.database.url).await;
    holds_for(
        Duration::from_millis(400),
        "nothing is there",
        async || match (rows_in_all(&other).await, bed.leaf.all_requests().len()) {
            (0, 0) => Ok(()),
            seen => Err(seen),
        },
    )
    .await;
    bed.app.execute("COMMIT").await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.leaf.effects("k"), 1);
}

#[tokio::test]
async fn a_transaction_that_rolls_back_leaves_nothing() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    bed.app.execute("BEGIN").await;
    bed.app.insert(keyed("leaf", "rolled back")).await;
    bed.app.execute("ROLLBACK").await;

    // A transaction that fails at its very end, and one whose client vanishes.
    let deferred = "CREATE TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)";
    bed.app.execute(deferred).await;
    bed.app.execute("BEGIN").await;
    bed.app.insert(keyed("leaf", "refused commit")).await;
    bed.app.execute("INSERT INTO t VALUES (1), (1)").await;
    bed.app
        .client()
        .batch_execute("COMMIT")
        .await
        .expect_err("a refused commit");
    let vanishing = App::connect(&bed.database.url).await;
    vanishing.execute("BEGIN").await;
    vanishing.insert(keyed("leaf", "vanished")).await;
    drop(vanishing);

    // This one is later than all of them: when it is confirmed, they would have been.
    let id = bed.app.insert(keyed("leaf", "committed")).await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(
        bed.leaf.all_effects(),
        [("committed".to_owned(), 1)].into(),
        "only what was committed"
    );
    assert_eq!(rows_in_all(&bed.app).await, 2, "the call and its result");
}

#[tokio::test]
async fn a_savepoint_that_rolls_back_takes_only_its_own_calls_along() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    bed.app.execute("BEGIN").await;
    let before = bed.app.insert(keyed("leaf", "before")).await;
    bed.app.execute("SAVEPOINT s").await;
    let within = bed.app.insert(keyed("leaf", "within")).await;
    bed.app.execute("ROLLBACK TO s").await;
    let after = bed.app.insert(keyed("leaf", "after")).await;
    bed.app.execute("COMMIT").await;
    bed.app.until_state(before, "confirmed").await;
    bed.app.until_state(after, "confirmed").await;
    bed.leaf.assert_each_effect_once(["before", "after"]);
    assert_eq!(bed.leaf.effects("within"), 0);
    let gone = format!("SELECT id FROM leafhopper.call WHERE id = {within}");
    assert!(bed.app.rows(&gone).await.is_empty());
}

#[tokio::test]
async fn an_id_that_commits_late_is_sent_all_the_same() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let late = App::connect(&bed.database.url).await;
    late.execute("BEGIN").await;
    let first = late.insert(keyed("leaf", "late")).await;
    let mut later = Vec::new();
    for n in 0..20 {
        let key = format!("early-{n}");
        later.push(bed.app.insert(keyed("leaf", &key)).await);
    }
    for id in &later {
        assert!(*id > first, "taken after");
        bed.app.until_state(*id, "confirmed").await;
    }
    assert_eq!(bed.leaf.effects("late"), 0);
    late.execute("COMMIT").await;
    bed.app.until_state(first, "confirmed").await;
    assert_eq!(bed.leaf.effects("late"), 1);
}

#[tokio::test]
async fn a_prepared_transaction_s_call_waits_for_its_second_phase() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let name = &bed.database.name;
    for (key, end) in [
        ("kept", "COMMIT PREPARED"),
        ("given up", "ROLLBACK PREPARED"),
    ] {
        bed.app
            .execute("BEGIN; SET LOCAL leafhopper.notify = off")
            .await;
        bed.app.insert(keyed("leaf", key)).await;
        bed.app
            .execute(&format!("PREPARE TRANSACTION '{name}'"))
            .await;
        holds_for(
            Duration::from_millis(200),
            "nothing is sent",
            async || match bed.leaf.requests(key) {
                requests if requests.is_empty() => Ok(()),
                requests => Err(requests),
            },
        )
        .await;
        bed.app.execute(&format!("{end} '{name}'")).await;
    }
    until("the kept one is confirmed", async || {
        match bed.app.results("leaf", "kept").await.len() {
            1 => Ok(()),
            n => Err(n),
        }
    })
    .await;
    assert_eq!(bed.leaf.all_effects(), [("kept".to_owned(), 1)].into());
}
