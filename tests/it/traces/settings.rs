//! OpenTelemetry's variables: what is wrong is said, shows nothing that may be secret, and keeps no call.

use serde_json::Value;

use super::{about_spans, collector, exporting, spans};
use crate::harness::{Bed, app::keyed, wait::until};

#[tokio::test]
async fn settings_that_are_wrong_are_said_and_calls_are_sent_without_spans() {
    let collector = collector().await;
    let bed = Bed::new().await;
    // The first of them shows what becomes of a call.
    let mut calls = vec!["sent"];
    let url = collector.url();
    let with_password = url.replace("http://", "http://user:hunter2@");
    for (name, value, said) in [
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "grpc",
            "OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\"",
        ),
        (
            "OTEL_TRACES_EXPORTER",
            "zipkin",
            "OTEL_TRACES_EXPORTER is \"zipkin\"",
        ),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            with_password.as_str(),
            "OTEL_EXPORTER_OTLP_HEADERS",
        ),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "hunter2:4318",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://h:hunter2",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ),
        // These are right, and say nothing.
        ("OTEL_SDK_DISABLED", "true", ""),
        ("OTEL_TRACES_EXPORTER", "none", ""),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "", ""),
    ] {
        let mut sidecar = exporting(bed.config("").sidecar(), &url)
            .environment("OTEL_BSP_SCHEDULE_DELAY", "20")
            .environment(name, value)
            .launch();
        let sends = calls.pop();
        if let Some(key) = sends {
            let call = bed.app.insert(keyed("leaf", key)).await;
            bed.app.until_state(call, "confirmed").await;
        }
        until("it listens", async || {
            let log = sidecar.log();
            let listens = log.iter().any(|line| line["listen.address"].is_string());
            if listens { Ok(()) } else { Err(log) }
        })
        .await;
        sidecar.kill();
        let lines = about_spans(&sidecar);
        if said.is_empty() {
            assert_eq!(lines, Vec::<Value>::new(), "{name}={value}");
        } else {
            assert_eq!(lines.len(), 1, "{name}={value}: {lines:#?}");
            let text = lines[0]["message"].as_str().unwrap();
            assert!(
                text.starts_with("no spans are exported: ") && text.contains(said),
                "{text}"
            );
        }
        let log = format!("{:?}", sidecar.log());
        assert!(!log.contains("hunter2"), "{log}");
    }
    assert_eq!(bed.leaf.requests("sent")[0].header("traceparent"), None);
    assert!(collector.all_requests().is_empty());
}

#[tokio::test]
async fn a_setting_that_is_not_followed_is_said_and_spans_are_exported_all_the_same() {
    let collector = collector().await;
    let bed = Bed::new().await;
    let sidecar = exporting(bed.config("").sidecar(), &collector.url())
        .environment("OTEL_BSP_SCHEDULE_DELAY", "20")
        .environment("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        .environment("OTEL_TRACES_SAMPLER", "often")
        .start()
        .await;
    bed.app.insert(keyed("leaf", "k")).await;
    until("the span is there", async || {
        let spans = spans(&collector);
        if spans.len() == 1 { Ok(()) } else { Err(spans) }
    })
    .await;
    let lines = about_spans(&sidecar);
    let warned = lines.iter().filter(|line| line["level"] == "WARN");
    let warned: Vec<&str> = warned
        .map(|line| line["message"].as_str().unwrap())
        .collect();
    let [compression, sampler] = warned[..] else {
        panic!("{lines:#?}");
    };
    assert!(compression.starts_with("OTEL_EXPORTER_OTLP_COMPRESSION is \"gzip\""));
    assert!(sampler.starts_with("OTEL_TRACES_SAMPLER is \"often\""));
    // Without a name of its own.
    assert_eq!(spans(&collector)[0].0["service.name"], "leafhopper");
}
