//! What a test needs: a database, a leaf, sidecars, and an application.
//!
//! The tests talk to leafhopper through its edges only: rows in, HTTP out, rows back, signals.

pub(crate) mod app;
pub(crate) mod checks;
mod config;
pub(crate) mod database;
pub(crate) mod folder;
pub(crate) mod leaf;
mod log;
pub(crate) mod proxy;
pub(crate) mod sidecar;
pub(crate) mod wait;

use app::{App, keyed};
use database::Database;
use leaf::{Gate, Leaf};
use proxy::Proxy;
use sidecar::{Config, Sidecar};

/// The usual set: a migrated database, an application connected to it, and one leaf.
///
/// Sidecars are declared after the bed, so that they end before the database is checked and dropped.
pub(crate) struct Bed {
    /// The application's connection.
    pub(crate) app: App,
    /// The leaf.
    pub(crate) leaf: Leaf,
    /// Last, so that it goes last.
    pub(crate) database: Database,
}

impl Bed {
    /// A fresh one.
    pub(crate) async fn new() -> Self {
        let database = Database::new().await;
        let (app, leaf) = tokio::join!(App::connect(&database.url), Leaf::start());
        Self {
            app,
            leaf,
            database,
        }
    }

    /// A configuration that knows the leaf as `leaf`, with these lines in its table.
    pub(crate) fn config(&self, lines: &str) -> Config {
        Config::new(&self.sidecars_url()).leaf("leaf", &self.leaf.url(), lines)
    }

    /// The same for a sidecar whose login may do what a sidecar needs, and nothing else.
    pub(crate) fn least_config(&self, lines: &str) -> Config {
        Config::new(&self.database.sidecar_url()).leaf("leaf", &self.leaf.url(), lines)
    }

    /// `LEAFHOPPER_TEST_LOGIN=sidecar` has every sidecar of a bed run with that login.
    fn sidecars_url(&self) -> String {
        match std::env::var("LEAFHOPPER_TEST_LOGIN").as_deref() {
            Ok("sidecar") => self.database.sidecar_url(),
            _ => self.database.url.clone(),
        }
    }

    /// The same for a sidecar whose way to the database can be cut.
    pub(crate) async fn behind_a_proxy(&self, lines: &str) -> (Proxy, Config) {
        let way = Proxy::in_front_of(&self.database.url).await;
        let config = Config::new(&way.url(&self.sidecars_url()));
        (way, config.leaf("leaf", &self.leaf.url(), lines))
    }

    /// A running sidecar with that configuration.
    pub(crate) async fn sidecar(&self, lines: &str) -> Sidecar {
        self.config(lines).start().await
    }

    /// A sidecar that has one call at a time under way, with the first one at the leaf until the gate opens.
    pub(crate) async fn with_its_place_taken(&self) -> (Sidecar, Gate) {
        let gate = Gate::closed();
        let first = self.leaf.always().key("first");
        first.waits_before_the_effect(&gate).answers(201);
        let sidecar = self.sidecar("concurrency = 1").await;
        self.app.insert(keyed("leaf", "first")).await;
        gate.until_arrived(1).await;
        (sidecar, gate)
    }
}
