//! HTTP/1: what is said of each way in which an exchange can end.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::{receiver::Step::*, *};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_refused_connection_is_unconnected() {
    let address = receiver::refusing().await;
    let evidence = send(&client(&format!("http://{address}")), &post("{}")).await;
    assert_eq!(word(&evidence), "unconnected", "{evidence:?}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_unconnected() {
    let evidence = send(&client("http://leaf.invalid"), &post("{}")).await;
    assert_eq!(word(&evidence), "unconnected", "{evidence:?}");
}

#[tokio::test]
async fn a_dead_ipv6_address_gives_way_to_ipv4() {
    // `localhost` is ::1 too where there is IPv6, and there nobody listens.
    let receiver = Receiver::start(&[&[Read, Write(OK)]]).await;
    let url = format!("http://localhost:{}", receiver.address.port());
    assert_eq!(
        word(&send(&client(&url), &post("{}")).await),
        "answered 200 ok"
    );
}

#[tokio::test]
async fn a_connection_is_kept_between_calls_until_it_has_grown_old() {
    let twice: &[Step] = &[Read, Write(OK), Read, Write(OK)];
    let receiver = Receiver::start(&[twice, twice]).await;
    let mut client = client(&receiver.url());
    for (age_max, connections) in [(LONG, 1), (LONG, 1), (Duration::ZERO, 2)] {
        client.age_max = age_max;
        let evidence = send(&client, &post("{}")).await;
        assert_eq!(word(&evidence), "answered 200 ok");
        assert_eq!(receiver.connections(), connections, "{age_max:?}");
    }
}

#[tokio::test]
async fn whole_answers_are_answered() {
    check(&[Read, Write(OK)], "answered 200 ok").await;
    check(
        &[Read, Write(b"HTTP/1.1 201 Created\r\n\r\nto the end")],
        "answered 201 to the end",
    )
    .await;
    check(
        &[Read, Write(b"HTTP/1.0 200 OK\r\n\r\nold")],
        "answered 200 old",
    )
    .await;
    check(
        &[Read, Write(b"HTTP/1.1 999 ?\r\nContent-Length: 0\r\n\r\n")],
        "answered 999",
    )
    .await;
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    check(&[Read, Write(chunked)], "answered 200 ok").await;
}

#[tokio::test]
async fn bytes_of_any_kind_are_kept_as_they_are() {
    let odd = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xfe\x80\0";
    check(&[Read, Write(odd)], r"answered 200 \xff\xfe\x80\x00").await;
    let gzip = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nno";
    check(&[Read, Write(gzip)], "answered 200 no").await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let found = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n";
    check(&[Read, Write(found), Read, Write(OK)], "answered 302").await;
    let again =
        b"HTTP/1.1 307 Again\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n";
    check(&[Read, Write(again), Read, Write(OK)], "answered 307").await;
}

#[tokio::test]
async fn statuses_that_ask_for_another_try_are_answers() {
    for (answer, expected) in [
        (
            b"HTTP/1.1 408 Slow\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "answered 408",
        ),
        (
            b"HTTP/1.1 503 Full\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "answered 503",
        ),
        (
            b"HTTP/1.1 421 Host\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "answered 421",
        ),
    ] {
        check(&[Read, Write(answer), Read, Write(OK)], expected).await;
    }
}

#[tokio::test]
async fn preliminary_answers_are_skipped() {
    let script: &[Step] = &[
        Read,
        Write(b"HTTP/1.1 100 Continue\r\n\r\n"),
        Write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        Write(OK),
    ];
    check(script, "answered 200 ok").await;
}

#[tokio::test]
async fn answers_without_a_body_keep_the_connection() {
    for (method, answer, expected) in [
        (
            "POST",
            &b"HTTP/1.1 204 No Content\r\n\r\n"[..],
            "answered 204",
        ),
        (
            "GET",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            "answered 304",
        ),
        (
            "HEAD",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "answered 200",
        ),
        (
            "POST",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "answered 200",
        ),
    ] {
        let script = [Read, Write(answer), Read, Write(OK)];
        let receiver = Receiver::start(&[&script]).await;
        let client = client(&receiver.url());
        assert_eq!(word(&send(&client, &request(method, "/")).await), expected);
        assert_eq!(word(&send(&client, &post("{}")).await), "answered 200 ok");
        assert_eq!(
            (receiver.connections(), receiver.requests().len()),
            (1, 2),
            "{method}"
        );
    }
}

#[tokio::test]
async fn a_request_without_an_answer_is_in_doubt() {
    check(&[Read], "unanswered").await;
    check(&[Read, Reset], "unanswered").await;
    check(&[Read, Write(b"HTTP/1.1 2")], "unanswered").await;
    check(&[Read, Write(b"HTTP/1.1 200 OK\r\nContent-")], "unanswered").await;
    check(&[Read, Write(b"220 smtp.example ESMTP\r\n")], "unanswered").await;
    check(&[Read, Write(b"\0\x01\x02\x03")], "unanswered").await;
    check(
        &[Read, Write(b"HTTP/1.1 100 Continue\r\n\r\n")],
        "unanswered",
    )
    .await;
    check(&[Read, Write(b"HTTP/1.1 20 OK\r\n\r\n")], "unanswered").await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_keeps_its_status() {
    check(
        &[
            Read,
            Write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"),
        ],
        "unanswered 200",
    )
    .await;
    let script = &[
        Read,
        Write(b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nok"),
        Reset,
    ];
    check(script, "unanswered 500").await;
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok";
    check(&[Read, Write(chunked)], "unanswered 200").await;
    let broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok";
    check(&[Read, Write(broken)], "unanswered 200").await;
}

#[tokio::test]
async fn a_broken_header_does_not_cost_the_answer() {
    for header in [
        &b"HTTP/1.1 200 OK\r\nno colon here\r\nContent-Length: 2\r\n\r\nok"[..],
        b"HTTP/1.1 200 OK\r\nBad Name: x\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX: \xff\xfe\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX : spaced\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 \xff\xfe\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    ] {
        check(&[Read, Write(header)], "answered 200 ok").await;
    }
}

#[tokio::test]
async fn a_nul_in_a_header_is_in_doubt() {
    // The one character that hyper's parser does not skip over with its line.
    let answer = b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok";
    check(&[Read, Write(answer)], "unanswered").await;
}

#[tokio::test]
async fn a_content_length_that_makes_no_sense_is_in_doubt() {
    // Where the answer ends is unknown, and hyper gives no status for it.
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
    ] {
        check(&[Read, Write(answer)], "unanswered").await;
    }
}

#[tokio::test]
async fn bytes_after_the_answer_change_nothing() {
    let more = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and HTTP/1.1 500 No\r\n\r\n";
    check(&[Read, Write(more)], "answered 200 ok").await;
}

#[tokio::test]
async fn a_kept_connection_that_closes_without_answering_is_in_doubt() {
    let receiver = Receiver::start(&[&[Read, Write(OK), Read], &[Read, Write(OK)]]).await;
    let client = client(&receiver.url());
    assert_eq!(word(&send(&client, &post("1")).await), "answered 200 ok");
    let evidence = send(&client, &post("2")).await;
    assert_eq!(word(&evidence), "unanswered", "{evidence:?}");
    assert_eq!((receiver.connections(), receiver.requests().len()), (1, 2));
}

#[tokio::test]
async fn a_connection_that_closes_at_once_is_tried_once() {
    let receiver = Receiver::start(&[&[]]).await;
    let evidence = send(&client(&receiver.url()), &post("{}")).await;
    // Whether the request was written before the close was seen depends on the moment; both are true.
    let word = word(&evidence);
    assert!(
        ["unconnected", "unanswered"].contains(&word.as_str()),
        "{evidence:?}"
    );
    assert_eq!((receiver.connections(), receiver.requests().len()), (1, 0));
}

/// Connections are closed right after each answer, so that each request may meet a connection about to
/// end. Whatever is said must agree with what the receiver saw.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_agrees_with_what_the_receiver_saw() {
    const ROUNDS: usize = 60;
    let scripts = vec![&[Read, Write(OK)][..]; 8 * ROUNDS];
    let receiver = Receiver::start(&scripts).await;
    let client = shared(&receiver.url());
    let mut senders = JoinSet::new();
    for sender in 0..4 {
        let client = Arc::clone(&client);
        senders.spawn(async move {
            let mut said = Vec::new();
            for round in 0..ROUNDS {
                let body = format!("[{sender}.{round}]");
                said.push((word(&send(&client, &post(&body)).await), body));
            }
            said
        });
    }
    let said = senders.join_all().await.concat();
    let requests = receiver.requests();
    for (word, body) in &said {
        let times = requests
            .iter()
            .filter(|request| request.ends_with(body))
            .count();
        match word.as_str() {
            "answered 200 ok" => assert_eq!(times, 1, "{body}"),
            "unanswered" => assert!(times <= 1, "{body} was seen {times} times"),
            "unconnected" => assert_eq!(times, 0, "{body}"),
            other => panic!("{other}"),
        }
    }
    assert!(said.iter().any(|(word, _)| word.starts_with("answered")));
}

/// Time limits and leases end at every moment from before the connection to after the answer. What is said
/// not to be sent is never seen, and nothing is seen twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_moment_ends_an_attempt_what_is_said_is_true() {
    const ATTEMPTS: usize = 400;
    let script = [Read, Write(OK)].repeat(4);
    let receiver = Receiver::start(&vec![&script[..]; 2 * ATTEMPTS]).await;
    let mut senders = JoinSet::new();
    for sender in 0..2 {
        let client = shared(&receiver.url());
        senders.spawn(async move {
            let mut said = Vec::new();
            for n in 0..ATTEMPTS {
                let body = format!("[{sender}.{n}]");
                // One in two ends by its lease at the n-th question, the others by their time.
                let questions = if n % 2 == 0 { n / 2 % 7 } else { usize::MAX };
                let limit = Duration::from_micros(if n % 2 == 0 { 900_000 } else { n as u64 * 7 });
                let asked = AtomicUsize::new(0);
                let may_send = || asked.fetch_add(1, Ordering::SeqCst) < questions;
                let evidence = client
                    .send(&post(&body), &Proofs::default(), None, limit, &may_send)
                    .await;
                said.push((word(&evidence), body));
            }
            said
        });
    }
    let said = senders.join_all().await.concat();
    receiver.drained().await;
    let requests = receiver.requests();
    for (word, body) in &said {
        let times = requests
            .iter()
            .filter(|request| request.ends_with(body))
            .count();
        match word.as_str() {
            "answered 200 ok" => assert_eq!(times, 1, "{body}"),
            "unanswered" | "unanswered 200" => assert!(times <= 1, "{body} was seen {times} times"),
            "unconnected" | "out of time" | "lease over" => {
                assert_eq!(times, 0, "{body} is said to be {word}")
            }
            other => panic!("{other}"),
        }
    }
    for expected in ["answered 200 ok", "lease over"] {
        assert!(
            said.iter().any(|(word, _)| word == expected),
            "nothing was {expected}"
        );
    }
}
