//! Every well-formed row arrives at the leaf exactly as it was written: method, path, headers and each byte of
//! the body.

use crate::{
    harness::{Bed, app::literal, wait::until},
    outbox::table,
};

/// Columns and values of rows that are as they should be, however odd.
const WELL_FORMED: &str = r##"
body :: 'null'
body :: '""'
body :: '{}'
body :: '1e400'
body :: '-0.0'
body :: '12345678901234567890.0001'
body :: '[0.1, 1.10, 100000000000000000000000000001, 1E-30]'
body :: '{"z": 1, "a": 2, "aa": {"c": 3, "b": 4}}'
body :: '{"ä\u0001": "\u2028 😀 \ud83d\ude00 \\ \" / \/"}'
body :: to_jsonb(repeat('ä', 1000))
body :: jsonb_build_object('x', repeat('x', 100 * 1024))
body_raw, content_type :: '', 'text/plain'
body_raw, content_type :: '\x00ff0d0a', 'application/octet-stream'
body_raw, content_type :: '{"a":1.0}', 'application/json'
body_raw, content_type :: 'a=b', 'application/x-www-form-urlencoded; charset="utf-8"'
body_raw, content_type :: (SELECT string_agg(sha256(n::text::bytea), '') FROM generate_series(1, 3200) n), 'x/y'
method :: 'PUT'
method :: 'PATCH'
method :: 'DELETE'
method :: 'GET'
method :: 'HEAD'
method, body :: 'DELETE', '{"why": 1}'
method, body :: 'GET', '[1]'
headers :: '{"x-a": "", "X-Odd": "a b;c=\"d\", \\e ~!", "!#$%&''*+.^_`|~1": "token"}'
headers :: '{"accept": "text/*", "user-agent": "the app"}'
headers :: jsonb_build_object('x-long', repeat('v', 4000))
meta :: '{"a": [1, null], "traceparent": "no trace"}'
meta :: '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
priority :: -32768
priority :: 32767
timeout :: '1 day'
timeout :: '30.5 s'
max_attempts :: 1
max_attempts :: 2147483647
not_before :: '-infinity'
not_before :: '0001-01-01 BC'
not_before :: now()
deadline :: 'infinity'
deadline :: '294276-12-31'
not_before, deadline :: '-infinity', 'infinity'
ordering_key :: repeat('o', 200)
key :: 'k:undo:'
key :: 'k:undo:1x'
key :: E'line\nbreak:undo:1\n'
key :: ' '
key :: repeat('😀', 200)
probe :: '{"path": "/{{ call.key }}", "found": "true", "settle": "1s", "max_probes": 3}'
compensate :: '{"method": "DELETE", "path": "/{{ result.body.id }}", "body": {}}'
"##;

#[tokio::test]
async fn every_well_formed_row_arrives_exactly() {
    let bed = Bed::new().await;
    let lines = "auth = { bearer = { env = \"TOKEN\" } }\nconcurrency = 4";
    let starter = bed.config(lines).sidecar();
    let _sidecar = starter.environment("TOKEN", "secret").start().await;
    let mut calls = Vec::new();
    for [columns, values] in table(WELL_FORMED) {
        // Each has a path of its own, to be found by.
        let path = format!("/n/{}", calls.len());
        let columns = format!("{columns}, path");
        let values = format!("{values}, {}", literal(&path));
        calls.push((bed.app.insert_values(&columns, &values).await, path));
    }
    for path in [
        "/",
        "/a//b/",
        "/.../..a/a..",
        "/%2e%2e%2e/%2E.x",
        "/a%2Fb%3F%23",
        "/a?x=../..&y=%2e%2e/#".trim_end_matches('#'),
        "/a?b=c?d&e[]=f%20g+h",
        "/~!$&'()*+,;=:@-._",
        &format!("/{}", "p".repeat(7999)),
    ] {
        let id = bed.app.insert_values("path", &literal(path)).await;
        calls.push((id, path.to_owned()));
    }
    for (id, path) in calls {
        arrived(&bed, id, &path).await;
    }
}

/// Compares what the leaf got with what the row says.
async fn arrived(bed: &Bed, id: i64, path: &str) {
    // Without the body: not every number of jsonb is one of Rust's.
    let row =
        format!("SELECT state, reason, method, headers, meta FROM leafhopper.call WHERE id = {id}");
    let row = until(&format!("{path} is confirmed"), async || {
        let row = bed.app.rows(&row).await.remove(0);
        if row["state"] == "confirmed" {
            Ok(row)
        } else {
            Err(row)
        }
    })
    .await;
    let requests: Vec<_> = bed
        .leaf
        .all_requests()
        .into_iter()
        .filter(|request| request.path == path)
        .collect();
    let [request] = requests.as_slice() else {
        panic!("{} requests to {path}", requests.len())
    };
    assert_eq!(row["method"], request.method.as_str(), "{path}");
    let sql = "SELECT coalesce(convert_to(body::text, 'UTF8'), body_raw), \
                      CASE WHEN body IS NOT NULL THEN 'application/json' ELSE content_type END \
                 FROM leafhopper.outbox WHERE id = $1";
    let said = bed.app.client().query_one(sql, &[&id]).await.unwrap();
    let body: Option<Vec<u8>> = said.get(0);
    assert!(body.unwrap_or_default() == request.body, "{path}: the body");
    assert_eq!(request.header("content-type"), said.get(1), "{path}");
    assert_eq!(
        request.header("authorization"),
        Some("Bearer secret"),
        "{path}"
    );
    for (name, value) in row["headers"].as_object().unwrap() {
        let values: Vec<_> = request
            .headers
            .iter()
            .filter(|(header, _)| *header == name.to_lowercase())
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(values, [value.as_str().unwrap()], "{path}: {name}");
    }
    let trace = row["meta"]["traceparent"].as_str().unwrap_or_default();
    let expected = trace.starts_with("00-").then_some(trace);
    assert_eq!(
        request
            .header("traceparent")
            .filter(|it| Some(*it) == expected),
        expected
    );
}
