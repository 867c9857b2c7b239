//! What a template may not hold, since it could make a value of any size.
//!
//! Fuel counts instructions, and one instruction can repeat a string, or a list, a hundred million times. So
//! what multiplies is refused before anything runs; what is left makes no more than its source's length times
//! what it is given.

use super::template::TemplateError;

/// Values may be joined so often.
const JOINS_MAX: usize = 16;

/// Filters whose value can be many times as large as what they are given: in a row, they multiply.
pub(super) const MULTIPLIES: &[&str] = &[
    "batch",
    "chain",
    "e",
    "escape",
    "format",
    "indent",
    "join",
    "pprint",
    "replace",
    "slice",
    "tojson",
    "urlencode",
    "zip",
];

/// Statements that keep nothing: what is kept can be doubled again and again.
const STATEMENTS: &[&str] = &["if", "elif", "else", "endif", "for", "endfor"];

/// Refuses a template that could need more memory than its length times what it is given.
///
/// # Errors
/// What it may not hold.
pub(super) fn of_template(source: &str) -> Result<(), TemplateError> {
    // A comment or raw text would hide where code begins.
    if source.contains("{#") {
        return Err(TemplateError::Multiplies("a comment".to_owned()));
    }
    let mut joins = 0;
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let (opening, code) = rest[at..].split_at(2);
        if opening == "{%" {
            let word = code.trim_start_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
            let word = &word[..ident(word)];
            if !STATEMENTS.contains(&word) {
                return Err(TemplateError::Multiplies(format!("`{{% {word} %}}`")));
            }
        }
        let closing = if opening == "{{" { "}}" } else { "%}" };
        rest = &code[scan(code, Some(closing), &mut joins)?..];
    }
    Ok(())
}

/// The same for an expression.
///
/// # Errors
/// What it may not hold.
pub(super) fn of_expression(source: &str) -> Result<(), TemplateError> {
    scan(source, None, &mut 0).map(drop)
}

/// Looks at code up to `closing`, or to its end; gives where that is.
fn scan(code: &str, closing: Option<&str>, joins: &mut usize) -> Result<usize, TemplateError> {
    let mut quote = None;
    let mut at = 0;
    while let Some(character) = code[at..].chars().next() {
        let next = at + character.len_utf8();
        match (quote, character) {
            (Some(_), '\\') => {
                at = next + code[next..].chars().next().map_or(0, char::len_utf8);
                continue;
            }
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, _) if closing.is_some_and(|closing| code[at..].starts_with(closing)) => {
                return Ok(at);
            }
            (None, '*') => return Err(TemplateError::Multiplies("`*`".to_owned())),
            (None, '~' | '+') => {
                *joins += 1;
                if *joins > JOINS_MAX {
                    return Err(TemplateError::Multiplies(format!(
                        "more than {JOINS_MAX} times `~` or `+`"
                    )));
                }
            }
            (None, '|') => {
                let filter = code[next..].trim_start();
                let filter = &filter[..ident(filter)];
                if MULTIPLIES.contains(&filter) {
                    return Err(TemplateError::Multiplies(format!("the filter `{filter}`")));
                }
            }
            (None, _) => {}
        }
        at = next;
    }
    Ok(code.len())
}

fn ident(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len())
}
