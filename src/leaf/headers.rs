//! Which of an answer's headers are kept.

use http::{HeaderMap, header};

use super::redact::Secrets;

/// What tells where the effect is, what it is, and how to ask the leaf's support about it.
const USUAL: [&str; 11] = [
    "content-type",
    "location",
    "etag",
    "retry-after",
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "correlation-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "cf-ray",
];
/// One value; a longer one is cut.
const VALUE_BYTES_MAX: usize = 8 * 1024;
/// All names and values together; what comes after is left out.
const TOTAL_BYTES_MAX: usize = 32 * 1024;

/// The headers that are kept, in the order in which they came, as text and without secrets.
pub(crate) fn kept(all: &HeaderMap, also: &[String], secrets: &Secrets) -> Vec<(String, String)> {
    let mut left = TOTAL_BYTES_MAX;
    let mut kept = Vec::new();
    for (name, value) in all {
        let name = name.as_str();
        if !USUAL.contains(&name) && !also.iter().any(|it| it.eq_ignore_ascii_case(name)) {
            continue;
        }
        // Redacted before it is cut: a cut could leave the first half of a secret.
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let value = cut(secrets.redact_text(value), VALUE_BYTES_MAX);
        let Some(rest) = left.checked_sub(name.len() + value.len()) else {
            break;
        };
        left = rest;
        kept.push((name.to_owned(), value));
    }
    kept
}

/// `Retry-After` as a delay, where it can be read.
pub(crate) fn retry_after(all: &HeaderMap) -> Option<std::time::Duration> {
    super::retry_after::delay(
        all.get_all(header::RETRY_AFTER)
            .iter()
            .map(|value| value.as_bytes()),
        all.get(header::DATE).map(|value| value.as_bytes()),
        // Only for a leaf that does not say its own time; a delay to wait, nothing that two machines compare.
        jiff::Timestamp::now().into(),
    )
}

/// At most so many bytes, whole characters.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::config::Proofs;

    fn keep(headers: &[(&'static str, &[u8])]) -> Vec<(String, String)> {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        kept(
            &all,
            &["x-mine".into()],
            &Secrets::new(&Proofs::default(), None),
        )
    }

    #[test]
    fn the_usual_and_the_named_are_kept_in_order() {
        let kept = keep(&[
            ("date", b"now"),
            ("x-mine", b"1"),
            ("set-cookie", b"session"),
            ("etag", b"\"e\""),
            ("x-request-id", b"caf\xe9"),
        ]);
        let wanted = [
            ("x-mine", "1"),
            ("etag", "\"e\""),
            ("x-request-id", "caf\u{fffd}"),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(kept, wanted);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let long = vec![b'a'; 10_000];
        let kept = keep(&[("x-mine", long.as_slice()); 6]);
        assert_eq!(kept.len(), 3);
        assert!(kept.iter().all(|(_, value)| value.len() == VALUE_BYTES_MAX));
        // Each of these bytes becomes a character of three.
        let broken = vec![0xff; 10_000];
        assert_eq!(keep(&[("etag", broken.as_slice())])[0].1.len(), 8190);
    }
}
