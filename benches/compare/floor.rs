//! The floor: the same work with no product around it. No guards, no exclusion of keys, no history, no metrics.
//!
//! One claimer takes groups ahead of need (`UPDATE … SKIP LOCKED`), 64 senders POST, two recorders delete the queue's
//! rows and insert the results, in groups of what is ready. Each claim is durable before its call is sent.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Instant,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::{Client as Hyper, connect::HttpConnector};
use tokio::sync::{Semaphore, mpsc};

use crate::{
    bench::{Bench, connect},
    leaf::Manner,
    stats::per_second,
};

/// Rows of one claim. So many more wait for a sender while the next claim is under way.
const CLAIM: u32 = 512;
const RECORDERS: usize = 2;

/// Who sends.
#[derive(Debug, Clone)]
pub(crate) enum Http {
    Reqwest(reqwest::Client),
    Hyper(Box<Hyper<HttpConnector, Full<Bytes>>>),
}

impl Http {
    pub(crate) fn reqwest() -> Self {
        Self::Reqwest(reqwest::Client::builder().no_proxy().build().unwrap())
    }

    pub(crate) fn hyper() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Hyper::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
        Self::Hyper(Box::new(client))
    }

    async fn post(&self, url: &str, body: String) -> anyhow::Result<(i32, String)> {
        let (status, answer) = match self {
            Self::Reqwest(client) => {
                let request = client.post(url).header("content-type", "application/json");
                let answer = request.body(body).send().await?;
                (answer.status(), answer.bytes().await?)
            }
            Self::Hyper(client) => {
                let request = http::Request::post(url).header("content-type", "application/json");
                let answer = client.request(request.body(Full::from(body))?).await?;
                (
                    answer.status(),
                    answer.into_body().collect().await?.to_bytes(),
                )
            }
        };
        Ok((status.as_u16().into(), String::from_utf8(answer.into())?))
    }
}

/// HTTP alone: no database.
pub(crate) async fn http_alone(
    bench: &Bench,
    http: Http,
    calls: u64,
    concurrency: usize,
) -> anyhow::Result<f64> {
    let record = bench.leaf.record(Manner::AtOnce, calls);
    let url = format!("{}/", bench.leaf.url());
    let left = Arc::new(std::sync::atomic::AtomicU64::new(calls));
    let pad = "x".repeat(263);
    let began = Instant::now();
    let senders = (0..concurrency).map(|_| {
        let (http, url, left, pad) = (http.clone(), url.clone(), Arc::clone(&left), pad.clone());
        tokio::spawn(async move {
            let take = |left: u64| left.checked_sub(1);
            let order = std::sync::atomic::Ordering::Relaxed;
            while let Ok(number) = left.fetch_update(order, order, take) {
                let body = format!("{{\"i\": {number}, \"pad\": \"{pad}\"}}");
                http.post(&url, body).await?;
            }
            anyhow::Ok(())
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await??;
    }
    let rate = per_second(calls, began.elapsed());
    anyhow::ensure!(record.distinct() == calls, "each call arrived");
    Ok(rate)
}

const TABLES: &str = "CREATE TABLE queue (id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'ready', body text);
     CREATE INDEX ON queue (id) WHERE state = 'ready';
     CREATE TABLE result (id bigint PRIMARY KEY, status int, body jsonb, at timestamptz DEFAULT now());";

const CLAIM_SQL: &str = "UPDATE queue q SET state = 'claimed'
       FROM (SELECT id FROM queue WHERE state = 'ready' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) r
      WHERE q.id = r.id RETURNING q.id, q.body";

const RECORD_SQL: &str =
    "WITH i AS (SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[]) u (id, status, body)),
          gone AS (DELETE FROM queue q USING i WHERE q.id = i.id)
     INSERT INTO result (id, status, body) SELECT id, status, body::jsonb FROM i";

/// What was claimed and waits for a sender.
#[derive(Debug)]
struct Ready {
    queue: Mutex<VecDeque<(i64, String)>>,
    full: Semaphore,
    free: Semaphore,
}

/// Calls a second from the first arrival to the last record, as of the systems.
pub(crate) async fn bare_loop(
    bench: &Bench,
    http: Http,
    calls: u64,
    concurrency: usize,
    manner: Manner,
) -> anyhow::Result<f64> {
    let template = format!("template_floor_{calls}");
    if !bench.has(&template) {
        let database = bench.copy("template1").await?;
        database.client.batch_execute(TABLES).await?;
        let load = format!(
            "INSERT INTO queue (id, body) SELECT i, {}::text FROM generate_series(1, {calls}) i",
            crate::system::body("i")
        );
        database.client.batch_execute(&load).await?;
        bench.keep(database, &template).await?;
    }
    let database = bench.copy(&template).await?;
    let record = bench.leaf.record(manner, calls);
    let ready = Arc::new(Ready {
        queue: Mutex::default(),
        full: Semaphore::new(0),
        free: Semaphore::new(2 * CLAIM as usize),
    });
    let (done, finished) = mpsc::unbounded_channel();
    let finished = Arc::new(tokio::sync::Mutex::new(finished));
    let mut recorders = Vec::new();
    let url = bench.cluster.url(&database.name);
    for _ in 0..RECORDERS {
        recorders.push(tokio::spawn(record_all(
            connect(&url).await?,
            Arc::clone(&finished),
        )));
    }
    for _ in 0..concurrency {
        let url = format!("{}/", bench.leaf.url());
        tokio::spawn(send_all(
            http.clone(),
            url,
            Arc::clone(&ready),
            done.clone(),
        ));
    }
    drop(done);
    claim_all(&connect(&url).await?, &ready).await?;
    let mut recorded = 0;
    for recorder in recorders {
        recorded += recorder.await??;
    }
    let end = bench.leaf.now();
    anyhow::ensure!(
        recorded == calls && record.distinct() == calls,
        "{recorded} of {calls}"
    );
    bench.drop(database).await;
    Ok(per_second(
        calls,
        std::time::Duration::from_nanos(end - record.at(0)),
    ))
}

async fn claim_all(client: &tokio_postgres::Client, ready: &Ready) -> anyhow::Result<()> {
    let claim = client.prepare(CLAIM_SQL).await?;
    loop {
        ready.free.acquire_many(CLAIM).await?.forget();
        let rows = client.query(&claim, &[&i64::from(CLAIM)]).await?;
        if rows.is_empty() {
            // The senders end when nothing is left.
            ready.full.add_permits(1_000_000);
            return Ok(());
        }
        let count = rows.len();
        let calls = rows.into_iter().map(|row| (row.get(0), row.get(1)));
        ready.queue.lock().unwrap().extend(calls);
        ready.full.add_permits(count);
    }
}

async fn send_all(
    http: Http,
    url: String,
    ready: Arc<Ready>,
    done: mpsc::UnboundedSender<(i64, i32, String)>,
) -> anyhow::Result<()> {
    loop {
        ready.full.acquire().await?.forget();
        let Some((id, body)) = ready.queue.lock().unwrap().pop_front() else {
            return Ok(());
        };
        ready.free.add_permits(1);
        let (status, answer) = http.post(&url, body).await?;
        done.send((id, status, answer))?;
    }
}

type Finished = Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<(i64, i32, String)>>>;

async fn record_all(client: tokio_postgres::Client, finished: Finished) -> anyhow::Result<u64> {
    let statement = client.prepare(RECORD_SQL).await?;
    let (mut group, mut recorded) = (Vec::new(), 0);
    loop {
        if finished.lock().await.recv_many(&mut group, 512).await == 0 {
            return Ok(recorded);
        }
        let ids: Vec<i64> = group.iter().map(|(id, ..)| *id).collect();
        let statuses: Vec<i32> = group.iter().map(|(_, status, _)| *status).collect();
        let bodies: Vec<&str> = group.iter().map(|(.., body)| body.as_str()).collect();
        recorded += client
            .execute(&statement, &[&ids, &statuses, &bodies])
            .await?;
        group.clear();
    }
}
