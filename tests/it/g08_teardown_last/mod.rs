//! Teardown last: nothing of a failed batch is undone while one of its calls is in flight, in doubt or parked; then
//! every effect that the leaf confirmed is undone, the newest first, or shown as not undone.

mod alive;
mod configurations;
mod doubts;
mod ends;
mod faults;
mod follow_ups;
mod incomplete;
mod late;
mod many;
mod own;
mod races;

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{
    Bed,
    app::{App, Call, call},
    leaf::{Gate, Leaf},
    sidecar::{Config, Sidecar},
    wait::{holds_for, until},
};

/// A leaf whose effects are undone by DELETE at a path of their own.
const UNDOES: &str = "concurrency = 8\nretry = { initial = \"20ms\", max = \"50ms\" }\n\
     compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";

fn thing(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

/// A batch whose calls come in several transactions; it can succeed once it is sealed.
async fn unsealed(app: &App) -> Uuid {
    let batch = Uuid::new_v4();
    let sql = format!("INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)");
    app.execute(&sql).await;
    batch
}

async fn seal(app: &App, batch: Uuid) {
    app.execute(&format!("SELECT leafhopper.seal('{batch}')"))
        .await;
}

/// The batch's row; null where it has none.
async fn row(app: &App, batch: Uuid) -> Value {
    let sql = format!("SELECT * FROM leafhopper.batch WHERE id = '{batch}'");
    app.rows(&sql).await.pop().unwrap_or_default()
}

/// Waits until the batch has come to that state, and all that follows from it is done.
async fn until_finished(app: &App, batch: Uuid, state: &str) -> Value {
    until(
        &format!("batch {batch} is {state}, and finished"),
        async || {
            let row = row(app, batch).await;
            if row["state"] == state && !row["finished_at"].is_null() {
                Ok(row)
            } else {
                Err((row, calls(app, batch).await))
            }
        },
    )
    .await
}

/// Waits until the batch is in that state.
async fn until_batch(app: &App, batch: Uuid, state: &str) -> Value {
    until(&format!("batch {batch} is {state}"), async || {
        let row = row(app, batch).await;
        if row["state"] == state {
            Ok(row)
        } else {
            Err((row, calls(app, batch).await))
        }
    })
    .await
}

/// Key and state of each call of the batch, in the order of their ids.
async fn calls(app: &App, batch: Uuid) -> Vec<String> {
    let sql = format!(
        "SELECT concat_ws(' ', key, state, reason) AS line FROM leafhopper.call WHERE batch_id = '{batch}' ORDER BY id"
    );
    let rows = app.rows(&sql).await;
    rows.iter()
        .map(|row| row["line"].as_str().unwrap().to_owned())
        .collect()
}

/// Cancels the batch by hand.
async fn withdraw(app: &App, batch: Uuid) {
    let sql = format!("SELECT leafhopper.cancel_batch('{batch}', 'withdrawn')");
    app.execute(&sql).await;
}

async fn nothing_is_undone_for(bed: &Bed, time: Duration) {
    holds_for(time, "nothing is undone", async || {
        let undone = undone(&bed.leaf);
        if undone.is_empty() {
            Ok(())
        } else {
            Err(undone)
        }
    })
    .await;
}

/// Waits until the effect of this key stands no more at the leaf.
async fn until_gone(bed: &Bed, key: &str, batch: Uuid) {
    until(&format!("the effect of {key} is undone"), async || {
        if bed.leaf.standing(key) == 0 {
            Ok(())
        } else {
            Err(calls(&bed.app, batch).await)
        }
    })
    .await;
}

/// A batch of which these calls are confirmed, one after the other.
async fn confirmed(bed: &Bed, keys: &[&str]) -> Uuid {
    let batch = unsealed(&bed.app).await;
    for key in keys {
        let id = bed.app.insert(thing(key).batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    batch
}

/// Waits until the undoing of this key's first effect is in that state; gives its id.
async fn until_undoing(bed: &Bed, key: &str, state: &str) -> i64 {
    let sql = format!("SELECT id, state FROM leafhopper.call WHERE key = '{key}:undo:1'");
    until(&format!("the undoing of {key} is {state}"), async || {
        let rows = bed.app.rows(&sql).await;
        match rows.first() {
            Some(row) if row["state"] == state => Ok(row["id"].as_i64().unwrap()),
            _ => Err(rows),
        }
    })
    .await
}

async fn id_of(bed: &Bed, key: &str) -> i64 {
    let sql = format!("SELECT id FROM leafhopper.call WHERE key = '{key}'");
    bed.app.rows(&sql).await[0]["id"].as_i64().unwrap()
}

async fn until_no_mark_is_left(app: &App) {
    until("nobody has to look at a batch", async || {
        let marks = app.rows("SELECT * FROM leafhopper.batch_mark").await;
        if marks.is_empty() { Ok(()) } else { Err(marks) }
    })
    .await;
}

/// Gives the sidecar another configuration, and waits until it has it.
async fn reread(sidecar: &Sidecar, config: &Config) {
    sidecar.rewrite(config);
    sidecar.signal(Signal::HUP);
    until("the configuration was read again", async || {
        let log = sidecar.log();
        let read = log
            .iter()
            .any(|line| line["message"] == "the configuration was read again");
        if read { Ok(()) } else { Err(log) }
    })
    .await;
}

/// What the leaf was asked to undo, in the order in which it was.
fn undone(leaf: &Leaf) -> Vec<String> {
    let requests = leaf.all_requests().into_iter();
    requests
        .filter(|request| request.method == "DELETE")
        .map(|request| request.key)
        .collect()
}

#[tokio::test]
async fn what_is_in_flight_is_awaited_and_undone_with_the_rest_the_newest_first() {
    let bed = Bed::new().await;
    let flying = Gate::closed();
    bed.leaf
        .always()
        .key("site")
        .waits_before_the_effect(&flying)
        .answers(201);
    bed.leaf.always().key("dns").refuses(422);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let repository = bed.app.insert(thing("repository").batch(batch)).await;
    bed.app.until_state(repository, "confirmed").await;
    let site = bed.app.insert(thing("site").batch(batch)).await;
    flying.until_arrived(1).await;
    let dns = bed.app.insert(thing("dns").batch(batch)).await;
    bed.app.until_state(dns, "failed").await;
    until_batch(&bed.app, batch, "cancelling").await;
    nothing_is_undone_for(&bed, Duration::from_millis(300)).await;
    assert_eq!(row(&bed.app, batch).await["state"], "cancelling");

    flying.open();
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["site", "repository"]);
    assert_eq!(
        calls(&bed.app, batch).await,
        [
            "repository confirmed",
            "site confirmed",
            "dns failed rejected",
            "site:undo:1 confirmed",
            "repository:undo:1 confirmed",
        ]
    );
    for (key, id) in [("repository", repository), ("site", site)] {
        assert_eq!(bed.leaf.standing(key), 0);
        assert_eq!(bed.leaf.effects(key), 1);
        assert!(!bed.app.call(id).await["undone_at"].is_null());
        assert_eq!(bed.app.results("leaf", key).await.len(), 1);
    }
}

#[tokio::test]
async fn a_batch_whose_calls_are_all_confirmed_has_succeeded_and_nothing_of_it_is_undone() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    for key in ["a", "b", "c"] {
        bed.app.insert(thing(key).batch(batch)).await;
    }
    seal(&bed.app, batch).await;
    until_finished(&bed.app, batch, "succeeded").await;
    bed.leaf.assert_each_effect_once(["a", "b", "c"]);
    assert!(undone(&bed.leaf).is_empty());
    // It takes no more.
    let late = bed.app.insert(thing("late").batch(batch)).await;
    let late = bed.app.until_state(late, "cancelled").await;
    assert_eq!(late["reason"], "batch_finished");
    assert_eq!(row(&bed.app, batch).await["state"], "succeeded");
    assert!(bed.leaf.requests("late").is_empty());
}
