//! The storm: calls for leaves of every nature, while sidecars are killed and stopped, PostgreSQL crashes, networks
//! are cut and leaves execute and say nothing. Afterwards the leaves' ledger and the tables must agree.
//!
//! The plan comes from a seed, which is printed. `make storm` has 100,000 calls and 1,000 kills; `STORM_SEED`,
//! `STORM_CALLS` and `STORM_KILLS` say it otherwise. Chance has the last word in how the plan meets the calls, so a
//! seed repeats a storm's strength and not its every step.

mod batches;
mod faults;
mod laws;
mod leaves;
mod producer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leafhopper::demo::cluster::{Cluster, Durability};
use serde_json::Value;
use tokio::time::Instant;

use crate::harness::{
    app::App,
    checks, database,
    leaf::Leaf,
    proxy::Proxy,
    wait::{until, until_within},
};

/// After the faults, everything must come to its end within this.
const CALM: Duration = Duration::from_secs(900);

/// How hard it blows.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    calls: u32,
    kills: u32,
}

impl Plan {
    fn new(calls: u32, kills: u32) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            let number = text.parse::<u64>();
            Some(number.unwrap_or_else(|error| panic!("{name}={text}: {error}")))
        };
        let small = |name: &str, usual: u32| {
            number(name).map_or(usual, |number| u32::try_from(number).unwrap())
        };
        Self {
            seed: number("STORM_SEED").unwrap_or_else(|| fastrand::u64(..)),
            calls: small("STORM_CALLS", calls),
            kills: small("STORM_KILLS", kills),
        }
    }

    /// A source of chance for one of the storm's parts.
    fn chance(&self, part: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed ^ (part << 32))
    }
}

/// What has happened so far.
#[derive(Debug, Default)]
struct Counts {
    inserted: AtomicU32,
    kills: AtomicU32,
    stops: AtomicU32,
    database_cuts: AtomicU32,
    leaf_cuts: AtomicU32,
    server_crashes: AtomicU32,
}

/// What the parts of the storm share.
struct World {
    plan: Plan,
    url: String,
    leaf: Leaf,
    counts: Counts,
}

impl World {
    /// As many calls as belong to the kills so far.
    fn wanted(&self) -> u32 {
        let Plan { calls, kills, .. } = self.plan;
        let so_far = u64::from(self.counts.kills.load(Ordering::SeqCst)) + 2;
        let wanted = u64::from(calls) * so_far / u64::from(kills.max(1));
        u32::try_from(wanted).unwrap_or(calls).min(calls)
    }

    /// All calls are inserted and all kills done: the faults end.
    fn is_over(&self) -> bool {
        self.counts.inserted.load(Ordering::SeqCst) >= self.plan.calls
            && self.counts.kills.load(Ordering::SeqCst) >= self.plan.kills
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_of_storm_doubles_nothing_and_loses_nothing() {
    storm(Plan::new(1_500, 15)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a quarter of an hour and more: make storm"]
async fn the_storm_doubles_nothing_and_loses_nothing() {
    storm(Plan::new(100_000, 1_000)).await;
}

async fn storm(plan: Plan) {
    let Plan { seed, calls, kills } = plan;
    println!(
        "storm: STORM_SEED={seed} STORM_CALLS={calls} STORM_KILLS={kills} make storm repeats it"
    );
    let started = Instant::now();
    let mut server = Cluster::start(database::options(Durability::Unsynced)).unwrap();
    server.create_database("app", None).unwrap();
    if database::keep() {
        server.outlive_owner();
    }
    let url = server.url("app");
    let leaf = leaves::start(plan.chance(1)).await;
    let way_to_leaf = Proxy::in_front_of(&leaf.url()).await;
    let leaf_url = way_to_leaf.url(&leaf.url());
    let config = leaves::config(&url, &leaf_url);
    let migrated = config.sidecar().command(&["migrate"]).await;
    assert!(migrated.status.success(), "{migrated:?}");

    let world = Arc::new(World {
        plan,
        url,
        leaf,
        counts: Counts::default(),
    });
    let producer = tokio::spawn(producer::produce(Arc::clone(&world)));
    let torments: Vec<_> = (0..2)
        .map(|number| {
            tokio::spawn(faults::torment(
                Arc::clone(&world),
                number,
                leaf_url.clone(),
            ))
        })
        .collect();
    let weather = tokio::spawn(faults::weather(Arc::clone(&world), server, way_to_leaf));
    producer.await.unwrap();
    let (_server, _way_to_leaf) = weather.await.unwrap();
    let mut sidecars = Vec::new();
    for torment in torments {
        let (sidecar, way, state) = torment.await.unwrap();
        sidecar.until_ready().await;
        sidecars.push((sidecar, way, state));
    }
    let raged = started.elapsed();

    let app = App::connect(&world.url).await;
    let parked = calm(&world, &app, "leaf <> 'parking'").await;
    println!(
        "storm: {:?} in {raged:.0?}, calm after {:.0?} more, {} requests to the leaves",
        world.counts,
        started.elapsed() - raged,
        world.leaf.all_requests().len(),
    );
    println!("storm: parked although they could be asked or sent again: {parked:?}");
    println!("storm: {}", laws::tally(&app).await);
    agree(&world, &app).await;
    it_blew(plan, &app, &parked).await;
    checks::run(app.client()).await;

    // What waited for a person's word goes on with it, and then nothing waits.
    calm(&world, &app, "leaf IS NOT NULL").await;
    println!("storm: batches {}", batches::tally(&app).await);
    agree(&world, &app).await;
    checks::run(app.client()).await;
    println!("storm: doubled 0, lost 0");
    drop(sidecars);
}

/// The ledger and the tables tell the same story.
async fn agree(world: &World, app: &App) {
    let broken = laws::broken(world, app).await;
    let batches = batches::broken(world, app).await;
    let late = broken.late_puts;
    println!("storm: PUTs that came after they were given up: {late}");
    assert!(
        broken.doubled.is_empty() && broken.lost.is_empty() && batches.is_empty(),
        "seed {}: {broken:#?}, batches {batches:#?}",
        world.plan.seed
    );
}

/// The storm has had its effects, and hardly anything was left to a person where a leaf could be asked or sent to again.
async fn it_blew(plan: Plan, app: &App, parked: &[Value]) {
    let seen = app
        .rows(
            "SELECT (SELECT count(*) FROM leafhopper.result WHERE source = 'adopted') AS adopted, \
                    (SELECT count(*) FROM leafhopper.attempt WHERE error LIKE '%vanished%') AS taken_over",
        )
        .await
        .remove(0);
    println!("storm: {seen}");
    let number = |name: &str| seen[name].as_u64().unwrap();
    assert!(
        number("adopted") > 0 && number("taken_over") > 0,
        "{plan:?}: {seen}"
    );
    // A PUT in doubt that is refused when it is sent again: that says nothing about the first, and nobody can ask.
    let left = parked
        .iter()
        .filter(|row| row["leaf"] != "put" || row["reason"] != "no_probe");
    let left: u64 = left.map(|row| row["count"].as_u64().unwrap()).sum();
    // What `keyed` and `put` have under way can go down with its instance three times, all of it together.
    let together = 2 * u64::from(leaves::CONCURRENCY);
    assert!(
        left <= u64::from(plan.calls) / 100 + together,
        "{plan:?}: {parked:?}"
    );
}

/// Waits until nothing is under way. What is parked, and such that somebody looks after it, gets the word of a person
/// who has looked at the leaf: at leaves that can be asked, its call went down with its instance three times. Gives how
/// many there were, by reason.
async fn calm(world: &World, app: &App, looked_after: &str) -> Vec<Value> {
    let mut by_reason = Vec::new();
    loop {
        until_within(
            CALM,
            "all is at its end, or waits for a parked call",
            async || match app.rows(&batches::under_way()).await {
                rest if rest.is_empty() => Ok(()),
                rest => Err(rest),
            },
        )
        .await;
        let parked = format!(
            "SELECT c.id, c.leaf, c.key, d.key AS effect, d.undoes IS NOT NULL AS undoes \
               FROM leafhopper.outbox c JOIN leafhopper.dispatch d ON d.call_id = c.id \
              WHERE d.state = 'parked' AND d.{looked_after}"
        );
        let parked = app.rows(&parked).await;
        if parked.is_empty() {
            return by_reason;
        }
        let counted = format!(
            "SELECT leaf, reason, count(*) FROM leafhopper.dispatch d \
              WHERE state = 'parked' AND d.{looked_after} GROUP BY 1, 2"
        );
        by_reason.extend(app.rows(&counted).await);
        // Who looks sooner may miss an effect that is still to come: the leaf takes longer over some than it is waited for.
        let late = format!(
            "SELECT a.* FROM leafhopper.attempt a JOIN leafhopper.dispatch d USING (call_id) \
              WHERE d.state = 'parked' AND d.{looked_after} \
                AND a.finished_at > clock_timestamp() - interval '{} s'",
            leaves::SETTLE.as_secs()
        );
        until(
            "what was sent has arrived, or never will",
            async || match app.rows(&late).await {
                rest if rest.is_empty() => Ok(()),
                rest => Err(rest),
            },
        )
        .await;
        for call in parked {
            let text = |name: &str| call[name].as_str().unwrap();
            let there = world.leaf.standing(text("effect")) > 0;
            let word = if there != (call["undoes"] == true) {
                let (leaf, key) = (text("leaf"), text("key"));
                format!("SELECT leafhopper.confirm('{leaf}', '{key}', 200)")
            } else {
                format!(
                    "SELECT leafhopper.resolve_not_executed({}, 'somebody has looked')",
                    call["id"]
                )
            };
            app.execute(&word).await;
        }
    }
}
