//! The storm's leaves: one server that behaves badly by chance, known by five names of different natures.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    leaf::{Delivery, Leaf, Remembers, Reply, Request, Rule},
    sidecar::Config,
};

/// Their names: asked by a probe; asked, and a second create is refused with 409; honours an idempotency key;
/// takes PUTs; tells nothing.
pub(super) const NAMES: [&str; 5] = ["asked", "unique", "keyed", "put", "parking"];

/// Calls whose number is a multiple of this are refused for good, and so are those whose key says so.
const REFUSED_EACH: u32 = 50;
pub(super) const REFUSED: &str = "refused";

/// Every leaf undoes what it did; a batch's name in the body is there for the ledger.
const COMPENSATE: &str = "compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\", \
                          body = { batch = \"{{ call.batch_id }}\" } }";

/// Above what an attempt's write and its effect can be late by: a stopped process (1.5 s), a stalled network
/// (0.7 s) and a leaf that takes its time (0.9 s), less the time limit of the attempt.
pub(super) const SETTLE: Duration = Duration::from_secs(4);

/// Of each leaf.
pub(super) const CONCURRENCY: u32 = 24;

pub(super) async fn start(mut chance: fastrand::Rng) -> Leaf {
    let leaf = Leaf::start().await;
    leaf.honours("Idempotency-Key", Remembers::Successes);
    leaf.chooses(move |request| choose(&mut chance, request));
    leaf
}

fn choose(chance: &mut fastrand::Rng, request: &Request) -> Option<Rule> {
    let rule = Rule::new();
    let late = Duration::from_millis(chance.u64(500..900));
    if request.method == "GET" {
        return match chance.u32(..100) {
            0..85 => None,
            85..90 => Some(rule.replies(500)),
            90..95 => Some(rule.delivers(Delivery::Reset)),
            _ => Some(rule.replies(404).delivers(Delivery::Hangs)),
        };
    }
    let number = request.key.rsplit(' ').next()?.parse::<u32>().ok()?;
    let undoes = request.method == "DELETE";
    let refused = number % REFUSED_EACH == 0 || request.key.split(' ').any(|word| word == REFUSED);
    let rule = match (refused, request.path.starts_with("/unique")) {
        (true, _) => rule
            .does_nothing()
            .replies(Reply::json(422, &json!({ "error": "no" }))),
        (false, true) => rule.unique(),
        (false, false) => rule,
    };
    Some(match chance.u32(..100) {
        0..60 if undoes => return None,
        0..60 => rule.takes(Duration::from_millis(chance.u64(0..4))),
        60..68 => rule.delivers(Delivery::Reset),
        68..72 => rule.delivers(Delivery::Closed),
        72..76 => rule.delivers(Delivery::Truncated),
        76..77 => rule.delivers(Delivery::StallsMidBody),
        77..80 => rule.delivers(Delivery::Hangs),
        80..83 => rule.takes(late),
        83..85 => rule.replies(500),
        85..89 => rule.does_nothing().delivers(Delivery::Reset),
        89..91 => rule.does_nothing().replies(500),
        91..97 => rule.does_nothing().replies(503),
        _ => rule
            .does_nothing()
            .replies(Reply::new(429).header("retry-after", "0")),
    })
}

/// What a sidecar is told of them.
pub(super) fn config(database_url: &str, leaf_url: &str) -> Config {
    let mut config = Config::new(database_url).dispatch("lease = \"1s\"");
    for name in NAMES {
        let lines = format!(
            "timeout = \"400ms\"\nconcurrency = {CONCURRENCY}\noutcome = {{ 503 = \"retry\" }}\n\
             retry = {{ initial = \"20ms\", max = \"200ms\", jitter = 0.5, max_attempts = 1000 }}\n{COMPENSATE}\n{}",
            match name {
                "unique" => "exists_on = [409]",
                "keyed" => "idempotency = { header = \"Idempotency-Key\", window = \"2h\" }",
                "parking" => "in_doubt = \"park\"",
                _ => "",
            }
        );
        config = config.leaf(name, &format!("{leaf_url}/{name}"), &lines);
        if matches!(name, "asked" | "unique") {
            let settle = format!("settle = \"{}s\"\nmax_probes = 1000", SETTLE.as_secs());
            config = config.probe(name, &settle);
        }
    }
    config
}
