//! The leaf client against real sockets: receivers that misbehave by script, and what is said of it.
//!
//! Each table counts the connections and requests that the receiver saw: a hidden retry shows there.

mod http1;
mod http2;
mod limits;
mod names;
mod proxies;
mod receiver;
mod rows;
mod setup;
mod tls;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use reqwest::Url;

use self::receiver::{Receiver, Step};
use super::LeafClient;
use crate::{
    config::{AfterFailedHead, Auth, Http2, Leaf, PrivateAddresses, Proofs, Retry, Tls},
    domain::{
        evidence::{Answer, Evidence, NotSent},
        outcome::Rules,
        request::Request,
        schedule::Schedule,
        trace::Trace,
    },
};

/// Long enough to never end a test that passes.
const LONG: Duration = Duration::from_secs(20);
/// For tests in which a time limit has to end; nothing waits for it on the other side.
const SHORT: Duration = Duration::from_secs(1);

/// A leaf with nothing special about it.
fn leaf(base_url: &str) -> Leaf {
    Leaf {
        name: "shelf".into(),
        base_url: Url::parse(base_url).unwrap(),
        auth: None,
        signing: None,
        secrets: Arc::default(),
        timeout: LONG,
        connect_timeout: LONG,
        concurrency: 8,
        rate: None,
        rules: Rules::default(),
        in_doubt: None,
        retry: Retry {
            schedule: Schedule {
                initial: SHORT,
                max: LONG,
                multiplier: 2.0,
                jitter: 0.0,
            },
            max_attempts: 20,
            give_up_after: LONG,
            retry_after_max: LONG,
        },
        probe: None,
        compensate: None,
        idempotency: None,
        max_response_bytes: 1024,
        body_memory: 1 << 20,
        keep_headers: Vec::new(),
        after_failed_head: AfterFailedHead::Continue,
        tls: Tls::default(),
        http2: Http2::Auto,
        proxy: None,
        proxy_auth: None,
        private_addresses: PrivateAddresses::Allow,
    }
}

fn client(base_url: &str) -> LeafClient {
    LeafClient::new(&leaf(base_url)).unwrap()
}

fn request(method: &str, path: &str) -> Request {
    Request {
        method: method.into(),
        path: path.into(),
        headers: Vec::new(),
        body: None,
        content_type: None,
        idempotency: None,
        message_id: None,
        credential: None,
    }
}

fn post(body: &str) -> Request {
    Request {
        body: Some(Bytes::copy_from_slice(body.as_bytes())),
        ..request("POST", "/effects")
    }
}

async fn send(client: &LeafClient, request: &Request) -> Evidence {
    client
        .send(request, &Proofs::default(), None, LONG, &|| true)
        .await
}

async fn send_with(client: &LeafClient, request: &Request, auth: &Auth) -> Evidence {
    let proofs = Proofs {
        auth: Some(auth.clone()),
        ..Proofs::default()
    };
    client.send(request, &proofs, None, LONG, &|| true).await
}

/// Evidence as a test's table names it.
fn word(evidence: &Evidence) -> String {
    match evidence {
        Evidence::NotSent(NotSent::Unsendable(_)) => "unsendable".into(),
        Evidence::NotSent(NotSent::Unconnected(_)) => "unconnected".into(),
        Evidence::NotSent(NotSent::OutOfTime(_)) => "out of time".into(),
        Evidence::NotSent(NotSent::Refused(_)) => "refused".into(),
        Evidence::NotSent(NotSent::LeaseOver) => "lease over".into(),
        Evidence::Unanswered(seen) => match seen.status {
            Some(status) => format!("unanswered {status}"),
            None => "unanswered".into(),
        },
        Evidence::Answered(answer) => {
            let mut word = format!("answered {}", answer.status);
            if !answer.body.is_empty() {
                word = format!("{word} {}", answer.body.escape_ascii());
            }
            if answer.truncated {
                word += " truncated";
            }
            word
        }
    }
}

fn answer(evidence: Evidence) -> Answer {
    match evidence {
        Evidence::Answered(answer) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

/// One request to a receiver that plays `script` on its first connection, and what is said of it.
/// The receiver sees one connection and one request, whatever happens.
async fn check(script: &[Step], expected: &str) {
    check_request(&post("{}"), script, expected).await;
}

async fn check_request(request: &Request, script: &[Step], expected: &str) {
    let receiver = Receiver::start(&[script]).await;
    let evidence = send(&client(&receiver.url()), request).await;
    assert_eq!(word(&evidence), expected, "{script:?}: {evidence:?}");
    assert_eq!(receiver.connections(), 1, "connections of {script:?}");
    assert_eq!(receiver.requests().len(), 1, "requests of {script:?}");
}

/// Runs one ignored test in a process of its own, for what can only be set for a whole process.
async fn run_in_a_process(test: &str, variables: &[(&str, &str)]) {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored"]);
    for name in ["NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
}

/// A client shared by tasks.
fn shared(base_url: &str) -> Arc<LeafClient> {
    Arc::new(client(base_url))
}
