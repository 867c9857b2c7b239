//! How batches end: of one call and of none, with failures that are allowed, of follow-ups alone, under an id that was
//! used before.

use serde_json::json;
use uuid::Uuid;

use super::{UNDOES, calls, row, thing, undone, unsealed, until_finished, withdraw};
use crate::harness::{Bed, wait::holds_for};

#[tokio::test]
async fn where_failures_are_allowed_nothing_is_undone_and_only_the_last_phase_runs() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "BEGIN; INSERT INTO leafhopper.batch (id, allow_failures) VALUES ('{batch}', true)"
        ))
        .await;
    for phase in ["batch_succeeded", "batch_failed", "batch_settled"] {
        bed.app
            .insert(thing(phase).batch(batch).set("run_when", phase))
            .await;
    }
    for key in ["a", "bad", "b"] {
        bed.app.insert(thing(key).batch(batch)).await;
    }
    bed.app.execute("COMMIT").await;
    let _sidecar = bed.sidecar(UNDOES).await;
    until_finished(&bed.app, batch, "finished").await;
    assert_eq!(
        calls(&bed.app, batch).await,
        [
            "batch_succeeded cancelled batch_finished",
            "batch_failed cancelled batch_finished",
            "batch_settled confirmed",
            "a confirmed",
            "bad failed rejected",
            "b confirmed",
        ]
    );
    assert!(undone(&bed.leaf).is_empty());
}

#[tokio::test]
async fn where_failures_are_allowed_and_none_came_it_has_succeeded() {
    let bed = Bed::new().await;
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "BEGIN; INSERT INTO leafhopper.batch (id, allow_failures) VALUES ('{batch}', true)"
        ))
        .await;
    bed.app.insert(thing("a").batch(batch)).await;
    bed.app
        .insert(
            thing("then")
                .batch(batch)
                .set("run_when", "batch_succeeded"),
        )
        .await;
    bed.app.execute("COMMIT").await;
    let _sidecar = bed.sidecar(UNDOES).await;
    until_finished(&bed.app, batch, "succeeded").await;
    bed.leaf.assert_each_effect_once(["a", "then"]);
}

#[tokio::test]
async fn a_batch_of_follow_ups_alone_has_succeeded() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = Uuid::new_v4();
    bed.app.execute("BEGIN").await;
    for phase in ["batch_settled", "batch_succeeded", "batch_failed"] {
        bed.app
            .insert(thing(phase).batch(batch).set("run_when", phase))
            .await;
    }
    bed.app.execute("COMMIT").await;
    until_finished(&bed.app, batch, "succeeded").await;
    let requests = bed.leaf.all_requests().into_iter();
    let order: Vec<String> = requests.map(|request| request.key).collect();
    assert_eq!(order, ["batch_succeeded", "batch_settled"]);
}

#[tokio::test]
async fn a_batch_without_calls_stays_open_and_can_be_cancelled() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, name) VALUES ('{batch}', 'empty')"
        ))
        .await;
    holds_for(
        std::time::Duration::from_millis(400),
        "it is open",
        async || {
            let row = row(&bed.app, batch).await;
            if row["state"] == "open" && row["idle_since"].is_null() {
                Ok(())
            } else {
                Err(row)
            }
        },
    )
    .await;
    bed.app
        .execute(&format!(
            "SELECT leafhopper.cancel_batch('{batch}', 'nothing came')"
        ))
        .await;
    until_finished(&bed.app, batch, "cancelled").await;
}

#[tokio::test]
async fn an_id_that_is_used_again_after_its_end_mixes_nothing() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = Uuid::new_v4();
    bed.app.insert(thing("before").batch(batch)).await;
    until_finished(&bed.app, batch, "succeeded").await;
    // Another row is refused by its key; another call by the end of the first use.
    let sql = format!("INSERT INTO leafhopper.batch (id, allow_failures) VALUES ('{batch}', true)");
    let error = bed.app.client().batch_execute(&sql).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "23505");
    for (key, run_when) in [
        ("after", "ready"),
        ("follow-up", "batch_settled"),
        ("failed", "batch_failed"),
    ] {
        let id = bed
            .app
            .insert(thing(key).batch(batch).set("run_when", run_when))
            .await;
        let call = bed.app.until_state(id, "cancelled").await;
        assert_eq!(call["reason"], "batch_finished", "{key}");
    }
    until_finished(&bed.app, batch, "succeeded").await;
    assert_eq!(bed.leaf.all_requests().len(), 1);
    assert!(undone(&bed.leaf).is_empty());
}

#[tokio::test]
async fn a_cancelled_batch_without_compensations_says_what_stands() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("concurrency = 2").await;
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("stands").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    withdraw(&bed.app, batch).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(calls(&bed.app, batch).await, ["stands confirmed"]);
    assert!(bed.app.call(id).await["undone_at"].is_null());
}

#[tokio::test]
async fn a_follow_up_that_fails_changes_no_outcome_and_can_be_sent_again() {
    let bed = Bed::new().await;
    bed.leaf.always().key("then").refuses(422);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = Uuid::new_v4();
    bed.app.execute("BEGIN").await;
    bed.app.insert(thing("a").batch(batch)).await;
    let then = bed
        .app
        .insert(
            thing("then")
                .batch(batch)
                .set("run_when", "batch_succeeded"),
        )
        .await;
    bed.app.execute("COMMIT").await;
    until_finished(&bed.app, batch, "succeeded").await;
    assert_eq!(bed.app.state(then).await, "failed");
    bed.leaf.behaves();
    bed.app
        .execute(&format!("SELECT leafhopper.retry({then}, 'mended')"))
        .await;
    bed.app.until_state(then, "confirmed").await;
    until_finished(&bed.app, batch, "succeeded").await;
    assert!(undone(&bed.leaf).is_empty());
}

#[tokio::test]
async fn row_and_leaf_say_how_an_effect_is_undone_and_the_row_goes_first() {
    let bed = Bed::new().await;
    let lines = UNDOES.replace(
        "path = \"/effects/{{ call.key }}\" }",
        "path = \"/effects/{{ result.body.key }}\", body = { why = \"{{ call.meta.why }}\", n = \"{{ call.body.n }}\" } }",
    );
    let reply = crate::harness::leaf::Reply::json(201, &json!({ "key": "by-leaf" }));
    bed.leaf
        .always()
        .key("by-leaf")
        .method("POST")
        .answers(reply);
    let _sidecar = bed.sidecar(&lines).await;
    let batch = unsealed(&bed.app).await;
    let by_leaf = thing("by-leaf")
        .batch(batch)
        .body(json!({ "key": "by-leaf", "n": 12 }));
    let by_row = thing("by-row").batch(batch).set(
        "compensate",
        json!({ "method": "POST", "path": "/undo/{{ call.id }}", "body": { "key": "{{ call.key }}-undone" } }),
    );
    let mut last = 0;
    for call in [by_leaf.set("meta", json!({ "why": "it failed" })), by_row] {
        last = bed.app.insert(call).await;
        bed.app.until_state(last, "confirmed").await;
    }
    withdraw(&bed.app, batch).await;
    until_finished(&bed.app, batch, "cancelled").await;
    let requests = bed.leaf.all_requests();
    let [.., row, leaf] = requests.as_slice() else {
        panic!("{requests:?}")
    };
    assert_eq!(
        (row.method.as_str(), row.path.as_str()),
        ("POST", format!("/undo/{last}").as_str())
    );
    assert_eq!(row.json(), json!({ "key": "by-row-undone" }));
    assert_eq!(
        (leaf.method.as_str(), leaf.path.as_str()),
        ("DELETE", "/effects/by-leaf")
    );
    assert_eq!(leaf.json(), json!({ "why": "it failed", "n": 12 }));
}
