//! Bounded: memory follows the configuration, not the backlog, an answer's size, or a leaf's slowness.

use std::net::SocketAddr;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::harness::{Bed, app::call, leaf::Leaf, sidecar::Config, wait::until};

const MEBIBYTE: u64 = 1024 * 1024;

/// What a great leaf answers with.
const BODY_BYTES: usize = 30 * 1024 * 1024;

/// A leaf that answers with more than anybody wants: 30 MiB, or at `/endless` chunk after chunk.
struct Great {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Great {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    // Its client hangs up when it has enough.
                    serve(stream).await.ok();
                });
            }
        });
        Self {
            address,
            _tasks: tasks,
        }
    }
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = vec![0; 4096];
    let read = stream.read(&mut request).await?;
    let piece = vec![b'x'; 64 * 1024];
    if request[..read].windows(8).any(|bytes| bytes == b"/endless") {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await?;
        loop {
            stream.write_all(b"10000\r\n").await?;
            stream.write_all(&piece).await?;
            stream.write_all(b"\r\n").await?;
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    for _ in 0..BODY_BYTES / piece.len() {
        stream.write_all(&piece).await?;
    }
    Ok(())
}

#[tokio::test]
async fn thirty_answers_of_thirty_mebibytes_are_cut_and_do_not_fill_the_memory() {
    const KEPT: i64 = 256 * 1024;
    let bed = Bed::new().await;
    let great = Great::start().await;
    let url = format!("http://{}", great.address);
    let lines = "concurrency = 30\nmax_response_bytes = \"256KiB\"\ntimeout = \"20s\"";
    let config = Config::new(&bed.database.url).leaf("great", &url, lines);
    let sidecar = config.start().await;
    let before = sidecar.peak_memory();
    for path in ["/things", "/endless"] {
        bed.app
            .execute(&format!(
                "INSERT INTO leafhopper.outbox (leaf, path)
                 SELECT 'great', '{path}' FROM generate_series(1, 30)"
            ))
            .await;
    }
    until("all are confirmed", async || {
        let rows = bed.app.rows("SELECT count(*) FROM leafhopper.result").await;
        if rows[0]["count"] == 60 {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
    let kept = bed
        .app
        .rows(
            "SELECT DISTINCT truncated, octet_length(body_raw) AS kept, body IS NULL AS raw
               FROM leafhopper.result",
        )
        .await;
    assert_eq!(
        kept,
        [json!({ "truncated": true, "kept": KEPT, "raw": true })]
    );
    let grown = sidecar.peak_memory() - before;
    assert!(
        grown < 120 * MEBIBYTE,
        "it grew by {} MiB",
        grown / MEBIBYTE
    );
}

#[tokio::test]
async fn a_backlog_of_fifty_thousand_and_a_leaf_that_hangs_do_not_fill_the_memory() {
    let bed = Bed::new().await;
    let kiln = Leaf::start().await;
    kiln.always().hangs();
    let config = bed.config("").leaf("kiln", &kiln.url(), "concurrency = 8");
    let sidecar = config.start().await;
    let first = bed.app.insert(call("leaf")).await;
    bed.app.until_state(first, "confirmed").await;
    let before = sidecar.peak_memory();
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path, body, ordering_key)
             SELECT (ARRAY['kiln', 'nobody', 'kiln'])[1 + n % 3], '/x', to_jsonb(repeat('x', 200)),
                    CASE WHEN n % 10 = 0 THEN 'line-' || n % 100 END
               FROM generate_series(1, 50000) AS n",
        )
        .await;
    until("its slots are taken", async || {
        match kiln.all_requests().len() {
            8 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    until("all ordered calls have their place", async || {
        let rows = bed
            .app
            .rows("SELECT count(*) FROM leafhopper.dispatch WHERE held = 'arrived'")
            .await;
        if rows[0]["count"] == 0 {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
    for _ in 0..5 {
        let (status, _) = sidecar.get("/metrics").await;
        assert_eq!(status, 200);
    }
    let last = bed.app.insert(call("leaf")).await;
    bed.app.until_state(last, "confirmed").await;
    let grown = sidecar.peak_memory() - before;
    assert!(grown < 24 * MEBIBYTE, "it grew by {} MiB", grown / MEBIBYTE);
}
