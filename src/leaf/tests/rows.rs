//! What goes out for a row, and what is kept of what comes back.

use super::{receiver::Step::*, *};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The request as the receiver reads it, header names in lower case as hyper writes them.
async fn on_the_wire(request: &Request, auth: Option<&Auth>) -> String {
    traced_on_the_wire(request, auth, None).await
}

async fn traced_on_the_wire(
    request: &Request,
    auth: Option<&Auth>,
    trace: Option<&Trace>,
) -> String {
    let receiver = Receiver::start(&[&[Read, Write(OK)]]).await;
    let client = client(&format!("{}/api/", receiver.url()));
    let proofs = Proofs {
        auth: auth.cloned(),
        ..Proofs::default()
    };
    let evidence = client.send(request, &proofs, trace, LONG, &|| true).await;
    assert_eq!(word(&evidence), "answered 200 ok");
    receiver.requests().remove(0)
}

#[tokio::test]
async fn the_body_goes_as_it_is() {
    let body = "{\"b\": 1.50,\r\n \"a\":1e400, \"b\":0}\r\n\r\n";
    let wire = on_the_wire(&post(body), None).await;
    assert!(wire.starts_with("POST /api/effects HTTP/1.1\r\n"), "{wire}");
    assert!(wire.ends_with(&format!("\r\n\r\n{body}")), "{wire}");
    assert!(
        wire.contains(&format!("\r\ncontent-length: {}\r\n", body.len())),
        "{wire}"
    );
}

#[tokio::test]
async fn each_header_comes_from_its_place() {
    let request = Request {
        headers: vec![
            ("X-Row".into(), "a b".into()),
            ("x-empty".into(), String::new()),
        ],
        content_type: Some("application/json".into()),
        idempotency: Some(("idempotency-key".into(), "\"k:1\"".into())),
        ..post("{}")
    };
    let trace = Trace::of(Some(PARENT), Some("rojo=1"));
    let auth = Auth::Bearer("s3cret".into());
    let wire = traced_on_the_wire(&request, Some(&auth), trace.as_ref()).await;
    for line in [
        "x-row: a b",
        "x-empty: ",
        "content-type: application/json",
        "authorization: Bearer s3cret",
        "idempotency-key: \"k:1\"",
        &format!("traceparent: {PARENT}"),
        "tracestate: rojo=1",
        concat!("user-agent: leafhopper/", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(
            wire.matches(&format!("\r\n{line}\r\n")).count(),
            1,
            "{line} in {wire}"
        );
    }
    for absent in ["accept-encoding", "transfer-encoding", "referer", "cookie"] {
        assert!(!wire.contains(absent), "{absent} in {wire}");
    }
}

#[tokio::test]
async fn each_kind_of_auth_is_written() {
    let header = Auth::Header {
        name: "x-api-key".into(),
        value: "k3y".into(),
    };
    for (auth, line) in [
        (
            Auth::Basic("user:pass".into()),
            "authorization: Basic dXNlcjpwYXNz",
        ),
        (header, "x-api-key: k3y"),
    ] {
        let wire = on_the_wire(&post("{}"), Some(&auth)).await;
        assert!(wire.contains(&format!("\r\n{line}\r\n")), "{wire}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_there_has_a_length_where_one_is_expected() {
    for (method, said) in [
        ("POST", 1),
        ("PUT", 1),
        ("PATCH", 1),
        ("GET", 0),
        ("DELETE", 0),
    ] {
        let wire = on_the_wire(&request(method, "/"), None).await;
        assert_eq!(
            wire.matches("content-length: 0\r\n").count(),
            said,
            "{wire}"
        );
    }
}

#[tokio::test]
async fn a_row_s_own_place_in_a_trace_is_not_mixed_with_another() {
    let trace = Trace::of(Some(PARENT), Some("rojo=1"));
    let own = PARENT.replace('b', "c");
    for (name, value) in [("traceparent", own.as_str()), ("tracestate", "congo=2")] {
        let request = Request {
            headers: vec![(name.into(), value.into())],
            ..post("{}")
        };
        let wire = traced_on_the_wire(&request, None, trace.as_ref()).await;
        assert!(wire.contains(&format!("\r\n{name}: {value}\r\n")), "{wire}");
        assert_eq!(wire.matches("\r\ntrace").count(), 1, "{wire}");
    }
}

#[tokio::test]
async fn a_row_that_makes_no_request_is_unsendable_and_nothing_is_connected() {
    let with = |name: &str, value: &str| Request {
        headers: vec![(name.into(), value.into())],
        idempotency: Some(("idempotency-key".into(), "k".into())),
        ..post("{}")
    };
    let twice = Request {
        headers: vec![("X-a".into(), "1".into()), ("x-A".into(), "2".into())],
        ..post("{}")
    };
    let typed = Request {
        content_type: Some("text/plain\r\nX: y".into()),
        ..post("{}")
    };
    let receiver = Receiver::start(&[]).await;
    let client = client(&format!("{}/api", receiver.url()));
    let auth = Auth::Bearer("s3cret".into());
    for (request, part) in [
        (with("Host", "elsewhere"), "header host"),
        (with("content-length", "1"), "header content-length"),
        (
            with("Transfer-Encoding", "chunked"),
            "header transfer-encoding",
        ),
        (with("Connection", "close"), "header connection"),
        (with("TE", "trailers"), "header te"),
        (with("Upgrade", "h2c"), "header upgrade"),
        (with("Keep-Alive", "1"), "header keep-alive"),
        (with("Proxy-Connection", "x"), "header proxy-connection"),
        (with("Content-Type", "text/plain"), "content_type"),
        (with("Authorization", "Bearer other"), "the leaf's own"),
        (with("Idempotency-KEY", "other"), "the leaf's own"),
        (with("", "x"), "no name of a header"),
        (with("a b", "x"), "no name of a header"),
        (with("x", "a\r\nHost: elsewhere"), "visible ASCII"),
        (with("x", "käse"), "visible ASCII"),
        (with("x", "\t"), "visible ASCII"),
        (twice, "twice"),
        (typed, "content_type"),
        (request("FROB", "/"), "FROB"),
        (request("post", "/"), "post"),
        (request("POST", "/../x"), "segment"),
        (request("POST", "//elsewhere/x"), "exactly one `/`"),
        (request("POST", "@elsewhere"), "exactly one `/`"),
        (request("POST", "http://elsewhere/"), "exactly one `/`"),
        (request("POST", "/a{b}"), "percent-encoded"),
    ] {
        match send_with(&client, &request, &auth).await {
            Evidence::NotSent(NotSent::Unsendable(text)) => {
                assert!(text.contains(part), "{text:?} does not say {part:?}");
            }
            other => panic!("{request:?}: {other:?}"),
        }
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_secret_that_makes_no_header_does_not_fail_the_call() {
    let auth = Auth::Bearer("s3cret\n".into());
    let evidence = send_with(&client("http://127.0.0.1:9"), &post("{}"), &auth).await;
    assert_eq!(word(&evidence), "unconnected");
    assert!(!format!("{evidence:?}").contains("s3cret"));
}

#[tokio::test]
async fn the_headers_that_are_named_are_kept() {
    let answered = b"HTTP/1.1 201 Created\r\nX-Mine: 1\r\nLocation: /e/1\r\nSet-Cookie: no\r\n\
        ETag: \"e\"\r\nContent-Length: 0\r\n\r\n";
    let receiver = Receiver::start(&[&[Read, Write(answered)]]).await;
    let client = LeafClient::new(&Leaf {
        keep_headers: vec!["x-mine".into()],
        ..leaf(&receiver.url())
    })
    .unwrap();
    let kept = answer(send(&client, &post("{}")).await).headers;
    let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-mine", "location", "etag"]);
}

#[tokio::test]
async fn retry_after_counts_from_the_answers_own_date() {
    let answered = b"HTTP/1.1 503 Full\r\nDate: Tue, 01 Jan 1980 00:00:00 GMT\r\n\
        Retry-After: Tue, 01 Jan 1980 00:01:30 GMT\r\nContent-Length: 0\r\n\r\n";
    let receiver = Receiver::start(&[&[Read, Write(answered)]]).await;
    let answer = answer(send(&client(&receiver.url()), &post("{}")).await);
    assert_eq!(answer.retry_after, Some(Duration::from_secs(90)));
}

#[tokio::test]
async fn a_secret_that_the_leaf_echoes_is_not_kept() {
    let echo = b"HTTP/1.1 200 OK\r\nLocation: /?t=s3cret\r\nContent-Length: 23\r\n\r\n\
        {\"auth\":\"Bearer s3cret\"}";
    let receiver = Receiver::start(&[&[Read, Write(echo), Hang]]).await;
    let client = client(&receiver.url());
    let evidence = send_with(&client, &post("{}"), &Auth::Bearer("s3cret".into())).await;
    assert!(!format!("{evidence:?}").contains("s3cret"), "{evidence:?}");
    let answer = answer(evidence);
    assert_eq!(
        answer.headers,
        [("location".to_owned(), "/?t=[redacted]".to_owned())]
    );
}

#[tokio::test]
async fn secrets_before_the_cut_of_a_body_bring_none_near_that_is_cut_through() {
    let secret = "s3cret-of-more-than-ten-bytes";
    let echo = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
        secret.len() * 40,
        secret.repeat(40)
    );
    let echo: &'static [u8] = Box::leak(echo.into_bytes().into_boxed_slice());
    for max_response_bytes in 1..400 {
        let receiver = Receiver::start(&[&[Read, Write(echo)]]).await;
        let client = LeafClient::new(&Leaf {
            max_response_bytes,
            ..leaf(&receiver.url())
        });
        let auth = Auth::Bearer(secret.into());
        let answer = answer(send_with(&client.unwrap(), &post("{}"), &auth).await);
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(!text.contains("s3c"), "{max_response_bytes}: {text}");
        assert!(answer.truncated);
    }
}

#[tokio::test]
async fn a_secret_at_the_cut_of_a_body_is_not_kept_in_part() {
    let echo =
        b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n12345678-s3cret-more-and-more-and-more-a";
    let receiver = Receiver::start(&[&[Read, Write(echo)]]).await;
    let client = LeafClient::new(&Leaf {
        max_response_bytes: 12,
        ..leaf(&receiver.url())
    });
    let auth = Auth::Bearer("s3cret".into());
    let evidence = send_with(&client.unwrap(), &post("{}"), &auth).await;
    assert_eq!(word(&evidence), "answered 200 12345678-[re truncated");
}
