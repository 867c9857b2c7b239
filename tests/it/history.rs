//! What people and Prometheus read is answered as quickly beside ten million finished calls as beside none, and reads
//! no table of the history from its start to its end. `make history`; `HISTORY_CALLS=100000` makes it shorter.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::harness::{
    app::{App, call},
    database::Database,
    leaf::Leaf,
    sidecar::{Config, Sidecar},
};

const CALLS: i64 = 10_000_000;
/// So many looks at each path.
const LOOKS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes and gigabytes: make history"]
async fn ten_million_finished_calls_slow_no_look_down() {
    let calls = std::env::var("HISTORY_CALLS").map_or(CALLS, |calls| calls.parse().unwrap());
    let database = Database::empty().await;
    let leaf = Leaf::start().await;
    let config = Config::new(&database.url).leaf("leaf", &leaf.url(), "");
    let starter = config.sidecar();
    assert!(starter.command(&["migrate"]).await.status.success());
    let app = App::connect(&database.url).await;
    let began = Instant::now();
    fill(&app, calls).await;
    println!("{calls} calls in {:.0} s", began.elapsed().as_secs_f64());
    let sidecar = starter.start().await;
    for key in ["one", "two"] {
        app.insert(call("leaf").key(key)).await;
        app.insert(call("nobody").key(key)).await;
    }
    let middle = calls / 2;
    let batch = app
        .rows(&format!("SELECT batch_id::text FROM leafhopper.outbox WHERE id > {middle} AND batch_id IS NOT NULL ORDER BY id LIMIT 1"))
        .await;
    let batch = batch[0]["batch_id"].as_str().unwrap().to_owned();
    let before = scans(&app).await;
    let mut slow = Vec::new();
    for (path, limit) in [
        ("/metrics".to_owned(), 20),
        ("/".to_owned(), 200),
        ("/calls".to_owned(), 200),
        ("/calls?state=failed".to_owned(), 200),
        ("/calls?stuck=true".to_owned(), 200),
        ("/batches".to_owned(), 200),
        (format!("/calls/{middle}"), 200),
        (format!("/batches/{batch}"), 200),
        (format!("/search?q=k{middle}"), 200),
        (format!("/api/v1/calls?key=k{middle}"), 200),
        ("/api/v1/leaves".to_owned(), 200),
        ("/api/v1/calls?state=confirmed".to_owned(), 200),
        ("/api/v1/batches?state=cancelled".to_owned(), 200),
        ("/api/v1/batches?state=open".to_owned(), 200),
        (format!("/api/v1/calls/{middle}"), 200),
    ] {
        let times = look(&sidecar, &path).await;
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!(
            "{path:<32} median {:>6.1} ms, longest {:>6.1} ms",
            median.as_secs_f64() * 1e3,
            longest.as_secs_f64() * 1e3
        );
        // The longest is often the machine's.
        if median > Duration::from_millis(limit) {
            slow.push(format!("{path}: {median:?}, {limit} ms are allowed"));
        }
    }
    // The first look after each of the planner's statistics may be slow; what a look reads is not a matter of luck.
    assert_eq!(
        scans(&app).await,
        before,
        "tables that were read as a whole"
    );
    assert!(slow.is_empty(), "{slow:#?}");
}

/// How long each look at this path took, the shortest first.
async fn look(sidecar: &Sidecar, path: &str) -> Vec<Duration> {
    let mut times = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let began = Instant::now();
        let (status, body) = sidecar.get(path).await;
        assert!(matches!(status, 200 | 303), "{path}: {status} {body}");
        times.push(began.elapsed());
    }
    times.sort();
    times
}

/// How often each table of the history was read as a whole.
async fn scans(app: &App) -> Vec<Value> {
    app.rows(
        "SELECT relname, seq_scan FROM pg_stat_user_tables \
          WHERE relname IN ('outbox', 'result', 'finished', 'attempt', 'batch') ORDER BY 1",
    )
    .await
}

/// Of twenty calls one failed; of ten, three are a batch's.
async fn fill(app: &App, calls: i64) {
    app.execute(&format!(
        "SET session_replication_role = replica; SET synchronous_commit = off; SET maintenance_work_mem = '1GB'; \
         INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, created_at) \
         SELECT 'leaf', 'k' || n, '/things', jsonb_build_object('n', n, 'note', md5(n::text)), \
                CASE WHEN n % 10 < 3 THEN md5((n / 10)::text)::uuid END, \
                now() - interval '90 days' * (1 - n / {calls}.0) \
           FROM generate_series(1, {calls}) AS n; \
         INSERT INTO leafhopper.result (leaf, key, generation, call_id, attempts, status, body, source, confirmed_at, batch_id) \
         SELECT leaf, key, 1, id, 1, 201, body, 'response', created_at, batch_id \
           FROM leafhopper.outbox WHERE id % 20 <> 7; \
         INSERT INTO leafhopper.finished (call_id, state, reason, attempts, last_status, finished_at, batch_id) \
         SELECT id, 'failed', 'rejected', 1, 422, created_at, batch_id FROM leafhopper.outbox WHERE id % 20 = 7; \
         INSERT INTO leafhopper.attempt (call_id, attempt, class, status, finished_at) \
         SELECT call_id, 1, 'failed', 422, finished_at FROM leafhopper.finished; \
         INSERT INTO leafhopper.batch (id, state, created_at, changed_at, finished_at) \
         SELECT md5(n::text)::uuid, 'succeeded', at, at, at \
           FROM (SELECT n, now() - interval '90 days' * (1 - n * 10 / {calls}.0) AS at \
                   FROM generate_series(0, {calls} / 10) AS n) b; \
         SET session_replication_role = origin"
    ))
    .await;
    app.execute("VACUUM (ANALYZE)").await;
}
