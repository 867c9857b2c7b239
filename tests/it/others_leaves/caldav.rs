//! Radicale, from `PyPI`: a calendar whose events are PUT, again and again, or only where there is none yet.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    OthersLeaf, SOMEBODY_ELSE, Taken,
    server::{Server, python},
};
use crate::harness::app::{Call, call};

const TOML: &str = include_str!("../../leaves/radicale.toml");
const URL: &str = "http://127.0.0.1:5232";
const CALENDAR: &str = "text/calendar";

const CONFIG: &str = "[server]\nhosts = 127.0.0.1:PORT\n\
    [auth]\ntype = htpasswd\nhtpasswd_filename = HERE/users\nhtpasswd_encryption = plain\ndelay = 0\n\
    [storage]\nfilesystem_folder = HERE/data\n\
    [logging]\nlevel = info\n";

/// It runs, and Ann has a calendar.
async fn start() -> Server {
    let words = python(&["-m", "radicale", "--config", "config"]);
    let files = [("config", CONFIG), ("users", "ann:leafhopper\n")];
    let server = Server::start(&words, &files).await;
    let server = server.authorized("Basic YW5uOmxlYWZob3BwZXI=");
    let (status, text) = server.ask("MKCALENDAR", "/ann/calendar/", None).await;
    assert_eq!(status, 201, "{text}");
    server
}

fn event(uid: &str) -> String {
    format!(
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//leafhopper//tests//EN\r\nBEGIN:VEVENT\r\nUID:{uid}\r\n\
         DTSTAMP:20260101T000000Z\r\nDTSTART:20260102T100000Z\r\nSUMMARY:A meeting\r\nEND:VEVENT\r\n\
         END:VCALENDAR\r\n"
    )
}

fn path(key: &str) -> String {
    format!("/ann/calendar/event-{key}.ics")
}

fn put(leaf: &str, key: &str) -> Call {
    call(leaf)
        .key(key)
        .method("PUT")
        .path(&path(key))
        .body_raw(CALENDAR, &event(key))
}

async fn has_theirs(server: &Server, key: &str) {
    let body = Some((CALENDAR, event(SOMEBODY_ELSE)));
    let (status, text) = server.ask("PUT", &path(key), body).await;
    assert_eq!(status, 201, "{text}");
}

/// The UIDs of the whole calendar; PUT can't make two of one.
async fn things(server: &Server) -> BTreeMap<String, Vec<String>> {
    let mut things: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let calendar = server.text("/ann/calendar/").await;
    for uid in calendar
        .lines()
        .filter_map(|line| line.strip_prefix("UID:"))
    {
        things
            .entry(uid.to_owned())
            .or_default()
            .push(uid.to_owned());
    }
    things
}

/// The answer to a PUT has no body; that of the question is the event.
fn thing(result: &Value) -> String {
    let key = result["key"].as_str().unwrap();
    assert!(result["headers"]["etag"].is_string(), "{result}");
    if let Some(text) = result["text"].as_str() {
        assert!(text.contains(&format!("UID:{key}\r\n")), "{result}");
    }
    key.to_owned()
}

fn creates(server: &Server) -> usize {
    server.told_of("PUT request for")
}

/// PUT, whatever is there.
pub(super) struct Events(Server);

impl OthersLeaf for Events {
    const NAME: &'static str = "events";
    const TOML: &'static str = TOML;
    const URL: &'static str = URL;
    const RESENDS: bool = true;
    const TAKEN: Taken = Taken::No;

    async fn start() -> Self {
        Self(start().await)
    }

    fn server(&self) -> &Server {
        &self.0
    }

    fn call(key: &str) -> Call {
        put(Self::NAME, key)
    }

    async fn has_theirs(&self, key: &str) {
        has_theirs(&self.0, key).await;
    }

    async fn things(&self) -> BTreeMap<String, Vec<String>> {
        things(&self.0).await
    }

    fn thing(result: &Value) -> String {
        thing(result)
    }

    fn creates(&self) -> usize {
        creates(&self.0)
    }
}

/// PUT, where there is nothing.
pub(super) struct NewEvents(Server);

impl OthersLeaf for NewEvents {
    const NAME: &'static str = "new_events";
    const TOML: &'static str = TOML;
    const URL: &'static str = URL;
    const TAKEN: Taken = Taken::Asked(412);

    async fn start() -> Self {
        Self(start().await)
    }

    fn server(&self) -> &Server {
        &self.0
    }

    fn call(key: &str) -> Call {
        put(Self::NAME, key).set("headers", json!({ "If-None-Match": "*" }))
    }

    async fn has_theirs(&self, key: &str) {
        has_theirs(&self.0, key).await;
    }

    async fn things(&self) -> BTreeMap<String, Vec<String>> {
        things(&self.0).await
    }

    fn thing(result: &Value) -> String {
        thing(result)
    }

    fn creates(&self) -> usize {
        creates(&self.0)
    }
}
