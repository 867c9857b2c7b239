//! G4: for one effect at most one attempt is in flight, over all instances; and an instance that others took
//! for dead overwrites nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{Call, call},
    leaf::{Gate, Remembers},
    proxy::Proxy,
    sidecar::{Config, Sidecar},
    wait::{holds_for, until},
};

/// Short, and no machine is so busy that one is lost by itself.
const LEASE: &str = "lease = \"3s\"";

fn named(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

/// Two instances; the first one's way to the database can be cut.
struct Pair {
    first: Sidecar,
    second: Sidecar,
    way: Proxy,
}

impl Pair {
    /// The second one starts only when the first has what `held` inserts.
    async fn start(bed: &Bed, lines: &str, held: impl AsyncFnOnce(&Proxy)) -> Self {
        let way = Proxy::in_front_of(&bed.database.url).await;
        let through = Config::new(&way.url(&bed.database.url));
        let through = through.leaf("leaf", &bed.leaf.url(), lines).dispatch(LEASE);
        let first = through.start().await;
        held(&way).await;
        let second = bed.config(lines).dispatch(LEASE).start().await;
        Self { first, second, way }
    }
}

/// The first instance is at work again: it has a row among the instances that live.
async fn until_both_live(bed: &Bed) {
    until("both instances live", async || {
        let sql = "SELECT count(*) AS live FROM leafhopper.instance WHERE heartbeat_at + lease > clock_timestamp()";
        let live = bed.app.rows(sql).await.remove(0);
        if live["live"] == 2 { Ok(()) } else { Err(live) }
    })
    .await;
}

/// No instance takes the database for another one.
async fn still_the_same_database(bed: &Bed) {
    holds_for(Duration::from_millis(700), "sending goes on", async || {
        let halted = bed
            .app
            .rows("SELECT change FROM leafhopper.origin WHERE changed_at IS NOT NULL")
            .await;
        if halted.is_empty() {
            Ok(())
        } else {
            Err(halted)
        }
    })
    .await;
}

async fn classes(bed: &Bed, id: i64) -> Vec<(u64, String)> {
    let attempts = bed.app.attempts(id).await;
    let read = |row: &Value| {
        (
            row["attempt"].as_u64().unwrap(),
            row["class"].as_str().unwrap().to_owned(),
        )
    };
    attempts.iter().map(read).collect()
}

#[tokio::test]
async fn calls_of_one_effect_go_one_after_another_over_all_instances() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(5))
        .refuses(422);
    // Committed in any order, some before the instances start and some while they work.
    let insert = async |count: usize| {
        for number in 0..count {
            bed.app.insert(named(&format!("k{}", number % 3))).await;
        }
    };
    insert(30).await;
    let config = bed.config("concurrency = 16");
    let (_first, _second) = tokio::join!(config.start(), config.start());
    insert(60).await;
    until("all have failed", async || {
        let sql = "SELECT state, count(*) FROM leafhopper.call GROUP BY state";
        let states = bed.app.rows(sql).await;
        if states == [json!({"state": "failed", "count": 90})] {
            Ok(())
        } else {
            Err(states)
        }
    })
    .await;
    for key in ["k0", "k1", "k2"] {
        assert_eq!(bed.leaf.requests(key).len(), 30);
        assert_eq!(bed.leaf.most_at_once(Some(key)), 1, "{key}");
    }
}

#[tokio::test]
async fn instances_that_start_together_send_each_call_once() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(2))
        .answers(201);
    // New ones, and such as are due again.
    let sql = "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
               SELECT 'leaf', 'k' || n, '/things', jsonb_build_object('key', 'k' || n) FROM generate_series(1, 500) n; \
               UPDATE leafhopper.dispatch SET due_at = now(), tries = 1, attempts = 1, first_claimed_at = now() \
                WHERE call_id % 2 = 0";
    bed.app.execute(sql).await;
    let config = bed.config("concurrency = 8");
    let _sidecars = tokio::join!(
        config.start(),
        config.start(),
        config.start(),
        config.start()
    );
    until("all are confirmed", async || {
        let left = bed
            .app
            .rows(
                "SELECT state, count(*) FROM leafhopper.call WHERE state <> 'confirmed' GROUP BY 1",
            )
            .await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(bed.leaf.all_requests().len(), 500);
    bed.leaf
        .assert_each_effect_once((1..=500).map(|number| format!("k{number}")));
    assert!(
        bed.leaf.most_at_once(None) <= 8,
        "concurrency holds over all instances"
    );
}

#[tokio::test]
async fn an_answer_that_comes_after_a_takeover_still_confirms() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    let mut id = 0;
    let pair = Pair::start(&bed, "timeout = \"60s\"", async |_| {
        id = bed.app.insert(named("late")).await;
        gate.until_arrived(1).await;
    })
    .await;

    pair.first.signal(rustix::process::Signal::STOP);
    let row = bed.app.until_state(id, "in_doubt").await;
    assert!(row["in_doubt_since"].is_string());
    gate.open();
    pair.first.signal(rustix::process::Signal::CONT);

    let row = bed.app.until_state(id, "confirmed").await;
    assert_eq!(
        (&row["attempts"], &row["last_status"]),
        (&json!(1), &json!(201))
    );
    assert_eq!(classes(&bed, id).await, [(1, "in_doubt".to_owned())]);
    bed.leaf.assert_each_effect_once(["late"]);
    until_both_live(&bed).await;
    still_the_same_database(&bed).await;
    // It works on: whoever takes this one.
    let next = bed.app.insert(named("next")).await;
    bed.app.until_state(next, "confirmed").await;
    assert_eq!(bed.leaf.all_requests().len(), 2);
}

#[tokio::test]
async fn an_answer_that_was_kept_through_an_outage_confirms_a_parked_call() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    let mut id = 0;
    let pair = Pair::start(&bed, "timeout = \"6s\"", async |way| {
        id = bed.app.insert(named("kept")).await;
        gate.until_arrived(1).await;
        way.cut();
        gate.open();
    })
    .await;
    let row = bed.app.until_state(id, "parked").await;
    assert_eq!(row["reason"], "no_probe");
    pair.way.restore();
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.leaf.requests("kept").len(), 1);
    until_both_live(&bed).await;
    still_the_same_database(&bed).await;
}

#[tokio::test]
async fn an_answer_that_comes_after_a_newer_attempt_confirmed_is_kept_and_counted() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let gate = Gate::closed();
    bed.leaf
        .always()
        .times(1)
        .waits_before_the_answer(&gate)
        .answers(201);
    let mut id = 0;
    let keyed = "timeout = \"6s\"\nidempotency = { header = \"Idempotency-Key\", window = \"1h\" }";
    let pair = Pair::start(&bed, keyed, async |way| {
        id = bed.app.insert(named("twice")).await;
        gate.until_arrived(1).await;
        way.cut();
        gate.open();
    })
    .await;
    let row = bed.app.until_state(id, "confirmed").await;
    assert_eq!(row["attempts"], 2);
    pair.way.restore();
    until("the second confirmation is kept", async || {
        let classes = classes(&bed, id).await;
        let kept = [
            (1, "in_doubt".to_owned()),
            (1, "confirmed_again".to_owned()),
        ];
        if classes == kept {
            Ok(())
        } else {
            Err(classes)
        }
    })
    .await;
    let attempts = "leafhopper_attempts_total";
    pair.first
        .until_metric(attempts, &["class=\"confirmed_again\""], 1.0)
        .await;
    assert_eq!(bed.app.results("leaf", "twice").await.len(), 1);
    assert_eq!(bed.leaf.requests("twice").len(), 2);
    bed.leaf.assert_each_effect_once(["twice"]);
    pair.second
        .until_metric(attempts, &["class=\"in_doubt\""], 1.0)
        .await;
    still_the_same_database(&bed).await;
}

#[tokio::test]
async fn a_refusal_that_comes_after_a_takeover_decides_while_no_newer_attempt_has_begun() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_effect(&gate)
        .refuses(422);
    let mut id = 0;
    let pair = Pair::start(&bed, "timeout = \"60s\"", async |_| {
        id = bed.app.insert(named("no")).await;
        gate.until_arrived(1).await;
    })
    .await;
    pair.way.cut();
    gate.open();
    bed.app.until_state(id, "in_doubt").await;
    pair.way.restore();
    let row = bed.app.until_state(id, "failed").await;
    assert_eq!(
        (&row["reason"], &row["attempts"]),
        (&json!("rejected"), &json!(1))
    );
    assert_eq!(bed.leaf.requests("no").len(), 1);
    drop(pair);
}

#[tokio::test]
async fn an_instance_whose_lease_is_over_sends_nothing() {
    let bed = Bed::new().await;
    let (way, through) = bed.behind_a_proxy("").await;
    let sidecar = through.dispatch(LEASE).start().await;
    way.stall();
    until("its lease is over", async || {
        let (status, why) = sidecar.get("/readyz").await;
        if status == 503 && why.contains("lease") {
            Ok(())
        } else {
            Err(why)
        }
    })
    .await;
    bed.app.insert(named("waits")).await;
    holds_for(Duration::from_millis(500), "nothing is sent", async || {
        let sent = bed.leaf.all_requests().len();
        if sent == 0 { Ok(()) } else { Err(sent) }
    })
    .await;
    assert_eq!(sidecar.get("/livez").await.0, 200, "its loops turn");
    way.restore();
    until("it is sent", async || {
        match bed.leaf.requests("waits").len() {
            1 => Ok(()),
            other => Err(other),
        }
    })
    .await;
}
