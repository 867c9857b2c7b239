//! The connections that an instance may have, also while instances are killed and started again (docs/deploy.md).

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Bed,
    app::{App, call},
    sidecar::{Config, Sidecar},
    wait::until_within,
};

/// `database.pool_size` of these instances.
const POOL: i64 = 2;

/// What docs/deploy.md adds to it: LISTEN, scrapes, and two for people.
const BESIDE: i64 = 4;

/// Sessions in this database but the app's own.
async fn sessions(app: &App) -> i64 {
    let sql = "SELECT count(*) AS sessions FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    app.rows(sql).await[0]["sessions"].as_i64().unwrap()
}

#[tokio::test]
async fn instances_keep_to_their_connections_and_killed_ones_leave_none() {
    let bed = Bed::new().await;
    let config = bed
        .config("idempotency = { header = \"Idempotency-Key\", window = \"1h\" }")
        .dispatch("lease = \"1s\"")
        .text();
    let config = config.replacen(
        "[database]\n",
        &format!("[database]\npool_size = {POOL}\n"),
        1,
    );
    let mut sidecars: Vec<Sidecar> = Vec::new();
    for _ in 0..3 {
        let starter = Config::new("").sidecar();
        starter.rewrite_text(&config);
        sidecars.push(starter.start().await);
    }
    let most = (POOL + BESIDE) * 3;
    for round in 0..2 {
        for each in 0..sidecars.len() {
            for number in 0..20 {
                let key = format!("{round}:{each}:{number}");
                let row = call("leaf").key(&key).body(json!({ "key": key }));
                bed.app.insert(row).await;
            }
            for sidecar in &sidecars {
                assert_eq!(sidecar.get("/metrics").await.0, 200);
                let (first, second) =
                    tokio::join!(sidecar.get("/api/v1/calls"), sidecar.get("/api/v1/leaves"));
                assert_eq!((first.0, second.0), (200, 200));
            }
            let seen = sessions(&bed.app).await;
            assert!(seen <= most, "{seen} sessions, {most} are said");
            assert!(
                seen > 3,
                "{seen} sessions: it does not look at the right ones"
            );
            sidecars[each].kill();
            sidecars[each].restart().await;
        }
    }
    for sidecar in &mut sidecars {
        sidecar.kill();
    }
    let limit = Duration::from_secs(10);
    until_within(limit, "no session is left", async || {
        match sessions(&bed.app).await {
            0 => Ok(()),
            left => Err(left),
        }
    })
    .await;
}
