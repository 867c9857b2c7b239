//! Claims that are given back, and what people have said of their calls meanwhile.

use serde_json::{Value, json};

use super::{INSTANCE, claimed, query};
use crate::harness::{
    Bed,
    app::{App, keyed},
};

async fn given_back(app: &App) -> usize {
    let sql = query("give_back.sql")
        .replace("$1", &format!("'{INSTANCE}'"))
        .replace("$2", "1")
        .replace("$3", "'{}'")
        .replace("$4", "'{}'");
    app.client().query(&sql, &[]).await.unwrap().len()
}

async fn gone_on(app: &App, may_be_executed: bool) {
    let sql = query("go_on.sql")
        .replace("$1", &may_be_executed.to_string())
        .replace("$2", "1")
        .replace("$3", "1")
        .replace("$4", "'n'")
        .replace("$5", "1");
    let moved = app.client().query(&sql, &[]).await.unwrap();
    let moved: Vec<i64> = moved.iter().map(|row| row.get("call_id")).collect();
    let cancel = query("act_cancel_marked.sql");
    app.client().query(&cancel, &[&moved]).await.unwrap();
}

/// "Dispatching" is the answer to a cancel of a call that was claimed and never sent.
#[tokio::test]
async fn a_claim_that_was_to_be_cancelled_is_cancelled_where_it_was_not_sent() {
    for goes_on in [false, true] {
        let bed = Bed::new().await;
        let batch = uuid::Uuid::from_u128(0xb1);
        let id = claimed(&bed).await;
        bed.app
            .execute(&format!(
                "UPDATE leafhopper.outbox SET batch_id = '{batch}'; UPDATE leafhopper.dispatch SET batch_id = '{batch}'"
            ))
            .await;
        let cancel = format!("SELECT leafhopper.cancel({id}, 'not wanted') AS state");
        assert_eq!(bed.app.rows(&cancel).await[0]["state"], "dispatching");
        if goes_on {
            gone_on(&bed.app, false).await;
        } else {
            assert_eq!(given_back(&bed.app).await, 1);
        }
        let call = bed.app.call(id).await;
        assert_eq!(
            (&call["state"], &call["reason"], &call["attempts"]),
            (&json!("cancelled"), &json!("not wanted"), &json!(0))
        );
        let ended = "SELECT fails_batch FROM leafhopper.finished";
        assert_eq!(bed.app.rows(ended).await, [json!({ "fails_batch": true })]);
        let live = "SELECT call_id FROM leafhopper.dispatch";
        assert_eq!(bed.app.rows(live).await, [Value::Null; 0]);
    }
}

#[tokio::test]
async fn a_claim_that_was_to_be_cancelled_and_may_have_been_executed_is_a_doubt() {
    for goes_on in [false, true] {
        let bed = Bed::new().await;
        let id = claimed(&bed).await;
        if !goes_on {
            // By an attempt before this one.
            bed.app
                .execute("UPDATE leafhopper.dispatch SET in_doubt_since = now(), tries = 2, attempts = 1")
                .await;
        }
        bed.app
            .execute(&format!("SELECT leafhopper.cancel({id}, 'not wanted')"))
            .await;
        if goes_on {
            gone_on(&bed.app, true).await;
        } else {
            assert_eq!(given_back(&bed.app).await, 1);
        }
        assert_eq!(bed.app.state(id).await, "in_doubt");
    }
}

#[tokio::test]
async fn a_claim_that_an_app_s_transaction_holds_keeps_no_other_from_being_given_back() {
    let bed = Bed::new().await;
    bed.app.insert(keyed("leaf", "held")).await;
    let id = claimed(&bed).await;
    let app = App::connect(&bed.database.url).await;
    app.execute("BEGIN; SELECT FROM leafhopper.dispatch WHERE key = 'held' FOR UPDATE")
        .await;
    assert_eq!(given_back(&bed.app).await, 1);
    assert_eq!(bed.app.state(id).await, "pending");
    app.execute("COMMIT").await;
    assert_eq!(given_back(&bed.app).await, 1);
}

/// The prober saw it before it was cancelled.
#[tokio::test]
async fn a_doubt_that_was_cancelled_meanwhile_is_not_sent_again() {
    let bed = Bed::new().await;
    let id = claimed(&bed).await;
    bed.app
        .execute("UPDATE leafhopper.dispatch SET state = 'in_doubt', in_doubt_since = now(), due_at = now()")
        .await;
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({id}, 'not wanted')"))
        .await;
    let settle = format!(
        "PREPARE q(int8[], int4[], text[], text[], float8[], bool[]) AS {}\n",
        query("settle_doubts.sql")
    );
    bed.app.execute(&settle).await;
    for (kind, settled) in [("resend", 0), ("ask", 1)] {
        let sql = format!(
            "EXECUTE q('{{{id}}}', '{{1}}', '{{{kind}}}', '{{NULL}}', '{{30}}', '{{false}}')"
        );
        let rows = bed.app.client().query(&sql, &[]).await.unwrap();
        assert_eq!(rows.len(), settled, "{kind}");
    }
    let resend = "SELECT resend FROM leafhopper.dispatch";
    assert_eq!(bed.app.rows(resend).await, [json!({ "resend": false })]);
}
