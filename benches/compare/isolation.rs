//! P9 and P11: a leaf that hangs beside one that works, and two instances beside each other.

use std::time::Duration;

use crate::{
    bench::Bench,
    latency,
    leaf::{Leaf, Manner},
    report::{Figure, Report},
    stats::{Spread, float, per_second, percentile},
    system::{Run, System},
};

/// Calls that wait for the leaf that hangs.
const HUNG: u64 = 100_000;
const ROUNDS: usize = 2;

pub(crate) async fn p9(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let system = System::Leafhopper;
    if !bench.systems.contains(&system) {
        return Ok(());
    }
    let hung = Leaf::start();
    hung.record(Manner::Never, 0);
    let calls = bench.arguments.calls;
    let (mut rates, mut times) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        for beside in [false, true] {
            let (rate, p99) = beside_hung(bench, &hung, beside, calls).await?;
            rates[usize::from(beside)].push(rate);
            times[usize::from(beside)].push(p99);
        }
    }
    bench.forget_template("template_hung_0").await;
    bench.forget_template("template_hung_1").await;
    let ratio = |values: &[Vec<f64>; 2]| {
        let [alone, beside] = values.clone().map(|values| Spread::of(values).median);
        beside / alone
    };
    let (rate, time) = (ratio(&rates), ratio(&times));
    let [alone, beside] = rates;
    let figure = |what: &str, values, unit| Figure::new("P9", what, "leafhopper", values, unit);
    report.add(figure("drain of a leaf, alone", alone, "calls/s"));
    report.add(figure(
        "drain of a leaf beside one that hangs",
        beside,
        "calls/s",
    ));
    report.add(figure("… of that alone", vec![rate], "×").at_least(0.95));
    let [alone, beside] = times;
    report.add(figure("commit → arrival p99, alone", alone, "ms"));
    report.add(figure(
        "commit → arrival p99 beside one that hangs",
        beside,
        "ms",
    ));
    report.add(figure("… of that alone", vec![time], "×").at_most(1.05));
    Ok(())
}

/// How fast a backlog drains, and how late calls are after that, with or without the other's calls before them.
async fn beside_hung(
    bench: &Bench,
    hung: &Leaf,
    beside: bool,
    calls: u64,
) -> anyhow::Result<(f64, f64)> {
    let system = System::Leafhopper;
    let template = format!("template_hung_{}", u8::from(beside));
    if !bench.has(&template) {
        let database = bench.migrated(system).await?;
        if beside {
            let load = system.load(1, HUNG).replace("'bench'", "'hung'");
            database.client.batch_execute(&load).await?;
        }
        database
            .client
            .batch_execute(&system.load(1, calls))
            .await?;
        bench.keep(database, &template).await?;
    }
    let database = bench.copy(&template).await?;
    let record = bench.leaf.record(Manner::AtOnce, calls);
    let mut run = Run::at_once(64);
    run.leaves.push(("hung".to_owned(), hung.url()));
    let mut workers = [system.start(bench, &database.name, &run)?];
    bench.until_arrived(&record, calls, &mut workers).await?;
    let rate = record.rate_between(0, calls - 1);
    let seconds = (bench.arguments.seconds / 2).max(2);
    let [mut worker] = workers;
    let times = latency::times(bench, system, &database.name, seconds, "", &mut worker).await?;
    worker.kill().await;
    bench.drop(database).await;
    Ok((rate, percentile(&times, 0.99)))
}

pub(crate) async fn p11(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let system = System::Leafhopper;
    if !bench.systems.contains(&system) {
        return Ok(());
    }
    let calls = bench.arguments.calls;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let mut deadlocks = 0;
    for _ in 0..bench.arguments.rounds {
        one.push(together(bench, 1, calls).await?.0);
        let (rate, locks) = together(bench, 2, calls).await?;
        two.push(rate);
        deadlocks += locks;
    }
    let log = std::fs::read_to_string(bench.cluster.folder().join("log")).unwrap_or_default();
    let failures = log.matches("could not serialize access").count() as u64;
    let ratio = Spread::of(two.clone()).median / Spread::of(one.clone()).median;
    let figure = |what: &str, values, unit| Figure::new("P11", what, "leafhopper", values, unit);
    report.add(figure("drain by one instance", one, "calls/s"));
    report.add(figure("drain by two instances", two, "calls/s"));
    report.add(figure("… of that by one", vec![ratio], "×").at_least(0.95));
    report.add(figure("deadlocks", vec![float(deadlocks)], "").at_most(0.0));
    let what = "serialization failures, in the whole run";
    report.add(figure(what, vec![float(failures)], "").at_most(0.0));
    Ok(())
}

/// The rate of so many instances, and the deadlocks that the server counted.
async fn together(bench: &Bench, instances: usize, calls: u64) -> anyhow::Result<(f64, u64)> {
    let system = System::Leafhopper;
    let database = bench.loaded(system, calls).await?;
    let record = bench.leaf.record(Manner::AtOnce, calls);
    let mut workers = Vec::new();
    for _ in 0..instances {
        workers.push(system.start(bench, &database.name, &Run::at_once(64))?);
    }
    let client = &database.client;
    bench
        .until_drained(&record, calls, client, system.is_drained(), &mut workers)
        .await?;
    let time = Duration::from_nanos(bench.leaf.now() - record.at(0));
    for worker in workers {
        worker.kill().await;
    }
    // A backend hands its counts over when it ends.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let deadlocks: i64 = client.query_one(deadlocks, &[]).await?.get(0);
    bench.drop(database).await;
    Ok((per_second(calls, time), deadlocks.unsigned_abs()))
}
