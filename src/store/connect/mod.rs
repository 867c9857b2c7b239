//! How the database is reached: a connection string becomes servers, settings and TLS, and then connections.
//!
//! The string is written as for libpq, as a URL or as `key=value` pairs; what differs of TLS is said in [`ssl`].
//! - Parameters that nothing here understands are refused by name.
//! - Reserved characters in a user or a password have to be percent-encoded in a URL. Any other reading
//!   would take a piece of the password for a host and show it in an error.
//! - Nothing of libpq's environment (`PGHOST`, `PGSSLMODE`, `PGPASSFILE` …) is read.
//!
//! No error, `Debug` or `Display` of this module holds a password.

mod open;
mod params;
mod primary;
mod servers;
mod ssl;
#[cfg(test)]
mod tests;
mod tls;
mod verifiers;
mod words;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use secrecy::{ExposeSecret as _, SecretString};
use tokio_postgres::config::{ChannelBinding, LoadBalanceHosts};

pub use self::open::OpenError;
pub(crate) use self::open::{Driven, said_by_server};
pub(super) use self::primary::Term;
use self::{
    params::{Params, wrong},
    primary::Primary,
    servers::Server,
    ssl::{Mode, Ssl},
    tls::Tls,
};

/// For one address: name, TCP, TLS and authentication, as `connect_timeout` of libpq.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same where there is another one to go on with. A machine that is off answers nothing at all.
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(2);
/// As long as all servers of a string may take together, whatever `connect_timeout` says.
const PATIENCE_MAX: Duration = Duration::from_secs(60);
/// A peer that vanished is noticed after idle + retries × interval = 30 s of silence; the operating
/// system's own values take two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// The same for a peer that vanished while something was on its way to it.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a connection string can't be used. Holds no part of it but names of parameters and of files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// It can't be read.
    #[error("is not a connection string: {0}")]
    Syntax(String),
    /// A parameter that nothing here understands.
    #[error("unknown parameter `{name}`{hint}")]
    UnknownParameter {
        /// Its name.
        name: String,
        /// What was probably meant.
        hint: String,
    },
    /// A parameter whose value is of no use.
    #[error("parameter `{name}`: {problem}")]
    Parameter {
        /// Its name.
        name: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// Certificates can't be used.
    #[error("TLS: {0}")]
    Tls(String),
}

/// How to connect, for a pool and for single connections alike.
#[derive(Clone)]
pub struct Connect {
    /// All but the server, and TLS.
    config: tokio_postgres::Config,
    servers: Arc<[Server]>,
    mode: Mode,
    tls: Arc<Tls>,
    /// As `connect_timeout` says.
    limit: Option<Duration>,
    shuffled: bool,
    /// What works but is probably not meant.
    pub warnings: Vec<String>,
    /// For all that is opened with it.
    pub(super) primary: Primary,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The config leaves its password out.
        f.debug_struct("Connect")
            .field("config", &self.config)
            .field("servers", &self.servers)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// As a URL, with `[redacted]` for the password.
impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.config.get_user() {
            f.write_str(user)?;
            if self.has_password() {
                f.write_str(":[redacted]")?;
            }
            f.write_str("@")?;
        }
        for (index, server) in self.servers.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{server}")?;
        }
        if let Some(database) = self.config.get_dbname() {
            write!(f, "/{database}")?;
        }
        write!(f, "?sslmode={}", self.mode.name())
    }
}

impl Connect {
    /// Reads a connection string and the certificates that it names. Blocking: reads files.
    ///
    /// # Errors
    ///
    /// It can't be read, names parameters that are unknown, or certificates that can't be used.
    pub fn parse(url: &SecretString) -> Result<Self, ConnectError> {
        // As libpq: HOME, else what the system says of the user.
        let usual = std::env::home_dir().map(|home| home.join(".postgresql"));
        Self::parse_with(url.expose_secret(), usual.as_deref())
    }

    /// As [`Self::parse`], with the folder of the files that nobody has to name.
    fn parse_with(url: &str, usual: Option<&Path>) -> Result<Self, ConnectError> {
        let mut params = Params::read(url)?;
        let ssl = Ssl::take(&mut params, usual)?;
        let servers = params.servers()?;
        let shuffled = match params.take("load_balance_hosts").as_deref() {
            None | Some("disable") => false,
            Some("random") => true,
            Some(_) => {
                return Err(wrong(
                    "load_balance_hosts",
                    "one of disable, random is wanted",
                ));
            }
        };
        let sets = |key: &str| params.get(key).is_some();
        let unset = [
            "application_name",
            "tcp_user_timeout",
            "keepalives_idle",
            "keepalives_interval",
            "keepalives_retries",
        ]
        .map(|key| !sets(key));
        let mut config = params.into_config()?;
        let [name, user, idle, interval, retries] = unset;
        if name {
            config.application_name("leafhopper");
        }
        if user {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        if idle {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        if interval {
            config.keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if retries {
            config.keepalives_retries(KEEPALIVE_RETRIES);
        }
        if shuffled {
            config.load_balance_hosts(LoadBalanceHosts::Random);
        }
        let nowhere_tls = ssl.mode == Mode::Disable || servers.iter().any(Server::is_socket);
        if config.get_channel_binding() == ChannelBinding::Require && nowhere_tls {
            return Err(wrong(
                "channel_binding",
                "`require` wants TLS, and there is none with sslmode=disable or through a socket",
            ));
        }
        let local = servers.iter().all(Server::is_local);
        let warnings = ssl.warning().filter(|_| !local).into_iter().collect();
        Ok(Self {
            limit: config.get_connect_timeout().copied(),
            config,
            servers: servers.into(),
            mode: ssl.mode,
            tls: Arc::new(Tls::new(ssl.files)?),
            shuffled,
            primary: Primary::default(),
            warnings,
        })
    }

    /// Whether the string holds a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// How long opening a connection may take at most, all servers together.
    #[must_use]
    pub fn patience(&self) -> Duration {
        let servers = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        let each = self.limit.unwrap_or(CONNECT_TIMEOUT_OF_SEVERAL);
        let others = each.saturating_mul(servers.saturating_sub(1));
        let last = self.limit.unwrap_or_default().max(CONNECT_TIMEOUT);
        last.saturating_add(others).min(PATIENCE_MAX)
    }
}
