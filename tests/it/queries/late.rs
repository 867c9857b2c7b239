//! What comes late, or takes effect between a statement's snapshot and its locks.

use serde_json::{Value, json};
use tokio_postgres::types::Type;

use super::{INSTANCE, array, claimed, outcome, query};
use crate::harness::{
    Bed,
    app::{App, keyed},
    wait::until,
};

/// Waits until a statement has its snapshot, and waits for the lock 7 of this database.
async fn until_paused(bed: &Bed) {
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted \
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    until("the statement has its snapshot", async || {
        let waiting = bed.app.rows(waits).await;
        (waiting[0]["count"] == 1).then_some(()).ok_or(waiting)
    })
    .await;
}

/// PostgreSQL tests a row that has changed since the snapshot again with the partners that the snapshot joined to it.
#[tokio::test]
async fn a_takeover_leaves_a_newer_claim_alone() {
    let bed = Bed::new().await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.instance (id, name, heartbeat_at, lease, leaves)
             VALUES ('{INSTANCE}', 'gone', now() - interval '1 minute', '10 s', '{{}}');
             UPDATE leafhopper.dispatch SET state = 'dispatching', instance = '{INSTANCE}', round = 1, tries = 1,
                    first_claimed_at = now(), give_up_at = now() + interval '1 h',
                    claimed_at = now() - interval '1 minute', alive_until = now() - interval '30 s';
             SELECT pg_advisory_lock(7)"
        ))
        .await;
    // The statement as it is, but it pauses once it has its snapshot.
    let paused = query("reclaim.sql")
        .replacen(
            "WHERE d.state = 'dispatching'",
            "WHERE pg_advisory_xact_lock_shared(7) IS NOT NULL AND d.state = 'dispatching'",
            1,
        )
        .replace("$1", &format!("ARRAY['{INSTANCE}'::uuid]"))
        .replace("$2", "10");
    let other = App::connect(&bed.database.url).await;
    let takes_over = other.client().query(&paused, &[]);
    let claims_again = async {
        until_paused(&bed).await;
        bed.app
            .execute(
                "UPDATE leafhopper.dispatch SET instance = gen_random_uuid(), round = 7, tries = 2,
                        claimed_at = now(), alive_until = now() + interval '30 s';
                 SELECT pg_advisory_unlock(7)",
            )
            .await;
    };
    let (taken, ()) = tokio::join!(takes_over, claims_again);
    assert!(taken.unwrap().is_empty());
    assert_eq!(bed.app.state(id).await, "dispatching");
}

/// A process that was frozen says so late that it does not know, of a call that waits again by now.
#[tokio::test]
async fn a_late_doubt_about_a_call_that_waits_for_its_key_is_recorded() {
    let bed = Bed::new().await;
    let id = claimed(&bed).await;
    bed.app
        .execute("UPDATE leafhopper.dispatch SET state = 'pending', held = 'key'")
        .await;
    let parameters = format!(
        "'00000000-0000-0000-0000-00000000000a', 'i', '{{{id}}}', '{{1}}', '{{leaf}}', '{{k}}', '{{1}}', '{{doubt}}', \
         '{{1}}', '{{60}}', '{{false}}', '{{NULL}}', '{{in_doubt}}', '{{500}}', '{{NULL}}', '{{c}}', '{{1}}', '{{NULL}}'"
    );
    let recorded = outcome(&bed.app, "record_other.sql", &parameters).await;
    assert_eq!(recorded, "in_doubt");
    assert_eq!(bed.app.attempts(id).await[0]["body"], "c");
}

/// A probe had believed the absence of what a frozen process's request came to, and another call has the key by now. The
/// one that waits first is the call that is recorded.
#[tokio::test]
async fn a_late_answer_of_a_call_that_waits_for_its_key_is_recorded_and_frees_the_next() {
    for (kind, state) in [
        ("failed", "failed"),
        ("retry", "pending"),
        ("confirmed", "confirmed"),
    ] {
        let bed = Bed::new().await;
        let id = claimed(&bed).await;
        let other = bed.app.insert(keyed("leaf", "k")).await;
        let next = bed.app.insert(keyed("leaf", "k")).await;
        bed.app
            .execute(&format!(
                "UPDATE leafhopper.dispatch SET state = 'pending', held = 'key', alive_until = now() WHERE call_id IN ({id}, {next});
                 UPDATE leafhopper.dispatch SET state = 'parked', reason = 'no_probe', in_doubt_since = now(), tries = 1,
                        first_claimed_at = now(), claimed_at = now(), alive_until = now()
                  WHERE call_id = {other}"
            ))
            .await;
        let recorded = if kind == "confirmed" {
            let parameters = format!(
                "'{{{id}}}', '{{leaf}}', '{{k}}', '{{1}}', '{{201}}', '{{\"{{}}\"}}', '{{NULL}}', '{{NULL}}', '{{false}}', \
                 '{{NULL}}', '{{1}}', 'i'"
            );
            outcome(&bed.app, "record_confirmed.sql", &parameters).await
        } else {
            let parameters = format!(
                "'00000000-0000-0000-0000-00000000000a', 'i', '{{{id}}}', '{{1}}', '{{leaf}}', '{{k}}', '{{1}}', \
                 '{{{kind}}}', '{{1}}', '{{60}}', '{{false}}', '{{rejected}}', '{{{kind}}}', '{{422}}', '{{NULL}}', '{{c}}', \
                 '{{1}}', '{{NULL}}'"
            );
            outcome(&bed.app, "record_other.sql", &parameters).await
        };
        let expected = if kind == "confirmed" {
            "recorded"
        } else {
            state
        };
        assert_eq!(recorded, expected, "{kind}");
        assert_eq!(bed.app.state(id).await, state, "{kind}");
        let sql = "SELECT call_id, held FROM leafhopper.dispatch ORDER BY call_id";
        let mut left = vec![
            json!({ "call_id": other, "held": null }),
            json!({ "call_id": next, "held": null }),
        ];
        if state == "pending" {
            left.insert(0, json!({ "call_id": id, "held": "key" }));
        }
        assert_eq!(bed.app.rows(sql).await, left, "{kind}");
    }
}

/// An app's word came while the request was under way, and then its instance vanished: nobody parks the call, and if
/// somebody has, saying it again ends it.
#[tokio::test]
async fn a_call_whose_effect_stands_is_not_parked_and_does_not_stay_parked() {
    let bed = Bed::new().await;
    let id = claimed(&bed).await;
    let say = async || {
        let said = "SELECT leafhopper.confirm('leaf', 'k', 200) AS recorded";
        bed.app.rows(said).await[0]["recorded"] == true
    };
    assert!(say().await);
    bed.app
        .execute("UPDATE leafhopper.dispatch SET state = 'in_doubt', in_doubt_since = now(), due_at = now()")
        .await;
    let settle = format!(
        "PREPARE q(int8[], int4[], text[], text[], float8[], bool[]) AS {}\n",
        query("settle_doubts.sql")
    );
    bed.app.execute(&settle).await;
    let settled = format!(
        "EXECUTE q('{{{id}}}', '{{1}}', '{{park}}', '{{no_probe}}', '{{30}}', '{{false}}')"
    );
    let settled = bed.app.client().query(&settled, &[]).await.unwrap();
    assert!(settled.is_empty(), "{settled:?}");
    bed.app
        .execute("UPDATE leafhopper.dispatch SET state = 'parked', reason = 'no_probe'")
        .await;
    assert!(!say().await, "it stood already");
    assert_eq!(bed.app.state(id).await, "confirmed");
}

/// A request that landed late, after a probe had believed its absence.
#[tokio::test]
async fn a_confirmation_of_a_call_that_ended_as_not_executed_becomes_its_result() {
    for (end, reason) in [
        ("cancelled", "NULL"),
        ("expired", "NULL"),
        ("failed", "'attempts_exhausted'"),
    ] {
        let bed = Bed::new().await;
        let id = claimed(&bed).await;
        bed.app
            .execute(&format!(
                "DELETE FROM leafhopper.dispatch;
                 INSERT INTO leafhopper.finished (call_id, state, reason, attempts) VALUES ({id}, '{end}', {reason}, 1);
                 INSERT INTO leafhopper.order_hold (leaf, ordering_key, head) VALUES ('leaf', 'o', {id})"
            ))
            .await;
        let parameters = format!(
            "'{{{id}}}', '{{leaf}}', '{{k}}', '{{1}}', '{{201}}', '{{\"{{}}\"}}', '{{NULL}}', \
             '{{NULL}}', '{{false}}', '{{NULL}}', '{{1}}', 'i'"
        );
        for _ in 0..2 {
            let recorded = outcome(&bed.app, "record_confirmed.sql", &parameters).await;
            assert_eq!(recorded, "recorded", "{end}");
            assert_eq!(bed.app.state(id).await, "confirmed", "{end}");
            assert_eq!(bed.app.results("leaf", "k").await.len(), 1, "{end}");
            assert_eq!(bed.app.attempts(id).await, [] as [Value; 0], "{end}");
        }
    }
}

/// What the end did to its batch is not lost with it.
#[tokio::test]
async fn a_late_confirmation_waits_until_the_failure_of_its_batch_is_written() {
    let bed = Bed::new().await;
    let id = claimed(&bed).await;
    let batch = "00000000-0000-0000-0000-0000000000b1";
    bed.app
        .execute(&format!(
            "DELETE FROM leafhopper.dispatch;
             UPDATE leafhopper.outbox SET batch_id = '{batch}' WHERE id = {id};
             INSERT INTO leafhopper.finished (call_id, batch_id, state, fails_batch)
             VALUES ({id}, '{batch}', 'cancelled', true)"
        ))
        .await;
    let parameters = format!(
        "'{{{id}}}', '{{leaf}}', '{{k}}', '{{1}}', '{{201}}', '{{\"{{}}\"}}', '{{NULL}}', \
         '{{NULL}}', '{{false}}', '{{NULL}}', '{{1}}', 'i'"
    );
    let locked = outcome(&bed.app, "record_confirmed.sql", &parameters).await;
    assert_eq!(locked, "locked");
    assert_eq!(bed.app.attempts(id).await, [] as [Value; 0]);
    let looked = query("look_at_batches.sql")
        .replace("$1", &format!("ARRAY['{batch}']"))
        .replace("$2", "'{}'")
        .replace("$3", "'{}'")
        .replace("$4", "'{}'")
        .replace("$5", "'{}'")
        .replace("$6", "'{}'");
    bed.app.client().query(&looked, &[]).await.unwrap();
    let recorded = outcome(&bed.app, "record_confirmed.sql", &parameters).await;
    assert_eq!(recorded, "recorded");
    assert_eq!(bed.app.state(id).await, "confirmed");
}

/// As above: a claim of a dead instance tells its outcome between the snapshot and the lock.
#[tokio::test]
async fn going_on_leaves_what_was_recorded_meanwhile_alone() {
    let bed = Bed::new().await;
    let id = claimed(&bed).await;
    bed.app.execute("SELECT pg_advisory_lock(7)").await;
    let paused = query("go_on.sql")
        .replacen(
            "WHERE d.state = 'dispatching'",
            "WHERE pg_advisory_xact_lock_shared(7) IS NOT NULL AND d.state = 'dispatching'",
            1,
        )
        .replace("$1", "false")
        .replace("$2", "1")
        .replace("$3", "1")
        .replace("$4", "'n'")
        .replace("$5", "1");
    let other = App::connect(&bed.database.url).await;
    let goes_on = other.client().query(&paused, &[]);
    let is_recorded = async {
        until_paused(&bed).await;
        bed.app
            .execute(
                "UPDATE leafhopper.dispatch SET state = 'parked', reason = 'no_probe', in_doubt_since = now();
                 SELECT pg_advisory_unlock(7)",
            )
            .await;
    };
    let (moved, ()) = tokio::join!(goes_on, is_recorded);
    assert!(moved.unwrap().is_empty());
    assert_eq!(bed.app.state(id).await, "parked");
}

/// The request of a dead instance can be under way at the leaf for as long as its time limit says.
#[tokio::test]
async fn going_on_with_probe_believes_no_absence_before_the_attempt_can_have_ended() {
    let bed = Bed::new().await;
    claimed(&bed).await;
    bed.app
        .execute("UPDATE leafhopper.dispatch SET alive_until = now() + interval '10 min'")
        .await;
    let sql = query("go_on.sql")
        .replace("$1", "true")
        .replace("$2", "1")
        .replace("$3", "1")
        .replace("$4", "'n'")
        .replace("$5", "1");
    bed.app.client().query(&sql, &[]).await.unwrap();
    let seen = "SELECT state, alive_until > now() + interval '9 min' AS alive, due_at = alive_until AS due \
                  FROM leafhopper.dispatch";
    let seen = bed.app.rows(seen).await;
    assert_eq!(
        seen,
        [json!({ "state": "in_doubt", "alive": true, "due": true })]
    );
}

/// It was pending when the database lost commits, and may have been executed in what was lost: it does not end as
/// certainly not executed.
#[tokio::test]
async fn what_may_have_been_executed_before_the_database_changed_does_not_end_unasked() {
    let bed = Bed::new().await;
    let batch = uuid::Uuid::from_u128(0xb1);
    let mut ids = Vec::new();
    for (key, ordering_key) in [
        ("late", None),
        ("batch", None),
        ("person", None),
        ("head", Some("o")),
    ] {
        let call = keyed("leaf", key).batch(batch);
        let call = match ordering_key {
            Some(ordering_key) => call.set("ordering_key", ordering_key),
            None => call,
        };
        ids.push(bed.app.insert(call).await);
    }
    // Two for one effect: one at a time is asked about.
    let twice = bed.app.insert(keyed("leaf", "late")).await;
    let behind = bed
        .app
        .insert(keyed("leaf", "behind").set("ordering_key", "o"))
        .await;
    bed.app
        .execute(&format!(
            "UPDATE leafhopper.dispatch SET suspect = true, held = CASE call_id WHEN {behind} THEN 'order' END;
             UPDATE leafhopper.dispatch SET deadline = now() - interval '1 s'
              WHERE call_id IN ({}, {twice}, {behind});
             SELECT leafhopper.cancel({}, 'not wanted')",
            ids[0], ids[2]
        ))
        .await;
    let run = async |name: &str| {
        let sql = query(name).replace("$1", "10").replace("$2", "'{}'");
        bed.app.client().query(&sql, &[]).await.unwrap().len()
    };
    let halted = "INSERT INTO leafhopper.origin VALUES (true, 1, 1, 'n', 1, now(), 'c')";
    bed.app.execute(halted).await;
    assert_eq!(run("expire.sql").await, 0);
    bed.app.execute("DELETE FROM leafhopper.origin").await;
    assert_eq!(run("expire.sql").await, 0);
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, state) VALUES ('{batch}', 'cancelling')"
        ))
        .await;
    assert_eq!(run("sweep_batches.sql").await, 0);
    assert_eq!(run("expire.sql").await, 0);
    for id in ids {
        assert_eq!(bed.app.state(id).await, "in_doubt");
    }
    assert_eq!(bed.app.state(twice).await, "pending");
    assert_eq!(bed.app.state(behind).await, "pending");
}

/// The reply to a commit is lost, and the next try is on its way to the row as that commit takes effect.
#[tokio::test]
async fn an_attempt_that_is_being_recorded_is_recorded_once() {
    let bed = Bed::new().await;
    let id = claimed(&bed).await;
    let parameters = format!(
        "'00000000-0000-0000-0000-00000000000a', 'i', '{{{id}}}', '{{1}}', '{{leaf}}', '{{k}}', '{{1}}', '{{retry}}', \
         '{{1}}', '{{60}}', '{{false}}', '{{NULL}}', '{{retry}}', '{{429}}', '{{NULL}}', '{{c}}', '{{1}}', '{{NULL}}'"
    );
    let sql = query("record_other.sql");
    let statement = bed.app.client().prepare(&sql).await.unwrap();
    let types = statement.params().iter().map(Type::name).map(array);
    let types: Vec<_> = types.collect();
    let paused = sql.replacen(
        "seen AS MATERIALIZED (\n    SELECT d.call_id FROM",
        "seen AS MATERIALIZED (\n    SELECT d.call_id, pg_advisory_xact_lock_shared(7) IS NULL AS paused FROM",
        1,
    );
    assert_ne!(paused, sql);
    let again = App::connect(&bed.database.url).await;
    let prepare = format!("PREPARE q({}) AS {paused}\n", types.join(", "));
    again.execute(&prepare).await;
    bed.app.execute("SELECT pg_advisory_lock(7)").await;
    let execute = format!("EXECUTE q({parameters})");
    let second = again.client().query_one(&execute, &[]);
    let first = async {
        until_paused(&bed).await;
        assert_eq!(
            outcome(&bed.app, "record_other.sql", &parameters).await,
            "pending"
        );
        bed.app.execute("SELECT pg_advisory_unlock(7)").await;
    };
    let (second, ()) = tokio::join!(second, first);
    assert_eq!(second.unwrap().get::<_, String>("outcome"), "locked");
    assert_eq!(bed.app.call(id).await["attempts"], 1);
    assert_eq!(bed.app.attempts(id).await.len(), 1);
    assert_eq!(
        outcome(&bed.app, "record_other.sql", &parameters).await,
        "pending"
    );
}

/// A newer claim decides its call: what an older one saw is history, and changes nothing.
#[tokio::test]
async fn an_attempt_of_an_older_claim_changes_nothing() {
    for (kind, reason) in [("retry", "NULL"), ("doubt", "NULL"), ("failed", "rejected")] {
        for (instance, round) in [("a", 2), ("b", 1)] {
            let bed = Bed::new().await;
            let id = claimed(&bed).await;
            let before = bed.app.call(id).await;
            let parameters = format!(
                "'00000000-0000-0000-0000-00000000000{instance}', 'i', '{{{id}}}', '{{{round}}}', '{{leaf}}', '{{k}}', \
                 '{{1}}', '{{{kind}}}', '{{1}}', '{{60}}', '{{false}}', '{{{reason}}}', '{{failed}}', '{{422}}', \
                 '{{NULL}}', '{{c}}', '{{1}}', '{{NULL}}'"
            );
            let said = outcome(&bed.app, "record_other.sql", &parameters).await;
            assert_eq!(said, "superseded", "{kind}");
            assert_eq!(bed.app.call(id).await, before, "{kind}");
            assert_eq!(bed.app.attempts(id).await[0]["body"], "c", "{kind}");
        }
    }
}

/// A call that was added and cancelled in one transaction, which ended after its batch had: that cancels nothing.
#[tokio::test]
async fn a_failure_that_comes_after_the_end_of_its_batch_cancels_no_follow_up() {
    let bed = Bed::new().await;
    let batch = uuid::Uuid::from_u128(0xb1);
    let told = keyed("leaf", "told").set("run_when", "batch_succeeded");
    let told = bed.app.insert(told.batch(batch)).await;
    let late = App::connect(&bed.database.url).await;
    late.execute("BEGIN").await;
    let id = late.insert(keyed("leaf", "late").batch(batch)).await;
    late.execute(&format!("SELECT leafhopper.cancel({id}, 'not wanted')"))
        .await;
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, state) VALUES ('{batch}', 'succeeded');
             UPDATE leafhopper.dispatch SET held = NULL WHERE call_id = {told}"
        ))
        .await;
    late.execute("COMMIT").await;
    for batches in ["'{}'".to_owned(), format!("'{{{batch}}}'")] {
        let sql = query("sweep_batches.sql")
            .replace("$1", "10")
            .replace("$2", &batches);
        let swept = bed.app.client().query(&sql, &[]).await.unwrap();
        assert!(swept.is_empty(), "{swept:?}");
    }
    assert_eq!(bed.app.state(told).await, "pending");
}
