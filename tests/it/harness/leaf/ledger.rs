//! What a leaf was asked, and what it did.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use tokio::time::Instant;

use super::{Reply, script::Remembers};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// From 1, in the order in which they were read completely.
    pub(crate) number: usize,
    /// As sent.
    pub(crate) method: String,
    /// As sent, with the query.
    pub(crate) path: String,
    /// Names in lower case, in the order of the wire.
    pub(crate) headers: Vec<(String, String)>,
    /// As sent; empty where the script did not read it.
    pub(crate) body: Vec<u8>,
    /// What the request is about: `/effects/KEY`, `X-Effect-Key`, the body's `key`, or `Idempotency-Key`.
    pub(crate) key: String,
    /// When it had arrived.
    pub(crate) at: Instant,
    /// Whether it had an effect.
    pub(crate) executed: bool,
    /// Whether its answer was another request's.
    pub(crate) replayed: bool,
    /// Whether an answer was written to its end.
    pub(crate) answered: bool,
}

impl Request {
    /// A header's value, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn with_key(mut self) -> Self {
        let body = || {
            serde_json::from_slice::<Value>(&self.body)
                .ok()?
                .get("key")
                .cloned()
        };
        let key = effect_in_path(&self.path)
            .or_else(|| self.header("x-effect-key").map(str::to_owned))
            .or_else(|| body().and_then(|key| key.as_str().map(str::to_owned)))
            .or_else(|| self.header("idempotency-key").map(str::to_owned));
        self.key = key.unwrap_or_default();
        self
    }
}

/// The key in `/effects/KEY`.
pub(super) fn effect_in_path(path: &str) -> Option<String> {
    let path = path.split('?').next().unwrap_or(path);
    let segment = path.rsplit_once("/effects/")?.1;
    let mut bytes = segment.bytes();
    let mut key = Vec::new();
    while let Some(byte) = bytes.next() {
        let hex = |byte: Option<u8>| char::from(byte?).to_digit(16);
        key.push(match byte {
            b'%' => u8::try_from(hex(bytes.next())? * 16 + hex(bytes.next())?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(key).ok()
}

/// Quick in every question that a request asks: a storm has many thousands of them.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) requests: Vec<Request>,
    effects: HashMap<String, Vec<Effect>>,
    last_effect: usize,
    /// First answers, by the idempotency header's value.
    remembered: HashMap<String, Reply>,
    in_work: HashMap<String, usize>,
    in_work_in_all: usize,
    most_in_work: HashMap<String, usize>,
    most_in_work_in_all: usize,
}

struct Effect {
    number: usize,
    undone: bool,
}

/// What came of a request that was to be executed.
pub(super) enum Executed {
    /// It was, for the first time, with this number of the effect.
    Now(usize),
    /// Its value of the idempotency header is known; this was the first answer.
    Before(Reply),
}

impl Ledger {
    pub(super) fn arrived(&mut self, mut request: Request) -> usize {
        request.number = self.requests.len() + 1;
        let number = request.number;
        let in_work = self.in_work.entry(request.key.clone()).or_default();
        *in_work += 1;
        let most = self.most_in_work.entry(request.key.clone()).or_default();
        *most = (*most).max(*in_work);
        self.in_work_in_all += 1;
        self.most_in_work_in_all = self.most_in_work_in_all.max(self.in_work_in_all);
        self.requests.push(request);
        number
    }

    /// The leaf is done with it, whatever became of the answer.
    pub(super) fn done(&mut self, number: usize) {
        let key = &self.requests[number - 1].key;
        if let Some(in_work) = self.in_work.get_mut(key) {
            *in_work -= 1;
            self.in_work_in_all -= 1;
        }
    }

    pub(super) fn execute(&mut self, key: &str) -> usize {
        self.last_effect += 1;
        let effect = Effect {
            number: self.last_effect,
            undone: false,
        };
        self.effects.entry(key.to_owned()).or_default().push(effect);
        self.last_effect
    }

    pub(super) fn undo(&mut self, key: &str) -> bool {
        let effects = self.effects.get_mut(key).into_iter().flatten();
        let standing = effects.rev().find(|effect| !effect.undone);
        standing.map(|effect| effect.undone = true).is_some()
    }

    /// Undoes the effect unless the request's idempotency header is known, and remembers that it did.
    pub(super) fn undo_once(
        &mut self,
        number: usize,
        idempotency: Option<&(String, Remembers)>,
        key: &str,
        reply: impl FnOnce(bool) -> Reply,
    ) -> Reply {
        let request = &self.requests[number - 1];
        let value = idempotency
            .and_then(|(header, _)| request.header(header))
            .map(str::to_owned);
        if let Some(first) = value.as_ref().and_then(|value| self.remembered.get(value)) {
            self.requests[number - 1].replayed = true;
            return first.clone();
        }
        let undone = self.undo(key);
        self.requests[number - 1].executed = undone;
        if undone {
            self.remember(value, Reply::new(204));
        }
        reply(undone)
    }

    /// Executes the request unless its idempotency header is known, and remembers the answer.
    pub(super) fn execute_once(
        &mut self,
        number: usize,
        idempotency: Option<&(String, Remembers)>,
        reply: impl FnOnce(usize) -> Reply,
    ) -> Executed {
        let request = &self.requests[number - 1];
        let value = idempotency
            .and_then(|(header, _)| request.header(header))
            .map(str::to_owned);
        if let Some(first) = value.as_ref().and_then(|value| self.remembered.get(value)) {
            self.requests[number - 1].replayed = true;
            return Executed::Before(first.clone());
        }
        let key = request.key.clone();
        if request.method == "PUT" {
            // It takes the place of what is there.
            while self.undo(&key) {}
        }
        let effect = self.execute(&key);
        self.requests[number - 1].executed = true;
        // What was executed is remembered as that, also where its first answer came from a broken proxy.
        let reply = reply(effect);
        let success = (200..300).contains(&reply.status);
        let remembers = idempotency.map(|(_, remembers)| *remembers);
        let reply = match remembers {
            Some(Remembers::Successes) if !success => Reply::new(201),
            _ => reply,
        };
        self.remember(value, reply);
        Executed::Now(effect)
    }

    /// A refusal is remembered only by a leaf that replays everything.
    pub(super) fn refuse_once(
        &mut self,
        number: usize,
        idempotency: Option<&(String, Remembers)>,
        reply: Reply,
    ) -> Option<Reply> {
        let request = &self.requests[number - 1];
        let value = idempotency
            .and_then(|(header, _)| request.header(header))
            .map(str::to_owned);
        if let Some(first) = value.as_ref().and_then(|value| self.remembered.get(value)) {
            self.requests[number - 1].replayed = true;
            return Some(first.clone());
        }
        if idempotency.is_some_and(|(_, remembers)| *remembers == Remembers::All) {
            self.remember(value, reply);
        }
        None
    }

    fn remember(&mut self, value: Option<String>, reply: Reply) {
        if let Some(value) = value {
            self.remembered.insert(value, reply);
        }
    }

    pub(super) fn effects(&self, key: &str) -> usize {
        self.effects.get(key).map_or(0, Vec::len)
    }

    pub(super) fn standing(&self, key: &str) -> usize {
        self.standing_of(key).count()
    }

    pub(super) fn standing_number(&self, key: &str) -> Option<usize> {
        self.standing_of(key).last().map(|effect| effect.number)
    }

    fn standing_of(&self, key: &str) -> impl Iterator<Item = &Effect> {
        self.effects
            .get(key)
            .into_iter()
            .flatten()
            .filter(|effect| !effect.undone)
    }

    pub(super) fn all_effects(&self) -> BTreeMap<String, usize> {
        self.effects
            .iter()
            .map(|(key, effects)| (key.clone(), effects.len()))
            .collect()
    }

    pub(super) fn most_at_once(&self, key: Option<&str>) -> usize {
        key.map_or(self.most_in_work_in_all, |key| {
            self.most_in_work.get(key).copied().unwrap_or_default()
        })
    }
}
