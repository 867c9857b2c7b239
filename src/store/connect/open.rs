//! Opening a connection: one server after another, one address after another, with TLS and without as the mode says, until
//! one is had; and what to say where none is.
//!
//! Each address has a time limit of its own, for all of name, TCP, TLS and authentication: a server that takes connections
//! and says nothing must not keep those behind it from being tried. So none takes more than its part of what is left of the
//! time for all.

use std::{error::Error as _, fmt, net::IpAddr, time::Duration};

use rustls::{AlertDescription, CertificateError};
use tokio::{
    net::lookup_host,
    time::{Instant, timeout},
};
use tokio_postgres::{
    Client, Config, Connection, Socket,
    config::{SslMode, SslNegotiation},
    error::{DbError, SqlState},
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    CONNECT_TIMEOUT, CONNECT_TIMEOUT_OF_SEVERAL, Connect,
    servers::Server,
    ssl::Mode,
    tls::{Roots, Verify},
};

/// What a connection's own task drives.
pub(crate) type Driven = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Why no server gave a connection. `Display` has all of it: each server where there are several, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenError {
    text: String,
    code: Option<SqlState>,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// The server's code, where each of them answered with one (PostgreSQL, appendix A): the first one's.
    #[must_use]
    pub fn code(&self) -> Option<&SqlState> {
        self.code.as_ref()
    }

    /// A connection that broke as soon as it was there.
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        Self {
            text: chain(error),
            code: error.code().cloned(),
        }
    }

    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: None,
        }
    }
}

/// Of the time until then, for the first of so many.
fn part_of(end: Instant, many: usize) -> Duration {
    let left = end.saturating_duration_since(Instant::now());
    left / u32::try_from(many).unwrap_or(u32::MAX).max(1)
}

/// One try that did not give a connection.
struct Failure {
    text: String,
    code: Option<SqlState>,
    /// Whether the server was there, so that it may like the other way better.
    answered: bool,
}

impl Connect {
    /// The string's `options`, and more.
    pub(crate) fn options_with(&self, more: &str) -> String {
        let options = self.config.get_options().unwrap_or_default();
        format!("{options} {more}").trim_start().to_owned()
    }

    /// Opens a connection, within [`Self::patience`], with this for the setting `options` of the session.
    ///
    /// # Errors
    /// No server gave one.
    pub(crate) async fn open_patiently(
        &self,
        options: Option<&str>,
    ) -> Result<(Client, Driven), OpenError> {
        let patience = self.patience();
        let opened = timeout(patience, Box::pin(self.open(options))).await;
        opened.unwrap_or_else(|_elapsed| {
            Err(OpenError::other(format!(
                "no connection within {patience:?}"
            )))
        })
    }

    async fn open(&self, options: Option<&str>) -> Result<(Client, Driven), OpenError> {
        let mut config = self.config.clone();
        if let Some(options) = options {
            config.options(options);
        }
        let mut servers: Vec<&Server> = self.servers.iter().collect();
        if self.shuffled {
            shuffle(&mut servers);
        }
        let mut failures = Vec::new();
        let end = Instant::now() + self.patience();
        for (at, server) in servers.iter().copied().enumerate() {
            let time = part_of(end, servers.len() - at);
            match Box::pin(self.open_at(server, &config, time)).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => failures.push((server, failure)),
            }
        }
        let all_refuse = failures.iter().all(|(_, failure)| failure.code.is_some());
        let code = failures.first().filter(|_| all_refuse);
        let code = code.and_then(|(_, failure)| failure.code.clone());
        let several = failures.len() > 1;
        let texts = failures.iter().map(|(server, failure)| match several {
            true => format!("{server}: {}", failure.text),
            false => failure.text.clone(),
        });
        let text = texts.collect::<Vec<_>>().join("; ");
        Err(OpenError { text, code })
    }

    /// At one server, in this time: each of its addresses in turn.
    async fn open_at(
        &self,
        server: &Server,
        config: &Config,
        time: Duration,
    ) -> Result<(Client, Driven), Failure> {
        let end = Instant::now() + time;
        let mut config = config.clone();
        config.host(&server.name).port(server.port);
        let usual = match self.servers.len() {
            1 => CONNECT_TIMEOUT,
            _ => CONNECT_TIMEOUT_OF_SEVERAL,
        };
        if server.is_socket() {
            let limit = self.limit.unwrap_or(usual);
            return self.open_in_time(server, &config, limit).await;
        }
        let addresses = match server.address {
            Some(address) => vec![address],
            None => addresses(server, self.limit.unwrap_or(usual)).await?,
        };
        let usual = match addresses.len() {
            1 => usual,
            _ => CONNECT_TIMEOUT_OF_SEVERAL,
        };
        let mut last = Failure::new(format!("the name {} has no address", server.name));
        let limit = self.limit.unwrap_or(usual);
        for (at, address) in addresses.iter().enumerate() {
            let mut config = config.clone();
            config.hostaddr(*address);
            let limit = match addresses.len() - at {
                1 => limit,
                left => limit.min(part_of(end, left)),
            };
            match self.open_in_time(server, &config, limit).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn open_in_time(
        &self,
        server: &Server,
        config: &Config,
        limit: Duration,
    ) -> Result<(Client, Driven), Failure> {
        let opening = self.open_each_way(server, config);
        match timeout(limit, opening).await {
            Ok(opened) => opened,
            Err(_elapsed) => Err(Failure::new(format!("no connection within {limit:?}"))),
        }
    }

    /// With TLS and without, in the order of the mode. A wrong password is wrong either way.
    async fn open_each_way(
        &self,
        server: &Server,
        config: &Config,
    ) -> Result<(Client, Driven), Failure> {
        let (first, second) = match self.mode {
            _ if server.is_socket() => (SslMode::Disable, None),
            Mode::Disable => (SslMode::Disable, None),
            Mode::Allow => (SslMode::Disable, Some(SslMode::Require)),
            Mode::Prefer => (SslMode::Prefer, Some(SslMode::Disable)),
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => (SslMode::Require, None),
        };
        let failure = match self.try_once(server, config, first).await {
            Ok(opened) => return Ok(opened),
            Err(failure) => failure,
        };
        let wrong_password = failure.code == Some(SqlState::INVALID_PASSWORD);
        let Some(second) = second.filter(|_| failure.answered && !wrong_password) else {
            return Err(failure);
        };
        match self.try_once(server, config, second).await {
            Ok(opened) => Ok(opened),
            Err(other) if other.text == failure.text => Err(failure),
            Err(other) => Err(Failure {
                text: format!("{}; and {}: {}", failure.text, way(second), other.text),
                code: failure.code.and(other.code),
                answered: true,
            }),
        }
    }

    async fn try_once(
        &self,
        server: &Server,
        config: &Config,
        mode: SslMode,
    ) -> Result<(Client, Driven), Failure> {
        let mut config = config.clone();
        config.ssl_mode(mode);
        if self.tls.files().direct && mode == SslMode::Require {
            config.ssl_negotiation(SslNegotiation::Direct);
        }
        let tls = self.tls.connector().await;
        let connecting = Box::pin(config.connect(tls));
        connecting
            .await
            .map_err(|error| self.failure(server, &error))
    }

    fn failure(&self, server: &Server, error: &tokio_postgres::Error) -> Failure {
        let mut text = chain(error);
        if let Some(hint) = self.hint(server, error, &text) {
            text.push_str("; ");
            text.push_str(&hint);
        }
        Failure {
            code: error.code().cloned(),
            // Its other kinds are of what comes after the connection.
            answered: !text.starts_with("error connecting to server"),
            text,
        }
    }

    /// What would be right.
    fn hint(&self, server: &Server, error: &tokio_postgres::Error, text: &str) -> Option<String> {
        let files = self.tls.files();
        if let Some(rustls) = crate::tls::error_in(error) {
            return self.tls_hint(server, rustls);
        }
        if text.contains("password missing") {
            return Some(
                "the server asks for one; DATABASE_URL may say it, or the file that \
                 database.url = { file = \"/path\" } names"
                    .to_owned(),
            );
        }
        if text.contains("does not support TLS") {
            return Some(format!(
                "sslmode={} never goes without; set ssl = on at the server",
                self.mode.name()
            ));
        }
        if text.contains("channel binding") {
            return Some(
                "channel_binding=require wants a password kept as scram-sha-256, TLS, and a \
                 certificate signed with RSA or ECDSA and SHA-2"
                    .to_owned(),
            );
        }
        if files.direct && error.as_db_error().is_none() && text.starts_with("error performing") {
            return Some(
                "sslnegotiation=direct needs PostgreSQL 17 or later, and no pooler in between \
                 that does not know it"
                    .to_owned(),
            );
        }
        let code = error.code()?;
        let certificate = *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            && text.contains("valid client certificate");
        match &files.client {
            None if certificate => Some(
                "the server wants a client certificate; name it with sslcert=/path and \
                 sslkey=/path"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    fn tls_hint(&self, server: &Server, error: &rustls::Error) -> Option<String> {
        let files = self.tls.files();
        let trusted = match &files.roots {
            Roots::File(file) => format!("those of {}", file.display()),
            Roots::System | Roots::None => "the system's".to_owned(),
        };
        let hint = match error {
            rustls::Error::InvalidCertificate(problem) => match problem {
                // Bad is the signature where an authority of the same name has another key.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                    "the server's certificate is of none of the trusted authorities ({trusted}); \
                     name the file of its own with sslrootcert=/path/to/ca.pem"
                ),
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => format!(
                    "the server's certificate is not for the name {}; connect by a name that is \
                     among its subjectAltNames (hostaddr= says where that is), or have it \
                     reissued (a CN counts for nothing here)",
                    server.name
                ),
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "the server's certificate has to be renewed".to_owned()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "this machine's clock, or the server's certificate, is wrong".to_owned()
                }
                CertificateError::UnknownRevocationStatus => {
                    "sslcrl has no list of the authority that signed it".to_owned()
                }
                CertificateError::Other(_) if problem.to_string().contains("CaUsedAsEndEntity") => {
                    "the server uses the certificate of an authority as its own; have one signed \
                     by it, or make it with basicConstraints CA:FALSE"
                        .to_owned()
                }
                _ => return None,
            },
            rustls::Error::AlertReceived(alert) => match (alert, &files.client) {
                (
                    AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
                    None,
                ) => "the server wants a client certificate; name it with sslcert=/path and \
                      sslkey=/path"
                    .to_owned(),
                (
                    AlertDescription::UnknownCA
                    | AlertDescription::BadCertificate
                    | AlertDescription::CertificateExpired
                    | AlertDescription::CertificateUnknown
                    | AlertDescription::DecryptError,
                    Some(client),
                ) => format!(
                    "the server refuses the client certificate of {}; its ssl_ca_file has to hold \
                     the authority that signed it",
                    client.cert.display()
                ),
                _ => return None,
            },
            _ => return None,
        };
        debug_assert!(files.verify != Verify::Nothing, "there is no TLS");
        Some(hint)
    }
}

impl Failure {
    /// One of the way to the server.
    fn new(text: String) -> Self {
        Self {
            text,
            code: None,
            answered: false,
        }
    }
}

fn way(mode: SslMode) -> &'static str {
    match mode {
        SslMode::Disable => "without TLS",
        _ => "with TLS",
    }
}

async fn addresses(server: &Server, limit: Duration) -> Result<Vec<IpAddr>, Failure> {
    let looked = timeout(limit, lookup_host((server.name.as_str(), server.port))).await;
    let failed = |why: String| Failure::new(format!("the name {}: {why}", server.name));
    match looked {
        Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect()),
        Ok(Err(source)) => Err(failed(source.to_string())),
        Err(_elapsed) => Err(failed(format!(
            "no answer of the name service within {limit:?}"
        ))),
    }
}

/// In any order. Spread over clients, not secret.
fn shuffle<T>(list: &mut [T]) {
    for last in (1..list.len()).rev() {
        let [random, ..] = *uuid::Uuid::new_v4().as_bytes();
        list.swap(last, usize::from(random) % (last + 1));
    }
}

/// The error with its causes; without the server's DETAIL.
fn chain(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said_by_server(said);
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = error.source();
    }
    text
}

/// Without the server's DETAIL: it shows the row that it refuses, a body with it.
pub(crate) fn said_by_server(error: &DbError) -> String {
    let hint = error.hint();
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    format!("{}: {}{hint}", error.severity(), error.message())
}
