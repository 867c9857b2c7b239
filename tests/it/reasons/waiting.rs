//! The reasons of pending calls.

use leafhopper::store::operator::PENDING_REASONS;
use rustix::process::Signal;
use serde_json::json;
use uuid::Uuid;

use super::{PENDING, QUICK, STUCK, assert_all, does_what_show_says, is_seen};
use crate::{
    commands::{says, stdout},
    harness::{
        Bed,
        app::{App, Call, keyed},
        folder::Folder,
        leaf::{Gate, Reply},
        sidecar::{Config, Sidecar},
    },
};

/// Until a test has seen what is kept back by it, and after that.
const SLOW: &str = "1/h";
const FAST: &str = "1000/s";

fn config(bed: &Bed, credentials: &Folder, rate: &str) -> Config {
    let url = bed.leaf.url();
    let folder = credentials.path().display();
    bed.config(QUICK)
        .leaf("paused", &url, QUICK)
        .leaf("locked", &url, QUICK)
        .leaf(
            "customers",
            &url,
            &format!("{QUICK}\nauth = {{ bearer = {{ env = \"OWN\" }} }}\ncredentials = {{ dir = \"{folder}\" }}"),
        )
        .leaf("slow", &url, &format!("{QUICK}\nrate = \"{rate}\""))
        .leaf("held", &url, &format!("{QUICK}\nafter_failed_head = \"hold\""))
        .dispatch("lease = \"5s\"")
}

/// A call whose leaf is told of the key by the body.
fn row(leaf: &str, key: &str) -> Call {
    keyed(leaf, key)
}

#[tokio::test]
async fn every_reason_to_wait_is_seen_and_ends() {
    let bed = Bed::new().await;
    let app = &bed.app;
    let credentials = Folder::new();
    let starter = config(&bed, &credentials, SLOW)
        .sidecar()
        .environment("OWN", "token-of-the-leaf");

    // Inserted while triggers are off: seen also where nothing runs, and taken up by what runs.
    app.execute("SET session_replication_role = replica").await;
    let untracked = app.insert(row("leaf", "untracked")).await;
    app.execute("SET session_replication_role = origin").await;
    let list = ["calls", "--reason-is", "untracked"];
    let listed = stdout(&starter.command(&list).await);
    assert!(listed.contains("pending: untracked"), "{listed}");
    let sidecar = starter.start().await;
    app.until_state(untracked, "confirmed").await;
    sidecar
        .until_metric("leafhopper_untracked_calls_total", &[], 1.0)
        .await;

    let mut shown = of_leaves(&bed, &sidecar, &credentials).await;
    shown.extend(of_others(&bed, &sidecar).await);

    let sight = (app, &sidecar);
    app.execute(
        "UPDATE leafhopper.origin SET changed_at = now(), change = 'restored, says the test'",
    )
    .await;
    let changed = app.insert(row("paused", "changed")).await;
    is_seen(sight, changed, "pending", "database_changed", Some(PENDING)).await;
    does_what_show_says(&sidecar, changed, "--as resend").await;
    app.until_state(changed, "confirmed").await;
    shown.push("database_changed");
    assert_all(&shown, PENDING_REASONS);
}

/// What a leaf keeps its calls from.
async fn of_leaves(bed: &Bed, sidecar: &Sidecar, credentials: &Folder) -> Vec<&'static str> {
    let (app, sight) = (&bed.app, (&bed.app, sidecar));
    let unknown = app.insert(row("nobody", "unknown")).await;
    is_seen(sight, unknown, "pending", "leaf_unknown", Some(STUCK)).await;
    does_what_show_says(sidecar, unknown, "cancel").await;
    app.until_state(unknown, "cancelled").await;

    says(
        sidecar,
        0,
        &["pause", "paused", "--reason", "their maintenance"],
    )
    .await;
    let paused = app.insert(row("paused", "paused")).await;
    is_seen(sight, paused, "pending", "leaf_paused", Some(PENDING)).await;
    does_what_show_says(sidecar, paused, "resume").await;
    app.until_state(paused, "confirmed").await;

    let customer = row("customers", "customer").set("credential", "customer-7");
    let customer = app.insert(customer).await;
    is_seen(
        sight,
        customer,
        "pending",
        "credential_unknown",
        Some(PENDING),
    )
    .await;
    credentials.write("customer-7", "token-of-the-customer");
    app.until_state(customer, "confirmed").await;

    bed.leaf.always().key("locked").times(1).refuses(401);
    let locked = app.insert(row("locked", "locked")).await;
    is_seen(sight, locked, "pending", "breaker_open", Some(PENDING)).await;
    does_what_show_says(sidecar, locked, "resume").await;
    app.until_state(locked, "confirmed").await;

    app.execute(
        "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'slow', '/things' FROM generate_series(1, 4)",
    )
    .await;
    let slow = app.insert(row("slow", "slow")).await;
    is_seen(sight, slow, "pending", "rate_limited", Some(PENDING)).await;
    sidecar.rewrite(&config(bed, credentials, FAST));
    sidecar.signal(Signal::HUP);
    app.until_state(slow, "confirmed").await;

    let reply = Reply::new(503).header("retry-after", "600");
    bed.leaf.always().key("again").times(1).refuses(reply);
    let again = app.insert(row("leaf", "again")).await;
    is_seen(sight, again, "pending", "retry", Some(PENDING)).await;
    app.execute(&format!(
        "UPDATE leafhopper.dispatch SET due_at = now() WHERE call_id = {again}"
    ))
    .await;
    app.until_state(again, "confirmed").await;
    vec![
        "leaf_unknown",
        "leaf_paused",
        "credential_unknown",
        "breaker_open",
        "rate_limited",
        "retry",
    ]
}

/// What other calls keep a call from.
async fn of_others(bed: &Bed, sidecar: &Sidecar) -> Vec<&'static str> {
    let (app, sight) = (&bed.app, (&bed.app, sidecar));
    let gate = Gate::closed();
    let held = bed.leaf.always().key("same");
    held.waits_before_the_effect(&gate).answers(201);
    let same = row("leaf", "same").set("timeout", "10 minutes");
    app.insert(same).await;
    gate.until_arrived(1).await;
    let second = app.insert(row("leaf", "same")).await;
    is_seen(sight, second, "pending", "waits_for_key", Some(PENDING)).await;
    gate.open();
    app.until_state(second, "confirmed").await;

    bed.leaf.always().key("head").times(1).refuses(422);
    let head = row("held", "head").set("ordering_key", "o");
    let head = app.insert(head).await;
    app.until_state(head, "failed").await;
    let next = row("held", "next").set("ordering_key", "o");
    let next = app.insert(next).await;
    is_seen(sight, next, "pending", "waits_for_order", Some(STUCK)).await;
    does_what_show_says(sidecar, next, "release").await;
    app.until_state(next, "confirmed").await;

    let batch = Uuid::new_v4();
    app.execute(&format!(
        "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
    ))
    .await;
    app.insert(row("leaf", "ready").batch(batch)).await;
    let follow_up = row("leaf", "follow-up").set("run_when", json!("batch_settled"));
    let follow_up = app.insert(follow_up.batch(batch)).await;
    is_seen(
        sight,
        follow_up,
        "pending",
        "waits_for_batch",
        Some(PENDING),
    )
    .await;
    app.execute(&format!("SELECT leafhopper.seal('{batch}')"))
        .await;
    app.until_state(follow_up, "confirmed").await;

    // Seen for as long as somebody's transaction keeps the sidecar from it.
    let batch = Uuid::new_v4();
    let doomed = app
        .insert(
            row("paused", "doomed")
                .set("not_before", "2099-01-01")
                .batch(batch),
        )
        .await;
    let other = App::connect(&bed.database.url).await;
    other
        .execute(&format!(
            "BEGIN; SELECT 1 FROM leafhopper.dispatch WHERE call_id = {doomed} FOR UPDATE"
        ))
        .await;
    app.execute(&format!(
        "SELECT leafhopper.cancel_batch('{batch}', 'ordered twice')"
    ))
    .await;
    is_seen(sight, doomed, "pending", "batch_cancelled", Some(PENDING)).await;
    other.execute("COMMIT").await;
    app.until_state(doomed, "cancelled").await;
    vec![
        "waits_for_key",
        "waits_for_order",
        "waits_for_batch",
        "batch_cancelled",
    ]
}
