//! The connections that an instance may have, also while instances are killed and started again (docs/deploy.md).

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{App, call},
    sidecar::{Config, Sidecar},
    wait::{until, until_within},
};

/// `database.pool_size` of these instances.
const POOL: i64 = 2;

/// What docs/deploy.md adds to it: LISTEN, scrapes, and two for people.
const BESIDE: i64 = 4;

const REPLICAS: usize = 5;

/// The database has no more for them: as much as is said, and once more for the one that is being replaced, whose sessions
/// end as the server finds out.
const LIMIT: i64 = (POOL + BESIDE) * 6;

/// Sessions in this database but the app's own.
async fn sessions(app: &App) -> i64 {
    let sql = "SELECT count(*) AS sessions FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    app.rows(sql).await[0]["sessions"].as_i64().unwrap()
}

#[tokio::test]
async fn instances_keep_to_their_connections_and_killed_ones_leave_none() {
    let bed = Bed::new().await;
    let limit = format!(
        "ALTER DATABASE \"{}\" CONNECTION LIMIT {LIMIT}",
        bed.database.name
    );
    bed.app.execute(&limit).await;
    // Limits are for those who are no superusers.
    let config = bed
        .least_config(
            "timeout = \"2s\"\nidempotency = { header = \"Idempotency-Key\", window = \"1h\" }",
        )
        .dispatch("lease = \"1s\"")
        .text();
    let config = config.replacen(
        "[database]\n",
        &format!("[database]\npool_size = {POOL}\n"),
        1,
    );
    let mut sidecars: Vec<Sidecar> = Vec::new();
    for _ in 0..REPLICAS {
        let starter = Config::new("").sidecar();
        starter.rewrite_text(&config);
        sidecars.push(starter.start().await);
    }
    let most = (POOL + BESIDE) * i64::try_from(REPLICAS).unwrap();
    for each in 0..sidecars.len() {
        for number in 0..20 {
            let key = format!("{each}:{number}");
            let row = call("leaf").key(&key).body(json!({ "key": key }));
            bed.app.insert(row).await;
        }
        for sidecar in &sidecars {
            assert_eq!(sidecar.get("/metrics").await.0, 200);
            let (first, second) =
                tokio::join!(sidecar.get("/api/v1/calls"), sidecar.get("/api/v1/leaves"));
            assert_eq!((first.0, second.0), (200, 200));
        }
        // Those of the one that was killed last may just be ending.
        let kept = async || match sessions(&bed.app).await {
            seen if (6..=most).contains(&seen) => Ok(()),
            seen => Err(seen),
        };
        until("there are as many sessions as are said, at most", kept).await;
        sidecars[each].kill();
        sidecars[each].restart().await;
    }
    bed.app.until_all_confirmed(REPLICAS * 20).await;
    for sidecar in &sidecars {
        let refused = |line: &Value| line.to_string().contains("too many connections");
        let log = sidecar.log();
        assert!(!log.iter().any(refused), "{log:#?}");
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
