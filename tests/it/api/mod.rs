//! The API: what it says, whom it serves, and what it refuses.

mod access;
mod actions;
mod document;
mod jobs;
mod readme;
mod reads;

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, header::HeaderMap};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::harness::sidecar::Sidecar;

/// A program that speaks to a sidecar's API.
pub(crate) struct Client<'a> {
    sidecar: &'a Sidecar,
    http: reqwest::Client,
    token: Option<String>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl<'a> Client<'a> {
    pub(crate) fn new(sidecar: &'a Sidecar) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            sidecar,
            http,
            token: None,
        }
    }

    /// The same, that shows a token.
    pub(crate) fn with_token(self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self
        }
    }

    /// A request that is yet to be sent.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, self.sidecar.url(path));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        let request = self.request(Method::POST, path);
        let request = request.header("content-type", "application/json");
        send(request.body(body.to_string())).await
    }
}

pub(crate) async fn send(request: RequestBuilder) -> Answer {
    answer(request.send().await.unwrap()).await
}

async fn answer(response: Response) -> Answer {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer {
        status,
        headers,
        body,
    }
}

impl Answer {
    /// What it holds, where it has this status.
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:#?}");
        self.body
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// All that is answered to these bytes until the connection is closed.
pub(crate) async fn answers_of(
    sidecar: &Sidecar,
    bytes: impl Into<String>,
    patience: Duration,
) -> String {
    let address = sidecar.url("").trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    // One that has answered already may not read to the end.
    drop(stream.write_all(bytes.into().as_bytes()).await);
    let mut answers = Vec::new();
    let end = timeout(patience, stream.read_to_end(&mut answers)).await;
    assert!(
        end.is_ok(),
        "it is not closed; {:?}",
        String::from_utf8_lossy(&answers)
    );
    String::from_utf8_lossy(&answers).into_owned()
}
