//! json-server, from npm: a REST server that gives each POST a new id, and can be searched.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    OthersLeaf, SOMEBODY_ELSE, Taken,
    server::{Server, node},
};
use crate::harness::app::{Call, call};

const TOML: &str = include_str!("../../leaves/json-server.toml");
const URL: &str = "http://127.0.0.1:3000";
const JSON: &str = "application/json";

async fn start() -> Server {
    let words = node(
        "json-server/lib/cli/bin.js",
        &["--host", "127.0.0.1", "--port", "PORT", "data.json"],
    );
    Server::start(&words, &[("data.json", "{\"items\": []}")]).await
}

async fn things(server: &Server) -> BTreeMap<String, Vec<String>> {
    let mut things: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for item in server.json("/items").await.as_array().unwrap() {
        let key = item["key"].as_str().unwrap_or(SOMEBODY_ELSE).to_owned();
        things.entry(key).or_default().push(item["id"].to_string());
    }
    things
}

/// The server chooses the id.
pub(super) struct Items(Server);

impl OthersLeaf for Items {
    const NAME: &'static str = "items";
    const TOML: &'static str = TOML;
    const URL: &'static str = URL;
    const TAKEN: Taken = Taken::Another;

    async fn start() -> Self {
        Self(start().await)
    }

    fn server(&self) -> &Server {
        &self.0
    }

    fn call(key: &str) -> Call {
        call(Self::NAME)
            .key(key)
            .path("/items")
            .body(json!({ "key": key, "name": "a thing" }))
    }

    async fn has_theirs(&self, _key: &str) {
        let body = json!({ "name": "a thing" }).to_string();
        let (status, _) = self.0.ask("POST", "/items", Some((JSON, body))).await;
        assert_eq!(status, 201);
    }

    async fn things(&self) -> BTreeMap<String, Vec<String>> {
        things(&self.0).await
    }

    fn thing(result: &Value) -> String {
        result["body"]["id"].to_string()
    }

    fn creates(&self) -> usize {
        self.0.told_of("POST /items")
    }
}

/// The row chooses it.
pub(super) struct NamedItems(Server);

impl OthersLeaf for NamedItems {
    const NAME: &'static str = "named_items";
    const TOML: &'static str = TOML;
    const URL: &'static str = URL;
    const TAKEN: Taken = Taken::Asked(500);

    async fn start() -> Self {
        Self(start().await)
    }

    fn server(&self) -> &Server {
        &self.0
    }

    fn call(key: &str) -> Call {
        call(Self::NAME)
            .key(key)
            .path("/items")
            .body(json!({ "id": format!("item-{key}"), "key": key }))
    }

    async fn has_theirs(&self, key: &str) {
        let body = json!({ "id": format!("item-{key}") }).to_string();
        let (status, _) = self.0.ask("POST", "/items", Some((JSON, body))).await;
        assert_eq!(status, 201);
    }

    async fn things(&self) -> BTreeMap<String, Vec<String>> {
        things(&self.0).await
    }

    fn thing(result: &Value) -> String {
        result["body"]["id"].to_string()
    }

    fn creates(&self) -> usize {
        self.0.told_of("POST /items")
    }
}
