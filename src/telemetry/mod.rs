//! Traces: a span for each request to a leaf, exported to an OpenTelemetry collector (OTLP over HTTP).
//!
//! A span is as long as the exchange, and its parent is the row's `meta.traceparent`. The leaf is sent the span's own
//! place, so what it records hangs below. Without a collector no span is made, and the leaf is sent the row's place as it is.
//!
//! All settings are OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and its like), and nothing is exported
//! where they name no collector. Nothing here may stop or slow a call: what is wrong with these settings or with the
//! collector is logged, and spans are lost. What a span holds is what a log line may hold: no path, no key, no body.

#[cfg(not(feature = "otel"))]
mod none;
#[cfg(feature = "otel")]
mod otel;
mod settings;

#[cfg(not(feature = "otel"))]
pub(crate) use none::{Span, Telemetry};
#[cfg(feature = "otel")]
pub(crate) use otel::{Span, Telemetry};

/// What is asked of a leaf.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "otel"),
    expect(dead_code, reason = "only a span asks which attempt it is")
)]
pub(crate) enum Exchange {
    /// This attempt of a call.
    Attempt(u32),
    /// Whether a call's effect is there.
    Probe,
}
