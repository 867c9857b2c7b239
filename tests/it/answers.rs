//! Whatever a leaf answers, the answer is recorded, and no more of it is kept than the configuration allows.

use serde_json::json;

use crate::harness::{
    Bed,
    app::{call, keyed},
    leaf::Reply,
    wait::until,
};

/// Quick, with a small limit for bodies.
const QUICK: &str = "timeout = \"5s\"\nmax_response_bytes = \"64KiB\"";

/// What is stored of a confirmation's body: as JSON, or these bytes, or none.
#[derive(Debug, PartialEq)]
enum Stored {
    Json(&'static str),
    Bytes(Vec<u8>),
    Cut(Vec<u8>),
    None,
}

fn deep() -> Vec<u8> {
    let depth = 20_000;
    ["[".repeat(depth), "]".repeat(depth)].concat().into()
}

#[tokio::test]
async fn no_content_keeps_an_answer_from_being_recorded() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    let bytes = |text: &[u8]| Stored::Bytes(text.to_vec());
    let raw = |reply: &Reply| Stored::Bytes(reply.body.clone().unwrap());
    let deep = Reply::bytes(200, deep());
    let number = Reply::bytes(200, format!("[{}]", "9".repeat(60_000)));
    let long = Reply::bytes(200, vec![b'x'; 300_000]);
    let long_json = Reply::bytes(200, format!("\"{}\"", "x".repeat(300_000)));
    let cases = [
        (Reply::bytes(200, "{\"a\": 1}"), Stored::Json("{\"a\": 1}")),
        (Reply::bytes(200, " [1] \n"), Stored::Json("[1]")),
        (Reply::bytes(200, "null"), Stored::Json("null")),
        (Reply::bytes(200, "1.10"), Stored::Json("1.10")),
        (Reply::bytes(200, ""), Stored::None),
        (Reply::bytes(204, ""), Stored::None),
        (
            Reply::bytes(200, [0xff, 0xfe, 0x80]),
            bytes(&[0xff, 0xfe, 0x80]),
        ),
        (Reply::bytes(200, "a\0b"), bytes(b"a\0b")),
        (Reply::bytes(200, "\"a\\u0000b\""), bytes(b"\"a\\u0000b\"")),
        (Reply::bytes(200, "\"a\0b\""), bytes(b"\"a\0b\"")),
        (
            Reply::bytes(200, "{\"a\": \"\\ud800\"}"),
            bytes(b"{\"a\": \"\\ud800\"}"),
        ),
        (
            Reply::bytes(200, "{\"a\": \"\\udc00\\ud800\"}"),
            bytes(b"{\"a\": \"\\udc00\\ud800\"}"),
        ),
        (Reply::bytes(200, "{oops"), bytes(b"{oops")),
        (Reply::bytes(200, "1e999999999"), bytes(b"1e999999999")),
        (
            Reply::bytes(200, "\u{feff}{}"),
            bytes("\u{feff}{}".as_bytes()),
        ),
        (Reply::bytes(200, "{} {}"), bytes(b"{} {}")),
        (Reply::bytes(200, "<html></html>"), bytes(b"<html></html>")),
        (deep.clone(), raw(&deep)),
        (number, Stored::Json("")),
        (long, Stored::Cut(vec![b'x'; 65_536])),
        (
            long_json,
            Stored::Cut([b"\"".as_slice(), &[b'x'; 65_535]].concat()),
        ),
    ];
    let mut ids = Vec::new();
    for (number, (reply, _)) in cases.iter().enumerate() {
        let key = format!("body {number}");
        let reply = reply
            .clone()
            .header("content-type", "application/json")
            .header("x-request-id", "a\u{e9}\u{1F600}");
        bed.leaf.always().key(&key).answers(reply);
        ids.push((
            key.clone(),
            bed.app
                .insert(call("leaf").key(&key).body(json!({"key": key})))
                .await,
        ));
    }
    for ((key, id), (reply, stored)) in ids.iter().zip(&cases) {
        bed.app.until_state(*id, "confirmed").await;
        let sql = "SELECT body::text, body_raw, truncated, status, headers->>'content-type' FROM leafhopper.result WHERE key = $1";
        let row = bed.app.client().query_one(sql, &[key]).await.unwrap();
        let (json, raw): (Option<String>, Option<Vec<u8>>) = (row.get(0), row.get(1));
        let what = String::from_utf8_lossy(
            &reply.body.as_deref().unwrap()[..reply.body.as_ref().unwrap().len().min(40)],
        )
        .into_owned();
        assert_eq!(
            row.get::<_, bool>(2),
            matches!(stored, Stored::Cut(_)),
            "{what}"
        );
        assert_eq!(row.get::<_, i32>(3), i32::from(reply.status));
        assert_eq!(
            row.get::<_, Option<&str>>(4),
            Some("application/json"),
            "{what}"
        );
        match stored {
            // A number of any length stays what it is.
            Stored::Json("") => assert_eq!(json.unwrap().len(), 60_002),
            Stored::Json(text) => assert_eq!(json.as_deref(), Some(*text)),
            Stored::Bytes(bytes) | Stored::Cut(bytes) => {
                assert!(
                    json.is_none() && raw.as_ref() == Some(bytes),
                    "{what}: {json:?} {:?}",
                    raw.map(|raw| raw.len())
                );
            }
            Stored::None => assert_eq!((json, raw), (None, None), "{what}"),
        }
        assert_eq!(bed.leaf.requests(key).len(), 1, "{what}");
    }
}

#[tokio::test]
async fn no_content_keeps_a_refusal_from_being_recorded() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    let bodies: [&[u8]; 6] = [
        b"\xff\xfe\x80",
        b"a\0b",
        b"\"\\u0000\"",
        b"\"\\ud800\"",
        &[b'x'; 300_000],
        b"",
    ];
    for (number, body) in bodies.iter().enumerate() {
        let key = format!("body {number}");
        bed.leaf
            .always()
            .key(&key)
            .refuses(Reply::bytes(422, *body).header("x-request-id", "a\u{e9}"));
        let id = bed
            .app
            .insert(call("leaf").key(&key).body(json!({"key": key})))
            .await;
        let failed = bed.app.until_state(id, "failed").await;
        assert_eq!(
            (&failed["reason"], &failed["last_status"]),
            (&json!("rejected"), &json!(422))
        );
        let history = bed.app.attempts(id).await;
        let excerpt = history[0]["body"].as_str().unwrap();
        assert_eq!(excerpt.is_empty(), body.is_empty(), "{history:?}");
        assert!(excerpt.len() <= 6_000 && !excerpt.contains('\0'));
    }
}

#[tokio::test]
async fn an_endless_answer_is_read_to_the_limit_and_no_further() {
    let bed = Bed::new().await;
    let _sidecar = bed
        .sidecar("max_response_bytes = \"64KiB\"\ntimeout = \"20s\"")
        .await;
    // It says that far more is to come, and never sends it.
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
    bed.leaf
        .always()
        .answers_raw([head.as_slice(), &[b'x'; 200_000]].concat());
    let id = bed.app.insert(call("leaf").body(json!({"key": "a"}))).await;
    bed.app.until_state(id, "confirmed").await;
    let row = bed
        .app
        .rows("SELECT truncated, length(body_raw) AS kept FROM leafhopper.result")
        .await
        .remove(0);
    assert_eq!(row, json!({"truncated": true, "kept": 65_536}));
}

#[tokio::test]
async fn an_answer_that_an_app_s_trigger_keeps_from_being_recorded_is_seen() {
    let bed = Bed::new().await;
    bed.app
        .execute(
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no luck today''; END';
             CREATE TRIGGER fails BEFORE INSERT ON leafhopper.result FOR EACH ROW EXECUTE FUNCTION fails()",
        )
        .await;
    let sidecar = bed.sidecar("").await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    until("it is not ready, and says why", async || {
        let (status, body) = sidecar.get("/readyz").await;
        let log = sidecar.log();
        let said = log
            .iter()
            .any(|line| line.to_string().contains("no luck today"));
        if status == 503 && body.contains("recording") && said {
            Ok(())
        } else {
            Err((status, body, log))
        }
    })
    .await;
    bed.app
        .execute("DROP TRIGGER fails ON leafhopper.result")
        .await;
    bed.app.until_state(id, "confirmed").await;
    bed.leaf.assert_each_effect_once(["k"]);
}
