//! The reasons of parked calls.

use leafhopper::store::operator::PARKED_REASONS;
use serde_json::json;
use uuid::Uuid;

use super::{QUICK, STUCK, assert_all, does_what_show_says, is_seen};
use crate::harness::{
    Bed,
    app::{App, Call, keyed},
    folder::Folder,
    leaf::{Gate, Reply},
    sidecar::{Config, Sidecar},
    wait::until,
};

/// A call whose body has the key.
fn row(leaf: &str, key: &str) -> Call {
    keyed(leaf, key)
}

fn config(bed: &Bed, state: &Folder) -> Config {
    let url = bed.leaf.url();
    let asked = |name: &str| {
        format!(
            "[leaf.{name}.probe]\npath = \"/effects/{{{{ call.key }}}}\"\nsettle = \"100ms\"\nmax_probes = 1\n\
             found = \"response.body if response.body.key == call.key\"\n"
        )
    };
    bed.config(&format!("{QUICK}\nin_doubt = \"park\""))
        .leaf("asked", &url, &format!("{QUICK}\nexists_on = [409]"))
        .toml(&asked("asked"))
        .leaf(
            "keyed",
            &url,
            &format!(
                "{QUICK}\nin_doubt = \"resend\"\n\
                 idempotency = {{ header = \"Idempotency-Key\", window = \"10s\" }}"
            ),
        )
        .leaf(
            "tired",
            &url,
            &format!(
                "{}\nin_doubt = \"resend\"\nidempotency = {{ header = \"Idempotency-Key\", window = \"1h\" }}",
                QUICK.replace("max_attempts = 3", "max_attempts = 1")
            ),
        )
        .leaf(
            "weak",
            &url,
            &format!(
                "{QUICK}\ncompensate = {{ method = \"DELETE\", path = \"/effects/{{{{ call.key }}}}\" }}"
            ),
        )
        .toml("[leaf.weak.probe]\npath = \"/effects/{{ call.key }}\"\nsettle = \"100ms\"\n")
        .dispatch(&format!(
            "lease = \"1s\"\nstate_dir = {:?}",
            state.path().display().to_string()
        ))
}

#[tokio::test]
async fn every_reason_to_park_is_seen_and_a_word_moves_it() {
    let bed = Bed::new().await;
    let (app, leaf) = (&bed.app, &bed.leaf);
    let state = Folder::new();
    let mut sidecar = config(&bed, &state).start().await;
    let mut shown = Vec::new();

    // Each is in doubt after one lost answer, for a leaf that can't find out.
    for (key, leaf_name) in [
        ("no_probe", "leaf"),
        ("probe_unclear", "asked"),
        ("template", "asked"),
        ("key_expired", "keyed"),
        ("attempts_exhausted", "tired"),
    ] {
        leaf.always().key(key).method("POST").times(1).resets();
        leaf.always().key(key).method("GET").refuses(418);
        let mut call = row(leaf_name, key);
        if key == "template" {
            call = call.set(
                "probe",
                json!({ "path": "/effects/{{ call.body.nothing }}" }),
            );
        }
        let id = app.insert(call).await;
        is_seen((app, &sidecar), id, "parked", key, Some(STUCK)).await;
        does_what_show_says(&sidecar, id, "--not-executed").await;
        app.until_state(id, "confirmed").await;
        shown.push(key);
    }

    leaf.always()
        .key("exists_unmatched")
        .method("POST")
        .refuses(409);
    let others = Reply::json(200, &json!({ "key": "somebody else's" }));
    leaf.always()
        .key("exists_unmatched")
        .method("GET")
        .answers(others);
    let id = app.insert(row("asked", "exists_unmatched")).await;
    is_seen(
        (app, &sidecar),
        id,
        "parked",
        "exists_unmatched",
        Some(STUCK),
    )
    .await;
    does_what_show_says(&sidecar, id, "--confirmed").await;
    app.until_state(id, "confirmed").await;
    shown.push("exists_unmatched");

    weak_adoption(&bed, &sidecar).await;
    shown.push("weak_adoption");
    crash_suspect(&bed, &mut sidecar).await;
    shown.push("crash_suspect");
    assert_all(&shown, PARKED_REASONS);
}

async fn weak_adoption(bed: &Bed, sidecar: &Sidecar) {
    let (app, leaf) = (&bed.app, &bed.leaf);
    leaf.always().key("weak").method("POST").times(1).resets();
    leaf.always().key("bad").refuses(422);
    let batch = Uuid::new_v4();
    app.execute(&format!(
        "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
    ))
    .await;
    let weak = app.insert(row("weak", "weak").batch(batch)).await;
    app.until_state(weak, "confirmed").await;
    app.insert(row("weak", "bad").batch(batch)).await;
    let undo = compensation_of(app, weak).await;
    is_seen((app, sidecar), undo, "parked", "weak_adoption", Some(STUCK)).await;
    does_what_show_says(sidecar, undo, "--not-executed").await;
    app.until_state(undo, "confirmed").await;
    assert_eq!(leaf.standing("weak"), 0);
}

pub(super) async fn compensation_of(app: &App, call: i64) -> i64 {
    let mut found = None;
    until("there is a compensation", async || {
        let sql = format!("SELECT id FROM leafhopper.outbox WHERE undoes = {call}");
        let rows = app.rows(&sql).await;
        found = rows.first().and_then(|row| row["id"].as_i64());
        found.map(|_| ()).ok_or(rows)
    })
    .await;
    found.unwrap()
}

/// What goes down with its process three times. The successor on the same machine need not wait for a lease.
async fn crash_suspect(bed: &Bed, sidecar: &mut Sidecar) {
    let (app, gate) = (&bed.app, Gate::closed());
    let deadly = bed.leaf.always().key("deadly");
    deadly.waits_before_the_effect(&gate).answers(201);
    bed.leaf.always().key("deadly").method("GET").refuses(404);
    let call = row("asked", "deadly").set("timeout", "5 s");
    let id = app.insert(call.set("max_attempts", 9)).await;
    for crashes in 0..3 {
        // Anew, as what went down before stands as under way until its successor has looked, and sent: what had not
        // begun is none that went down.
        until("it is under way", async || {
            let sent = bed.leaf.requests("deadly");
            let sent = sent.iter().filter(|request| request.method == "POST");
            let sql =
                format!("SELECT state, crashes FROM leafhopper.dispatch WHERE call_id = {id}");
            let rows = app.rows(&sql).await;
            let is_under_way = rows == [json!({ "state": "dispatching", "crashes": crashes })];
            if is_under_way && sent.count() > crashes {
                Ok(())
            } else {
                Err(rows)
            }
        })
        .await;
        sidecar.kill();
        sidecar.restart().await;
    }
    is_seen((app, sidecar), id, "parked", "crash_suspect", Some(STUCK)).await;
    gate.open();
    does_what_show_says(sidecar, id, "--not-executed").await;
    app.until_state(id, "confirmed").await;
}
