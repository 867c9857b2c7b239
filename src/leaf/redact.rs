//! Keeps the secrets that a request carried out of everything that is kept of its answer (guarantee G11).
//!
//! Leaves echo what they are sent: debugging services, error pages, a `WWW-Authenticate` that quotes. What is
//! stored is shown, so a secret in it is `[redacted]`.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{
    Deserializer as _,
    de::{IgnoredAny, Visitor},
};

use crate::config::{Auth, Proofs};

const REDACTED: &str = "[redacted]";
/// A shorter text is no secret, and to cut each of its occurrences would wreck every answer.
const SECRET_BYTES_MIN: usize = 4;

/// The texts that must not be kept.
pub(crate) struct Secrets {
    /// Longest first, so that a secret is cut before a part of it is.
    texts: Vec<String>,
}

/// A string of JSON may write each of its bytes as `\u00XX`.
const ESCAPED: usize = 6;

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Secrets {
    /// The secrets of a request that is sent with these `proofs`, perhaps through a proxy with a user and a password.
    pub(crate) fn new(proofs: &Proofs, proxy: Option<(&str, &SecretString)>) -> Self {
        let mut texts = Vec::new();
        match &proofs.auth {
            None => {}
            Some(Auth::Bearer(token)) => texts.push(token.expose_secret().to_owned()),
            Some(Auth::Basic(pair)) => push_pair(&mut texts, pair.expose_secret()),
            Some(Auth::Header { value, .. }) => {
                let value = value.expose_secret();
                texts.push(value.to_owned());
                // `token abc`: a leaf may echo the part behind the scheme alone.
                texts.extend(value.split_once(' ').map(|(_, token)| token.to_owned()));
            }
        }
        // No request carries it, but a leaf that knows it may say it.
        if let Some(signer) = &proofs.signer {
            texts.extend(signer.signing.secret_texts(signer.secret.expose_secret()));
        }
        if let Some((user, password)) = proxy {
            push_pair(&mut texts, &format!("{user}:{}", password.expose_secret()));
        }
        texts.retain(|text| text.len() >= SECRET_BYTES_MIN);
        let written: Vec<String> = texts.iter().flat_map(|text| other_forms(text)).collect();
        texts.extend(written);
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self { texts }
    }

    /// Bytes of the longest one, however it is written.
    pub(crate) fn longest(&self) -> usize {
        self.texts.first().map_or(0, |text| text.len() * ESCAPED)
    }

    /// A text without them.
    pub(crate) fn redact_text(&self, mut text: String) -> String {
        for secret in &self.texts {
            if text.contains(secret) {
                text = text.replace(secret, REDACTED);
            }
        }
        text
    }

    /// A body without them. One that is JSON stays JSON, whatever way its strings are escaped.
    pub(crate) fn redact_body(&self, body: Bytes) -> Bytes {
        // An escape may hide a secret from a plain search, `\/` for one.
        let suspicious = body.contains(&b'\\') || self.occur_in(&body);
        if self.texts.is_empty() || !suspicious {
            return body;
        }
        if serde_json::from_slice::<IgnoredAny>(&body).is_err() {
            // It may be JSON all the same, but for its end.
            let redacted = self.redact_bytes(&self.redact_tokens(&body, false));
            if self.occur_in(&unescaped(&redacted)) {
                return Bytes::from_static(REDACTED.as_bytes());
            }
            return redacted.into();
        }
        let redacted = self.redact_tokens(&body, true);
        if self.occur_in(&redacted) || serde_json::from_slice::<IgnoredAny>(&redacted).is_err() {
            // A secret that reaches over several JSON tokens; nothing of such a body is safe to keep.
            return Bytes::from_static(b"\"[redacted]\"");
        }
        redacted.into()
    }

    fn occur_in(&self, bytes: &[u8]) -> bool {
        self.texts
            .iter()
            .any(|text| find(bytes, text.as_bytes()).is_some())
    }

    fn redact_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut redacted = bytes.to_vec();
        for secret in &self.texts {
            let before = std::mem::take(&mut redacted);
            let mut rest = before.as_slice();
            while let Some(at) = find(rest, secret.as_bytes()) {
                redacted.extend_from_slice(&rest[..at]);
                redacted.extend_from_slice(REDACTED.as_bytes());
                rest = &rest[at + secret.len()..];
            }
            redacted.extend_from_slice(rest);
        }
        redacted
    }

    /// Token by token: a string keeps its quotes, a number of JSON that holds a secret becomes a string, all else is
    /// copied as it is.
    fn redact_tokens(&self, mut rest: &[u8], is_json: bool) -> Vec<u8> {
        let mut redacted = Vec::with_capacity(rest.len());
        while let Some(&first) = rest.first() {
            let (token, after) = rest.split_at(token_bytes(rest));
            rest = after;
            match first {
                b'"' => redacted.extend(self.redact_json_string(token)),
                b'-' | b'0'..=b'9' if is_json && self.occur_in(token) => {
                    redacted.extend_from_slice(b"\"[redacted]\"");
                }
                _ => redacted.extend_from_slice(token),
            }
        }
        redacted
    }

    fn redact_json_string(&self, token: &[u8]) -> Vec<u8> {
        let Some(text) = text_of(token) else {
            return self.redact_bytes(token);
        };
        if !self.occur_in(&text) {
            return token.to_vec();
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let text = serde_json::Value::String(self.redact_text(text));
        text.to_string().into_bytes()
    }
}

/// Escapes as they are in JSON, read wherever they are: for what is nearly JSON.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut read = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let code = after
            .strip_prefix(b"u")
            .filter(|_| *first == b'\\')
            .and_then(|after| after.split_at_checked(4));
        let digits = code.and_then(|(digits, _)| std::str::from_utf8(digits).ok());
        let letter =
            digits.and_then(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
        match (letter, code) {
            (Some(letter), Some((_, after))) => {
                read.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
            }
            _ => {
                // The backslash of `\/` and its like.
                if *first != b'\\' {
                    read.push(*first);
                }
                rest = after;
            }
        }
    }
    read
}

/// What a string of JSON says, also one whose end was cut off. As bytes: a lone surrogate is JSON and no text.
fn text_of(token: &[u8]) -> Option<Vec<u8>> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }
    let parsed = |token: &[u8]| {
        let mut parser = serde_json::Deserializer::from_slice(token);
        let text = parser.deserialize_bytes(Text).ok()?;
        parser.end().ok().map(|()| text)
    };
    // A cut may leave a part of an escape: of a pair of surrogates all but one byte.
    parsed(token).or_else(|| {
        (0..(2 * ESCAPED).min(token.len())).find_map(|less| {
            let mut closed = token[..token.len() - less].to_vec();
            closed.push(b'"');
            parsed(&closed)
        })
    })
}

/// `user:password` is sent as Base64 (RFC 7617), and is as secret in either form.
fn push_pair(texts: &mut Vec<String>, pair: &str) {
    texts.push(BASE64_STANDARD.encode(pair));
    texts.push(pair.to_owned());
    texts.extend(
        pair.split_once(':')
            .map(|(_, password)| password.to_owned()),
    );
}

/// The ways in which a secret is written where it is quoted: in JSON (also in one that was cut and can't be
/// parsed any more) and in a URL.
fn other_forms(text: &str) -> Vec<String> {
    let quoted = serde_json::Value::from(text).to_string();
    let json = quoted[1..quoted.len() - 1].to_owned();
    let slashed = json.replace('/', "\\/");
    let (mut upper, mut lower) = (String::new(), String::new());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                upper.push(char::from(byte));
                lower.push(char::from(byte));
            }
            _ => {
                upper += &format!("%{byte:02X}");
                lower += &format!("%{byte:02x}");
            }
        }
    }
    let mut forms = vec![json, slashed, upper, lower];
    forms.retain(|form| form != text);
    forms.dedup();
    forms
}

/// How long the JSON token at the beginning of `rest` is; a string with its quotes, a number or word whole, all
/// else a byte.
fn token_bytes(rest: &[u8]) -> usize {
    let is_word =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.' | b'_');
    if rest.first() != Some(&b'"') {
        return rest.iter().take_while(|byte| is_word(byte)).count().max(1);
    }
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let (&first, _) = text.split_first()?;
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|byte| *byte == first)?;
        if bytes[at..].starts_with(text) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(auth: &Auth) -> Secrets {
        Secrets::new(
            &Proofs {
                auth: Some(auth.clone()),
                ..Proofs::default()
            },
            None,
        )
    }

    #[test]
    fn json_stays_what_it_was_but_for_the_secret() {
        let secrets = secrets(&Auth::Bearer("s3cr/t==".into()));
        for (body, kept) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"t": "s3cr/t=="}"#, r#"{"t": "[redacted]"}"#),
            (
                r#"{ "a":"\u00e4","s3cr/t==":1.50}"#,
                r#"{ "a":"\u00e4","[redacted]":1.50}"#,
            ),
            (
                r#"["Bearer s3cr\/t==", "x\/y"]"#,
                r#"["Bearer [redacted]", "x\/y"]"#,
            ),
            (r#"["s3cr/t\u003d="]"#, r#"["[redacted]"]"#),
            (r#"["\ud800","s3cr/t=="]"#, r#"["\ud800","[redacted]"]"#),
            (
                "no JSON: s3cr/t==s3cr/t==.",
                "no JSON: [redacted][redacted].",
            ),
        ] {
            assert_eq!(secrets.redact_body(body.into()), kept, "{body}");
        }
    }

    #[test]
    fn an_escaped_secret_is_found_in_json_that_is_cut_or_no_text() {
        let secrets = secrets(&Auth::Bearer("s3cr+t/==".into()));
        for (body, kept) in [
            (
                r#"{"a":"is s3cr\u002Bt\/==","b":"c"#,
                r#"{"a":"is [redacted]","b":"c"#,
            ),
            (
                r#"{"a":"is s3cr\u002bt/=\u003d and \ud83"#,
                r#"{"a":"is [redacted] and ""#,
            ),
            (
                r#"["\ud800 s3cr\u002Bt/=="]"#,
                "[\"\u{fffd}\u{fffd}\u{fffd} [redacted]\"]",
            ),
            (r#"{"a":"is s3cr\u002"#, r#"{"a":"is s3cr\u002"#),
            (r#"{"e":"it\'s s3cr\u002Bt/=="}"#, "[redacted]"),
            (
                r#"{"e":"it\'s s3cr\u002Bt"}"#,
                r#"{"e":"it\'s s3cr\u002Bt"}"#,
            ),
            ("q=s3cr%2bt%2f%3d%3d&r", "q=[redacted]&r"),
            ("q=s3cr%2Bt%2F%3D%3D&r", "q=[redacted]&r"),
            (
                r#"<p class="x">s3cr+t/==</p>"#,
                r#"<p class="x">[redacted]</p>"#,
            ),
        ] {
            assert_eq!(secrets.redact_body(body.into()), kept, "{body}");
        }
    }

    #[test]
    fn a_secret_of_digits_does_not_break_json() {
        let secrets = secrets(&Auth::Bearer("1234567".into()));
        let body = r#"{"id":-12345678,"n":12,"s":"1234567"}"#;
        let kept = r#"{"id":"[redacted]","n":12,"s":"[redacted]"}"#;
        assert_eq!(secrets.redact_body(body.into()), kept);
    }

    #[test]
    fn a_secret_over_several_json_tokens_costs_the_body() {
        let secrets = secrets(&Auth::Bearer(r#"a","b"#.into()));
        assert_eq!(
            secrets.redact_body(r#"["a","b"]"#.into()),
            r#""[redacted]""#
        );
    }

    #[test]
    fn each_form_of_a_secret_is_cut() {
        let basic = Auth::Basic("user:pass word".into());
        let header = Auth::Header {
            name: "x-key".into(),
            value: "token abcd".into(),
        };
        for (auth, text, kept) in [
            (&basic, "user:pass word", "[redacted]"),
            (&basic, "is pass word right?", "is [redacted] right?"),
            (&basic, "Basic dXNlcjpwYXNzIHdvcmQ=", "Basic [redacted]"),
            (&basic, "user", "user"),
            (&header, "token abcd", "[redacted]"),
            (&header, "got abcd", "got [redacted]"),
        ] {
            assert_eq!(secrets(auth).redact_text(text.into()), kept);
            assert_eq!(secrets(auth).redact_body(text.to_owned().into()), kept);
        }
        let password = "open-sesame".into();
        let secrets = Secrets::new(&Proofs::default(), Some(("me", &password)));
        assert_eq!(secrets.redact_text("open-sesame".into()), REDACTED);
    }

    #[test]
    fn no_secret_means_no_change() {
        let body = Bytes::from_static(b"\\ \xff [redacted]");
        assert_eq!(
            Secrets::new(&Proofs::default(), None).redact_body(body.clone()),
            body
        );
    }
}
