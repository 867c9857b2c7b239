//! `[leaf.NAME.signing]`: reads how requests are signed, and with what.

use secrecy::SecretString;
use toml::de::DeValue;

use super::{
    Env,
    credentials::SecretSource,
    section::Section,
    values::{self, string},
};
use crate::{
    domain::signature::{BodyFormat, Signing},
    suggest::closest,
};

const STANDARD_WEBHOOKS: &str = "standard-webhooks";
const FORMATS: [&str; 4] = [STANDARD_WEBHOOKS, "sha256=hex", "hex", "base64"];

/// Reads the table; `None` if there is nothing of it to go on with.
pub(super) fn read(
    section: &Section<'_>,
    env: Env<'_>,
) -> Option<(SecretSource<Signing>, SecretString)> {
    let format = section.must("format", format);
    let header = section.get("header", values::header_name);
    let form = match (format, header) {
        (None, None) => Some(Signing::StandardWebhooks),
        (None, Some(_)) => {
            section.fault(
                "header",
                "\"standard-webhooks\" has names of its own; leave it out, or say how the value of this header is \
                 written: format = \"sha256=hex\", \"hex\" or \"base64\"",
            );
            None
        }
        (Some(format), Some(header)) => Some(Signing::Body { header, format }),
        (Some(_), None) => {
            // One that is there and faulty is reported already.
            section.check(
                "header",
                section.gives("header"),
                "missing; write what the leaf calls it, such as header = \"X-Hub-Signature-256\"",
            );
            None
        }
    };
    section.check(
        "secret",
        section.gives("secret"),
        "missing; use { env = \"NAME\" } or { file = \"/path\" }",
    );
    // Where the form isn't known, there is nothing to hold the secret against.
    let check = |secret: &str| form.as_ref().map_or(Ok(()), |form| form.check(secret));
    let (source, secret) = section.secret("secret", env, check)?;
    let source = SecretSource {
        form: form?,
        source,
        prefix: String::new(),
    };
    Some((source, secret))
}

/// `None` is Standard Webhooks.
fn format(value: &DeValue<'_>) -> Result<Option<BodyFormat>, String> {
    let text = string(value).map_err(|problem| format!("{problem}: {}", FORMATS.join(", ")))?;
    Ok(match text.as_str() {
        STANDARD_WEBHOOKS => None,
        "sha256=hex" => Some(BodyFormat::Sha256Hex),
        "hex" => Some(BodyFormat::Hex),
        "base64" => Some(BodyFormat::Base64),
        _ => {
            let hint = closest(&text, &FORMATS)
                .map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"));
            return Err(format!(
                "{text:?} is not one of {}{hint}",
                FORMATS.join(", ")
            ));
        }
    })
}
