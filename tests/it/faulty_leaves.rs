//! What a leaf did, how much of its answer arrived, and what its policy makes of that: one table.
//!
//! Each case is one call whose first request meets the fault; from the second on, the leaf is in order. A leaf that
//! can be asked may be asked several times, until the absence of an effect has settled; that is not counted. A PUT that
//! is executed twice is the same effect. An answer that isn't true (executed, and 422 or 429) is believed: no client
//! could know better.

use std::fmt::Write as _;

use serde_json::json;

use crate::harness::{
    Bed,
    app::call,
    leaf::{Leaf, On, Remembers, Reply},
    sidecar::Config,
    wait::until,
};

/// The leaf has a probe; has one, and refuses a second create with 409; honours a key; the request is a PUT;
/// nothing is known.
const POLICIES: [&str; 5] = ["asked", "exists", "keyed", "put", "parking"];

/// Scripts what becomes of the answer to a request.
type Fault = fn(On<'_>);

/// What arrives of an answer.
const ARRIVES: &[(&str, Fault)] = &[
    ("reset before it was read", |on| on.resets_before_reading()),
    ("reset", |on| on.resets()),
    ("closed", |on| on.closes()),
    ("nothing in time", |on| on.hangs()),
    ("half of 201", |on| on.truncates(whole(201))),
    ("half of 201, no end", |on| on.stalls_mid_body(whole(201))),
    ("half of 422", |on| on.truncates(whole(422))),
    ("no HTTP", |on| on.answers_raw("SSH-2.0-other\r\n")),
    ("201", |on| on.answers(whole(201))),
    ("409", |on| on.answers(whole(409))),
    ("422", |on| on.answers(whole(422))),
    ("429", |on| on.answers(whole(429))),
    ("500", |on| on.answers(whole(500))),
    ("503", |on| on.answers(whole(503))),
];

/// A body that can be cut in half, and that no probe takes for the effect.
fn whole(status: u16) -> Reply {
    Reply::json(status, &json!({ "said": "in the first answer" }))
}

fn config(bed: &Bed) -> Config {
    let mut config = Config::new(&bed.database.url);
    for name in POLICIES {
        let lines = format!(
            "timeout = \"10s\"\nconcurrency = 40\n\
             retry = {{ initial = \"20ms\", max = \"40ms\", jitter = 0.0, max_attempts = 5 }}\n{}",
            match name {
                "keyed" => "idempotency = { header = \"Idempotency-Key\", window = \"1h\" }",
                "exists" => "exists_on = [409]",
                "parking" => "in_doubt = \"park\"",
                _ => "",
            }
        );
        config = config.leaf(name, &bed.leaf.url(), &lines);
        if matches!(name, "asked" | "exists") {
            config = config.probe(name, "settle = \"300ms\"");
        }
    }
    config
}

fn method(policy: &str) -> &'static str {
    if policy == "put" { "PUT" } else { "POST" }
}

/// The first request meets the fault. A leaf that can't have an effect twice says so from then on.
fn script(leaf: &Leaf, key: &str, policy: &str, executes: bool, fault: Fault) {
    if policy == "exists" && executes {
        leaf.always().method("POST").key(key).refuses(409);
    }
    let first = leaf.always().method(method(policy)).key(key).times(1);
    fault(if executes {
        first
    } else {
        first.does_nothing()
    });
}

/// `state reason, source, requests → effects`.
async fn end(bed: &Bed, policy: &str, key: &str, id: i64) -> String {
    let call = until(&format!("the end of {key}"), async || {
        let call = bed.app.call(id).await;
        match call["state"].as_str() {
            Some("confirmed" | "parked" | "failed") => Ok(call),
            _ => Err(call),
        }
    })
    .await;
    let mut end = call["state"].as_str().unwrap().to_owned();
    if let Some(reason) = call["reason"].as_str() {
        write!(end, " {reason}").unwrap();
    }
    if let Some(result) = bed.app.results(policy, key).await.first() {
        write!(end, " {}", result["source"].as_str().unwrap()).unwrap();
    }
    let sent = bed.leaf.requests(key);
    let sent = sent.iter().filter(|request| request.method != "GET");
    write!(end, " {}→{}", sent.count(), bed.leaf.effects(key)).unwrap();
    end
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "nearly all of them are the table")]
async fn every_fault_ends_as_the_policy_of_its_leaf_says() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let mut cases = Vec::new();
    for (executes, did) in [(true, "executed"), (false, "not executed")] {
        for (arrives, fault) in ARRIVES {
            if executes && *arrives == "reset before it was read" {
                continue;
            }
            let mut ids = Vec::new();
            for policy in POLICIES {
                let key = format!("{policy}, {did}, {arrives}");
                script(&bed.leaf, &key, policy, executes, *fault);
                let row = call(policy)
                    .key(&key)
                    .method(method(policy))
                    .set("headers", json!({ "X-Effect-Key": key }));
                let id = bed.app.insert(row.body(json!({ "key": key }))).await;
                ids.push((policy, key, id));
            }
            cases.push((did, *arrives, ids));
        }
    }
    let _sidecar = config(&bed).start().await;
    let mut table = String::new();
    for (did, arrives, ids) in cases {
        writeln!(table, "{did}, {arrives}").unwrap();
        for (policy, key, id) in ids {
            let end = end(&bed, policy, &key, id).await;
            writeln!(table, "  {policy:<8}{end}").unwrap();
        }
    }
    insta::assert_snapshot!(table, @"
    executed, reset
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    executed, closed
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    executed, nothing in time
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    executed, half of 201
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    executed, half of 201, no end
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    executed, half of 422
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    executed, no HTTP
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    executed, 201
      asked   confirmed response 1→1
      exists  confirmed response 1→1
      keyed   confirmed response 1→1
      put     confirmed response 1→1
      parking confirmed response 1→1
    executed, 409
      asked   failed rejected 1→1
      exists  confirmed adopted 1→1
      keyed   failed rejected 1→1
      put     failed rejected 1→1
      parking failed rejected 1→1
    executed, 422
      asked   failed rejected 1→1
      exists  failed rejected 1→1
      keyed   failed rejected 1→1
      put     failed rejected 1→1
      parking failed rejected 1→1
    executed, 429
      asked   confirmed response 2→2
      exists  confirmed adopted 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking confirmed response 2→2
    executed, 500
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    executed, 503
      asked   confirmed adopted 1→1
      exists  confirmed adopted 1→1
      keyed   confirmed response 2→1
      put     confirmed response 2→2
      parking parked no_probe 1→1
    not executed, reset before it was read
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, reset
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, closed
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, nothing in time
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, half of 201
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, half of 201, no end
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, half of 422
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, no HTTP
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, 201
      asked   confirmed response 1→0
      exists  confirmed response 1→0
      keyed   confirmed response 1→0
      put     confirmed response 1→0
      parking confirmed response 1→0
    not executed, 409
      asked   failed rejected 1→0
      exists  failed rejected 1→0
      keyed   failed rejected 1→0
      put     failed rejected 1→0
      parking failed rejected 1→0
    not executed, 422
      asked   failed rejected 1→0
      exists  failed rejected 1→0
      keyed   failed rejected 1→0
      put     failed rejected 1→0
      parking failed rejected 1→0
    not executed, 429
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking confirmed response 2→1
    not executed, 500
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    not executed, 503
      asked   confirmed response 2→1
      exists  confirmed response 2→1
      keyed   confirmed response 2→1
      put     confirmed response 2→1
      parking parked no_probe 1→0
    ");
}
