//! The commands with which a person sees what is stuck and says what is true.

use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{Bed, app::keyed, leaf::Reply, sidecar::Sidecar};

const QUICK: &str = "timeout = \"10s\"\n\
    retry = { initial = \"20ms\", max = \"50ms\", jitter = 0.0, max_attempts = 3 }";

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs a command that must end with this code; gives what it said.
pub(crate) async fn says(sidecar: &Sidecar, code: i32, arguments: &[&str]) -> Output {
    let output = sidecar.command(arguments).await;
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {output:?}"
    );
    output
}

pub(crate) async fn json_of(sidecar: &Sidecar, arguments: &[&str]) -> Value {
    let output = says(sidecar, 0, arguments).await;
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Two calls that a probe can't clear up, parked; from then on the leaf behaves.
async fn two_parked_calls(bed: &Bed) -> (Sidecar, [i64; 2]) {
    bed.leaf.on("/things").times(2).resets();
    bed.leaf
        .on("/effects")
        .refuses(Reply::bytes(418, "short and stout"));
    let sidecar = bed
        .config(QUICK)
        .probe("leaf", "max_probes = 2")
        .start()
        .await;
    let first = bed.app.insert(keyed("leaf", "first")).await;
    let second = bed.app.insert(keyed("leaf", "second")).await;
    for id in [first, second] {
        bed.app.until_state(id, "parked").await;
    }
    bed.leaf.behaves();
    (sidecar, [first, second])
}

#[tokio::test]
async fn a_parked_call_is_shown_with_what_was_seen_and_what_would_move_it() {
    let bed = Bed::new().await;
    let (sidecar, [id, _]) = two_parked_calls(&bed).await;
    let id = id.to_string();
    let shown = stdout(&says(&sidecar, 0, &["show", &id]).await);
    for part in [
        "parked: probe_unclear",
        "the probes gave no clear answer",
        "in_doubt",
        "answered 418",
        &format!("leafhopper resolve {id} --confirmed"),
        &format!("leafhopper resolve {id} --not-executed"),
    ] {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
    assert_eq!(shown.matches("short and stout").count(), 2, "{shown}");
    let as_json = json_of(&sidecar, &["show", &id, "--json"]).await;
    let classes: Vec<&str> = as_json["attempt"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["class"].as_str().unwrap())
        .collect();
    assert_eq!(classes, ["in_doubt", "probe_unclear", "probe_unclear"]);
    assert_eq!(as_json["reason"], "probe_unclear");
}

#[tokio::test]
async fn a_resolve_that_is_incomplete_or_comes_too_late_changes_nothing() {
    let bed = Bed::new().await;
    let (sidecar, [id, _]) = two_parked_calls(&bed).await;
    let resolve = ["resolve", &id.to_string()];
    // Without a reason, without the truth, with both, with a body that is no JSON: usage.
    for wrong in [
        &["--not-executed"][..],
        &["--not-executed", "--reason= "],
        &["--reason=r"],
        &["--confirmed", "--not-executed", "--reason=r"],
        &["--confirmed", "--body={", "--reason=r"],
    ] {
        says(&sidecar, 2, &[&resolve, wrong].concat()).await;
    }
    // How often one call was tried is asked of many.
    let many = [
        "--expect-attempts=1",
        "--not-executed",
        "--reason=r",
        "--yes",
    ];
    says(&sidecar, 2, &[&["resolve"], &many[..]].concat()).await;
    // Moved since it was shown: refused.
    let moved = ["--not-executed", "--expect-attempts=7", "--reason=r"];
    let refused = stderr(&says(&sidecar, 1, &[&resolve, &moved[..]].concat()).await);
    assert!(refused.contains("attempts"), "{refused}");
    assert_eq!(bed.app.state(id).await, "parked");
}

#[tokio::test]
async fn what_a_person_says_moves_a_parked_call_and_is_kept() {
    let bed = Bed::new().await;
    let (sidecar, [first, second]) = two_parked_calls(&bed).await;
    let reason = "--reason=looked at it";

    let resolve = ["resolve", &first.to_string()];
    let words = ["--not-executed", "--expect-attempts=1", reason];
    let said = stdout(&says(&sidecar, 0, &[&resolve, &words[..]].concat()).await);
    assert_eq!(said, format!("call {first}: pending\n"));
    bed.app.until_state(first, "confirmed").await;

    let resolve = ["resolve", &second.to_string()];
    let body = "--body={\"id\": \"from the dashboard\"}";
    let words = ["--confirmed", "--status=201", body, reason];
    says(&sidecar, 0, &[&resolve, &words[..]].concat()).await;
    bed.app.until_state(second, "confirmed").await;
    let result = bed.app.results("leaf", "second").await.remove(0);
    assert_eq!(
        (&result["source"], &result["status"], &result["body"]["id"]),
        (
            &json!("operator"),
            &json!(201),
            &json!("from the dashboard")
        )
    );

    let actions = "SELECT action, call_id, reason, actor <> '' AS named \
                     FROM leafhopper.operator_action ORDER BY id";
    let reason = "looked at it";
    assert_eq!(
        bed.app.rows(actions).await,
        [
            json!({"action": "resolve_not_executed", "call_id": first, "reason": reason, "named": true}),
            json!({"action": "resolve_confirmed", "call_id": second, "reason": reason, "named": true}),
        ]
    );
}

/// The app, or a webhook's handler, knows better than any probe.
#[tokio::test]
async fn the_app_s_word_moves_a_parked_call() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let _sidecar = bed.sidecar(&format!("{QUICK}\nin_doubt = \"park\"")).await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "parked").await;
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'k', 200, '{\"from\": \"a webhook\"}')")
        .await;
    bed.app.until_state(id, "confirmed").await;
    let result = bed.app.results("leaf", "k").await.remove(0);
    assert_eq!(
        (&result["source"], &result["body"]["from"]),
        (&json!("application"), &json!("a webhook"))
    );
}

#[tokio::test]
async fn calls_are_listed_and_changed_by_filters() {
    let bed = Bed::new().await;
    bed.leaf.always().key("no").refuses(422);
    bed.leaf.always().key("not yet").refuses(422);
    bed.leaf.always().key("lost").resets();
    let sidecar = bed.sidecar(&format!("{QUICK}\nin_doubt = \"park\"")).await;
    let mut ids = Vec::new();
    for (key, state) in [("no", "failed"), ("not yet", "failed"), ("lost", "parked")] {
        let id = bed.app.insert(keyed("leaf", key)).await;
        bed.app.until_state(id, state).await;
        ids.push(id);
    }
    let later = bed
        .app
        .insert(keyed("leaf", "later").set("not_before", "2100-01-01"))
        .await;

    let listed = async |arguments: &[&str]| -> Vec<i64> {
        let list = json_of(&sidecar, &[&["calls", "--json"], arguments].concat()).await;
        let ids = list
            .as_array()
            .unwrap()
            .iter()
            .map(|call| call["id"].as_i64().unwrap());
        let mut ids: Vec<i64> = ids.collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(listed(&["--state", "failed"]).await, ids[..2]);
    assert_eq!(listed(&["--stuck"]).await, ids[2..]);
    assert_eq!(listed(&["--leaf", "leaf", "--key", "later"]).await, [later]);
    assert!(listed(&["--leaf", "other"]).await.is_empty());
    let text = stdout(&says(&sidecar, 0, &["calls", "--state", "parked"]).await);
    assert!(text.contains("no_probe"), "{text}");

    // Nobody is there to be asked, and nothing is changed.
    let filter = [
        "retry",
        "--leaf",
        "leaf",
        "--reason-is",
        "rejected",
        "--reason",
        "mended",
    ];
    let asked = stderr(&says(&sidecar, 2, &filter).await);
    assert!(asked.contains("--yes"), "{asked}");
    let dry = stdout(&says(&sidecar, 0, &[&filter[..], &["--dry-run"]].concat()).await);
    assert!(dry.contains(&ids[0].to_string()), "{dry}");
    assert_eq!(bed.app.state(ids[0]).await, "failed");
    bed.leaf.behaves();
    says(&sidecar, 0, &[&filter[..], &["--yes"]].concat()).await;
    for id in &ids[..2] {
        bed.app.until_state(*id, "confirmed").await;
    }

    // In part: what can be done is done, and the code says that not all was.
    let (done, parked) = (later.to_string(), ids[2].to_string());
    let cancel = ["cancel", &done, &parked, "--reason", "no longer wanted"];
    let said = says(&sidecar, 1, &cancel).await;
    assert_eq!(stdout(&said), format!("call {done}: cancelled\n"));
    assert!(stderr(&said).contains("say what is true"), "{said:?}");
    bed.app.until_state(later, "cancelled").await;
    let misnamed = stderr(&says(&sidecar, 0, &["calls", "--reason-is", "rejcted"]).await);
    assert!(misnamed.contains("did you mean rejected?"), "{misnamed}");
    let by_key = stderr(&says(&sidecar, 2, &["show", "order:4711:charge"]).await);
    assert!(by_key.contains("calls --key"), "{by_key}");
    let unknown = stderr(&says(&sidecar, 1, &["show", "999999"]).await);
    assert!(unknown.contains("999999"), "{unknown}");
}
