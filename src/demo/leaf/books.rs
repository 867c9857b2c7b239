//! What the demo's leaves know: their resources, and the ledger of what they were asked to do.

use std::{collections::BTreeMap, net::Ipv4Addr};

use serde_json::{Value, json};

use super::wire::{Answer, Request};

/// The leaves that know a request again by its idempotency key.
const REMEMBER: &[&str] = &["pay", "mail"];

/// All that the leaves know. An effect is called `leaf description`.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By path.
    resources: BTreeMap<String, Value>,
    /// The last number that each collection has given.
    numbers: BTreeMap<String, usize>,
    /// POSTs and PUTs by effect.
    sent: BTreeMap<String, u32>,
    /// The idempotency keys that came with them, each once, in the order of their arrival.
    keys: BTreeMap<String, Vec<String>>,
    /// GETs by path.
    asked: BTreeMap<String, u32>,
    /// The paths of what was deleted, in that order.
    deleted: Vec<String>,
    /// What was answered to an idempotency key: the path and the resource, as it was then.
    remembered: BTreeMap<String, (String, Value)>,
}

pub(super) fn error(status: &'static str, why: &str) -> Answer {
    Answer::new(status, json!({ "error": why }))
}

impl Books {
    pub(super) fn sent(&self, effect: &str) -> u32 {
        self.sent.get(effect).copied().unwrap_or_default()
    }

    pub(super) fn asked(&self, path: &str) -> u32 {
        self.asked.get(path).copied().unwrap_or_default()
    }

    pub(super) fn keys(&self, effect: &str) -> Vec<String> {
        self.keys.get(effect).cloned().unwrap_or_default()
    }

    pub(super) fn deleted(&self) -> Vec<String> {
        self.deleted.clone()
    }

    /// How often each effect exists, by now.
    pub(super) fn effects(&self) -> BTreeMap<String, usize> {
        let mut effects = BTreeMap::new();
        for (path, resource) in &self.resources {
            *effects.entry(named(path, resource)).or_default() += 1;
        }
        effects
    }

    /// Notes that this POST or PUT has arrived; gives how many of its effect have.
    pub(super) fn note(&mut self, request: &Request) -> u32 {
        let effect = request.effect();
        if let Some(key) = &request.idempotency_key {
            let keys = self.keys.entry(effect.clone()).or_default();
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        let times = self.sent.entry(effect).or_default();
        *times += 1;
        *times
    }

    /// Answers a GET, and counts it.
    pub(super) fn show(&mut self, path: &str) -> Answer {
        *self.asked.entry(path.to_owned()).or_default() += 1;
        match self.resources.get(path) {
            Some(resource) => Answer::new("200 OK", resource.clone()),
            None => error("404 Not Found", "there is nothing"),
        }
    }

    /// Answers a POST: creates the resource, unless this leaf has it, or remembers the key, or wants no such thing.
    pub(super) fn create(&mut self, request: &Request) -> Answer {
        let key = request.idempotency_key.as_ref();
        let key = key.filter(|_| REMEMBER.contains(&leaf(&request.path)));
        if let Some((path, resource)) = key.and_then(|key| self.remembered.get(key)) {
            return made(path, resource);
        }
        let name = request.body["name"].as_str().unwrap_or_default();
        let collection = request.path.as_str();
        let number = self.numbers.get(collection).copied().unwrap_or_default() + 1;
        let path = match collection {
            "/git/repos" if is_plain(name) => format!("/git/repos/{name}"),
            "/git/repos" => return error("422 Unprocessable Content", "a plain `name` is needed"),
            "/pay/charges" | "/host/sites" | "/host/domains" | "/mail/messages" => {
                format!("{collection}/{number}")
            }
            _ => return error("404 Not Found", "nothing can be created here"),
        };
        if self.resources.contains_key(&path) {
            return error("409 Conflict", "the name is taken");
        }
        let mut resource = stored(request);
        if let Some(fields) = resource.as_object_mut() {
            fields.insert("id".to_owned(), json!(number));
        }
        self.numbers.insert(collection.to_owned(), number);
        if let Some(key) = key {
            let answer = (path.clone(), resource.clone());
            self.remembered.insert(key.clone(), answer);
        }
        let answer = made(&path, &resource);
        self.resources.insert(path, resource);
        answer
    }

    /// Answers a PUT: the record of this name is what the body says from now on.
    pub(super) fn put(&mut self, request: &Request) -> Answer {
        let path = request.path.as_str();
        let name = path.strip_prefix("/dns/records/").unwrap_or_default();
        if !is_plain(name) {
            return error("404 Not Found", "nothing can be put here");
        }
        let address = request.body["address"].as_str().unwrap_or_default();
        if address.parse::<Ipv4Addr>().is_err() {
            return error("422 Unprocessable Content", "`address` is no IPv4 address");
        }
        let resource = stored(request);
        self.resources.insert(path.to_owned(), resource.clone());
        Answer::new("200 OK", resource)
    }

    /// Answers a DELETE with what there was.
    pub(super) fn delete(&mut self, path: &str) -> Answer {
        let Some(resource) = self.resources.remove(path) else {
            return error("404 Not Found", "there is nothing");
        };
        self.deleted.push(path.to_owned());
        Answer::new("200 OK", resource)
    }
}

/// What is kept of a request's body.
fn stored(request: &Request) -> Value {
    let mut resource = request.body.clone();
    if let Some(fields) = resource.as_object_mut() {
        fields.remove("then");
    }
    resource
}

fn made(path: &str, resource: &Value) -> Answer {
    Answer::new("201 Created", resource.clone()).with(&format!("location: {path}"))
}

fn leaf(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// What this effect is called.
fn named(path: &str, body: &Value) -> String {
    let description = body["description"].as_str().unwrap_or_default();
    format!("{} {description}", leaf(path))
}

impl Request {
    /// What its effect is called.
    pub(super) fn effect(&self) -> String {
        named(&self.path, &self.body)
    }
}

/// Whether git hosts would take it as a name: it stands in paths.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.chars().all(plain)
}
