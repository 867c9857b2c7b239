//! Batches that are cancelled at random instants, over two instances: nothing of a batch happens after its teardown has
//! begun, and nothing of it stands after that. `make races` has 10,000 of them; `RACES` and `RACES_SEED` say otherwise.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde_json::json;
use uuid::Uuid;

use super::{UNDOES, thing};
use crate::harness::{
    Bed,
    app::App,
    leaf::{Leaf, Request, Rule},
    wait::{service_time, until_within},
};

/// So many apps are at it at the same time.
const APPS: u32 = 16;

/// Each batch has so many calls at first; a further one comes late.
const CALLS: u32 = 3;

/// Batches of which an effect was confirmed after a sibling was cancelled: it was in flight.
const IN_FLIGHT: &str = "SELECT count(DISTINCT r.batch_id) AS batches FROM leafhopper.result r
      JOIN leafhopper.finished f ON f.batch_id = r.batch_id AND f.state IN ('cancelled', 'failed')
     WHERE r.confirmed_at > f.finished_at AND r.undone_at IS NOT NULL";

fn number(name: &str, usual: u64) -> u64 {
    let Ok(text) = std::env::var(name) else {
        return usual;
    };
    text.parse()
        .unwrap_or_else(|error| panic!("{name}={text}: {error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_races() {
    races(number("RACES", 400)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make races"]
async fn ten_thousand_races() {
    races(number("RACES", 10_000)).await;
}

async fn races(count: u64) {
    let seed = number("RACES_SEED", fastrand::u64(..));
    println!("{count} races, RACES_SEED={seed}");
    let bed = Bed::new().await;
    behaves_at_random(&bed.leaf, seed);
    let lines = format!(
        "timeout = \"10s\"\n{}",
        UNDOES.replace("concurrency = 8", "concurrency = 24")
    );
    let config = bed
        .config(&lines)
        .probe("leaf", "settle = \"50ms\"\nmax_probes = 50");
    let _one = config.start().await;
    let _two = config.start().await;
    let count = u32::try_from(count).unwrap();
    let next = AtomicU32::new(0);
    let apps = (0..APPS).map(async |app| {
        let chance = fastrand::Rng::with_seed(seed ^ u64::from(app));
        cancels(App::connect(&bed.database.url).await, count, &next, chance).await;
    });
    futures_util::future::join_all(apps).await;
    until_within(
        Duration::from_secs(300),
        "all batches are finished",
        async || {
            let sql =
                "SELECT b.id, b.state FROM leafhopper.batch b WHERE b.finished_at IS NULL LIMIT 5";
            let open = bed.app.rows(sql).await;
            let marks = bed
                .app
                .rows("SELECT count(*) AS marks FROM leafhopper.batch_mark")
                .await;
            if open.is_empty() && marks == [json!({ "marks": 0 })] {
                Ok(())
            } else {
                Err((open, marks))
            }
        },
    )
    .await;
    let ends = bed
        .app
        .rows("SELECT state, count(*) AS batches FROM leafhopper.batch GROUP BY 1 ORDER BY 1")
        .await;
    let flew = bed.app.rows(IN_FLIGHT).await;
    println!(
        "{ends:?}, {} requests, {flew:?}",
        bed.leaf.all_requests().len()
    );
    agree(&bed).await;
    // Else the instants are ill chosen, and this shows little.
    let flew = flew[0]["batches"].as_u64().unwrap();
    assert!(
        flew * 20 > u64::from(count),
        "only {flew} batches were cancelled with a call in flight"
    );
}

/// Answers take their time, and some are lost.
fn behaves_at_random(leaf: &Leaf, seed: u64) {
    let mut chance = fastrand::Rng::with_seed(seed ^ 0xbeef);
    leaf.chooses(move |request| {
        if request.method == "GET" {
            return None;
        }
        let rule = Rule::new().takes(Duration::from_micros(chance.u64(0..15_000)));
        Some(match chance.u32(0..100) {
            0 => rule.delivers(crate::harness::leaf::Delivery::Reset),
            1 if request.method == "POST" => rule.does_nothing().replies(422),
            _ if request.method == "DELETE" => return None,
            _ => rule.replies(201),
        })
    });
}

/// Inserts a batch and cancels it in one way or another at some instant, again and again.
async fn cancels(app: App, count: u32, next: &AtomicU32, mut chance: fastrand::Rng) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return;
        }
        let batch = Uuid::new_v4();
        let key = |call: u32| format!("{number}-{call}");
        app.execute("BEGIN").await;
        let mut calls = Vec::new();
        for call in 0..CALLS {
            calls.push(app.insert(thing(&key(call)).batch(batch)).await);
        }
        app.execute("COMMIT").await;
        if chance.u32(0..4) > 0 {
            is_claimed(&app, batch).await;
        }
        service_time(Duration::from_micros(chance.u64(0..12_000))).await;
        let some = calls[chance.usize(0..calls.len())];
        let sql = match chance.u32(0..8) {
            0..=3 => format!("SELECT leafhopper.cancel_batch('{batch}', 'a race')"),
            4 | 5 => format!("SELECT leafhopper.cancel({some}, 'a race')"),
            // A word that is too late for some, and an effect that the app knows of.
            6 => format!("SELECT leafhopper.confirm('leaf', '{}', 200, NULL)", key(0)),
            _ => "SELECT".to_owned(),
        };
        // Refused where its time is over.
        if let Err(error) = app.client().batch_execute(&sql).await {
            assert!(
                error
                    .as_db_error()
                    .is_some_and(|error| error.hint().is_some()),
                "{sql}: {error:?}"
            );
        }
        if chance.bool() {
            service_time(Duration::from_micros(chance.u64(0..3_000))).await;
            app.insert(thing(&key(CALLS)).batch(batch)).await;
        }
    }
}

/// Waits until one of the batch's calls is claimed.
async fn is_claimed(app: &App, batch: Uuid) {
    let sql = format!(
        "SELECT FROM leafhopper.dispatch WHERE batch_id = '{batch}' HAVING bool_or(state <> 'pending') IS NOT false"
    );
    until_within(Duration::from_secs(60), "a call is claimed", async || {
        let rows = app.client().query(&sql, &[]).await.unwrap();
        if rows.is_empty() {
            Err("none is")
        } else {
            Ok(())
        }
    })
    .await;
}

/// What the leaf did agrees with what the tables say.
async fn agree(bed: &Bed) {
    let sql = "SELECT o.key, b.state, b.id AS batch, c.state AS call, c.undone_at IS NOT NULL AS undone
                 FROM leafhopper.outbox o JOIN leafhopper.batch b ON b.id = o.batch_id JOIN leafhopper.call c ON c.id = o.id
                WHERE o.undoes IS NULL";
    let requests = bed.leaf.all_requests();
    let mut of_batch: std::collections::HashMap<&str, Vec<&Request>> =
        std::collections::HashMap::new();
    for request in &requests {
        let batch = request.key.split('-').next().unwrap();
        of_batch.entry(batch).or_default().push(request);
    }
    let mut wrong = Vec::new();
    for row in bed.app.rows(sql).await {
        let key = row["key"].as_str().unwrap();
        let stands = bed.leaf.standing(key);
        let expected = usize::from(row["state"] == "succeeded" && row["call"] == "confirmed");
        // What the app only said to be there never was.
        let executed = bed.leaf.effects(key);
        if stands != expected.min(executed) || executed > 1 {
            wrong.push(format!("{row}: {executed} effects, {stands} stand"));
        }
    }
    for (batch, requests) in of_batch {
        let undoes = |request: &&&Request| request.method == "DELETE";
        let first = requests
            .iter()
            .find(undoes)
            .map_or(usize::MAX, |first| first.number);
        let late = requests.iter().filter(|request| {
            request.executed && request.method == "POST" && request.number > first
        });
        wrong.extend(late.map(|late| {
            format!(
                "batch {batch}: {} was executed after its teardown began",
                late.key
            )
        }));
    }
    assert!(
        wrong.is_empty(),
        "{} wrongs: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
}
