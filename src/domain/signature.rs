//! How a request shows who sent it: HMAC-SHA256 over the very bytes that are sent.
//!
//! Two dialects. Standard Webhooks 1.0 signs an id (the same on each attempt, so that the receiver can tell what it has
//! seen), the time of the attempt, and the body. The other is older and simpler: one header, over the body alone.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
    prelude::BASE64_STANDARD,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// The header with Standard Webhooks' id.
pub const WEBHOOK_ID: &str = "webhook-id";
const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
const WEBHOOK_SIGNATURE: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";
/// Bytes of a key, as Standard Webhooks wants them.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// With or without `=` at the end: people lose it.
const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// `[leaf.NAME.signing]`, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signing {
    /// Three headers, as Standard Webhooks names them. A secret may be several, separated by white space: all sign.
    StandardWebhooks,
    /// One header over the body alone.
    Body {
        /// Its name, lower case.
        header: String,
        /// How its value is written.
        format: BodyFormat,
    },
}

/// How a signature of the body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// `sha256=` and hexadecimal digits, as GitHub does.
    Sha256Hex,
    /// Hexadecimal digits.
    Hex,
    /// Base64.
    Base64,
}

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The same on each attempt.
    pub id: &'a str,
    /// When it is sent, in seconds since 1970.
    pub at: i64,
    /// The body, as it is sent.
    pub body: &'a [u8],
}

impl Signing {
    /// The headers that it sets; nobody else may.
    #[must_use]
    pub fn headers(&self) -> Vec<&str> {
        match self {
            Self::StandardWebhooks => vec![WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE],
            Self::Body { header, .. } => vec![header],
        }
    }

    /// Checks that `secret` can sign.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right; nothing of it is shown.
    pub fn check(&self, secret: &str) -> Result<(), String> {
        match self {
            Self::StandardWebhooks => keys(secret).map(drop),
            // Any text is a key; a line break within is one that an editor has left.
            Self::Body { .. } if secret.contains(['\n', '\r']) => {
                Err("the secret holds a line break; a file has it on one line".to_owned())
            }
            Self::Body { .. } => Ok(()),
        }
    }

    /// The texts that are secret in it, one by one.
    #[must_use]
    pub fn secret_texts(&self, secret: &str) -> Vec<String> {
        let mut texts = vec![secret.to_owned()];
        if matches!(self, Self::StandardWebhooks) {
            for text in secret.split_whitespace() {
                texts.push(text.to_owned());
                texts.extend(text.strip_prefix(SECRET_PREFIX).map(str::to_owned));
            }
        }
        texts
    }

    /// The headers for one attempt.
    ///
    /// # Errors
    /// The secret can't sign; [`Self::check`] says why.
    pub fn sign(&self, secret: &str, message: &Message<'_>) -> Result<Vec<(&str, String)>, String> {
        match self {
            Self::StandardWebhooks => {
                let id = message_id(message.id);
                let at = message.at.to_string();
                let mut signatures = Vec::new();
                for key in keys(secret)? {
                    let parts = [id.as_bytes(), b".", at.as_bytes(), b".", message.body];
                    let signature = BASE64_STANDARD.encode(hmac(&key, &parts));
                    signatures.push(format!("v1,{signature}"));
                }
                Ok(vec![
                    (WEBHOOK_ID, id),
                    (WEBHOOK_TIMESTAMP, at),
                    (WEBHOOK_SIGNATURE, signatures.join(" ")),
                ])
            }
            Self::Body { header, format } => {
                let signature = hmac(secret.as_bytes(), &[message.body]);
                let value = match format {
                    BodyFormat::Sha256Hex => format!("sha256={}", hex(&signature)),
                    BodyFormat::Hex => hex(&signature),
                    BodyFormat::Base64 => BASE64_STANDARD.encode(signature),
                };
                Ok(vec![(header, value)])
            }
        }
    }
}

/// A full stop ends the id in what is signed, so an id may hold none: one that does is hashed.
fn message_id(id: &str) -> String {
    if id.contains('.') {
        format!("lh-{}", hex(&Sha256::digest(id)))
    } else {
        id.to_owned()
    }
}

/// The keys of a Standard Webhooks secret, the first one first.
fn keys(secret: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut keys = Vec::new();
    for text in secret.split_whitespace() {
        let text = text.strip_prefix(SECRET_PREFIX).ok_or_else(|| {
            format!(
                "the secret does not begin with {SECRET_PREFIX}; Standard Webhooks writes {SECRET_PREFIX} and \
                 the key in Base64 (whsk_ would be a signing key of Ed25519, which is not supported)"
            )
        })?;
        let key = FORGIVING.decode(text).map_err(|_source| {
            format!("what follows {SECRET_PREFIX} is not Base64, or was cut off")
        })?;
        if !KEY_BYTES.contains(&key.len()) {
            return Err(format!(
                "the key behind {SECRET_PREFIX} has {} bytes; Standard Webhooks wants {} to {}",
                key.len(),
                KEY_BYTES.start(),
                KEY_BYTES.end()
            ));
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return Err("the secret is empty".to_owned());
    }
    Ok(keys)
}

/// HMAC with SHA-256 (RFC 2104) of what the parts are together.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
