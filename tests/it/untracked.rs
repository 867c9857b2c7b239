//! Calls that were inserted while triggers were off: visible as untracked, and taken up.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{Call, keyed},
    sidecar::Config,
    wait::{holds_for, until},
};

/// Calls of each kind that the insert trigger tells apart.
fn rows(kind: &str) -> [Call; 5] {
    let batch = uuid::Uuid::from_u128(7);
    let key = |name: &str| keyed("leaf", &format!("{kind} {name}"));
    [
        key("plain"),
        key("later").set("not_before", "2100-01-01T00:00:00Z"),
        key("ordered").set("ordering_key", kind),
        key("follow-up")
            .batch(batch)
            .set("run_when", "batch_failed"),
        key("full")
            .batch(batch)
            .set("priority", 3)
            .set("timeout", "2 s")
            .set("credential", "c")
            .set("deadline", "infinity"),
    ]
}

#[tokio::test]
async fn an_insert_without_triggers_is_visible_and_taken_up() {
    let bed = Bed::new().await;
    let mut tracked = Vec::new();
    for row in rows("tracked") {
        tracked.push(bed.app.insert(row).await);
    }
    let columns = "ordering_key IS NULL AS unordered, batch_id, run_when, priority, credential, timeout, \
                   deadline, state, held, due_at, attempts, tries";
    let dispatch = |ids: &[i64]| {
        let ids: Vec<_> = ids.iter().map(i64::to_string).collect();
        format!(
            "SELECT {columns} FROM leafhopper.dispatch WHERE call_id IN ({}) ORDER BY call_id",
            ids.join(", ")
        )
    };
    let expected = bed.app.rows(&dispatch(&tracked)).await;

    bed.app
        .execute("SET session_replication_role = replica")
        .await;
    let mut untracked = Vec::new();
    for row in rows("untracked") {
        untracked.push(bed.app.insert(row).await);
    }
    bed.app
        .execute("SET session_replication_role = origin")
        .await;
    for id in &untracked {
        let row = bed.app.call(*id).await;
        assert_eq!(
            (&row["state"], &row["reason"]),
            (&json!("pending"), &json!("untracked"))
        );
    }
    let cancel = format!("SELECT leafhopper.cancel({}, 'no')", untracked[0]);
    let refused = bed.app.client().batch_execute(&cancel).await.unwrap_err();
    let message = refused.as_db_error().unwrap().message().to_owned();
    assert!(message.contains("is untracked"), "{message}");

    // A leaf that no instance knows: they are taken up, and stay to be compared.
    let config = Config::new(&bed.database.url);
    let mut other = config.leaf("other", &bed.leaf.url(), "").start().await;
    until("they are taken up", async || {
        let rows = bed.app.rows(&dispatch(&untracked)).await;
        let arrived = json!("arrived");
        // The promoter has looked at the ordered ones of both kinds, or at none.
        let normal = |rows: &[Value]| -> Vec<Value> {
            let mut rows = rows.to_vec();
            for row in &mut rows {
                if row["unordered"] == false {
                    row["held"] = arrived.clone();
                }
            }
            rows
        };
        if normal(&rows) == normal(&expected) {
            Ok(())
        } else {
            Err((rows, expected.clone()))
        }
    })
    .await;
    assert!(other.stop().await.success());
    let _sidecar = bed.sidecar("").await;
    for id in [untracked[0], untracked[2]] {
        bed.app.until_state(id, "confirmed").await;
    }
    bed.leaf
        .assert_each_effect_once(["untracked plain", "untracked ordered"]);
}

#[tokio::test]
async fn many_untracked_calls_are_taken_up_once_by_many_instances() {
    let bed = Bed::new().await;
    bed.app
        .execute(
            "SET session_replication_role = replica; \
             INSERT INTO leafhopper.outbox (leaf, key, path, body) \
             SELECT 'leaf', 'k' || n, '/things', jsonb_build_object('key', 'k' || n) \
               FROM generate_series(1, 300) AS n; \
             SET session_replication_role = origin; \
             INSERT INTO leafhopper.outbox (leaf, path) SELECT 'nobody', '/' FROM generate_series(1, 4500)",
        )
        .await;
    // Some of them refuse: one that has failed must not be taken up again.
    for n in 1..=20 {
        bed.leaf.on("/things").key(&format!("k{n}")).refuses(404);
    }
    let config = bed.config("");
    let _sidecars = tokio::join!(config.start(), config.start());
    until("all have ended", async || {
        let left = "SELECT state, reason, count(*) FROM leafhopper.call \
                     WHERE leaf = 'leaf' AND finished_at IS NULL GROUP BY state, reason";
        match bed.app.rows(left).await {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })
    .await;
    assert_eq!(bed.leaf.all_requests().len(), 300);
    bed.leaf
        .assert_each_effect_once((21..=300).map(|n| format!("k{n}")));
}

#[tokio::test]
async fn what_a_subscription_copies_here_is_not_ours_to_send() {
    let bed = Bed::new().await;
    // A row of the catalogue is all that there is of it: a publisher takes a second server.
    bed.app
        .execute(
            "CREATE SUBSCRIPTION copies CONNECTION 'host=nowhere' PUBLICATION p WITH (connect = false); \
             SET allow_system_table_mods = on; \
             INSERT INTO pg_subscription_rel (srsubid, srrelid, srsubstate) \
             SELECT oid, 'leafhopper.outbox'::regclass, 'r' FROM pg_subscription WHERE subname = 'copies'; \
             SET session_replication_role = replica",
        )
        .await;
    let copied = bed.app.insert(keyed("leaf", "copied")).await;
    bed.app
        .execute("SET session_replication_role = origin")
        .await;
    let _sidecar = bed.sidecar("").await;
    let own = bed.app.insert(keyed("leaf", "own")).await;
    bed.app.until_state(own, "confirmed").await;
    holds_for(Duration::from_millis(1500), "it is not sent", async || {
        let row = bed.app.call(copied).await;
        if row["reason"] == "untracked" {
            Ok(())
        } else {
            Err(row)
        }
    })
    .await;
    bed.app
        .execute("ALTER SUBSCRIPTION copies SET (slot_name = NONE); DROP SUBSCRIPTION copies")
        .await;
    bed.app.until_state(copied, "confirmed").await;
}
