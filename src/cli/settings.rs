//! The configuration, as far as a command needs it, and the way to its database.

use std::path::Path;

use anyhow::Context as _;
use secrecy::SecretString;

use crate::{
    config::{self, Config, ConfigError, Database, Listen},
    store::{Store, connect::Connect},
};

/// A command runs one statement after another.
const CONNECTIONS: usize = 2;

/// All of it, checked.
pub(crate) fn whole(path: &Path) -> Result<Config, ConfigError> {
    Config::load(path, &config::process_env)
}

/// `[database]` alone: a person must be able to look at calls, and to pause a leaf, whatever is wrong with
/// the rest of the file.
pub(crate) fn database_only(path: &Path) -> Result<Database, ConfigError> {
    config::load_database(path, &config::process_env)
}

/// `[listen]` alone.
pub(crate) fn listen_only(path: &Path) -> Result<Listen, ConfigError> {
    config::load_listen(path, &config::process_env)
}

/// How to connect for schema work, past a transaction pooler where there is one.
pub(crate) fn direct(database: &Database) -> anyhow::Result<Connect> {
    let (name, url) = match &database.direct_url {
        Some(url) => ("database.direct_url", url),
        None => ("database.url", &database.url),
    };
    parse(name, url)
}

/// The store of a command that only needs the database.
pub(crate) fn store(path: &Path) -> anyhow::Result<Store> {
    open(&database_only(path)?)
}

/// The store of this database.
pub(crate) fn open(database: &Database) -> anyhow::Result<Store> {
    let connect = parse("database.url", &database.url)?;
    Ok(Store::new(connect, CONNECTIONS)?)
}

fn parse(name: &str, url: &SecretString) -> anyhow::Result<Connect> {
    Connect::parse(url).with_context(|| format!("{name} can't be used"))
}
