//! Time, size and the lease: what ends an exchange from this side.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, timeout};

use super::{receiver::Step::*, *};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn send_within(client: &LeafClient, request: &Request, limit: Duration) -> Evidence {
    client
        .send(request, &Proofs::default(), None, limit, &|| true)
        .await
}

#[tokio::test]
async fn the_total_time_limit_while_connecting_is_unconnected() {
    let (address, _full) = receiver::black_hole().await;
    let client = LeafClient::new(&Leaf {
        timeout: SHORT,
        ..leaf(&format!("http://{address}"))
    });
    let evidence = send_within(&client.unwrap(), &post("{}"), SHORT).await;
    assert_eq!(word(&evidence), "unconnected", "{evidence:?}");
}

#[tokio::test]
async fn a_time_limit_far_below_the_leaf_s_says_nothing_of_the_leaf() {
    let (address, _full) = receiver::black_hole().await;
    let client = client(&format!("http://{address}"));
    for limit in [Duration::ZERO, Duration::from_millis(5)] {
        let evidence = send_within(&client, &post("{}"), limit).await;
        assert_eq!(word(&evidence), "out of time", "{evidence:?}");
    }
}

#[tokio::test]
async fn the_connect_time_limit_is_unconnected() {
    let (address, _full) = receiver::black_hole().await;
    let client = LeafClient::new(&Leaf {
        connect_timeout: SHORT,
        ..leaf(&format!("http://{address}"))
    })
    .unwrap();
    let begun = Instant::now();
    let evidence = send(&client, &post("{}")).await;
    assert_eq!(word(&evidence), "unconnected", "{evidence:?}");
    assert!(begun.elapsed() < LONG / 2);
}

#[tokio::test]
async fn the_time_limit_while_waiting_for_the_answer_is_in_doubt() {
    let receiver = Receiver::start(&[&[Read, Hang]]).await;
    let evidence = send_within(&client(&receiver.url()), &post("{}"), SHORT).await;
    assert_eq!(word(&evidence), "unanswered", "{evidence:?}");
    assert_eq!((receiver.connections(), receiver.requests().len()), (1, 1));
}

#[tokio::test]
async fn the_time_limit_covers_the_body_and_the_status_is_kept() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    let receiver = Receiver::start(&[&[Read, Write(half), Hang]]).await;
    let evidence = send_within(&client(&receiver.url()), &post("{}"), SHORT).await;
    assert_eq!(word(&evidence), "unanswered 200", "{evidence:?}");
}

#[tokio::test]
async fn a_time_limit_beyond_all_clocks_is_none() {
    let receiver = Receiver::start(&[&[Read, Write(OK)]]).await;
    let evidence = send_within(&client(&receiver.url()), &post("{}"), Duration::MAX).await;
    assert_eq!(word(&evidence), "answered 200 ok");
}

#[tokio::test]
async fn a_body_up_to_the_limit_is_whole_and_one_above_is_cut() {
    for (answer, truncated) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n1234"[..],
            false,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345", true),
    ] {
        let receiver = Receiver::start(&[&[Read, Write(answer)]]).await;
        let client = LeafClient::new(&Leaf {
            max_response_bytes: 4,
            ..leaf(&receiver.url())
        });
        let answer = super::answer(send(&client.unwrap(), &post("{}")).await);
        assert_eq!(
            (&answer.body[..], answer.truncated),
            (&b"1234"[..], truncated)
        );
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_and_its_connection_closed() {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let endless = &[Read, Write(head), WriteForEver(b"4\r\nabcd\r\n")];
    let receiver = Receiver::start(&[endless, &[Read, Write(OK)]]).await;
    let client = client(&receiver.url());
    let answer = answer(send(&client, &post("1")).await);
    assert_eq!(
        (answer.status, answer.body.len(), answer.truncated),
        (200, 1024, true)
    );
    assert_eq!(word(&send(&client, &post("2")).await), "answered 200 ok");
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn a_content_length_is_no_reason_to_reserve_memory() {
    let claim = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\n\r\n";
    let receiver = Receiver::start(&[&[Read, Write(claim), WriteForEver(b"abcd")]]).await;
    let answer = answer(send(&client(&receiver.url()), &post("1")).await);
    assert_eq!((answer.body.len(), answer.truncated), (1024, true));
}

#[tokio::test]
async fn endless_headers_are_given_up() {
    let script = &[
        Read,
        Write(b"HTTP/1.1 200 OK\r\n"),
        WriteForEver(b"X-Again: and again\r\n"),
    ];
    check(script, "unanswered").await;
    let endless = &[Read, WriteForEver(b"HTTP/1.1 103 Early Hints\r\n\r\n")];
    let receiver = Receiver::start(&[endless]).await;
    let evidence = send_within(&client(&receiver.url()), &post("{}"), SHORT).await;
    assert_eq!(word(&evidence), "unanswered");
}

#[tokio::test]
async fn a_lease_that_is_over_sends_nothing() {
    let receiver = Receiver::start(&[&[Read, Write(OK)]]).await;
    let client = client(&receiver.url());
    let evidence = client
        .send(&post("{}"), &Proofs::default(), None, LONG, &|| false)
        .await;
    assert_eq!(word(&evidence), "lease over");
    assert_eq!((receiver.connections(), receiver.requests().len()), (0, 0));
}

#[tokio::test]
async fn a_lease_that_ends_while_connecting_sends_nothing() {
    let receiver = Receiver::start(&[&[Read, Write(OK)]]).await;
    let client = client(&receiver.url());
    // Before anything and before the client begins; the third question comes when there is a connection.
    let asked = AtomicUsize::new(0);
    let may_send = || asked.fetch_add(1, Ordering::SeqCst) < 2;
    let evidence = client
        .send(&post("{}"), &Proofs::default(), None, LONG, &may_send)
        .await;
    assert_eq!(word(&evidence), "lease over");
    assert_eq!(receiver.requests().len(), 0);
}

#[tokio::test]
async fn a_lease_that_ends_later_does_not_cost_the_answer() {
    let receiver = Receiver::start(&[&[Read, Write(OK)]]).await;
    let client = client(&receiver.url());
    let may_send = || receiver.requests().is_empty();
    let evidence = client
        .send(&post("{}"), &Proofs::default(), None, LONG, &may_send)
        .await;
    assert_eq!(word(&evidence), "answered 200 ok");
}

#[tokio::test]
async fn a_dropped_attempt_closes_its_connection() {
    let receiver = Receiver::start(&[&[Read, Hang]]).await;
    let client = client(&receiver.url());
    let request = post("{}");
    let may_send = || true;
    let cut_short = timeout(
        SHORT,
        client.send(&request, &Proofs::default(), None, LONG, &may_send),
    )
    .await;
    assert!(cut_short.is_err());
    assert_eq!((receiver.connections(), receiver.requests().len()), (1, 1));
}
