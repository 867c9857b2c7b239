//! How fast a backlog drains: leafhopper against a bare loop of the same shape, in one run, in turns.
//!
//! The bare loop is the floor with durable claims: one batched `UPDATE … SKIP LOCKED`, a POST for each row,
//! one batched record that deletes the queue's row and inserts the result; no guards, no exclusion of keys, no
//! history, no metrics. PostgreSQL waits for the disk at each commit, and shares the machine with the leaf,
//! the loop and the sidecar. Quote medians and ratios.
//!
//! `cargo bench --bench drain -- [CALLS [ROUNDS]]`

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark stops at the first fault and prints"
)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the bans are for the sidecar"
)]

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leafhopper::demo::{
    binaries::Binaries,
    cluster::{Cluster, Durability, Options},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::Semaphore,
};
use tokio_postgres::{Client, NoTls};

/// Attempts at once, as in the other systems' measurements.
const CONCURRENCY: usize = 64;

/// The bare loop takes and records so many at once.
const CHUNK: i64 = 256;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let calls = numbers.first().copied().unwrap_or(20_000);
    let rounds = numbers.get(1).copied().unwrap_or(3);
    runtime.block_on(compare(calls, usize::try_from(rounds).unwrap()));
}

async fn compare(calls: u64, rounds: usize) {
    let here = std::env::current_dir().unwrap();
    let cluster = tokio::task::block_in_place(|| {
        let binaries = Binaries::find(None, &[&here]).unwrap();
        Cluster::start(Options {
            binaries,
            durability: Durability::Synced,
            settings: Vec::new(),
        })
        .unwrap()
    });
    let leaf = Leaf::start().await;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        bare.push(bare_loop(&cluster, &format!("bare_{round}"), &leaf, calls).await);
        ours.push(sidecar(&cluster, &format!("ours_{round}"), &leaf, calls).await);
        println!(
            "round {}: bare loop {:.0}/s, leafhopper {:.0}/s",
            round + 1,
            bare[round],
            ours[round]
        );
    }
    let (bare, ours) = (median(bare), median(ours));
    println!("\n{calls} calls, {CONCURRENCY} at once, medians of {rounds} rounds in turns:");
    println!("  bare loop   {bare:>8.0} calls/s");
    println!(
        "  leafhopper  {ours:>8.0} calls/s   {:.2} of the bare loop",
        ours / bare
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Answers 201 at once, and counts.
struct Leaf {
    port: u16,
    answered: Arc<AtomicU64>,
}

impl Leaf {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answered = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&answered);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(answer(stream, Arc::clone(&counter)));
            }
        });
        Self { port, answered }
    }
}

async fn answer(stream: TcpStream, answered: Arc<AtomicU64>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
        answered.fetch_add(1, Ordering::Relaxed);
        let text = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"id\": 123}";
        stream.get_mut().write_all(text.as_bytes()).await?;
    }
}

async fn connect(cluster: &Cluster, database: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&cluster.url(database), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

/// A body of 285 bytes.
const BODY: &str = "jsonb_build_object('i', i, 'pad', repeat('x', 263))";

async fn until_drained(client: &Client, query: &str) {
    loop {
        let left: i64 = client.query_one(query, &[]).await.unwrap().get(0);
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The sidecar's release, on a backlog that is there before it starts.
async fn sidecar(cluster: &Cluster, database: &str, leaf: &Leaf, calls: u64) -> f64 {
    tokio::task::block_in_place(|| cluster.create_database(database, None).unwrap());
    let folder = std::env::temp_dir().join(format!(
        "leafhopper-bench-{}-{database}",
        std::process::id()
    ));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("leafhopper.toml");
    let config = format!(
        "[database]\nurl = \"{}?sslmode=disable\"\n[listen]\naddress = \"127.0.0.1:0\"\n\
         [leaf.bench]\nbase_url = \"http://127.0.0.1:{}\"\nconcurrency = {CONCURRENCY}\n",
        cluster.url(database),
        leaf.port
    );
    std::fs::write(&file, config).unwrap();
    let command = |word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leafhopper"));
        command
            .arg("--config")
            .arg(&file)
            .arg(word)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.kill_on_drop(true);
        command
    };
    assert!(command("migrate").status().await.unwrap().success());
    let client = connect(cluster, database).await;
    let insert = format!(
        "INSERT INTO leafhopper.outbox (leaf, path, body) SELECT 'bench', '/', {BODY} FROM generate_series(1, {calls}) i"
    );
    client.batch_execute(&insert).await.unwrap();
    client.batch_execute("VACUUM ANALYZE").await.unwrap();
    client.batch_execute("CHECKPOINT").await.unwrap();
    let before = leaf.answered.load(Ordering::Relaxed);
    let mut process = command("run").spawn().unwrap();
    // From the first answer on: what a process takes to start is not what is measured.
    while leaf.answered.load(Ordering::Relaxed) == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let started = Instant::now();
    until_drained(&client, "SELECT count(*) FROM leafhopper.dispatch").await;
    let rate = per_second(calls, started.elapsed());
    process.kill().await.unwrap();
    let results: i64 = client
        .query_one("SELECT count(*) FROM leafhopper.result", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(results.unsigned_abs(), calls);
    assert_eq!(
        leaf.answered.load(Ordering::Relaxed) - before,
        calls,
        "each call was sent once"
    );
    std::fs::remove_dir_all(&folder).unwrap();
    rate
}

#[expect(clippy::cast_precision_loss, reason = "a count of calls")]
fn per_second(calls: u64, time: Duration) -> f64 {
    calls as f64 / time.as_secs_f64()
}

/// Nothing but claim, send, record.
async fn bare_loop(cluster: &Cluster, database: &str, leaf: &Leaf, calls: u64) -> f64 {
    tokio::task::block_in_place(|| cluster.create_database(database, None).unwrap());
    let client = connect(cluster, database).await;
    client
        .batch_execute(&format!(
            "CREATE TABLE queue (id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'ready', body text);
             CREATE INDEX ON queue (id) WHERE state = 'ready';
             CREATE TABLE result (id bigint PRIMARY KEY, status int, body jsonb, at timestamptz DEFAULT now());
             INSERT INTO queue (id, body) SELECT i, {BODY}::text FROM generate_series(1, {calls}) i;"
        ))
        .await
        .unwrap();
    client.batch_execute("VACUUM ANALYZE").await.unwrap();
    client.batch_execute("CHECKPOINT").await.unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://127.0.0.1:{}/", leaf.port);
    let slots = Arc::new(Semaphore::new(CONCURRENCY));
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel::<(i64, i32, String)>();
    let recorder = connect(cluster, database).await;
    let started = Instant::now();
    let recording = tokio::spawn(async move {
        let (mut group, mut recorded) = (Vec::new(), 0);
        let statement = recorder
            .prepare(
                "WITH i AS (SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[]) u (id, status, body)),
                      gone AS (DELETE FROM queue q USING i WHERE q.id = i.id)
                 INSERT INTO result (id, status, body) SELECT id, status, body::jsonb FROM i",
            )
            .await
            .unwrap();
        while recorded < calls {
            finished.recv_many(&mut group, 512).await;
            let ids: Vec<i64> = group.iter().map(|(id, ..)| *id).collect();
            let statuses: Vec<i32> = group.iter().map(|(_, status, _)| *status).collect();
            let bodies: Vec<&str> = group.iter().map(|(.., body)| body.as_str()).collect();
            recorded += recorder
                .execute(&statement, &[&ids, &statuses, &bodies])
                .await
                .unwrap();
            group.clear();
        }
    });
    let claim = client
        .prepare(
            "UPDATE queue q SET state = 'claimed'
               FROM (SELECT id FROM queue WHERE state = 'ready' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) r
              WHERE q.id = r.id RETURNING q.id, q.body",
        )
        .await
        .unwrap();
    loop {
        let rows = client.query(&claim, &[&CHUNK]).await.unwrap();
        if rows.is_empty() {
            break;
        }
        for row in rows {
            let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
            let (http, url, done) = (http.clone(), url.clone(), done.clone());
            let (id, body): (i64, String) = (row.get(0), row.get(1));
            tokio::spawn(async move {
                let answer = http
                    .post(url)
                    .header("content-type", "application/json")
                    .body(body)
                    .send()
                    .await
                    .unwrap();
                let status = i32::from(answer.status().as_u16());
                done.send((id, status, answer.text().await.unwrap()))
                    .unwrap();
                drop(slot);
            });
        }
    }
    recording.await.unwrap();
    per_second(calls, started.elapsed())
}
