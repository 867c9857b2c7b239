//! How the client of a leaf is made, of its settings and of what their files hold.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use reqwest::{Certificate, ClientBuilder, Identity, Proxy, Url, redirect};
use secrecy::{ExposeSecret as _, SecretString};

use super::resolve::{Lookup, Resolver};
use crate::{
    config::{Http2, Leaf},
    tls::digest,
};

/// Below the shortest keep-alive that is common among servers (5 s with Node and Apache), so that a kept
/// connection is seldom used at the moment in which its server closes it: that would leave a doubt.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// A peer that vanished without a FIN is noticed even where the total time limit is hours.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// The same for HTTP/2, where one dead connection would take many calls with it.
const HTTP2_PING_EVERY: Duration = Duration::from_secs(15);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer with more header lines than this is broken; the library's own 100 is too near to real ones.
const RESPONSE_HEADERS_MAX: usize = 512;
/// Bytes of them in HTTP/2, as HTTP/1 takes them: a longer list costs the answer, and its 16 KiB are near to real ones, too.
const RESPONSE_HEADERS_BYTES: u32 = 384 * 1024;

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
    /// The proxy's password can't be read.
    #[error("leaf.{leaf}.proxy_auth.password: {problem}")]
    ProxyPassword {
        /// The leaf's name.
        leaf: String,
        /// Why; holds no secret.
        problem: String,
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

/// What the files of a leaf hold, as far as its client is made of them.
pub(super) struct Material {
    pub(super) ca: Vec<u8>,
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) proxy_password: Option<SecretString>,
}

impl Material {
    /// Blocking: reads the files.
    pub(super) fn read(leaf: &Leaf) -> Result<Self, LeafClientError> {
        let file = |key, path: Option<&PathBuf>| match path {
            Some(path) => read(leaf, key, path),
            None => Ok(Vec::new()),
        };
        let client = leaf.tls.client.as_ref();
        let password = leaf.proxy_auth.as_ref().map(|auth| auth.password());
        Ok(Self {
            ca: file("tls.ca", leaf.tls.ca.as_ref())?,
            cert: file("tls.cert", client.map(|(cert, _)| cert))?,
            key: file("tls.key", client.map(|(_, key)| key))?,
            proxy_password: password.transpose().map_err(|problem| {
                LeafClientError::ProxyPassword {
                    leaf: leaf.name.clone(),
                    problem,
                }
            })?,
        })
    }

    /// Tells contents apart without keeping a key.
    pub(super) fn digest(&self) -> [u8; 32] {
        let password = self.proxy_password.as_ref();
        let password = password.map_or("", |password| password.expose_secret());
        digest([&self.ca[..], &self.cert, &self.key, password.as_bytes()])
    }
}

/// A client without connections yet.
pub(super) fn build(
    leaf: &Leaf,
    material: &Material,
    lookup: &Lookup,
) -> Result<reqwest::Client, LeafClientError> {
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
        .http2_max_header_list_size(RESPONSE_HEADERS_BYTES)
        .http2_keep_alive_interval(HTTP2_PING_EVERY)
        .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT);
    let builder = match leaf.http2 {
        Http2::Auto => builder,
        Http2::Always => builder.http2_prior_knowledge(),
        Http2::Never => builder.http1_only(),
    };
    let builder = builder.dns_resolver(Resolver {
        lookup: Arc::clone(lookup),
        private: leaf.private_addresses,
    });
    let builder = with_proxy(leaf, material, builder)?;
    let own_tls = leaf.tls.ca.is_some() || leaf.tls.client.is_some();
    with_tls(leaf, material, builder)?
        .build()
        .map_err(|source| {
            let leaf = leaf.name.clone();
            if own_tls {
                LeafClientError::Tls { leaf, source }
            } else {
                LeafClientError::NoAuthorities { leaf, source }
            }
        })
}

fn with_proxy(
    leaf: &Leaf,
    material: &Material,
    builder: ClientBuilder,
) -> Result<ClientBuilder, LeafClientError> {
    let Some(url) = &leaf.proxy else {
        return Ok(builder);
    };
    // The library's text may hold the proxy's password: it is not kept.
    #[expect(clippy::map_err_ignore, reason = "its text may hold a password")]
    let proxy = Proxy::all(url.clone()).map_err(|_| LeafClientError::Proxy {
        leaf: leaf.name.clone(),
    })?;
    Ok(
        builder.proxy(match (&leaf.proxy_auth, &material.proxy_password) {
            (Some(auth), Some(password)) => proxy.basic_auth(&auth.user, password.expose_secret()),
            _ => proxy,
        }),
    )
}

fn with_tls(
    leaf: &Leaf,
    material: &Material,
    mut builder: ClientBuilder,
) -> Result<ClientBuilder, LeafClientError> {
    let proxied = leaf.proxy.as_ref().map(Url::scheme);
    if let Some(path) = &leaf.tls.ca {
        let authorities = Certificate::from_pem_bundle(&material.ca).unwrap_or_default();
        if authorities.is_empty() {
            return Err(not_pem(leaf, "tls.ca", path, "a certificate"));
        }
        builder = builder.tls_certs_only(authorities);
    } else if leaf.base_url.scheme() == "http" && proxied != Some("https") {
        // A client that never speaks TLS needs no authorities, and is not to fail where there are none.
        builder = builder.tls_certs_only([]);
    }
    if let Some((certificate, key)) = &leaf.tls.client {
        let mut pem = material.cert.clone();
        if Certificate::from_pem_bundle(&pem).map_or(true, |found| found.is_empty()) {
            return Err(not_pem(leaf, "tls.cert", certificate, "a certificate"));
        }
        pem.push(b'\n');
        pem.extend(&material.key);
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

/// What would be right where a leaf's certificate, or the client's own, is refused.
pub(super) fn hint_of(error: &rustls::Error, leaf: &Leaf) -> Option<String> {
    use rustls::{AlertDescription, CertificateError};
    let name = &leaf.name;
    let refused = match error {
        // Bad is the signature where an authority of the same name has another key.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            return Some(match &leaf.tls.ca {
                Some(file) => format!(
                    "none of the authorities of {} (leaf.{name}.tls.ca) has signed its certificate",
                    file.display()
                ),
                None => format!(
                    "none of the system's authorities has signed its certificate; name the file of \
                     its own in leaf.{name}.tls.ca"
                ),
            });
        }
        rustls::Error::AlertReceived(alert) => alert,
        _ => return None,
    };
    let about_ours = [
        AlertDescription::CertificateRequired,
        AlertDescription::UnknownCA,
        AlertDescription::BadCertificate,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateUnknown,
    ];
    if !about_ours.contains(refused) {
        return None;
    }
    Some(match &leaf.tls.client {
        Some((cert, _)) => format!(
            "it refuses the client certificate of {} (leaf.{name}.tls.cert)",
            cert.display()
        ),
        None => format!("it wants a client certificate: leaf.{name}.tls.cert and key"),
    })
}
