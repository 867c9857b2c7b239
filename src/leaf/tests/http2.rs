//! HTTP/2 with prior knowledge, frames written by hand (RFC 9113 section 6): what is proof, and what is not.

use futures_util::future::join_all;

use super::{receiver::Step::*, *};

/// SETTINGS of the receiver, and its acknowledgement of the client's.
pub(super) const HELLO: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";
/// HEADERS on stream 1 that end it: `:status: 204` of the static table.
pub(super) const NO_CONTENT: &[u8] = b"\0\0\x01\x01\x05\0\0\0\x01\x89";
/// HEADERS on stream 1, more to come: `:status: 200`.
const OK: &[u8] = b"\0\0\x01\x01\x04\0\0\0\x01\x88";
/// `RST_STREAM` on stream 1.
const RST_REFUSED: &[u8] = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x07";
const RST_CANCEL: &[u8] = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08";
/// GOAWAY: the last stream looked at, and an error.
const GOAWAY_ABOVE_0: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
const GOAWAY_ABOVE_1: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x01\0\0\0\0";
const GOAWAY_ABOVE_ALL: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0";
const GOAWAY_CALM: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";

fn client(base_url: &str) -> LeafClient {
    LeafClient::new(&Leaf {
        http2: Http2::Always,
        ..leaf(base_url)
    })
    .unwrap()
}

async fn check(request: &Request, script: &[Step], expected: &str) {
    let receiver = Receiver::start(&[script, &[ReadHttp2, Write(HELLO), Write(NO_CONTENT)]]).await;
    let evidence = send(&client(&receiver.url()), request).await;
    assert_eq!(word(&evidence), expected, "{script:?}: {evidence:?}");
    assert_eq!(receiver.connections(), 1, "connections of {script:?}");
    assert_eq!(receiver.requests(), ["stream 1"], "requests of {script:?}");
}

#[tokio::test]
async fn an_answer_is_answered() {
    check(
        &post("{}"),
        &[Write(HELLO), ReadHttp2, Write(NO_CONTENT), Hang],
        "answered 204",
    )
    .await;
    let get = request("GET", "/");
    check(
        &get,
        &[Write(HELLO), ReadHttp2, Write(NO_CONTENT), Hang],
        "answered 204",
    )
    .await;
}

#[tokio::test]
async fn an_answer_with_many_headers_is_answered() {
    // `:status: 204`, then 40 of a thousand bytes (RFC 7541 sections 6.1 and 6.2.2).
    let mut block = b"\x89".to_vec();
    for _ in 0..40 {
        block.extend_from_slice(b"\0\x01x\x7f\xe9\x06");
        block.extend_from_slice(&[b'v'; 1000]);
    }
    // HEADERS that end the stream, and CONTINUATION of which the last ends them (RFC 9113 sections 6.2 and 6.10).
    let mut frames = Vec::new();
    let parts = block.chunks(16_000);
    let last = parts.len() - 1;
    for (number, part) in parts.enumerate() {
        let [_, length @ ..] = u32::try_from(part.len()).unwrap().to_be_bytes();
        frames.extend_from_slice(&length);
        frames.push(if number == 0 { 0x01 } else { 0x09 });
        frames.push(u8::from(number == 0) | if number == last { 0x04 } else { 0 });
        frames.extend_from_slice(&1_u32.to_be_bytes());
        frames.extend_from_slice(part);
    }
    let frames: &'static [u8] = Box::leak(frames.into_boxed_slice());
    let script = [Write(HELLO), ReadHttp2, Write(frames), Hang];
    check(&post("{}"), &script, "answered 204").await;
}

#[tokio::test]
async fn a_refused_stream_is_refused_and_not_retried() {
    let script = &[Write(HELLO), ReadHttp2, Write(RST_REFUSED), Hang];
    check(&post("{}"), script, "refused").await;
    check(&request("DELETE", "/"), script, "refused").await;
}

#[tokio::test]
async fn any_other_reset_is_in_doubt() {
    let script = &[Write(HELLO), ReadHttp2, Write(RST_CANCEL), Hang];
    check(&post("{}"), script, "unanswered").await;
}

#[tokio::test]
async fn a_refusal_after_the_status_is_in_doubt() {
    let script = &[Write(HELLO), ReadHttp2, Write(OK), Write(RST_REFUSED), Hang];
    check(&post("{}"), script, "unanswered 200").await;
}

#[tokio::test]
async fn a_stream_above_a_goaway_is_refused() {
    for goaway in [GOAWAY_ABOVE_0, GOAWAY_CALM] {
        let script = &[Write(HELLO), ReadHttp2, Write(goaway), Hang];
        check(&post("{}"), script, "refused").await;
    }
}

#[tokio::test]
async fn a_goaway_is_no_proof_for_a_request_without_a_body() {
    // See `refused_unprocessed`: hyper shows no point after which the error could only mean this stream.
    let script = &[Write(HELLO), ReadHttp2, Write(GOAWAY_ABOVE_0), Hang];
    check(&request("DELETE", "/"), script, "unanswered").await;
}

#[tokio::test]
async fn a_stream_below_a_goaway_is_awaited() {
    for goaway in [GOAWAY_ABOVE_1, GOAWAY_ABOVE_ALL] {
        let script = &[
            Write(HELLO),
            ReadHttp2,
            Write(goaway),
            Write(NO_CONTENT),
            Hang,
        ];
        check(&post("{}"), script, "answered 204").await;
    }
}

#[tokio::test]
async fn a_stream_below_a_goaway_that_gets_no_answer_is_in_doubt() {
    for goaway in [GOAWAY_ABOVE_1, GOAWAY_ABOVE_ALL] {
        let script = &[Write(HELLO), ReadHttp2, Write(goaway)];
        check(&post("{}"), script, "unanswered").await;
    }
}

#[tokio::test]
async fn a_goaway_divides_the_streams_of_a_connection() {
    let all = [ReadHttp2; 6];
    let script = [
        &[Write(HELLO)],
        &all[..],
        &[Write(GOAWAY_ABOVE_1), Write(NO_CONTENT), Hang],
    ];
    let receiver = Receiver::start(&[&script.concat()]).await;
    let client = client(&receiver.url());
    let (body, may_send) = (post("{}"), || true);
    let proofs = Proofs::default();
    let sent = all.map(|_| client.send(&body, &proofs, None, LONG, &may_send));
    let mut words: Vec<String> = join_all(sent).await.iter().map(word).collect();
    words.sort();
    assert_eq!(words[0], "answered 204");
    assert_eq!(words[1..], ["refused"; 5]);
    assert_eq!((receiver.connections(), receiver.requests().len()), (1, 6));
}

#[tokio::test]
async fn a_connection_that_closes_is_in_doubt() {
    check(&post("{}"), &[Write(HELLO), ReadHttp2], "unanswered").await;
}

#[tokio::test]
async fn a_receiver_that_speaks_http1_is_in_doubt() {
    let script = &[ReadHttp2, Write(b"HTTP/1.1 400 Bad Request\r\n\r\n")];
    check(&post("{}"), script, "unanswered").await;
}

#[tokio::test]
async fn a_connection_that_never_comes_up_is_tried_once() {
    let receiver = Receiver::start(&[&[], &[], &[]]).await;
    let evidence = send(&client(&receiver.url()), &post("{}")).await;
    let word = word(&evidence);
    assert!(
        ["unconnected", "unanswered"].contains(&word.as_str()),
        "{evidence:?}"
    );
    assert_eq!(receiver.connections(), 1);
}
