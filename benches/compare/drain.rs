//! P1, P2, P7: how fast a backlog drains, and in how much memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use crate::{
    bench::Bench,
    floor::{self, Http},
    leaf::{Manner, Record},
    report::{Figure, Report},
    stats::{Spread, per_second},
    system::{Run, System},
    worker::Memory,
};

/// What one drained backlog gave.
#[derive(Debug)]
pub(crate) struct Drained {
    /// From the first arrival to the last call recorded.
    pub(crate) rate: f64,
    pub(crate) memory: Memory,
    pub(crate) record: Arc<Record>,
    /// Of the updates of leafhopper's hot table, in percent, those that cost no index an entry (PostgreSQL, chapter 73.7).
    pub(crate) hot: Option<f64>,
}

/// One run over a backlog that is there before the worker starts: what a process takes to start is not measured.
pub(crate) async fn drain(
    bench: &Bench,
    system: System,
    calls: u64,
    concurrency: usize,
    manner: Manner,
) -> anyhow::Result<Drained> {
    let database = bench.loaded(system, calls).await?;
    let record = bench.leaf.record(manner, calls);
    let mut workers = [system.start(bench, &database.name, &Run::at_once(concurrency))?];
    let client = &database.client;
    bench
        .until_drained(&record, calls, client, system.is_drained(), &mut workers)
        .await?;
    let end = bench.leaf.now();
    let memory = workers[0].memory()?;
    let [worker] = workers;
    worker.kill().await;
    let (distinct, arrived) = (record.distinct(), record.arrived.load(Relaxed));
    anyhow::ensure!(
        distinct == calls && arrived == calls,
        "{distinct} distinct of {arrived} arrived"
    );
    let hot = match system.is_ours() {
        true => Some(hot_updates(client, calls).await?),
        false => None,
    };
    bench.drop(database).await;
    let time = Duration::from_nanos(end - record.at(0));
    Ok(Drained {
        rate: per_second(calls, time),
        memory,
        record,
        hot,
    })
}

/// The server counts what a session has done when that ends, or a second later.
async fn hot_updates(client: &tokio_postgres::Client, calls: u64) -> anyhow::Result<f64> {
    let until = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let row = client
            .query_one(
                "SELECT n_tup_upd::float8, n_tup_hot_upd::float8 FROM pg_stat_user_tables \
                  WHERE schemaname = 'leafhopper' AND relname = 'dispatch'",
                &[],
            )
            .await?;
        let (updates, hot): (f64, f64) = (row.get(0), row.get(1));
        if updates >= calls as f64 {
            return Ok(100.0 * hot / updates);
        }
        anyhow::ensure!(
            std::time::Instant::now() < until,
            "the server counts {updates} updates of {calls}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Lines of the table in the order in which they were first measured.
#[derive(Debug, Default)]
struct Rounds {
    order: Vec<String>,
    values: BTreeMap<String, Vec<f64>>,
    failed: BTreeMap<String, String>,
}

impl Rounds {
    fn add(&mut self, name: &str, result: anyhow::Result<f64>) {
        if !self.order.iter().any(|known| known == name) {
            self.order.push(name.to_owned());
        }
        match result {
            Ok(value) => self.values.entry(name.to_owned()).or_default().push(value),
            Err(error) => {
                eprintln!("{name}: {error:#}");
                self.failed.insert(name.to_owned(), format!("{error:#}"));
            }
        }
    }

    fn report(self, report: &mut Report, part: &'static str, what: &str) {
        for name in self.order {
            match self.values.get(&name) {
                Some(values) => {
                    report.add(Figure::new(part, what, &name, values.clone(), "calls/s"))
                }
                None => report.add(Figure::failed(part, what, &name, &self.failed[&name])),
            }
        }
    }
}

const P1: &str = "drain, 64 at once, leaf at once";
const P2: &str = "drain, 256 at once, leaf takes 50 ms";
pub(crate) const LOOP_REQWEST: &str = "bare loop, reqwest";
pub(crate) const LOOP_HYPER: &str = "bare loop, hyper-util";

pub(crate) async fn p1(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let calls = bench.arguments.calls;
    let mut rounds = Rounds::default();
    let mut memory: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut hot = Vec::new();
    for _ in 0..bench.arguments.rounds {
        for &system in &bench.systems {
            let drained = drain(bench, system, calls, 64, Manner::AtOnce).await;
            if let Ok(drained) = &drained {
                hot.extend(drained.hot);
                memory
                    .entry(system.name())
                    .or_default()
                    .push(drained.memory.most);
            }
            rounds.add(system.name(), drained.map(|drained| drained.rate));
        }
        if bench.arguments.asks_for("floor") {
            for (name, http) in [(LOOP_REQWEST, Http::reqwest()), (LOOP_HYPER, Http::hyper())] {
                let rate = floor::bare_loop(bench, http, calls, 64, Manner::AtOnce).await;
                rounds.add(name, rate);
            }
            for (name, http) in [
                ("HTTP alone, reqwest", Http::reqwest()),
                ("HTTP alone, hyper-util", Http::hyper()),
            ] {
                rounds.add(name, floor::http_alone(bench, http, 2 * calls, 64).await);
            }
        }
    }
    rounds.report(report, "P1", P1);
    let ours = report.median("P1", P1, System::Leafhopper.name());
    let Some(ours) = ours else { return Ok(()) };
    let peers = bench.systems.iter().filter(|system| !system.is_ours());
    let fastest =
        peers.filter_map(|peer| Some((report.median("P1", P1, peer.name())?, peer.name())));
    if let Some((rate, name)) = fastest.max_by(|a, b| a.0.total_cmp(&b.0)) {
        let what = format!("… of the fastest peer ({name})");
        report.add(Figure::new("P1", what, "leafhopper", vec![ours / rate], "×").at_least(1.5));
    }
    for name in [LOOP_REQWEST, LOOP_HYPER] {
        if let Some(rate) = report.median("P1", P1, name) {
            let figure = Figure::new(
                "P1",
                format!("… of the {name}"),
                "leafhopper",
                vec![ours / rate],
                "×",
            );
            report.add(figure.at_least(0.9));
        }
    }
    if !hot.is_empty() {
        let what = "HOT updates of dispatch";
        report.add(Figure::new("P1", what, "leafhopper", hot, "%"));
    }
    for &system in &bench.systems {
        if let Some(values) = memory.remove(system.name()) {
            let figure = Figure::new("P7", "memory at most, P1", system.name(), values, "MB");
            report.add(if system.is_ours() {
                figure.at_most(40.0)
            } else {
                figure
            });
        }
    }
    Ok(())
}

pub(crate) async fn p2(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    const DELAY: Duration = Duration::from_millis(50);
    let calls = bench.arguments.calls / 4;
    let mut rounds = Rounds::default();
    let mut delays = Vec::new();
    for _ in 0..bench.arguments.rounds {
        for &system in &bench.systems {
            let drained = drain(bench, system, calls, 256, Manner::After(DELAY)).await;
            delays.extend(drained.as_ref().ok().and_then(|d| d.record.delay_mean()));
            rounds.add(system.name(), drained.map(|drained| drained.rate));
        }
        if bench.arguments.asks_for("floor") {
            let rate =
                floor::bare_loop(bench, Http::hyper(), calls, 256, Manner::After(DELAY)).await;
            rounds.add(LOOP_HYPER, rate);
        }
    }
    rounds.report(report, "P2", P2);
    let ideal = 256.0 / DELAY.as_secs_f64();
    if let Some(ours) = report.median("P2", P2, System::Leafhopper.name()) {
        let delays = delays
            .iter()
            .map(|delay| delay.as_secs_f64() * 1e3)
            .collect();
        let late = Spread::of(delays);
        let note = format!("the leaf took {:.2} to {:.2} ms", late.least, late.most);
        let figure = Figure::new(
            "P2",
            "… of the ideal 256 / 50 ms",
            "leafhopper",
            vec![ours / ideal],
            "×",
        );
        report.add(figure.at_least(0.97).note(note));
    }
    Ok(())
}
