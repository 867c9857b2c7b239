//! PostgreSQL goes away at every bad moment and comes back: no call is doubled, none is lost, and no session is
//! left in a transaction.

use std::time::Duration;

use leafhopper::demo::cluster::{Cluster, Durability};
use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{App, Call, call, literal},
    database,
    leaf::{Gate, Leaf, Reply},
    proxy::Proxy,
    sidecar::{Config, Sidecar},
    wait::{holds_for, until},
};

fn named(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

async fn until_unready(sidecar: &Sidecar, why: &str) {
    until("it is not ready", async || {
        let (status, text) = sidecar.get("/readyz").await;
        if status == 503 && text.contains(why) {
            Ok(())
        } else {
            Err((status, text))
        }
    })
    .await;
}

#[tokio::test]
async fn at_start_it_waits_for_the_database() {
    let bed = Bed::new().await;
    let (way, config) = bed.behind_a_proxy("").await;
    way.cut();
    let sidecar = config.sidecar().launch();
    sidecar.until_log("listen.address").await;
    holds_for(
        Duration::from_millis(500),
        "it lives and is not ready",
        async || {
            let seen = (
                sidecar.get("/livez").await.0,
                sidecar.get("/readyz").await.0,
            );
            if seen == (200, 503) {
                Ok(())
            } else {
                Err(seen)
            }
        },
    )
    .await;
    assert_eq!(sidecar.get("/metrics").await.0, 200);
    way.restore();
    sidecar.until_ready().await;
    let id = bed.app.insert(named("a")).await;
    bed.app.until_state(id, "confirmed").await;
}

#[tokio::test]
async fn an_outage_while_it_is_idle_is_a_few_lines_in_the_log() {
    let bed = Bed::new().await;
    let (way, config) = bed.behind_a_proxy("").await;
    let sidecar = config.dispatch("lease = \"1s\"").start().await;
    way.cut();
    until_unready(&sidecar, "").await;
    until_unready(&sidecar, "lease").await;
    assert_eq!(
        sidecar.get("/livez").await.0,
        200,
        "an outage must not restart it"
    );
    let up = sidecar.metric("leafhopper_database_up", &[]).await;
    assert!(up.abs() < f64::EPSILON, "{up}");
    let id = bed.app.insert(named("a")).await;
    way.restore();
    sidecar.until_ready().await;
    let row = bed.app.until_state(id, "confirmed").await;
    assert_eq!(row["attempts"], 1);
    assert!(
        sidecar
            .metric("leafhopper_database_errors_total", &[])
            .await
            > 0.0
    );
    let warned = |line: &Value| line["level"] == "WARN" && line["database.operation"].is_string();
    let warnings: Vec<_> = sidecar
        .log()
        .into_iter()
        .filter(|line| warned(line))
        .collect();
    assert!((1..=5).contains(&warnings.len()), "{warnings:#?}");
    bed.app.no_transaction_is_left().await;
}

#[tokio::test]
async fn answers_are_kept_until_the_database_is_back() {
    let bed = Bed::new().await;
    let lines = "concurrency = 6\nretry = { initial = \"50ms\", max = \"50ms\", jitter = 0.0 }";
    let (way, config) = bed.behind_a_proxy(lines).await;
    let gate = Gate::closed();
    let held = |key: &'static str| {
        bed.leaf
            .always()
            .key(key)
            .times(1)
            .waits_before_the_answer(&gate)
    };
    held("created").answers(201);
    held("plain").answers(201);
    // A body that jsonb refuses must not keep its neighbours.
    held("surrogate").answers(Reply::bytes(200, "\"\\ud800\""));
    held("refused").refuses(422);
    held("busy").refuses(429);
    held("lost").resets();
    let _sidecar = config.start().await;
    let mut ids = std::collections::BTreeMap::new();
    let keys = ["created", "plain", "surrogate", "refused", "busy", "lost"];
    for key in keys {
        ids.insert(key, bed.app.insert(named(key)).await);
    }
    gate.until_arrived(6).await;
    way.cut();
    gate.open();
    let behind = bed.app.insert(named("behind")).await;
    holds_for(
        Duration::from_millis(800),
        "nothing more is sent while nothing can be recorded",
        async || match bed.leaf.all_requests().len() {
            6 => Ok(()),
            sent => Err(sent),
        },
    )
    .await;
    way.restore();
    for key in ["created", "plain", "surrogate", "busy"] {
        bed.app.until_state(ids[key], "confirmed").await;
    }
    bed.app.until_state(ids["refused"], "failed").await;
    bed.app.until_state(ids["lost"], "parked").await;
    bed.app.until_state(behind, "confirmed").await;
    for key in keys {
        let row = bed.app.call(ids[key]).await;
        assert_eq!(row["attempts"], 1, "{key}");
        assert_eq!(
            bed.leaf.requests(key).len(),
            if key == "busy" { 2 } else { 1 },
            "{key}"
        );
        let unconfirmed = usize::from(["refused", "busy", "lost"].contains(&key));
        assert_eq!(bed.app.attempts(ids[key]).await.len(), unconfirmed, "{key}");
    }
    bed.app.no_transaction_is_left().await;
}

#[tokio::test]
async fn a_server_that_crashes_and_recovers_is_gone_on_with() {
    let start = || Cluster::start(database::options(Durability::Unsynced)).unwrap();
    let mut cluster = tokio::task::spawn_blocking(start).await.unwrap();
    cluster.create_database("app", None).unwrap();
    let url = cluster.url("app");
    let leaf = Leaf::start().await;
    let config = Config::new(&url).leaf("leaf", &leaf.url(), "timeout = \"20s\"");
    let starter = config.sidecar();
    assert!(starter.command(&["migrate"]).await.status.success());
    let sidecar = starter.start().await;
    let gate = Gate::closed();
    leaf.always().waits_before_the_answer(&gate).answers(201);
    let app = App::connect(&url).await;
    app.insert(named("a")).await;
    gate.until_arrived(1).await;
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.stop_immediate().unwrap();
        cluster
    });
    let mut cluster = cluster.await.unwrap();
    gate.open();
    until_unready(&sidecar, "").await;
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.restart().unwrap();
        cluster
    });
    let _cluster = cluster.await.unwrap();
    sidecar.until_ready().await;
    let app = App::connect(&url).await;
    app.insert(named("b")).await;
    app.until_all_confirmed(2).await;
    leaf.assert_each_effect_once(["a", "b"]);
    assert_eq!(leaf.all_requests().len(), 2);
    drop(sidecar);
}

/// So long it is watched while the database is in recovery.
const WATCHED: Duration = Duration::from_secs(3);

/// All loops together may begin so many connections in that time, and write so many lines.
const TRIES_MAX: usize = 45;
const LINES_MAX: usize = 10;

#[tokio::test]
async fn a_server_in_recovery_is_asked_seldom_and_the_log_is_quiet() {
    let start = || Cluster::start(database::options(Durability::Unsynced)).unwrap();
    let mut cluster = tokio::task::spawn_blocking(start).await.unwrap();
    cluster.create_database("app", None).unwrap();
    let url = cluster.url("app");
    let (way, leaf) = tokio::join!(Proxy::in_front_of(&url), Leaf::start());
    let config = Config::new(&way.url(&url)).leaf("leaf", &leaf.url(), "");
    let starter = config.dispatch("lease = \"2s\"").sidecar();
    assert!(starter.command(&["migrate"]).await.status.success());
    let sidecar = starter.start().await;
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.stop_immediate().unwrap();
        // A standby of nobody: it answers what reads, and refuses what writes.
        std::fs::write(cluster.folder().join("data/standby.signal"), "").unwrap();
        cluster.restart().unwrap();
        cluster
    });
    let _cluster = cluster.await.unwrap();
    until_unready(&sidecar, "lease").await;
    let (lines, tries) = (sidecar.lines().len(), way.connections());
    holds_for(WATCHED, "it lives", async || {
        match sidecar.get("/livez").await {
            (200, _) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let log = sidecar.log().split_off(lines);
    assert!(log.len() <= LINES_MAX, "{log:#?}");
    let tries = way.connections() - tries;
    assert!((1..=TRIES_MAX).contains(&tries), "{tries} connections");
    sidecar.until_log("does not allow writes").await;

    let app = App::connect(&url).await;
    app.execute("SELECT pg_promote()").await;
    sidecar.until_ready().await;
    let id = app.insert(named("a")).await;
    app.until_state(id, "confirmed").await;
}

#[tokio::test]
async fn a_server_that_is_short_of_connections_is_said_to_be_so_and_not_again_and_again() {
    let bed = Bed::new().await;
    // For those who are no superusers.
    let limit = format!(
        "ALTER DATABASE \"{}\" CONNECTION LIMIT 8",
        bed.database.name
    );
    bed.app.execute(&limit).await;
    let config = bed.least_config("");
    let sidecars = [(); 3].map(|()| config.sidecar().launch());
    let mut calls = 0;
    holds_for(WATCHED, "", async || {
        bed.app.insert(named(&format!("k{calls}"))).await;
        calls += 1;
        Ok::<(), ()>(())
    })
    .await;
    let short = |line: &Value| line.to_string().contains("too many connections");
    let logs = until("somebody says that there are no more", async || {
        let logs = sidecars.each_ref().map(Sidecar::log);
        if logs.iter().flatten().any(short) {
            Ok(logs)
        } else {
            Err(logs)
        }
    })
    .await;
    for log in logs {
        let is_meant =
            |line: &&Value| line["database.operation"].is_string() || line["failures"].is_number();
        let lines = log.iter().filter(is_meant).count();
        println!("{lines} lines");
        assert!(lines <= 2 * LINES_MAX, "{log:#?}");
    }
    let unlimited = limit.replace("LIMIT 8", "LIMIT -1");
    bed.app.execute(&unlimited).await;
    bed.app.until_all_confirmed(calls).await;
}

#[tokio::test]
async fn what_a_person_has_to_mend_ends_it_with_a_message_and_without_the_password() {
    let bed = Bed::new().await;
    let right = reqwest::Url::parse(&bed.database.url).unwrap();
    let mut password = right.clone();
    password.set_password(Some("s3cret-and-wrong")).unwrap();
    let mut name = right.clone();
    name.set_path("no_such_database");
    let mut user = right.clone();
    user.set_username("nobody_here").unwrap();
    for (url, told) in [
        (password, "password authentication failed"),
        (name, "no_such_database"),
        (user, "nobody_here"),
    ] {
        let mut sidecar = Config::new(url.as_str()).sidecar().launch();
        let status = sidecar.exit().await;
        assert_eq!(status.code(), Some(1), "{told}");
        let log: String = sidecar
            .log()
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(log.contains(told), "{told}: {log}");
        assert!(!log.contains(url.password().unwrap()), "{log}");
    }
}

#[tokio::test]
async fn a_database_that_takes_no_writes_is_named_and_waited_for() {
    let bed = Bed::new().await;
    let config = bed.config("").dispatch("lease = \"1s\"");
    let sidecar = config.start().await;
    let name = &bed.database.name;
    let read_only = async |on: &str| {
        // The app's own session is from before, and so is one that is just being opened and not seen yet.
        let sql = format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = {on}");
        bed.app.execute(&sql).await;
        let now = bed.app.rows("SELECT clock_timestamp() AS now").await;
        let sql = format!(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity \
              WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_start < {}",
            literal(now[0]["now"].as_str().unwrap())
        );
        let mut none = 0;
        until("no session is from before", async || {
            let ended = bed.app.rows(&sql).await;
            none = if ended.is_empty() { none + 1 } else { 0 };
            if none < 10 { Err(ended) } else { Ok(()) }
        })
        .await;
    };
    read_only("on").await;
    until_unready(&sidecar, "").await;
    sidecar.until_log("does not allow writes").await;
    assert_eq!(sidecar.get("/livez").await.0, 200);
    let late = config.sidecar().launch();
    let id = bed.app.insert(named("a")).await;
    read_only("off").await;
    tokio::join!(sidecar.until_ready(), late.until_ready());
    bed.app.until_state(id, "confirmed").await;
    bed.leaf.assert_each_effect_once(["a"]);
    bed.app.no_transaction_is_left().await;
}

#[tokio::test]
async fn settings_of_the_database_do_not_matter() {
    let strict = [
        "default_transaction_isolation = 'serializable'",
        "idle_in_transaction_session_timeout = '20ms'",
        "lock_timeout = '1ms'",
        "synchronous_commit = off",
        "datestyle = 'German, DMY'",
        "bytea_output = 'escape'",
        "standard_conforming_strings = off",
    ];
    let odd = [
        "default_transaction_isolation = 'repeatable read'",
        "statement_timeout = '2s'",
        "search_path = pg_temp",
        "timezone = 'Asia/Kathmandu'",
        "intervalstyle = 'sql_standard'",
        "extra_float_digits = 0",
        "plan_cache_mode = 'force_generic_plan'",
    ];
    for settings in [strict, odd] {
        let bed = Bed::new().await;
        // The app's own session is from before.
        for setting in settings {
            let sql = format!("ALTER DATABASE \"{}\" SET {setting}", bed.database.name);
            bed.app.execute(&sql).await;
        }
        // Longer than a transaction may be idle: none is open while a leaf works.
        let takes = bed.leaf.always().takes(Duration::from_millis(60));
        takes.answers(201);
        bed.leaf.always().key("twice").times(1).refuses(429);
        let config = bed.config("retry = { initial = \"10ms\", max = \"10ms\" }");
        let _sidecars = tokio::join!(config.start(), config.start());
        for number in 0..50 {
            bed.app.insert(named(&format!("k{number}"))).await;
        }
        bed.app.insert(named("twice").set("timeout", "7 s")).await;
        bed.app.until_all_confirmed(51).await;
        assert_eq!(bed.leaf.all_requests().len(), 52, "{settings:?}");
        bed.app.no_transaction_is_left().await;
    }
}

#[tokio::test]
async fn a_lock_on_the_result_table_makes_recording_wait_and_nothing_else() {
    let bed = Bed::new().await;
    let sidecar = bed
        .config("concurrency = 50")
        .dispatch("lease = \"6s\"")
        .start()
        .await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    for number in 0..50 {
        bed.app.insert(named(&format!("k{number}"))).await;
    }
    gate.until_arrived(50).await;
    let locker = bed.database.connect().await;
    locker
        .batch_execute("BEGIN; LOCK TABLE leafhopper.result IN SHARE MODE")
        .await
        .unwrap();
    gate.open();
    // Longer than the lease: it is renewed all the same.
    holds_for(Duration::from_secs(8), "it stays ready", async || {
        let ready = sidecar.get("/readyz").await;
        if ready.0 == 200 { Ok(()) } else { Err(ready) }
    })
    .await;
    locker.batch_execute("COMMIT").await.unwrap();
    bed.app.until_all_confirmed(50).await;
    assert_eq!(bed.leaf.all_requests().len(), 50);
    bed.app.no_transaction_is_left().await;
}
