//! `leafhopper demo`: the main job on a machine that has nothing yet. The tests stand on the same ground.
//!
//! A throw-away PostgreSQL, five leaves with ways of their own, an app that speaks plain SQL through `psql`,
//! and the sidecar as a process of its own, so that it can be killed in the middle of a call. At the end the
//! leaves' own ledger is held against the database.

mod app;
mod batch;
pub mod binaries;
pub mod cluster;
mod error;
mod leaf;
mod place;
mod server;
mod sidecar;
mod story;

use std::io::Write;

use anyhow::Context as _;

use self::{
    app::App,
    binaries::Binaries,
    cluster::{Cluster, Durability, Options},
    leaf::DemoLeaf,
    sidecar::Sidecar,
    story::Story,
};

/// What the command line says.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where PostgreSQL's programs are; looked for if not given.
    pub postgres: Option<std::path::PathBuf>,
    /// Whether it ends by itself; else everything stays up, to be looked at, until Ctrl-C.
    pub once: bool,
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
    let mut sidecar = Sidecar::prepare(cluster.folder(), &url, &leaf.url())?;
    sidecar.command(&["migrate"]).await?;
    let story = Story {
        app: App::new(program, &url),
        leaf,
    };
    let agree = story.tell(&mut sidecar, out).await?;
    if !settings.once {
        story.what_next(&sidecar, &url, out).await?;
        tokio::signal::ctrl_c().await?;
    }
    sidecar.kill().await?;
    tokio::task::block_in_place(|| drop(cluster));
    Ok(agree)
}
