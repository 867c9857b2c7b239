//! The reasons of calls that ended without a confirmation.

use leafhopper::store::operator::FAILED_REASONS;
use serde_json::json;
use uuid::Uuid;

use super::{FAILED, QUICK, assert_all, does_what_show_says, is_seen};
use crate::{
    batch_commands::until_finished,
    commands::says,
    harness::{Bed, app::keyed, sidecar::Config},
};

fn config(bed: &Bed) -> Config {
    let url = bed.leaf.url();
    bed.config(QUICK)
        .leaf(
            "hasty",
            &url,
            "retry = { initial = \"20ms\", max = \"40ms\", give_up_after = \"300ms\" }",
        )
        .leaf(
            "guarded",
            &url,
            &format!("{QUICK}\nauth = {{ header = {{ name = \"x-auth\", value = {{ env = \"OWN\" }} }} }}"),
        )
}

#[tokio::test]
async fn every_reason_to_fail_is_seen_and_what_can_be_sent_again_is() {
    let bed = Bed::new().await;
    let (app, leaf) = (&bed.app, &bed.leaf);
    let starter = config(&bed).sidecar();
    let sidecar = starter
        .environment("OWN", "token-of-the-leaf")
        .start()
        .await;
    let sight = (app, &sidecar);

    leaf.always().key("rejected").times(1).refuses(422);
    leaf.always()
        .key("attempts_exhausted")
        .times(3)
        .refuses(425);
    leaf.always().key("gave_up").refuses(429);
    app.insert(keyed("leaf", "key_conflict")).await;
    app.until_all_confirmed(1).await;
    let conflict = keyed("leaf", "key_conflict").body(json!({ "key": "key_conflict", "other": 1 }));
    let unsendable = keyed("guarded", "unsendable").set("headers", json!({ "X-Auth": "mine" }));
    for (reason, call) in [
        ("rejected", keyed("leaf", "rejected")),
        ("attempts_exhausted", keyed("leaf", "attempts_exhausted")),
        ("gave_up", keyed("hasty", "gave_up")),
        ("key_conflict", conflict),
        ("unsendable", unsendable),
    ] {
        let id = app.insert(call).await;
        is_seen(sight, id, "failed", reason, Some(FAILED)).await;
        match reason {
            // The mend is the leaf's, or the app's: then the same call goes again.
            "gave_up" => leaf.behaves(),
            "key_conflict" => {
                app.execute("SELECT leafhopper.forget('leaf', 'key_conflict')")
                    .await;
            }
            _ => {}
        }
        does_what_show_says(&sidecar, id, "retry").await;
        let state = if reason == "unsendable" {
            "failed"
        } else {
            "confirmed"
        };
        app.until_state(id, state).await;
    }
    let all = [
        "rejected",
        "attempts_exhausted",
        "gave_up",
        "key_conflict",
        "unsendable",
    ];
    assert_all(&all, FAILED_REASONS);
}

#[tokio::test]
async fn what_was_cancelled_says_by_whom_or_what() {
    let bed = Bed::new().await;
    let (app, leaf) = (&bed.app, &bed.leaf);
    let compensate = "compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";
    let sidecar = bed.sidecar(&format!("{QUICK}\n{compensate}")).await;
    let sight = (app, &sidecar);

    let id = app.insert(keyed("nobody", "by-hand")).await;
    says(
        &sidecar,
        0,
        &["cancel", &id.to_string(), "--reason", "ordered twice"],
    )
    .await;
    is_seen(sight, id, "cancelled", "ordered twice", None).await;

    let batch = Uuid::new_v4();
    leaf.always().key("bad").refuses(422);
    leaf.always().key("stays").method("DELETE").refuses(403);
    app.execute(&format!(
        "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
    ))
    .await;
    let stays = app.insert(keyed("leaf", "stays").batch(batch)).await;
    app.until_state(stays, "confirmed").await;
    let waits = app.insert(keyed("nobody", "waits").batch(batch)).await;
    app.insert(keyed("leaf", "bad").batch(batch)).await;
    is_seen(sight, waits, "cancelled", "batch_cancelled", None).await;
    let undo = super::parked::compensation_of(app, stays).await;
    is_seen(sight, undo, "failed", "rejected", Some(FAILED)).await;
    does_what_show_says(&sidecar, undo, "--waive").await;
    is_seen(sight, undo, "cancelled", "waived", None).await;
    until_finished(app, batch).await;
    let late = app.insert(keyed("leaf", "late").batch(batch)).await;
    is_seen(sight, late, "cancelled", "batch_finished", None).await;
}
