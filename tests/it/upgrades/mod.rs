//! A newer schema under instances that run, and under producers that insert: nothing is lost, doubled, or kept waiting.

mod locks;
mod rolling;

use std::time::Duration;

use leafhopper::store::{
    connect::Connect,
    migrate::{KNOWN, MIGRATIONS, MigrateError, Migration, apply},
};
use secrecy::SecretString;
use tokio::time::Instant;

use crate::harness::{
    Bed,
    app::{App, keyed},
    leaf::Gate,
    wait::until,
};

/// The migrations that there are, and this one after them.
fn followed_by(sql: &'static str) -> Vec<Migration> {
    let next = Migration {
        version: KNOWN + 1,
        name: "next",
        sql,
    };
    MIGRATIONS.iter().copied().chain([next]).collect()
}

/// As `leafhopper migrate` would; gives how many were applied.
async fn migrate(bed: &Bed, migrations: &[Migration]) -> Result<usize, MigrateError> {
    let url = SecretString::from(bed.database.url.clone());
    let connect = Connect::parse(&url).unwrap();
    Ok(apply(&connect, migrations).await?.len())
}

/// Inserts as an app does, and says how long it took.
async fn timed_insert(app: &App, key: &str) -> Duration {
    let begun = Instant::now();
    let values = format!("'{key}', '{{\"key\": \"{key}\"}}'");
    app.insert_values("key, body", &values).await;
    begun.elapsed()
}

#[tokio::test]
async fn an_instance_that_the_schema_has_outgrown_ends_what_it_does_and_says_why() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .on("/things")
        .waits_before_the_answer(&gate)
        .answers(201);
    let config = bed.config("").dispatch("lease = \"1s\"");
    let mut sidecar = config.start().await;
    let id = bed.app.insert(keyed("leaf", "under way")).await;
    bed.leaf.until_requests("under way", 1).await;
    // One that it can work with is none of its concern.
    let later = format!(
        "INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (1000, 'later', {KNOWN})"
    );
    bed.app.execute(&later).await;
    let beats = sidecar.metric("leafhopper_instances", &[]).await;
    assert!(beats > 0.0);
    bed.app
        .execute("UPDATE leafhopper.schema_version SET oldest_reader = 1000 WHERE version = 1000")
        .await;
    until("it stops claiming", async || {
        let said = format!("{:?}", sidecar.log());
        if said.contains("has gone on to where") {
            Ok(())
        } else {
            Err(said)
        }
    })
    .await;
    gate.open();
    assert_eq!(sidecar.exit().await.code(), Some(1));
    until("it says why", async || {
        let said = format!("{:?}", sidecar.log());
        if said.contains("the database's schema is version 1000") {
            Ok(())
        } else {
            Err(said)
        }
    })
    .await;
    assert_eq!(bed.app.state(id).await, "confirmed");
    let next = bed.app.insert(keyed("leaf", "left to others")).await;
    assert_eq!(bed.app.state(next).await, "pending");
}

#[tokio::test]
async fn an_instance_that_is_ahead_of_the_schema_does_not_start() {
    let bed = Bed::new().await;
    bed.app
        .execute(&format!(
            "DELETE FROM leafhopper.schema_version WHERE version = {KNOWN}"
        ))
        .await;
    let mut sidecar = bed.config("").sidecar().launch();
    assert_eq!(sidecar.exit().await.code(), Some(1));
    let said = format!("{:?}", sidecar.log());
    let told = format!("the database's schema is version {}", KNOWN - 1);
    assert!(
        said.contains(&told) && said.contains("leafhopper migrate"),
        "{said}"
    );
    let instances = bed.app.rows("SELECT id FROM leafhopper.instance").await;
    assert!(instances.is_empty());
}
