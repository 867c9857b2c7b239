//! What is done twice, or never, where the worker is killed again and again.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    bench::Bench,
    leaf::{Manner, Record},
    report::{Figure, Report},
    stats::float,
    system::{Run, System},
};

const CALLS: u64 = 5_000;
const DELAY: Duration = Duration::from_millis(20);

/// How long after its first request a worker is killed: so each kill hits work that is under way, however long the start takes.
const LIFE: Duration = Duration::from_millis(500);

/// A worker that finds nothing to do for so long will not: what is left is locked.
const NOTHING: Duration = Duration::from_secs(25);

/// What became of the calls.
#[derive(Debug, Default)]
struct Outcome {
    kills: u64,
    /// Requests that the leaf was working on at the kills.
    in_flight: u64,
    doubled: u64,
    lost: u64,
    /// Left by dead workers when nothing moved any more, and what of that never ended.
    locked: u64,
    unfinished: u64,
    seconds: f64,
}

pub(crate) async fn kill(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    for &system in &bench.systems {
        let what = "done more than once, of 5,000";
        match storm(bench, system).await {
            Ok(outcome) => {
                let note = format!(
                    "{} kills hit {} requests; {} stayed locked; {} never done; {:.0} s",
                    outcome.kills, outcome.in_flight, outcome.locked, outcome.lost, outcome.seconds
                );
                let figure = Figure::new(
                    "kill",
                    what,
                    system.name(),
                    vec![float(outcome.doubled)],
                    "calls",
                );
                let figure = figure.note(note);
                report.add(if system.is_ours() {
                    figure.at_most(0.0)
                } else {
                    figure
                });
                if system.is_ours() {
                    let lost = vec![float(outcome.lost + outcome.unfinished)];
                    report.add(
                        Figure::new("kill", "lost", system.name(), lost, "calls").at_most(0.0),
                    );
                }
            }
            Err(error) => report.add(Figure::failed(
                "kill",
                what,
                system.name(),
                &format!("{error:#}"),
            )),
        }
    }
    Ok(())
}

async fn storm(bench: &Bench, system: System) -> anyhow::Result<Outcome> {
    let database = bench.migrated(system).await?;
    database
        .client
        .batch_execute(&system.load(1, CALLS))
        .await?;
    if system == System::PgBoss {
        // Or a job that was hit three times would count as failed.
        let patient = "UPDATE pgboss.job_common SET retry_limit = 100, heartbeat_seconds = 10";
        database.client.batch_execute(patient).await?;
    }
    let record = bench.leaf.record(Manner::After(DELAY), CALLS);
    let mut run = Run::at_once(64);
    run.killed = true;
    let (began, mut outcome) = (Instant::now(), Outcome::default());
    let until = began + Duration::from_mins(3);
    while Instant::now() < until {
        let mut worker = system.start(bench, &database.name, &run)?;
        let end = life(&record, &database.client, system).await?;
        let in_flight = record.in_flight();
        if end == End::Kill && in_flight > 0 {
            outcome.kills += 1;
            outcome.in_flight += in_flight;
        }
        if end == End::Kill {
            worker.runs()?;
        }
        worker.kill().await;
        if end != End::Kill {
            break;
        }
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome.locked = left(&database.client, system).await?;
    if outcome.locked > 0
        && let Some(release) = system.release()
    {
        // What would be sent again after hours is sent now, to be counted.
        database.client.batch_execute(release).await?;
        let worker = system.start(bench, &database.name, &run)?;
        let until = Instant::now() + NOTHING;
        while left(&database.client, system).await? > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        worker.kill().await;
    }
    outcome.unfinished = left(&database.client, system).await?;
    if outcome.unfinished > 0 {
        let left = what_is_left(&database.client, system).await?;
        eprintln!("{}: {left}", system.name());
    }
    let distinct = record.distinct();
    outcome.lost = CALLS - distinct;
    outcome.doubled = record.arrived.load(Relaxed) - distinct;
    bench.drop(database).await;
    Ok(outcome)
}

/// Calls that are not done.
async fn left(database: &tokio_postgres::Client, system: System) -> anyhow::Result<u64> {
    let left: i64 = database.query_one(system.unfinished(), &[]).await?.get(0);
    Ok(left.unsigned_abs())
}

async fn what_is_left(database: &tokio_postgres::Client, system: System) -> anyhow::Result<String> {
    if !system.is_ours() {
        return Ok("calls are left".to_owned());
    }
    let states = "SELECT string_agg(state, ', ') FROM (SELECT concat_ws(' ', count(*), state, reason) AS state
                    FROM leafhopper.dispatch GROUP BY dispatch.state, reason) s";
    let states: Option<String> = database.query_one(states, &[]).await?.get(0);
    Ok(states.unwrap_or_default())
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Kill,
    Drained,
    NothingToDo,
}

/// Until it is time to kill the worker, or nothing is left for it.
async fn life(
    record: &Arc<Record>,
    database: &tokio_postgres::Client,
    system: System,
) -> anyhow::Result<End> {
    let began = Instant::now();
    let before = record.arrived.load(Relaxed);
    let mut first = None;
    loop {
        if database.query_one(system.is_drained(), &[]).await?.get(0) {
            return Ok(End::Drained);
        }
        if first.is_none() && record.arrived.load(Relaxed) > before {
            first = Some(Instant::now());
        }
        match first {
            Some(first) if first.elapsed() > LIFE => return Ok(End::Kill),
            None if began.elapsed() > NOTHING => return Ok(End::NothingToDo),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
