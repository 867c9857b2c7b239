//! Actions on single calls, batches and leaves.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Client, send};
use crate::{
    harness::{
        Bed,
        app::{call, keyed},
        leaf::Gate,
        wait::until,
    },
    outbox::table,
};

fn why() -> Value {
    json!({ "reason": "looked at it", "actor": "ada" })
}

/// What was kept of a call's actions: who, what, why.
async fn kept(bed: &Bed, id: i64) -> Vec<Value> {
    let sql = format!(
        "SELECT actor, action, reason FROM leafhopper.operator_action WHERE call_id = {id} ORDER BY id"
    );
    bed.app.rows(&sql).await
}

#[tokio::test]
async fn each_action_on_a_call_does_what_the_command_does() {
    let bed = Bed::new().await;
    bed.leaf.always().key("no").times(1).refuses(422);
    bed.leaf.always().key("lost").resets();
    bed.leaf.always().key("gone").times(1).resets();
    bed.leaf.always().key("void").resets();
    let sidecar = bed.sidecar("in_doubt = \"park\"").await;
    let client = Client::new(&sidecar);
    let mut ids = Vec::new();
    for (key, state) in [
        ("no", "failed"),
        ("lost", "parked"),
        ("gone", "parked"),
        ("void", "parked"),
    ] {
        let id = bed.app.insert(keyed("leaf", key)).await;
        bed.app.until_state(id, state).await;
        ids.push(id);
    }
    let [no, lost, gone, void] = ids[..] else {
        unreachable!()
    };
    let path = |id: i64, action: &str| format!("/api/v1/calls/{id}/{action}");

    // Refused, with what to do instead; nothing is kept of it.
    let problem = client.post(&path(lost, "cancel"), &why()).await.expect(409);
    assert!(
        problem["detail"].as_str().unwrap().contains("parked"),
        "{problem}"
    );
    assert!(
        problem["hint"]
            .as_str()
            .unwrap()
            .contains("say what is true"),
        "{problem}"
    );
    let moved = json!({ "reason": "looked at it", "expect_attempts": 5 });
    let problem = client.post(&path(no, "retry"), &moved).await.expect(409);
    assert!(
        problem["detail"].as_str().unwrap().contains("has moved"),
        "{problem}"
    );
    client.post(&path(99, "retry"), &why()).await.expect(404);
    assert_eq!(kept(&bed, lost).await, [] as [Value; 0]);

    let shown = client.post(&path(no, "retry"), &why()).await.expect(200);
    assert_eq!(shown, json!({ "id": no, "state": "pending" }));
    bed.app.until_state(no, "confirmed").await;
    let confirmed = json!({ "as": "confirmed", "status": 201, "body": { "id": 1.50 }, "reason": "it is there" });
    let shown = client
        .post(&path(lost, "resolve"), &confirmed)
        .await
        .expect(200);
    assert_eq!(shown["state"], "confirmed");
    let result = &bed.app.results("leaf", "lost").await[0];
    assert_eq!(
        (&result["status"], &result["source"]),
        (&json!(201), &json!("operator"))
    );
    let absent = json!({ "as": "not_executed", "reason": "it is not there" });
    let shown = client
        .post(&path(gone, "resolve"), &absent)
        .await
        .expect(200);
    assert_eq!(shown["state"], "pending");
    bed.app.until_state(gone, "confirmed").await;
    let ended = json!({ "as": "not_executed", "send": false, "reason": "it is not there" });
    let shown = client
        .post(&path(void, "resolve"), &ended)
        .await
        .expect(200);
    assert_eq!(shown["state"], "cancelled");
    let waits = bed.app.insert(call("nobody")).await;
    let shown = client
        .post(&path(waits, "cancel"), &why())
        .await
        .expect(200);
    assert_eq!(shown["state"], "cancelled");

    let ada = json!({ "actor": "ada", "action": "retry", "reason": "looked at it" });
    assert_eq!(kept(&bed, no).await, [ada]);
    let peer =
        json!({ "actor": "api@127.0.0.1", "action": "resolve_confirmed", "reason": "it is there" });
    assert_eq!(kept(&bed, lost).await, [peer]);
}

/// Fault N03: 'retry' of what is done ran it again and overwrote its history.
#[tokio::test]
async fn what_is_confirmed_is_not_sent_again_and_history_only_grows() {
    let bed = Bed::new().await;
    bed.leaf.always().key("k").times(1).refuses(429);
    let sidecar = bed.sidecar("retry = { initial = \"20ms\" }").await;
    let client = Client::new(&sidecar);
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "confirmed").await;
    let history = || async {
        (
            bed.app.attempts(id).await,
            bed.app.results("leaf", "k").await,
            bed.leaf.all_requests().len(),
        )
    };
    let before = history().await;
    assert_eq!((before.0.len(), before.1.len(), before.2), (1, 1, 2));
    let said = json!({ "as": "not_executed", "reason": "looked at it" });
    for (action, body) in [
        ("retry", why()),
        ("cancel", why()),
        ("resolve", said),
        ("release", why()),
    ] {
        let path = format!("/api/v1/calls/{id}/{action}");
        let problem = client.post(&path, &body).await.expect(409);
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains(&format!("call {id}")),
            "{problem}"
        );
    }
    let all = json!({ "filter": { "key": "k", "state": "confirmed" }, "reason": "looked at it" });
    client.post("/api/v1/calls/retry", &all).await.expect(422);
    assert_eq!(history().await, before);
    assert_eq!(bed.app.state(id).await, "confirmed");
}

/// What of `/api/v1/calls`, a body, and what is said of it.
const WRONG: &str = r#"
1/retry :: {} :: missing field `reason`
1/retry :: {"reason": " "} :: reason: must not be blank
1/retry :: {"reason": "a\u0000b"} :: reason: must not contain a NUL
1/retry :: {"reason": "LONG"} :: reason: is longer than 1000
1/retry :: {"reason": "why", "reasons": "why"} :: unknown field `reasons`, expected one of `reason`
1/retry :: {"reason": "why", "expect_attempts": -1} :: expect_attempts: invalid value
1/retry :: {"reason": "why", "actor": ""} :: actor: must not be blank
1/resolve :: {"reason": "why"} :: missing field `as`
1/resolve :: {"reason": "why", "as": "done"} :: as: unknown variant `done`, expected one of `confirmed`
1/resolve :: {"reason": "why", "as": "waive", "status": 200} :: status and body go with
1/resolve :: {"reason": "why", "as": "confirmed", "status": 20} :: from 100 to 999
1/resolve :: {"reason": "why", "as": "confirmed", "send": true} :: send goes with
retry :: {"reason": "why", "filter": {}} :: filter: say which calls are meant
retry :: {"reason": "why", "filter": {"leef": "a"}} :: filter.leef: unknown field
retry :: {"reason": "why", "filter": {"state": "open"}} :: filter.state: unknown variant `open`
retry :: {"reason": "why", "filter": {"state": "parked"}} :: filter.state: this action is for calls that are failed
retry :: {"reason": "why", "filter": {"key": "\u0000"}} :: NUL
retry :: {"reason": "why", "filter": {"leaf": "a"}, "spread": "soon"} :: spread: "soon" is not a duration
retry :: {"reason": "why", "filter": {"leaf": "a"}, "spread": "30d"} :: at most seven days
cancel :: {"reason": "why", "filter": {"leaf": "a"}, "spread": "1m"} :: unknown field `spread`, expected one of `filter`
resolve :: {"reason": "why", "filter": {"leaf": "a"}, "as": "waive", "spread": "1m"} :: spread goes with
resolve :: {"reason": "why", "filter": {"leaf": "a"}, "as": "waive"} :: filter.state: this action is for calls that are parked or failed
"#;

#[tokio::test]
async fn what_is_said_wrongly_is_refused_by_its_name() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    assert_eq!(bed.app.insert(call("nobody")).await, 1);
    for [path, body, said] in table(WRONG) {
        let path = format!("/api/v1/calls/{path}");
        let body = body.replace("LONG", &"x".repeat(1001));
        let body = serde_json::from_str(&body).unwrap();
        let problem = client.post(&path, &body).await.expect(422);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(said), "{path} {body}: {detail}");
    }
    let request = client.request(Method::POST, "/api/v1/calls/1/retry");
    let request = request.header("content-type", "application/json; charset=utf-8");
    send(request.body("{nonsense")).await.expect(400);
    let done = "SELECT id FROM leafhopper.operator_action";
    assert_eq!(bed.app.rows(done).await, [] as [Value; 0]);
}

/// Fault N05: what came for a leaf that was switched off was gone.
#[tokio::test]
async fn what_comes_for_a_paused_leaf_is_shown_and_sent_when_it_is_resumed() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("concurrency = 7\nrate = \"50/s\"").await;
    let client = Client::new(&sidecar);
    let paused = client
        .post("/api/v1/leaves/leaf/pause", &why())
        .await
        .expect(200);
    assert_eq!(
        paused,
        json!({ "name": "leaf", "paused": true, "known": true })
    );
    for n in 0..50 {
        bed.app.insert(keyed("leaf", &format!("k{n}"))).await;
    }
    let late = keyed("leaf", "late").set("deadline", "2000-01-01T00:00:00Z");
    let late = bed.app.insert(late).await;
    // Its deadline counts all the same.
    bed.app.until_state(late, "expired").await;
    until(
        "they are shown as waiting for the paused leaf",
        async || {
            let leaves = client.get("/api/v1/leaves").await.expect(200);
            let leaf = leaves["leaves"][0].clone();
            if leaf["reasons"]["leaf_paused"] == 50 {
                Ok(())
            } else {
                Err(leaf)
            }
        },
    )
    .await;
    let leaf = client.get("/api/v1/leaves").await.expect(200)["leaves"][0].clone();
    assert_eq!(
        (&leaf["paused"], &leaf["known"], &leaf["pending"]),
        (&json!(true), &json!(true), &json!(50))
    );
    assert_eq!(leaf["pause"]["actor"], "ada");
    assert_eq!(
        (&leaf["concurrency"], &leaf["rate"]),
        (&json!(7), &json!(50.0))
    );
    assert_eq!(leaf["pause"]["reason"], "looked at it");
    let shown = client
        .get("/api/v1/calls?reason=leaf_paused&limit=100")
        .await
        .expect(200);
    assert_eq!(shown["calls"].as_array().unwrap().len(), 50);
    assert_eq!(bed.leaf.all_requests().len(), 0);

    client
        .post("/api/v1/leaves/leaf/resume", &why())
        .await
        .expect(200);
    until("all are sent", async || {
        let sent = bed.leaf.all_requests().len();
        if sent == 50 { Ok(()) } else { Err(sent) }
    })
    .await;
    bed.leaf
        .assert_each_effect_once((0..50).map(|n| format!("k{n}")));

    // A name that nobody has ever had is said to be one, or refused.
    let unknown = client
        .post("/api/v1/leaves/kiln/resume", &why())
        .await
        .expect(404);
    assert!(
        unknown["detail"].as_str().unwrap().contains("kiln"),
        "{unknown}"
    );
    let typo = client
        .post("/api/v1/leaves/kiln/pause", &why())
        .await
        .expect(200);
    assert_eq!(typo["known"], json!(false));
    let all = client.post("/api/v1/resume", &why()).await.expect(200);
    assert_eq!(
        all,
        json!({ "moved": null, "resumed": ["kiln", "leaf"], "still_paused": [] })
    );
    let treated = json!({ "as": "probe", "reason": "looked at it" });
    client.post("/api/v1/resume", &treated).await.expect(409);
}

#[tokio::test]
async fn a_batch_is_cancelled_and_a_head_released() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("busy")
        .waits_before_the_answer(&gate)
        .answers(200);
    bed.leaf.always().key("head").refuses(422);
    let sidecar = bed.sidecar("after_failed_head = \"hold\"").await;
    let client = Client::new(&sidecar);
    let batch = uuid::Uuid::new_v4();
    let busy = bed.app.insert(keyed("leaf", "busy").batch(batch)).await;
    gate.until_arrived(1).await;
    let path = format!("/api/v1/batches/{batch}/cancel");
    let cancelled = client.post(&path, &why()).await.expect(200);
    assert_eq!(
        cancelled,
        json!({ "id": batch.to_string(), "state": "cancelling" })
    );
    client.post(&path, &why()).await.expect(409);
    let absent = "/api/v1/batches/00000000-0000-0000-0000-000000000009/cancel";
    client.post(absent, &why()).await.expect(404);
    gate.open();
    bed.app.until_state(busy, "confirmed").await;

    let head = bed
        .app
        .insert(keyed("leaf", "head").set("ordering_key", "o"))
        .await;
    let next = bed
        .app
        .insert(keyed("leaf", "next").set("ordering_key", "o"))
        .await;
    bed.app.until_state(head, "failed").await;
    let held = client
        .get("/api/v1/calls?holds_others=true")
        .await
        .expect(200);
    assert_eq!(held["calls"][0]["id"], json!(head));
    let released = client
        .post(&format!("/api/v1/calls/{head}/release"), &why())
        .await
        .expect(200);
    let expected = json!({ "id": head, "leaf": "leaf", "ordering_key": "o", "next": next });
    assert_eq!(released, expected);
    bed.app.until_state(next, "confirmed").await;
    client
        .post(&format!("/api/v1/calls/{head}/release"), &why())
        .await
        .expect(409);
}
