//! Content of rows as text for people: ages, numbers, cut and made harmless.
//!
//! Rows hold what an app or a leaf wrote. Nothing of it reaches a terminal as a control character: an effect
//! key with an escape sequence in it must not move the cursor, rename the window or forge a line.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::value::RawValue;
use uuid::Uuid;

/// Changes how a line is laid out or read, without being a control character.
fn is_layout(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Content of a row, harmless on a terminal.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => clean.push_str("\\n"),
            '\r' => clean.push_str("\\r"),
            '\t' => clean.push_str("\\t"),
            c if c.is_control() || is_layout(c) => {
                // Writing to a String can't fail.
                let _ok = write!(clean, "\\u{{{:x}}}", u32::from(c));
            }
            c => clean.push(c),
        }
    }
    clean
}

/// JSON text, harmless on a terminal and still the same JSON: what PostgreSQL leaves unescaped can only be
/// inside a string.
pub(crate) fn clean_json(json: &str) -> String {
    if !json.chars().any(|c| c.is_control() || is_layout(c)) {
        return json.to_owned();
    }
    let mut clean = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if (c.is_control() && c != '\n') || is_layout(c) {
            let _ok = write!(clean, "\\u{:04x}", u32::from(c));
        } else {
            clean.push(c);
        }
    }
    clean
}

/// The text with the value of each `{name}`. What rows hold is not looked at again.
pub(crate) fn fill(text: &str, value: impl Fn(&str) -> String) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut parts = text.split('{');
    filled.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        filled.push_str(&value(name));
        filled.push_str(rest);
    }
    filled
}

/// At most `max` characters, with a sign where it was cut.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A span of time by its two largest units.
pub(crate) fn age(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and what is negative by a stepped clock counts as none"
    )]
    let total = seconds as u64;
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let first = units.iter().position(|(_, size)| total >= *size);
    let Some(first) = first else {
        return "0s".to_owned();
    };
    let mut rest = total;
    let mut parts = Vec::new();
    for (name, size) in units.iter().skip(first).take(2) {
        if rest / size > 0 {
            parts.push(format!("{}{name}", rest / size));
        }
        rest %= size;
    }
    parts.join(" ")
}

/// That a call is not there; `pruned`: it may have been.
pub(crate) fn no_call(id: i64, pruned: bool) -> String {
    if pruned {
        format!(
            "there is no call {id} any more, or there never was: what has ended is kept for as long as [retention] \
             says, and calls of that time were pruned. A confirmation is in leafhopper.result"
        )
    } else {
        format!("there is no call {id}")
    }
}

/// That a batch is not there.
pub(crate) fn no_batch(id: Uuid) -> String {
    format!("there is no batch {id}; what has ended is kept for as long as [retention] says")
}

/// `1 call`, `2 calls`
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The fields of a JSON object, each as its text: numbers are not read, so they can't change.
#[derive(Debug, Default)]
pub(crate) struct Fields(BTreeMap<String, Box<RawValue>>);

impl Fields {
    /// Reads an object; `None` where it is none.
    pub(crate) fn read(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok().map(Self)
    }

    /// Those of an object that was read before.
    pub(crate) fn of(object: BTreeMap<String, Box<RawValue>>) -> Self {
        Self(object)
    }

    /// Reads an array of objects.
    pub(crate) fn read_all(json: &str) -> Vec<Self> {
        let all: Vec<BTreeMap<String, Box<RawValue>>> =
            serde_json::from_str(json).unwrap_or_default();
        all.into_iter().map(Self).collect()
    }

    /// The field for people: a string without its quotes, all else as it is written; `None` for null.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let raw = self.0.get(name)?.get();
        if raw == "null" {
            None
        } else if raw.starts_with('"') {
            serde_json::from_str(raw).ok()
        } else {
            Some(raw.to_owned())
        }
    }

    /// The field as it is written; `None` for null.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        let raw = self.0.get(name)?.get();
        (raw != "null").then_some(raw)
    }

    /// The field for people, or nothing.
    pub(crate) fn cell(&self, name: &str) -> String {
        self.text(name).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_rows_can_not_steer_a_terminal() {
        assert_eq!(
            clean("a\u{1b}[2J\u{7}\n\u{9b}31m\u{7f}\u{202e}é"),
            "a\\u{1b}[2J\\u{7}\\n\\u{9b}31m\\u{7f}\\u{202e}é"
        );
    }

    #[test]
    fn json_keeps_its_meaning_when_it_is_made_harmless() {
        let json = "{\"key\": \"a\u{9b}31m\u{7f}\u{202e}\"}";
        let clean = clean_json(json);
        assert!(clean.is_ascii());
        let before: serde_json::Value = serde_json::from_str(json).unwrap();
        let after: serde_json::Value = serde_json::from_str(&clean).unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn ages_are_told_by_their_two_largest_units() {
        let told = [
            -3.0,
            0.4,
            12.0,
            192.0,
            3600.0,
            7500.9,
            356_400.0,
            f64::INFINITY,
        ]
        .map(age)
        .map(|age| age.chars().take(8).collect::<String>());
        assert_eq!(
            told,
            [
                "0s", "0s", "12s", "3m 12s", "1h", "2h 5m", "4d 3h", "21350398"
            ]
        );
    }

    #[test]
    fn numbers_pass_unread() {
        let fields =
            Fields::read("{\"n\": 1.10000000000000000000001, \"t\": \"infinity\", \"x\": null}");
        let fields = fields.unwrap();
        assert_eq!(fields.cell("n"), "1.10000000000000000000001");
        assert_eq!(fields.cell("t"), "infinity");
        assert_eq!(fields.text("x"), None);
    }
}
