//! Configuration: one TOML file, checked as a whole when it is loaded.
//!
//! Every fault is reported at once, with the file, the line, the key's path and what would be right
//! ([`ConfigError`]). Secrets are read from the environment and from files; nothing in here prints one.
//! This is the only module that reads the environment, and below it nothing checks again.
//!
//! The defaults are `deploy/leafhopper.default.toml`, which is compiled in: what it says is what holds.

mod credentials;
mod defaults;
mod error;
mod leaf;
mod leaf_rules;
mod model;
mod retention;
mod secrets;
mod section;
mod sections;
mod signing;
mod templates;
#[cfg(test)]
mod tests;
mod transport;
mod values;

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

use secrecy::ExposeSecret as _;
use toml::de::DeTable;

pub(crate) use self::values::duration_of;
pub use self::{
    credentials::{LeafSecrets, Refreshed, UnknownCredential},
    error::{ConfigError, Fault},
    model::*,
};
use self::{error::Report, section::Section};

/// Looks a variable of the environment up; `None` if it is not set.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of the process. A value that is not UTF-8 counts as not set.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is where the environment is read"
)]
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Config {
    /// Loads and checks `file`. `DATABASE_URL` of the environment goes before the file's `database.url`.
    /// Blocking: reads the file, the files of secrets and the certificates.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, together.
    pub fn load(file: &Path, env: Env<'_>) -> Result<Self, ConfigError> {
        Self::parse(&read_file(file)?, file, env)
    }

    /// As [`Self::load`], of a `text` that came from `file`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, together.
    pub fn parse(text: &str, file: &Path, env: Env<'_>) -> Result<Self, ConfigError> {
        let report = Report::new(text);
        let (given, mistakes) = DeTable::parse_recoverable(text);
        for mistake in &mistakes {
            let (_line, column) = report.position(mistake.span().unwrap_or_default().start);
            // The message alone: its Display would quote the line, which may hold a secret.
            let problem = format!("column {column}: not TOML: {}", mistake.message());
            report.fault(mistake.span(), "", problem);
        }
        if !mistakes.is_empty() {
            report.finish(file)?;
            unreachable!("there are faults, so there is an error");
        }
        let defaults = defaults::text();
        let defaults = DeTable::parse(&defaults)
            .expect("leafhopper.default.toml is TOML: a test loads it")
            .into_inner();
        let root = Section::root(&report, given.get_ref(), &defaults);
        let mut config = read(&root, env);
        root.finish();
        config.warnings = report.finish(file)?;
        Ok(config)
    }

    /// The parts of the configuration that differ and are read at the start only. The running program
    /// keeps the old ones until then.
    #[must_use]
    pub fn changes_needing_restart(old: &Self, new: &Self) -> Vec<&'static str> {
        let url = |config: &Self| {
            let urls = [
                Some(&config.database.url),
                config.database.direct_url.as_ref(),
            ];
            urls.map(|url| url.map(|url| url.expose_secret().to_owned()))
        };
        let token = |config: &Self| {
            let token = config.listen.admin_token.as_ref();
            token.map(|token| token.expose_secret().to_owned())
        };
        let mut changes = Vec::new();
        if url(old) != url(new) || old.database.pool_size != new.database.pool_size {
            changes.push("database");
        }
        if old.listen.address != new.listen.address
            || old.listen.hosts != new.listen.hosts
            || old.listen.show_bodies != new.listen.show_bodies
            || token(old) != token(new)
        {
            changes.push("listen");
        }
        if old.dispatch.state_dir != new.dispatch.state_dir {
            changes.push("dispatch.state_dir");
        }
        changes
    }
}

/// Loads `[database]` alone, so that what needs no more works whatever is wrong with the rest of the file.
///
/// # Errors
///
/// The file can't be read, is no TOML, or what is wrong with `[database]`. No file at the usual place is none
/// where `DATABASE_URL` is set.
pub fn load_database(file: &Path, env: Env<'_>) -> Result<Database, ConfigError> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        // The usual place, and all that is wanted is in the environment.
        Err(source)
            if source.kind() == io::ErrorKind::NotFound
                && file == Path::new(USUAL_FILE)
                && env("DATABASE_URL").is_some() =>
        {
            String::new()
        }
        Err(source) => {
            return Err(ConfigError {
                file: file.to_owned(),
                faults: vec![unreadable(
                    &source,
                    "; at the usual place none is needed where DATABASE_URL is set",
                )],
            });
        }
    };
    part(&text, file, |root| sections::database(root, env))
}

/// Loads `[listen]` alone.
///
/// # Errors
///
/// The file can't be read, is no TOML, or what is wrong with `[listen]`.
pub fn load_listen(file: &Path, env: Env<'_>) -> Result<Listen, ConfigError> {
    part(&read_file(file)?, file, |root| sections::listen(root, env))
}

/// A part of the file, whatever is wrong with the rest.
fn part<T>(text: &str, file: &Path, read: impl Fn(&Section<'_>) -> T) -> Result<T, ConfigError> {
    let report = Report::new(text);
    let (given, _mistakes) = DeTable::parse_recoverable(text);
    let defaults = defaults::text();
    let defaults = DeTable::parse(&defaults)
        .expect("leafhopper.default.toml is TOML: a test loads it")
        .into_inner();
    let root = Section::root(&report, given.get_ref(), &defaults);
    let read = read(&root);
    drop(root);
    report.finish(file)?;
    Ok(read)
}

fn read_file(file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|source| ConfigError {
        file: file.to_owned(),
        faults: vec![unreadable(&source, "")],
    })
}

/// The file is not there, or not to be read.
fn unreadable(source: &io::Error, more: &str) -> Fault {
    let place = if source.kind() == io::ErrorKind::NotFound {
        format!("; name another file by --config or LEAFHOPPER_CONFIG{more}")
    } else {
        String::new()
    };
    Fault {
        line: None,
        key: String::new(),
        problem: format!("can't be read: {source}{place}"),
    }
}

/// Where the configuration is looked for if nobody names a place.
pub const USUAL_FILE: &str = "leafhopper.toml";

/// Reads all sections. What is faulty is replaced by something harmless; the report has it.
fn read(root: &Section<'_>, env: Env<'_>) -> Config {
    let database = sections::database(root, env);
    let listen = sections::listen(root, env);
    let dispatch = sections::dispatch(root);
    let retry = sections::retry(&root.table_or_default("retry"), None);
    let mut leaves = BTreeMap::new();
    if let Some(all) = root.table("leaf") {
        for (name, value) in all.entries() {
            if let Some(leaf) = leaf::read(&all, name, value, &retry, env) {
                leaves.insert(name.to_owned(), Arc::new(leaf));
            }
        }
    }
    if leaves.is_empty() {
        root.warn("leaf", "no leaf is configured, so every call waits");
    }
    let retention = retention::read(root, &leaves);
    Config {
        database,
        listen,
        dispatch,
        retention,
        leaves,
        warnings: Vec::new(),
    }
}
