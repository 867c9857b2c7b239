//! Leaves: one HTTP exchange at a time, and what was seen of it. The only module that says reqwest.
//!
//! [`LeafClient::send`] never fails: a leaf's misbehaviour is [`Evidence`], judged elsewhere
//! ([`crate::domain::outcome`]). What it promises:
//!
//! - At most one request is written for each call of `send`: no redirects, no retries.
//! - [`Evidence::NotSent`] is said only where it is certain ([`progress`] is the proof, [`send`] the use).
//! - A request goes to the leaf's origin, under its base path ([`prepare`]).
//! - Nothing that is handed back holds a secret ([`redact`]) or more than the configured bytes ([`body`]).
//!
//! Connections are kept between calls, but for no longer than [`AGE_MAX`]: a leaf whose name moves gets its calls
//! at the new address by then, however busy the old connections are. reqwest has no upper age, so a client of that age
//! gives way to a new one (which reads the certificates' files anew), and ends with the last of its requests.

mod body;
mod headers;
mod memory;
mod prepare;
mod progress;
mod redact;
mod retry_after;
mod send;
#[cfg(test)]
mod tests;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use reqwest::{Certificate, ClientBuilder, Identity, Proxy, Url, redirect};
use tokio::time::Instant;

pub(crate) use memory::Memory;

use crate::{
    config::{Http2, Leaf, Proofs},
    domain::{evidence::Evidence, request::Request, trace::Trace},
};

/// Below the shortest keep-alive that is common among servers (5 s with Node and Apache), so that a kept
/// connection is seldom used at the moment in which its server closes it: that would leave a doubt.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// As long as a name's old address may still get calls; seldom enough that new connections cost nothing.
const AGE_MAX: Duration = Duration::from_secs(300);
/// A peer that vanished without a FIN is noticed even where the total time limit is hours.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// The same for HTTP/2, where one dead connection would take many calls with it.
const HTTP2_PING_EVERY: Duration = Duration::from_secs(15);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer with more header lines than this is broken; the library's own 100 is too near to real ones.
const RESPONSE_HEADERS_MAX: usize = 512;

/// Why there is no client for a leaf. Each text names the leaf's key in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum LeafClientError {
    /// A file of `tls` can't be read.
    #[error("leaf.{leaf}.{key}: can't read {}", path.display())]
    Read {
        /// The leaf's name.
        leaf: String,
        /// The key below it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of `tls` does not hold what it should.
    #[error("leaf.{leaf}.{key}: {} does not hold {wanted} in PEM form", path.display())]
    Pem {
        /// The leaf's name.
        leaf: String,
        /// The key below it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
    },
    /// A proxy that can't be used.
    #[error("leaf.{leaf}.proxy: not usable as a proxy; give http://HOST:PORT or https://HOST:PORT")]
    Proxy {
        /// The leaf's name.
        leaf: String,
    },
    /// The system has no certificate authorities.
    #[error(
        "leaf.{leaf}.tls.ca: no certificate authorities are found on this system; install the package \
         ca-certificates, or name a PEM file here"
    )]
    NoAuthorities {
        /// The leaf's name.
        leaf: String,
        /// What the TLS library says.
        source: reqwest::Error,
    },
    /// Certificates or keys that the TLS library refuses.
    #[error("leaf.{leaf}.tls: the certificates or the key can't be used")]
    Tls {
        /// The leaf's name.
        leaf: String,
        /// What the TLS library says.
        source: reqwest::Error,
    },
}

/// The HTTP client of one leaf: its connections, and its settings.
pub struct LeafClient {
    http: Mutex<Aging>,
    age_max: Duration,
    leaf: Leaf,
    /// For what is answered.
    memory: Memory,
}

/// A client with its connections, and when it was made.
struct Aging {
    client: reqwest::Client,
    since: Instant,
}

impl fmt::Debug for LeafClient {
    /// Without the proxy, whose URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base_url = self.leaf.base_url.as_str();
        f.debug_struct("LeafClient")
            .field("base_url", &base_url)
            .finish_non_exhaustive()
    }
}

impl LeafClient {
    /// Reads the leaf's certificates and makes its client; nothing is connected yet.
    ///
    /// # Errors
    /// Certificates that are missing or unusable, an unusable proxy.
    pub fn new(leaf: &Leaf) -> Result<Self, LeafClientError> {
        Ok(Self {
            http: Mutex::new(Aging {
                client: build(leaf)?,
                since: Instant::now(),
            }),
            age_max: AGE_MAX,
            leaf: leaf.clone(),
            memory: Memory::new(leaf.body_memory),
        })
    }

    /// The client with the connections to use now. One that has grown old is replaced, while others go on with it;
    /// where no new one can be made (a certificate's file that is just being written), it serves for another term.
    async fn http(&self) -> reqwest::Client {
        let old = {
            let mut http = self.http.lock().unwrap_or_else(PoisonError::into_inner);
            if http.since.elapsed() < self.age_max {
                return http.client.clone();
            }
            http.since = Instant::now();
            http.client.clone()
        };
        let leaf = self.leaf.clone();
        match tokio::task::spawn_blocking(move || build(&leaf)).await {
            Ok(Ok(fresh)) => {
                let mut http = self.http.lock().unwrap_or_else(PoisonError::into_inner);
                http.client = fresh.clone();
                fresh
            }
            Ok(Err(_)) | Err(_) => old,
        }
    }

    /// Makes one attempt, and says what was seen.
    ///
    /// `proofs` are the call's credential as it is now, `trace` the place in a trace that the leaf goes on from. `timeout`
    /// is for the whole, the body included.
    /// `may_send` is asked last before the request is handed to a connection that is up: false means that
    /// nothing is sent any more.
    pub async fn send(
        &self,
        request: &Request,
        proofs: &Proofs,
        trace: Option<&Trace>,
        timeout: Duration,
        may_send: &(dyn Fn() -> bool + Send + Sync),
    ) -> Evidence {
        Box::pin(send::attempt(
            self, request, proofs, trace, timeout, may_send,
        ))
        .await
    }
}

/// A client without connections yet.
fn build(leaf: &Leaf) -> Result<reqwest::Client, LeafClientError> {
    let builder = reqwest::Client::builder()
        // Rows may say their own; this is for those that don't.
        .user_agent(concat!("leafhopper/", env!("CARGO_PKG_VERSION")))
        // A followed 302 turns a POST into a GET that then succeeds.
        .redirect(redirect::Policy::none())
        .referer(false)
        // An attempt that is counted is an attempt that was made.
        .retry(reqwest::retry::never())
        // HTTP_PROXY and its like are obeyed by default.
        .no_proxy()
        // No time limit for the whole: `send` has it, the row may set another.
        .connect_timeout(leaf.connect_timeout)
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(usize::try_from(leaf.concurrency).unwrap_or(usize::MAX))
        .tcp_keepalive(TCP_KEEPALIVE)
        // The last, small segment of a body must not wait for an acknowledgement.
        .tcp_nodelay(true)
        // A header that HTTP does not allow must not cost an answer its status.
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_max_headers(RESPONSE_HEADERS_MAX)
        .http2_keep_alive_interval(HTTP2_PING_EVERY)
        .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT);
    let builder = match leaf.http2 {
        Http2::Auto => builder,
        Http2::Always => builder.http2_prior_knowledge(),
        Http2::Never => builder.http1_only(),
    };
    let builder = with_proxy(leaf, builder)?;
    let own_tls = leaf.tls.ca.is_some() || leaf.tls.client.is_some();
    with_tls(leaf, builder)?.build().map_err(|source| {
        let leaf = leaf.name.clone();
        if own_tls {
            LeafClientError::Tls { leaf, source }
        } else {
            LeafClientError::NoAuthorities { leaf, source }
        }
    })
}

fn with_proxy(leaf: &Leaf, builder: ClientBuilder) -> Result<ClientBuilder, LeafClientError> {
    let Some(url) = &leaf.proxy else {
        return Ok(builder);
    };
    // The library's text may hold the proxy's password: it is not kept.
    #[expect(clippy::map_err_ignore, reason = "its text may hold a password")]
    let proxy = Proxy::all(url.clone()).map_err(|_| LeafClientError::Proxy {
        leaf: leaf.name.clone(),
    })?;
    Ok(builder.proxy(proxy))
}

fn with_tls(leaf: &Leaf, mut builder: ClientBuilder) -> Result<ClientBuilder, LeafClientError> {
    let proxied = leaf.proxy.as_ref().map(Url::scheme);
    if let Some(path) = &leaf.tls.ca {
        let pem = read(leaf, "tls.ca", path)?;
        let authorities = Certificate::from_pem_bundle(&pem).unwrap_or_default();
        if authorities.is_empty() {
            return Err(not_pem(leaf, "tls.ca", path, "a certificate"));
        }
        builder = builder.tls_certs_only(authorities);
    } else if leaf.base_url.scheme() == "http" && proxied != Some("https") {
        // A client that never speaks TLS needs no authorities, and is not to fail where there are none.
        builder = builder.tls_certs_only([]);
    }
    if let Some((certificate, key)) = &leaf.tls.client {
        let mut pem = read(leaf, "tls.cert", certificate)?;
        if Certificate::from_pem_bundle(&pem).map_or(true, |found| found.is_empty()) {
            return Err(not_pem(leaf, "tls.cert", certificate, "a certificate"));
        }
        pem.push(b'\n');
        pem.extend(read(leaf, "tls.key", key)?);
        #[expect(clippy::map_err_ignore, reason = "it says less than the key's name")]
        let identity = Identity::from_pem(&pem)
            .map_err(|_| not_pem(leaf, "tls.key", key, "an unencrypted private key"))?;
        builder = builder.identity(identity);
    }
    Ok(builder)
}

fn read(leaf: &Leaf, key: &'static str, path: &Path) -> Result<Vec<u8>, LeafClientError> {
    fs::read(path).map_err(|source| LeafClientError::Read {
        leaf: leaf.name.clone(),
        key,
        path: path.to_owned(),
        source,
    })
}

fn not_pem(leaf: &Leaf, key: &'static str, path: &Path, wanted: &'static str) -> LeafClientError {
    LeafClientError::Pem {
        leaf: leaf.name.clone(),
        key,
        path: path.to_owned(),
        wanted,
    }
}
