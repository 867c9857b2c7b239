//! How a client is set up: TLS, proxies, and errors that name what is wrong.

use std::{fs, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::TlsAcceptor;

use super::{receiver::Step::*, *};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A folder of its own that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("leafhopper-{}", uuid::Uuid::now_v7()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for `name` and its key, both PEM.
fn certificate(authority: &Authority, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// A receiver behind TLS that asks for a client certificate where `clients` are named.
async fn tls_receiver(authority: &Authority, name: &str, clients: Option<&Authority>) -> Receiver {
    let acceptor = TlsAcceptor::from(Arc::new(tls_config(authority, name, clients)));
    Receiver::wrapped(&[Read, Write(OK)], move |stream| acceptor.accept(stream)).await
}

fn tls_config(
    authority: &Authority,
    name: &str,
    clients: Option<&Authority>,
) -> rustls::ServerConfig {
    let (certificate, key) = certificate(authority, name);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = rustls::RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_slice(clients.pem().as_bytes()).unwrap())
                .unwrap();
            let roots = Arc::new(roots);
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    builder
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap()
}

fn https(receiver: &Receiver, tls: Tls) -> Leaf {
    Leaf {
        tls,
        ..leaf(&format!("https://{}", receiver.address))
    }
}

#[tokio::test]
async fn an_own_authority_is_trusted_and_no_other() {
    let (ours, theirs) = (authority(), authority());
    let folder = Folder::new();
    for (name, trusted, expected, requests) in [
        ("127.0.0.1", &ours, "answered 200 ok", 1),
        ("127.0.0.1", &theirs, "unconnected", 0),
        ("other.example", &ours, "unconnected", 0),
    ] {
        let receiver = tls_receiver(&ours, name, None).await;
        let ca = Some(folder.file("ca.pem", &trusted.pem()));
        let tls = Tls { ca, client: None };
        let client = LeafClient::new(&https(&receiver, tls)).unwrap();
        let evidence = send(&client, &post("{}")).await;
        assert_eq!(word(&evidence), expected, "{evidence:?}");
        assert_eq!(receiver.requests().len(), requests);
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown() {
    let (ours, clients) = (authority(), authority());
    let folder = Folder::new();
    let ca = Some(folder.file("ca.pem", &ours.pem()));
    let (certificate, key) = certificate(&clients, "sidecar");
    let client = (
        folder.file("cert.pem", &certificate),
        folder.file("key.pem", &key),
    );
    let receiver = tls_receiver(&ours, "127.0.0.1", Some(&clients)).await;
    let with = Tls {
        ca: ca.clone(),
        client: Some(client),
    };
    let client = LeafClient::new(&https(&receiver, with)).unwrap();
    assert_eq!(word(&send(&client, &post("{}")).await), "answered 200 ok");
    // TLS 1.3 refuses after the client's handshake is complete: the request is under way by then.
    let client = LeafClient::new(&https(&receiver, Tls { ca, client: None })).unwrap();
    let word = word(&send(&client, &post("{}")).await);
    assert!(
        ["unconnected", "unanswered"].contains(&word.as_str()),
        "{word}"
    );
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn the_http_version_is_what_tls_negotiates_or_the_leaf_says() {
    const HTTP2: &[Step] = &[ReadHttp2, Write(http2::HELLO), Write(http2::NO_CONTENT)];
    const HTTP1: &[Step] = &[Read, Write(OK)];
    let ours = authority();
    let folder = Folder::new();
    let ca = Some(folder.file("ca.pem", &ours.pem()));
    let tls = Tls { ca, client: None };
    for (version, offered, script, expected) in [
        (
            Http2::Auto,
            &[&b"h2"[..], b"http/1.1"][..],
            HTTP2,
            "answered 204",
        ),
        (Http2::Auto, &[b"http/1.1"], HTTP1, "answered 200 ok"),
        (Http2::Auto, &[], HTTP1, "answered 200 ok"),
        (
            Http2::Never,
            &[b"h2", b"http/1.1"],
            HTTP1,
            "answered 200 ok",
        ),
        (Http2::Always, &[b"h2", b"http/1.1"], HTTP2, "answered 204"),
        (Http2::Always, &[b"http/1.1"], HTTP1, "unconnected"),
    ] {
        let mut config = tls_config(&ours, "127.0.0.1", None);
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let receiver = Receiver::wrapped(script, move |stream| acceptor.accept(stream)).await;
        let leaf = Leaf {
            http2: version,
            ..https(&receiver, tls.clone())
        };
        let evidence = send(&LeafClient::new(&leaf).unwrap(), &post("{}")).await;
        assert_eq!(
            word(&evidence),
            expected,
            "{version:?} {offered:?}: {evidence:?}"
        );
    }
}

#[tokio::test]
async fn a_receiver_without_tls_is_unconnected() {
    let folder = Folder::new();
    let ca = Some(folder.file("ca.pem", &authority().pem()));
    let receiver = Receiver::start(&[&[Write(b"220 not TLS at all\r\n")]]).await;
    let client = LeafClient::new(&https(&receiver, Tls { ca, client: None })).unwrap();
    let evidence = send(&client, &post("{}")).await;
    assert_eq!(word(&evidence), "unconnected", "{evidence:?}");
}

#[tokio::test]
async fn a_handshake_that_nobody_answers_is_unconnected_within_the_connect_time_limit() {
    let folder = Folder::new();
    let ca = Some(folder.file("ca.pem", &authority().pem()));
    let receiver = Receiver::start(&[&[Hang]]).await;
    let client = LeafClient::new(&Leaf {
        connect_timeout: SHORT,
        ..https(&receiver, Tls { ca, client: None })
    });
    let begun = tokio::time::Instant::now();
    let evidence = send(&client.unwrap(), &post("{}")).await;
    assert_eq!(word(&evidence), "unconnected", "{evidence:?}");
    assert!(begun.elapsed() < LONG / 2);
}

/// The error of a client with the files `ca`, `cert` and `key` of a folder; an empty name is left out.
fn error_of(folder: &Folder, [ca, cert, key]: [&str; 3]) -> String {
    let tls = Tls {
        ca: (!ca.is_empty()).then(|| folder.0.join(ca)),
        client: (!cert.is_empty()).then(|| (folder.0.join(cert), folder.0.join(key))),
    };
    let leaf = Leaf {
        tls,
        ..leaf("http://h")
    };
    LeafClient::new(&leaf).unwrap_err().to_string()
}

#[test]
fn unusable_files_are_named_with_their_key() {
    let folder = Folder::new();
    let authority = authority();
    let (certificate, key) = certificate(&authority, "sidecar");
    folder.file("ca", &authority.pem());
    folder.file("cert", &certificate);
    folder.file("key", &key);
    folder.file("other", &KeyPair::generate().unwrap().serialize_pem());
    folder.file(
        "junk",
        "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----",
    );
    for (files, wanted) in [
        (["absent", "", ""], "leaf.shelf.tls.ca: can't read"),
        (["junk", "", ""], "leaf.shelf.tls.ca: "),
        (["key", "", ""], "a certificate in PEM form"),
        (["", "absent", "key"], "leaf.shelf.tls.cert: can't read"),
        (["", "junk", "key"], "leaf.shelf.tls.cert: "),
        (["", "cert", "absent"], "leaf.shelf.tls.key: can't read"),
        (["", "cert", "ca"], "leaf.shelf.tls.key: "),
        (["", "cert", "other"], "leaf.shelf.tls: "),
    ] {
        let error = error_of(&folder, files);
        assert!(error.contains(wanted), "{error} does not say {wanted}");
    }
}

#[tokio::test]
async fn a_configured_proxy_is_used() {
    let proxy = Receiver::start(&[&[Read, Write(OK)]]).await;
    let client = LeafClient::new(&Leaf {
        proxy: Some(Url::parse(&proxy.url()).unwrap()),
        ..leaf("http://leaf.invalid/api")
    });
    assert_eq!(
        word(&send(&client.unwrap(), &post("{}")).await),
        "answered 200 ok"
    );
    let wire = proxy.requests().remove(0);
    assert!(
        wire.starts_with("POST http://leaf.invalid/api/effects HTTP/1.1\r\n"),
        "{wire}"
    );
}

#[tokio::test]
async fn a_proxy_that_makes_no_tunnel_is_unconnected() {
    let folder = Folder::new();
    let ca = Some(folder.file("ca.pem", &authority().pem()));
    for answer in [
        &b"HTTP/1.1 502 Bad Gateway\r\n\r\n"[..],
        b"HTTP/1.1 407 Who?\r\n\r\n",
        b"garbage",
    ] {
        let proxy = Receiver::start(&[&[Read, Write(answer)]]).await;
        let url = format!("http://me:open-sesame@{}", proxy.address);
        let client = LeafClient::new(&Leaf {
            proxy: Some(Url::parse(&url).unwrap()),
            tls: Tls {
                ca: ca.clone(),
                client: None,
            },
            ..leaf("https://leaf.invalid/api")
        });
        let auth = Auth::Bearer("s3cret".into());
        let evidence = send_with(&client.unwrap(), &post("{}"), &auth).await;
        assert_eq!(word(&evidence), "unconnected", "{evidence:?}");
        assert!(
            !format!("{evidence:?}").contains("open-sesame"),
            "{evidence:?}"
        );
        let wire = proxy.requests().remove(0);
        assert!(wire.starts_with("CONNECT leaf.invalid:443 ") && !wire.contains("s3cret"));
    }
}

#[tokio::test]
async fn proxy_variables_of_the_environment_are_not_read() {
    let nobody = format!("http://{}", receiver::refusing().await);
    let variables = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let variables = variables.map(|name| (name, nobody.as_str()));
    run_in_a_process("leaf::tests::setup::an_answer_without_a_proxy", &variables).await;
}

#[tokio::test]
#[ignore = "run by proxy_variables_of_the_environment_are_not_read, which sets variables"]
async fn an_answer_without_a_proxy() {
    check(&[Read, Write(OK)], "answered 200 ok").await;
}

#[tokio::test]
async fn a_system_without_authorities_is_an_error_that_says_so() {
    let variables = [
        ("SSL_CERT_FILE", "/nonexistent"),
        ("SSL_CERT_DIR", "/nonexistent"),
    ];
    run_in_a_process(
        "leaf::tests::setup::a_client_without_authorities",
        &variables,
    )
    .await;
}

#[test]
#[ignore = "run by a_system_without_authorities_is_an_error_that_says_so, which sets variables"]
fn a_client_without_authorities() {
    let error = LeafClient::new(&leaf("https://h")).unwrap_err();
    assert!(error.to_string().contains("leaf.shelf.tls.ca"), "{error}");
    assert!(
        LeafClient::new(&leaf("http://h")).is_ok(),
        "without TLS none are needed"
    );
}
