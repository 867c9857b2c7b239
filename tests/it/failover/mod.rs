//! The primary goes away, or is no primary any more, and its synchronous standby takes its place: calls go on at once, and
//! none is lost or doubled.

mod pair;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};

use self::pair::Pair;
use crate::harness::{
    app::{App, keyed},
    leaf::Leaf,
    sidecar::{Config, Sidecar},
    wait::{service_time, until, until_within},
};

/// From the primary's end on, the standby's promotion included.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// So many requests behind those that were under way show that calls go on.
const FLOWING: usize = 100;

/// A speed is counted over so long.
const WINDOW: Duration = Duration::from_millis(500);

/// How long the leaf takes.
const SERVICE: Duration = Duration::from_millis(4);

/// How long all that is left may take.
const REST_WITHIN: Duration = Duration::from_secs(120);

/// An application, two sidecars, a leaf that can be asked, and two servers that change places.
struct Story {
    pair: Pair,
    leaf: Leaf,
    sidecars: [Sidecar; 2],
    app: Inserter,
}

/// An application that goes on to insert, one call a transaction, and connects again whenever that fails.
struct Inserter {
    /// Of the calls whose COMMIT was answered.
    keys: Arc<Mutex<BTreeSet<String>>>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Inserter {
    fn start(url: String) -> Self {
        let keys = Arc::new(Mutex::new(BTreeSet::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (all, stopped) = (Arc::clone(&keys), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let url = format!("{url}?target_session_attrs=read-write&connect_timeout=2");
            let (mut client, mut number) = (None, 0);
            while !stopped.load(Ordering::Relaxed) {
                service_time(Duration::from_millis(10)).await;
                if client.is_none() {
                    let connected = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
                    let Ok((connected, connection)) = connected else {
                        continue;
                    };
                    tokio::spawn(connection);
                    client = Some(connected);
                }
                let key = format!("app {number}");
                number += 1;
                let sql = "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
                           VALUES ('leaf', $1, '/things', jsonb_build_object('key', $1::text))";
                let inserted = client.as_ref().unwrap().execute(sql, &[&key]).await;
                match inserted {
                    Ok(_) => drop(all.lock().unwrap().insert(key)),
                    Err(_) => client = None,
                }
            }
        });
        Self { keys, stop, task }
    }

    async fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        std::mem::take(&mut *self.keys.lock().unwrap())
    }
}

impl Story {
    async fn begin() -> Self {
        let (pair, leaf) = tokio::join!(Pair::start(), Leaf::start());
        leaf.on("/things").takes(SERVICE).answers(201);
        // Each is asked for what nobody wrote down.
        let config = Config::new(&pair.url())
            .leaf("leaf", &leaf.url(), "concurrency = 16")
            .probe("leaf", "settle = \"100ms\"");
        let starter = config.sidecar();
        let output = starter.command(&["migrate"]).await;
        assert!(output.status.success(), "{output:?}");
        let sidecars = tokio::join!(config.start(), config.start()).into();
        let app = Inserter::start(pair.url());
        Self {
            pair,
            leaf,
            sidecars,
            app,
        }
    }

    /// Calls that wait, so that there is something to be fast with.
    async fn pile_up(&self, name: &str, calls: usize) {
        let sql = format!(
            "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
             SELECT 'leaf', '{name} ' || n, '/things', jsonb_build_object('key', '{name} ' || n) \
               FROM generate_series(1, {calls}) AS n"
        );
        let seen = self.leaf.arrivals().len();
        self.pair.connect().await.execute(&sql).await;
        until("a quarter of them is sent", async || {
            let sent = self.leaf.arrivals().len() - seen;
            if sent >= calls / 4 { Ok(()) } else { Err(sent) }
        })
        .await;
    }

    /// Waits until it is certain that calls go on, on a machine that may have other things to do: how soon they do,
    /// `make failover` shows.
    async fn until_flowing_after(&self, gone: Instant) {
        until_within(3 * BACK_WITHIN, "calls go on", async || {
            let later = self.leaf.arrivals().into_iter().filter(|at| *at > gone);
            let sent = later.count();
            if sent > FLOWING { Ok(()) } else { Err(sent) }
        })
        .await;
    }

    /// How long after `gone` half of the speed from before it is there again.
    async fn back_after(&self, gone: Instant) -> (Duration, f64) {
        let before = speed(&self.leaf.arrivals(), gone - WINDOW);
        let mut from = gone;
        let back = until_within(3 * BACK_WITHIN, "half of the speed is back", async || {
            let arrivals = self.leaf.arrivals();
            while from + WINDOW <= Instant::now() {
                from += WINDOW / 10;
                if speed(&arrivals, from) >= before / 2.0 {
                    return Ok(from - gone);
                }
            }
            Err((before, speed(&arrivals, from)))
        })
        .await;
        (back, before)
    }

    /// Everything that was inserted is confirmed, and was executed once; nobody had to say how to go on.
    async fn end(self) {
        let inserted = self.app.stop().await;
        let app = self.pair.connect().await;
        until_within(REST_WITHIN, "all calls are confirmed", async || {
            let sql = "SELECT state, reason, count(*) FROM leafhopper.call GROUP BY 1, 2";
            match app.rows(sql).await.as_slice() {
                [all] if all["state"] == "confirmed" => Ok(()),
                states => Err(states.to_vec()),
            }
        })
        .await;
        let rows = app.rows("SELECT key FROM leafhopper.outbox").await;
        let kept: BTreeSet<String> = rows
            .iter()
            .map(|row| row["key"].as_str().unwrap().to_owned())
            .collect();
        let lost: Vec<_> = inserted.difference(&kept).collect();
        assert!(lost.is_empty(), "committed, and gone: {lost:?}");
        assert!(!inserted.is_empty());
        self.leaf.assert_each_effect_once(&kept);
        let effects: BTreeSet<String> = self.leaf.all_effects().into_keys().collect();
        let unasked: Vec<_> = effects.difference(&kept).collect();
        assert!(unasked.is_empty(), "effects without a call: {unasked:?}");
        let origin = "SELECT change FROM leafhopper.origin WHERE change IS NOT NULL";
        assert_eq!(app.rows(origin).await, [serde_json::Value::Null; 0]);
        app.no_transaction_is_left().await;
        drop(self.sidecars);
    }
}

/// Requests in a second, over the window that begins then.
fn speed(arrivals: &[Instant], from: Instant) -> f64 {
    let within = arrivals
        .iter()
        .filter(|at| **at >= from && **at < from + WINDOW);
    let count = u32::try_from(within.count()).unwrap();
    f64::from(count) / WINDOW.as_secs_f64()
}

/// Waits until none of the sidecars' sessions is there.
async fn until_left(server: &App) {
    until("the sidecars have left the server", async || {
        let sql =
            "SELECT pid, state, query FROM pg_stat_activity WHERE application_name = 'leafhopper'";
        let left = server.rows(sql).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test]
async fn a_primary_that_is_killed_is_followed_by_its_standby() {
    let mut story = Story::begin().await;
    story.pile_up("killed", 2000).await;
    let gone = Instant::now();
    story.pair.kill_and_promote().await;
    story.until_flowing_after(gone).await;

    // The first of the url answers again, and takes no writes: whoever connects goes past it.
    story.pair.bring_the_other_back().await;
    let primary = story.pair.connect().await;
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leafhopper'";
    assert!(!primary.rows(sql).await.is_empty());
    let id = primary.insert(keyed("leaf", "afterwards")).await;
    primary.until_state(id, "confirmed").await;
    until_left(&story.pair.connect_to_the_other().await).await;
    story.end().await;
}

#[tokio::test]
async fn a_primary_that_is_fenced_while_it_still_answers_is_left() {
    let mut story = Story::begin().await;
    story.pile_up("fenced", 1000).await;
    let fenced = Instant::now();
    story.pair.fence_and_promote().await;
    story.until_flowing_after(fenced).await;
    let old = story.pair.connect_to_the_other().await;
    until_left(&old).await;
    story.end().await;
}

#[tokio::test]
#[ignore = "takes minutes: make failover"]
async fn back_and_forth() {
    let number = |name: &str, usual: usize| {
        let set = std::env::var(name).ok();
        set.map_or(usual, |text| text.parse().unwrap())
    };
    let (rounds, calls) = (
        number("FAILOVER_ROUNDS", 6),
        number("FAILOVER_CALLS", 10_000),
    );
    let mut story = Story::begin().await;
    for round in 1..=rounds {
        story.pile_up(&format!("round {round}"), calls).await;
        let gone = Instant::now();
        let how = if round % 3 == 0 { "fenced" } else { "killed" };
        match how {
            "fenced" => story.pair.fence_and_promote().await,
            _ => story.pair.kill_and_promote().await,
        }
        let promoted = gone.elapsed();
        let (back, speed) = story.back_after(gone).await;
        println!(
            "round {round}: {speed:.0} calls a second, then {how}; the standby is primary after {promoted:.1?}, half of \
             the speed back after {back:.1?}"
        );
        assert!(back < BACK_WITHIN, "{back:?}");
        story.pair.join_the_other().await;
    }
    story.end().await;
}
