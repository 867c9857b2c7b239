//! The configuration as the rest of the program sees it: checked, complete, nothing optional that has a
//! default. Below this module nothing checks again.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use reqwest::Url;
use secrecy::SecretString;

use super::credentials::LeafSecrets;
pub use super::transport::ProxyAuth;
use crate::domain::{
    compensation::Compensate, decision::Policy, outcome::Rules, schedule::Schedule,
};
pub use crate::domain::{request::IdempotencyFormat, retention::Retention, signature::Signing};

/// Everything that one sidecar is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the outbox is.
    pub database: Database,
    /// The HTTP listener.
    pub listen: Listen,
    /// How work is taken.
    pub dispatch: Dispatch,
    /// How long what has ended is kept.
    pub retention: Retention,
    /// The leaves, by name.
    pub leaves: BTreeMap<String, Arc<Leaf>>,
    /// What is allowed but probably not meant; logged at start and shown by `check`.
    pub warnings: Vec<String>,
}

/// `[database]`
#[derive(Debug, Clone)]
pub struct Database {
    /// Connection string; it may hold a password.
    pub url: SecretString,
    /// For LISTEN and migrations where `url` leads through a transaction pooler.
    pub direct_url: Option<SecretString>,
    /// Connections for its work that this instance opens at most; beside them it has four: for LISTEN, for scrapes, and two for
    /// people.
    pub pool_size: usize,
}

/// `[listen]`
#[derive(Debug, Clone)]
pub struct Listen {
    /// Address and port.
    pub address: SocketAddr,
    /// The bearer token for actions and for reads of rows.
    pub admin_token: Option<SecretString>,
    /// The names, beside `localhost` and addresses, by which it is reached.
    pub hosts: Vec<String>,
    /// Whether the API and the page show the bodies of calls and results.
    pub show_bodies: bool,
}

/// `[dispatch]`
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// The longest time between two looks into the outbox.
    pub poll_interval: Duration,
    /// How soon a dead instance is noticed.
    pub lease: Duration,
    /// How long a graceful stop waits for attempts under way.
    pub shutdown_grace: Duration,
    /// After this time a call that does not move is called stuck.
    pub stuck_after: Duration,
    /// A folder that outlives the process, for its successor: what was claimed and never sent, and answers that could not be
    /// recorded before a stop.
    pub state_dir: Option<PathBuf>,
}

/// `[leaf.NAME]`
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The name that rows use.
    pub name: String,
    /// Scheme, host, port and base path; no query, no fragment, no user part.
    pub base_url: Url,
    /// How calls without a `credential` authenticate, as it was when the configuration was loaded.
    pub auth: Option<Auth>,
    /// `[leaf.NAME.signing]`: how requests are signed.
    pub signing: Option<Signing>,
    /// The secrets of both and the credentials, following their files.
    pub secrets: Arc<LeafSecrets>,
    /// For the whole attempt, the body included.
    pub timeout: Duration,
    /// For the connection alone.
    pub connect_timeout: Duration,
    /// Attempts and probes at once, over all live instances together.
    pub concurrency: u32,
    /// Attempts and probes per second, over all live instances together.
    pub rate: Option<f64>,
    /// What this leaf's answers mean where they differ from the table.
    pub rules: Rules,
    /// What is done with a call in doubt; decided from `in_doubt`, else from the leaf's other settings and
    /// the call's method (see [`Policy::for_call`]).
    pub in_doubt: Option<Policy>,
    /// When and how often it is tried again.
    pub retry: Retry,
    /// `[leaf.NAME.probe]`
    pub probe: Option<Probe>,
    /// `[leaf.NAME.compensate]`
    pub compensate: Option<Compensate>,
    /// `[leaf.NAME.idempotency]`: the leaf's dialect. Without it no dedup is assumed.
    pub idempotency: Option<Idempotency>,
    /// A response body is kept up to this many bytes.
    pub max_response_bytes: usize,
    /// So many bytes the bodies of requests under way may take, and those of answers as many again.
    pub body_memory: usize,
    /// Response headers that are kept beside the usual ones; lower case.
    pub keep_headers: Vec<String>,
    /// Whether a head of an ordering key that failed holds those behind it.
    pub after_failed_head: AfterFailedHead,
    /// Own certificate authority and client certificate.
    pub tls: Tls,
    /// Which HTTP versions are spoken.
    pub http2: Http2,
    /// A forward proxy; proxy variables of the environment are never read.
    pub proxy: Option<Url>,
    /// Who the proxy is told that one is.
    pub proxy_auth: Option<ProxyAuth>,
    /// Whether the leaf may be in one's own network.
    pub private_addresses: PrivateAddresses,
}

/// How a request authenticates. Secrets are read when the configuration is loaded.
#[derive(Debug, Clone)]
pub enum Auth {
    /// `Authorization: Bearer TOKEN`
    Bearer(SecretString),
    /// `Authorization: Basic …` (RFC 7617); the secret is `user:password`.
    Basic(SecretString),
    /// A header of the leaf's own.
    Header {
        /// Its name, lower case.
        name: String,
        /// Its value.
        value: SecretString,
    },
}

/// What a request is signed with.
#[derive(Debug, Clone)]
pub struct Signer {
    /// How.
    pub signing: Signing,
    /// One that [`Signing::check`] has passed.
    pub secret: SecretString,
}

/// What a request shows of who sends it.
#[derive(Debug, Clone, Default)]
pub struct Proofs {
    /// How it authenticates.
    pub auth: Option<Auth>,
    /// What it is signed with.
    pub signer: Option<Signer>,
}

/// `retry`, of the file or of one leaf.
#[derive(Debug, Clone)]
pub struct Retry {
    /// The delays.
    pub schedule: Schedule,
    /// Answers of the leaf that are spent at most; the first attempt counts.
    pub max_attempts: u32,
    /// From the first claim; then failed.
    pub give_up_after: Duration,
    /// A `Retry-After` longer than this is cut to it.
    pub retry_after_max: Duration,
}

/// `[leaf.NAME.probe]`, checked to compile.
#[derive(Debug, Clone)]
pub struct Probe {
    /// GET or HEAD.
    pub method: String,
    /// Template of the path.
    pub path: String,
    /// Expression that recognises the effect as ours.
    pub found: Option<String>,
    /// How long after the attempt's end an absence is believed.
    pub settle: Duration,
    /// After this many unclear probes the call is parked.
    pub max_probes: u32,
}

impl Leaf {
    /// How long after an attempt can last have been alive its request can still have an effect. `None` where the leaf
    /// honours idempotency keys: it has seen this one.
    #[must_use]
    pub fn settle(&self) -> Option<Duration> {
        let probe = self.probe.as_ref();
        let settle = probe.map_or(DEFAULT_SETTLE, |probe| probe.settle);
        self.idempotency.is_none().then_some(settle)
    }
}

/// What a row's own probe takes where neither it nor its leaf says how long an absence needs to settle. A test
/// holds both against the default file.
pub const DEFAULT_SETTLE: Duration = Duration::from_secs(30);

/// The same for how many unclear answers park a call.
pub const DEFAULT_MAX_PROBES: u32 = 10;

/// `[leaf.NAME.idempotency]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The header's name, lower case.
    pub header: String,
    /// How the value is written.
    pub format: IdempotencyFormat,
    /// How long the leaf remembers a key.
    pub window: Duration,
    /// What it replays.
    pub replays: Replays,
}

/// What a leaf answers to a key that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Replays {
    /// Successes only; a refused key can be sent again.
    Success,
    /// Errors too; sending again can't help.
    All,
}

/// What becomes of the calls behind a head that failed, was cancelled or expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailedHead {
    /// The next one goes.
    Continue,
    /// They wait for `retry` or `release`.
    Hold,
}

/// `tls` of a leaf. The files are read when the client is built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM file of the authorities that are trusted instead of the system's.
    pub ca: Option<PathBuf>,
    /// PEM files of the client certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// `private_addresses` of a leaf: what its name may lead to, looked at for each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivateAddresses {
    /// Any address.
    Allow,
    /// Public ones only.
    Refuse,
}

/// `http2` of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Http2 {
    /// What TLS negotiates; HTTP/1.1 without TLS.
    Auto,
    /// HTTP/2 from the first byte.
    Always,
    /// HTTP/1.1 only.
    Never,
}
