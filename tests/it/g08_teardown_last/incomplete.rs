//! A teardown that can't undo everything says so, and goes on when a person has said what is to be done.

use serde_json::json;
use uuid::Uuid;

use super::{
    UNDOES, calls, id_of, reread, row, thing, undone, unsealed, until_batch, until_finished,
    until_undoing, withdraw,
};
use crate::harness::{
    Bed,
    app::Call,
    checks,
    sidecar::Sidecar,
    wait::{holds_for, until},
};

/// A batch of which these calls are confirmed, one after the other; then one fails.
async fn failed_batch(bed: &Bed, calls: impl IntoIterator<Item = Call>) -> Uuid {
    let batch = unsealed(&bed.app).await;
    for call in calls {
        let id = bed.app.insert(call.batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    bed.leaf.always().key("bad").refuses(422);
    bed.app.insert(thing("bad").batch(batch)).await;
    batch
}

async fn until_calls(bed: &Bed, batch: Uuid, expected: &[&str]) {
    until("the calls stand as expected", async || {
        let calls = calls(&bed.app, batch).await;
        if calls == expected {
            Ok(())
        } else {
            Err(calls)
        }
    })
    .await;
}

async fn stays_compensating(bed: &Bed, batch: Uuid) {
    let undone_before = undone(&bed.leaf).len();
    holds_for(
        std::time::Duration::from_millis(400),
        "it stays incomplete",
        async || {
            let row = row(&bed.app, batch).await;
            let undone = undone(&bed.leaf).len();
            if row["state"] == "compensating" && undone == undone_before {
                Ok(())
            } else {
                Err(row)
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_compensation_that_fails_holds_the_older_ones_until_it_is_retried_resolved_or_waived() {
    for way in ["retry", "resolve", "waive"] {
        let bed = Bed::new().await;
        let _sidecar = bed.sidecar(UNDOES).await;
        bed.leaf.always().key("newer").method("DELETE").refuses(403);
        let batch = failed_batch(&bed, [thing("older"), thing("newer")]).await;
        until_calls(
            &bed,
            batch,
            &[
                "older confirmed",
                "newer confirmed",
                "bad failed rejected",
                "newer:undo:1 failed rejected",
            ],
        )
        .await;
        stays_compensating(&bed, batch).await;
        let compensation = id_of(&bed, "newer:undo:1").await;
        bed.leaf.behaves();
        let (word, stands) = match way {
            "retry" => (
                format!("SELECT leafhopper.retry({compensation}, 'the right was given')"),
                0,
            ),
            "resolve" => (
                "SELECT leafhopper.confirm('leaf', 'newer:undo:1', 200, NULL)".to_owned(),
                1,
            ),
            _ => (
                format!("SELECT leafhopper.waive({compensation}, 'we keep it')"),
                1,
            ),
        };
        bed.app.execute(&word).await;
        until_finished(&bed.app, batch, "cancelled").await;
        assert_eq!(bed.leaf.standing("newer"), stands, "{way}");
        assert_eq!(bed.leaf.standing("older"), 0, "{way}");
        let result = bed.app.results("leaf", "newer").await;
        assert_eq!(result[0]["undone_at"].is_null(), way == "waive", "{way}");
        let call = bed.app.call(compensation).await;
        let ends = if way == "waive" {
            json!("cancelled")
        } else {
            json!("confirmed")
        };
        assert_eq!(call["state"], ends);
    }
}

#[tokio::test]
async fn a_waived_effect_stays_waived_and_words_that_do_not_fit_are_refused() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    bed.leaf.always().key("kept").method("DELETE").refuses(403);
    let batch = failed_batch(&bed, [thing("kept")]).await;
    until_batch(&bed.app, batch, "compensating").await;
    let original = id_of(&bed, "kept").await;
    until("the compensation has failed", async || {
        let calls = calls(&bed.app, batch).await;
        if calls.last().unwrap().contains("failed rejected") && calls.len() == 3 {
            Ok(())
        } else {
            Err(calls)
        }
    })
    .await;
    let compensation = id_of(&bed, "kept:undo:1").await;
    let refused = async |sql: &str, why: &str| {
        let error = bed.app.client().batch_execute(sql).await.expect_err(sql);
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains(why), "{sql}: {message}");
    };
    refused(
        &format!("SELECT leafhopper.waive({original}, 'x')"),
        "is no compensation",
    )
    .await;
    refused(
        &format!("SELECT leafhopper.waive({compensation}, ' ')"),
        "needs a reason",
    )
    .await;
    refused(
        "SELECT leafhopper.waive(4711, 'x')",
        "there is no call 4711",
    )
    .await;
    refused(
        "SELECT leafhopper.forget('leaf', 'kept:undo:1')",
        "is a compensation's",
    )
    .await;
    let bad = id_of(&bed, "bad").await;
    refused(
        &format!("SELECT leafhopper.retry({bad}, 'x')"),
        "is no longer open",
    )
    .await;
    bed.app
        .execute(&format!(
            "SELECT leafhopper.waive({compensation}, 'it may stay')"
        ))
        .await;
    until_finished(&bed.app, batch, "cancelled").await;
    refused(
        &format!("SELECT leafhopper.waive({compensation}, 'again')"),
        "but waived",
    )
    .await;
    refused(
        &format!("SELECT leafhopper.retry({compensation}, 'x')"),
        "has not failed but is cancelled",
    )
    .await;
    let actions = bed
        .app
        .rows("SELECT action, reason, call_id FROM leafhopper.operator_action")
        .await;
    assert_eq!(
        actions,
        [json!({ "action": "waive", "reason": "it may stay", "call_id": compensation })]
    );
    assert_eq!(bed.leaf.standing("kept"), 1);
}

#[tokio::test]
async fn an_effect_that_is_not_surely_ours_is_undone_only_on_somebody_s_word() {
    let bed = Bed::new().await;
    // Found by its status alone: nothing tells it from somebody else's.
    let config = bed
        .config(UNDOES)
        .toml("[leaf.leaf.probe]\npath = \"/effects/{{ call.key }}\"\nsettle = \"0s\"");
    let _sidecar = config.start().await;
    bed.leaf.always().key("weak").method("POST").resets();
    let batch = failed_batch(&bed, [thing("sure"), thing("weak")]).await;
    until_calls(
        &bed,
        batch,
        &[
            "sure confirmed",
            "weak confirmed",
            "bad failed rejected",
            "weak:undo:1 parked weak_adoption",
        ],
    )
    .await;
    stays_compensating(&bed, batch).await;
    assert!(undone(&bed.leaf).is_empty());
    let compensation = id_of(&bed, "weak:undo:1").await;
    // It is sent on a person's word, and sent again without another one.
    bed.leaf
        .always()
        .key("weak")
        .method("DELETE")
        .times(1)
        .refuses(403);
    let word = format!("SELECT leafhopper.resolve_not_executed({compensation}, 'it is ours')");
    bed.app.execute(&word).await;
    bed.app.until_state(compensation, "failed").await;
    let word = format!("SELECT leafhopper.retry({compensation}, 'the right was given')");
    bed.app.execute(&word).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["weak", "weak", "sure"]);
}

/// A failed batch, and the compensation of its only effect, of which no request can be made.
async fn with_a_request_that_can_t_be_made(bed: &Bed) -> (Sidecar, Uuid, i64) {
    let broken = UNDOES.replace("call.key", "result.body.nothing");
    let sidecar = bed.sidecar(&broken).await;
    let batch = failed_batch(bed, [thing("made")]).await;
    until_calls(
        bed,
        batch,
        &[
            "made confirmed",
            "bad failed rejected",
            "made:undo:1 parked template",
        ],
    )
    .await;
    let compensation = id_of(bed, "made:undo:1").await;
    (sidecar, batch, compensation)
}

#[tokio::test]
async fn a_request_that_can_t_be_made_is_made_anew_of_what_is_configured_then() {
    let bed = Bed::new().await;
    let (sidecar, batch, compensation) = with_a_request_that_can_t_be_made(&bed).await;
    let error = bed.app.call(compensation).await["last_error"].clone();
    assert!(
        error
            .as_str()
            .unwrap()
            .starts_with("its compensation: path: "),
        "{error}"
    );
    // Nothing was sent, and that breaks no law.
    checks::run(bed.app.client()).await;
    let again = format!("SELECT leafhopper.resolve_not_executed({compensation}, 'mended?')");
    // Not mended: it is parked again, and nothing was sent.
    bed.app.execute(&again).await;
    until_calls(
        &bed,
        batch,
        &[
            "made confirmed",
            "bad failed rejected",
            "made:undo:1 parked template",
        ],
    )
    .await;
    reread(&sidecar, &bed.config(UNDOES)).await;
    bed.app.execute(&again).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["made"]);
}

/// Two of one batch, which undoes one after the other: neither waits for the other for ever.
#[tokio::test]
async fn an_effect_that_comes_while_a_compensation_waits_for_a_person_is_undone_before_it() {
    let bed = Bed::new().await;
    let (sidecar, batch, compensation) = with_a_request_that_can_t_be_made(&bed).await;
    let late = bed.app.insert(thing("late").batch(batch)).await;
    bed.app.until_state(late, "cancelled").await;
    bed.leaf.has_already("late");
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'late', 201, NULL)")
        .await;
    reread(&sidecar, &bed.config(UNDOES)).await;
    bed.app
        .execute(&format!(
            "SELECT leafhopper.resolve_not_executed({compensation}, 'mended')"
        ))
        .await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["late", "made"]);
}

#[tokio::test]
async fn what_nobody_here_knows_how_to_undo_waits_for_one_that_does() {
    let bed = Bed::new().await;
    let mut knows = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("known").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    knows.stop().await;
    // A sidecar without the leaf must not take "no compensation" from its own configuration.
    let other = crate::harness::sidecar::Config::new(&bed.database.url).leaf(
        "other",
        &bed.leaf.url(),
        UNDOES,
    );
    let mut other = other.start().await;
    withdraw(&bed.app, batch).await;
    until_batch(&bed.app, batch, "compensating").await;
    stays_compensating(&bed, batch).await;
    other.stop().await;
    let _knows = bed.sidecar(UNDOES).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["known"]);
}

#[tokio::test]
async fn in_any_order_one_that_fails_holds_no_other() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    bed.leaf.always().key("c").method("DELETE").refuses(403);
    let batch = unsealed(&bed.app).await;
    bed.app
        .execute(&format!(
            "UPDATE leafhopper.batch SET undo_order = 'any' WHERE id = '{batch}'"
        ))
        .await;
    for key in ["a", "b", "c"] {
        let id = bed.app.insert(thing(key).batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    withdraw(&bed.app, batch).await;
    until("all but one are undone", async || {
        let standing: Vec<usize> = ["a", "b", "c"].map(|key| bed.leaf.standing(key)).to_vec();
        if standing == [0, 0, 1] {
            Ok(())
        } else {
            Err(standing)
        }
    })
    .await;
    let compensation = until_undoing(&bed, "c", "failed").await;
    stays_compensating(&bed, batch).await;
    bed.app
        .execute(&format!("SELECT leafhopper.waive({compensation}, 'kept')"))
        .await;
    until_finished(&bed.app, batch, "cancelled").await;
}

/// It can be made, but not stored: no jsonb holds a NUL.
#[tokio::test]
async fn in_any_order_a_request_that_can_t_be_stored_parks_its_own_effect_alone() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    bed.app
        .execute(&format!(
            "UPDATE leafhopper.batch SET undo_order = 'any' WHERE id = '{batch}'"
        ))
        .await;
    let nul = json!({ "method": "POST", "path": "/undo", "body": { "text": "{{ '\\u0000' }}" } });
    for call in [thing("a"), thing("b").set("compensate", nul), thing("c")] {
        let id = bed.app.insert(call.batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    withdraw(&bed.app, batch).await;
    until("the others are undone", async || {
        let mut calls = calls(&bed.app, batch).await;
        calls.sort();
        let expected = [
            "a confirmed",
            "a:undo:1 confirmed",
            "b confirmed",
            "b:undo:1 parked template",
            "c confirmed",
            "c:undo:1 confirmed",
        ];
        if calls == expected {
            Ok(())
        } else {
            Err(calls)
        }
    })
    .await;
    let compensation = id_of(&bed, "b:undo:1").await;
    let error = bed.app.call(compensation).await["last_error"].clone();
    let error = error.as_str().unwrap();
    assert!(
        error.starts_with("its compensation: the database refuses it: "),
        "{error}"
    );
}
