//! What is seen from outside: metrics, health, notifications, and how quiet an idle sidecar is.

mod looks;
mod stuck;

use std::{collections::BTreeSet, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    Bed,
    app::{Call, call},
    leaf::{Gate, Remembers},
    proxy::Proxy,
    sidecar::{Config, Sidecar},
    wait::{holds_for, until, until_within},
};

const LEAF: &str = "leaf=\"leaf\"";
const UNKNOWN: &str = "leaf=\"(unknown)\"";
const STUCK_BATCHES: [&str; 5] = [
    "cancelling",
    "compensating",
    "teardown_incomplete",
    "leaf_unknown",
    "unsealed",
];

fn thing(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

async fn until_metric(sidecar: &Sidecar, name: &str, labels: &[&str], wanted: f64) {
    // What is counted are calls, here and there some hundreds of them.
    let limit = Duration::from_secs(60);
    until_within(
        limit,
        &format!("{name}{labels:?} is {wanted}"),
        async || {
            let found = sidecar.metric(name, labels).await;
            if (found - wanted).abs() < 0.001 {
                Ok(())
            } else {
                Err(found)
            }
        },
    )
    .await;
}

async fn unsealed(bed: &Bed) -> uuid::Uuid {
    let batch = uuid::Uuid::new_v4();
    let sql = format!("INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)");
    bed.app.execute(&sql).await;
    batch
}

/// The names and labels of all series.
async fn series(sidecar: &Sidecar) -> BTreeSet<String> {
    let (status, body) = sidecar.get("/metrics").await;
    assert_eq!(status, 200);
    body.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

/// The series of a leaf, whether an instance knows it or not.
fn of_any_leaf() -> Vec<(&'static str, String)> {
    let labelled = [
        (
            "calls",
            "state",
            &["pending", "dispatching", "accepted", "in_doubt", "parked"] as &[&str],
        ),
        (
            "calls_finished_total",
            "state",
            &["confirmed", "failed", "cancelled", "expired"],
        ),
        (
            "stuck_calls",
            "reason",
            &[
                "no_probe",
                "crash_suspect",
                "lease_over",
                "in_doubt",
                "due",
                "leaf_unknown",
            ],
        ),
        (
            "pending_calls",
            "reason",
            &["due", "not_due", "leaf_paused", "waits_for_order"],
        ),
        ("calls_failed_total", "reason", &["rejected", "gave_up"]),
    ];
    let labelled = labelled.into_iter().flat_map(|(name, label, values)| {
        let values = values.iter();
        values.map(move |value| (name, format!("LEAF,{label}=\"{value}\"")))
    });
    let plain = ["oldest_due_age_seconds", "oldest_doubt_age_seconds"];
    labelled
        .chain(plain.map(|name| (name, "LEAF".to_owned())))
        .collect()
}

#[tokio::test]
async fn every_metric_is_there_from_the_start() {
    let bed = Bed::new().await;
    let sidecar = bed
        .config("")
        .leaf("second", &bed.leaf.url(), "")
        .start()
        .await;
    let series = series(&sidecar).await;
    let has = |name: &str, label: &str| {
        let found = series.iter().any(|series| {
            let (found, labels) = series.split_once('{').unwrap_or((series, ""));
            found == format!("leafhopper_{name}") && labels.contains(label)
        });
        assert!(found, "{name} with {label} is not in {series:#?}");
    };
    for leaf in [LEAF, "leaf=\"second\"", UNKNOWN] {
        for (name, labels) in of_any_leaf() {
            let label = labels.replace("LEAF", leaf);
            has(name, &label);
        }
    }
    for leaf in [LEAF, "leaf=\"second\""] {
        for class in [
            "confirmed",
            "confirmed_again",
            "exists",
            "retry",
            "in_doubt",
            "failed",
        ] {
            has("attempts_total", &format!("class=\"{class}\",{leaf}"));
        }
        for how in ["result", "probe", "exists"] {
            has(
                "duplicates_prevented_total",
                &format!("how=\"{how}\",{leaf}"),
            );
        }
        for name in [
            "call_duration_seconds_bucket",
            "call_duration_seconds_count",
            "commit_to_send_seconds_bucket",
            "commit_to_send_seconds_count",
            "in_flight",
            "concurrency_limit",
            "breaker_open",
            "paused",
        ] {
            has(name, leaf);
        }
    }
    for state in ["open", "closing", "cancelling", "compensating"] {
        has("batches", &format!("state=\"{state}\""));
    }
    for reason in STUCK_BATCHES {
        has("stuck_batches", &format!("reason=\"{reason}\""));
    }
    for name in [
        "claim_seconds_bucket",
        "record_seconds_bucket",
        "record_batch_size_bucket",
        "database_errors_total",
        "database_up",
        "database_changed",
        "instances",
        "config_reload_failed",
    ] {
        has(name, "");
    }
    has("build_info", "version=\"");
    assert!(series.contains("process_resident_memory_bytes"));
    until_metric(&sidecar, "leafhopper_database_up", &[], 1.0).await;
    until_metric(&sidecar, "leafhopper_instances", &[], 1.0).await;
}

#[tokio::test]
async fn no_row_adds_a_series() {
    let bed = Bed::new().await;
    bed.leaf.always().refuses(422);
    let config = bed.config("concurrency = 16").dispatch("lease = \"5s\"");
    let sidecar = config.start().await;
    let before = series(&sidecar).await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path, key, batch_id, credential, meta)
             SELECT CASE WHEN n % 2 = 0 THEN 'leaf' ELSE 'odd \"' || n || E'\\n{}' END, '/x', 'key ' || n,
                    CASE WHEN n % 3 = 0 THEN gen_random_uuid() END,
                    CASE WHEN n % 5 = 1 THEN 'credential ' || n END, jsonb_build_object('n', n)
               FROM generate_series(1, 1000) AS n;
             INSERT INTO leafhopper.outbox (leaf, path, deadline)
             SELECT 'gone ' || n, '/x', now() FROM generate_series(1, 100) AS n",
        )
        .await;
    until_metric(
        &sidecar,
        "leafhopper_calls_finished_total",
        &[LEAF, "state=\"failed\""],
        400.0,
    )
    .await;
    until_metric(
        &sidecar,
        "leafhopper_calls_finished_total",
        &[UNKNOWN, "state=\"expired\""],
        100.0,
    )
    .await;
    assert_eq!(series(&sidecar).await, before);
    until_metric(
        &sidecar,
        "leafhopper_calls",
        &[UNKNOWN, "state=\"pending\""],
        500.0,
    )
    .await;
    let stuck = [UNKNOWN, "reason=\"leaf_unknown\""];
    until_metric(&sidecar, "leafhopper_stuck_calls", &stuck, 500.0).await;
}

#[tokio::test]
async fn gauges_of_a_leaf_that_a_reload_takes_away_go_with_it_and_come_back_with_it() {
    let bed = Bed::new().await;
    let config = bed.config("");
    let both = config.clone().leaf("going", &bed.leaf.url(), "");
    let sidecar = both.start().await;
    bed.app
        .execute("UPDATE leafhopper.leaf_control SET paused = true WHERE leaf = 'going'")
        .await;
    bed.app.insert(call("going")).await;
    let going = "leaf=\"going\"";
    let waits = [going, "reason=\"leaf_paused\""];
    until_metric(&sidecar, "leafhopper_pending_calls", &waits, 1.0).await;
    until_metric(&sidecar, "leafhopper_paused", &[going], 1.0).await;
    let of_it = async || {
        let mut all = series(&sidecar).await;
        all.retain(|series| series.contains(going));
        all
    };
    let before = of_it().await;

    sidecar.rewrite(&config);
    sidecar.signal(Signal::HUP);
    sidecar.until_log("the configuration was read again").await;
    // What was counted is not taken back, and what was measured neither.
    let counts = ["_total{", "_bucket{", "_sum{", "_count{"];
    for series in of_it().await {
        let is_count = counts.iter().any(|kind| series.contains(kind));
        assert!(is_count, "{series} stands still");
    }
    let unknown = [UNKNOWN, "state=\"pending\""];
    until_metric(&sidecar, "leafhopper_calls", &unknown, 1.0).await;

    sidecar.rewrite(&both);
    sidecar.signal(Signal::HUP);
    until("it is known again", async || match of_it().await {
        after if after == before => Ok(()),
        after => Err(after),
    })
    .await;
    until_metric(&sidecar, "leafhopper_paused", &[going], 1.0).await;
}

#[tokio::test]
async fn counters_count_what_happened() {
    let bed = Bed::new().await;
    bed.leaf.always().key("no").refuses(422);
    bed.leaf.always().key("later").times(2).refuses(429);
    bed.leaf.always().key("lost").resets();
    let sidecar = bed
        .sidecar("retry = { initial = \"20ms\", max = \"40ms\" }")
        .await;
    let mut ids = Vec::new();
    for (key, state) in [
        ("yes", "confirmed"),
        ("no", "failed"),
        ("later", "confirmed"),
        ("lost", "parked"),
    ] {
        ids.push((bed.app.insert(thing(key)).await, state));
    }
    for (id, state) in ids {
        bed.app.until_state(id, state).await;
    }
    // The second call for the effect is answered by the first one's result.
    let again = bed.app.insert(thing("yes")).await;
    bed.app.until_state(again, "confirmed").await;
    for (class, count) in [
        ("confirmed", 2.0),
        ("failed", 1.0),
        ("retry", 2.0),
        ("in_doubt", 1.0),
        ("confirmed_again", 0.0),
    ] {
        let labels = [LEAF, &format!("class=\"{class}\"")];
        until_metric(&sidecar, "leafhopper_attempts_total", &labels, count).await;
    }
    for (state, count) in [("confirmed", 3.0), ("failed", 1.0), ("cancelled", 0.0)] {
        let labels = [LEAF, &format!("state=\"{state}\"")];
        until_metric(&sidecar, "leafhopper_calls_finished_total", &labels, count).await;
    }
    let prevented = "leafhopper_duplicates_prevented_total";
    until_metric(&sidecar, prevented, &[LEAF, "how=\"result\""], 1.0).await;
    let stuck = [LEAF, "reason=\"no_probe\""];
    until_metric(&sidecar, "leafhopper_stuck_calls", &stuck, 1.0).await;
    for name in ["call_duration_seconds", "commit_to_send_seconds"] {
        let count = format!("leafhopper_{name}_count");
        until_metric(&sidecar, &count, &[LEAF], 6.0).await;
        let sum = sidecar
            .metric(&format!("leafhopper_{name}_sum"), &[LEAF])
            .await;
        assert!(sum > 0.0 && sum < 30.0, "{name} {sum}");
    }
    let groups = sidecar
        .metric("leafhopper_record_batch_size_sum", &[])
        .await;
    assert!(groups >= 7.0, "{groups}");
}

#[tokio::test]
async fn calls_ended_by_the_app_s_functions_show_in_the_tables_gauges() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    bed.app
        .execute("UPDATE leafhopper.leaf_control SET paused = true WHERE leaf = 'leaf'")
        .await;
    let id = bed.app.insert(thing("a")).await;
    let pending = [LEAF, "state=\"pending\""];
    until_metric(&sidecar, "leafhopper_calls", &pending, 1.0).await;
    bed.app
        .execute(&format!("SELECT leafhopper.cancel({id}, 'no more')"))
        .await;
    until_metric(&sidecar, "leafhopper_calls", &pending, 0.0).await;
}

#[tokio::test]
async fn what_is_in_flight_is_the_truth_also_after_a_kill() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    bed.leaf
        .always()
        .times(3)
        .waits_before_the_answer(&gate)
        .answers(201);
    let config = bed
        .config("timeout = \"8s\"\nidempotency = { header = \"Idempotency-Key\", window = \"1h\" }")
        .dispatch("lease = \"1s\"");
    let mut a = config.start().await;
    let mut ids = Vec::new();
    for key in ["1", "2", "3"] {
        ids.push(bed.app.insert(thing(key)).await);
    }
    gate.until_arrived(3).await;
    let dispatching = [LEAF, "state=\"dispatching\""];
    until_metric(&a, "leafhopper_in_flight", &[LEAF], 3.0).await;
    until_metric(&a, "leafhopper_calls", &dispatching, 3.0).await;
    a.kill();
    let b = config.start().await;
    until_metric(&b, "leafhopper_in_flight", &[LEAF], 0.0).await;
    for id in ids {
        bed.app.until_state(id, "confirmed").await;
    }
    until_metric(&b, "leafhopper_calls", &dispatching, 0.0).await;
    until_metric(&b, "leafhopper_in_flight", &[LEAF], 0.0).await;
    until_metric(&b, "leafhopper_instances", &[], 1.0).await;
    bed.leaf.assert_each_effect_once(["1", "2", "3"]);
}

#[tokio::test]
async fn a_database_that_is_away_makes_it_unready_and_not_dead() {
    let bed = Bed::new().await;
    let proxy = Proxy::in_front_of(&bed.database.url).await;
    let sidecar = Config::new(&proxy.url(&bed.database.url))
        .leaf("leaf", &bed.leaf.url(), "")
        .dispatch("lease = \"6s\"")
        .start()
        .await;
    assert_eq!(sidecar.get("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(sidecar.get("/readyz").await, (200, "ok\n".to_owned()));
    proxy.cut();
    until("it is not ready", async || {
        match sidecar.get("/readyz").await {
            (503, _) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    until_metric(&sidecar, "leafhopper_database_up", &[], 0.0).await;
    holds_for(
        Duration::from_millis(500),
        "that it lives",
        async || match sidecar.get("/livez").await {
            (200, _) => Ok(()),
            other => Err(other),
        },
    )
    .await;
    let errors = sidecar
        .metric("leafhopper_database_errors_total", &[])
        .await;
    assert!(errors > 0.0);
    proxy.restore();
    sidecar.until_ready().await;
    until_metric(&sidecar, "leafhopper_database_up", &[], 1.0).await;
    let id = bed.app.insert(thing("a")).await;
    bed.app.until_state(id, "confirmed").await;
}
