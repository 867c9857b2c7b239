//! What a row's path may be, so that a request stays under its leaf's base URL (guarantee G12).
//!
//! Servers and proxies decode a path once, twice or not at all, and resolve `.` and `..` before or after.
//! Whatever they do, a path that passes here has no dot segment for them to resolve.

use std::borrow::Cow;

/// Why a path is refused. Each text says what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Relative, empty, or `//`, which would name another host.
    #[error("the path must start with exactly one `/`")]
    Start,
    /// Whatever is not visible ASCII, and what URL parsers encode by themselves: a path is sent as it is.
    #[error("the path holds {0:?}; write it percent-encoded")]
    Character(char),
    /// Some servers take a backslash for a slash.
    #[error("the path holds a backslash; write %5C where it is data")]
    Backslash,
    /// A fragment never leaves a client (RFC 9110 section 4.2.5).
    #[error("the path holds a fragment; write %23 where `#` is data")]
    Fragment,
    /// `.` or `..`, written in whatever way.
    #[error(
        "the path holds a `.` or `..` segment, perhaps percent-encoded; it could leave the leaf's base URL"
    )]
    DotSegment,
}

/// Checks a path with its query.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check(path: &str) -> Result<(), PathError> {
    let mut bytes = path.bytes();
    if bytes.next() != Some(b'/') || bytes.next() == Some(b'/') {
        return Err(PathError::Start);
    }
    let (segments, query) = match path.split_once('?') {
        Some((segments, query)) => (segments, query),
        None => (path, ""),
    };
    check_characters(segments, &['"', '<', '>', '`', '{', '}'])?;
    check_characters(query, &['"', '<', '>', '\''])?;
    // The query is data to everybody: no server resolves dot segments in it.
    if has_dot_segment(segments) {
        return Err(PathError::DotSegment);
    }
    Ok(())
}

/// `encoded` are those that the URL standard encodes in this part (its path and special-query percent-encode
/// sets); each HTTP library follows it or refuses them.
fn check_characters(part: &str, encoded: &[char]) -> Result<(), PathError> {
    for character in part.chars() {
        match character {
            '\\' => return Err(PathError::Backslash),
            '#' => return Err(PathError::Fragment),
            '!'..='~' if !encoded.contains(&character) => {}
            other => return Err(PathError::Character(other)),
        }
    }
    Ok(())
}

/// Whether any number of decodings shows a dot segment.
fn has_dot_segment(path: &str) -> bool {
    let mut text = Cow::Borrowed(path.as_bytes());
    loop {
        if text.split(|byte| matches!(byte, b'/' | b'\\')).any(is_dots) {
            return true;
        }
        // Each decoding makes it shorter, so this ends.
        match decode_once(&text) {
            Some(decoded) => text = Cow::Owned(decoded),
            None => return false,
        }
    }
}

/// Java servers drop what follows a `;` in a segment before they resolve it: `/..;/` is `/../`.
fn is_dots(segment: &[u8]) -> bool {
    let name = segment.split(|byte| *byte == b';').next();
    matches!(name, Some(b"." | b".."))
}

/// One round of percent-decoding; `None` where there is nothing left to decode.
fn decode_once(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        match (first, after) {
            (b'%', [high, low, after @ ..]) if digit(*high).is_some() && digit(*low).is_some() => {
                decoded.push(digit(*high)? << 4 | digit(*low)?);
                rest = after;
            }
            _ => {
                decoded.push(first);
                rest = after;
            }
        }
    }
    (decoded.len() < text.len()).then_some(decoded)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_stay_where_they_are_pass() {
        for path in [
            "/",
            "/repos",
            "/repos/",
            "/a//b",
            "/a/b?x=1&y=..",
            "/a?next=/../b",
            "/a?q=%2e%2e%2f",
            "/?",
            "/group%2Fproject",
            "/100%",
            "/%zz/%2",
            "/.well-known/x",
            "/a..b/...",
            "/..a/b..",
            "/;v=1/..a;x",
            "/@elsewhere",
            "/user:pass@elsewhere/x",
            "/http://elsewhere/x",
            "/%e2%82%ac",
            "/a%00b",
            "/~!$&'()*+,;=:@-_[]^|",
            "/a?q={`}|[]^",
        ] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        use PathError::{Backslash, Character, DotSegment, Fragment, Start};
        for (path, why) in [
            ("", Start),
            ("repos", Start),
            ("//elsewhere/x", Start),
            ("@elsewhere", Start),
            ("http://elsewhere/", Start),
            ("?x=1", Start),
            ("\\elsewhere", Start),
            (" /a", Start),
            ("/\\elsewhere", Backslash),
            ("/a\\..\\b", Backslash),
            ("/a#b", Fragment),
            ("/a?b#c", Fragment),
            ("/a b", Character(' ')),
            ("/a\tb", Character('\t')),
            ("/a\r\nHost: elsewhere", Character('\r')),
            ("/a\0", Character('\0')),
            ("/a\u{7f}", Character('\u{7f}')),
            ("/ä", Character('ä')),
            ("/a?q=ä", Character('ä')),
            ("/a\"b", Character('"')),
            ("/a<b", Character('<')),
            ("/{{ id }}", Character('{')),
            ("/a`b", Character('`')),
            ("/a?q='x'", Character('\'')),
            ("/a?q=>", Character('>')),
            ("/..", DotSegment),
            ("/.", DotSegment),
            ("/../admin", DotSegment),
            ("/a/../b", DotSegment),
            ("/a/./b", DotSegment),
            ("/a/..", DotSegment),
            ("/a/..?x", DotSegment),
            ("/%2e%2e/b", DotSegment),
            ("/%2E%2e/b", DotSegment),
            ("/.%2e/b", DotSegment),
            ("/%2e/b", DotSegment),
            ("/%252e%252e/b", DotSegment),
            ("/%25252e%2e/b", DotSegment),
            ("/%%32%65%2e/b", DotSegment),
            ("/a%2f..%2fb", DotSegment),
            ("/a%5c..%5cb", DotSegment),
            ("/a%252f..%252fb", DotSegment),
            ("/a%2f%2e%2e", DotSegment),
            ("/..;/admin", DotSegment),
            ("/..%3bx/admin", DotSegment),
            ("/.;x", DotSegment),
        ] {
            assert_eq!(check(path), Err(why), "{path}");
        }
    }
}
