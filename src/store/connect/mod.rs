//! How the database is reached: a connection string becomes a [`tokio_postgres::Config`] and the TLS
//! that goes with it.
//!
//! The string is written as for libpq, as a URL or as `key=value` pairs. Where this differs:
//! - `sslmode=require` verifies chain and name, as `verify-full` does; libpq's encrypts only.
//! - `sslmode=allow` and parameters that nothing here understands are refused by name.
//! - Reserved characters in a user or a password have to be percent-encoded in a URL. Any other reading
//!   would take a piece of the password for a host and show it in an error.
//!
//! No error, `Debug` or `Display` of this module holds a password.

mod params;
#[cfg(test)]
mod tests;
mod tls;

use std::{fmt, path::PathBuf, time::Duration};

use secrecy::{ExposeSecret as _, SecretString};
use tokio_postgres::config::{Host, SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use self::{
    params::Params,
    tls::{Roots, Verify},
};

/// For one address, TCP alone; what opens a connection bounds the whole.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
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
    /// For `config.connect(tls)`.
    pub config: tokio_postgres::Config,
    /// Also for cancel requests.
    pub tls: MakeRustlsConnect,
    /// What works but is probably not meant.
    pub warnings: Vec<String>,
    /// As it was written, or what holds without it.
    sslmode: &'static str,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The config leaves its password out.
        f.debug_struct("Connect")
            .field("config", &self.config)
            .field("sslmode", &self.sslmode)
            .finish_non_exhaustive()
    }
}

/// As a URL, with `[redacted]` for the password.
impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.config.get_user() {
            f.write_str(user)?;
            if self.config.get_password().is_some() {
                f.write_str(":[redacted]")?;
            }
            f.write_str("@")?;
        }
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match host {
                Host::Tcp(name) if name.contains(':') => write!(f, "{separator}[{name}]")?,
                Host::Tcp(name) => write!(f, "{separator}{name}")?,
                Host::Unix(path) => write!(f, "{separator}{}", path.display())?,
            }
            let port = ports.get(index).or_else(|| ports.last());
            write!(f, ":{}", port.copied().unwrap_or(5432))?;
        }
        if let Some(database) = self.config.get_dbname() {
            write!(f, "/{database}")?;
        }
        write!(f, "?sslmode={}", self.sslmode)
    }
}

impl Connect {
    /// Reads a connection string and the certificates that it names. Blocking: reads files.
    ///
    /// # Errors
    ///
    /// It can't be read, names parameters that are unknown, or certificates that can't be used.
    pub fn parse(url: &SecretString) -> Result<Self, ConnectError> {
        let mut params = Params::read(url.expose_secret())?;
        let ssl = Ssl::take(&mut params)?;
        let sets = |key: &str| params.get(key).is_some();
        let unset = [
            "application_name",
            "connect_timeout",
            "tcp_user_timeout",
            "keepalives_idle",
            "keepalives_interval",
            "keepalives_retries",
            "target_session_attrs",
        ]
        .map(|key| !sets(key));
        let mut config = params.into_config()?;
        let [name, connect, user, idle, interval, retries, attrs] = unset;
        if name {
            config.application_name("leafhopper");
        }
        if connect {
            config.connect_timeout(CONNECT_TIMEOUT);
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
        if attrs {
            // Of several hosts the one that takes writes is used, also after a failover.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config.ssl_mode(ssl.mode);
        ssl.complete(config)
    }
}

/// What the string says about TLS, which [`tokio_postgres`] leaves to its caller.
struct Ssl {
    mode: SslMode,
    verify: Verify,
    written: &'static str,
    roots: Roots,
    client: Option<(PathBuf, PathBuf)>,
}

impl Ssl {
    /// Takes the parameters of TLS out of `params`.
    fn take(params: &mut Params) -> Result<Self, ConnectError> {
        let wrong = |problem: &str| ConnectError::Parameter {
            name: "sslmode".to_owned(),
            problem: problem.to_owned(),
        };
        let (mode, verify, written) = match params.take("sslmode").as_deref() {
            Some("disable") => (SslMode::Disable, Verify::Nothing, "disable"),
            None | Some("prefer") => (SslMode::Prefer, Verify::Encrypted, "prefer"),
            Some("require") => (SslMode::Require, Verify::ChainAndName, "require"),
            Some("verify-full") => (SslMode::Require, Verify::ChainAndName, "verify-full"),
            Some("verify-ca") => (SslMode::Require, Verify::Chain, "verify-ca"),
            Some("allow") => {
                return Err(wrong(
                    "`allow` asks for clear text first, which nobody wants; use `prefer`, \
                     `verify-full` or `disable`",
                ));
            }
            Some(_) => {
                return Err(wrong(
                    "one of disable, prefer, require, verify-ca, verify-full is wanted",
                ));
            }
        };
        let roots = match params.take("sslrootcert") {
            Some(file) if file != "system" => Roots::File(file.into()),
            Some(_) | None => Roots::System,
        };
        if mode == SslMode::Prefer && roots != Roots::System {
            return Err(ConnectError::Parameter {
                name: "sslrootcert".to_owned(),
                problem: "sslmode=prefer verifies nothing; use verify-full or verify-ca with it"
                    .to_owned(),
            });
        }
        let client = match (params.take("sslcert"), params.take("sslkey")) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (Some(_), None) | (None, Some(_)) => {
                return Err(ConnectError::Parameter {
                    name: "sslcert".to_owned(),
                    problem: "`sslcert` and `sslkey` only make sense together".to_owned(),
                });
            }
        };
        Ok(Self {
            mode,
            verify,
            written,
            roots,
            client,
        })
    }

    fn complete(self, config: tokio_postgres::Config) -> Result<Connect, ConnectError> {
        let mut warnings = Vec::new();
        let local = config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
            Host::Unix(_) => true,
        });
        if self.mode == SslMode::Prefer && !local {
            warnings.push(
                "sslmode=prefer: a server, or somebody in between, that says it has no TLS gets \
                 everything in clear; use verify-full"
                    .to_owned(),
            );
        }
        let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        let tls = tls::client_config(
            self.verify,
            &self.roots,
            self.client.as_ref(),
            direct,
            &mut warnings,
        )?;
        // Without it a server that has TLS is refused, and one that has none is used in clear.
        if self.mode == SslMode::Require && warnings.iter().any(|warning| warning == tls::NO_ROOTS)
        {
            return Err(ConnectError::Tls(tls::NO_ROOTS.to_owned()));
        }
        Ok(Connect {
            config,
            tls: MakeRustlsConnect::new(tls),
            warnings,
            sslmode: self.written,
        })
    }
}
