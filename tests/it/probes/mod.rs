//! In doubt, the leaf is asked: what it shows is adopted, what it certainly does not have is sent, and all else
//! waits.

mod ends;
mod many;
mod rows;
mod unclear;

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{Call, keyed},
    leaf::{Gate, Reply},
    sidecar::Config,
    wait::holds_for,
};

/// Retries that suit a test, and a time limit that a stalled machine keeps to.
const QUICK: &str = "timeout = \"10s\"\n\
    retry = { initial = \"20ms\", max = \"50ms\", jitter = 0.0, max_attempts = 3 }";

/// How long an absence has to settle, and how often the leaf is asked.
const PROBE: &str = "settle = \"1500ms\"\nmax_probes = 3";

/// The same where a test must see the leaf asked before that, on a machine that stalls.
const SETTLES_LATE: &str = "settle = \"5s\"\nmax_probes = 3";

/// A leaf that is asked, with further lines of its table.
fn asking(bed: &Bed, lines: &str) -> Config {
    asking_by(bed, lines, PROBE)
}

fn asking_by(bed: &Bed, lines: &str, probe: &str) -> Config {
    bed.config(&format!("{QUICK}\n{lines}"))
        .probe("leaf", probe)
}

fn post(key: &str) -> Call {
    keyed("leaf", key)
}

/// How often the leaf was asked about it, and how often it was to do it.
fn asked_and_sent(bed: &Bed, key: &str) -> (usize, usize) {
    let requests = bed.leaf.requests(key);
    let asked = requests.iter().filter(|r| r.method != "POST").count();
    (asked, requests.len() - asked)
}

#[tokio::test]
async fn what_was_executed_without_an_answer_is_found_and_adopted() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let sidecar = asking(&bed, "").start().await;
    let id = bed.app.insert(post("k")).await;
    let call = bed.app.until_state(id, "confirmed").await;
    assert_eq!(
        (&call["attempts"], &call["last_status"]),
        (&json!(1), &json!(200))
    );
    assert_eq!(asked_and_sent(&bed, "k"), (1, 1));
    bed.leaf.assert_each_effect_once(["k"]);
    let result = bed.app.results("leaf", "k").await.remove(0);
    assert_eq!(result["source"], "adopted");
    assert_eq!(result["weak"], false);
    assert_eq!(result["call_id"], id);
    assert_eq!(result["body"], json!({ "id": 1, "key": "k" }));
    assert_eq!(result["truncated"], false);
    assert_eq!(bed.app.history(id).await, "in_doubt");
    // The confirmation answers this request and no other one.
    let same = bed.app.insert(post("k")).await;
    bed.app.until_state(same, "confirmed").await;
    let other = bed.app.insert(post("k").path("/others")).await;
    assert_eq!(
        bed.app.until_state(other, "failed").await["reason"],
        "key_conflict"
    );
    for (name, label, expected) in [
        ("leafhopper_probes_total", "verdict=\"found\"", 1.0),
        ("leafhopper_probes_total", "verdict=\"absent\"", 0.0),
        (
            "leafhopper_duplicates_prevented_total",
            "how=\"probe\"",
            1.0,
        ),
        ("leafhopper_weak_adoptions_total", "", 0.0),
    ] {
        sidecar.until_metric(name, &[label], expected).await;
    }
}

#[tokio::test]
async fn an_adoption_without_a_matcher_is_marked_and_counted() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let large = "x".repeat(3000);
    bed.leaf
        .on("/effects/cut")
        .answers(Reply::bytes(200, large.as_str()));
    let sidecar = bed
        .config(&format!("{QUICK}\nmax_response_bytes = \"1KiB\""))
        .toml("[leaf.leaf.probe]\npath = \"/effects/{{ call.key }}\"")
        .start()
        .await;
    let whole = bed.app.insert(post("whole")).await;
    let cut = bed.app.insert(post("cut")).await;
    bed.app.until_state(whole, "confirmed").await;
    bed.app.until_state(cut, "confirmed").await;
    let result = bed.app.results("leaf", "whole").await.remove(0);
    assert_eq!(
        (&result["weak"], &result["truncated"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(result["body"]["key"], "whole");
    let result = bed.app.results("leaf", "cut").await.remove(0);
    assert_eq!(
        (&result["weak"], &result["truncated"]),
        (&json!(true), &json!(true))
    );
    let name = "leafhopper_weak_adoptions_total";
    sidecar.until_metric(name, &["leaf=\"leaf\""], 2.0).await;
}

#[tokio::test]
async fn an_absence_is_believed_only_after_the_attempt_has_settled() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").times(1).does_nothing().resets();
    let _sidecar = asking_by(&bed, "", SETTLES_LATE).start().await;
    let id = bed.app.insert(post("k")).await;
    let call = bed.app.until_state(id, "confirmed").await;
    assert_eq!(call["attempts"], 2);
    bed.leaf.assert_each_effect_once(["k"]);
    let requests = bed.leaf.requests("k");
    let methods: Vec<_> = requests.iter().map(|r| r.method.as_str()).collect();
    assert_eq!(methods, ["POST", "GET", "GET", "POST"]);
    assert!(
        requests[2].at.duration_since(requests[0].at) >= Duration::from_secs(5),
        "the absence that counts is looked for after `settle`"
    );
    assert_eq!(
        bed.app.history(id).await,
        "in_doubt, probe_absent 404, probe_absent 404"
    );
    assert_eq!(bed.app.results("leaf", "k").await[0]["source"], "response");
}

#[tokio::test]
async fn a_late_effect_is_found_as_long_as_nothing_else_was_sent() {
    let bed = Bed::new().await;
    // The answer is lost, and the effect comes only after the first look.
    bed.leaf.on("/things").does_nothing().resets();
    let _sidecar = asking_by(&bed, "", SETTLES_LATE).start().await;
    let id = bed.app.insert(post("k")).await;
    bed.leaf.until_requests("k", 2).await;
    bed.leaf.has_already("k");
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(asked_and_sent(&bed, "k"), (2, 1));
}

#[tokio::test]
async fn a_kill_between_the_answer_and_the_record_leaves_one_effect() {
    for second in [false, true] {
        let bed = Bed::new().await;
        let gate = Gate::closed();
        bed.leaf
            .on("/things")
            .times(1)
            .waits_before_the_answer(&gate)
            .answers(201);
        let config = asking(&bed, "").dispatch("lease = \"1s\"");
        let mut first = config.start().await;
        let id = bed.app.insert(post("k").set("timeout", "5 s")).await;
        gate.until_arrived(1).await;
        let other = if second {
            Some(config.start().await)
        } else {
            None
        };
        first.kill();
        gate.open();
        if other.is_none() {
            first.restart().await;
        }
        let call = bed.app.until_state(id, "confirmed").await;
        assert_eq!(call["attempts"], 1);
        assert_eq!(
            asked_and_sent(&bed, "k"),
            (1, 1),
            "second instance: {second}"
        );
        bed.leaf.assert_each_effect_once(["k"]);
        assert_eq!(bed.app.results("leaf", "k").await[0]["source"], "adopted");
    }
}

#[tokio::test]
async fn the_probe_goes_as_the_call_would() {
    let bed = Bed::new().await;
    let key = "a/b ?#%ü&c";
    bed.leaf.on("/things").resets();
    let toml = "[leaf.leaf.probe]\nmethod = \"HEAD\"\n\
        path = \"/effects/{{ call.key }}?of={{ call.body.name }}&n={{ call.id }}\"";
    let _sidecar = bed
        .config(&format!(
            "{QUICK}\nauth = {{ bearer = {{ env = \"LEAF_TOKEN\" }} }}"
        ))
        .toml(toml)
        .sidecar()
        .environment("LEAF_TOKEN", "s3cret")
        .start()
        .await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let row = post(key)
        .body(json!({ "key": key, "name": "x=1&y/z" }))
        .set("meta", json!({ "traceparent": trace }));
    let id = bed.app.insert(row).await;
    bed.app.until_state(id, "confirmed").await;
    let requests = bed.leaf.requests(key);
    let probe = requests.iter().find(|r| r.method == "HEAD").unwrap();
    assert_eq!(
        probe.path,
        format!("/effects/a%2Fb%20%3F%23%25%C3%BC%26c?of=x%3D1%26y%2Fz&n={id}")
    );
    assert_eq!(probe.header("authorization"), Some("Bearer s3cret"));
    assert_eq!(probe.header("traceparent"), Some(trace));
    assert_eq!(probe.header("idempotency-key"), None);
    let result = bed.app.results("leaf", key).await.remove(0);
    assert_eq!(
        (&result["body"], &result["body_raw"]),
        (&Value::Null, &Value::Null)
    );
    bed.leaf.assert_each_effect_once([key]);
}

#[tokio::test]
async fn a_paused_leaf_is_not_asked_either() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let gate = Gate::closed();
    bed.leaf
        .on("/things")
        .waits_before_the_answer(&gate)
        .resets();
    let sidecar = asking(&bed, "").start().await;
    let held = post("k").set("timeout", "20 s");
    let id = bed.app.insert(held).await;
    gate.until_arrived(1).await;
    sidecar
        .command(&["pause", "leaf", "--reason", "moves"])
        .await;
    gate.open();
    bed.app.until_state(id, "in_doubt").await;
    holds_for(Duration::from_millis(400), "nothing is asked", async || {
        let asked = asked_and_sent(&bed, "k").0;
        if asked == 0 { Ok(()) } else { Err(asked) }
    })
    .await;
    sidecar
        .command(&["resume", "leaf", "--reason", "moved"])
        .await;
    bed.app.until_state(id, "confirmed").await;
}
