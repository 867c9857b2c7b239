//! P4, P5, P6: what a long backlog, an open snapshot and a long history cost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    bench::{Bench, Database},
    drain,
    leaf::{Manner, Record},
    report::{Figure, Report, Series},
    stats::{Spread, float},
    system::{Run, System},
    worker::Memory,
};

/// The part of a backlog between whose ends a rate is taken: neither the start nor the last few calls.
fn rate_inside(record: &Record, calls: u64) -> f64 {
    record.rate_between(calls / 20, calls - calls / 20)
}

/// P4: the same calls, first with nothing behind them, then with a million behind them.
pub(crate) async fn p4(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let (calls, many) = (bench.arguments.calls, bench.arguments.many());
    let what = format!("drain with {} waiting", crate::report::number(float(many)));
    for &system in &bench.systems {
        let rounds = if system.is_ours() { 2 } else { 1 };
        let (mut few, mut long, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        let mut round = async || {
            few.push(rate_inside(
                &drain::drain(bench, system, calls, 64, Manner::AtOnce)
                    .await?
                    .record,
                calls,
            ));
            let database = bench.loaded(system, many).await?;
            let (record, held) = first_of(bench, system, &database, calls, many).await?;
            bench.drop(database).await;
            long.push(rate_inside(&record, calls));
            memory.push(held.most);
            anyhow::Ok(())
        };
        let mut failed = None;
        for _ in 0..rounds {
            failed = round().await.err();
        }
        bench.forget(system, many).await;
        if let Some(error) = failed {
            report.add(Figure::failed(
                "P4",
                &what,
                system.name(),
                &format!("{error:#}"),
            ));
            continue;
        }
        let ratio = Spread::of(long.clone()).median / Spread::of(few.clone()).median;
        report.add(Figure::new(
            "P4",
            "drain with nothing behind",
            system.name(),
            few,
            "calls/s",
        ));
        report.add(Figure::new("P4", &what, system.name(), long, "calls/s"));
        let figure = Figure::new(
            "P4",
            "… of that with nothing behind",
            system.name(),
            vec![ratio],
            "×",
        );
        let held = Figure::new(
            "P7",
            format!("memory at most, {what}"),
            system.name(),
            memory,
            "MB",
        );
        report.add(if system.is_ours() {
            figure.at_least(0.95)
        } else {
            figure
        });
        report.add(if system.is_ours() {
            held.at_most(40.0)
        } else {
            held
        });
    }
    Ok(())
}

/// The first calls of a backlog; the rest is left.
async fn first_of(
    bench: &Bench,
    system: System,
    database: &Database,
    calls: u64,
    ids: u64,
) -> anyhow::Result<(Arc<Record>, Memory)> {
    let record = bench.leaf.record(Manner::AtOnce, ids);
    let mut workers = [system.start(bench, &database.name, &Run::at_once(64))?];
    bench.until_arrived(&record, calls, &mut workers).await?;
    let memory = workers[0].memory();
    let [worker] = workers;
    worker.kill().await;
    Ok((record, memory?))
}

/// P5: a transaction that was open before the first call, and stays open.
pub(crate) async fn p5(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    for &system in &bench.systems {
        // pg-boss takes minutes for the second half.
        let calls = if system == System::PgBoss {
            100_000
        } else {
            200_000
        };
        let calls = calls.min(bench.arguments.calls * 10 / 3);
        match under_snapshot(bench, system, calls).await {
            Ok(record) => {
                let end = calls / 10;
                let first = record.rate_between(0, end);
                let last = record.rate_between(calls - 1 - end, calls - 1);
                let thousands = |count: u64| crate::report::number(float(count));
                let of = thousands(calls);
                let mut add = |what: String, value: f64, unit| {
                    let figure = Figure::new("P5", what, system.name(), vec![value], unit);
                    report.add(if unit == "×" && system.is_ours() {
                        figure.at_least(0.95)
                    } else {
                        figure
                    });
                };
                add(
                    format!("snapshot held, first {} of {of}", thousands(end)),
                    first,
                    "calls/s",
                );
                add(
                    format!("snapshot held, last {} of {of}", thousands(end)),
                    last,
                    "calls/s",
                );
                add("… last of first".to_owned(), last / first, "×");
                let step = calls / 20;
                let points = (0..20).map(|part| {
                    let to = ((part + 1) * step).min(calls - 1);
                    (float(to), record.rate_between(part * step, to))
                });
                report.series.push(Series {
                    part: "P5",
                    system: system.name().to_owned(),
                    points: points.collect(),
                });
            }
            Err(error) => {
                let error = format!("{error:#}");
                report.add(Figure::failed("P5", "snapshot held", system.name(), &error));
            }
        }
    }
    Ok(())
}

async fn under_snapshot(bench: &Bench, system: System, calls: u64) -> anyhow::Result<Arc<Record>> {
    let database = bench.loaded(system, calls).await?;
    let snapshot = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM {} LIMIT 1",
        system.queue()
    );
    database.client.batch_execute(&snapshot).await?;
    let (record, _) = first_of(bench, system, &database, calls, calls).await?;
    bench.drop(database).await;
    bench.forget(system, calls).await;
    Ok(record)
}

/// Looks at each page, each after what was read for the one before is too old to be shown again.
const LOOKS: usize = 8;
const APART: Duration = Duration::from_millis(1_200);

/// P6: finished calls and their results in the tables.
pub(crate) async fn p6(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let system = System::Leafhopper;
    if !bench.systems.contains(&system) {
        return Ok(());
    }
    let (calls, many) = (bench.arguments.calls, bench.arguments.many());
    let before = Instant::now();
    let template = "template_history";
    let database = bench.migrated(system).await?;
    database.client.batch_execute(&history(many)).await?;
    database
        .client
        .batch_execute(&system.load(1, calls))
        .await?;
    bench.keep(database, template).await?;
    eprintln!(
        "{many} finished calls in {:.0} s",
        before.elapsed().as_secs_f64()
    );
    let (mut empty, mut full) = (Vec::new(), Vec::new());
    let (mut metrics, mut page) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        empty.push(
            drain::drain(bench, system, calls, 64, Manner::AtOnce)
                .await?
                .rate,
        );
        let database = bench.copy(template).await?;
        let record = bench.leaf.record(Manner::AtOnce, calls);
        let mut workers = [system.start(bench, &database.name, &Run::at_once(64))?];
        let drained = system.is_drained();
        bench
            .until_drained(&record, calls, &database.client, drained, &mut workers)
            .await?;
        let time = Duration::from_nanos(bench.leaf.now() - record.at(0));
        full.push(crate::stats::per_second(calls, time));
        let port = workers[0].port.expect("the sidecar's port");
        metrics.extend(looks(&format!("http://127.0.0.1:{port}/metrics")).await?);
        page.extend(looks(&format!("http://127.0.0.1:{port}/")).await?);
        let [worker] = workers;
        worker.kill().await;
        bench.drop(database).await;
    }
    bench.forget_template(template).await;
    let ratio = Spread::of(full.clone()).median / Spread::of(empty.clone()).median;
    let with = format!(
        "drain with {} finished calls",
        crate::report::number(float(many))
    );
    let figure = |what: &str, values, unit| Figure::new("P6", what, "leafhopper", values, unit);
    report.add(figure("drain with empty tables", empty, "calls/s"));
    report.add(figure(&with, full, "calls/s"));
    report.add(figure("… of that with empty tables", vec![ratio], "×").at_least(0.9));
    report.add(figure("GET /metrics", metrics, "ms").at_most(20.0));
    report.add(figure("GET / (the page)", page, "ms").at_most(200.0));
    Ok(())
}

/// Milliseconds of each look.
async fn looks(url: &str) -> anyhow::Result<Vec<f64>> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut times = Vec::new();
    for _ in 0..LOOKS {
        tokio::time::sleep(APART).await;
        let began = Instant::now();
        let answer = client.get(url).send().await?.error_for_status()?;
        answer.bytes().await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// As the sidecar would have left them: of twenty calls one failed.
fn history(calls: u64) -> String {
    format!(
        "SET session_replication_role = replica; SET synchronous_commit = off; SET maintenance_work_mem = '1GB';
         INSERT INTO leafhopper.outbox (leaf, key, path, body, created_at)
         SELECT 'bench', 'k' || n, '/', jsonb_build_object('i', 0, 'note', md5(n::text)),
                now() - interval '90 days' * (1 - n / {calls}.0)
           FROM generate_series(1, {calls}) AS n;
         INSERT INTO leafhopper.result (leaf, key, generation, call_id, attempts, status, body, source, confirmed_at)
         SELECT leaf, key, 1, id, 1, 201, body, 'response', created_at FROM leafhopper.outbox WHERE id % 20 <> 7;
         INSERT INTO leafhopper.finished (call_id, state, reason, attempts, last_status, finished_at)
         SELECT id, 'failed', 'rejected', 1, 422, created_at FROM leafhopper.outbox WHERE id % 20 = 7;
         INSERT INTO leafhopper.attempt (call_id, attempt, class, status, finished_at)
         SELECT call_id, 1, 'failed', 422, finished_at FROM leafhopper.finished;
         SET session_replication_role = origin; RESET synchronous_commit; RESET maintenance_work_mem"
    )
}
