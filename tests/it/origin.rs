//! A database that was copied, restored, or lost commits is not sent from: its identity is compared at start
//! and while instances run.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{App, Call, call},
    database::Database,
    leaf::Leaf,
    sidecar::{Config, Sidecar},
    wait::{holds_for, until},
};

/// Longer than a busy machine stalls: one that runs out by itself explains what is lost.
const LEASE: &str = "lease = \"6s\"";

fn named(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

/// Nothing is sent, and everybody is told so.
async fn all_sending_has_stopped(app: &App, leaf: &Leaf, sidecar: &Sidecar, key: &str, why: &str) {
    until("it is not ready", async || {
        let (status, text) = sidecar.get("/readyz").await;
        if status == 503 && text.contains("resume --all") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    until("the change is written down", async || {
        let changed = app
            .rows("SELECT change FROM leafhopper.origin WHERE changed_at IS NOT NULL")
            .await;
        let told = changed
            .first()
            .and_then(|row| row["change"].as_str())
            .is_some_and(|text| text.contains(why));
        if told { Ok(()) } else { Err(changed) }
    })
    .await;
    let id = app.insert(named(key)).await;
    holds_for(Duration::from_millis(700), "nothing is sent", async || {
        let call = app.call(id).await;
        let holds =
            (&call["state"], &call["reason"]) == (&json!("pending"), &json!("database_changed"));
        if holds && leaf.requests(key).is_empty() {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    assert_eq!(
        sidecar.get("/livez").await.0,
        200,
        "a restart would not help"
    );
    let told = |line: &Value| line["level"] == "ERROR" && line.to_string().contains(why);
    assert!(sidecar.log().iter().any(told), "{:#?}", sidecar.log());
}

/// A copy of the database, made while nobody is connected to it.
async fn copy(database: &Database) -> Database {
    let admin = reqwest::Url::parse(&database.url).unwrap();
    let mut admin = admin.clone();
    admin.set_path("postgres");
    let admin = App::connect(admin.as_str()).await;
    until("nobody is connected", async || {
        let sql = format!(
            "SELECT pid, query FROM pg_stat_activity WHERE datname = '{}'",
            database.name
        );
        let connected = admin.rows(&sql).await;
        if connected.is_empty() {
            Ok(())
        } else {
            Err(connected)
        }
    })
    .await;
    Database::cloned_from(&database.name).await
}

#[tokio::test]
async fn a_copy_of_a_database_that_was_in_use_is_not_sent_from() {
    let database = Database::new().await;
    let leaf = Leaf::start().await;
    let config = Config::new(&database.url)
        .leaf("leaf", &leaf.url(), "")
        .dispatch(LEASE);
    let mut original = config.start().await;
    let app = App::connect(&database.url).await;
    let id = app.insert(named("done")).await;
    app.until_state(id, "confirmed").await;
    drop(app);
    original.stop().await;
    drop(original);

    let copied = copy(&database).await;
    let there = Config::new(&copied.url)
        .leaf("leaf", &leaf.url(), "")
        .dispatch(LEASE);
    // What was written before the copy would be sent from both.
    let app = App::connect(&copied.url).await;
    let before = app.insert(named("before")).await;
    let sidecar = there.sidecar().launch();
    until("it listens", async || {
        let log = sidecar.log();
        if log
            .iter()
            .any(|line| line.to_string().contains("listen.address"))
        {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    all_sending_has_stopped(&app, &leaf, &sidecar, "copied", &database.name).await;
    assert_eq!(app.call(before).await["reason"], "database_changed");
    // A second instance, and a restart, find the same.
    let second = there.sidecar().launch();
    until("it listens", async || {
        let log = second.log();
        if log
            .iter()
            .any(|line| line.to_string().contains("listen.address"))
        {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    all_sending_has_stopped(&app, &leaf, &second, "copied too", &database.name).await;
    drop((sidecar, second));

    // The original goes on.
    let _original = config.start().await;
    let app = App::connect(&database.url).await;
    let id = app.insert(named("original")).await;
    app.until_state(id, "confirmed").await;
}

#[tokio::test]
async fn a_migrated_database_that_never_ran_can_be_copied() {
    let database = Database::new().await;
    let copied = copy(&database).await;
    let leaf = Leaf::start().await;
    for database in [&database, &copied] {
        let app = App::connect(&database.url).await;
        let _sidecar = Config::new(&database.url)
            .leaf("leaf", &leaf.url(), "")
            .start()
            .await;
        let id = app.insert(named(&database.name)).await;
        app.until_state(id, "confirmed").await;
    }
}

#[tokio::test]
async fn an_instance_that_runs_notices_that_its_database_is_another() {
    for (edit, why) in [
        ("system_identifier = system_identifier + 1", "system"),
        ("database_oid = 1", "oid 1"),
        ("database_name = 'another'", "another"),
    ] {
        let bed = Bed::new().await;
        let config = bed.config("").dispatch(LEASE);
        let (sidecar, second) = tokio::join!(config.start(), config.start());
        let id = bed.app.insert(named("before")).await;
        bed.app.until_state(id, "confirmed").await;
        bed.app
            .execute(&format!("UPDATE leafhopper.origin SET {edit}"))
            .await;
        all_sending_has_stopped(&bed.app, &bed.leaf, &sidecar, "after", why).await;
        all_sending_has_stopped(&bed.app, &bed.leaf, &second, "after too", why).await;
    }
}

#[tokio::test]
async fn a_failover_that_lost_nothing_is_gone_on_with() {
    let bed = Bed::new().await;
    let sidecar = bed.config("").dispatch(LEASE).start().await;
    let id = bed.app.insert(named("before")).await;
    bed.app.until_state(id, "confirmed").await;
    // As if the origin had been written before a standby was promoted.
    bed.app
        .execute("UPDATE leafhopper.origin SET timeline = timeline + 7")
        .await;
    until("the new timeline is the origin's", async || {
        let sql = "SELECT timeline, changed_at FROM leafhopper.origin";
        let origin = bed.app.rows(sql).await.remove(0);
        if origin == json!({"timeline": 1, "changed_at": null}) {
            Ok(())
        } else {
            Err(origin)
        }
    })
    .await;
    let id = bed.app.insert(named("after")).await;
    bed.app.until_state(id, "confirmed").await;
    sidecar.until_ready().await;
}

#[tokio::test]
async fn without_a_witness_a_new_timeline_alone_stops_all_sending() {
    let bed = Bed::new().await;
    let config = bed.config("").dispatch(LEASE);
    let mut sidecar = config.start().await;
    sidecar.stop().await;
    bed.app
        .execute("UPDATE leafhopper.origin SET timeline = timeline + 7")
        .await;
    let sidecar = config.sidecar().launch();
    until("it listens", async || {
        let log = sidecar.log();
        if log
            .iter()
            .any(|line| line.to_string().contains("listen.address"))
        {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    all_sending_has_stopped(&bed.app, &bed.leaf, &sidecar, "after", "timeline 8").await;
}

#[tokio::test]
async fn commits_that_are_lost_stop_all_sending() {
    // As it would be after a failover to a standby that was behind: by one renewal, by many, by all.
    for (lost, why) in [
        ("UPDATE leafhopper.instance SET beat = beat - 1", "renewal"),
        (
            "UPDATE leafhopper.instance SET beat = beat - 100",
            "renewal",
        ),
        ("DELETE FROM leafhopper.instance", "renewal"),
    ] {
        let bed = Bed::new().await;
        let sidecar = bed.config("").dispatch(LEASE).start().await;
        let id = bed.app.insert(named("before")).await;
        bed.app.until_state(id, "confirmed").await;
        bed.app.execute(lost).await;
        all_sending_has_stopped(&bed.app, &bed.leaf, &sidecar, "after", why).await;
    }
}

#[tokio::test]
async fn a_claim_that_is_lost_stops_all_sending() {
    let bed = Bed::new().await;
    // Its only slot is taken, so it does not claim the call anew before it looks.
    let sidecar = bed.config("concurrency = 1").dispatch(LEASE).start().await;
    bed.leaf.always().key("held").hangs();
    let id = bed.app.insert(named("held")).await;
    bed.leaf.until_requests("held", 1).await;
    let lost = format!(
        "UPDATE leafhopper.dispatch SET state = 'pending', tries = 0, instance = NULL, round = NULL, claimed_at = NULL, \
                first_claimed_at = NULL, alive_until = NULL WHERE call_id = {id}"
    );
    bed.app.execute(&lost).await;
    until("all sending stops", async || {
        let changed = bed
            .app
            .rows("SELECT change FROM leafhopper.origin WHERE changed_at IS NOT NULL")
            .await;
        let told = changed
            .first()
            .is_some_and(|row| row["change"].as_str().unwrap().contains("claims"));
        if told { Ok(()) } else { Err(changed) }
    })
    .await;
    all_sending_has_stopped(&bed.app, &bed.leaf, &sidecar, "after", "claims").await;
}

#[tokio::test]
async fn going_on_with_probe_asks_before_anything_that_was_pending_is_sent() {
    let bed = Bed::new().await;
    // Executed in the commits that were lost: a plain call, and the head of an ordering key.
    for key in ["plain", "head"] {
        bed.leaf.has_already(key);
    }
    let plain = bed.app.insert(named("plain")).await;
    let head = bed.app.insert(named("head").set("ordering_key", "o")).await;
    let behind = bed
        .app
        .insert(named("behind").set("ordering_key", "o"))
        .await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, key, path, not_before)
             VALUES ('leaf', 'later', '/things', now() + interval '1 hour');
             INSERT INTO leafhopper.origin (system_identifier, timeline, database_name, database_oid)
             VALUES (1, 1, 'another', 1)",
        )
        .await;
    let config = bed
        .config("probe = { path = \"/effects/{{ call.key }}\", settle = \"0s\" }")
        .dispatch(LEASE);
    let starter = config.sidecar();
    let resume = ["resume", "--all", "--as", "probe", "--reason", "looked"];
    let said = starter.command(&resume).await;
    assert!(said.status.success(), "{said:?}");
    let _sidecar = starter.start().await;
    for id in [plain, head, behind] {
        bed.app.until_state(id, "confirmed").await;
    }
    for key in ["plain", "head"] {
        let requests = bed.leaf.requests(key);
        assert!(
            requests.iter().all(|request| request.method == "GET"),
            "{key}: {requests:?}"
        );
        assert_eq!(bed.app.results("leaf", key).await[0]["source"], "adopted");
    }
    bed.leaf.assert_each_effect_once(["behind"]);
    let later = bed
        .app
        .rows("SELECT state, attempts FROM leafhopper.call WHERE key = 'later'")
        .await;
    assert_eq!(later, [json!({"state": "pending", "attempts": 0})]);
    assert!(bed.leaf.requests("later").is_empty());
}

/// The teardown had begun in what was lost; its calls are the sidecar's own, so nobody inserts them again.
#[tokio::test]
async fn what_undoes_an_effect_from_before_the_change_is_asked_about_first() {
    let bed = Bed::new().await;
    let lines = "retry = { initial = \"20ms\", max = \"50ms\" }\n\
         compensate = { method = \"POST\", path = \"/refunds\", body = { key = \"refund of {{ call.key }}\" } }";
    let config = bed.config(lines).probe("leaf", "settle = \"50ms\"");
    let mut first = config.start().await;
    let batch = uuid::Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
        ))
        .await;
    for key in ["undone", "stands"] {
        let id = bed.app.insert(named(key).batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    first.stop().await;
    bed.leaf.always().key("undone").method("GET").refuses(404);
    bed.app
        .execute("UPDATE leafhopper.origin SET changed_at = now(), change = 'it was restored'")
        .await;
    let resume = ["resume", "--all", "--as", "probe", "--reason", "looked"];
    let said = config.sidecar().command(&resume).await;
    assert!(said.status.success(), "{said:?}");
    bed.app
        .execute(&format!(
            "SELECT leafhopper.cancel_batch('{batch}', 'withdrawn')"
        ))
        .await;
    let _second = config.start().await;
    until("the teardown is over", async || {
        let rows = bed.app.rows("SELECT * FROM leafhopper.batch").await;
        if rows[0]["state"] == "cancelled" {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
    assert_eq!(bed.leaf.requests("refund of undone").len(), 0);
    assert_eq!(bed.leaf.requests("refund of stands").len(), 1);
}
