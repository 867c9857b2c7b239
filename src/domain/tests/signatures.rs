//! Signatures, against a library that receivers use and against a documented example.

use http::{HeaderMap, HeaderName};
use standardwebhooks::Webhook;

use crate::domain::signature::{BodyFormat, Message, Signing};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

fn signed(secret: &str, message: &Message<'_>) -> HeaderMap {
    let headers = Signing::StandardWebhooks.sign(secret, message).unwrap();
    headers
        .into_iter()
        .map(|(name, value)| (HeaderName::try_from(name).unwrap(), value.parse().unwrap()))
        .collect()
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[test]
fn a_receiver_s_library_takes_what_is_signed_and_nothing_else() {
    let receiver = Webhook::new(SECRET).unwrap();
    let bodies: [&[u8]; 4] = [b"{\"a\": 1.50}", b"", b"a.b.c", b"\xff\xfe\x00"];
    for body in bodies {
        let message = Message {
            id: "site:42:repo",
            at: now(),
            body,
        };
        let headers = signed(SECRET, &message);
        assert_eq!(headers["webhook-id"], "site:42:repo");
        assert_eq!(headers["webhook-timestamp"], message.at.to_string());
        // The library can't verify bodies that are no UTF-8; the format is bytes.
        if std::str::from_utf8(body).is_ok() {
            receiver.verify(body, &headers).unwrap();
        }
        assert!(receiver.verify(b"another", &headers).is_err());
        assert!(receiver.verify(body, &signed(OTHER, &message)).is_err());
    }
}

#[test]
fn while_a_secret_changes_both_sign() {
    let message = Message {
        id: "k",
        at: now(),
        body: b"{}",
    };
    for secret in [
        format!("{SECRET} {OTHER}"),
        format!("{OTHER}\n{SECRET}\n"),
        format!("{SECRET}\r\n{OTHER}"),
    ] {
        let headers = signed(&secret, &message);
        for receiver in [SECRET, OTHER] {
            let receiver = Webhook::new(receiver).unwrap();
            receiver.verify(b"{}", &headers).unwrap();
        }
    }
}

#[test]
fn an_id_holds_no_full_stop() {
    let id = |id| {
        let message = Message {
            id,
            at: now(),
            body: b"{}",
        };
        let headers = signed(SECRET, &message);
        let receiver = Webhook::new(SECRET).unwrap();
        receiver.verify(b"{}", &headers).unwrap();
        headers["webhook-id"].to_str().unwrap().to_owned()
    };
    let hashed = id("example.com");
    assert!(!hashed.contains('.') && hashed.starts_with("lh-"));
    assert_eq!(hashed, id("example.com"));
    assert_ne!(hashed, id("example.org"));
}

#[test]
fn a_body_is_signed_in_the_form_that_the_leaf_reads() {
    // The example of GitHub's documentation.
    let hex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    for (format, value) in [
        (BodyFormat::Sha256Hex, format!("sha256={hex}")),
        (BodyFormat::Hex, hex.to_owned()),
        (
            BodyFormat::Base64,
            "dXEH6g6yUJ/CESIczphLijdXC211hsIsRvQ3nIsEPhc=".to_owned(),
        ),
    ] {
        let signing = Signing::Body {
            header: "x-hub-signature-256".to_owned(),
            format,
        };
        let message = Message {
            id: "k",
            at: 0,
            body: b"Hello, World!",
        };
        let headers = signing.sign("It's a Secret to Everybody", &message);
        assert_eq!(headers, Ok(vec![("x-hub-signature-256", value)]));
    }
}

#[test]
fn a_secret_that_can_t_sign_is_told_without_being_shown() {
    let long = format!("whsec_{}", "A".repeat(88));
    for (secret, said) in [
        ("hunter2hunter2hunter2hunter2", "does not begin with whsec_"),
        ("whsk_hunter2hunter2hunter2", "Ed25519"),
        ("whsec_hunter2!", "is not Base64"),
        (
            "whsec_hunter2h",
            "has 6 bytes; Standard Webhooks wants 24 to 64",
        ),
        (&long, "has 66 bytes"),
        ("  \n", "is empty"),
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw hunter2",
            "does not begin with whsec_",
        ),
    ] {
        let flaw = Signing::StandardWebhooks.check(secret).unwrap_err();
        assert!(flaw.contains(said), "{secret}: {flaw}");
        assert!(!flaw.contains("hunter2"), "{flaw}");
    }
    // Base64 that has lost its `=`.
    let unpadded = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    assert_eq!(Signing::StandardWebhooks.check(unpadded), Ok(()));
}
