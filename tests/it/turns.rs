//! Whose turn it is: the most urgent call's, and the instance's whose share of the leaf it is.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Bed,
    app::{App, keyed},
    leaf::Gate,
    wait::until,
};

async fn until_all_confirmed(app: &App, count: usize) {
    until(&format!("{count} calls are confirmed"), async || {
        let rows = app.rows("SELECT count(*) FROM leafhopper.result").await;
        if rows[0]["count"] == json!(count) {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
}

#[tokio::test]
async fn urgent_calls_go_first_behind_calls_that_wait_for_their_key() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("same")
        .waits_before_the_effect(&gate)
        .answers(201);
    let other = Gate::closed();
    bed.leaf
        .always()
        .key("other")
        .waits_before_the_effect(&other)
        .answers(201);
    let _sidecar = bed.sidecar("concurrency = 2").await;
    bed.app.insert(keyed("leaf", "same")).await;
    bed.app.insert(keyed("leaf", "other")).await;
    gate.until_arrived(1).await;
    other.until_arrived(1).await;
    // In one transaction: low ones first, then many that wait for a key and are the most urgent, then an urgent one.
    bed.app
        .execute(
            "BEGIN;
             INSERT INTO leafhopper.outbox (leaf, path, key, priority) SELECT 'leaf', '/x', 'low-' || n, 5 FROM generate_series(1, 5) n;
             INSERT INTO leafhopper.outbox (leaf, path, key, body, priority)
                  SELECT 'leaf', '/things', 'same', '{\"key\": \"same\"}', -9 FROM generate_series(1, 20);
             INSERT INTO leafhopper.outbox (leaf, path, key, priority) VALUES ('leaf', '/urgent', 'urgent', -5);
             COMMIT",
        )
        .await;
    other.open();
    until("the urgent one is sent", async || {
        let paths: Vec<String> = bed
            .leaf
            .all_requests()
            .into_iter()
            .map(|r| r.path)
            .collect();
        if paths.iter().any(|path| path == "/urgent") {
            Ok(())
        } else {
            Err(paths)
        }
    })
    .await;
    let sent: Vec<String> = bed
        .leaf
        .all_requests()
        .into_iter()
        .map(|r| r.path)
        .collect();
    gate.open();
    assert_eq!(sent.get(2).map(String::as_str), Some("/urgent"), "{sent:?}");
    until_all_confirmed(&bed.app, 8).await;
}

#[tokio::test]
async fn urgent_calls_go_first_and_old_ones_still_move() {
    let bed = Bed::new().await;
    let (_sidecar, gate) = bed.with_its_place_taken().await;
    for number in 0..10 {
        let low = keyed("leaf", &format!("low-{number}")).set("priority", 5);
        bed.app.insert(low).await;
    }
    for number in 0..60 {
        let urgent = keyed("leaf", &format!("urgent-{number}")).set("priority", -5);
        bed.app.insert(urgent).await;
    }
    gate.open();
    until_all_confirmed(&bed.app, 71).await;
    let sent: Vec<String> = bed
        .leaf
        .all_requests()
        .into_iter()
        .map(|request| request.key)
        .collect();
    assert!(sent[1].starts_with("urgent"), "{sent:?}");
    // Of what is claimed while there are urgent ones, an eighth are the oldest, and they are sent with it.
    let before_the_end = &sent[1..=60];
    let low: Vec<&String> = before_the_end
        .iter()
        .filter(|key| key.starts_with("low"))
        .collect();
    assert!((4..=9).contains(&low.len()), "{sent:?}");
    for oldest in ["low-0", "low-1"] {
        assert!(low.iter().any(|key| *key == oldest), "{sent:?}");
    }
}

#[tokio::test]
async fn old_calls_still_move_where_the_head_of_the_claim_s_index_is_slow() {
    let bed = Bed::new().await;
    let (_sidecar, gate) = bed.with_its_place_taken().await;
    // What a backup has seen and is gone since: dead entries that nothing removes, before all that waits.
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path, key, priority) SELECT 'leaf', '/gone', 'gone-' || n, -5 FROM generate_series(1, 20000) n",
        )
        .await;
    let backup = App::connect(&bed.database.url).await;
    backup
        .execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM leafhopper.dispatch")
        .await;
    bed.app
        .execute(
            "BEGIN;
             DELETE FROM leafhopper.dispatch WHERE priority = -5;
             DELETE FROM leafhopper.outbox WHERE priority = -5;
             INSERT INTO leafhopper.outbox (leaf, path, key, priority) SELECT 'leaf', '/low', 'low-' || n, 5 FROM generate_series(1, 10) n;
             INSERT INTO leafhopper.outbox (leaf, path, key, priority) SELECT 'leaf', '/urgent', 'urgent-' || n, -5 FROM generate_series(1, 80) n;
             COMMIT",
        )
        .await;
    gate.open();
    until_all_confirmed(&bed.app, 91).await;
    let sent: Vec<String> = bed
        .leaf
        .all_requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    backup.execute("ROLLBACK").await;
    assert_eq!(sent[1], "/urgent", "{sent:?}");
    // It need not know of the other priority at once. From then on an eighth is of the oldest; twenty times as seldom it
    // was, where they waited for a claim from the head.
    let low: Vec<usize> = (0..=80).filter(|at| sent[*at] == "/low").collect();
    assert!(low.len() >= 5, "{sent:?}");
    for two in low.windows(2) {
        assert!(two[1] - two[0] <= 24, "{sent:?}");
    }
}

#[tokio::test]
async fn one_that_an_app_s_transaction_holds_keeps_no_other_old_call_from_its_turn() {
    let bed = Bed::new().await;
    let (_sidecar, gate) = bed.with_its_place_taken().await;
    bed.app
        .execute(
            "BEGIN;
             INSERT INTO leafhopper.outbox (leaf, path, key, priority) SELECT 'leaf', '/low', 'low-' || n, 5 FROM generate_series(1, 20) n;
             INSERT INTO leafhopper.outbox (leaf, path, key, priority) SELECT 'leaf', '/urgent', 'urgent-' || n, -5 FROM generate_series(1, 80) n;
             COMMIT",
        )
        .await;
    let holding = App::connect(&bed.database.url).await;
    holding
        .execute(
            "BEGIN; SELECT leafhopper.cancel(id, 'no more') FROM leafhopper.outbox WHERE key = 'low-1'; \
             SELECT FROM leafhopper.dispatch WHERE key = 'low-2' FOR UPDATE",
        )
        .await;
    gate.open();
    until_all_confirmed(&bed.app, 99).await;
    holding.execute("COMMIT").await;
    let requests = bed.leaf.all_requests();
    let mut sent = requests.into_iter().map(|request| request.path);
    let before: Vec<String> = sent.by_ref().take(81).collect();
    let low = before.iter().filter(|path| *path == "/low").count();
    assert!(low >= 9, "{before:?}");
    until_all_confirmed(&bed.app, 100).await;
}

#[tokio::test]
async fn old_calls_have_their_eighth_whatever_the_number_of_places_and_of_priorities() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(20))
        .answers(201);
    bed.app
        .execute(
            "BEGIN;
             INSERT INTO leafhopper.outbox (leaf, path, priority) SELECT 'leaf', '/low', n % 20 FROM generate_series(1, 200) n;
             INSERT INTO leafhopper.outbox (leaf, path, priority) SELECT 'leaf', '/urgent', -5 FROM generate_series(1, 600) n;
             COMMIT",
        )
        .await;
    let _sidecar = bed.sidecar("concurrency = 15").await;
    until_all_confirmed(&bed.app, 800).await;
    let sent: Vec<String> = bed
        .leaf
        .all_requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    let end = sent.iter().rposition(|path| path == "/urgent").unwrap_or(0);
    let low = sent[..end].iter().filter(|path| *path == "/low").count();
    // It may owe as many turns as it has places: a claim that begins behind a slow head leaves them to a later one.
    assert!((low + 15) * 8 >= end, "{low} of {end}");
}

#[tokio::test]
async fn what_is_due_has_its_turn_in_a_flood_of_new_calls_for_a_single_place() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(5))
        .answers(201);
    bed.leaf.on("/retry").nth(1).refuses(425);
    bed.leaf.on("/doubt").nth(1).refuses(500);
    let _sidecar = bed
        .sidecar("concurrency = 1\nretry = { initial = \"100ms\", max = \"100ms\" }")
        .await;
    bed.app
        .execute(
            "BEGIN;
             INSERT INTO leafhopper.outbox (leaf, path, method) VALUES ('leaf', '/retry', 'POST'), ('leaf', '/doubt', 'PUT');
             INSERT INTO leafhopper.outbox (leaf, path, not_before)
                  SELECT 'leaf', '/later', clock_timestamp() + interval '200 ms' FROM generate_series(1, 100);
             INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, 20000);
             COMMIT",
        )
        .await;
    let sent = async |path: &str, count: usize| {
        until(&format!("{count} requests of {path}"), async || {
            let all = bed.leaf.all_requests();
            let these = all.iter().filter(|request| request.path == path);
            match these.count() {
                sent if sent >= count => Ok(()),
                sent => Err((sent, all.len())),
            }
        })
        .await;
    };
    sent("/retry", 2).await;
    sent("/doubt", 2).await;
    sent("/later", 10).await;
}

#[tokio::test]
async fn an_instance_that_was_frozen_past_its_lease_waits_for_its_share() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(1500))
        .answers(201);
    let config = bed.config("concurrency = 4").dispatch("lease = \"6s\"");
    let a = config.start().await;
    let b = config.start().await;
    until("both have their share", async || {
        let shares = [
            a.metric("leafhopper_concurrency_limit", &[]).await,
            b.metric("leafhopper_concurrency_limit", &[]).await,
        ];
        if shares == [2.0, 2.0] {
            Ok(())
        } else {
            Err(shares)
        }
    })
    .await;
    b.signal(rustix::process::Signal::STOP);
    until("the other one has it all", async || {
        match a.metric("leafhopper_concurrency_limit", &[]).await {
            4.0 => Ok(()),
            share => Err(share),
        }
    })
    .await;
    bed.app
        .execute("INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, 24)")
        .await;
    until("it uses it", async || match bed.leaf.most_at_once(None) {
        4 => Ok(()),
        other => Err(other),
    })
    .await;
    b.signal(rustix::process::Signal::CONT);
    until_all_confirmed(&bed.app, 24).await;
    assert_eq!(bed.leaf.most_at_once(None), 4);
}
