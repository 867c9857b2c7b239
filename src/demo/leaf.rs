//! The demo's leaves: three services of somebody else's, in one small HTTP server that keeps a ledger.
//!
//! `/git` creates what it is told each time that it is told; `/pay` honours `Idempotency-Key`; `/host` is
//! slow. A body's `"then"` says how it misbehaves: `lose the answer` (executed, and the connection cut),
//! `be busy` (503 with Retry-After, at first), `refuse` (422), `think` (executed, answered much later).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::shutdown::Tasks;

/// Long enough to be killed in.
const THINKING: Duration = Duration::from_secs(3);

/// What a leaf knows of itself.
#[derive(Debug, Default)]
struct Ledger {
    /// Effects by leaf and the body's `key`.
    effects: BTreeMap<String, u32>,
    /// Requests, however they ended.
    requests: BTreeMap<String, u32>,
    /// Answers by idempotency key, as `/pay` remembers them.
    remembered: BTreeMap<String, String>,
}

/// The running server.
#[derive(Debug)]
pub(super) struct DemoLeaf {
    port: u16,
    ledger: Arc<Mutex<Ledger>>,
    /// `/host` answers with a permit.
    gate: Arc<Semaphore>,
    _tasks: Tasks,
}

impl DemoLeaf {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let leaf = Self {
            port: listener.local_addr()?.port(),
            ledger: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            _tasks: Tasks::default(),
        };
        let (ledger, gate, tasks) = (leaf.ledger.clone(), leaf.gate.clone(), leaf._tasks.clone());
        leaf._tasks.spawn("demo leaf", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (ledger, gate) = (ledger.clone(), gate.clone());
                tasks.spawn("demo connection", async move {
                    // A connection that breaks is what the demo is about.
                    serve(stream, &ledger, &gate).await.unwrap_or_default();
                });
            }
        });
        Ok(leaf)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Lets the slow leaf answer, from now on.
    pub(super) fn release(&self) {
        self.gate.add_permits(1000);
    }

    /// Requests that were made for `leaf key`.
    pub(super) fn requests(&self, effect: &str) -> u32 {
        lock(&self.ledger)
            .requests
            .get(effect)
            .copied()
            .unwrap_or_default()
    }

    /// All effects: `leaf key` and how often it exists.
    pub(super) fn effects(&self) -> BTreeMap<String, u32> {
        lock(&self.ledger).effects.clone()
    }
}

fn lock(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request as far as the leaf cares.
struct Request {
    leaf: String,
    idempotency_key: Option<String>,
    body: serde_json::Value,
}

async fn serve(stream: TcpStream, ledger: &Mutex<Ledger>, gate: &Semaphore) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await? {
        let text = |name: &str| request.body[name].as_str().unwrap_or_default().to_owned();
        let effect = format!("{} {}", request.leaf, text("key"));
        let seen = {
            let mut ledger = lock(ledger);
            let seen = ledger.requests.entry(effect.clone()).or_default();
            *seen += 1;
            *seen
        };
        let misbehaves = text("then");
        if misbehaves == "refuse" {
            answer(
                &mut stream,
                "422 Unprocessable Content",
                "",
                r#"{"error":"no such zone"}"#,
            )
            .await?;
            continue;
        }
        if misbehaves == "be busy" && seen < 3 {
            answer(
                &mut stream,
                "503 Service Unavailable",
                "retry-after: 0\r\n",
                "{}",
            )
            .await?;
            continue;
        }
        if request.leaf == "host" {
            // Slow: it executes at once, and answers when the demo lets it.
            execute(ledger, &effect, None);
            drop(gate.acquire().await);
        }
        let key = request.idempotency_key.filter(|_| request.leaf == "pay");
        let body = execute(ledger, &effect, key);
        if misbehaves == "think" && seen == 1 {
            tokio::time::sleep(THINKING).await;
        }
        if misbehaves == "lose the answer" && seen == 1 {
            return Ok(());
        }
        answer(&mut stream, "201 Created", "", &body).await?;
    }
    Ok(())
}

/// Creates the effect, unless its key is known; gives the answer's body.
fn execute(ledger: &Mutex<Ledger>, effect: &str, key: Option<String>) -> String {
    let mut ledger = lock(ledger);
    if let Some(known) = key.as_ref().and_then(|key| ledger.remembered.get(key)) {
        return known.clone();
    }
    let slow = effect.starts_with("host ") && ledger.effects.contains_key(effect);
    let count = ledger.effects.entry(effect.to_owned()).or_default();
    if !slow {
        *count += 1;
    }
    let body = serde_json::json!({ "created": effect, "times": *count }).to_string();
    if let Some(key) = key {
        ledger.remembered.insert(key, body.clone());
    }
    body
}

async fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut idempotency_key) = (0, None);
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or_default(),
            "idempotency-key" => idempotency_key = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(Request {
        leaf: path.split('/').nth(1).unwrap_or_default().to_owned(),
        idempotency_key,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    }))
}

async fn answer(
    stream: &mut BufReader<TcpStream>,
    status: &str,
    headers: &str,
    body: &str,
) -> std::io::Result<()> {
    // The time on the network that a real leaf would take.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(text.as_bytes()).await
}
