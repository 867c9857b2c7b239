//! What happens at the moment at which it is pruned.

use std::time::Duration;

use leafhopper::{
    config::Retention,
    store::{
        Store,
        connect::Connect,
        prune::{Begins, Counts, Step, Sweep},
    },
};
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use super::{age, counts, keys, prune, thing, until_batch};
use crate::harness::{Bed, app::App, leaf::Gate, wait::until};

fn store(bed: &Bed) -> Store {
    let url = bed.database.url.clone().into();
    Store::new(Connect::parse(&url).unwrap(), 2).unwrap()
}

fn kept(finished: Duration) -> Retention {
    Retention {
        finished: Some(finished),
        ..Retention::default()
    }
}

fn number(counts: &Counts, name: &str) -> u64 {
    counts.each().find(|(known, _)| *known == name).unwrap().1
}

/// Prunes what is older than 30 days. Of each step that took calls: how many, and how many are left that have failed.
pub(super) async fn parts(bed: &Bed) -> Vec<(u64, u64)> {
    let store = store(bed);
    let mut sweep = Sweep::pruning(kept(Duration::from_hours(720)), Begins::default());
    let mut parts = Vec::new();
    loop {
        match sweep.step(&store).await.unwrap() {
            Step::Went(rows) => {
                let failed = "SELECT count(*) FROM leafhopper.finished WHERE state = 'failed'";
                let failed = bed.app.rows(failed).await[0]["count"].as_u64().unwrap();
                parts.push((number(&rows, "calls"), failed));
            }
            Step::Busy => panic!("nobody else prunes"),
            Step::Over => return parts,
        }
    }
}

/// Prunes again and again what has ended at all, until it is told to stop; gives what went.
async fn prune_all_the_time(store: Store, stop: tokio::sync::oneshot::Receiver<()>) -> Counts {
    let mut stop = std::pin::pin!(stop);
    let mut pruned = Counts::default();
    loop {
        let mut sweep = Sweep::pruning(kept(Duration::from_millis(1)), Begins::default());
        loop {
            let step = tokio::select! {
                biased;
                step = sweep.step(&store) => step,
                _ = &mut stop => return pruned,
            };
            match step.unwrap() {
                Step::Went(rows) => pruned.add(&rows),
                Step::Busy => {}
                Step::Over => break,
            }
        }
        if stop.as_mut().try_recv().is_ok() {
            return pruned;
        }
        tokio::task::yield_now().await;
    }
}

/// Duplicates, failures that are retried, words, and batches that fail or succeed, while two sweeps take away whatever has
/// ended. Nothing is sent twice, and nothing is lost.
#[tokio::test]
async fn nothing_is_doubled_or_lost_while_all_that_has_ended_goes() {
    let bed = Bed::new().await;
    let compensate = "retry = { initial = \"20ms\", max = \"50ms\" }\n\
                      compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";
    for n in 0..10 {
        bed.leaf.always().key(&format!("no {n}")).refuses(422);
    }
    let config = bed.config(compensate);
    let (_first, _second) = tokio::join!(config.start(), config.start());
    let mut stops = Vec::new();
    let mut sweeps = Vec::new();
    for _ in 0..2 {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        stops.push(stop);
        sweeps.push(tokio::spawn(prune_all_the_time(store(&bed), stopped)));
    }
    for round in 0..10 {
        bed.app
            .execute(&format!(
                "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
                 SELECT 'leaf', k, '/things', jsonb_build_object('key', k) \
                   FROM (SELECT 'k' || n AS k FROM generate_series(1, 30) AS n) keys; \
                 INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id) \
                 SELECT 'leaf', k, '/things', jsonb_build_object('key', k), md5(k)::uuid \
                   FROM (SELECT 'good {round} ' || n AS k FROM generate_series(1, 5) AS n) keys; \
                 INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id) \
                 SELECT 'leaf', k, '/things', jsonb_build_object('key', k), md5('bad {round}')::uuid \
                   FROM unnest(ARRAY['bad {round}', 'no {round}']) AS k"
            ))
            .await;
        // Whatever has failed, and is still there.
        bed.app
            .execute(
                "DO $$ DECLARE c bigint; BEGIN \
                   FOR c IN SELECT call_id FROM leafhopper.finished WHERE state = 'failed' LIMIT 3 LOOP \
                     BEGIN PERFORM leafhopper.retry(c, 'test'); EXCEPTION WHEN OTHERS THEN NULL; END; \
                   END LOOP; END $$",
            )
            .await;
        until("half of it has ended", async || {
            let live = "SELECT count(*) FROM leafhopper.dispatch";
            let live = bed.app.rows(live).await[0]["count"].as_u64().unwrap();
            if live < 25 { Ok(()) } else { Err(live) }
        })
        .await;
    }
    until("all calls have ended, and are gone", async || {
        let left = keys(&bed.app).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    let mut pruned = Counts::default();
    for stop in stops {
        stop.send(()).unwrap();
    }
    for sweep in sweeps {
        pruned.add(&sweep.await.unwrap());
    }
    println!("{pruned:?}");
    // Of 370 calls that were inserted, and what undid some of them.
    assert!(number(&pruned, "calls") >= 370, "{pruned:?}");
    let undone = |round: usize| bed.leaf.standing(&format!("bad {round}")) == 0;
    assert!((0..10).all(undone));
    bed.leaf
        .assert_each_effect_once((1..=30).map(|n| format!("k{n}")));
    let good = (0..10).flat_map(|round| (1..=5).map(move |n| format!("good {round} {n}")));
    bed.leaf.assert_each_effect_once(good);
    let standing = "SELECT count(*) FROM leafhopper.result WHERE undone_at IS NULL AND key NOT LIKE '%:undo:%'";
    assert_eq!(bed.app.rows(standing).await, [json!({"count": 80})]);
}

/// What another transaction is about to change stays, and is not waited for.
#[tokio::test]
async fn what_somebody_is_about_to_change_stays_and_is_not_waited_for() {
    let bed = Bed::new().await;
    for key in ["retried", "said", "other", "of the batch"] {
        bed.leaf.on("/things").key(key).refuses(422);
    }
    let sidecar = bed.sidecar("").await;
    let batch = Uuid::from_u128(1);
    let mut ids = Vec::new();
    for call in [
        thing("retried"),
        thing("said"),
        thing("other"),
        thing("of the batch").batch(batch),
    ] {
        ids.push(bed.app.insert(call).await);
    }
    for id in &ids {
        bed.app.until_state(*id, "failed").await;
    }
    until_batch(&bed.app, batch, "cancelled").await;
    age(&bed.app, 31).await;
    let other = App::connect(&bed.database.url).await;
    other
        .execute(&format!(
            "BEGIN; SELECT leafhopper.retry({}, 'test'); SELECT leafhopper.confirm('leaf', 'said', 200); \
             SELECT FROM leafhopper.batch WHERE id = '{batch}' FOR UPDATE",
            ids[0]
        ))
        .await;
    let begun = Instant::now();
    assert_eq!(
        prune(&sidecar).await,
        counts([("calls", 1), ("attempts", 1)])
    );
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    other.execute("COMMIT").await;
    assert_eq!(keys(&bed.app).await, ["retried", "said", "of the batch"]);
    bed.app.until_state(ids[0], "failed").await;
    assert_eq!(bed.app.state(ids[1]).await, "confirmed");

    // The other way round: what is gone when its turn comes is refused, or is on record without its call.
    let gone = bed.app.client();
    let retry = format!("SELECT leafhopper.retry({}, 'test')", ids[2]);
    let refused = gone.batch_execute(&retry).await.unwrap_err();
    let message = refused.as_db_error().unwrap().message();
    assert_eq!(message, format!("there is no call {}", ids[2]));
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'other', 200)")
        .await;
    let result = &bed.app.results("leaf", "other").await[0];
    assert_eq!(
        (&result["call_id"], &result["source"]),
        (&json!(null), &json!("application"))
    );
}

/// Somebody took the call over, it has ended, and it was pruned; then its first request is answered.
#[tokio::test]
async fn an_answer_that_comes_after_its_call_was_pruned_is_kept() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    for key in ["none stands", "one stands"] {
        let held = bed.leaf.on("/things").key(key);
        held.waits_before_the_answer(&gate).answers(201);
    }
    let _sidecar = bed.sidecar("").await;
    let mut ids = Vec::new();
    for key in ["none stands", "one stands"] {
        ids.push(bed.app.insert(thing(key)).await);
    }
    gate.until_arrived(2).await;
    bed.app
        .execute(&format!(
            "SELECT leafhopper.confirm('leaf', 'one stands', 200); \
             BEGIN; DELETE FROM leafhopper.dispatch; DELETE FROM leafhopper.outbox; \
             INSERT INTO leafhopper.setting VALUES ('calls_pruned_to', '{}'); COMMIT",
            ids[1]
        ))
        .await;
    gate.open();
    until("the answers are recorded", async || {
        let result = bed.app.results("leaf", "none stands").await;
        let attempts = bed.app.attempts(ids[1]).await;
        if result.len() + attempts.len() == 2 {
            Ok(())
        } else {
            Err((result, attempts))
        }
    })
    .await;
    let result = &bed.app.results("leaf", "none stands").await[0];
    assert_eq!(
        (&result["status"], &result["call_id"], &result["attempt"]),
        (&json!(201), &json!(ids[0]), &json!(1))
    );
    assert_eq!(bed.app.history(ids[1]).await, "confirmed_again 201");
    // It keeps what is inserted anew from being sent.
    let again = bed.app.insert(thing("none stands")).await;
    bed.app.until_state(again, "confirmed").await;
    bed.leaf.assert_each_effect_once(["none stands"]);
    // What is left of a call that is gone goes by itself.
    age(&bed.app, 31).await;
    parts(&bed).await;
    let left = bed.app.attempts(ids[1]).await;
    assert!(left.is_empty(), "{left:?}");
}

/// A call that an instance takes for its own can be gone long since, where that instance was frozen.
#[tokio::test]
async fn a_call_that_was_pruned_is_no_lost_commit() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let id = bed.app.insert(thing("old")).await;
    bed.app.until_state(id, "confirmed").await;
    let held = [(id, 1)];
    let store = store(&bed);
    let lost = async || store.lost(Uuid::nil(), 0, &held).await.unwrap();
    assert_eq!(lost().await, None);
    age(&bed.app, 31).await;
    assert_eq!(prune(&sidecar).await, counts([("calls", 1)]));
    assert_eq!(lost().await, None);
    bed.app
        .execute("DELETE FROM leafhopper.setting WHERE name = 'calls_pruned_to'")
        .await;
    assert!(lost().await.is_some());
}
