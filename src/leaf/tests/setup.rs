//! How a client is set up: TLS, files that change, and errors that name what is wrong.

use rcgen::KeyPair;
use tokio_rustls::TlsAcceptor;

use super::{receiver::Step::*, tls::*, *};

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

/// A folder with the files of a client, and its TLS settings.
fn client_files(ours: &Authority, clients: &Authority) -> (Folder, Tls) {
    let folder = Folder::new();
    let (cert, key) = certificate(clients, "sidecar");
    let tls = Tls {
        ca: Some(folder.file("ca", &ours.pem())),
        client: Some((folder.file("cert", &cert), folder.file("key", &key))),
    };
    (folder, tls)
}

#[tokio::test]
async fn files_that_have_changed_are_used_once_they_are_good() {
    let (ours, next, clients) = (authority(), authority(), authority());
    let receiver = tls_receiver(&next, "127.0.0.1", Some(&clients)).await;
    let (folder, tls) = client_files(&ours, &clients);
    let client = LeafClient::new(&https(&receiver, tls)).unwrap();
    assert!(!client.refresh().unwrap(), "nothing has changed");
    let evidence = send(&client, &post("{}")).await;
    assert_eq!(word(&evidence), "unconnected", "{evidence:?}");

    let (cert, key) = certificate(&clients, "sidecar");
    folder.file("ca", &next.pem());
    folder.file("cert", &cert);
    let refused = client.refresh().unwrap_err().to_string();
    assert!(refused.contains("leaf.shelf.tls"), "{refused}");
    folder.file("ca", "-----BEGIN CERT");
    let refused = client.refresh().unwrap_err().to_string();
    assert!(refused.contains("leaf.shelf.tls.ca"), "{refused}");
    let evidence = send(&client, &post("{}")).await;
    assert_eq!(word(&evidence), "unconnected", "the former ones stay");

    folder.file("ca", &next.pem());
    folder.file("key", &key);
    assert!(client.refresh().unwrap());
    assert!(!client.refresh().unwrap());
    let evidence = send(&client, &post("{}")).await;
    assert_eq!(word(&evidence), "answered 200 ok", "{evidence:?}");
}

#[tokio::test]
async fn what_is_refused_says_what_would_be_right() {
    let (ours, theirs) = (authority(), authority());
    let receiver = tls_receiver(&ours, "127.0.0.1", None).await;
    let (_folder, tls) = client_files(&theirs, &theirs);
    let client = LeafClient::new(&https(&receiver, tls)).unwrap();
    let evidence = format!("{:?}", send(&client, &post("{}")).await);
    assert!(evidence.contains("(leaf.shelf.tls.ca)"), "{evidence}");
    let client = LeafClient::new(&https(&receiver, Tls::default())).unwrap();
    let evidence = format!("{:?}", send(&client, &post("{}")).await);
    assert!(evidence.contains("in leaf.shelf.tls.ca"), "{evidence}");
}
