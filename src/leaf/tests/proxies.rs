//! Proxies: whom they are told to connect to, and what they are told of us.

use std::{io, sync::Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{receiver::Step::*, tls::*, *};
use crate::config::ProxyAuth;

/// `me:open-sesame`
const BASIC: &str = "Basic bWU6b3Blbi1zZXNhbWU=";

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
    run_in_a_process(
        "leaf::tests::proxies::an_answer_without_a_proxy",
        &variables,
    )
    .await;
}

#[tokio::test]
#[ignore = "run by proxy_variables_of_the_environment_are_not_read, which sets variables"]
async fn an_answer_without_a_proxy() {
    check(&[Read, Write(OK)], "answered 200 ok").await;
}

/// Reads the head of a request, up to its empty line.
async fn head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[tokio::test]
async fn a_tunnel_ends_at_the_leaf_whose_certificate_is_verified() {
    let (ours, clients) = (authority(), authority());
    let folder = Folder::new();
    let (cert, key) = certificate(&clients, "sidecar");
    for (name, expected) in [
        ("leaf.invalid", "answered 200 ok"),
        ("other.invalid", "unconnected"),
    ] {
        let told = Arc::new(Mutex::new(String::new()));
        let acceptor = TlsAcceptor::from(Arc::new(tls_config(&ours, name, Some(&clients))));
        // It is proxy and leaf in one: what comes after its 200 is the leaf's.
        let heard = Arc::clone(&told);
        let proxy = Receiver::wrapped(&[Read, Write(OK)], move |mut stream| {
            let (acceptor, told) = (acceptor.clone(), Arc::clone(&heard));
            async move {
                *told.lock().unwrap() = head(&mut stream).await?;
                stream.write_all(b"HTTP/1.1 200 Go on\r\n\r\n").await?;
                acceptor.accept(stream).await
            }
        })
        .await;
        let client = LeafClient::new(&Leaf {
            proxy: Some(Url::parse(&proxy.url()).unwrap()),
            proxy_auth: Some(ProxyAuth::known("me", "open-sesame")),
            tls: Tls {
                ca: Some(folder.file("ca", &ours.pem())),
                client: Some((folder.file("cert", &cert), folder.file("key", &key))),
            },
            ..leaf("https://leaf.invalid/api")
        });
        let auth = Auth::Bearer("s3cret".into());
        let evidence = send_with(&client.unwrap(), &post("{}"), &auth).await;
        assert_eq!(word(&evidence), expected, "{name}: {evidence:?}");
        let told = told.lock().unwrap().clone();
        assert!(told.starts_with("CONNECT leaf.invalid:443 "), "{told}");
        assert!(
            told.to_lowercase().contains("proxy-authorization:"),
            "{told}"
        );
        assert!(told.contains(BASIC) && !told.contains("s3cret"), "{told}");
        // The leaf hears nothing of the proxy's password.
        for request in proxy.requests() {
            assert!(
                !request.contains(BASIC) && request.contains("s3cret"),
                "{request}"
            );
        }
    }
}

#[tokio::test]
async fn a_proxy_of_clear_text_is_told_who_one_is_and_its_password_is_not_kept() {
    let echo = b"HTTP/1.1 407 Who\r\nContent-Length: 33\r\n\r\nnot bWU6b3Blbi1zZXNhbWU=, friend.";
    let proxy = Receiver::start(&[&[Read, Write(echo)]]).await;
    let client = LeafClient::new(&Leaf {
        proxy: Some(Url::parse(&proxy.url()).unwrap()),
        proxy_auth: Some(ProxyAuth::known("me", "open-sesame")),
        ..leaf("http://leaf.invalid/api")
    });
    let evidence = send(&client.unwrap(), &post("{}")).await;
    let expected = "answered 407 not [redacted], friend.";
    assert_eq!(word(&evidence), expected, "{evidence:?}");
    assert!(proxy.requests().remove(0).contains(BASIC));
}
