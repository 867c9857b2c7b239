//! Connections to PostgreSQL break at any byte, so that nobody knows what was committed: no call is doubled,
//! none is lost, and nothing is counted twice.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{
    Bed,
    app::{Call, call},
    leaf::{Gate, Leaf, Remembers},
    proxy::{Direction, Proxy},
    sidecar::Sidecar,
    wait::{until, until_within},
};

fn named(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

/// Random, and the same for the same seed.
struct Draw(u64);

impl Draw {
    fn up_to(&mut self, limit: u64) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit).unwrap()
    }
}

#[tokio::test]
async fn connections_that_are_cut_at_any_byte_double_nothing_and_lose_nothing() {
    const CUTS: usize = 50;
    const CALLS_EACH: usize = 8;
    let bed = Bed::new().await;
    let keyed = Leaf::start().await;
    keyed.honours("Idempotency-Key", Remembers::Successes);
    let (way, config) = bed.behind_a_proxy("timeout = \"10s\"").await;
    let config = config.leaf(
        "keyed",
        &keyed.url(),
        "idempotency = { header = \"Idempotency-Key\", window = \"1h\" }",
    );
    let _sidecar = config.start().await;
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut draw = Draw(seed);
    for cut in 0..CUTS {
        let direction = [Direction::Up, Direction::Down][draw.up_to(2)];
        way.cut_after(direction, draw.up_to(20_000));
        let sql = format!(
            "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
             SELECT l, 'k' || n, '/things', jsonb_build_object('key', 'k' || n) \
               FROM generate_series({}, {}) n, unnest(ARRAY['leaf', 'keyed']) l",
            cut * CALLS_EACH + 1,
            (cut + 1) * CALLS_EACH
        );
        bed.app.execute(&sql).await;
        until("the connections are cut", async || {
            if way.is_cut() { Ok(()) } else { Err(cut) }
        })
        .await;
        way.restore();
    }
    bed.app.until_all_confirmed(2 * CUTS * CALLS_EACH).await;
    // Nothing that the database does leaves the sidecar in doubt about a leaf.
    for leaf in [&bed.leaf, &keyed] {
        assert_eq!(leaf.all_requests().len(), CUTS * CALLS_EACH, "seed {seed}");
        leaf.assert_each_effect_once((1..=CUTS * CALLS_EACH).map(|number| format!("k{number}")));
    }
    assert_eq!(
        bed.app.rows("SELECT * FROM leafhopper.attempt").await,
        Vec::<Value>::new(),
        "seed {seed}"
    );
    bed.app.no_transaction_is_left().await;
}

#[tokio::test]
async fn a_confirmation_whose_commit_s_reply_was_lost_is_no_second_one() {
    let bed = Bed::new().await;
    let (way, config) = bed
        .behind_a_proxy("concurrency = 1\ntimeout = \"20s\"")
        .await;
    // While the leaf works on the call, the database hears nothing.
    let config = config.dispatch("lease = \"60s\"").poll_interval("20s");
    let sidecar = config.start().await;
    // COMMIT's reply is the last 18 of the bytes that come back, wherever exactly they begin.
    let cuts: Vec<usize> = (100..340).step_by(15).collect();
    for bytes in &cuts {
        let gate = Gate::closed();
        let key = format!("k{bytes}");
        bed.leaf
            .always()
            .key(&key)
            .waits_before_the_answer(&gate)
            .answers(201);
        let id = bed.app.insert(named(&key)).await;
        gate.until_arrived(1).await;
        way.cut_after(Direction::Down, *bytes);
        gate.open();
        until("the connections are cut", async || {
            if way.is_cut() { Ok(()) } else { Err(bytes) }
        })
        .await;
        way.restore();
        bed.app.until_state(id, "confirmed").await;
        until("its slot is free", async || {
            let busy = sidecar.metric("leafhopper_in_flight", &[]).await;
            if busy.abs() < f64::EPSILON {
                Ok(())
            } else {
                Err(busy)
            }
        })
        .await;
    }
    let again = sidecar
        .metric("leafhopper_attempts_total", &["class=\"confirmed_again\""])
        .await;
    assert!(again.abs() < f64::EPSILON, "{again}");
    assert_eq!(
        bed.app.rows("SELECT * FROM leafhopper.attempt").await,
        Vec::<Value>::new()
    );
    assert_eq!(bed.leaf.all_requests().len(), cuts.len());
}

#[tokio::test]
async fn attempts_that_did_not_confirm_are_counted_once_whatever_is_cut() {
    const CUTS: usize = 15;
    let bed = Bed::new().await;
    let lines = "retry = { initial = \"10ms\", max = \"10ms\", jitter = 0.0, max_attempts = 1000 }";
    let (way, config) = bed.behind_a_proxy(lines).await;
    bed.leaf.always().refuses(425);
    let _sidecar = config.start().await;
    for number in 0..10 {
        bed.app.insert(named(&format!("k{number}"))).await;
    }
    let mut draw = Draw(u64::from(std::process::id()));
    for cut in 0..CUTS {
        way.cut_after(
            [Direction::Up, Direction::Down][draw.up_to(2)],
            draw.up_to(20_000),
        );
        until("the connections are cut", async || {
            if way.is_cut() { Ok(()) } else { Err(cut) }
        })
        .await;
        way.restore();
    }
    bed.leaf.behaves();
    bed.app.until_all_confirmed(10).await;
    let sql = "SELECT c.key, c.attempts, (SELECT count(*) FROM leafhopper.attempt a WHERE a.call_id = c.id) AS history, \
                      (SELECT count(DISTINCT a.attempt) FROM leafhopper.attempt a WHERE a.call_id = c.id) AS numbers \
                 FROM leafhopper.call c";
    for row in bed.app.rows(sql).await {
        let requests = bed.leaf.requests(row["key"].as_str().unwrap()).len();
        assert_eq!(row["attempts"], requests, "{row}");
        assert_eq!(
            (&row["history"], &row["numbers"]),
            (&json!(requests - 1), &json!(requests - 1)),
            "{row}"
        );
    }
}

/// Two looks, and the pause after a failure, on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn sessions_that_are_terminated_cost_no_call_an_attempt() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("timeout = \"10s\"").await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(20))
        .answers(201);
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for round in 0..8 {
        for number in 0..20 {
            bed.app
                .insert(named(&format!("k{}", round * 20 + number)))
                .await;
        }
        bed.app.rows(terminate).await;
    }
    bed.app.until_all_confirmed(160).await;
    // Idle, it finds out with its next look, and goes on with the one after.
    for key in ["idle", "idle again"] {
        bed.app.rows(terminate).await;
        let id = bed.app.insert(named(key)).await;
        let begun = Instant::now();
        bed.app.until_state(id, "confirmed").await;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    assert_eq!(bed.leaf.all_requests().len(), 162);
    assert_eq!(
        bed.app.rows("SELECT * FROM leafhopper.attempt").await,
        Vec::<Value>::new()
    );
    bed.app.no_transaction_is_left().await;
}

#[tokio::test]
async fn claims_of_a_vanished_instance_are_taken_over_whatever_is_cut_meanwhile() {
    const CUTS: usize = 20;
    const CLAIMS_EACH: usize = 20;
    let bed = Bed::new().await;
    let (way, config) = bed.behind_a_proxy("").await;
    let _sidecar = config.start().await;
    let mut draw = Draw(u64::from(std::process::id()));
    for cut in 0..CUTS {
        let direction = [Direction::Up, Direction::Down][draw.up_to(2)];
        way.cut_after(direction, draw.up_to(10_000));
        let sql = format!(
            "BEGIN; \
             INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, {CLAIMS_EACH}); \
             UPDATE leafhopper.dispatch SET state = 'dispatching', instance = gen_random_uuid(), round = 1, \
                    tries = 1, claimed_at = now(), alive_until = now(), first_claimed_at = now() \
              WHERE state = 'pending'; \
             COMMIT"
        );
        bed.app.execute(&sql).await;
        until("the connections are cut", async || {
            if way.is_cut() { Ok(()) } else { Err(cut) }
        })
        .await;
        way.restore();
    }
    until("all are known to be in doubt", async || {
        let sql = "SELECT state, reason, attempts, count(*) FROM leafhopper.call GROUP BY 1, 2, 3";
        let states = bed.app.rows(sql).await;
        let all = json!({"state": "parked", "reason": "no_probe", "attempts": 1, "count": CUTS * CLAIMS_EACH});
        if states == [all] { Ok(()) } else { Err(states) }
    })
    .await;
    let told = "SELECT count(*) FROM leafhopper.attempt WHERE class = 'in_doubt'";
    assert_eq!(
        bed.app.rows(told).await,
        [json!({"count": CUTS * CLAIMS_EACH})]
    );
    assert!(bed.leaf.all_requests().is_empty());
}

/// Longer than any statement may take, and than its reply may.
const GIVEN_UP: Duration = Duration::from_secs(45);

/// So seldom that a call is only found in time because it is looked for as soon as the one that listens does so again.
const POLLS_SELDOM: &str = "4m";

/// More than that takes where the machine is busy, and less than a poll.
const BEFORE_A_POLL: Duration = Duration::from_mins(2);

/// Both take the time of a limit that has to pass.
#[tokio::test]
async fn sessions_that_fall_silent_are_given_up() {
    // Their databases go after both: to drop one blocks this thread.
    let _beds = tokio::join!(all_fall_silent(), the_one_that_listens_falls_silent());
}

async fn the_one_that_listens_falls_silent() -> Bed {
    let bed = Bed::new().await;
    let way = Proxy::in_front_of(&bed.database.url).await;
    let direct = format!("direct_url = {:?}", way.url(&bed.database.url));
    let config = bed.config("").database(&direct);
    let config = config
        .dispatch("lease = \"5m\"")
        .poll_interval(POLLS_SELDOM);
    let sidecar = config.start().await;
    until_listens(&sidecar, 1).await;
    crate::producer::until_sleeping(&bed.app).await;
    way.strand();
    let begun = Instant::now();
    let id = bed.app.insert(named("unheard")).await;
    until_listens(&sidecar, 2).await;
    bed.app.until_state(id, "confirmed").await;
    assert!(begun.elapsed() < BEFORE_A_POLL, "{:?}", begun.elapsed());
    assert_eq!(sidecar.get("/readyz").await.0, 200);
    bed
}

async fn until_listens(sidecar: &Sidecar, times: usize) {
    until_within(GIVEN_UP, "it listens", async || {
        let log = sidecar.log();
        let listens = |line: &&Value| line["message"] == "notifications arrive";
        if log.iter().filter(listens).count() >= times {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
}

async fn all_fall_silent() -> Bed {
    let bed = Bed::new().await;
    let (way, config) = bed.behind_a_proxy("").await;
    let sidecar = config.start().await;
    let before = bed.app.insert(named("before")).await;
    bed.app.until_state(before, "confirmed").await;
    // As behind a mesh or a pooler that has lost the server and does not say so.
    way.strand();
    let after = bed.app.insert(named("after")).await;
    until_within(GIVEN_UP, "new sessions do the work", async || {
        assert_eq!(
            sidecar.get("/livez").await.0,
            200,
            "nobody is to restart it"
        );
        let call = bed.app.call(after).await;
        if call["state"] == "confirmed" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    sidecar.until_ready().await;
    until_listens(&sidecar, 2).await;
    assert_eq!(bed.leaf.all_requests().len(), 2);
    // Where it took so long that the lease was over, that was noted, and nothing was sent.
    let others = "SELECT * FROM leafhopper.attempt WHERE error <> 'the instance''s lease was over'";
    assert_eq!(bed.app.rows(others).await, Vec::<Value>::new());
    bed
}

#[tokio::test]
async fn a_read_that_meets_a_locked_table_is_given_up_by_the_server() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let locker = bed.database.connect().await;
    locker
        .batch_execute("BEGIN; LOCK TABLE leafhopper.origin IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    until_within(GIVEN_UP, "a read is given up", async || {
        let log = sidecar.log();
        let given_up = |line: &Value| {
            // Whoever reads it first: the same cause is said once.
            line.to_string().contains("statement timeout")
        };
        if log.iter().any(given_up) {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    locker.batch_execute("ROLLBACK").await.unwrap();
    sidecar.until_ready().await;
    let id = bed.app.insert(named("after")).await;
    bed.app.until_state(id, "confirmed").await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_database_that_says_nothing() {
    let bed = Bed::new().await;
    let (way, config) = bed.behind_a_proxy("").await;
    let mut sidecar = config.dispatch("shutdown_grace = \"500ms\"").start().await;
    way.stall();
    let told = Instant::now();
    sidecar.stop().await;
    assert!(
        told.elapsed() < Duration::from_secs(15),
        "{:?}",
        told.elapsed()
    );
}
