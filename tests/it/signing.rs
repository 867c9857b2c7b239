//! Signed requests, verified by a library that receivers use.

use http::{HeaderMap, HeaderName};
use serde_json::json;
use standardwebhooks::Webhook;

use crate::harness::{
    Bed,
    app::{call, keyed},
    folder::Folder,
    leaf::{Reply, Request},
    wait::until,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEXT: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const SIGNING: &str = "signing = { secret = { env = \"SIGNING\" } }\n\
    retry = { initial = \"20ms\", max = \"20ms\", jitter = 0.0 }";

fn verifies(request: &Request, secret: &str) -> Result<(), String> {
    let headers: HeaderMap = request
        .headers
        .iter()
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
        .collect();
    let receiver = Webhook::new(secret).unwrap();
    receiver
        .verify(&request.body, &headers)
        .map_err(|error| format!("{error}: {request:?}"))
}

/// A receiver that knows that secret takes the request.
pub(crate) fn assert_signed(request: &Request, secret: &str) {
    verifies(request, secret).unwrap();
}

#[tokio::test]
async fn each_attempt_is_signed_anew_under_one_id() {
    let bed = Bed::new().await;
    let _sidecar = bed
        .config(SIGNING)
        .sidecar()
        .environment("SIGNING", SECRET)
        .start()
        .await;
    bed.leaf.on("/things").key("k").times(2).refuses(429);
    // Whatever hand wrote it, what is signed is what is sent.
    let body = r#"'{"key": "k", "sum": 1.50, "big": 12345678901234567890123}'"#;
    let id = bed
        .app
        .insert_values("key, body", &format!("'k', {body}"))
        .await;
    bed.app.until_state(id, "confirmed").await;
    let requests = bed.leaf.requests("k");
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_signed(request, SECRET);
        assert!(verifies(request, NEXT).is_err());
        assert_eq!(request.header("webhook-id"), Some("k"));
        let sent = String::from_utf8_lossy(&request.body);
        assert!(
            sent.contains("1.50") && sent.contains("12345678901234567890123"),
            "{sent}"
        );
    }
    // Another effect, another id; a key with a full stop can't be one.
    for (key, path) in [("other", "/things"), ("www.example.com", "/raw")] {
        let raw = call("leaf").key(key).path(path);
        let id = bed.app.insert(raw.body_raw("text/plain", "a.b\n")).await;
        bed.app.until_state(id, "confirmed").await;
    }
    // One that is read only when it is its turn.
    let long = call("leaf").key("long").path("/raw");
    let long = long.body_raw("text/plain", &"long ".repeat(10_000));
    let id = bed.app.insert(long).await;
    bed.app.until_state(id, "confirmed").await;
    let all = bed.leaf.all_requests();
    assert_eq!(all[5].body.len(), 50_000);
    let ids: Vec<_> = all[3..]
        .iter()
        .map(|it| it.header("webhook-id").unwrap())
        .collect();
    assert_eq!(ids[0], "other");
    assert!(ids[1].starts_with("lh-"), "{ids:?}");
    all.iter()
        .for_each(|request| assert_signed(request, SECRET));
}

#[tokio::test]
async fn a_probe_is_signed_under_an_id_of_its_own() {
    let bed = Bed::new().await;
    let config = bed.config(SIGNING).probe("leaf", "settle = \"20ms\"");
    let _sidecar = config
        .sidecar()
        .environment("SIGNING", SECRET)
        .start()
        .await;
    bed.leaf.on("/things").times(1).resets();
    bed.leaf.on("/effects").method("GET").times(1).refuses(503);
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "confirmed").await;
    let requests = bed.leaf.all_requests();
    let ids: Vec<_> = requests
        .iter()
        .map(|it| it.header("webhook-id").unwrap())
        .collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(ids[0], "k");
    assert!(
        ids[1..].iter().all(|id| id.starts_with("probe-")) && ids[1] != ids[2],
        "{ids:?}"
    );
    requests
        .iter()
        .for_each(|request| assert_signed(request, SECRET));
}

#[tokio::test]
async fn a_row_can_t_sign_for_the_leaf() {
    let bed = Bed::new().await;
    let config = bed.config(SIGNING).leaf(
        "hub",
        &bed.leaf.url(),
        "signing = { format = \"sha256=hex\", header = \"X-Hub-Signature-256\", secret = { env = \"HUB\" } }",
    );
    let starter = config.sidecar().environment("SIGNING", SECRET);
    let _sidecar = starter
        .environment("HUB", "It's a Secret to Everybody")
        .start()
        .await;
    for (leaf, header) in [
        ("leaf", "Webhook-Id"),
        ("leaf", "webhook-timestamp"),
        ("leaf", "WEBHOOK-SIGNATURE"),
        ("hub", "x-hub-signature-256"),
    ] {
        let row = keyed(leaf, header).set("headers", json!({ header: "mine" }));
        let id = bed.app.insert(row).await;
        let call = bed.app.until_state(id, "failed").await;
        assert_eq!(call["reason"], "unsendable", "{call:#?}");
        let error = call["last_error"].as_str().unwrap();
        assert!(error.contains("the leaf's own"), "{error}");
    }
    // To another leaf such a header is any header.
    let row = keyed("hub", "k").set("headers", json!({ "webhook-id": "mine" }));
    let row = row
        .set("body", json!(null))
        .body_raw("text/plain", "Hello, World!");
    let id = bed.app.insert(row.set("path", "/effects/k")).await;
    bed.app.until_state(id, "confirmed").await;
    let sent = &bed.leaf.all_requests()[0];
    assert_eq!(sent.header("webhook-id"), Some("mine"));
    assert_eq!(
        sent.header("x-hub-signature-256"),
        Some("sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
    );
}

#[tokio::test]
async fn a_secret_moves_without_a_request_that_is_refused() {
    let bed = Bed::new().await;
    let (folder, named) = (Folder::new(), Folder::new());
    let file = folder.write("secret", SECRET);
    named.write("acme", NEXT);
    let config = bed.config(&format!(
        "signing = {{ secret = {{ file = {file:?} }}, credentials = {{ dir = {:?} }} }}",
        named.path()
    ));
    let sidecar = config.start().await;
    let send = async |key: &str, credential: Option<&str>| {
        let row = keyed("leaf", key).set("credential", credential);
        let id = bed.app.insert(row).await;
        bed.app.until_state(id, "confirmed").await;
        bed.leaf.requests(key).remove(0)
    };
    assert_signed(&send("old", None).await, SECRET);
    assert_signed(&send("of-acme", Some("acme")).await, NEXT);
    let unknown = bed
        .app
        .insert(keyed("leaf", "x").set("credential", "nobody"))
        .await;
    until("it waits for its credential", async || {
        let call = bed.app.call(unknown).await;
        if call["reason"] == "credential_unknown" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;

    folder.write("secret", &format!("{NEXT}\n{SECRET}\n"));
    sidecar.signal(rustix::process::Signal::HUP);
    let mut number = 0;
    let both = until("both secrets sign", async || {
        number += 1;
        let request = send(&format!("both-{number}"), None).await;
        verifies(&request, NEXT).map(|()| request)
    })
    .await;
    assert_signed(&both, SECRET);

    // What can't sign is refused, and said, and the former goes on.
    folder.write("secret", "hunter2-in-clear");
    sidecar.signal(rustix::process::Signal::HUP);
    until("it is said", async || {
        let log: String = sidecar.log().iter().map(ToString::to_string).collect();
        if log.contains("does not begin with whsec_") {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    assert_signed(&send("after", None).await, NEXT);
    let log: String = sidecar.log().iter().map(ToString::to_string).collect();
    assert!(
        !log.contains("hunter2") && !log.contains(&NEXT[6..]),
        "{log}"
    );
}

#[tokio::test]
async fn a_signing_secret_that_the_leaf_echoes_is_not_kept() {
    let bed = Bed::new().await;
    let starter = bed.config(SIGNING).sidecar();
    let both = format!("{SECRET} {NEXT}");
    let _sidecar = starter.environment("SIGNING", &both).start().await;
    let echo = json!({ "key": SECRET, "bare": &NEXT[6..], "all": both });
    bed.leaf.always().answers(Reply::json(200, &echo));
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "confirmed").await;
    let kept = bed.app.results("leaf", "k").await;
    assert_eq!(
        kept[0]["body"],
        json!({ "key": "[redacted]", "bare": "[redacted]", "all": "[redacted]" })
    );
}
