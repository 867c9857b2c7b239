//! Apps that have an outbox of their own: both ways of `examples/own-outbox`, with the rights of the app's role.

use serde_json::{Value, json};
use tokio_postgres::error::SqlState;

use super::shop::{Shop, example};
use crate::harness::app::App;

/// It has no id that could stand in a path.
const BAD: &str = "('site.deleted', '{\"remote_id\": \"no id\"}')";

/// An app with its outbox: two events of a time before leafhopper, of which one was sent.
async fn with_own_outbox() -> Shop {
    let shop = Shop::new().await;
    shop.app.execute(&example("own-outbox/app.sql")).await;
    shop.app
        .execute(
            "INSERT INTO outbox (kind, payload, sent_at) VALUES \
             ('site.requested', '{\"name\": \"sent before\"}', now()), \
             ('site.requested', '{\"name\": \"left behind\"}', NULL)",
        )
        .await;
    shop
}

fn event(name: &str) -> String {
    let payload = json!({ "name": name });
    format!("INSERT INTO outbox (kind, payload) VALUES ('site.requested', '{payload}')")
}

async fn install(shop: &Shop, files: [&str; 2]) {
    for file in files {
        let sql = example(&format!("own-outbox/{file}"));
        shop.app.execute(&format!("BEGIN; {sql}; COMMIT")).await;
    }
}

/// The names of the sites that the hosting API was asked for, once all of so many calls are confirmed.
async fn made(shop: &Shop, calls: usize) -> Vec<String> {
    shop.bed.app.until_all_confirmed(calls).await;
    let requests = shop.asked("POST", "/hosting/sites");
    let name = |body: Value| body["name"].as_str().unwrap().to_owned();
    let mut names: Vec<_> = requests
        .iter()
        .map(|request| name(request.json()))
        .collect();
    names.sort();
    names
}

async fn refused(shop: &Shop, sql: &str) -> tokio_postgres::Error {
    shop.app.client().batch_execute(sql).await.unwrap_err()
}

#[tokio::test]
async fn a_trigger_on_the_app_s_own_outbox_forwards_its_events() {
    let shop = with_own_outbox().await;
    for _ in 0..2 {
        install(&shop, ["calls.sql", "trigger.sql"]).await;
    }
    let rolled_back = event("rolled back");
    shop.app
        .execute(&format!("BEGIN; {rolled_back}; ROLLBACK"))
        .await;
    shop.app.execute(&event("plain")).await;
    // What is no call, a bad row and a good one in one statement: the app's INSERT takes all three.
    shop.app
        .execute(&format!(
            "INSERT INTO outbox (kind, payload) VALUES ('site.visited', '{{}}'), {BAD}, \
             ('site.requested', '{{\"name\": \"beside a bad one\"}}')"
        ))
        .await;
    assert_eq!(made(&shop, 2).await, ["beside a bad one", "plain"]);
    let kept = "SELECT e.kind, r.error ~ 'path' AS says_what FROM outbox_refused r JOIN outbox e ON e.id = r.event_id";
    let deleted = json!({ "kind": "site.deleted", "says_what": true });
    assert_eq!(shop.app.rows(kept).await, [deleted]);

    for rows in [1, 0] {
        let backfill = example("own-outbox/backfill.sql");
        let forwarded = shop.app.client().query(&backfill, &[]).await.unwrap();
        assert_eq!(forwarded.len(), rows);
    }
    let all = ["beside a bad one", "left behind", "plain"];
    assert_eq!(made(&shop, 3).await, all);

    let mend = "UPDATE outbox SET payload = '{\"remote_id\": \"h-1\"}' WHERE kind = 'site.deleted'";
    shop.app.execute(mend).await;
    let again =
        "SELECT outbox_forward(e) AS done FROM outbox e JOIN outbox_refused r ON r.event_id = e.id";
    let forwarded = json!({ "done": "forwarded" });
    assert_eq!(shop.app.rows(again).await, [forwarded]);
    assert_eq!(made(&shop, 4).await, all);
    assert_eq!(shop.asked("DELETE", "/hosting/sites/h-1").len(), 1);
    let refused = shop.app.rows("SELECT * FROM outbox_refused").await;
    assert!(refused.is_empty(), "{refused:?}");
    shop.close().await;
}

#[tokio::test]
async fn a_view_in_the_place_of_the_app_s_own_outbox_makes_calls_of_its_events() {
    let shop = with_own_outbox().await;
    for _ in 0..2 {
        install(&shop, ["calls.sql", "view.sql"]).await;
    }
    assert_eq!(made(&shop, 1).await, ["left behind"]);
    let rolled_back = event("rolled back");
    shop.app
        .execute(&format!("BEGIN; {rolled_back}; ROLLBACK"))
        .await;
    let returning = format!("{} RETURNING id, kind", event("plain"));
    let row = shop.app.client().query_one(&returning, &[]).await.unwrap();
    let (id, kind): (uuid::Uuid, String) = (row.get(0), row.get(1));
    assert_eq!(kind, "site.requested");
    assert_eq!(made(&shop, 2).await, ["left behind", "plain"]);
    let seen = format!("SELECT payload, sent_at IS NOT NULL AS sent FROM outbox WHERE id = '{id}'");
    let plain = json!({ "payload": { "name": "plain" }, "sent": true });
    assert_eq!(shop.app.rows(&seen).await, [plain]);

    // The app is told what is wrong, and its transaction ends.
    let insert = "INSERT INTO outbox (kind, payload) VALUES";
    let bad = refused(&shop, &format!("{insert} {BAD}")).await;
    assert_eq!(bad.code(), Some(&SqlState::CHECK_VIOLATION), "{bad:?}");
    let none = refused(&shop, &format!("{insert} ('site.visited', '{{}}')")).await;
    let said = none.as_db_error().unwrap().message();
    assert!(said.contains("is no call"), "{said}");
    // A relay that still runs is told, too.
    refused(&shop, "UPDATE outbox SET sent_at = now()").await;
    refused(&shop, "DELETE FROM outbox").await;
    assert_eq!(made(&shop, 2).await.len(), 2);
    shop.close().await;
}

#[tokio::test]
async fn neither_is_installed_past_an_open_transaction_that_has_inserted() {
    let shop = with_own_outbox().await;
    install(&shop, ["calls.sql", "calls.sql"]).await;
    let other = App::connect(&shop.url).await;
    other.execute(&format!("BEGIN; {}", event("between"))).await;
    for way in ["trigger.sql", "view.sql"] {
        let sql = example(&format!("own-outbox/{way}"));
        assert!(sql.contains("lock_timeout = '2s'"), "{way}");
        let sql = sql.replace("lock_timeout = '2s'", "lock_timeout = '50ms'");
        let error = refused(&shop, &format!("BEGIN; {sql}; COMMIT")).await;
        let code = error.code();
        assert_eq!(
            code,
            Some(&SqlState::LOCK_NOT_AVAILABLE),
            "{way}: {error:?}"
        );
        shop.app.execute("ROLLBACK").await;
    }
    other.execute("COMMIT").await;
    install(&shop, ["calls.sql", "view.sql"]).await;
    assert_eq!(made(&shop, 2).await, ["between", "left behind"]);
    shop.close().await;
}

#[tokio::test]
async fn who_may_not_insert_calls_may_not_insert_events() {
    for way in ["trigger.sql", "view.sql"] {
        let shop = with_own_outbox().await;
        install(&shop, ["calls.sql", way]).await;
        let revoke = format!("REVOKE ALL ON leafhopper.outbox FROM {}", shop.role);
        shop.bed.app.execute(&revoke).await;
        let error = refused(&shop, &event("by whom")).await;
        let code = error.code();
        assert_eq!(
            code,
            Some(&SqlState::INSUFFICIENT_PRIVILEGE),
            "{way}: {error:?}"
        );
        shop.close().await;
    }
}
