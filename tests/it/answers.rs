//! Whatever a leaf answers, the answer is recorded, and no more of it is kept than the configuration allows.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Bed,
    app::{call, keyed},
    leaf::Reply,
    wait::{holds_for, until},
};

/// Quick, with a small limit for bodies.
const QUICK: &str = "timeout = \"10s\"\nmax_response_bytes = \"64KiB\"";

/// What is stored of a confirmation's body: as JSON, as bytes, and whether it was cut.
type Stored = (Option<String>, Option<Vec<u8>>, bool);

/// A leaf answers with this body, and says that it is JSON; gives what is stored of it.
async fn stored(bed: &Bed, status: u16, body: &[u8]) -> Stored {
    bed.leaf.behaves();
    let reply = Reply::bytes(status, body).header("content-type", "application/json");
    // Neither ASCII nor Latin 1.
    bed.leaf
        .always()
        .answers(reply.header("x-request-id", "a\u{e9}\u{1F600}"));
    let id = bed.app.insert(call("leaf").body(json!({}))).await;
    bed.app.until_state(id, "confirmed").await;
    let sql = "SELECT body::text, body_raw, truncated, status, headers->>'content-type' \
                 FROM leafhopper.result WHERE call_id = $1";
    let row = bed.app.client().query_one(sql, &[&id]).await.unwrap();
    let (kept, content_type) = (row.get::<_, i32>(3), row.get::<_, &str>(4));
    assert_eq!(
        (kept, content_type),
        (i32::from(status), "application/json")
    );
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test]
async fn a_json_body_is_stored_as_json() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    // A number of any length stays what it is.
    let number = format!("[{}]", "9".repeat(60_000));
    for body in [
        "{\"a\": 1}",
        "[1]",
        "null",
        "true",
        "\"\"",
        "1.10",
        "\"\u{e9}\u{1F600}\"",
        &number,
    ] {
        let text = format!(" {body} \n");
        assert_eq!(
            stored(&bed, 200, text.as_bytes()).await,
            (Some(body.to_owned()), None, false)
        );
    }
    for status in [200, 204] {
        let none = (None, None, false);
        assert_eq!(stored(&bed, status, b"").await, none, "no body is not null");
    }
}

#[tokio::test]
async fn a_body_that_jsonb_can_t_hold_is_stored_as_bytes() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    let deep = "[".repeat(20_000) + &"]".repeat(20_000);
    let bodies: [&[u8]; 12] = [
        b"\xff\xfe\x80",
        b"a\0b",
        b"\"a\0b\"",
        b"\"a\\u0000b\"",
        b"{\"a\": \"\\ud800\"}",
        b"{\"a\": \"\\udc00\\ud800\"}",
        b"{oops",
        b"1e999999999",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"<html></html>",
        deep.as_bytes(),
    ];
    for body in bodies {
        let expected = (None, Some(body.to_vec()), false);
        assert_eq!(stored(&bed, 200, body).await, expected);
    }
    assert_eq!(
        bed.leaf.all_requests().len(),
        bodies.len(),
        "nothing is sent again"
    );
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_cut_and_says_so() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(QUICK).await;
    let fits = vec![b'x'; 65_536];
    let expected = (None, Some(fits.clone()), false);
    assert_eq!(stored(&bed, 200, &fits).await, expected);
    let long = vec![b'x'; 300_000];
    assert_eq!(
        stored(&bed, 200, &long).await,
        (None, Some(fits.clone()), true)
    );
    // Half of a JSON text is none.
    let json = format!("\"{}\"", "x".repeat(300_000));
    let cut = json.as_bytes()[..65_536].to_vec();
    assert_eq!(
        stored(&bed, 200, json.as_bytes()).await,
        (None, Some(cut), true)
    );
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

/// An app's trigger on the results that meets a constraint of the app's own, or an error of its own.
const FAILS: [(&str, &str); 4] = [
    ("no NULL", "INSERT INTO kept (call_id) VALUES (NULL)"),
    (
        "a check",
        "INSERT INTO kept (call_id, status) VALUES (NEW.call_id, 5)",
    ),
    ("unique", "INSERT INTO kept (call_id) VALUES (0), (0)"),
    ("division", "PERFORM 1 / (NEW.call_id - NEW.call_id)"),
];

#[tokio::test]
async fn whatever_error_an_app_s_trigger_makes_is_seen_and_costs_no_answer() {
    for (name, statement) in FAILS {
        for (key, operation) in [
            ("answered", "record confirmations"),
            ("asked", "record a probe"),
        ] {
            let bed = Bed::new().await;
            bed.app
                .execute(&format!(
                    "CREATE TABLE kept (call_id bigint NOT NULL UNIQUE, status integer CHECK (status > 99));
                     CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS
                     'BEGIN {statement}; RETURN NEW; END';
                     CREATE TRIGGER fails BEFORE INSERT ON leafhopper.result FOR EACH ROW EXECUTE FUNCTION fails()"
                ))
                .await;
            bed.leaf.on("/things").key("asked").resets();
            let sidecar = bed
                .config(QUICK)
                .toml("[leaf.leaf.probe]\npath = \"/effects/{{ call.key }}\"")
                .start()
                .await;
            let id = bed.app.insert(keyed("leaf", key)).await;
            until("it is said", async || {
                let log = sidecar.log();
                let said = log
                    .iter()
                    .any(|line| line["database.operation"] == operation);
                if said { Ok(()) } else { Err((name, log)) }
            })
            .await;
            let failures = async || {
                sidecar
                    .metric("leafhopper_database_errors_total", &[])
                    .await
            };
            let before = failures().await;
            let what = "it is tried with pauses";
            holds_for(Duration::from_millis(500), what, async || {
                let tries = failures().await - before;
                if tries < 20.0 {
                    Ok(())
                } else {
                    Err((name, tries))
                }
            })
            .await;
            bed.app
                .execute("DROP TRIGGER fails ON leafhopper.result")
                .await;
            bed.app.until_state(id, "confirmed").await;
            let kept = bed.app.results("leaf", key).await.remove(0);
            // An error that the app's code makes itself may be about the content: then that is given up.
            let whole = kept["body"]["key"] == key && kept["truncated"] == false;
            assert!(whole || name == "division", "{name}: {kept}");
            bed.leaf.assert_each_effect_once([key]);
        }
    }
}
