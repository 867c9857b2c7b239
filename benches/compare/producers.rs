//! P10: what writing a call costs an app that writes many at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    bench::{Bench, connect},
    leaf::Manner,
    report::{Figure, Report},
    stats::{Spread, per_second},
    system::{self, Run, System},
};

const PRODUCERS: usize = 64;

/// What the producers meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// A table of their own with one index.
    Plain,
    /// The outbox, and nobody who reads it.
    Outbox,
    /// An instance that sleeps: it is woken, finds that nothing is due yet, and sleeps again.
    Asleep,
    /// An instance that is busy all the time with a leaf that takes 5 ms, 4 at once.
    Awake,
    /// An instance whose leaf takes 50 ms, 4 at once, and so is full all the time.
    Full,
    /// An instance that sends what is written as fast as it can, on the same cores.
    Sending,
}

const CASES: [(Case, &str); 6] = [
    (Case::Plain, "64 producers, plain table"),
    (Case::Outbox, "64 producers, outbox, no instance"),
    (Case::Asleep, "64 producers, instance asleep"),
    (Case::Awake, "64 producers, instance awake"),
    (Case::Full, "64 producers, leaf full"),
    (Case::Sending, "64 producers, instance sends all of it"),
];

pub(crate) async fn p10(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    if !bench.systems.contains(&System::Leafhopper) {
        return Ok(());
    }
    let mut rates = vec![Vec::new(); CASES.len()];
    for _ in 0..bench.arguments.rounds {
        for (values, (case, _)) in rates.iter_mut().zip(CASES) {
            values.push(inserts(bench, case).await?);
        }
    }
    let plain = Spread::of(rates[0].clone()).median;
    let mut ratios = Vec::new();
    for (values, (case, what)) in rates.into_iter().zip(CASES) {
        ratios.push((case, what, Spread::of(values.clone()).median / plain));
        report.add(Figure::new("P10", what, "leafhopper", values, "inserts/s"));
    }
    for (case, what, ratio) in ratios.into_iter().skip(1) {
        let what = format!("… of plain: {}", what.trim_start_matches("64 producers, "));
        let figure = Figure::new("P10", what, "leafhopper", vec![ratio], "×");
        report.add(if case == Case::Sending {
            figure.note("the cores are shared with the sending: no goal")
        } else {
            figure.at_least(0.65)
        });
    }
    Ok(())
}

/// Rows a second that 64 connections insert, each in a transaction of its own.
async fn inserts(bench: &Bench, case: Case) -> anyhow::Result<f64> {
    let system = System::Leafhopper;
    let database = bench.migrated(system).await?;
    let plain = "CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, leaf text NOT NULL, path text NOT NULL,
                 body jsonb, key text NOT NULL DEFAULT gen_random_uuid()::text, not_before timestamptz)";
    database.client.batch_execute(plain).await?;
    let manner = match case {
        Case::Awake => Manner::After(Duration::from_millis(5)),
        Case::Full => Manner::After(Duration::from_millis(50)),
        _ => Manner::AtOnce,
    };
    bench.leaf.record(manner, 0);
    let busy = matches!(case, Case::Awake | Case::Full);
    let concurrency = if busy { 4 } else { 64 };
    let run = Run::at_once(concurrency);
    let worker = match case {
        Case::Plain | Case::Outbox => None,
        _ => Some(system.start(bench, &database.name, &run)?),
    };
    if busy {
        database
            .client
            .batch_execute(&system.load(1, 10_000))
            .await?;
    }
    let table = if case == Case::Plain {
        "plain"
    } else {
        "leafhopper.outbox"
    };
    let not_before = if case == Case::Asleep {
        "now() + interval '1 hour'"
    } else {
        "NULL"
    };
    let body = system::body("$1::bigint");
    let statement = format!(
        "INSERT INTO {table} (leaf, path, body, not_before) VALUES ('bench', '/', {body}, {not_before})"
    );
    let mut connections = Vec::new();
    for _ in 0..PRODUCERS {
        let client = connect(&bench.cluster.url(&database.name)).await?;
        let insert = client.prepare(&statement).await?;
        connections.push((client, insert));
    }
    // Until the instance is there.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let rate = produce(
        connections,
        Duration::from_secs((bench.arguments.seconds / 5).max(2)),
    )
    .await?;
    if let Some(mut worker) = worker {
        worker.runs()?;
        worker.kill().await;
    }
    bench.drop(database).await;
    Ok(rate)
}

type Connection = (tokio_postgres::Client, tokio_postgres::Statement);

async fn produce(connections: Vec<Connection>, time: Duration) -> anyhow::Result<f64> {
    let counted = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let producers = connections
        .into_iter()
        .enumerate()
        .map(|(number, (client, insert))| {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let id = i64::try_from(number).unwrap();
                while began.elapsed() < time {
                    client.execute(&insert, &[&id]).await?;
                    counted.fetch_add(1, Relaxed);
                }
                anyhow::Ok(())
            })
        });
    for producer in producers.collect::<Vec<_>>() {
        producer.await??;
    }
    Ok(per_second(counted.load(Relaxed), began.elapsed()))
}
