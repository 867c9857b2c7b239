//! Everything through PgBouncer: in transaction mode, where each transaction may get another session at the server, and in
//! session mode.

mod bouncer;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;

use self::bouncer::{Bouncer, Mode, Options, program};
use crate::harness::{
    Bed,
    app::{call, keyed},
    database::Database,
    sidecar::{Config, Sidecar},
    wait::until,
};

/// Said once where notifications do not arrive.
const DEAF: &str = "notifications do not arrive";

/// Those of this database: other tests have their own.
const ADVISORY_LOCKS: &str = "SELECT mode FROM pg_locks WHERE locktype = 'advisory' \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// A leaf that can be asked, and whose effects can be undone.
const LEAF: &str = "concurrency = 8\nretry = { initial = \"20ms\", max = \"50ms\" }\n\
     compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";

fn config(bed: &Bed, url: &str) -> Config {
    Config::new(url)
        .leaf("leaf", &bed.leaf.url(), LEAF)
        .probe("leaf", "settle = \"50ms\"")
}

/// What it has warned of, or worse.
fn complaints(sidecar: &Sidecar) -> Vec<Value> {
    let log = sidecar.log().into_iter();
    // A test's url has its password in the file.
    log.filter(|line| line["level"] == "ERROR" || line["level"] == "WARN")
        .filter(|line| !line.to_string().contains("password in clear"))
        .collect()
}

async fn is_listening(sidecar: &Sidecar) -> bool {
    sidecar.metric("leafhopper_listening", &[]).await > 0.5
}

/// Calls that are confirmed, refused once, in doubt and found, in doubt and absent; and a batch that is torn down. Gives the
/// keys whose effects stand in the end.
async fn a_bit_of_everything(bed: &Bed) -> Vec<String> {
    let app = &bed.app;
    let mut standing = Vec::new();
    for number in 0..40 {
        let key = format!("k{number}");
        match number % 8 {
            5 => bed.leaf.always().key(&key).times(1).refuses(429),
            6 => bed.leaf.always().method("POST").key(&key).times(1).closes(),
            7 => {
                let post = bed.leaf.always().method("POST").key(&key).times(1);
                post.does_nothing().closes();
            }
            _ => {}
        }
        app.insert(keyed("leaf", &key)).await;
        standing.push(key);
    }
    let batch = Uuid::new_v4();
    app.execute(&format!(
        "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
    ))
    .await;
    bed.leaf.always().key("no").refuses(422);
    for key in ["made", "made too", "no"] {
        app.insert(keyed("leaf", key).batch(batch).set("ordering_key", "one"))
            .await;
    }
    until("the batch is torn down", async || {
        let sql = format!("SELECT state, finished_at FROM leafhopper.batch WHERE id = '{batch}'");
        match app.rows(&sql).await.pop() {
            Some(row) if row["state"] == "cancelled" && !row["finished_at"].is_null() => Ok(()),
            row => Err(row),
        }
    })
    .await;
    until("all calls are at their end", async || {
        let sql = "SELECT key, state, reason FROM leafhopper.call WHERE finished_at IS NULL";
        let open = app.rows(sql).await;
        if open.is_empty() { Ok(()) } else { Err(open) }
    })
    .await;
    assert_eq!(
        (bed.leaf.standing("made"), bed.leaf.standing("made too")),
        (0, 0)
    );
    standing
}

/// Two sidecars and two sessions for both: a name that one has given is the other's soon, and nothing complains.
async fn a_story_through(options: Options) {
    let Some(program) = program() else { return };
    let bed = Bed::new().await;
    let pooler = Bouncer::start(program, &bed.database.url, 2, (Mode::Transaction, options)).await;
    let config = config(&bed, pooler.url());
    let sidecars = tokio::join!(config.start(), config.start());
    let keys = a_bit_of_everything(&bed).await;
    bed.leaf.assert_each_effect_once(&keys);
    let posts: BTreeMap<String, usize> = bed.leaf.all_effects();
    assert_eq!(posts.len(), keys.len() + 2, "{posts:?}");
    for sidecar in [&sidecars.0, &sidecars.1] {
        until(
            "it has said that it hears nothing",
            async || match complaints(sidecar).as_slice() {
                [one] if one.to_string().contains(DEAF) => Ok(()),
                other => Err(other.to_vec()),
            },
        )
        .await;
        assert!(!is_listening(sidecar).await);
        let errors = sidecar
            .metric("leafhopper_database_errors_total", &[])
            .await;
        assert!(errors.abs() < f64::EPSILON, "{errors} errors");
    }
    until("no lock is left", async || {
        match bed.app.rows(ADVISORY_LOCKS).await {
            none if none.is_empty() => Ok(()),
            some => Err(some),
        }
    })
    .await;
    bed.app.no_transaction_is_left().await;
}

#[tokio::test]
async fn transactions_are_all_that_is_needed_where_a_session_s_settings_are_refused() {
    a_story_through(Options::Refused).await;
}

#[tokio::test]
async fn transactions_are_all_that_is_needed_where_a_session_s_settings_are_dropped() {
    a_story_through(Options::Ignored).await;
}

#[tokio::test]
async fn the_direct_url_is_for_notifications() {
    let Some(program) = program() else { return };
    let bed = Bed::new().await;
    let behind = (Mode::Transaction, Options::Refused);
    let pooler = Bouncer::start(program, &bed.database.url, 2, behind).await;
    let direct = format!("direct_url = {:?}", bed.database.url);
    let config = config(&bed, pooler.url()).database(&direct);
    // So seldom that a call is only found in time because it is told of.
    let sidecar = config.poll_interval("25s").start().await;
    until("it listens", async || {
        if is_listening(&sidecar).await {
            Ok(())
        } else {
            Err(sidecar.log())
        }
    })
    .await;
    crate::producer::until_sleeping(&bed.app).await;
    let id = bed.app.insert(call("leaf")).await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(complaints(&sidecar), [Value::Null; 0]);
}

#[tokio::test]
async fn a_pooler_that_keeps_sessions_apart_lets_notifications_through() {
    let Some(program) = program() else { return };
    let bed = Bed::new().await;
    let behind = (Mode::Session, Options::Refused);
    // As many as one sidecar has.
    let pooler = Bouncer::start(program, &bed.database.url, 20, behind).await;
    let sidecar = config(&bed, pooler.url()).start().await;
    until("it listens", async || {
        if is_listening(&sidecar).await {
            Ok(())
        } else {
            Err(sidecar.log())
        }
    })
    .await;
    let keys = a_bit_of_everything(&bed).await;
    bed.leaf.assert_each_effect_once(&keys);
    assert_eq!(complaints(&sidecar), [Value::Null; 0]);
}

#[tokio::test]
async fn check_says_whether_notifications_arrive() {
    let Some(program) = program() else { return };
    let bed = Bed::new().await;
    let behind = (Mode::Transaction, Options::Refused);
    let pooler = Bouncer::start(program, &bed.database.url, 2, behind).await;
    let direct = format!("direct_url = {:?}", bed.database.url);
    let pooled = config(&bed, pooler.url());
    for (config, status, said) in [
        (bed.config(""), "ok", "arrive"),
        (pooled.clone().database(&direct), "ok", "arrive"),
        (pooled, "warn", "database.direct_url mends it"),
    ] {
        let output = config.sidecar().command(&["check", "--json"]).await;
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = found.as_array().unwrap().iter();
        let line = found
            .clone()
            .find(|line| line["subject"] == "notifications");
        let line = line.unwrap_or_else(|| panic!("{:?}", found.collect::<Vec<_>>()));
        assert_eq!(line["status"], status, "{line}");
        assert!(line["message"].as_str().unwrap().contains(said), "{line}");
    }
}

#[tokio::test]
async fn migrations_through_it_leave_no_lock_behind() {
    let Some(program) = program() else { return };
    let database = Database::empty().await;
    let behind = (Mode::Transaction, Options::Refused);
    let pooler = Bouncer::start(program, &database.url, 2, behind).await;
    let config = Config::new(pooler.url()).leaf("leaf", "http://127.0.0.1:9", "");
    let starters = [config.sidecar(), config.sidecar(), config.sidecar()];
    let migrations = starters.iter().map(|starter| starter.command(&["migrate"]));
    for output in futures_util::future::join_all(migrations).await {
        assert!(output.status.success(), "{output:?}");
    }
    let app = crate::harness::app::App::connect(&database.url).await;
    let versions = "SELECT count(*) = max(version) AS each_once FROM leafhopper.schema_version";
    assert_eq!(app.rows(versions).await, [json!({ "each_once": true })]);
    assert_eq!(app.rows(ADVISORY_LOCKS).await, [Value::Null; 0]);
}
