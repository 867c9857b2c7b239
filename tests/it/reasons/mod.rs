//! Every reason of the contract: it comes about, is seen by the command line, on the page and in the metrics, and
//! what is shown as the way out moves the call.

mod ended;
mod parked;
mod waiting;

use std::collections::BTreeSet;

use crate::{
    commands::{json_of, says, stdout},
    harness::{app::App, sidecar::Sidecar, wait::until},
};

/// At once, and without chance; the time limit is one that a stalled machine keeps to.
const QUICK: &str = "timeout = \"10s\"\n\
    retry = { initial = \"20ms\", max = \"50ms\", jitter = 0.0, max_attempts = 3 }";

/// Where a reason is counted: the metric, and its label where that is not the reason.
const PENDING: &str = "leafhopper_pending_calls";
const STUCK: &str = "leafhopper_stuck_calls";
const FAILED: &str = "leafhopper_calls_failed_total";

/// Waits until the call is in that state for that reason, and looks at it from every side.
async fn is_seen(
    (app, sidecar): (&App, &Sidecar),
    id: i64,
    state: &str,
    reason: &str,
    metric: Option<&str>,
) {
    until(&format!("call {id} is {state}: {reason}"), async || {
        let call = app.call(id).await;
        if call["state"] == state && call["reason"] == reason {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    let listed = json_of(
        sidecar,
        &["calls", "--state", state, "--reason-is", reason, "--json"],
    )
    .await;
    let listed = listed.as_array().unwrap();
    assert!(listed.iter().any(|call| call["id"] == id), "{listed:?}");
    let shown = stdout(&says(sidecar, 0, &["show", &id.to_string()]).await);
    let first = shown.lines().next().unwrap_or_default();
    assert!(first.contains(&format!("{state}: {reason}")), "{shown}");
    assert!(!shown.contains("knows no more"), "{shown}");
    let (status, page) = sidecar.get(&format!("/calls/{id}")).await;
    assert_eq!(status, 200, "{page}");
    assert!(
        page.contains(&format!("{state}: {reason}</span>")),
        "{page}"
    );
    let by_reason = format!("/calls?state={state}&reason={reason}");
    let (_, page) = sidecar.get(&by_reason).await;
    assert!(page.contains(&format!("href=\"/calls/{id}\"")), "{page}");
    if let Some(metric) = metric {
        let label = format!("reason=\"{reason}\"");
        until(&format!("{metric}{{{label}}} counts it"), async || {
            let counted = sidecar.metric(metric, &[&label]).await;
            if counted > 0.5 { Ok(()) } else { Err(counted) }
        })
        .await;
    }
}

/// Runs the command that `show` gives for this verb, as a person would: with a reason of one's own.
async fn does_what_show_says(sidecar: &Sidecar, id: i64, verb: &str) {
    let shown = json_of(sidecar, &["show", &id.to_string(), "--json"]).await;
    let commands = shown["commands"].as_array().unwrap();
    let command = commands
        .iter()
        .filter_map(|command| command.as_str())
        .find(|command| command.contains(verb))
        .unwrap_or_else(|| panic!("no {verb} in {commands:?}"));
    let words: Vec<String> = command
        .split(' ')
        .skip(1)
        .map(|word| word.replace("'…'", "looked at it"))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    says(sidecar, 0, &words).await;
}

/// A test has shown all of these, and nothing else.
fn assert_all(shown: &[&str], of: &[&str]) {
    let shown: BTreeSet<&str> = shown.iter().copied().collect();
    assert_eq!(shown, of.iter().copied().collect());
}
