//! HTTP/1.1, as little of it as the demo's leaves need. By hand, since a leaf that loses its answer has to cut
//! the connection without one, which servers take care never to do.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// What is longer is cut off with its connection.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The time on the network that a real leaf would take.
const ROUND_TRIP: Duration = Duration::from_millis(5);

/// One request, as far as the leaves care.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) idempotency_key: Option<String>,
    pub(super) body: Value,
}

/// One answer.
pub(super) struct Answer {
    pub(super) status: &'static str,
    /// Whole lines.
    pub(super) headers: String,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn new(status: &'static str, body: Value) -> Self {
        Self {
            status,
            headers: String::new(),
            body,
        }
    }

    pub(super) fn with(mut self, header: &str) -> Self {
        self.headers.push_str(header);
        self.headers.push_str("\r\n");
        self
    }
}

/// `None` where the connection has ended.
pub(super) async fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
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
    if length > BODY_BYTES_MAX {
        return Ok(None);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(Request {
        method,
        path,
        idempotency_key,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    }))
}

/// Without its body for a HEAD.
pub(super) async fn write(
    stream: &mut BufReader<TcpStream>,
    method: &str,
    answer: &Answer,
) -> std::io::Result<()> {
    tokio::time::sleep(ROUND_TRIP).await;
    let body = answer.body.to_string();
    let (status, headers, length) = (answer.status, &answer.headers, body.len());
    let mut text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n"
    );
    if method != "HEAD" {
        text.push_str(&body);
    }
    stream.get_mut().write_all(text.as_bytes()).await
}
