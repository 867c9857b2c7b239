//! What a probe means for calls whose time is over, and for effects that the leaf says to exist.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{PROBE, QUICK, SETTLES_LATE, asked_and_sent, asking, asking_by, post};
use crate::harness::{
    Bed,
    leaf::{Gate, Remembers, Reply},
    wait::until,
};

#[tokio::test]
async fn what_the_leaf_says_to_exist_is_ours_or_not() {
    for policy in ["", "in_doubt = \"park\""] {
        let bed = Bed::new().await;
        bed.leaf.on("/things").refuses(409);
        bed.leaf.has_already("ours");
        bed.leaf.on("/effects/theirs").answers(Reply::json(
            200,
            &json!({ "id": 9, "key": "somebody else's" }),
        ));
        let sidecar = asking(&bed, &format!("exists_on = [409]\n{policy}"))
            .start()
            .await;
        let ours = bed.app.insert(post("ours")).await;
        let theirs = bed.app.insert(post("theirs")).await;
        let none = bed.app.insert(post("none")).await;
        bed.app.until_state(ours, "confirmed").await;
        assert_eq!(
            bed.app.results("leaf", "ours").await[0]["source"],
            "adopted"
        );
        let call = bed.app.until_state(theirs, "parked").await;
        assert_eq!(call["reason"], "exists_unmatched");
        assert_eq!(
            bed.app.history(theirs).await,
            "exists 409, probe_absent 200"
        );
        // At once: nothing of its own can be there.
        let call = bed.app.until_state(none, "failed").await;
        assert_eq!(call["reason"], "rejected");
        assert_eq!(bed.app.history(none).await, "exists 409, probe_absent 404");
        for (name, label, expected) in [
            (
                "leafhopper_duplicates_prevented_total",
                "how=\"exists\"",
                1.0,
            ),
            ("leafhopper_attempts_total", "class=\"exists\"", 3.0),
        ] {
            sidecar.until_metric(name, &[label], expected).await;
        }
    }
}

#[tokio::test]
async fn what_exists_after_an_earlier_attempt_is_not_taken_for_absent_too_early() {
    let bed = Bed::new().await;
    // The first request is lost and lands late; the second one meets it, and the leaf shows it later still.
    bed.leaf.on("/things").refuses(409);
    bed.leaf.on("/things").times(1).does_nothing().resets();
    let _sidecar = asking_by(&bed, "exists_on = [409]", SETTLES_LATE)
        .start()
        .await;
    let id = bed.app.insert(post("k")).await;
    let requests = bed.leaf.until_requests("k", 5).await;
    let methods: Vec<_> = requests.iter().map(|r| r.method.as_str()).collect();
    assert_eq!(methods, ["POST", "GET", "GET", "POST", "GET"]);
    bed.leaf.has_already("k");
    bed.app.until_state(id, "confirmed").await;
    bed.leaf.assert_each_effect_once(["k"]);
}

/// A call in doubt of which the leaf has an effect or not, whose end was asked for while it was under way.
async fn ended(executed: bool, end: impl AsyncFnOnce(&Bed, i64, Uuid)) -> (String, Value, usize) {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    let on = bed.leaf.on("/things").waits_before_the_answer(&gate);
    if executed {
        on.resets();
    } else {
        on.does_nothing().resets();
    }
    let _sidecar = asking(&bed, "").start().await;
    let batch = Uuid::from_u128(7);
    let id = bed
        .app
        .insert_values(
            "key, body, batch_id, deadline",
            &format!("'k', '{{\"key\": \"k\"}}', '{batch}', now() + interval '5 s'"),
        )
        .await;
    gate.until_arrived(1).await;
    end(&bed, id, batch).await;
    gate.open();
    let call = until("it has ended", async || {
        let call = bed.app.call(id).await;
        if call["finished_at"].is_string() {
            Ok(call)
        } else {
            Err(call)
        }
    })
    .await;
    bed.leaf.until_requests("k", 2).await;
    let (_, sent) = asked_and_sent(&bed, "k");
    assert_eq!(
        bed.app.results("leaf", "k").await.len(),
        usize::from(executed)
    );
    (
        call["state"].as_str().unwrap().to_owned(),
        call["reason"].clone(),
        sent,
    )
}

#[tokio::test]
async fn a_deadline_that_passes_in_doubt_is_kept_once_the_doubt_is_resolved() {
    let passes = async |bed: &Bed, id: i64, _: Uuid| {
        let over = format!(
            "SELECT id FROM leafhopper.outbox WHERE id = {id} AND deadline < clock_timestamp()"
        );
        until("the deadline has passed", async || {
            match bed.app.rows(&over).await.len() {
                1 => Ok(()),
                none => Err(none),
            }
        })
        .await;
    };
    assert_eq!(
        ended(true, passes).await,
        ("confirmed".into(), Value::Null, 1)
    );
    assert_eq!(
        ended(false, passes).await,
        ("expired".into(), Value::Null, 1)
    );
}

#[tokio::test]
async fn a_cancel_while_it_is_in_doubt_ends_it_as_the_leaf_says() {
    let cancel = async |bed: &Bed, id: i64, _: Uuid| {
        bed.app
            .execute(&format!("SELECT leafhopper.cancel({id}, 'ordered twice')"))
            .await;
    };
    assert_eq!(
        ended(true, cancel).await,
        ("confirmed".into(), Value::Null, 1)
    );
    assert_eq!(
        ended(false, cancel).await,
        ("cancelled".into(), json!("ordered twice"), 1)
    );
}

#[tokio::test]
async fn a_cancelled_batch_ends_its_call_in_doubt_as_the_leaf_says() {
    let cancel = async |bed: &Bed, _: i64, batch: Uuid| {
        bed.app
            .execute(&format!("SELECT leafhopper.cancel_batch('{batch}', 'no')"))
            .await;
    };
    assert_eq!(
        ended(true, cancel).await,
        ("confirmed".into(), Value::Null, 1)
    );
    assert_eq!(
        ended(false, cancel).await,
        ("cancelled".into(), json!("batch_cancelled"), 1)
    );
}

#[tokio::test]
async fn attempts_that_are_used_up_are_asked_about() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").does_nothing().resets();
    let _sidecar = asking(&bed, "").start().await;
    let id = bed.app.insert(post("k").set("max_attempts", 2)).await;
    let call = bed.app.until_state(id, "failed").await;
    assert_eq!(call["reason"], "attempts_exhausted");
    assert_eq!(call["attempts"], 2);
    assert_eq!(asked_and_sent(&bed, "k").1, 2);
    assert!(bed.leaf.all_effects().is_empty());
}

#[tokio::test]
async fn past_its_window_a_key_is_asked_about_or_parked() {
    let keyed =
        "in_doubt = \"resend\"\nidempotency = { header = \"Idempotency-Key\", window = \"10s\" }";
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let _sidecar = asking(&bed, keyed)
        .leaf("mute", &bed.leaf.url(), &format!("{QUICK}\n{keyed}"))
        .start()
        .await;
    let asked = bed.app.insert(post("asked")).await;
    let parked = bed
        .app
        .insert(crate::harness::app::keyed("mute", "parked"))
        .await;
    bed.app.until_state(asked, "confirmed").await;
    assert_eq!(asked_and_sent(&bed, "asked"), (1, 1));
    let call = bed.app.until_state(parked, "parked").await;
    assert_eq!(call["reason"], "key_expired");
}

#[tokio::test]
async fn a_leaf_that_replays_errors_is_sent_a_key_once_more_and_then_asked() {
    let keyed = "in_doubt = \"resend\"\n\
        idempotency = { header = \"Idempotency-Key\", window = \"1d\", replays = \"all\" }";
    let bed = Bed::new().await;
    bed.leaf.honours("idempotency-key", Remembers::All);
    bed.leaf.on("/things").answers(500);
    let _sidecar = bed
        .config(&format!("{QUICK}\n{keyed}").replace("max_attempts = 3", "max_attempts = 9"))
        .probe("leaf", PROBE)
        .leaf("mute", &bed.leaf.url(), &format!("{QUICK}\n{keyed}"))
        .start()
        .await;
    let asked = bed.app.insert(post("asked")).await;
    let parked = bed
        .app
        .insert(crate::harness::app::keyed("mute", "parked"))
        .await;
    bed.app.until_state(asked, "confirmed").await;
    assert_eq!(asked_and_sent(&bed, "asked"), (1, 2));
    let call = bed.app.until_state(parked, "parked").await;
    assert_eq!(call["reason"], "no_probe");
    assert_eq!(asked_and_sent(&bed, "parked"), (0, 2));
    bed.leaf.assert_each_effect_once(["asked", "parked"]);
}

/// Contract, section 10: a corrected call after a definite no goes with another header value.
#[tokio::test]
async fn what_comes_after_a_refusal_that_the_leaf_would_replay_goes_with_another_header_value() {
    let keyed = "compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }\n\
        idempotency = { header = \"Idempotency-Key\", window = \"1d\", replays = \"all\" }";
    let bed = Bed::new().await;
    bed.leaf.honours("idempotency-key", Remembers::All);
    bed.leaf.on("/things").times(1).refuses(422);
    bed.leaf
        .on("/effects")
        .method("DELETE")
        .times(1)
        .refuses(403);
    let _sidecar = bed.sidecar(&format!("{QUICK}\n{keyed}")).await;
    let batch = Uuid::new_v4();
    let unsealed = format!("INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)");
    bed.app.execute(&unsealed).await;
    let refused = bed.app.insert(post("k")).await;
    bed.app.until_state(refused, "failed").await;
    // The corrected call, and the compensation that a person sends again.
    let corrected = bed.app.insert(post("k").batch(batch)).await;
    bed.app.until_state(corrected, "confirmed").await;
    let cancel = format!("SELECT leafhopper.cancel_batch('{batch}', 'withdrawn')");
    bed.app.execute(&cancel).await;
    let undo = until("the compensation has failed", async || {
        let sql = "SELECT id FROM leafhopper.call WHERE key = 'k:undo:1' AND state = 'failed'";
        bed.app.rows(sql).await.pop().ok_or("not yet")
    })
    .await;
    bed.app
        .execute(&format!(
            "SELECT leafhopper.retry({}, 'the right was given')",
            undo["id"]
        ))
        .await;
    bed.app
        .until_state(undo["id"].as_i64().unwrap(), "confirmed")
        .await;
    let requests = bed.leaf.requests("k");
    let mut values: Vec<&str> = requests
        .iter()
        .map(|r| r.header("idempotency-key").unwrap())
        .collect();
    assert_eq!((values.len(), values[0]), (4, "k"));
    values.sort_unstable();
    values.dedup();
    assert_eq!(values.len(), 4, "{values:?}");
    assert_eq!(bed.leaf.standing("k"), 0);
}

#[tokio::test]
async fn a_leaf_that_hides_its_errors_is_read_by_its_verdict() {
    let bed = Bed::new().await;
    let verdict = "verdict = \"response.body.said\"";
    let sidecar = asking(&bed, verdict).start().await;
    let say = |key: &str, said: Value| {
        let on = bed.leaf.on("/things").key(key).times(1);
        on.answers(Reply::json(200, &json!({ "said": said })));
    };
    for word in ["confirmed", "retry", "in_doubt", "exists", "failed"] {
        say(word, json!(word));
    }
    say("nonsense", json!("perhaps"));
    bed.leaf
        .on("/things")
        .key("no JSON")
        .times(1)
        .answers(Reply::bytes(200, "ok"));
    bed.leaf
        .on("/things")
        .key("teapot")
        .refuses(Reply::bytes(418, "no"));
    let mut ids = Vec::new();
    for (key, state, classes) in [
        ("confirmed", "confirmed", ""),
        ("retry", "confirmed", "retry 200"),
        ("in_doubt", "confirmed", "in_doubt 200"),
        ("exists", "confirmed", "exists 200"),
        ("failed", "failed", "failed 200"),
        ("nonsense", "confirmed", ""),
        ("no JSON", "confirmed", ""),
        ("teapot", "failed", "failed 418"),
    ] {
        ids.push((bed.app.insert(post(key)).await, key, state, classes));
    }
    for (id, key, state, classes) in ids {
        bed.app.until_state(id, state).await;
        assert_eq!(bed.app.history(id).await, classes, "{key}");
    }
    let log = sidecar.log();
    let lines = log
        .iter()
        .filter(|line| line.to_string().contains("the status decides"));
    assert_eq!(lines.count(), 3, "{log:#?}");
}
