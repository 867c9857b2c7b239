//! Signals: a stop drains within its grace, a second one ends at once, and a reload takes all or nothing.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::harness::{
    Bed,
    app::{Call, call},
    leaf::Gate,
    sidecar::Sidecar,
    wait::{holds_for, until},
};

/// Far less than the usual grace, and more than a busy machine stalls.
const SOON: Duration = Duration::from_secs(8);

fn named(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

async fn instances(bed: &Bed) -> usize {
    bed.app
        .rows("SELECT id FROM leafhopper.instance")
        .await
        .len()
}

async fn metric_is(sidecar: &Sidecar, name: &str, value: f64) {
    until(&format!("{name} is {value}"), async || {
        let seen = sidecar.metric(name, &[]).await;
        if (seen - value).abs() < f64::EPSILON {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

#[tokio::test]
async fn an_idle_sidecar_ends_at_once_and_takes_its_row_along() {
    let bed = Bed::new().await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut sidecar = bed.sidecar("").await;
        assert_eq!(instances(&bed).await, 1);
        let told = Instant::now();
        sidecar.signal(signal);
        assert_eq!(sidecar.exit().await.code(), Some(0));
        assert!(told.elapsed() < SOON, "{:?}", told.elapsed());
        assert_eq!(instances(&bed).await, 0);
    }
}

#[tokio::test]
async fn a_stop_waits_for_what_is_under_way_and_claims_nothing_more() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    let mut sidecar = bed.config("concurrency = 3").start().await;
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(bed.app.insert(named(&format!("k{number}"))).await);
    }
    gate.until_arrived(3).await;
    sidecar.signal(Signal::TERM);
    until("it says that it stops", async || {
        let (status, why) = sidecar.get("/readyz").await;
        if status == 503 && why.contains("stopping") {
            Ok(())
        } else {
            Err(why)
        }
    })
    .await;
    gate.open();
    assert_eq!(sidecar.exit().await.code(), Some(0));
    let mut states = Vec::new();
    for id in ids {
        states.push(bed.app.state(id).await);
    }
    states.sort();
    assert_eq!(
        states,
        [
            "confirmed",
            "confirmed",
            "confirmed",
            "pending",
            "pending",
            "pending"
        ]
    );
    assert_eq!(bed.leaf.all_requests().len(), 3);
    assert_eq!(instances(&bed).await, 0);
    // The next one has nothing to wait for.
    let _next = bed.sidecar("").await;
    until("the rest is confirmed", async || {
        match bed.leaf.all_requests().len() {
            6 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    bed.leaf
        .assert_each_effect_once((0..6).map(|number| format!("k{number}")));
}

#[tokio::test]
async fn what_outlasts_the_grace_is_recorded_as_in_doubt() {
    let bed = Bed::new().await;
    let keyed = "idempotency = { header = \"Idempotency-Key\", window = \"1h\" }\n\
                 retry = { initial = \"1h\", max = \"1h\" }";
    let config = bed
        .config(keyed)
        .leaf("unkeyed", &bed.leaf.url(), "")
        .dispatch("shutdown_grace = \"6s\"");
    let mut sidecar = config.start().await;
    bed.leaf.always().key("long").hangs();
    bed.leaf.always().key("long, unkeyed").hangs();
    bed.leaf
        .always()
        .key("short")
        .takes(Duration::from_millis(200))
        .answers(201);
    let long = bed.app.insert(named("long")).await;
    let unkeyed = call("unkeyed")
        .key("long, unkeyed")
        .body(json!({"key": "long, unkeyed"}));
    let unkeyed = bed.app.insert(unkeyed).await;
    let short = bed.app.insert(named("short")).await;
    for key in ["long", "long, unkeyed", "short"] {
        bed.leaf.until_requests(key, 1).await;
    }
    let told = Instant::now();
    assert_eq!(
        sidecar.stop().await.code(),
        Some(1),
        "calls had to be left in doubt"
    );
    assert!(
        told.elapsed() < Duration::from_secs(16),
        "{:?}",
        told.elapsed()
    );
    assert_eq!(bed.app.state(short).await, "confirmed");
    assert_eq!(bed.app.state(long).await, "in_doubt");
    let parked = bed.app.call(unkeyed).await;
    assert_eq!(
        (&parked["state"], &parked["reason"]),
        (&json!("parked"), &json!("no_probe"))
    );
    for id in [long, unkeyed] {
        let history = bed.app.attempts(id).await;
        assert_eq!(history.len(), 1);
        assert!(
            history[0]["error"].as_str().unwrap().contains("stopped"),
            "{history:?}"
        );
    }
    assert_eq!(instances(&bed).await, 0);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_leaves_the_rest_to_its_lease() {
    let bed = Bed::new().await;
    let config = bed.config("timeout = \"8s\"").dispatch("lease = \"1s\"");
    let mut sidecar = config.start().await;
    bed.leaf.always().hangs();
    let id = bed.app.insert(named("a")).await;
    bed.leaf.until_requests("a", 1).await;
    sidecar.signal(Signal::TERM);
    until("it stops", async || {
        let (status, why) = sidecar.get("/readyz").await;
        if status == 503 && why.contains("stopping") {
            Ok(())
        } else {
            Err(why)
        }
    })
    .await;
    let told = Instant::now();
    sidecar.signal(Signal::TERM);
    assert_eq!(sidecar.exit().await.code(), Some(1));
    assert!(
        told.elapsed() < Duration::from_secs(6),
        "{:?}",
        told.elapsed()
    );
    assert_eq!(bed.app.state(id).await, "dispatching");
    let _next = config.start().await;
    bed.app.until_state(id, "parked").await;
    assert_eq!(bed.leaf.requests("a").len(), 1);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_database_that_is_away() {
    let bed = Bed::new().await;
    let (way, config) = bed.behind_a_proxy("").await;
    let config = config.dispatch("shutdown_grace = \"500ms\"\nlease = \"1s\"");

    let mut idle = config.start().await;
    way.cut();
    let told = Instant::now();
    assert_eq!(idle.stop().await.code(), Some(0), "nothing is under way");
    assert!(
        told.elapsed() < Duration::from_secs(8),
        "{:?}",
        told.elapsed()
    );

    let mut starting = config.sidecar().launch();
    until("it waits for the database", async || {
        let log = starting.log();
        if log
            .iter()
            .any(|line| line.to_string().contains("database.operation"))
        {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    let told = Instant::now();
    assert_eq!(starting.stop().await.code(), Some(0));
    assert!(told.elapsed() < SOON, "{:?}", told.elapsed());

    way.restore();
    let mut busy = config.start().await;
    bed.leaf.always().answers(201);
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    let id = bed.app.insert(named("a")).await;
    gate.until_arrived(1).await;
    way.cut();
    gate.open();
    let told = Instant::now();
    assert_eq!(
        busy.stop().await.code(),
        Some(1),
        "an answer could not be recorded"
    );
    assert!(
        told.elapsed() < Duration::from_secs(15),
        "{:?}",
        told.elapsed()
    );
    assert_eq!(
        bed.app.state(id).await,
        "dispatching",
        "its lease leaves it in doubt"
    );
}

#[tokio::test]
async fn an_open_scrape_does_not_hold_up_a_stop() {
    let bed = Bed::new().await;
    let mut sidecar = bed.sidecar("").await;
    let address = sidecar.url("").trim_start_matches("http://").to_owned();
    // One that has been answered and stays, and one that never says what it wants.
    let mut kept = TcpStream::connect(&address).await.unwrap();
    kept.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0; 12];
    kept.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut silent = TcpStream::connect(&address).await.unwrap();
    silent.write_all(b"GET /metr").await.unwrap();
    let told = Instant::now();
    assert_eq!(sidecar.stop().await.code(), Some(0));
    assert!(told.elapsed() < SOON, "{:?}", told.elapsed());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_backoffs_or_open_transactions_of_the_app() {
    let bed = Bed::new().await;
    let mut sidecar = bed
        .sidecar("retry = { initial = \"1h\", max = \"1h\" }")
        .await;
    bed.leaf.always().key("busy").refuses(429);
    let id = bed.app.insert(named("busy")).await;
    until("it waits", async || {
        let call = bed.app.call(id).await;
        if call["reason"] == "retry" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    bed.app.execute("BEGIN").await;
    bed.app.insert(named("uncommitted")).await;
    let told = Instant::now();
    assert_eq!(sidecar.stop().await.code(), Some(0));
    assert!(told.elapsed() < SOON, "{:?}", told.elapsed());
    bed.app.execute("COMMIT").await;
}

#[tokio::test]
async fn a_reload_takes_up_a_new_leaf_and_other_settings() {
    let bed = Bed::new().await;
    let config = bed.config("concurrency = 4");
    let sidecar = config.start().await;
    let known = bed.app.insert(named("known")).await;
    bed.app.until_state(known, "confirmed").await;
    let id = bed
        .app
        .insert(call("new").body(json!({"key": "new"})))
        .await;
    until("the leaf is not known", async || {
        let call = bed.app.call(id).await;
        if call["reason"] == "leaf_unknown" && call["stuck"] == true {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    sidecar.rewrite(
        &bed.config("concurrency = 2")
            .leaf("new", &bed.leaf.url(), ""),
    );
    sidecar.signal(Signal::HUP);
    bed.app.until_state(id, "confirmed").await;
    metric_is(&sidecar, "leafhopper_config_reload_failed", 0.0).await;
    until("its share is the new one", async || {
        let share = sidecar
            .metric("leafhopper_concurrency_limit", &["leaf=\"leaf\""])
            .await;
        if (share - 2.0).abs() < f64::EPSILON {
            Ok(())
        } else {
            Err(share)
        }
    })
    .await;
    // A leaf that is gone is unknown again; what is known goes on.
    sidecar.rewrite(&config);
    sidecar.signal(Signal::HUP);
    until("the reload shows", async || {
        let again = bed
            .app
            .insert(call("new").body(json!({"key": "again"})))
            .await;
        let holds = bed.app.call(again).await["reason"] == "leaf_unknown";
        if holds { Ok(()) } else { Err(again) }
    })
    .await;
    let last = bed.app.insert(named("last")).await;
    bed.app.until_state(last, "confirmed").await;
}

#[tokio::test]
async fn a_bad_file_is_refused_and_the_former_one_stays() {
    let bed = Bed::new().await;
    let config = bed.config("");
    let sidecar = config.start().await;
    for (bad, said) in [
        (bed.config("timeout = \"soon\""), "timeout"),
        (
            bed.config("no_such_setting = 1")
                .leaf("new", &bed.leaf.url(), ""),
            "no_such_setting",
        ),
        (bed.config("").toml("this is not TOML"), "TOML"),
        (
            bed.config("auth = { bearer = { env = \"NOT_SET_ANYWHERE\" } }"),
            "NOT_SET_ANYWHERE",
        ),
    ] {
        sidecar.rewrite(&bad);
        sidecar.signal(Signal::HUP);
        until(&format!("the log tells of {said}"), async || {
            let log = sidecar.log();
            let told = |line: &serde_json::Value| {
                line["level"] == "ERROR" && line.to_string().contains(said)
            };
            if log.iter().any(told) {
                Ok(())
            } else {
                Err(log)
            }
        })
        .await;
        metric_is(&sidecar, "leafhopper_config_reload_failed", 1.0).await;
        let id = bed.app.insert(named(said)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    sidecar.rewrite(&config);
    sidecar.signal(Signal::HUP);
    metric_is(&sidecar, "leafhopper_config_reload_failed", 0.0).await;
    let id = bed.app.insert(named("after")).await;
    bed.app.until_state(id, "confirmed").await;
}

#[tokio::test]
async fn many_signals_at_once_are_one_stop() {
    let bed = Bed::new().await;
    let mut sidecar = bed.sidecar("").await;
    for _ in 0..5 {
        sidecar.signal(Signal::HUP);
    }
    let id = bed.app.insert(named("a")).await;
    bed.app.until_state(id, "confirmed").await;
    holds_for(Duration::from_millis(200), "it runs", async || {
        let (status, why) = sidecar.get("/readyz").await;
        if status == 200 { Ok(()) } else { Err(why) }
    })
    .await;
    assert_eq!(sidecar.stop().await.code(), Some(0));
}
