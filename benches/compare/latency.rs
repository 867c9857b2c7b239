//! P3: from the commit of a call to its arrival at the leaf, where little is to be done.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use anyhow::bail;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    bench::{Bench, connect},
    leaf::Manner,
    report::{Figure, Report},
    stats::percentile,
    system::{Run, System},
    worker::Worker,
};

/// Calls a second.
const RATE: u64 = 100;

/// Sent before anything is measured: programs compile and cache what they need first.
const WARM_UP: u64 = 50;

const LATE: Duration = Duration::from_secs(20);

pub(crate) async fn p3(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let seconds = bench.arguments.seconds;
    for &system in &bench.systems {
        let (median, high) = (
            "commit → arrival at 100/s, p50",
            "commit → arrival at 100/s, p99",
        );
        match whole(bench, system, seconds, "").await {
            Ok(times) => {
                let figure = |what, part| {
                    Figure::new(
                        "P3",
                        what,
                        system.name(),
                        vec![percentile(&times, part)],
                        "ms",
                    )
                };
                let (p50, p99) = (figure(median, 0.5), figure(high, 0.99));
                let ours = system.is_ours();
                report.add(if ours { p50.at_most(1.5) } else { p50 });
                report.add(if ours { p99.at_most(5.0) } else { p99 });
            }
            Err(error) => report.add(Figure::failed(
                "P3",
                median,
                system.name(),
                &format!("{error:#}"),
            )),
        }
        if system.is_ours() {
            let what = "longest, with notifications off";
            match whole(bench, system, seconds / 2, "SET leafhopper.notify = off").await {
                Ok(times) => {
                    let longest = vec![times[times.len() - 1]];
                    // poll_interval, 1 s by default, and 50 ms.
                    report.add(
                        Figure::new("P3", what, system.name(), longest, "ms").at_most(1_050.0),
                    );
                }
                Err(error) => report.add(Figure::failed(
                    "P3",
                    what,
                    system.name(),
                    &format!("{error:#}"),
                )),
            }
        }
    }
    Ok(())
}

async fn whole(
    bench: &Bench,
    system: System,
    seconds: u64,
    setup: &str,
) -> anyhow::Result<Vec<f64>> {
    let database = bench.migrated(system).await?;
    let mut worker = system.start(bench, &database.name, &Run::at_once(64))?;
    let times = times(bench, system, &database.name, seconds, setup, &mut worker).await;
    worker.kill().await;
    bench.drop(database).await;
    times
}

/// Milliseconds from commit to arrival of each call, the shortest first. The worker runs already.
pub(crate) async fn times(
    bench: &Bench,
    system: System,
    database: &str,
    seconds: u64,
    setup: &str,
    worker: &mut Worker,
) -> anyhow::Result<Vec<f64>> {
    let measured = seconds * RATE;
    let calls = WARM_UP + measured;
    let record = bench.leaf.record(Manner::AtOnce, calls);
    let producer = connect(&bench.cluster.url(database)).await?;
    producer.batch_execute(setup).await?;
    let insert = producer.prepare(&system.enqueue()).await?;
    let call = |id: u64| i64::try_from(id).unwrap();
    for id in 1..=WARM_UP {
        producer.query(&insert, &[&call(id)]).await?;
    }
    bench
        .until_arrived(&record, WARM_UP, std::slice::from_mut(worker))
        .await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut ticks = interval(Duration::from_millis(1_000 / RATE));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut committed = Vec::new();
    for id in WARM_UP + 1..=calls {
        ticks.tick().await;
        producer.query(&insert, &[&call(id)]).await?;
        committed.push((id, bench.leaf.now()));
    }
    let late = tokio::time::Instant::now() + LATE;
    while record.arrived.load(Relaxed) < calls {
        worker.runs()?;
        if tokio::time::Instant::now() > late {
            bail!(
                "{} of {calls} calls have arrived",
                record.arrived.load(Relaxed)
            );
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut times: Vec<f64> = committed
        .into_iter()
        .map(|(id, committed)| {
            let arrived = record.first_at[usize::try_from(id).unwrap()].load(Relaxed);
            // It can arrive before the producer knows that it has committed.
            Duration::from_nanos(arrived.saturating_sub(committed)).as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Ok(times)
}
