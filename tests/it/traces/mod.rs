//! Traces: each attempt and each probe is a span, below the row's `meta.traceparent` and above what the leaf records. What
//! they are exported to can be away, slow or wrongly named, and no call notices.

mod settings;

use std::{collections::BTreeMap, time::Duration};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use crate::harness::{
    Bed,
    app::{Call, keyed},
    leaf::{Leaf, Remembers, Reply},
    sidecar::{Sidecar, Starter},
    wait::until,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const QUICK: &str = "retry = { initial = \"10ms\", max = \"20ms\" }";

fn traced(call: Call, flags: &str) -> Call {
    let parent = format!("00-{TRACE}-{PARENT}-{flags}");
    call.set(
        "meta",
        json!({ "traceparent": parent, "tracestate": "rojo=1,congo=t61" }),
    )
}

/// An OTLP receiver is an HTTP server that answers 200.
async fn collector() -> Leaf {
    let collector = Leaf::start().await;
    collector.always().answers(Reply::bytes(200, ""));
    collector
}

fn exporting(starter: Starter, endpoint: &str) -> Starter {
    starter
        .environment("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        // A developer's proxy is not to be in the way.
        .environment("NO_PROXY", "127.0.0.1")
}

/// What has arrived: each span with what it is of.
fn spans(collector: &Leaf) -> Vec<(BTreeMap<String, Value>, Span)> {
    let mut spans = Vec::new();
    for request in collector.all_requests() {
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/v1/traces")
        );
        let batch = ExportTraceServiceRequest::decode(request.body.as_slice()).unwrap();
        for resource in batch.resource_spans {
            let of = attributes(&resource.resource.unwrap().attributes);
            for scope in resource.scope_spans {
                spans.extend(scope.spans.into_iter().map(|span| (of.clone(), span)));
            }
        }
    }
    spans
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, Value> {
    let value = |it: &KeyValue| match it.value.clone().unwrap().value.unwrap() {
        Any::StringValue(text) => json!(text),
        Any::IntValue(number) => json!(number),
        other => panic!("{other:?}"),
    };
    let named = attributes.iter().map(|it| (it.key.clone(), value(it)));
    named.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The one span of that call and that name.
fn span<'a>(
    spans: &'a [(BTreeMap<String, Value>, Span)],
    call: i64,
    name: &str,
) -> (&'a Span, BTreeMap<String, Value>) {
    let of_call = |span: &Span| attributes(&span.attributes)["leafhopper.call.id"] == call;
    let mut found = spans
        .iter()
        .filter(|(_, span)| span.name == name && of_call(span));
    let (_, span) = found
        .next()
        .unwrap_or_else(|| panic!("no {name} of {call}: {spans:#?}"));
    assert!(found.next().is_none(), "two of {name} of {call}");
    assert_eq!(span.kind, SpanKind::Client as i32);
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    (span, attributes(&span.attributes))
}

fn status(span: &Span) -> StatusCode {
    span.status.clone().unwrap_or_default().code()
}

fn port(url: &str) -> u64 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

/// Leaves of several kinds at one address, and one where nobody listens.
fn leaves(bed: &Bed) -> Starter {
    let url = bed.leaf.url();
    bed.config(QUICK)
        .leaf("asked", &url, QUICK)
        .leaf("pay", &url, QUICK)
        .leaf(
            "gone",
            "http://127.0.0.1:1",
            "retry = { initial = \"1h\", max = \"1h\" }",
        )
        .probe("asked", "settle = \"1ms\"")
        .toml("[leaf.pay.idempotency]\nheader = \"Idempotency-Key\"\nwindow = \"1h\"")
        .sidecar()
        .environment("LEAFHOPPER_LOG_LEVEL", "debug")
}

#[tokio::test]
async fn a_span_stands_between_the_row_s_and_the_leaf_s_and_the_last_ones_go_at_the_stop() {
    let bed = Bed::new().await;
    bed.leaf.honours("idempotency-key", Remembers::Successes);
    bed.leaf.on("/lost").times(1).key("asked").resets();
    bed.leaf.on("/lost").times(1).key("again").resets();
    bed.leaf.on("/no").refuses(422);
    let collector = collector().await;
    let mut sidecar = exporting(leaves(&bed), &collector.url())
        .environment("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=k3y")
        .environment("OTEL_SERVICE_NAME", "hop")
        .environment(
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=not-this,deployment.environment=test",
        )
        // So that all of them are exported by the stop.
        .environment("OTEL_BSP_SCHEDULE_DELAY", "600000")
        .start()
        .await;
    let insert = async |call: Call| bed.app.insert(call).await;
    let batch = Uuid::new_v4();
    let done = insert(traced(keyed("leaf", "done").batch(batch), "01")).await;
    let refused = insert(traced(keyed("leaf", "refusing").path("/no"), "01")).await;
    let asked = insert(traced(keyed("asked", "asked").path("/lost"), "01")).await;
    let again = insert(traced(keyed("pay", "again").path("/lost"), "01")).await;
    let root = insert(keyed("leaf", "root")).await;
    let unseen = insert(traced(keyed("leaf", "unseen"), "00")).await;
    let gone = insert(traced(keyed("gone", "gone"), "01")).await;
    for call in [done, asked, again, root, unseen] {
        bed.app.until_state(call, "confirmed").await;
    }
    bed.app.until_state(refused, "failed").await;
    until("the leaf that is gone was tried", async || {
        let call = bed.app.call(gone).await;
        if call["reason"] == "retry" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    assert!(collector.all_requests().is_empty());
    let status = sidecar.stop().await;
    assert!(status.success(), "{status}");

    let spans = spans(&collector);
    assert_confirmed(&bed, &spans, &sidecar, (done, batch));
    assert_failures(&spans, refused, gone);
    assert_asked(&bed, &spans, asked);
    assert_sent_again(&bed, &spans);
    assert_root_and_unseen(&bed, &spans, root);
    assert_eq!(spans.len(), 8);
    assert_what_they_are_of(&collector, &spans);
}

type Exported = [(BTreeMap<String, Value>, Span)];

/// What the leaf goes on from.
fn place(trace_id: &str, span: &Span) -> String {
    format!("00-{trace_id}-{}-01", hex(&span.span_id))
}

/// An attempt that is confirmed.
fn assert_confirmed(bed: &Bed, spans: &Exported, sidecar: &Sidecar, (done, batch): (i64, Uuid)) {
    let (span, named) = span(spans, done, "POST leaf");
    let expected = json!({
        "http.request.method": "POST", "server.address": "127.0.0.1", "server.port": port(&bed.leaf.url()),
        "http.response.status_code": 201, "leafhopper.leaf": "leaf", "leafhopper.call.id": done,
        "leafhopper.batch.id": batch.to_string(), "leafhopper.attempt.number": 1,
        "leafhopper.attempt.class": "confirmed",
    });
    assert_eq!(json!(named), expected);
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), PARENT);
    assert_eq!(status(span), StatusCode::Unset);
    let request = bed.leaf.requests("done").remove(0);
    assert_eq!(
        request.header("traceparent"),
        Some(place(TRACE, span).as_str())
    );
    assert_eq!(request.header("tracestate"), Some("rojo=1,congo=t61"));
    let of_attempt = |line: &Value| line["call.id"] == done && line["attempt.class"] == "confirmed";
    let line = sidecar.log().into_iter().find(of_attempt).unwrap();
    assert_eq!(line["trace_id"], TRACE);
    assert_eq!(line["span_id"], hex(&span.span_id));
}

/// The leaf's no, and nobody there.
fn assert_failures(spans: &Exported, refused: i64, gone: i64) {
    let (of_refused, named) = span(spans, refused, "POST leaf");
    assert_eq!(status(of_refused), StatusCode::Error);
    assert_eq!(named["leafhopper.attempt.class"], "failed");
    assert_eq!(named["error.type"], "422");
    let (of_gone, named) = span(spans, gone, "POST gone");
    assert_eq!(status(of_gone), StatusCode::Error);
    assert_eq!(named["leafhopper.attempt.class"], "retry");
    assert_eq!(named["error.type"], "unconnected");
    assert!(
        !named.contains_key("http.response.status_code"),
        "{named:?}"
    );
}

/// In doubt, and asked about: two spans beside each other.
fn assert_asked(bed: &Bed, spans: &Exported, asked: i64) {
    let (attempt, named) = span(spans, asked, "POST asked");
    assert_eq!(named["leafhopper.attempt.class"], "in_doubt");
    assert_eq!(named["error.type"], "unanswered");
    assert_eq!(status(attempt), StatusCode::Error);
    assert!(!attempt.status.clone().unwrap().message.is_empty());
    let (probe, named) = span(spans, asked, "probe asked");
    assert_eq!(named["leafhopper.probe.verdict"], "found");
    assert_eq!(named["http.request.method"], "GET");
    assert_eq!(status(probe), StatusCode::Unset);
    assert_eq!(hex(&probe.parent_span_id), PARENT);
    let requests = bed.leaf.requests("asked");
    let question = requests.iter().find(|request| request.method == "GET");
    let named = question.unwrap().header("traceparent");
    assert_eq!(named, Some(place(TRACE, probe).as_str()));
}

/// Sent again with the same key, from another place of the same trace.
fn assert_sent_again(bed: &Bed, spans: &Exported) {
    let sent = bed.leaf.requests("again");
    let headers = |name: &str| -> Vec<&str> {
        let all = sent.iter().map(|request| request.header(name).unwrap());
        all.collect()
    };
    assert_eq!(headers("idempotency-key"), ["again", "again"]);
    let mut attempts: Vec<_> = spans
        .iter()
        .map(|(_, span)| span)
        .filter(|span| span.name == "POST pay")
        .collect();
    attempts.sort_by_key(|span| span.start_time_unix_nano);
    let places: Vec<String> = attempts.iter().map(|span| place(TRACE, span)).collect();
    assert_eq!(headers("traceparent"), places);
    assert_ne!(places[0], places[1]);
    let numbers = attempts.iter().map(|span| {
        let named = attributes(&span.attributes);
        let resent = named.get("http.request.resend_count").cloned();
        (named["leafhopper.attempt.number"].clone(), resent)
    });
    let expected = [(json!(1), None), (json!(2), Some(json!(1)))];
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
}

/// A row without a place begins a trace; one whose caller does not record it is not recorded, and goes on.
fn assert_root_and_unseen(bed: &Bed, spans: &Exported, root: i64) {
    let (root, _) = span(spans, root, "POST leaf");
    assert!(root.parent_span_id.is_empty());
    let request = bed.leaf.requests("root").remove(0);
    let begun = place(&hex(&root.trace_id), root);
    assert_eq!(request.header("traceparent"), Some(begun.as_str()));
    let request = bed.leaf.requests("unseen").remove(0);
    let place = request.header("traceparent").unwrap();
    assert!(
        place.starts_with(&format!("00-{TRACE}-")) && place.ends_with("-00"),
        "{place}"
    );
}

/// What they are of, and what is in none of them.
fn assert_what_they_are_of(collector: &Leaf, spans: &Exported) {
    for (of, _) in spans {
        assert_eq!(of["service.name"], "hop");
        assert_eq!(of["service.version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(of["deployment.environment"], "test");
        assert!(of.contains_key("service.instance.id"), "{of:?}");
    }
    for request in collector.all_requests() {
        assert_eq!(request.header("x-api-key"), Some("k3y"));
        let text = String::from_utf8_lossy(&request.body).into_owned();
        for hidden in ["/things", "/lost", "/no", "refusing", "k3y", "unseen"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
    }
}

/// The lines about spans.
fn about_spans(sidecar: &Sidecar) -> Vec<Value> {
    let mut lines = sidecar.log();
    lines.retain(|line| {
        line["target"]
            .as_str()
            .unwrap_or_default()
            .contains("telemetry")
    });
    lines
}

#[tokio::test]
async fn a_collector_that_is_away_or_silent_costs_spans_and_nothing_else() {
    let silent = Leaf::start().await;
    silent.always().hangs();
    for endpoint in [&silent.url(), "http://127.0.0.1:1"] {
        let bed = Bed::new().await;
        let starter = bed
            .config("concurrency = 64")
            .dispatch("shutdown_grace = \"1s\"")
            .sidecar();
        let mut sidecar = exporting(starter, endpoint)
            .environment("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
            .environment("OTEL_BSP_SCHEDULE_DELAY", "20")
            .environment("OTEL_BSP_MAX_QUEUE_SIZE", "16")
            .environment("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
            .start()
            .await;
        let begun = Instant::now();
        bed.app
            .execute(
                "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/things' FROM generate_series(1, 500)",
            )
            .await;
        bed.app.until_all_confirmed(500).await;
        // The exporter alone would take 200 ms for each eight of them.
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        until("it is said", async || {
            let lines = about_spans(&sidecar);
            let said = |line: &Value| {
                line["message"]
                    .as_str()
                    .unwrap()
                    .contains("can't be exported")
            };
            if lines.iter().any(said) {
                Ok(())
            } else {
                Err(lines)
            }
        })
        .await;
        let begun = Instant::now();
        let status = sidecar.stop().await;
        assert!(status.success(), "{status}");
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
        let lines = about_spans(&sidecar);
        let warnings = lines.iter().filter(|line| line["level"] == "WARN").count();
        // When it fails, and at the stop.
        assert_eq!(warnings, 2, "{lines:#?}");
        assert_eq!(lines.last().unwrap()["spans"], 500, "{lines:#?}");
        assert!(sidecar.log().iter().all(|line| line["level"] != "ERROR"));
    }
}
