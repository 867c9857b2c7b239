//! What the demo's leaves know: their resources, and the ledger of what they were asked to do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::wire::{Answer, Request};

/// All that the three leaves know. An effect is called `leaf description`.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By path.
    resources: BTreeMap<String, Value>,
    /// The effect of each resource that was ever created.
    created: Vec<String>,
    /// POSTs by effect.
    sent: BTreeMap<String, u32>,
    /// GETs by path.
    asked: BTreeMap<String, u32>,
    /// The paths that `/pay` created, by idempotency key.
    remembered: BTreeMap<String, String>,
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

    /// How often each effect exists.
    pub(super) fn effects(&self) -> BTreeMap<String, usize> {
        let mut effects = BTreeMap::new();
        for effect in &self.created {
            *effects.entry(effect.clone()).or_default() += 1;
        }
        effects
    }

    /// Notes that this POST has arrived; gives how many of its effect have.
    pub(super) fn note(&mut self, request: &Request) -> u32 {
        let times = self.sent.entry(effect(request)).or_default();
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
        let key = key.filter(|_| leaf(request) == "pay");
        if let Some(path) = key.and_then(|key| self.remembered.get(key)) {
            return made(path, &self.resources[path]);
        }
        let name = request.body["name"].as_str().unwrap_or_default();
        let collection = request.path.as_str();
        let number = self.number_after(collection);
        let path = match collection {
            "/git/repos" if is_plain(name) => format!("/git/repos/{name}"),
            "/git/repos" => return error("422 Unprocessable Content", "a plain `name` is needed"),
            "/pay/charges" | "/host/sites" | "/host/domains" => format!("{collection}/{number}"),
            _ => return error("404 Not Found", "nothing can be created here"),
        };
        if self.resources.contains_key(&path) {
            return error("409 Conflict", "the name is taken");
        }
        let mut resource = request.body.clone();
        if let Some(fields) = resource.as_object_mut() {
            fields.remove("then");
            fields.insert("id".to_owned(), json!(number));
        }
        self.created.push(effect(request));
        if let Some(key) = key {
            self.remembered.insert(key.clone(), path.clone());
        }
        let answer = made(&path, &resource);
        self.resources.insert(path, resource);
        answer
    }

    /// The next free number in a collection; nothing is ever deleted.
    fn number_after(&self, collection: &str) -> usize {
        let paths = self.resources.keys();
        let members =
            paths.filter(|path| path.rsplit_once('/').is_some_and(|(c, _)| c == collection));
        members.count() + 1
    }
}

fn made(path: &str, resource: &Value) -> Answer {
    Answer::new("201 Created", resource.clone()).with(&format!("location: {path}"))
}

fn leaf(request: &Request) -> &str {
    request.path.split('/').nth(1).unwrap_or_default()
}

fn effect(request: &Request) -> String {
    let description = request.body["description"].as_str().unwrap_or_default();
    format!("{} {description}", leaf(request))
}

/// Whether git hosts would take it as a name: it stands in paths.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.chars().all(plain)
}
