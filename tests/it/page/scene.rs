//! An afternoon that went wrong at several leaves at once: what the pictures show, and what an operator finds.

use serde_json::json;
use uuid::Uuid;

use crate::harness::{
    Bed,
    app::{App, Call, call},
    leaf::Reply,
    sidecar::{Config, Sidecar},
    wait::until,
};

/// Everything has been like that for so long.
const AGES_AGO: &str = "interval '3 hours 12 minutes'";

/// What of it is looked at.
pub(super) struct Scene {
    pub(super) bed: Bed,
    pub(super) sidecar: Sidecar,
    /// Two parked calls of leaf `host`, the older one second.
    pub(super) parked: i64,
    pub(super) older: i64,
    /// A batch of which an effect could not be undone.
    pub(super) batch: Uuid,
}

fn thing(leaf: &str, key: &str, path: &str) -> Call {
    let body = json!({ "key": key, "plan": "pro", "region": "fra1" });
    call(leaf)
        .key(key)
        .path(path)
        .body(body)
        .set("meta", json!({ "customer": 42, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" }))
}

impl Scene {
    /// Plays it. `listen`: further lines of `[listen]`.
    pub(super) async fn play(listen: &str) -> Self {
        let bed = Bed::new().await;
        script(&bed);
        let sidecar = config(&bed, listen).start().await;
        let app = &bed.app;
        for n in 1..=24 {
            let leaf = ["git", "pay", "mail"][n % 3];
            app.insert(thing(leaf, &format!("site:{n}:{leaf}"), "/things"))
                .await;
        }
        app.until_all_confirmed(24).await;
        let batch = teardown(app).await;
        let (mut parked, mut older) = (0, 0);
        for n in [38, 37] {
            older = parked;
            parked = app
                .insert(thing("host", &format!("site:{n}:host"), "/sites"))
                .await;
            app.until_state(parked, "parked").await;
        }
        let doubt = thing("git", "site:39:repo", "/repos");
        let doubt = app.insert(doubt).await;
        app.until_state(doubt, "in_doubt").await;
        let refused = app
            .insert(thing("mail", "site:36:welcome", "/messages"))
            .await;
        app.until_state(refused, "failed").await;
        let because = ["--reason", "their maintenance, until 18:00"];
        let paused = [&["pause", "dns"], &because[..]].concat();
        assert!(sidecar.command(&paused).await.status.success());
        for n in 40..45 {
            app.insert(thing("dns", &format!("site:{n}:dns"), "/zones/example.com"))
                .await;
            app.insert(thing("storage", &format!("site:{n}:bucket"), "/buckets"))
                .await;
        }
        app.insert(thing("pay", "site:45:fee", "/charges")).await;
        ages(app).await;
        Self {
            bed,
            sidecar,
            parked,
            older,
            batch,
        }
    }
}

fn script(bed: &Bed) {
    let leaf = &bed.leaf;
    leaf.on("/sites").resets();
    let said = json!({ "error": "unknown template \"welcome-2\"", "code": 1204 });
    leaf.on("/messages").refuses(Reply::json(422, &said));
    leaf.on("/repos").resets();
    leaf.on("/effects").key("site:39:repo").refuses(503);
    leaf.on("/zones/42").refuses(422);
    let undo = leaf.always().method("DELETE").key("site:42:fee");
    let said = json!({ "error": "charge is locked by a dispute" });
    undo.refuses(Reply::json(403, &said));
    leaf.on("/charges").refuses(401);
}

fn config(bed: &Bed, listen: &str) -> Config {
    let url = bed.leaf.url();
    let undo = "compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";
    Config::new(&bed.database.url)
        .listen(listen)
        .leaf("git", &url, undo)
        .probe("git", "settle = \"1h\"")
        .leaf("pay", &url, undo)
        .toml("[leaf.pay.idempotency]\nheader = \"Idempotency-Key\"\nwindow = \"24h\"")
        .leaf("host", &url, "")
        .leaf("dns", &url, undo)
        .leaf("mail", &url, "")
}

/// A repository and a charge are made, a zone is refused, and the charge can't be taken back.
async fn teardown(app: &App) -> Uuid {
    let batch = Uuid::new_v4();
    let sql = format!(
        "INSERT INTO leafhopper.batch (id, name, sealed) VALUES ('{batch}', 'site 42', false)"
    );
    app.execute(&sql).await;
    for (leaf, key) in [("git", "site:42:repo"), ("pay", "site:42:fee")] {
        let made = app.insert(thing(leaf, key, "/things").batch(batch)).await;
        app.until_state(made, "confirmed").await;
    }
    let zone = thing("dns", "site:42:zone", "/zones/42").batch(batch);
    app.insert(zone).await;
    let told = thing("mail", "site:42:sorry", "/things").batch(batch);
    app.insert(told.set("run_when", "batch_failed")).await;
    until("an effect can't be undone", async || {
        let sql = "SELECT id, state, reason FROM leafhopper.call WHERE undoes IS NOT NULL";
        let undo = app.rows(sql).await;
        match undo.first() {
            Some(call) if call["state"] == "failed" => Ok(()),
            _ => Err(undo),
        }
    })
    .await;
    batch
}

/// Sets all of it back in time.
async fn ages(app: &App) {
    app.execute(&format!(
        "SET session_replication_role = replica;
         UPDATE leafhopper.outbox SET created_at = created_at - {AGES_AGO};
         UPDATE leafhopper.dispatch SET enqueued_at = enqueued_at - {AGES_AGO}, claimed_at = claimed_at - {AGES_AGO},
                first_claimed_at = first_claimed_at - {AGES_AGO}, in_doubt_since = in_doubt_since - {AGES_AGO}
          WHERE leaf <> 'pay';
         UPDATE leafhopper.attempt SET started_at = started_at - {AGES_AGO}, finished_at = finished_at - {AGES_AGO};
         UPDATE leafhopper.finished SET finished_at = finished_at - {AGES_AGO};
         UPDATE leafhopper.batch SET created_at = created_at - {AGES_AGO}, changed_at = changed_at - {AGES_AGO};
         UPDATE leafhopper.instance SET started_at = started_at - interval '9 days 4 hours';
         UPDATE leafhopper.operator_action SET at = at - interval '41 minutes', actor = 'ada@ops';
         SET session_replication_role = origin"
    ))
    .await;
}
