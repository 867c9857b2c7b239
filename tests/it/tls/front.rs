//! TLS in front of a test's leaf, which asks for a client's certificate; both can be exchanged while it runs.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;

/// It ends with its value, and its connections with it.
pub(crate) struct Front {
    address: SocketAddr,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    _tasks: JoinSet<()>,
}

impl Front {
    /// In front of `http://…`, for this machine's address.
    pub(crate) async fn of(leaf: &str, authority: &Authority, clients: &Authority) -> Self {
        let behind = leaf
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = Arc::new(Mutex::new(config(authority, clients)));
        let mut tasks = JoinSet::new();
        let current = Arc::clone(&config);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = TlsAcceptor::from(Arc::clone(&current.lock().unwrap()));
                let behind = behind.clone();
                connections.spawn(async move {
                    // A refused client is what some tests want.
                    if let Ok(mut stream) = acceptor.accept(stream).await
                        && let Ok(mut leaf) = TcpStream::connect(behind).await
                    {
                        copy_bidirectional(&mut stream, &mut leaf).await.ok();
                    }
                });
            }
        });
        Self {
            address,
            config,
            _tasks: tasks,
        }
    }

    /// Shows a certificate of this authority from now on, and takes those of these clients.
    pub(crate) fn exchange(&self, authority: &Authority, clients: &Authority) {
        *self.config.lock().unwrap() = config(authority, clients);
    }

    /// Its url.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

fn config(authority: &Authority, clients: &Authority) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&clients.pem())).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let pair = authority.signs("127.0.0.1");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![certificate(&pair.cert_pem)],
            PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap(),
        );
    Arc::new(config.unwrap())
}
