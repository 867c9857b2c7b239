//! The TLS of database connections: rustls, with the verification that `sslmode` asks for.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    client::WebPkiServerVerifier,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    ConnectError,
    verifiers::{AnyCertificate, AnyName},
};
use crate::tls::digest;

/// Said where the system has no certificate authorities.
const NO_ROOTS: &str = "this system has no certificate authorities (package ca-certificates); name \
     the database's with sslrootcert=/path/to/ca.pem";

/// What of a server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    /// `disable`: there is no TLS.
    Nothing,
    /// `allow`, `prefer`, and `require` without a root file: a server's self-signed certificate must not lock its users
    /// out (PostgreSQL, table 34.1).
    Encrypted,
    /// `verify-ca`, and `require` with a root file.
    Chain,
    /// `verify-full`
    ChainAndName,
}

/// The authorities that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Roots {
    None,
    System,
    /// Instead of the system's.
    File(PathBuf),
}

/// A client's certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

/// The versions of TLS that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Versions {
    All,
    Only12,
    Only13,
}

/// The settings of TLS, and where its certificates are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) verify: Verify,
    pub(super) roots: Roots,
    pub(super) client: Option<Client>,
    /// Certificates that are revoked.
    pub(super) crl: Option<PathBuf>,
    pub(super) versions: Versions,
    /// Whether the host's name is sent in clear before the handshake.
    pub(super) sni: bool,
    /// For `sslnegotiation=direct`, which wants to be announced (PostgreSQL 17, section 54.2.11).
    pub(super) direct: bool,
}

/// What the files hold.
#[derive(Default)]
struct Contents {
    roots: Vec<u8>,
    cert: Vec<u8>,
    key: Vec<u8>,
    crl: Vec<u8>,
}

impl Contents {
    /// Tells contents apart without keeping a key.
    fn digest(&self) -> [u8; 32] {
        digest([&self.roots[..], &self.cert, &self.key, &self.crl])
    }
}

impl Files {
    /// Whether there is a file whose content can change.
    fn has_any(&self) -> bool {
        matches!(self.roots, Roots::File(_)) || self.client.is_some() || self.crl.is_some()
    }

    fn read(&self) -> Result<Contents, ConnectError> {
        let file = |name: &str, path: Option<&Path>| match path {
            None => Ok(Vec::new()),
            Some(path) => {
                std::fs::read(path).map_err(|source| unusable(name, path, &source.to_string()))
            }
        };
        let roots = match &self.roots {
            Roots::File(path) => Some(path.as_path()),
            Roots::None | Roots::System => None,
        };
        let client = self.client.as_ref();
        Ok(Contents {
            roots: file("sslrootcert", roots)?,
            cert: file("sslcert", client.map(|client| client.cert.as_path()))?,
            key: file("sslkey", client.map(|client| client.key.as_path()))?,
            crl: file("sslcrl", self.crl.as_deref())?,
        })
    }

    /// The client's side of TLS.
    fn config(&self, contents: &Contents) -> Result<ClientConfig, ConnectError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let versions: &[&SupportedProtocolVersion] = match self.versions {
            Versions::All => rustls::ALL_VERSIONS,
            Versions::Only12 => &[&TLS12],
            Versions::Only13 => &[&TLS13],
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(failed)?;
        let builder = match self.verify {
            Verify::Nothing => builder.with_root_certificates(RootCertStore::empty()),
            Verify::Encrypted => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider })),
            Verify::Chain => {
                let whole = self.verifier(contents, provider)?;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(AnyName { whole }))
            }
            Verify::ChainAndName => {
                builder.with_webpki_verifier(self.verifier(contents, provider)?)
            }
        };
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some(Client { cert, key }) => {
                let chain = certificates(&contents.cert, cert, "sslcert")?;
                let secret = private_key(&contents.key, key)?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|source| unusable("sslcert", cert, &source.to_string()))?
            }
        };
        config.enable_sni = self.sni;
        if self.direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(config)
    }

    fn verifier(
        &self,
        contents: &Contents,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<WebPkiServerVerifier>, ConnectError> {
        let mut store = RootCertStore::empty();
        match &self.roots {
            Roots::None => {}
            Roots::System => {
                // Single files that can't be read are of no interest while others can.
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if store.is_empty() {
                    return Err(ConnectError::Tls(NO_ROOTS.to_owned()));
                }
            }
            Roots::File(file) => {
                for certificate in certificates(&contents.roots, file, "sslrootcert")? {
                    store
                        .add(certificate)
                        .map_err(|source| unusable("sslrootcert", file, &source.to_string()))?;
                }
            }
        }
        let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider);
        if let Some(file) = &self.crl {
            let wrong = |problem: &str| unusable("sslcrl", file, problem);
            let lists = CertificateRevocationListDer::pem_slice_iter(&contents.crl)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|source| wrong(&source.to_string()))?;
            if lists.is_empty() {
                return Err(wrong("holds no list of revoked certificates in PEM"));
            }
            builder = builder.with_crls(lists);
        }
        builder.build().map_err(|source| match &self.crl {
            Some(file) => unusable("sslcrl", file, &source.to_string()),
            None => failed(source),
        })
    }
}

/// The TLS of connections, following its files: what they hold when a connection is opened is what it uses.
pub(super) struct Tls {
    files: Files,
    current: Mutex<Current>,
}

struct Current {
    digest: [u8; 32],
    connector: MakeRustlsConnect,
    /// What is wrong with what the files hold now, as it was said.
    problem: Option<String>,
}

impl Tls {
    /// Blocking: reads the files.
    pub(super) fn new(files: Files) -> Result<Self, ConnectError> {
        let contents = files.read()?;
        let current = Current {
            digest: contents.digest(),
            connector: MakeRustlsConnect::new(files.config(&contents)?),
            problem: None,
        };
        Ok(Self {
            files,
            current: Mutex::new(current),
        })
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// For a new connection. Files that are no good, such as a pair of which one half is not written yet, leave in force
    /// what they held before; that is said once.
    pub(super) async fn connector(self: &Arc<Self>) -> MakeRustlsConnect {
        if self.files.has_any() {
            let all = Arc::clone(self);
            // Without a reading of theirs the former ones hold.
            tokio::task::spawn_blocking(move || all.refresh())
                .await
                .ok();
        }
        self.current().connector.clone()
    }

    fn refresh(&self) {
        let read = self.files.read();
        let known = self.current().digest;
        let fresh = read.and_then(|contents| {
            let digest = contents.digest();
            if digest == known {
                return Ok(None);
            }
            let config = self.files.config(&contents)?;
            Ok(Some((digest, MakeRustlsConnect::new(config))))
        });
        let mut current = self.current();
        match fresh {
            Ok(None) => current.problem = None,
            Ok(Some((digest, connector))) => {
                tracing::info!(
                    "the database's certificates have changed: new connections use them"
                );
                *current = Current {
                    digest,
                    connector,
                    problem: None,
                };
            }
            Err(problem) => {
                let problem = problem.to_string();
                if current.problem.as_ref() != Some(&problem) {
                    tracing::warn!(
                        "the database's certificates can't be used, the former ones stay: {problem}"
                    );
                    current.problem = Some(problem);
                }
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(source: impl ToString) -> ConnectError {
    ConnectError::Tls(source.to_string())
}

fn certificates(
    pem: &[u8],
    file: &Path,
    parameter: &str,
) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let read = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| unusable(parameter, file, &source.to_string()))?;
    if read.is_empty() {
        return Err(unusable(parameter, file, "holds no certificate in PEM"));
    }
    Ok(read)
}

fn private_key(pem: &[u8], file: &Path) -> Result<PrivateKeyDer<'static>, ConnectError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|source| {
        let text = String::from_utf8_lossy(pem);
        if text.contains("ENCRYPTED") {
            unusable(
                "sslkey",
                file,
                "the key is encrypted, which is not read here; write it without a password \
                 (openssl pkey -in OLD -out NEW) into a file that only the sidecar can read",
            )
        } else {
            unusable("sslkey", file, &source.to_string())
        }
    })
}

fn unusable(parameter: &str, file: &Path, problem: &str) -> ConnectError {
    ConnectError::Parameter {
        name: parameter.to_owned(),
        problem: format!("{}: {problem}", file.display()),
    }
}
