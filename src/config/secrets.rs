//! Where secrets come from. They are read when the configuration is loaded, and no error, no `Debug` and
//! no dump shows one.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use secrecy::SecretString;
use toml::de::DeValue;

use super::{Env, section::Section};

/// No secret is larger; a path that leads to a log or a device is noticed by it.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// Where one secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// `{ env = "NAME" }`
    Env(String),
    /// `{ file = "/path" }`
    File(PathBuf),
}

impl Source {
    /// Reads it. The problem names the variable or the file, never what is in it.
    pub(super) fn read(&self, env: Env<'_>) -> Result<SecretString, String> {
        match self {
            Self::Env(name) => {
                // A secret written here by mistake rarely looks like a variable, and is not shown.
                let usual = |byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_');
                let shown = if name.bytes().all(usual) {
                    format!("the environment variable {name}")
                } else {
                    "the environment variable that is named here".to_owned()
                };
                match env(name) {
                    None => Err(format!("{shown} is not set")),
                    Some(value) if value.is_empty() => Err(format!("{shown} is empty")),
                    Some(value) => Ok(value.into()),
                }
            }
            Self::File(path) => read_file(path),
        }
    }
}

/// Reads a secret file. One trailing line break is not part of the secret.
pub(super) fn read_file(path: &Path) -> Result<SecretString, String> {
    let shown = path.display();
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_SECRET_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(bytes) if bytes as u64 > MAX_SECRET_BYTES => {
            return Err(format!("{shown} is larger than {MAX_SECRET_BYTES} bytes"));
        }
        Ok(_) => {}
        Err(source) if source.kind() == io::ErrorKind::InvalidData => {
            return Err(format!("{shown} is not UTF-8"));
        }
        Err(source) => return Err(format!("{shown} can't be read: {source}")),
    }
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    if secret.is_empty() {
        return Err(format!("{shown} is empty"));
    }
    Ok(SecretString::from(secret))
}

/// Checks that a header can carry it: visible ASCII, spaces only within. Names a position, no character.
pub(super) fn fits_header(secret: &str) -> Result<(), String> {
    let wrong = secret
        .bytes()
        .position(|byte| !(b' '..=b'~').contains(&byte));
    if let Some(at) = wrong {
        return Err(format!(
            "the secret holds a character that a header can't carry, at byte {}",
            at + 1
        ));
    }
    if secret.trim() == secret {
        Ok(())
    } else {
        Err("the secret begins or ends with a space, which a header can't carry".to_owned())
    }
}

impl<'a> Section<'a> {
    /// The source of the secret at `key`, if the file gives one.
    pub(super) fn source(&self, key: &'static str) -> Option<Source> {
        const WANTED: &str = "use { env = \"NAME\" } or { file = \"/path\" }";
        if !self.gives(key) {
            return None;
        }
        // The value is not shown: it is the secret.
        if self.get(key, |value| Ok(value.is_str())) == Some(true) {
            self.fault(
                key,
                format!("a secret is not written into this file; {WANTED}"),
            );
            return None;
        }
        let section = self.table(key)?;
        let env = section.get("env", super::values::string);
        let file = section.get("file", super::values::string);
        let source = match (env, file) {
            (Some(name), None) => Some(Source::Env(name)),
            (None, Some(path)) => Some(Source::File(path.into())),
            (Some(_), Some(_)) => {
                section.fault("", format!("names two places; {WANTED}"));
                None
            }
            (None, None) => {
                // A value of the wrong kind is reported already.
                if !section.gives("env") && !section.gives("file") {
                    section.fault("", format!("names no place; {WANTED}"));
                }
                None
            }
        };
        section.finish();
        source
    }

    /// The secret at `key` with its source, if the file gives one that can be read and passes `check`.
    pub(super) fn secret(
        &self,
        key: &'static str,
        env: Env<'_>,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Option<(Source, SecretString)> {
        use secrecy::ExposeSecret as _;
        let source = self.source(key)?;
        let read = source.read(env).and_then(|secret| {
            check(secret.expose_secret())?;
            Ok(secret)
        });
        match read {
            Ok(secret) => Some((source, secret)),
            Err(problem) => {
                self.fault(key, problem);
                None
            }
        }
    }

    /// The string at `key`, or the secret that it is a table for.
    pub(super) fn string_or_secret(&self, key: &'static str, env: Env<'_>) -> Option<SecretString> {
        let plain = |value: &DeValue<'a>| Ok(value.as_str().map(SecretString::from));
        if self.gives(key)
            && let Some(Some(plain)) = self.get(key, plain)
        {
            return Some(plain);
        }
        self.secret(key, env, |_| Ok(()))
            .map(|(_source, secret)| secret)
    }
}
