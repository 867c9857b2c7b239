//! The request that a call makes, and the two values that bind it to its effect: its hash and the value
//! of its idempotency header.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// One HTTP request to a leaf, complete but for what the leaf's own settings add (auth, User-Agent).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// GET, HEAD, POST, PUT, PATCH or DELETE.
    pub method: String,
    /// Path and query, appended to the leaf's base URL as they are.
    pub path: String,
    /// The row's own headers.
    pub headers: Vec<(String, String)>,
    /// The body's bytes, exactly as they are sent.
    pub body: Option<Bytes>,
    /// Its media type.
    pub content_type: Option<String>,
    /// Name and value of the leaf's idempotency header.
    pub idempotency: Option<(String, String)>,
    /// What names the effect in a signature, the same on each attempt. A probe has none: each is a message of its own.
    pub message_id: Option<String>,
    /// Which of the leaf's credentials; `None` for the leaf's own auth.
    pub credential: Option<String>,
}

impl Request {
    /// Binds a confirmation to what was asked for: SHA-256 over method, path and body, not headers.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(self.method.as_bytes());
        hasher.update(b"\n");
        hasher.update(self.path.as_bytes());
        // Neither a method nor a path can hold a line break, so the three parts can't run together.
        hasher.update(if self.body.is_some() {
            b"\n+" as &[u8]
        } else {
            b"\n-"
        });
        hasher.update(self.body.as_deref().unwrap_or_default());
        hasher.finalize().into()
    }
}

/// The idempotency header's value for one generation of an effect, the same on each attempt.
///
/// `refusals` counts what a leaf that replays errors has refused under this key: what is sent after one must not get that
/// answer again.
///
/// The first generation of a key that fits into a header is the key itself, so that people find it at
/// the leaf. Any other is a hash, which no key of an app can equal by accident.
#[must_use]
pub fn idempotency_value(leaf: &str, key: &str, generation: u32, refusals: u32) -> String {
    let fits = key.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    if generation <= 1 && refusals == 0 && fits {
        return key.to_owned();
    }
    let mut hasher = Sha256::new();
    hasher.update(leaf.as_bytes());
    hasher.update([0]);
    hasher.update(key.as_bytes());
    hasher.update([0]);
    hasher.update(generation.to_be_bytes());
    if refusals > 0 {
        hasher.update(refusals.to_be_bytes());
    }
    let hex: String = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("lh-{hex}")
}

/// How an idempotency header's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyFormat {
    /// As it is.
    Raw,
    /// As a structured-field string (RFC 8941 section 3.3.3).
    Quoted,
}

/// The idempotency header's value as it goes over the wire.
///
/// `value` comes from [`idempotency_value`]: visible ASCII, so that quoting is all that a structured-field
/// string needs.
#[must_use]
pub fn idempotency_header(format: IdempotencyFormat, value: &str) -> String {
    match format {
        IdempotencyFormat::Raw => value.to_owned(),
        IdempotencyFormat::Quoted => {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{escaped}\"")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_header_is_written_as_the_leaf_reads_it() {
        use IdempotencyFormat::{Quoted, Raw};
        for (format, value, written) in [
            (Raw, "site:42:repo", "site:42:repo"),
            (Raw, r#"a"b\c"#, r#"a"b\c"#),
            (Quoted, "site:42:repo", r#""site:42:repo""#),
            (Quoted, r#"a"b"#, r#""a\"b""#),
            (Quoted, r"a\b", r#""a\\b""#),
            (Quoted, r#"\""#, r#""\\\"""#),
            (Quoted, "", r#""""#),
        ] {
            assert_eq!(idempotency_header(format, value), written, "{value}");
        }
    }
}
