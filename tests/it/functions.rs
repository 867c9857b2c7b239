//! The functions for an app's own transactions: what each returns or refuses in every state of a call, and what
//! follows from it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{call, keyed},
    leaf::Gate,
    sidecar::Sidecar,
    wait::until,
};

const KEYED: &str = "retry = { initial = \"10m\" }\nidempotency = { header = \"Idempotency-Key\", window = \"1d\" }";

/// A call in each state. The key is the state's name, and so is the batch of each but the unknown.
struct EveryState {
    bed: Bed,
    calls: Vec<(&'static str, i64)>,
    _sidecar: Sidecar,
}

impl EveryState {
    async fn new() -> Self {
        let bed = Bed::new().await;
        let gate = Gate::closed();
        bed.leaf.always().answers(500);
        bed.leaf.on("/things").key("confirmed").answers(201);
        bed.leaf.on("/things").key("failed").refuses(404);
        bed.leaf
            .on("/things")
            .key("dispatching")
            .waits_before_the_answer(&gate)
            .answers(201);
        let url = bed.leaf.url();
        // As long as anybody looks.
        let config = bed.config("timeout = \"10m\"").leaf("keyed", &url, KEYED);
        let sidecar = config.start().await;
        let mut calls = Vec::new();
        for (state, row) in [
            ("pending", keyed("nobody", "pending")),
            ("dispatching", keyed("leaf", "dispatching")),
            ("in_doubt", keyed("keyed", "in_doubt")),
            ("parked", keyed("leaf", "parked")),
            ("confirmed", keyed("leaf", "confirmed")),
            ("failed", keyed("leaf", "failed")),
            ("cancelled", keyed("nobody", "cancelled")),
            (
                "expired",
                keyed("nobody", "expired").set("deadline", "-infinity"),
            ),
        ] {
            calls.push((state, bed.app.insert(row).await));
        }
        let cancel = format!(
            "SELECT leafhopper.cancel({}, 'no longer wanted')",
            calls[6].1
        );
        bed.app.execute(&cancel).await;
        for (state, id) in &calls {
            bed.app.until_state(*id, state).await;
        }
        calls.push(("unknown", 999_999));
        Self {
            bed,
            calls,
            _sidecar: sidecar,
        }
    }

    /// What this call of a function gives for each state, in a transaction that is rolled back.
    async fn table(&self, function: &str) -> String {
        let app = &self.bed.app;
        let mut table = String::new();
        for (state, id) in &self.calls {
            let leaf = app
                .rows(&format!(
                    "SELECT leaf FROM leafhopper.outbox WHERE id = {id}"
                ))
                .await;
            let leaf = leaf
                .first()
                .map_or("leaf", |row| row["leaf"].as_str().unwrap());
            let call = function
                .replace("ID", &id.to_string())
                .replace("LEAF, KEY", &format!("'{leaf}', '{state}'"));
            app.execute("BEGIN").await;
            let said = app
                .client()
                .query_one(&format!("SELECT (leafhopper.{call})::text"), &[])
                .await;
            let said = match said {
                Ok(row) => {
                    let now = app
                        .rows(&format!(
                            "SELECT state FROM leafhopper.call WHERE id = {id}"
                        ))
                        .await;
                    let now = now
                        .first()
                        .map_or("none", |row| row["state"].as_str().unwrap());
                    let noted = app
                        .rows(&format!(
                            "SELECT action, reason FROM leafhopper.operator_action \
                              WHERE call_id = {id} AND reason <> 'no longer wanted'"
                        ))
                        .await;
                    let noted: String = noted
                        .iter()
                        .map(|row| format!(", noted as {}: {}", row["action"], row["reason"]))
                        .collect();
                    format!("{}, now {now}{noted}", row.get::<_, String>(0))
                }
                Err(error) => {
                    let error = error.as_db_error().unwrap();
                    let hint = error
                        .hint()
                        .map(|hint| format!(" ({hint})"))
                        .unwrap_or_default();
                    format!("refused: {}{hint}", error.message())
                }
            };
            app.execute("ROLLBACK").await;
            let said = said.replace(&format!("call {id}"), "call N");
            writeln!(table, "{state}: {said}").unwrap();
        }
        table
    }
}

#[tokio::test]
async fn each_function_says_in_each_state_what_it_does_or_why_not() {
    let every = EveryState::new().await;
    insta::assert_snapshot!(every.table("cancel(ID, 'r')").await, @r#"
    pending: cancelled, now cancelled, noted as "cancel": "r"
    dispatching: dispatching, now dispatching, noted as "cancel": "r"
    in_doubt: in_doubt, now in_doubt, noted as "cancel": "r"
    parked: refused: call N is parked (no_probe): nobody knows whether it was executed (say what is true: confirm(leaf, key, status, body) or resolve_not_executed(call_id, reason, send => false))
    confirmed: refused: call N is already confirmed (only a call that is not final can be cancelled)
    failed: refused: call N is already failed (only a call that is not final can be cancelled)
    cancelled: refused: call N is already cancelled (only a call that is not final can be cancelled)
    expired: refused: call N is already expired (only a call that is not final can be cancelled)
    unknown: refused: there is no call N
    "#);
    insta::assert_snapshot!(every.table("resolve_not_executed(ID, 'r')").await, @r#"
    pending: refused: call N is not parked but pending (only a parked call waits for this word)
    dispatching: refused: call N is not parked but dispatching (only a parked call waits for this word)
    in_doubt: refused: call N is not parked but in_doubt (only a parked call waits for this word)
    parked: pending, now pending, noted as "resolve_not_executed": "r"
    confirmed: refused: call N is not parked but confirmed (only a parked call waits for this word)
    failed: refused: call N is not parked but failed (only a parked call waits for this word)
    cancelled: refused: call N is not parked but cancelled (only a parked call waits for this word)
    expired: refused: call N is not parked but expired (only a parked call waits for this word)
    unknown: refused: there is no call N
    "#);
    insta::assert_snapshot!(every.table("resolve_not_executed(ID, 'r', send => false)").await, @r#"
    pending: refused: call N is not parked but pending (only a parked call waits for this word)
    dispatching: refused: call N is not parked but dispatching (only a parked call waits for this word)
    in_doubt: refused: call N is not parked but in_doubt (only a parked call waits for this word)
    parked: cancelled, now cancelled, noted as "resolve_not_executed": "r"
    confirmed: refused: call N is not parked but confirmed (only a parked call waits for this word)
    failed: refused: call N is not parked but failed (only a parked call waits for this word)
    cancelled: refused: call N is not parked but cancelled (only a parked call waits for this word)
    expired: refused: call N is not parked but expired (only a parked call waits for this word)
    unknown: refused: there is no call N
    "#);
    insta::assert_snapshot!(every.table("retry(ID, 'r')").await, @r#"
    pending: refused: call N has not failed but is pending (only a failed call can be retried)
    dispatching: refused: call N has not failed but is dispatching (only a failed call can be retried)
    in_doubt: refused: call N has not failed but is in_doubt (only a failed call can be retried)
    parked: refused: call N has not failed but is parked (say what is true of it: resolve_not_executed(call_id, reason) sends it again)
    confirmed: refused: call N has not failed but is confirmed (only a failed call can be retried)
    failed: pending, now pending, noted as "retry": "r"
    cancelled: refused: call N has not failed but is cancelled (only a failed call can be retried)
    expired: refused: call N has not failed but is expired (only a failed call can be retried)
    unknown: refused: there is no call N
    "#);
    insta::assert_snapshot!(every.table("confirm(LEAF, KEY, 200)").await, @r#"
    pending: true, now confirmed
    dispatching: true, now dispatching
    in_doubt: true, now confirmed
    parked: true, now confirmed
    confirmed: false, now confirmed
    failed: true, now confirmed
    cancelled: true, now confirmed
    expired: true, now confirmed
    unknown: true, now none
    "#);
    insta::assert_snapshot!(every.table("forget(LEAF, KEY)").await, @r#"
    pending: refused: no effect stands for leaf "nobody", key "pending" (look into leafhopper.result for the keys that have one)
    dispatching: refused: call N of leaf "leaf", key "dispatching" is dispatching; its effect can't be forgotten now (wait until it is final, or resolve it first)
    in_doubt: refused: call N of leaf "keyed", key "in_doubt" is in_doubt; its effect can't be forgotten now (wait until it is final, or resolve it first)
    parked: refused: call N of leaf "leaf", key "parked" is parked; its effect can't be forgotten now (wait until it is final, or resolve it first)
    confirmed: forgotten, now confirmed
    failed: refused: no effect stands for leaf "leaf", key "failed" (look into leafhopper.result for the keys that have one)
    cancelled: refused: no effect stands for leaf "nobody", key "cancelled" (look into leafhopper.result for the keys that have one)
    expired: refused: no effect stands for leaf "nobody", key "expired" (look into leafhopper.result for the keys that have one)
    unknown: refused: no effect stands for leaf "leaf", key "unknown" (look into leafhopper.result for the keys that have one)
    "#);
}

#[tokio::test]
async fn a_reason_is_required() {
    let bed = Bed::new().await;
    let id = bed.app.insert(keyed("nobody", "k")).await;
    let batch = uuid::Uuid::from_u128(1);
    bed.app.insert(keyed("nobody", "l").batch(batch)).await;
    for reason in ["''", "' '", "NULL"] {
        for function in [
            format!("cancel({id}, {reason})"),
            format!("resolve_not_executed({id}, {reason})"),
            format!("retry({id}, {reason})"),
            format!("cancel_batch('{batch}', {reason})"),
        ] {
            let sql = format!("SELECT leafhopper.{function}");
            let refused = bed.app.client().batch_execute(&sql).await.expect_err(&sql);
            let message = refused.as_db_error().unwrap().message().to_owned();
            assert!(message.ends_with("needs a reason"), "{sql}: {message}");
        }
    }
    let noted = "SELECT * FROM leafhopper.operator_action";
    assert!(bed.app.rows(noted).await.is_empty());
}

#[tokio::test]
async fn what_a_person_said_is_kept_with_who_said_it() {
    let bed = Bed::new().await;
    let one = bed.app.insert(keyed("nobody", "k")).await;
    let two = bed.app.insert(keyed("nobody", "l")).await;
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({one}, 'not wanted')"))
        .await;
    bed.app
        .execute(&format!(
            "SET leafhopper.actor = 'ann'; SELECT leafhopper.cancel({two}, 'neither')"
        ))
        .await;
    let kept = "SELECT call_id, leaf, action, reason, actor = session_user AS is_the_session_s, actor \
                  FROM leafhopper.operator_action ORDER BY id";
    let kept = bed.app.rows(kept).await;
    assert_eq!(kept[0]["call_id"], one);
    assert_eq!(kept[0]["is_the_session_s"], true);
    assert_eq!(
        (
            &kept[1]["actor"],
            &kept[1]["leaf"],
            &kept[1]["action"],
            &kept[1]["reason"]
        ),
        (
            &json!("ann"),
            &json!("nobody"),
            &json!("cancel"),
            &json!("neither")
        )
    );
    assert_eq!(bed.app.call(one).await["reason"], "not wanted");
}

#[tokio::test]
async fn a_cancelled_call_is_not_sent() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    let on = |key: &str| {
        let on = bed.leaf.on("/things").key(key);
        on.waits_before_the_answer(&gate)
    };
    on("confirmed").answers(201);
    on("refused").refuses(404);
    on("again").refuses(429);
    on("doubt").answers(500);
    let config = bed.config("").leaf(
        "keyed",
        &bed.leaf.url(),
        "retry = { initial = \"50ms\" }\n\
        idempotency = { header = \"Idempotency-Key\", window = \"1d\" }",
    );
    let _sidecar = config.start().await;
    let waiting = bed
        .app
        .insert(keyed("leaf", "waiting").set("not_before", "2100-01-01"))
        .await;
    let mut calls = Vec::new();
    for (key, leaf, state) in [
        ("confirmed", "leaf", "confirmed"),
        ("refused", "leaf", "failed"),
        ("again", "leaf", "cancelled"),
        ("doubt", "keyed", "parked"),
    ] {
        calls.push((bed.app.insert(keyed(leaf, key)).await, key, state));
    }
    gate.until_arrived(4).await;
    let cancel = async |id: i64| {
        let sql = format!("SELECT leafhopper.cancel({id}, 'stop') AS said");
        bed.app.rows(&sql).await.remove(0)["said"].clone()
    };
    assert_eq!(cancel(waiting).await, "cancelled");
    for (id, ..) in &calls {
        assert_eq!(cancel(*id).await, "dispatching");
    }
    gate.open();
    for (id, key, state) in calls {
        bed.app.until_state(id, state).await;
        assert_eq!(bed.leaf.requests(key).len(), 1, "{key}");
    }
    assert!(bed.leaf.requests("waiting").is_empty());
    assert_eq!(bed.app.state(waiting).await, "cancelled");
}

#[tokio::test]
async fn a_parked_call_is_sent_again_only_on_somebody_s_word() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").nth(1).answers(500);
    let _sidecar = bed.sidecar("").await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "parked").await;
    bed.app
        .execute(&format!(
            "SELECT leafhopper.resolve_not_executed({id}, 'I looked')"
        ))
        .await;
    let row = bed.app.until_state(id, "confirmed").await;
    assert_eq!(row["attempts"], 2);
    assert_eq!(bed.leaf.requests("k").len(), 2);
}

#[tokio::test]
async fn a_parked_call_past_its_deadline_is_not_sent_again() {
    let bed = Bed::new().await;
    bed.leaf.always().answers(500);
    let _sidecar = bed.sidecar("").await;
    let columns = "deadline, body";
    let values = "now() + interval '6 s', '{\"key\": \"k\"}'";
    let id = bed.app.insert_values(columns, values).await;
    bed.app.until_state(id, "parked").await;
    until("its deadline has passed", async || {
        let sql = format!(
            "SELECT deadline < clock_timestamp() AS over FROM leafhopper.outbox WHERE id = {id}"
        );
        match bed.app.rows(&sql).await.remove(0) {
            row if row["over"] == true => Ok(()),
            row => Err(row),
        }
    })
    .await;
    assert_eq!(bed.app.state(id).await, "parked", "a doubt does not expire");
    let said = format!("SELECT leafhopper.resolve_not_executed({id}, 'I looked') AS said");
    assert_eq!(bed.app.rows(&said).await, [json!({"said": "expired"})]);
    assert_eq!(bed.app.state(id).await, "expired");
    assert_eq!(bed.leaf.all_requests().len(), 1);
}

#[tokio::test]
async fn a_failed_call_is_tried_again_with_its_history_kept() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").times(2).refuses(404);
    let _sidecar = bed.sidecar("").await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "failed").await;
    let retry = format!("SELECT leafhopper.retry({id}, 'mended') AS said");
    assert_eq!(bed.app.rows(&retry).await, [json!({"said": "pending"})]);
    until("it has failed again", async || {
        match bed.app.attempts(id).await {
            attempts if attempts.len() == 2 => Ok(()),
            attempts => Err(attempts),
        }
    })
    .await;
    bed.app.until_state(id, "failed").await;
    bed.app.rows(&retry).await;
    let row = bed.app.until_state(id, "confirmed").await;
    assert_eq!(row["attempts"], 1, "the attempts of before do not count");
    let numbers: Vec<_> = bed
        .app
        .attempts(id)
        .await
        .iter()
        .map(|a| a["attempt"].clone())
        .collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(bed.leaf.requests("k").len(), 3);
}

#[tokio::test]
async fn a_word_for_the_call_that_failed_its_batch_does_not_revive_the_batch() {
    let bed = Bed::new().await;
    let batch = uuid::Uuid::from_u128(9);
    // No sidecar: its row in `finished` is the only word of the batch's end.
    let failed = bed.app.insert(keyed("leaf", "a").batch(batch)).await;
    let sibling = bed.app.insert(keyed("leaf", "b").batch(batch)).await;
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({failed}, 'no')"))
        .await;
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'a', 200)")
        .await;
    assert_eq!(bed.app.state(failed).await, "confirmed");
    assert_eq!(bed.app.call(sibling).await["reason"], "batch_cancelled");
    let _sidecar = bed.sidecar("").await;
    bed.app.until_state(sibling, "cancelled").await;
    assert!(bed.leaf.all_requests().is_empty());
}

/// A head that had failed, and whose effect somebody says is there, holds nobody any more.
#[tokio::test]
async fn a_word_for_a_failed_head_lets_the_next_one_go() {
    let bed = Bed::new().await;
    bed.app
        .execute("INSERT INTO leafhopper.leaf_control (leaf, hold_after_failed_head) VALUES ('leaf', true)")
        .await;
    let ordered = |key: &str| call("leaf").key(key).set("ordering_key", "o");
    let head = bed.app.insert(ordered("head")).await;
    let next = bed.app.insert(ordered("next")).await;
    bed.app
        .execute(&format!(
            "UPDATE leafhopper.dispatch SET held = CASE WHEN call_id <> {head} THEN 'order' END;
             SELECT leafhopper.cancel({head}, 'not wanted')"
        ))
        .await;
    assert_eq!(bed.app.call(next).await["waits_for"], head);
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'head')")
        .await;
    assert_eq!(bed.app.state(head).await, "confirmed");
    assert_eq!(bed.app.call(next).await["waits_for"], Value::Null);
}
