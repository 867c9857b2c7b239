//! The insert trigger's notification: a hint without content, which neither a full queue nor a prepared
//! transaction is harmed by.

use serde_json::json;
use tokio_postgres::{AsyncMessage, error::SqlState};

use crate::{
    harness::{
        Bed,
        app::{App, keyed},
    },
    producer::{impatient, until_sleeping},
};

#[tokio::test]
async fn a_notification_carries_nothing_and_comes_once_for_a_transaction() {
    let bed = Bed::new().await;
    let mut heard = listen(&bed).await;
    bed.app
        .execute("SELECT setval('leafhopper.sleeping_until', 9000000000000)")
        .await;
    let app = impatient(&bed).await;
    app.execute("BEGIN").await;
    for _ in 0..50 {
        // More than a notification's payload may hold.
        app.insert_values("body", "to_jsonb(repeat('x', 100 * 1024))")
            .await;
    }
    app.execute("COMMIT").await;
    app.execute("NOTIFY leafhopper_wake, 'the end'").await;
    assert_eq!(heard.recv().await.as_deref(), Some(""));
    assert_eq!(heard.recv().await.as_deref(), Some("the end"));
}

#[tokio::test]
async fn a_listener_that_lags_does_not_fill_the_queue() {
    let bed = Bed::new().await;
    // A listener inside a transaction keeps every notification in the queue.
    let lagging = App::connect(&bed.database.url).await;
    lagging
        .execute("LISTEN leafhopper_wake; BEGIN; SELECT 1")
        .await;
    bed.app
        .execute("SELECT setval('leafhopper.sleeping_until', 9000000000000)")
        .await;
    let app = impatient(&bed).await;
    for _ in 0..20 {
        app.execute(
            "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/' FROM generate_series(1, 1000)",
        )
        .await;
    }
    let usage = "SELECT pg_notification_queue_usage() < 0.001 AS low";
    assert_eq!(app.rows(usage).await, [json!({"low": true})]);
}

#[tokio::test]
async fn a_queue_that_fills_up_gets_no_more_from_inserts() {
    let bed = Bed::new().await;
    let mut heard = listen(&bed).await;
    let sidecar = bed.sidecar("").await;
    until_sleeping(&bed.app).await;
    // It takes 8 GB to fill (from PostgreSQL 17 on max_notify_queue_pages says how much): this database is told that
    // a tenth of it is in use.
    bed.app
        .execute(
            "SET allow_system_table_mods = on; \
             CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS double precision \
             LANGUAGE sql STABLE AS 'SELECT 0.1::float8'",
        )
        .await;
    let app = impatient(&bed).await;
    let id = app.insert(keyed("leaf", "k")).await;
    app.until_state(id, "confirmed").await;
    app.execute("NOTIFY leafhopper_wake, 'the end'").await;
    assert_eq!(heard.recv().await.as_deref(), Some("the end"));
    drop(sidecar);
}

/// The payloads of `leafhopper_wake`.
async fn listen(bed: &Bed) -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let connected = tokio_postgres::connect(&bed.database.url, tokio_postgres::NoTls).await;
    let (client, mut connection) = connected.unwrap();
    let (sender, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            match std::future::poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    sender.send(notification.payload().to_owned()).ok();
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    client
        .batch_execute("LISTEN leafhopper_wake")
        .await
        .unwrap();
    // It ends with the test.
    std::mem::forget(client);
    heard
}

#[tokio::test]
async fn an_insert_that_does_not_notify_can_be_prepared() {
    let bed = Bed::new().await;
    bed.app
        .execute("SELECT setval('leafhopper.sleeping_until', 9000000000000)")
        .await;
    let name = format!("{} off", bed.database.name);
    for (off, is_prepared) in [
        ("SET LOCAL leafhopper.notify = off", true),
        ("SET LOCAL leafhopper.notify = 'false'", true),
        ("SET LOCAL leafhopper.notify = on", false),
        ("SELECT", false),
    ] {
        let app = impatient(&bed).await;
        app.execute("BEGIN").await;
        app.execute(off).await;
        app.insert(keyed("leaf", off)).await;
        let prepare = format!("PREPARE TRANSACTION '{name}'");
        match app.client().batch_execute(&prepare).await {
            Ok(()) => {
                bed.app.execute(&format!("COMMIT PREPARED '{name}'")).await;
                assert!(is_prepared, "{off}");
            }
            Err(error) => {
                assert_eq!(error.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED));
                assert!(!is_prepared, "{off}: {error:?}");
            }
        }
    }
}
