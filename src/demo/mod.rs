//! `leafhopper demo`: the main job on a machine that has nothing yet. The tests stand on the same ground.
//!
//! A throw-away PostgreSQL, three leaves with ways of their own, an app that speaks plain SQL through `psql`,
//! and the sidecar as a process of its own, so that it can be killed in the middle of a call. At the end the
//! leaves' own ledger is held against the database.

mod app;
pub mod binaries;
pub mod cluster;
mod error;
mod leaf;
mod place;
mod server;
mod story;

use std::{io::Write, path::Path};

use anyhow::Context as _;

use self::{
    app::App,
    binaries::Binaries,
    cluster::{Cluster, Durability, Options},
    leaf::DemoLeaf,
    story::Sidecar,
};

/// What the command line says.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where PostgreSQL's programs are; looked for if not given.
    pub postgres: Option<std::path::PathBuf>,
    /// Whether everything stays up afterwards, to be looked at, until a signal comes.
    pub keep: bool,
}

/// Runs the demo and tells its story to `out`. `true` where the ledger and the database agree.
///
/// # Errors
/// PostgreSQL is missing (the error names the package) or does not start; the sidecar does not become ready.
pub async fn run(settings: Settings, out: &mut (dyn Write + Send)) -> anyhow::Result<bool> {
    let here = std::env::current_dir().context("the current folder")?;
    writeln!(out, "Starting a throw-away PostgreSQL …")?;
    let binaries = Binaries::find(settings.postgres.as_deref(), &[&here])?;
    let program = binaries.program("psql");
    let cluster = tokio::task::block_in_place(|| {
        let options = Options {
            binaries,
            durability: Durability::Synced,
            settings: Vec::new(),
        };
        let cluster = Cluster::start(options)?;
        cluster.create_database("app", None).map(|()| cluster)
    })?;
    let url = format!("{}?sslmode=disable", cluster.url("app"));
    let leaf = DemoLeaf::start().await?;
    let folder = cluster.folder().join("sidecar");
    let sidecar = Sidecar::prepare(&folder, &url, leaf.port())?;
    sidecar.migrate().await?;
    let app = App::new(program, &url);
    let agree = story::tell(&app, &leaf, sidecar, out, |sidecar, out| {
        stay(settings.keep, sidecar, &url, out)
    })
    .await;
    tokio::task::block_in_place(|| drop(cluster));
    agree
}

/// What to do next, for who wants to look around.
fn stay(
    keep: bool,
    config: &Path,
    url: &str,
    out: &mut (dyn Write + Send),
) -> std::io::Result<bool> {
    if keep {
        writeln!(
            out,
            "\nStill running, until Ctrl-C. Look around:\n\
             \x20 psql '{url}' -c 'SELECT id, leaf, key, state, reason FROM leafhopper.call'\n\
             \x20 leafhopper --config {config} calls\n\
             \x20 leafhopper --config {config} show 5\n",
            config = config.display()
        )?;
    } else {
        writeln!(
            out,
            "\n`make demo ARGS=--keep` leaves it running, to look around."
        )?;
    }
    Ok(keep)
}
