//! With the feature `otel`: spans by OpenTelemetry's SDK, which exports them in batches from a thread of its own, out of
//! a queue that is bounded. Where the queue is full or the collector away, spans are lost, and nobody waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry::{
    Context, InstrumentationScope, KeyValue,
    trace::{
        Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
        TraceId, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_otlp::SpanExporter as Otlp;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{SdkTracer, SdkTracerProvider, Span as SdkSpan, SpanData, SpanExporter},
};

use super::{Exchange, settings};
use crate::{
    config::{Env, Leaf},
    domain::{
        evidence::{Evidence, NotSent},
        trace::Trace,
    },
    observe::About,
};

/// A stop waits no longer for a collector that did not answer before.
const KNOWN_TO_FAIL: Duration = Duration::from_secs(1);

/// Where spans go.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    exporting: Option<Exporting>,
}

/// One exchange with a leaf, while it lasts and after.
#[derive(Debug, Default)]
pub(crate) struct Span {
    open: Option<Open>,
    place: Option<Trace>,
}

impl Telemetry {
    /// As the environment says. Problems are logged: they keep nobody from work.
    pub(crate) fn start(env: Env<'_>, instance: uuid::Uuid) -> Self {
        let exporting = match Exporting::start(env, instance) {
            Ok(exporting) => exporting,
            Err(problem) => {
                tracing::error!("no spans are exported: {problem}");
                None
            }
        };
        Self { exporting }
    }

    /// A request goes out now.
    pub(crate) fn span(
        &self,
        about: &About<'_>,
        exchange: Exchange,
        method: &str,
        leaf: &Leaf,
    ) -> Span {
        let Some(exporting) = &self.exporting else {
            return Span::default();
        };
        let (open, place) = exporting.open(about, exchange, method, leaf);
        Span {
            open: Some(open),
            place,
        }
    }

    /// Exports what is left, for at most this long.
    pub(crate) async fn end(&self, within: Duration) {
        if let Some(exporting) = &self.exporting {
            exporting.end(within).await;
        }
    }
}

impl Span {
    /// Its own place in the trace, where there is a collector: what the leaf goes on from.
    pub(crate) fn place(&self) -> Option<&Trace> {
        self.place.as_ref()
    }

    /// The exchange is over: what was seen of it, what that was taken for, and whether that is no good.
    pub(crate) fn end(&mut self, evidence: &Evidence, taken_for: &'static str, bad: bool) {
        if let Some(open) = self.open.take() {
            open.end(evidence, taken_for, bad);
        }
    }
}

/// The exporter, running.
#[derive(Debug)]
struct Exporting {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    state: Arc<State>,
}

/// How exporting goes.
#[derive(Debug, Default)]
struct State {
    failing: AtomicBool,
    /// Spans that were there to be exported.
    ended: AtomicU64,
    exported: AtomicU64,
}

/// A span that has begun.
#[derive(Debug)]
struct Open {
    span: SdkSpan,
    exchange: Exchange,
    state: Arc<State>,
}

impl Exporting {
    /// `None` where the environment asks for nothing.
    fn start(env: Env<'_>, instance: uuid::Uuid) -> Result<Option<Self>, String> {
        let Some((collector, not_followed)) = settings::read(env)? else {
            return Ok(None);
        };
        for setting in not_followed {
            tracing::warn!("{setting}");
        }
        let exporter = Otlp::builder().with_http().build();
        let exporter = exporter.map_err(|error| error.to_string())?;
        tracing::info!(
            telemetry.endpoint = collector,
            "spans are exported to {collector}"
        );
        let state = Arc::new(State::default());
        let exporter = Reporting {
            exporter,
            collector,
            state: Arc::clone(&state),
        };
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(env, instance))
            .with_batch_exporter(exporter)
            .build();
        let scope = InstrumentationScope::builder("leafhopper")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Ok(Some(Self {
            tracer: provider.tracer_with_scope(scope),
            provider,
            state,
        }))
    }

    fn open(
        &self,
        about: &About<'_>,
        exchange: Exchange,
        method: &str,
        leaf: &Leaf,
    ) -> (Open, Option<Trace>) {
        let mut attributes = vec![
            KeyValue::new("http.request.method", method.to_owned()),
            KeyValue::new("leafhopper.leaf", leaf.name.clone()),
            KeyValue::new("leafhopper.call.id", about.call),
        ];
        // Of an IPv6 address a URL shows brackets, too.
        let host = leaf.base_url.host_str();
        let host = host.map(|host| host.trim_matches(['[', ']']).to_owned());
        attributes.extend(host.map(|host| KeyValue::new("server.address", host)));
        let port = leaf.base_url.port_or_known_default();
        attributes.extend(port.map(|port| KeyValue::new("server.port", i64::from(port))));
        let batch = about.batch.map(|batch| batch.to_string());
        attributes.extend(batch.map(|batch| KeyValue::new("leafhopper.batch.id", batch)));
        if let Exchange::Attempt(number) = exchange {
            let number = i64::from(number);
            attributes.push(KeyValue::new("leafhopper.attempt.number", number));
            if number > 1 {
                attributes.push(KeyValue::new("http.request.resend_count", number - 1));
            }
        }
        let name = match exchange {
            Exchange::Attempt(_) => format!("{method} {}", leaf.name),
            Exchange::Probe => format!("probe {}", leaf.name),
        };
        let builder = self.tracer.span_builder(name);
        let builder = builder
            .with_kind(SpanKind::Client)
            .with_attributes(attributes);
        let parent = about.trace.and_then(context_of).unwrap_or_default();
        let span = self.tracer.build_with_context(builder, &parent);
        let place = place_of(span.span_context(), about.trace);
        let state = Arc::clone(&self.state);
        let open = Open {
            span,
            exchange,
            state,
        };
        (open, place)
    }

    async fn end(&self, within: Duration) {
        let within = if self.state.failing.load(Ordering::Relaxed) {
            within.min(KNOWN_TO_FAIL)
        } else {
            within
        };
        let provider = self.provider.clone();
        // It blocks until all is exported or the time is over.
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(within));
        let in_time = matches!(ended.await, Ok(Ok(())));
        let [all, exported] =
            [&self.state.ended, &self.state.exported].map(|count| count.load(Ordering::Relaxed));
        // Also those that the queue had no room for, of which the SDK says nothing.
        let lost = all.saturating_sub(exported);
        if lost > 0 {
            let late = if in_time {
                ""
            } else {
                ", in the time that there was"
            };
            tracing::warn!(
                spans = lost,
                "{lost} of {all} spans were not exported{late}"
            );
        }
    }
}

impl Drop for Exporting {
    /// Whoever ends at once waits for nothing; else the SDK's own end would wait for seconds.
    fn drop(&mut self) {
        drop(self.provider.shutdown_with_timeout(Duration::ZERO));
    }
}

impl Open {
    fn end(mut self, evidence: &Evidence, taken_for: &'static str, bad: bool) {
        let (status, error, kind) = match evidence {
            Evidence::Answered(answer) => (Some(answer.status), None, None),
            Evidence::Unanswered(end) => (end.status, Some(&end.error), Some("unanswered")),
            Evidence::NotSent(NotSent::Unconnected(why)) => (None, Some(why), Some("unconnected")),
            Evidence::NotSent(NotSent::OutOfTime(why)) => (None, Some(why), Some("out_of_time")),
            Evidence::NotSent(NotSent::Refused(why)) => (None, Some(why), Some("refused")),
            Evidence::NotSent(NotSent::Unsendable(why)) => (None, Some(why), Some("unsendable")),
            Evidence::NotSent(NotSent::LeaseOver) => (None, None, Some("lease_over")),
        };
        if let Some(status) = status {
            let status = KeyValue::new("http.response.status_code", i64::from(status));
            self.span.set_attribute(status);
        }
        let taken_as = match self.exchange {
            Exchange::Attempt(_) => "leafhopper.attempt.class",
            Exchange::Probe => "leafhopper.probe.verdict",
        };
        self.span.set_attribute(KeyValue::new(taken_as, taken_for));
        if bad {
            let kind = match (kind, status) {
                (Some(kind), _) => kind.to_owned(),
                (None, Some(status)) => status.to_string(),
                (None, None) => taken_for.to_owned(),
            };
            self.span.set_attribute(KeyValue::new("error.type", kind));
            let text = error.map_or(taken_for, String::as_str);
            self.span.set_status(Status::error(text.to_owned()));
        }
        if self.span.is_recording() {
            self.state.ended.fetch_add(1, Ordering::Relaxed);
        }
        self.span.end();
    }
}

/// What the spans are of. The environment's word goes before ours.
fn resource(env: Env<'_>, instance: uuid::Uuid) -> Resource {
    let named = env("OTEL_SERVICE_NAME").filter(|name| !name.is_empty());
    let named = named.map(|name| KeyValue::new("service.name", name));
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", "leafhopper"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance.to_string()),
        ])
        .with_detectors(&[
            Box::new(TelemetryResourceDetector),
            Box::new(EnvResourceDetector::new()),
        ])
        .with_attributes(named)
        .build()
}

/// The row's place, as a parent from elsewhere.
fn context_of(trace: &Trace) -> Option<Context> {
    let state = trace.state().and_then(|state| state.parse().ok());
    let parent = SpanContext::new(
        TraceId::from_hex(trace.trace_id()).ok()?,
        SpanId::from_hex(trace.span_id()).ok()?,
        TraceFlags::new(trace.flags()),
        true,
        state.unwrap_or_default(),
    );
    Some(Context::new().with_remote_span_context(parent))
}

/// A span's place; what other vendors have said of the trace goes on unchanged.
fn place_of(span: &SpanContext, row: Option<&Trace>) -> Option<Trace> {
    let parent = format!(
        "00-{}-{}-{:02x}",
        span.trace_id(),
        span.span_id(),
        span.trace_flags()
    );
    Trace::of(Some(&parent), row.and_then(Trace::state))
}

/// The exporter, with one line in the log when it fails, and one when it works again.
#[derive(Debug)]
struct Reporting {
    exporter: Otlp,
    collector: String,
    state: Arc<State>,
}

impl SpanExporter for Reporting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let exported = self.exporter.export(batch).await;
        match &exported {
            Ok(()) => {
                self.state.exported.fetch_add(spans, Ordering::Relaxed);
                if self.state.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("spans are exported again to {}", self.collector);
                }
            }
            Err(error) => {
                if !self.state.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "spans can't be exported to {}, and are lost until they can: {error}",
                        self.collector
                    );
                }
            }
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
