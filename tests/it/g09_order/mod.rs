//! Order: calls with one leaf and ordering key are sent by id, each after the one before is final.

mod after_failed_head;

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use crate::harness::{
    Bed,
    app::{App, Call, call},
    leaf::Gate,
    wait::{holds_for, until},
};

const QUICK: &str = "retry = { initial = \"30ms\", max = \"60ms\" }";

fn step(line: &str, key: &str) -> Call {
    call("leaf")
        .key(key)
        .body(json!({ "key": key }))
        .set("ordering_key", line)
}

/// Waits until the view says that it waits for the head, and names it.
async fn until_behind(app: &App, id: i64, head: i64) {
    until(&format!("call {id} waits for {head}"), async || {
        let call = app.call(id).await;
        if call["reason"] == "waits_for_order" && call["waits_for"] == json!(head) {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
}

async fn until_reason(app: &App, id: i64, reason: &str) {
    until(&format!("call {id} waits with {reason}"), async || {
        let call = app.call(id).await;
        if call["reason"] == reason {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
}

async fn never_sent(bed: &Bed, key: &str) {
    holds_for(Duration::from_millis(250), "that it waits", async || {
        let requests = bed.leaf.requests(key);
        if requests.is_empty() {
            Ok(())
        } else {
            Err(requests)
        }
    })
    .await;
}

/// The keys of all requests, in the order of their arrival.
fn arrivals(bed: &Bed) -> Vec<String> {
    bed.leaf
        .all_requests()
        .into_iter()
        .map(|request| request.key)
        .collect()
}

#[tokio::test]
async fn two_hundred_calls_of_ten_keys_arrive_in_order_through_two_sidecars() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(2))
        .answers(201);
    let config = bed.config("concurrency = 32");
    let (_a, _b) = tokio::join!(config.start(), config.start());
    // In several statements and on several connections, as apps do; each key by one writer.
    let mut writers = Vec::new();
    for half in 0..2 {
        let app = App::connect(&bed.database.url).await;
        writers.push(async move {
            for number in 0..20 {
                app.execute(&format!(
                    "INSERT INTO leafhopper.outbox (leaf, path, ordering_key, key, body)
                     SELECT 'leaf', '/x', 'line-' || line, line || '-' || {number},
                            jsonb_build_object('key', line || '-' || {number})
                       FROM generate_series({half} * 5, {half} * 5 + 4) AS line"
                ))
                .await;
            }
        });
    }
    futures_util::future::join_all(writers).await;
    until("all are confirmed", async || {
        let rows = bed.app.rows("SELECT count(*) FROM leafhopper.result").await;
        if rows[0]["count"] == 200 {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
    let mut lines: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for key in arrivals(&bed) {
        let (line, number) = key.split_once('-').unwrap();
        lines
            .entry(line.to_owned())
            .or_default()
            .push(number.parse().unwrap());
    }
    assert_eq!(lines.len(), 10);
    for (line, numbers) in lines {
        assert_eq!(numbers, (0..20).collect::<Vec<_>>(), "line {line}");
    }
}

#[tokio::test]
async fn keys_go_side_by_side_and_one_key_one_by_one() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_effect(&gate)
        .answers(201);
    let _sidecar = bed.sidecar("concurrency = 32").await;
    for key in ["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"] {
        bed.app.insert(step(&key[..1], key)).await;
    }
    gate.until_arrived(3).await;
    for key in ["a-2", "b-2", "c-2"] {
        never_sent(&bed, key).await;
    }
    gate.open();
    for key in ["a-2", "b-2", "c-2"] {
        bed.leaf.until_requests(key, 1).await;
    }
    assert_eq!(bed.leaf.most_at_once(None), 3);
}

#[tokio::test]
async fn a_key_of_another_leaf_is_another_key() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("a")
        .waits_before_the_effect(&gate)
        .answers(201);
    let _sidecar = bed
        .config("")
        .leaf("other", &bed.leaf.url(), "")
        .start()
        .await;
    bed.app.insert(step("line", "a")).await;
    gate.until_arrived(1).await;
    let other = bed.app.insert(step("line", "b").set("leaf", "other")).await;
    bed.app.until_state(other, "confirmed").await;
}

#[tokio::test]
async fn a_head_that_retries_waits_or_is_parked_holds_those_behind_it() {
    let bed = Bed::new().await;
    bed.leaf.always().key("retries").refuses(429);
    bed.leaf.always().key("parks").resets();
    let _sidecar = bed
        .sidecar("retry = { initial = \"300ms\", max = \"300ms\", jitter = 0.0 }")
        .await;
    let later = bed
        .app
        .rows("SELECT clock_timestamp() + interval '7 s' AS at")
        .await[0]["at"]
        .clone();
    let retries = bed.app.insert(step("r", "retries")).await;
    let parks = bed.app.insert(step("p", "parks")).await;
    let waits = bed
        .app
        .insert(step("w", "waits").set("not_before", later))
        .await;
    let mut behind = Vec::new();
    for (line, head) in [("r", retries), ("p", parks), ("w", waits)] {
        let key = format!("behind-{line}");
        let id = bed.app.insert(step(line, &key)).await;
        until_behind(&bed.app, id, head).await;
        assert_eq!(bed.app.call(id).await["stuck"], json!(false));
        behind.push((id, key));
    }
    bed.app.until_state(parks, "parked").await;
    until_reason(&bed.app, retries, "retry").await;
    for (_, key) in &behind {
        assert!(bed.leaf.requests(key).is_empty(), "{key}");
    }
    // The head goes before those behind it when the leaf is well again.
    bed.leaf.behaves();
    bed.app
        .execute(&format!(
            "SELECT leafhopper.resolve_not_executed({parks}, 'looked')"
        ))
        .await;
    for (id, key) in behind {
        bed.app.until_state(id, "confirmed").await;
        let sent = arrivals(&bed);
        let line = &key["behind-".len()..];
        let at = |wanted: &str| sent.iter().rposition(|key| key == wanted).unwrap();
        let head = ["retries", "parks", "waits"]
            .into_iter()
            .find(|head| head.starts_with(line))
            .unwrap();
        assert!(at(head) < at(&key), "{sent:?}");
    }
}

#[tokio::test]
async fn a_lower_id_that_commits_later_is_sent_later_and_before_what_still_waits() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("second")
        .waits_before_the_effect(&gate)
        .answers(201);
    let _sidecar = bed.sidecar(QUICK).await;
    let slow = App::connect(&bed.database.url).await;
    slow.execute("BEGIN").await;
    let first = slow.insert(step("line", "first")).await;
    let second = bed.app.insert(step("line", "second")).await;
    gate.until_arrived(1).await;
    let third = bed.app.insert(step("line", "third")).await;
    until_behind(&bed.app, third, second).await;
    slow.execute("COMMIT").await;
    until_behind(&bed.app, first, second).await;
    gate.open();
    bed.app.until_state(third, "confirmed").await;
    assert_eq!(arrivals(&bed), ["second", "first", "third"]);
}

#[tokio::test]
async fn a_lower_id_that_nobody_has_looked_at_goes_before_the_next_in_line() {
    let bed = Bed::new().await;
    // Without a sidecar: as one finds it that comes back.
    for key in ["1", "2", "3"] {
        bed.app.insert(step("line", key)).await;
    }
    bed.app
        .execute("UPDATE leafhopper.dispatch SET held = 'order' WHERE call_id = 2")
        .await;
    let _a = bed.sidecar(QUICK).await;
    bed.app.until_state(3, "confirmed").await;
    assert_eq!(arrivals(&bed), ["1", "2", "3"]);
}

#[tokio::test]
async fn a_row_that_an_app_holds_is_not_overtaken() {
    let bed = Bed::new().await;
    let config = bed.config(QUICK);
    let (_a, _b) = tokio::join!(config.start(), config.start());
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("1")
        .waits_before_the_effect(&gate)
        .answers(201);
    let mut ids = Vec::new();
    for key in ["1", "2", "3"] {
        ids.push(bed.app.insert(step("line", key)).await);
    }
    gate.until_arrived(1).await;
    until_behind(&bed.app, ids[2], ids[0]).await;
    until_behind(&bed.app, ids[1], ids[0]).await;
    // As an open transaction that has called `cancel()` does.
    let app = App::connect(&bed.database.url).await;
    app.execute(&format!(
        "BEGIN; SELECT FROM leafhopper.dispatch WHERE call_id = {} FOR UPDATE",
        ids[1]
    ))
    .await;
    // Another line goes on meanwhile.
    gate.open();
    bed.app.until_state(ids[0], "confirmed").await;
    let other = bed.app.insert(step("other", "x")).await;
    bed.app.until_state(other, "confirmed").await;
    never_sent(&bed, "3").await;
    app.execute("ROLLBACK").await;
    bed.app.until_state(ids[2], "confirmed").await;
    assert_eq!(arrivals(&bed), ["1", "x", "2", "3"]);
}

#[tokio::test]
async fn a_crash_between_the_head_s_end_and_the_next_one_is_repaired() {
    let bed = Bed::new().await;
    let config = bed.config(QUICK).dispatch("lease = \"1s\"");
    let mut sidecar = config.start().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("a")
        .waits_before_the_answer(&gate)
        .answers(201);
    let head = bed.app.insert(step("line", "a")).await;
    gate.until_arrived(1).await;
    let next = bed.app.insert(step("line", "b")).await;
    until_behind(&bed.app, next, head).await;
    sidecar.kill();
    // What the sidecar would have committed just before its end.
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'a')")
        .await;
    bed.app
        .execute(&format!(
            "DELETE FROM leafhopper.dispatch WHERE call_id = {head}"
        ))
        .await;
    sidecar.restart().await;
    bed.app.until_state(next, "confirmed").await;
    assert_eq!(arrivals(&bed), ["a", "b"]);
}

#[tokio::test]
async fn a_head_whose_sidecar_was_killed_holds_its_key_until_it_is_known() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("a")
        .waits_before_the_answer(&gate)
        .answers(201);
    let config = bed.config("in_doubt = \"park\"").dispatch("lease = \"1s\"");
    let mut a = config.start().await;
    let head = step("line", "a").set("timeout", "1 s");
    let head = bed.app.insert(head).await;
    let next = bed.app.insert(step("line", "b")).await;
    gate.until_arrived(1).await;
    a.kill();
    let _b = config.start().await;
    bed.app.until_state(head, "parked").await;
    until_behind(&bed.app, next, head).await;
    never_sent(&bed, "b").await;
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'a')")
        .await;
    bed.app.until_state(next, "confirmed").await;
}

#[tokio::test]
async fn the_next_one_goes_soon_after_the_head_s_end() {
    let bed = Bed::new().await;
    // So seldom a poll that nothing here could hide behind it.
    let config = bed.config("").poll_interval("5s");
    let _sidecar = config.start().await;
    let mut last = 0;
    for number in 0..30 {
        last = bed.app.insert(step("line", &number.to_string())).await;
    }
    bed.app.until_state(last, "confirmed").await;
    let requests = bed.leaf.all_requests();
    let mut gaps: Vec<Duration> = requests
        .windows(2)
        .map(|pair| pair[1].at.duration_since(pair[0].at))
        .collect();
    gaps.sort();
    let median = gaps[gaps.len() / 2];
    println!("from one ordered call to the next: {median:?}");
    assert!(median < Duration::from_millis(500), "{gaps:?}");
}
