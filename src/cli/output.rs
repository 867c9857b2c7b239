//! What reaches a terminal or a pipe: tables, ages, escaped content.
//!
//! Rows hold what an app or a leaf wrote. Nothing of it reaches a terminal as a control character: an effect
//! key with an escape sequence in it must not move the cursor, rename the window or forge a line.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, IsTerminal as _, Write},
};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::value::RawValue;

use crate::config;

/// Where a command writes to.
pub struct Out<'a> {
    /// What was asked for.
    pub out: &'a mut dyn Write,
    /// All that is said beside it.
    pub err: &'a mut dyn Write,
    /// Whether `out` takes colours.
    pub colours: bool,
    /// The columns of the terminal; `None` where `out` is a pipe or a file.
    pub width: Option<u16>,
    /// A person is there to answer a question.
    pub can_ask: bool,
}

impl std::fmt::Debug for Out<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Out")
            .field("colours", &self.colours)
            .field("width", &self.width)
            .field("can_ask", &self.can_ask)
            .finish_non_exhaustive()
    }
}

/// A table for people is laid out for this width where a terminal doesn't say its own.
const USUAL_WIDTH: u16 = 80;

impl<'a> Out<'a> {
    /// To the process's own streams.
    #[must_use]
    pub fn process(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        let terminal = io::stdout().is_terminal();
        let no_color = config::process_env("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            out,
            err,
            colours: terminal && !no_color,
            width: terminal.then(|| {
                rustix::termios::tcgetwinsize(io::stdout())
                    .map(|size| size.ws_col)
                    .ok()
                    .filter(|columns| *columns > 0)
                    .unwrap_or(USUAL_WIDTH)
            }),
            can_ask: io::stdin().is_terminal() && io::stderr().is_terminal(),
        }
    }

    /// `text` in a colour, where there are colours.
    #[must_use]
    pub fn paint(&self, colour: Colour, text: &str) -> String {
        if self.colours {
            format!("\u{1b}[{}m{text}\u{1b}[0m", colour as u8)
        } else {
            text.to_owned()
        }
    }

    /// A table without borders, one line for each row where it fits.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn table(&mut self, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        let text = table(header, rows, self.width);
        writeln!(self.out, "{text}")
    }
}

/// Sentences in lines of at most `width` characters, where the words allow it.
#[must_use]
pub fn wrap(text: &str, width: Option<u16>) -> String {
    let Some(width) = width.map(usize::from) else {
        return text.to_owned();
    };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// The colours of an ANSI terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Something failed.
    Red = 31,
    /// All is well.
    Green = 32,
    /// Worth a look.
    Yellow = 33,
}

/// A table without borders. Cells are escaped here, so no caller can forget it.
#[must_use]
pub fn table(header: &[&str], rows: &[Vec<String>], width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match width {
        Some(width) => {
            table.set_width(width);
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        // For a pipe: a row is a line, whatever its length.
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)).collect::<Vec<_>>());
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        let is_number = |row: &Vec<String>| {
            row.get(index)
                .is_none_or(|cell| cell.chars().all(|c| c.is_ascii_digit()))
        };
        if rows.iter().all(is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Changes how a line is laid out or read, without being a control character.
fn is_layout(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Content of a row, harmless on a terminal.
#[must_use]
pub fn clean(text: &str) -> String {
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
#[must_use]
pub fn clean_json(json: &str) -> String {
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

/// At most `max` characters, with a sign where it was cut.
#[must_use]
pub fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A span of time by its two largest units.
#[must_use]
pub fn age(seconds: f64) -> String {
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

/// `1 call`, `2 calls`
#[must_use]
pub fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The fields of a JSON object, each as its text: numbers are not read, so they can't change.
#[derive(Debug, Default)]
pub struct Fields(BTreeMap<String, Box<RawValue>>);

impl Fields {
    /// Reads an object; `None` where it is none.
    #[must_use]
    pub fn read(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok().map(Self)
    }

    /// Reads an array of objects.
    #[must_use]
    pub fn read_all(json: &str) -> Vec<Self> {
        let all: Vec<BTreeMap<String, Box<RawValue>>> =
            serde_json::from_str(json).unwrap_or_default();
        all.into_iter().map(Self).collect()
    }

    /// The field for people: a string without its quotes, all else as it is written; `None` for null.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let raw = self.0.get(name)?.get();
        if raw == "null" {
            None
        } else if raw.starts_with('"') {
            serde_json::from_str(raw).ok()
        } else {
            Some(raw.to_owned())
        }
    }

    /// The field for people, or nothing.
    #[must_use]
    pub fn cell(&self, name: &str) -> String {
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
        let text = table(
            &["KEY"],
            &[vec!["\u{1b}]0;owned\u{7}".to_owned()]],
            Some(80),
        );
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
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
    fn a_table_fits_eighty_columns_and_is_one_line_a_row_in_a_pipe() {
        let row = vec![
            "1".to_owned(),
            "x".repeat(200),
            "parked: no_probe".to_owned(),
        ];
        let narrow = table(
            &["ID", "KEY", "STATE"],
            std::slice::from_ref(&row),
            Some(80),
        );
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        let piped = table(&["ID", "KEY", "STATE"], &[row], None);
        assert_eq!(piped.lines().count(), 2, "{piped}");
        assert!(piped.contains(&"x".repeat(200)));
    }

    #[test]
    fn sentences_break_between_words() {
        assert_eq!(wrap("to be or not", Some(5)), "to be\nor\nnot");
        assert_eq!(wrap("to be or not", None), "to be or not");
        assert_eq!(wrap("", Some(5)), "");
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
