//! P7 and P8: what a worker costs that has nothing to do.

use std::time::Duration;

use tokio_postgres::Client;

use crate::{
    bench::{Bench, Database},
    report::{Figure, Report},
    stats::float,
    system::Run,
    worker::Worker,
};

/// After its start, until it has found that there is nothing.
const SETTLE: Duration = Duration::from_secs(8);

/// The loops that do something most seldom do it once in so many seconds.
const LOOKS: u64 = 120;

/// On a server of its own, since counting statements needs a library there. All at once: they have nothing to do.
pub(crate) async fn p8(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let library = vec![(
        "shared_preload_libraries".to_owned(),
        "pg_stat_statements".to_owned(),
    )];
    let (arguments, folder, peers) = (&bench.arguments, &bench.folder, &bench.peers);
    let start = async |settings| {
        Bench::start(arguments.clone(), folder.clone(), peers.clone(), settings).await
    };
    let counts = start(library).await;
    let statements = counts.is_ok();
    let bench = match counts {
        Ok(bench) => bench,
        Err(_) => start(Vec::new()).await?,
    };
    let unit = if statements {
        "statements/s"
    } else {
        "transactions/s"
    };
    if statements {
        let create = "CREATE EXTENSION IF NOT EXISTS pg_stat_statements";
        bench.admin.batch_execute(create).await?;
    }
    let mut idle: Vec<(_, Database, Worker)> = Vec::new();
    for &system in &bench.systems {
        let database = bench.migrated(system).await?;
        let worker = system.start(&bench, &database.name, &Run::at_once(64))?;
        idle.push((system, database, worker));
    }
    tokio::time::sleep(SETTLE).await;
    let mut before = Vec::new();
    for (_, database, worker) in &idle {
        let count = count(&bench.admin, &database.name, statements).await?;
        before.push((count, worker.cpu()?));
    }
    let seconds = bench.arguments.seconds.max(LOOKS);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    for ((system, database, mut worker), (count_before, cpu_before)) in idle.into_iter().zip(before)
    {
        worker.runs()?;
        let count = count(&bench.admin, &database.name, statements).await? - count_before;
        let cpu = worker.cpu()?.checked_sub(cpu_before).unwrap_or_default();
        let memory = worker.memory()?.now;
        let figure =
            |part, what, value, unit| Figure::new(part, what, system.name(), vec![value], unit);
        let rate = figure("P8", "idle", float(count) / float(seconds), unit);
        let share = cpu.as_secs_f64() / float(seconds) * 100.0;
        let share = figure("P8", "idle", share, "% of a core");
        let memory = figure("P7", "memory, idle", memory, "MB");
        if system.is_ours() {
            report.add(rate.at_most(2.0));
            report.add(share.at_most(0.3));
            report.add(memory.at_most(15.0));
        } else {
            report.add(rate);
            report.add(share);
            report.add(memory);
        }
        worker.kill().await;
        bench.drop(database).await;
    }
    Ok(())
}

/// Statements, or transactions, in this database so far.
async fn count(admin: &Client, database: &str, statements: bool) -> anyhow::Result<u64> {
    let query = if statements {
        "SELECT coalesce(sum(s.calls), 0)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
          WHERE d.datname = $1"
    } else {
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"
    };
    let count: i64 = admin.query_one(query, &[&database]).await?.get(0);
    Ok(count.unsigned_abs())
}
