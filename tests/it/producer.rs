//! The producer is never harmed: an INSERT does not fail or wait because a sidecar is slow, absent or
//! ill.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    Bed,
    app::{App, keyed},
    wait::{holds_for, until},
};

/// An app whose statements fail where they have to wait.
pub(crate) async fn impatient(bed: &Bed) -> App {
    let app = App::connect(&bed.database.url).await;
    app.execute("SET statement_timeout = '10s'; SET lock_timeout = '500ms'")
        .await;
    app
}

pub(crate) async fn until_sleeping(app: &App) {
    until("an instance sleeps", async || {
        let mark = "SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000 AS sleeping \
                      FROM leafhopper.sleeping_until";
        match app.rows(mark).await.remove(0) {
            row if row["sleeping"] == true => Ok(()),
            row => Err(row),
        }
    })
    .await;
}

#[tokio::test]
async fn an_insert_needs_no_sidecar() {
    let bed = Bed::new().await;
    let app = impatient(&bed).await;
    let mut keys = Vec::new();
    let insert = async |when: &str, keys: &mut Vec<String>| {
        for n in 0..3 {
            let key = format!("{when} {n}");
            app.insert(keyed("leaf", &key)).await;
            keys.push(key);
        }
    };
    insert("before any ran", &mut keys).await;
    let config = bed.config("").dispatch("lease = \"1s\"");
    let mut sidecar = config.start().await;
    until_confirmed(&bed, &keys).await;
    until_sleeping(&bed.app).await;
    sidecar.signal(Signal::STOP);
    insert("while it is stopped", &mut keys).await;
    sidecar.signal(Signal::CONT);
    insert("while it runs", &mut keys).await;
    // What is under way at a kill would be in doubt.
    until_confirmed(&bed, &keys).await;
    sidecar.kill();
    insert("after it was killed", &mut keys).await;
    sidecar.restart().await;
    until_confirmed(&bed, &keys).await;
    bed.leaf.assert_each_effect_once(&keys);
}

async fn until_confirmed(bed: &Bed, keys: &[String]) {
    until("all are confirmed", async || {
        let left = "SELECT key, state, reason FROM leafhopper.call WHERE state <> 'confirmed'";
        match bed.app.rows(left).await {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })
    .await;
    let results = bed.app.rows("SELECT key FROM leafhopper.result").await;
    assert_eq!(results.len(), keys.len());
}

#[tokio::test]
async fn a_long_report_holds_up_neither_producer_nor_sidecar() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let before = bed.app.insert(keyed("leaf", "before")).await;
    bed.app.until_state(before, "confirmed").await;
    let report = App::connect(&bed.database.url).await;
    report
        .execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; \
             SELECT count(*) FROM leafhopper.call; \
             SELECT count(*) FROM leafhopper.batch; \
             LOCK TABLE leafhopper.outbox, leafhopper.dispatch, leafhopper.finished, leafhopper.result, \
                        leafhopper.attempt, leafhopper.instance, leafhopper.batch IN ACCESS SHARE MODE; \
             SELECT id FROM leafhopper.outbox FOR KEY SHARE",
        )
        .await;
    // What VACUUM, ANALYZE and CREATE INDEX CONCURRENTLY hold.
    let vacuum = App::connect(&bed.database.url).await;
    vacuum
        .execute(
            "BEGIN; LOCK TABLE leafhopper.outbox, leafhopper.dispatch, leafhopper.result, leafhopper.finished \
             IN SHARE UPDATE EXCLUSIVE MODE",
        )
        .await;
    let app = impatient(&bed).await;
    for n in 0..20 {
        let id = app.insert(keyed("leaf", &format!("k{n}"))).await;
        if n % 5 == 0 {
            app.until_state(id, "confirmed").await;
        }
    }
    report.execute("SELECT count(*) FROM leafhopper.call").await;
    report.execute("COMMIT").await;
    vacuum.execute("COMMIT").await;
}

#[tokio::test]
async fn a_lock_on_the_sidecar_s_tables_delays_its_work_and_loses_none() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("concurrency = 4").await;
    let lock = App::connect(&bed.database.url).await;
    // What an index that is built without CONCURRENTLY takes.
    lock.execute("BEGIN; LOCK TABLE leafhopper.result IN SHARE MODE")
        .await;
    let app = impatient(&bed).await;
    for n in 0..20 {
        app.insert(keyed("leaf", &format!("k{n}"))).await;
    }
    until("its slots are taken", async || {
        match bed.leaf.all_requests().len() {
            4.. => Ok(()),
            n => Err(n),
        }
    })
    .await;
    holds_for(
        Duration::from_millis(700),
        "what can't be recorded ends what is sent",
        async || match bed.leaf.all_requests().len() {
            4..=16 => Ok(()),
            n => Err(n),
        },
    )
    .await;
    lock.execute("COMMIT").await;
    until("all are confirmed", async || {
        let left = "SELECT state, reason FROM leafhopper.call WHERE state <> 'confirmed'";
        match app.rows(left).await {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })
    .await;
    bed.leaf
        .assert_each_effect_once((0..20).map(|n| format!("k{n}")));
    assert!(
        app.rows("SELECT * FROM leafhopper.attempt")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn producers_do_not_wait_for_one_another() {
    let bed = Bed::new().await;
    let batch = uuid::Uuid::new_v4();
    let row = || {
        keyed("leaf", "k")
            .set("ordering_key", "o")
            .batch(batch)
            .set("credential", "c")
    };
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (one, two) = (impatient(&bed).await, impatient(&bed).await);
        for app in [&one, &two] {
            app.execute(&format!("BEGIN ISOLATION LEVEL {isolation}"))
                .await;
        }
        for app in [&one, &two, &one, &two] {
            app.insert(row()).await;
        }
        two.execute("COMMIT").await;
        one.execute("COMMIT").await;
    }
    let count = bed
        .app
        .rows("SELECT count(*) FROM leafhopper.dispatch")
        .await;
    assert_eq!(count, [json!({"count": 12})]);
}

#[tokio::test]
async fn the_role_s_default_isolation_changes_nothing() {
    let bed = Bed::new().await;
    for isolation in ["repeatable read", "serializable"] {
        let name = &bed.database.name;
        bed.app
            .execute(&format!(
                "ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{isolation}'"
            ))
            .await;
        let config = bed.config("");
        let mut sidecars = [config.start().await, config.start().await];
        let app = impatient(&bed).await;
        let mut calls = Vec::new();
        for n in 0..30 {
            let key = format!("{isolation} {n}");
            calls.push(app.insert(keyed("leaf", &key)).await);
        }
        for id in calls {
            app.until_state(id, "confirmed").await;
        }
        for sidecar in &mut sidecars {
            assert!(sidecar.stop().await.success());
        }
    }
    assert_eq!(bed.leaf.all_requests().len(), 60);
}

#[tokio::test]
async fn ten_thousand_rows_go_in_by_one_statement_or_by_copy() {
    let bed = Bed::new().await;
    let app = impatient(&bed).await;
    app.execute(
        "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'nobody', '/' FROM generate_series(1, 10000)",
    )
    .await;
    let sink = app
        .client()
        .copy_in::<_, bytes::Bytes>("COPY leafhopper.outbox (leaf, key, path, body) FROM STDIN")
        .await
        .unwrap();
    let lines: String = (0..1000)
        .map(|n| format!("leaf\tcopy {n}\t/things\t{{\"key\": \"copy {n}\"}}\n"))
        .collect();
    let mut sink = std::pin::pin!(sink);
    futures_util::SinkExt::send(&mut sink, lines.into())
        .await
        .unwrap();
    assert_eq!(sink.finish().await.unwrap(), 1000);
    let counts = "SELECT (SELECT count(*) FROM leafhopper.outbox) AS outbox, \
                         (SELECT count(*) FROM leafhopper.dispatch) AS dispatch";
    assert_eq!(
        bed.app.rows(counts).await,
        [json!({"outbox": 11000, "dispatch": 11000})]
    );

    // One bad row of many refuses the statement, and leaves none.
    let bad = "INSERT INTO leafhopper.outbox (leaf, path) \
               SELECT 'leaf', CASE WHEN n = 500 THEN 'bad' ELSE '/' END FROM generate_series(1, 1000) n";
    app.client().batch_execute(bad).await.unwrap_err();
    assert_eq!(
        bed.app.rows(counts).await,
        [json!({"outbox": 11000, "dispatch": 11000})]
    );

    let _sidecar = bed.sidecar("").await;
    until("those of the known leaf are confirmed", async || {
        let confirmed = "SELECT count(*) FROM leafhopper.result";
        match bed.app.rows(confirmed).await.remove(0) {
            row if row["count"] == 1000 => Ok(()),
            row => Err(row),
        }
    })
    .await;
    bed.leaf
        .assert_each_effect_once((0..1000).map(|n| format!("copy {n}")));
}

#[tokio::test]
async fn a_lock_on_results_costs_no_lease_however_many_answers_wait() {
    let bed = Bed::new().await;
    let config = bed.config("concurrency = 400").dispatch("lease = \"8s\"");
    let _sidecars = [config.start().await, config.start().await];
    let lock = App::connect(&bed.database.url).await;
    lock.execute("BEGIN; LOCK TABLE leafhopper.result IN SHARE MODE")
        .await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
             SELECT 'leaf', 'k' || n, '/things', jsonb_build_object('key', 'k' || n) \
               FROM generate_series(1, 400) AS n",
        )
        .await;
    until("all are sent", async || {
        match bed.leaf.all_requests().len() {
            400 => Ok(()),
            n => Err(n),
        }
    })
    .await;
    holds_for(Duration::from_secs(10), "no call is taken over", async || {
        let lost = "SELECT state, count(*) FROM leafhopper.dispatch WHERE state <> 'dispatching' GROUP BY state";
        match bed.app.rows(lost).await {
            lost if lost.is_empty() => Ok(()),
            lost => Err(lost),
        }
    })
    .await;
    lock.execute("COMMIT").await;
    until("all are confirmed", async || {
        let left = "SELECT state, reason, count(*) FROM leafhopper.call WHERE state <> 'confirmed' GROUP BY 1, 2";
        match bed.app.rows(left).await {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })
    .await;
    assert_eq!(bed.leaf.all_requests().len(), 400);
}
