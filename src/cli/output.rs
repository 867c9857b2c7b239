//! What reaches a terminal or a pipe: tables, wrapped sentences, colours.

use std::io::{self, IsTerminal as _, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::{
    config,
    present::text::{clean, clean_json},
};

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
        Self {
            out,
            err,
            colours: terminal && are_colours_wanted(),
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

    /// Whether `out` is a terminal.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    /// Rows that are JSON already, as one array: a row a line, or in `one_line`.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn array(&mut self, rows: &[&str], one_line: bool) -> io::Result<()> {
        let rows: Vec<String> = rows.iter().map(|row| clean_json(row)).collect();
        if one_line || rows.is_empty() {
            writeln!(self.out, "[{}]", rows.join(","))
        } else {
            writeln!(self.out, "[\n{}\n]", rows.join(",\n"))
        }
    }

    /// As JSON over several lines, harmless on a terminal.
    ///
    /// # Errors
    /// The stream is closed.
    pub(super) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value)?;
        writeln!(self.out, "{}", clean_json(&text))
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

/// Whether nobody has said otherwise (<https://no-color.org>).
pub(super) fn are_colours_wanted() -> bool {
    config::process_env("NO_COLOR").is_none_or(|value| value.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_can_steer_a_terminal() {
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
}
