//! What has ended long ago goes, by `[retention]`, and nothing else: no call that may still be needed, and nothing that
//! keeps an effect from happening twice. `keys.rs`: what belongs to one key; `races.rs`: what happens at the same moment;
//! `janitor.rs`: it happens by itself.

mod janitor;
mod keys;
mod races;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    commands::{json_of, says, stderr},
    harness::{
        Bed,
        app::{App, Call, keyed},
        sidecar::Sidecar,
        wait::until,
    },
};

/// Moves all that is on record this far into the past.
async fn age(app: &App, days: u32) {
    let columns = [
        ("outbox", "created_at"),
        ("finished", "finished_at"),
        ("result", "confirmed_at"),
        ("result", "undone_at"),
        ("attempt", "started_at"),
        ("attempt", "finished_at"),
        ("batch", "created_at"),
        ("batch", "changed_at"),
        ("batch", "finished_at"),
        ("job", "created_at"),
        ("job", "finished_at"),
        ("operator_action", "at"),
    ];
    let updates = columns.map(|(table, column)| {
        format!("UPDATE leafhopper.{table} SET {column} = {column} - interval '{days} days';")
    });
    app.execute(&format!(
        "BEGIN; SET LOCAL session_replication_role = replica; {} COMMIT",
        updates.concat()
    ))
    .await;
}

/// The same of some calls alone, by their key.
async fn age_calls(app: &App, key: &str, days: u32) {
    app.execute(&format!(
        "UPDATE leafhopper.outbox SET created_at = created_at - interval '{days} days' WHERE key = '{key}'; \
         UPDATE leafhopper.finished SET finished_at = finished_at - interval '{days} days' \
          WHERE call_id IN (SELECT id FROM leafhopper.outbox WHERE key = '{key}'); \
         UPDATE leafhopper.result SET confirmed_at = confirmed_at - interval '{days} days' WHERE key = '{key}'"
    ))
    .await;
}

/// Prunes; gives how many rows of each kind that were.
async fn prune(sidecar: &Sidecar) -> BTreeMap<String, u64> {
    let pruned = json_of(sidecar, &["prune", "--yes", "--json", "--reason=test"]).await;
    let counts: BTreeMap<String, u64> = serde_json::from_value(pruned).unwrap();
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn counts<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    let pairs = expected.map(|(name, count)| (name.to_owned(), count));
    pairs.into_iter().collect()
}

/// The keys of the calls that are still there.
async fn keys(app: &App) -> Vec<String> {
    let rows = app
        .rows("SELECT key FROM leafhopper.outbox ORDER BY id")
        .await;
    rows.iter()
        .map(|row| row["key"].as_str().unwrap().to_owned())
        .collect()
}

async fn until_batch(app: &App, batch: Uuid, state: &str) {
    until(&format!("batch {batch} is {state}, and finished"), async || {
        let sql = format!(
            "SELECT state, finished_at IS NOT NULL AS finished FROM leafhopper.batch WHERE id = '{batch}'"
        );
        let row = app.rows(&sql).await.pop().unwrap_or_default();
        let wanted = json!({"state": state, "finished": true});
        if row == wanted { Ok(()) } else { Err(row) }
    })
    .await;
}

fn thing(key: &str) -> Call {
    keyed("leaf", key)
}

const UNDOES: &str = "retry = { initial = \"20ms\", max = \"50ms\" }\nafter_failed_head = \"hold\"\n\
    compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";

/// Calls and batches of each kind, all that ends has ended; gives what may not go.
async fn all_kinds(bed: &Bed) -> Vec<&'static str> {
    let app = &bed.app;
    bed.leaf.always().key("parked").resets();
    for key in ["failed", "fails its batch", "failed head"] {
        bed.leaf.always().key(key).refuses(422);
    }
    let [good, bad, open] = [1, 2, 3].map(Uuid::from_u128);
    app.execute(&format!(
        "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{open}', false), ('{bad}', false), (gen_random_uuid(), true)"
    ))
    .await;
    let ends = [
        (thing("confirmed"), "confirmed"),
        (thing("failed"), "failed"),
        (thing("expired").set("deadline", "-infinity"), "expired"),
        (thing("parked"), "parked"),
        (thing("failed head").set("ordering_key", "o"), "failed"),
        (thing("of an open batch").batch(open), "confirmed"),
        (thing("of a good batch").batch(good), "confirmed"),
        (thing("of a bad batch").batch(bad), "confirmed"),
    ];
    let mut ids = Vec::new();
    for (call, state) in ends {
        ids.push((app.insert(call).await, state));
    }
    for key in ["pending", "cancelled"] {
        let later = thing(key).set("not_before", "2100-01-01T00:00:00Z");
        ids.push((app.insert(later).await, key));
    }
    let cancel = format!("SELECT leafhopper.cancel({}, 'test')", ids[9].0);
    app.execute(&cancel).await;
    for (id, state) in ids {
        app.until_state(id, state).await;
    }
    app.insert(thing("fails its batch").batch(bad)).await;
    until_batch(app, good, "succeeded").await;
    until_batch(app, bad, "cancelled").await;
    vec!["parked", "failed head", "of an open batch", "pending"]
}

#[tokio::test]
async fn what_has_ended_long_ago_goes_and_nothing_else() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar(UNDOES).await;
    let stays = all_kinds(&bed).await;
    let before = keys(&bed.app).await;
    assert_eq!(prune(&sidecar).await, counts([]));
    age(&bed.app, 29).await;
    assert_eq!(prune(&sidecar).await, counts([]));
    assert_eq!(keys(&bed.app).await, before);

    age(&bed.app, 2).await;
    let dry = ["prune", "--dry-run", "--json", "--reason=test"];
    let would = json_of(&sidecar, &dry).await;
    assert_eq!(keys(&bed.app).await, before);
    let pruned = prune(&sidecar).await;
    // Of the two batches that are over the calls and what undid one; the third batch has no calls.
    let expected = counts([("calls", 8), ("batches", 3), ("attempts", 2)]);
    assert_eq!(pruned, expected);
    for (name, count) in &expected {
        assert_eq!(would[name], json!(count), "{name}: {would}");
    }
    assert_eq!(keys(&bed.app).await, stays);
    let left = "SELECT count(*) FROM leafhopper.finished f \
                WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.id = f.call_id)";
    assert_eq!(bed.app.rows(left).await, [json!({"count": 0})]);

    // What leaves have confirmed is still known, without its call.
    let results = "SELECT key, undone_at IS NOT NULL AS undone FROM leafhopper.result ORDER BY key";
    let known: Vec<Value> = bed.app.rows(results).await;
    assert_eq!(
        known,
        [
            json!({"key": "confirmed", "undone": false}),
            json!({"key": "of a bad batch", "undone": true}),
            json!({"key": "of a bad batch:undo:1", "undone": false}),
            json!({"key": "of a good batch", "undone": false}),
            json!({"key": "of an open batch", "undone": false}),
        ]
    );
    let again = bed.app.insert(thing("confirmed")).await;
    bed.app.until_state(again, "confirmed").await;
    bed.leaf
        .assert_each_effect_once(["confirmed", "of a good batch"]);
    assert_eq!(prune(&sidecar).await, counts([]));
}

#[tokio::test]
async fn a_call_that_was_pruned_is_not_there_any_more_and_that_is_said() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let id = bed.app.insert(thing("old")).await;
    bed.app.until_state(id, "confirmed").await;
    let unknown = (id + 1).to_string();
    age(&bed.app, 31).await;
    assert_eq!(prune(&sidecar).await, counts([("calls", 1)]));
    let id = id.to_string();
    let said = stderr(&says(&sidecar, 1, &["show", &id]).await);
    assert!(
        said.contains("[retention]") && said.contains("pruned"),
        "{said}"
    );
    let said = stderr(&says(&sidecar, 1, &["show", &unknown]).await);
    assert!(!said.contains("pruned"), "{said}");
    let (status, said) = sidecar.get(&format!("/api/v1/calls/{id}")).await;
    assert!(status == 404 && said.contains("pruned"), "{status} {said}");
    let (status, said) = sidecar.get(&format!("/calls/{id}")).await;
    assert!(
        status == 404 && said.contains("[retention]"),
        "{status} {said}"
    );
    // Who prunes by hand says why.
    let action = "SELECT action, reason FROM leafhopper.operator_action";
    assert_eq!(
        bed.app.rows(action).await,
        [json!({"action": "prune", "reason": "test"})]
    );
}

#[tokio::test]
async fn prune_asks_and_takes_nothing_where_it_is_not_sure() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let nothing = says(&sidecar, 0, &["prune", "--reason=test"]).await;
    assert!(stderr(&nothing).contains("nothing is older"), "{nothing:?}");
    let id = bed.app.insert(thing("old")).await;
    bed.app.until_state(id, "confirmed").await;
    age(&bed.app, 31).await;
    // Nobody is there to say yes.
    let asked = says(&sidecar, 2, &["prune", "--reason=test"]).await;
    assert!(stderr(&asked).contains("prune 1 calls?"), "{asked:?}");
    bed.app
        .execute("UPDATE leafhopper.origin SET changed_at = now(), change = 'test'")
        .await;
    let changed = says(&sidecar, 1, &["prune", "--reason=test", "--yes"]).await;
    assert!(
        stderr(&changed).contains("the database changed"),
        "{changed:?}"
    );
    bed.app
        .execute("UPDATE leafhopper.origin SET changed_at = NULL, change = NULL")
        .await;
    // What contradicts itself prunes nothing.
    let sidecar_of = |rest: &str| bed.config("").toml(rest).sidecar();
    let wrong =
        sidecar_of("[retention]\nfinished = \"1s\"\nresults = \"2s\"\nresult_bodies = \"3s\"");
    let refused = wrong.command(&["prune", "--yes", "--reason=test"]).await;
    assert_eq!(refused.status.code(), Some(1));
    let forever = sidecar_of("[retention]\nfinished = \"forever\"");
    let kept = forever.command(&["prune", "--yes", "--reason=test"]).await;
    assert!(stderr(&kept).contains("keeps all for ever"), "{kept:?}");
    assert_eq!(keys(&bed.app).await, ["old"]);
}

#[tokio::test]
async fn what_people_did_is_kept_as_long_as_they_say() {
    let bed = Bed::new().await;
    let config = bed.config("").toml("[retention]\nactions = \"90d\"");
    let sidecar = config.start().await;
    for leaf in ["leaf", "other"] {
        says(&sidecar, 0, &["pause", leaf, "--reason=first"]).await;
    }
    says(&sidecar, 0, &["resume", "other", "--reason=second"]).await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.job (action, filter, actor, reason, last_id, state, finished_at) \
             VALUES ('retry', '{}', 'ada', 'outage', 1, 'done', now()), ('retry', '{}', 'ada', 'outage', 1, 'done', now()); \
             INSERT INTO leafhopper.operator_action (actor, action, call_id, reason, detail) \
             SELECT 'ada', 'retry', id, 'outage', jsonb_build_object('job', id) FROM leafhopper.job; \
             UPDATE leafhopper.job SET done = 1",
        )
        .await;
    age(&bed.app, 91).await;
    // The second job has only just ended, whatever it did when.
    bed.app
        .execute("UPDATE leafhopper.job SET finished_at = now() WHERE id = 2")
        .await;
    let pruned = prune(&sidecar).await;
    assert_eq!(pruned, counts([("jobs", 1), ("operator_actions", 2)]));
    let left = "SELECT action, leaf, reason FROM leafhopper.operator_action ORDER BY id";
    assert_eq!(
        bed.app.rows(left).await,
        [
            // It is still paused: by whom, and why, is not forgotten.
            json!({"action": "pause", "leaf": "leaf", "reason": "first"}),
            json!({"action": "resume", "leaf": "other", "reason": "second"}),
            json!({"action": "retry", "leaf": null, "reason": "outage"}),
            json!({"action": "prune", "leaf": null, "reason": "test"}),
        ]
    );
}
