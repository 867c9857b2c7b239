//! Leafhopper against its peers and against a bare loop, side by side: P1 to P11 of the goals, and what a kill repeats.
//!
//! `make bench`, or a part of it: `cargo bench --bench compare -- drain --systems leafhopper,floor --calls 20000`.
//! docs/benchmarks.md says how each figure is taken, and what is fair and unfair about it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark stops at the first fault of its own and prints"
)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the bans are for the sidecar"
)]

mod arguments;
mod backlog;
mod bench;
mod drain;
mod floor;
mod idle;
mod isolation;
mod kill;
mod latency;
mod leaf;
mod machine;
mod plot;
mod producers;
mod report;
mod stats;
mod system;
mod worker;

use std::{path::PathBuf, time::Instant};

use clap::Parser as _;

use crate::{
    arguments::Arguments,
    bench::Bench,
    machine::Machine,
    report::{Figure, Report},
    system::System,
};

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let parts = arguments.parts()?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(compare(arguments, parts))
}

async fn compare(arguments: Arguments, parts: Vec<&'static str>) -> anyhow::Result<()> {
    let began = Instant::now();
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = target.parent().unwrap();
    let folder = target.join("bench");
    std::fs::create_dir_all(folder.join("runs"))?;
    // What an instance of another run has kept must not meet this run's databases.
    std::fs::remove_dir_all(folder.join("runs"))?;
    std::fs::create_dir_all(folder.join("runs"))?;
    let peers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/peers");
    let bench = Bench::start(arguments, folder, peers, Vec::new()).await?;
    let machine = Machine::look(&bench.admin).await?;
    println!("{machine}");
    let mut report = Report::new(machine);
    for system in System::ALL {
        if let Some(why) = system.missing(&bench.peers)
            && bench.arguments.asks_for(system.name())
        {
            report.add(Figure::failed("", "every part", system.name(), &why));
        }
    }
    for part in parts {
        let result = match part {
            "p1" => drain::p1(&bench, &mut report).await,
            "p2" => drain::p2(&bench, &mut report).await,
            "p3" => latency::p3(&bench, &mut report).await,
            "p4" => backlog::p4(&bench, &mut report).await,
            "p5" => backlog::p5(&bench, &mut report).await,
            "p6" => backlog::p6(&bench, &mut report).await,
            "p8" => idle::p8(&bench, &mut report).await,
            "p9" => isolation::p9(&bench, &mut report).await,
            "p10" => producers::p10(&bench, &mut report).await,
            "p11" => isolation::p11(&bench, &mut report).await,
            "kill" => kill::kill(&bench, &mut report).await,
            other => Err(anyhow::anyhow!("there is no part {other}")),
        };
        if let Err(error) = result {
            report.add(Figure::failed("", part, "harness", &format!("{error:#}")));
        }
    }
    plot::write(&report, &bench.folder)?;
    report.finish(&bench.folder, began.elapsed())
}
