//! Calls and compensations in doubt: the teardown waits for the one, and finds out about the other.

use std::time::Duration;

use uuid::Uuid;

use super::{
    UNDOES, calls, nothing_is_undone_for, thing, undone, unsealed, until_batch, until_finished,
};
use crate::harness::{
    Bed,
    app::call,
    leaf::{Gate, Remembers},
    sidecar::Config,
    wait::until,
};

/// The leaf can be asked, soon and with little patience.
fn probed(bed: &Bed) -> Config {
    bed.config(UNDOES).probe("leaf", "settle = \"100ms\"")
}

async fn batch_of(bed: &Bed, keys: &[&str]) -> Uuid {
    let batch = Uuid::new_v4();
    bed.app.execute("BEGIN").await;
    for key in keys {
        bed.app.insert(thing(key).batch(batch)).await;
    }
    bed.app.execute("COMMIT").await;
    batch
}

#[tokio::test]
async fn what_was_executed_without_an_answer_is_found_by_a_probe_and_undone() {
    let bed = Bed::new().await;
    bed.leaf.always().key("lost-answer").method("POST").resets();
    let lost = bed.leaf.always().key("lost-request").method("POST");
    lost.does_nothing().resets();
    bed.leaf.always().key("bad").refuses(422);
    let batch = batch_of(&bed, &["lost-answer", "lost-request", "bad"]).await;
    let _sidecar = probed(&bed).start().await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(
        calls(&bed.app, batch).await,
        [
            "lost-answer confirmed",
            "lost-request cancelled batch_cancelled",
            "bad failed rejected",
            "lost-answer:undo:1 confirmed",
        ]
    );
    assert_eq!(undone(&bed.leaf), ["lost-answer"]);
    assert_eq!(bed.leaf.standing("lost-answer"), 0);
}

#[tokio::test]
async fn a_parked_call_holds_the_teardown_until_somebody_says_what_is_true() {
    for (executed, ends) in [(true, "confirmed"), (false, "cancelled it was not")] {
        let bed = Bed::new().await;
        bed.leaf.always().key("mute").method("POST").resets();
        bed.leaf.always().key("bad").refuses(422);
        let batch = batch_of(&bed, &["done", "mute", "bad"]).await;
        let parks = format!("in_doubt = \"park\"\n{UNDOES}");
        let config = bed.config(&parks).probe("leaf", "settle = \"100ms\"");
        let _sidecar = config.start().await;
        until("the call is parked and its batch waits", async || {
            let calls = calls(&bed.app, batch).await;
            if calls
                == [
                    "done confirmed",
                    "mute parked no_probe",
                    "bad failed rejected",
                ]
            {
                Ok(())
            } else {
                Err(calls)
            }
        })
        .await;
        nothing_is_undone_for(&bed, Duration::from_millis(300)).await;
        until_batch(&bed.app, batch, "cancelling").await;
        let word = if executed {
            "SELECT leafhopper.confirm('leaf', 'mute', 200, NULL)"
        } else {
            "SELECT leafhopper.resolve_not_executed(id, 'it was not') FROM leafhopper.call WHERE key = 'mute'"
        };
        bed.app.execute(word).await;
        until_finished(&bed.app, batch, "cancelled").await;
        let calls = calls(&bed.app, batch).await;
        assert!(calls[1].starts_with(&format!("mute {ends}")), "{calls:?}");
        let expected: &[&str] = if executed {
            &["done", "mute"]
        } else {
            &["done"]
        };
        let mut undone = undone(&bed.leaf);
        undone.sort();
        assert_eq!(undone, expected);
    }
}

#[tokio::test]
async fn where_the_leaf_honours_the_key_and_the_effect_can_be_undone_the_resend_is_the_question() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("mute")
        .method("POST")
        .times(1)
        .resets();
    bed.leaf
        .always()
        .key("bad")
        .waits_before_the_effect(&gate)
        .refuses(422);
    let batch = batch_of(&bed, &["mute", "bad"]).await;
    // The batch is cancelled while the answer is lost, before it is asked for again.
    let slow = UNDOES
        .replace("initial = \"20ms\"", "initial = \"400ms\"")
        .replace("max = \"50ms\"", "max = \"400ms\"");
    let config = bed
        .config(&slow)
        .toml("[leaf.leaf.idempotency]\nheader = \"Idempotency-Key\"\nwindow = \"24h\"");
    let _sidecar = config.start().await;
    bed.leaf.until_requests("mute", 1).await;
    gate.open();
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(bed.leaf.effects("mute"), 1);
    assert_eq!(bed.leaf.standing("mute"), 0);
    let posts = bed
        .leaf
        .requests("mute")
        .into_iter()
        .filter(|request| request.method == "POST");
    assert_eq!(posts.count(), 2);
    assert_eq!(undone(&bed.leaf), ["mute"]);
}

#[tokio::test]
async fn without_a_compensation_what_is_in_doubt_is_not_sent_again_for_a_cancelled_batch() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    let mute = bed.leaf.always().key("mute").method("PUT");
    mute.waits_before_the_answer(&gate).resets();
    bed.leaf.always().key("bad").refuses(422);
    let batch = Uuid::new_v4();
    bed.app.execute("BEGIN").await;
    bed.app
        .insert(
            call("leaf")
                .method("PUT")
                .path("/effects/mute")
                .key("mute")
                .batch(batch),
        )
        .await;
    bed.app.insert(thing("bad").batch(batch)).await;
    bed.app.execute("COMMIT").await;
    let _sidecar = bed.sidecar("concurrency = 2").await;
    gate.until_arrived(1).await;
    until_batch(&bed.app, batch, "cancelling").await;
    gate.open();
    until("the call is parked", async || {
        let calls = calls(&bed.app, batch).await;
        if calls[0] == "mute parked no_probe" {
            Ok(())
        } else {
            Err(calls)
        }
    })
    .await;
    assert_eq!(bed.leaf.requests("mute").len(), 1);
    until_batch(&bed.app, batch, "cancelling").await;
}

#[tokio::test]
async fn a_compensation_in_doubt_is_asked_about_the_other_way_round() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    // Undone, and the answer lost: absent means undone. Not undone: it is still there, and undone by the next.
    bed.leaf
        .always()
        .key("lost-answer")
        .method("DELETE")
        .times(1)
        .resets();
    bed.leaf
        .always()
        .key("lost-request")
        .method("DELETE")
        .times(1)
        .does_nothing()
        .resets();
    let batch = batch_of(&bed, &["lost-answer", "lost-request", "bad"]).await;
    let _sidecar = probed(&bed).start().await;
    until_finished(&bed.app, batch, "cancelled").await;
    let count = |key: &str| {
        undone(&bed.leaf)
            .iter()
            .filter(|undone| *undone == key)
            .count()
    };
    assert_eq!(count("lost-answer"), 1);
    for key in ["lost-answer", "lost-request"] {
        assert_eq!(bed.leaf.standing(key), 0, "{key}");
        assert!(!bed.app.results("leaf", key).await[0]["undone_at"].is_null());
    }
    let word = bed.app.results("leaf", "lost-answer:undo:1").await;
    assert_eq!(
        (&word[0]["source"], &word[0]["status"]),
        (&"adopted".into(), &404.into())
    );
}

/// A payment that is refunded is still a payment that the leaf shows.
#[tokio::test]
async fn what_undoes_by_an_effect_of_its_own_is_not_sent_twice_because_something_is_there() {
    for (dedups, sent) in [(false, 1), (true, 2)] {
        let bed = Bed::new().await;
        bed.leaf.honours("idempotency-key", Remembers::Successes);
        let first = bed.leaf.always().key("refund of k").times(1);
        first.resets();
        let lines = UNDOES.replace(
            "method = \"DELETE\", path = \"/effects/{{ call.key }}\"",
            "method = \"POST\", path = \"/refunds\", body = { key = \"refund of {{ call.key }}\" }",
        );
        let probe = "[leaf.leaf.probe]\npath = \"/effects/{{ call.key }}\"\nsettle = \"50ms\"";
        let config = bed.config(&lines).toml(probe);
        let config = if dedups {
            config.toml("[leaf.leaf.idempotency]\nheader = \"Idempotency-Key\"\nwindow = \"24h\"")
        } else {
            config
        };
        let _sidecar = config.start().await;
        let batch = unsealed(&bed.app).await;
        let id = bed.app.insert(thing("k").batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
        bed.app
            .execute(&format!(
                "SELECT leafhopper.cancel_batch('{batch}', 'withdrawn')"
            ))
            .await;
        if !dedups {
            until("somebody has to say", async || {
                let calls = calls(&bed.app, batch).await;
                if calls == ["k confirmed", "k:undo:1 parked probe_unclear"] {
                    Ok(())
                } else {
                    Err(calls)
                }
            })
            .await;
            bed.app
                .execute("SELECT leafhopper.confirm('leaf', 'k:undo:1')")
                .await;
        }
        until_finished(&bed.app, batch, "cancelled").await;
        assert_eq!(bed.leaf.requests("refund of k").len(), sent);
        assert_eq!(bed.leaf.effects("refund of k"), 1);
    }
}

/// The leaf answers by what it was before the effect, as one with several replicas does for a while.
#[tokio::test]
async fn an_early_absence_does_not_count_as_undone() {
    let bed = Bed::new().await;
    let lost = bed.leaf.always().key("k").method("DELETE").times(1);
    lost.does_nothing().resets();
    let old_sight = bed.leaf.always().key("k").method("GET").times(1);
    old_sight.refuses(404);
    bed.leaf.always().key("bad").refuses(422);
    // Longer than a busy machine stalls: the old sight must come before that.
    let config = bed.config(UNDOES).probe("leaf", "settle = \"5s\"");
    let _sidecar = config.start().await;
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(thing("k").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    bed.app.insert(thing("bad").batch(batch)).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(bed.leaf.standing("k"), 0);
}

#[tokio::test]
async fn what_is_not_there_any_more_is_undone() {
    for status in [404, 410] {
        let bed = Bed::new().await;
        bed.leaf.always().key("bad").refuses(422);
        bed.leaf
            .always()
            .key("gone")
            .method("DELETE")
            .refuses(status);
        let batch = batch_of(&bed, &["gone", "bad"]).await;
        // Whatever these statuses mean for the calls that create.
        let _sidecar = bed
            .sidecar(&format!(
                "outcome = {{ 404 = \"retry\", 410 = \"in_doubt\" }}\n{UNDOES}"
            ))
            .await;
        until_finished(&bed.app, batch, "cancelled").await;
        assert_eq!(undone(&bed.leaf), ["gone"]);
        assert!(!bed.app.results("leaf", "gone").await[0]["undone_at"].is_null());
    }
}
