//! A stop is over within its grace, whatever is under way, open, or waited for.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::harness::{
    Bed,
    app::keyed,
    leaf::{Gate, Leaf},
    sidecar::Sidecar,
    wait::until,
};

/// Half of it is longer than a busy machine stalls.
const GRACE: Duration = Duration::from_secs(10);

const GRACE_LINE: &str = "shutdown_grace = \"10s\"";

/// What attempts were given up for is recorded behind the grace.
const RECORDING: Duration = Duration::from_secs(6);

/// So many calls of each kind are under way.
const EACH: usize = 10;

/// So many calls are there for the other leaf: more than it gets before the stop.
const MANY: usize = 1500;

fn keys(kind: &str) -> Vec<String> {
    (0..EACH).map(|number| format!("{kind} {number}")).collect()
}

/// How many calls of a kind are in each state, with the attempts that they have spent.
async fn states(bed: &Bed, kind: &str) -> Vec<Value> {
    let sql = format!(
        "SELECT state, attempts, count(*) FROM leafhopper.call
          WHERE key LIKE '{kind} %' GROUP BY 1, 2 ORDER BY 1, 2"
    );
    bed.app.rows(&sql).await
}

fn all(state: &str, attempts: usize, count: usize) -> Vec<Value> {
    vec![json!({ "state": state, "attempts": attempts, "count": count })]
}

/// The calls of one leaf that take longer than the grace: an effect comes of half of them.
fn long() -> Vec<String> {
    let kinds = ["executed", "lost"].map(|kind| keys(kind).split_off(EACH / 2));
    kinds.concat()
}

/// Ten short calls are under way, which end as the gate opens, and ten long ones.
async fn twenty_under_way(bed: &Bed, gate: &Gate) {
    for key in keys("short") {
        let short = bed.leaf.always().key(&key);
        short.waits_before_the_answer(gate).answers(201);
        bed.app.insert(keyed("leaf", &key)).await;
    }
    for key in long() {
        let first = bed.leaf.always().method("POST").key(&key).times(1);
        match key.starts_with("lost") {
            true => first.does_nothing().hangs(),
            false => first.hangs(),
        }
        bed.app.insert(keyed("leaf", &key)).await;
    }
    until("twenty calls are under way", async || {
        match bed.leaf.all_requests().len() {
            20 => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

/// Another leaf has some of many calls behind it.
async fn busy_with_others(bed: &Bed, other: &Leaf) {
    let sql = format!(
        "INSERT INTO leafhopper.outbox (leaf, key, path, body)
         SELECT 'other', 'many ' || n, '/things', jsonb_build_object('key', 'many ' || n)
           FROM generate_series(1, {MANY}) n"
    );
    bed.app.execute(&sql).await;
    until("the other leaf is busy", async || {
        match other.arrivals().len() {
            200.. => Ok(()),
            few => Err(few),
        }
    })
    .await;
}

#[tokio::test]
async fn short_calls_are_recorded_long_ones_are_asked_about_and_unsent_ones_are_free_at_once() {
    let bed = Bed::new().await;
    let other = Leaf::start().await;
    other.always().takes(Duration::from_millis(2)).answers(201);
    let config = bed
        .config("concurrency = 20\ntimeout = \"60s\"")
        .probe("leaf", "settle = \"50ms\"")
        .leaf("other", &other.url(), "concurrency = 16")
        .dispatch(GRACE_LINE);
    let mut sidecar = config.start().await;
    let gate = Gate::closed();
    twenty_under_way(&bed, &gate).await;
    for key in keys("behind") {
        bed.app.insert(keyed("leaf", &key)).await;
    }
    busy_with_others(&bed, &other).await;

    let told = Instant::now();
    sidecar.signal(Signal::TERM);
    until("nothing is claimed but what is under way", async || {
        let claimed =
            "SELECT leaf, count(*) FROM leafhopper.call WHERE claimed_by IS NOT NULL GROUP BY 1";
        match bed.app.rows(claimed).await {
            claimed if claimed == [json!({ "leaf": "leaf", "count": 20 })] => Ok(()),
            claimed => Err(claimed),
        }
    })
    .await;
    assert!(told.elapsed() < GRACE / 2, "{:?}", told.elapsed());
    gate.open();
    assert_eq!(sidecar.exit().await.code(), Some(1), "some are in doubt");
    let took = told.elapsed();
    assert!((GRACE..GRACE + RECORDING).contains(&took), "{took:?}");

    let sent = other.all_requests().len();
    assert!(sent < MANY, "all were sent before the stop");
    for (kind, expected) in [
        ("short", all("confirmed", 1, EACH)),
        ("executed", all("in_doubt", 1, EACH / 2)),
        ("lost", all("in_doubt", 1, EACH / 2)),
        ("behind", all("pending", 0, EACH)),
        (
            "many",
            [all("confirmed", 1, sent), all("pending", 0, MANY - sent)].concat(),
        ),
    ] {
        assert_eq!(states(&bed, kind).await, expected, "{kind}");
    }
    let instances = "SELECT id FROM leafhopper.instance";
    assert_eq!(bed.app.rows(instances).await, [Value::Null; 0]);

    let _next = config.start().await;
    bed.app.until_all_confirmed(MANY + 3 * EACH).await;
    bed.leaf
        .assert_each_effect_once([keys("short"), keys("behind"), long()].concat());
    other.assert_each_effect_once((1..=MANY).map(|number| format!("many {number}")));
    assert_eq!(other.all_requests().len(), MANY);
    for key in long() {
        let requests = bed.leaf.requests(&key);
        assert_eq!(requests[1].method, "GET", "it is asked: {requests:?}");
    }
}

#[tokio::test]
async fn what_was_just_being_claimed_is_free_at_once() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    let held = bed.leaf.always().key("long");
    held.waits_before_the_answer(&gate).answers(201);
    // Its claim takes for as long as the test holds it.
    bed.app
        .execute(
            "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
             CREATE TRIGGER slowly BEFORE UPDATE ON leafhopper.dispatch FOR EACH ROW
                    WHEN (OLD.key = 'unsent' AND NEW.state = 'dispatching') EXECUTE FUNCTION slowly()",
        )
        .await;
    let holder = bed.database.connect().await;
    let hold = "SELECT pg_advisory_lock(7)";
    holder.batch_execute(hold).await.unwrap();
    let mut sidecar = bed.sidecar("concurrency = 2").await;
    bed.app.insert(keyed("leaf", "long")).await;
    gate.until_arrived(1).await;
    let unsent = bed.app.insert(keyed("leaf", "unsent")).await;
    until("it is being claimed", async || {
        let sql = "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
        match bed.app.rows(sql).await {
            none if none.is_empty() => Err(sidecar.log()),
            _ => Ok(()),
        }
    })
    .await;
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
    let release = "SELECT pg_advisory_unlock(7)";
    holder.batch_execute(release).await.unwrap();
    until("it is given back", async || {
        let log = format!("{:?}", sidecar.log());
        if log.contains("1 claims were given back") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    let free = bed.app.call(unsent).await;
    assert_eq!(free["state"], "pending");
    assert_eq!(
        (&free["attempts"], &free["claimed_by"]),
        (&json!(0), &Value::Null)
    );
    let (status, why) = sidecar.get("/readyz").await;
    assert_eq!(status, 503, "it waits for the long one: {why}");
    gate.open();
    assert_eq!(sidecar.exit().await.code(), Some(0));
    assert!(bed.leaf.requests("unsent").is_empty());
}

/// A connection on which this was sent.
async fn connected(sidecar: &Sidecar, path: &str) -> TcpStream {
    let address = sidecar.url("").trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn is_listening(sidecar: &Sidecar) {
    until("it listens", async || {
        let listening = sidecar.metric("leafhopper_listening", &[]).await;
        if listening > 0.5 {
            Ok(())
        } else {
            Err(sidecar.log())
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_that_is_open_or_waited_for_holds_up_a_stop() {
    let bed = Bed::new().await;
    let (way, config) = bed
        .behind_a_proxy("retry = { initial = \"60s\", max = \"60s\" }")
        .await;
    let config = config.dispatch(GRACE_LINE);
    let mut sidecar = config.start().await;
    is_listening(&sidecar).await;
    bed.leaf.always().refuses(429);
    let id = bed.app.insert(keyed("leaf", "busy")).await;
    until("it waits for its next try", async || {
        match bed.app.call(id).await {
            call if call["reason"] == "retry" => Ok(()),
            call => Err(call),
        }
    })
    .await;
    // A page that stays open, and then a look of its script and a scrape that the database keeps waiting.
    let mut page = connected(&sidecar, "/").await;
    let mut first = [0; 12];
    page.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let locker = bed.database.connect().await;
    let lock = "BEGIN; LOCK TABLE leafhopper.setting IN ACCESS EXCLUSIVE MODE";
    locker.batch_execute(lock).await.unwrap();
    let mut open = Vec::new();
    until("a scrape and a page are under way", async || {
        open.push(connected(&sidecar, "/metrics").await);
        open.push(connected(&sidecar, "/").await);
        let waiting = "SELECT pid FROM pg_locks WHERE relation = 'leafhopper.setting'::regclass AND NOT granted";
        match bed.app.rows(waiting).await {
            // They share one look at the tables.
            waiting if waiting.len() == 1 && open.len() >= 4 => Ok(()),
            waiting => Err(waiting),
        }
    })
    .await;
    let told = Instant::now();
    assert_eq!(sidecar.stop().await.code(), Some(0));
    assert!(told.elapsed() < GRACE, "{:?}", told.elapsed());
    locker.batch_execute("ROLLBACK").await.unwrap();

    sidecar.restart().await;
    is_listening(&sidecar).await;
    way.cut();
    until(
        "it knows that the database is away",
        async || match sidecar.get("/readyz").await {
            (503, _) => Ok(()),
            other => Err(other),
        },
    )
    .await;
    let told = Instant::now();
    assert_eq!(sidecar.stop().await.code(), Some(0));
    assert!(told.elapsed() < GRACE, "{:?}", told.elapsed());
}
