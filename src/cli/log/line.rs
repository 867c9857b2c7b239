//! One event as one line. What comes from elsewhere (a leaf's words, a database's, a row's) can't break it, forge
//! another one, or reach a terminal as anything but text.

use std::{
    borrow::Cow,
    fmt::{Debug, Write as _},
};

use serde_json::Value;
use tracing::{
    Event, Level,
    field::{Field, Visit},
};
use tracing_log::NormalizeEvent as _;

use crate::present::text::{clean, clean_json};

/// What each line has. A field of an event that is named like one of these goes as `field.NAME`.
const OWN: [&str; 4] = ["timestamp", "level", "target", "message"];

/// An event, taken apart.
#[derive(Debug)]
pub(super) struct Line {
    level: Level,
    target: String,
    timestamp: String,
    message: String,
    fields: Vec<(Cow<'static, str>, Value)>,
}

impl Line {
    pub(super) fn of(event: &Event<'_>) -> Self {
        // What libraries say by the crate `log` has its target in a field.
        let normalized = event.normalized_metadata();
        let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
        let mut line = Self {
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            timestamp: format!("{:.6}", jiff::Timestamp::now()),
            message: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut line);
        line
    }

    /// `TIMESTAMP LEVEL TARGET: MESSAGE NAME=VALUE …`
    pub(super) fn text(&self, colours: bool) -> String {
        let mut text = format!("{} ", self.timestamp);
        // Writing to a String can't fail.
        let _ok = match (colours, self.level) {
            (true, Level::ERROR) => write!(text, "\u{1b}[31m{:>5}\u{1b}[0m", self.level.as_str()),
            (true, Level::WARN) => write!(text, "\u{1b}[33m{:>5}\u{1b}[0m", self.level.as_str()),
            _ => write!(text, "{:>5}", self.level.as_str()),
        };
        let _ok = write!(text, " {}: {}", self.target, clean(&self.message));
        for (name, value) in &self.fields {
            let _ok = match value {
                Value::String(word) if is_word(word) => write!(text, " {name}={word}"),
                value => write!(text, " {name}={}", clean_json(&value.to_string())),
            };
        }
        text
    }

    /// An object of these and the fields, in this order.
    pub(super) fn json(&self) -> String {
        let own = [
            self.timestamp.as_str(),
            self.level.as_str(),
            &self.target,
            &self.message,
        ];
        let own = OWN
            .into_iter()
            .zip(own)
            .map(|(name, value)| (name, Value::from(value)));
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| (name.as_ref(), value.clone()));
        let mut text = String::from("{");
        for (name, value) in own.chain(fields) {
            let comma = if text.len() > 1 { "," } else { "" };
            let _ok = write!(text, "{comma}{}:{value}", Value::from(name));
        }
        text.push('}');
        clean_json(&text)
    }

    fn add(&mut self, field: &Field, value: Value) {
        let mut name = Cow::Borrowed(field.name());
        if name.starts_with("log.") {
            return;
        }
        let taken =
            |name: &str| OWN.contains(&name) || self.fields.iter().any(|(known, _)| known == name);
        while taken(&name) {
            name = Cow::Owned(format!("field.{name}"));
        }
        self.fields.push((name, value));
    }
}

/// Reads like one, and needs no quotes.
fn is_word(text: &str) -> bool {
    let of_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@+".contains(&byte);
    !text.is_empty() && text.bytes().all(of_word)
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, Value::from(text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, Value::from(value));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::from(value));
    }

    /// What JSON has no number for goes as text.
    fn record_f64(&mut self, field: &Field, value: f64) {
        let number = serde_json::Number::from_f64(value);
        let value = number.map_or_else(|| Value::from(value.to_string()), Value::from);
        self.add(field, value);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Subscriber;
    use tracing_subscriber::{
        Layer, Registry,
        layer::{Context, SubscriberExt as _},
    };

    use super::*;

    /// Keeps text and JSON of each event.
    #[derive(Default, Clone)]
    struct Kept(Arc<Mutex<Vec<(String, String)>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            let line = Line::of(event);
            let mut lines = self.0.lock().unwrap();
            lines.push((line.text(false), line.json()));
        }
    }

    /// Text and JSON of the one event that comes of it.
    pub(in super::super) fn lines(says: impl FnOnce()) -> (String, String) {
        let kept = Kept::default();
        tracing::subscriber::with_default(Registry::default().with(kept.clone()), says);
        let mut lines = kept.0.lock().unwrap();
        assert_eq!(lines.len(), 1);
        lines.remove(0)
    }

    #[test]
    fn an_event_is_a_line_of_each_format() {
        let (text, json) = lines(|| {
            tracing::warn!(
                call.id = 7_i64,
                call.leaf = "git",
                call.reason = None::<&str>,
                weak = true,
                seconds = 0.5,
                endless = f64::INFINITY,
                "call {} is parked",
                7
            );
        });
        let (time, rest) = text.split_once(' ').unwrap();
        assert_eq!(
            rest,
            " WARN leafhopper::cli::log::line::tests: call 7 is parked call.id=7 call.leaf=git weak=true \
             seconds=0.5 endless=inf"
        );
        let parsed: serde_json::Map<String, Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed.len(), 9, "{json}");
        for (name, value) in [
            ("level", Value::from("WARN")),
            ("target", Value::from("leafhopper::cli::log::line::tests")),
            ("message", Value::from("call 7 is parked")),
            ("call.id", Value::from(7)),
            ("call.leaf", Value::from("git")),
            ("weak", Value::from(true)),
            ("seconds", Value::from(0.5)),
            ("endless", Value::from("inf")),
        ] {
            assert_eq!(parsed[name], value, "{name}: {json}");
        }
        for time in [time, parsed["timestamp"].as_str().unwrap()] {
            assert_eq!(time.len(), "2026-01-01T00:00:00.000000Z".len(), "{time}");
            let parsed: jiff::Timestamp = time.parse().unwrap();
            let age = jiff::Timestamp::now().duration_since(parsed);
            assert!(age.as_secs() < 60 && time.ends_with('Z'), "{time}");
        }
    }

    #[test]
    fn nothing_in_an_event_makes_another_line_or_moves_a_cursor() {
        let evil = "a\nERROR forged\r\n{\"level\":\"ERROR\"}\u{1b}[2J\u{9b}31m\u{2028}\u{202e}\u{7}\0\"\\ b=c";
        let (text, json) = lines(|| {
            tracing::info!(call.leaf = evil, shown = %evil, debugged = ?evil, "{evil}");
        });
        for line in [&text, &json] {
            let harmful = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}');
            assert!(!line.contains(harmful), "{line:?}");
        }
        assert!(!text.contains(" b=c\" b=c"), "{text}");
        let parsed: serde_json::Map<String, Value> = serde_json::from_str(&json).unwrap();
        for name in ["message", "call.leaf", "shown"] {
            assert_eq!(parsed[name], evil, "{json}");
        }
    }

    #[test]
    fn a_field_never_takes_the_place_of_another_one() {
        let (_, json) = lines(|| {
            tracing::info!(
                level = "ERROR",
                target = 1,
                timestamp = "never",
                field.level = "twice",
                "said"
            );
        });
        let parsed: serde_json::Map<String, Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["level"], "INFO");
        assert_eq!(parsed["message"], "said");
        assert_eq!(parsed["field.level"], "ERROR");
        assert_eq!(parsed["field.field.level"], "twice");
        assert_eq!(parsed["field.timestamp"], "never");
        assert_eq!(json.matches("\"level\"").count(), 1, "{json}");
    }
}
