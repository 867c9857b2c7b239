//! Bodies, as a person reads them.

use serde::Serialize;

/// Of a body, so many characters are shown.
const CHARACTERS: usize = 20_000;

/// A text of several lines, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Shown {
    /// Each is written by itself, so that a line of a body can't be anything else.
    lines: Vec<String>,
    /// What is not shown.
    note: Option<String>,
}

impl Shown {
    /// Of JSON text: indented, and otherwise as it is written.
    pub(super) fn json(text: &str) -> Self {
        Self::text(&indented(text))
    }

    /// Of any text.
    pub(super) fn text(text: &str) -> Self {
        let mut shown = text;
        let mut note = None;
        if let Some((end, _)) = text.char_indices().nth(CHARACTERS) {
            shown = text.get(..end).unwrap_or_default();
            let left = text.len() - end;
            note = Some(format!("… {left} more bytes: leafhopper show --json"));
        }
        Self {
            lines: shown.lines().map(str::to_owned).collect(),
            note,
        }
    }

    /// Of bytes as PostgreSQL's JSON has them: `\x68656c6c6f`.
    pub(super) fn bytes(hex: &str) -> Self {
        let digits = hex.strip_prefix("\\x").unwrap_or(hex);
        let pairs = digits.as_bytes().chunks(2);
        let bytes: Vec<u8> = pairs
            .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        match std::str::from_utf8(&bytes) {
            Ok(text) if !text.contains('\0') => Self::text(text),
            _ => {
                let mut shown = Self::text(digits);
                let note = format!(
                    "{} bytes that are no text, as hexadecimal digits",
                    bytes.len()
                );
                shown.note = Some(note);
                shown
            }
        }
    }
}

/// JSON with line breaks. Only white space is added: numbers and strings stay as they are written.
fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let (mut in_string, mut escaped) = (false, false);
    let mut characters = json.chars().filter(|c| *c != '\n').peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(40)));
    };
    while let Some(c) = characters.next() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                in_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while characters.next_if_eq(&' ').is_some() {}
                if let Some(close) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
                while characters.next_if_eq(&' ').is_some() {}
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_nothing_else() {
        let json =
            r#"{"a": 1.10000000000000000000001, "b": [], "c": [{"d\"{": "x, [y"}, null], "e": {}}"#;
        let text = indented(json);
        assert_eq!(
            text,
            "{\n  \"a\": 1.10000000000000000000001,\n  \"b\": [],\n  \"c\": [\n    {\n      \"d\\\"{\": \"x, [y\"\n    \
             },\n    null\n  ],\n  \"e\": {}\n}"
        );
        let bare = |text: &str| text.replace([' ', '\n'], "");
        assert_eq!(bare(&text), bare(json));
    }

    #[test]
    fn bytes_are_text_where_they_are() {
        assert_eq!(Shown::bytes("\\x68c3a90a69").lines, ["hé", "i"]);
        let shown = Shown::bytes("\\x00ff");
        assert_eq!(shown.lines, ["00ff"]);
        assert!(shown.note.is_some());
    }

    #[test]
    fn what_is_too_long_is_cut_and_said_to_be() {
        let shown = Shown::text(&"é".repeat(CHARACTERS + 1));
        assert_eq!(
            shown.note.as_deref(),
            Some("… 2 more bytes: leafhopper show --json")
        );
    }
}
