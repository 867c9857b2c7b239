//! Leaves that nobody here wrote: servers from `PyPI`, npm and Debian, configured as a user would (`tests/leaves/*.toml`).
//!
//! `make leaves` installs and runs them. Each is asked to create things, loses its answers, is not reached, has its
//! sidecar killed; in the end it is asked directly what it has, and that is compared with the results.

mod caldav;
mod cloud;
mod rest;
mod server;
mod storm;
mod story;
mod webdav;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{
    app::{App, Call, literal},
    database::Database,
    proxy::Proxy,
    sidecar::{Config, Sidecar},
};
use server::Server;

/// The key of a thing that was not made for a call.
const SOMEBODY_ELSE: &str = "somebody-else";

/// What the configurations take from the environment.
const SECRETS: [(&str, &str); 3] = [
    ("EKS_AUTHORIZATION", cloud::EKS),
    ("IAM_AUTHORIZATION", cloud::IAM),
    ("RADICALE_PASSWORD", "leafhopper"),
];

/// A kind of leaf, as its users know it.
trait OthersLeaf: Sized {
    /// Its name in the configuration.
    const NAME: &'static str;

    /// What a user writes; the url in it is the one that its manual names.
    const TOML: &'static str;

    /// That url.
    const URL: &'static str;

    /// Whether a call in doubt is sent again instead of asked about.
    const RESENDS: bool = false;

    /// What a create does under a name that somebody else has taken.
    const TAKEN: Taken;

    /// Runs, and is empty.
    async fn start() -> Self;

    /// Its process.
    fn server(&self) -> &Server;

    /// The row that creates the thing of that key.
    fn call(key: &str) -> Call;

    /// Creates somebody else's thing under the name that the key's call will choose.
    async fn has_theirs(&self, key: &str);

    /// What it has, as it says itself: for each key whatever tells one thing from another, of each thing.
    async fn things(&self) -> BTreeMap<String, Vec<String>>;

    /// The same of the thing that a result speaks of.
    fn thing(result: &Value) -> String;

    /// How many requests to create something its log tells of.
    fn creates(&self) -> usize;
}

/// What becomes of a call whose name somebody else has taken.
#[derive(Debug, Clone, Copy)]
enum Taken {
    /// Names don't matter: it makes another thing.
    Another,
    /// It replaces the thing.
    Replaced,
    /// The leaf refuses, and that is a no.
    No,
    /// The leaf refuses with this status, and is asked whose it is.
    Asked(u16),
}

/// A leaf with its database, its application, and a network that can fail between it and the sidecars.
struct Scene<L> {
    app: App,
    way: Proxy,
    leaf: L,
    config: Config,
    /// Last, so that it goes last.
    _database: Database,
}

impl<L: OthersLeaf> Scene<L> {
    async fn new() -> Self {
        Self::configured(L::TOML).await
    }

    async fn configured(toml: &str) -> Self {
        let (database, leaf) = tokio::join!(Database::new(), L::start());
        let app = App::connect(&database.url).await;
        let url = leaf.server().url().to_owned();
        let way = Proxy::in_front_of(&url).await;
        assert!(toml.contains(L::URL), "{toml}");
        let config = Config::new(&database.url)
            .dispatch("lease = \"1s\"")
            .toml("[retry]\ninitial = \"100ms\"\nmax = \"2s\"")
            .toml(&toml.replace(L::URL, &way.url(&url)));
        Self {
            app,
            way,
            leaf,
            config,
            _database: database,
        }
    }

    async fn sidecar(&self) -> Sidecar {
        let starter = SECRETS
            .iter()
            .fold(self.config.sidecar(), |starter, (name, value)| {
                starter.environment(name, value)
            });
        starter.start().await
    }

    /// What stands for each key, with the whole answer as text where it is no JSON.
    async fn results(&self) -> Vec<Value> {
        let leaf = literal(L::NAME);
        self.app
            .rows(&format!(
                "SELECT key, source, weak, status, headers, body, convert_from(body_raw, 'UTF8') AS text \
                   FROM leafhopper.result WHERE leaf = {leaf} AND undone_at IS NULL ORDER BY key"
            ))
            .await
    }

    /// The leaf has exactly one thing for each of these keys, and the results speak of exactly those.
    async fn assert_each_once(&self, keys: &[&str]) {
        self.assert_each_once_beside(keys, 0).await;
    }

    /// The same of a leaf that has so many of somebody else's things, too.
    async fn assert_each_once_beside(&self, keys: &[&str], others: usize) {
        let mut things = self.leaf.things().await;
        let of_others = things.remove(SOMEBODY_ELSE).unwrap_or_default();
        assert_eq!(of_others.len(), others, "{of_others:?}");
        let results = self.results().await;
        let spoken_of = results.iter().map(|result| {
            let key = result["key"].as_str().unwrap().to_owned();
            (key, vec![L::thing(result)])
        });
        assert_eq!(
            spoken_of.collect::<BTreeMap<_, _>>(),
            things,
            "{results:#?}"
        );
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        assert_eq!(things.keys().collect::<Vec<_>>(), keys);
    }

    /// Where a key's result comes from.
    async fn source(&self, key: &str) -> String {
        let results = self.app.results(L::NAME, key).await;
        assert_eq!(results.len(), 1, "{results:#?}");
        assert_eq!(results[0]["weak"], false, "{results:#?}");
        results[0]["source"].as_str().unwrap().to_owned()
    }
}
