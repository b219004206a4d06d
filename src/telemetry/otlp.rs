//! Spans to an OpenTelemetry collector: OTLP over HTTP, in protobuf, in batches. A collector that is away costs its spans and a
//! line in the log, nothing else.

use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind as OtelKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;

use super::spans::{Span, SpanKind, Spans};

/// Spans of one request to the collector.
const BATCH_MAX: usize = 512;
/// How long spans wait for company.
const LINGER: Duration = Duration::from_secs(1);
/// How long a collector may take to answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Exports spans to a collector from now on, for as long as the handle or a clone of it lives.
pub fn start(endpoint: &str) -> Result<(Spans, tokio::task::JoinHandle<()>), String> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(traces_url(endpoint))
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(EXPORT_TIMEOUT)
        .build();
    let mut exporter = exporter.map_err(|error| error.to_string())?;
    exporter.set_resource(&Resource::builder().with_service_name("laneway").build());
    let (spans, receiver) = Spans::channel();
    let exporting = tokio::spawn(run(exporter, receiver, spans.lost()));
    Ok((spans, exporting))
}

/// As the specification has it: the path of traces below the endpoint, unless it is there already.
fn traces_url(endpoint: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.ends_with("/v1/traces") { endpoint.to_owned() } else { format!("{endpoint}/v1/traces") }
}

async fn run(exporter: SpanExporter, mut receiver: mpsc::Receiver<Span>, lost: Counter) {
    let scope = InstrumentationScope::builder("laneway").with_version(env!("CARGO_PKG_VERSION")).build();
    let mut waiting = Vec::new();
    while receiver.recv_many(&mut waiting, BATCH_MAX).await > 0 {
        if waiting.len() < BATCH_MAX {
            tokio::time::sleep(LINGER).await;
            while waiting.len() < BATCH_MAX
                && let Ok(span) = receiver.try_recv()
            {
                waiting.push(span);
            }
        }
        let batch: Vec<SpanData> = waiting.drain(..).map(|span| exported(span, &scope)).collect();
        let spans = batch.len();
        if let Err(error) = exporter.export(batch).await {
            lost.inc_by(spans as u64);
            tracing::warn!(%error, spans, "the collector did not take these spans; they are lost");
        }
    }
}

fn exported(span: Span, scope: &InstrumentationScope) -> SpanData {
    let trace_id = TraceId::from_bytes(*span.trace_id.0.as_bytes());
    let id = |id| SpanId::from_bytes(id);
    let mut attributes = vec![
        KeyValue::new("messaging.system", "laneway"),
        KeyValue::new("messaging.operation.name", span.kind.as_str()),
        KeyValue::new("messaging.destination.name", span.topic.clone()),
        KeyValue::new("messaging.destination.partition.id", span.partition.to_string()),
        KeyValue::new("messaging.laneway.offset", span.offset.0),
    ];
    attributes.extend(span.group.map(|group| KeyValue::new("messaging.consumer.group.name", group)));
    SpanData {
        span_context: SpanContext::new(
            trace_id,
            id(span.span_id),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: span.parent_id.map_or(SpanId::INVALID, id),
        parent_span_is_remote: span.parent_id.is_some(),
        span_kind: match span.kind {
            SpanKind::Publish => OtelKind::Producer,
            SpanKind::Deliver | SpanKind::Ack => OtelKind::Consumer,
            SpanKind::Transact => OtelKind::Internal,
        },
        name: format!("{} {}", span.kind.as_str(), span.topic).into(),
        start_time: span.started_at,
        end_time: span.ended_at.max(span.started_at),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_where_it_is_missing() {
        for endpoint in ["http://collector:4318", "http://collector:4318/", "http://collector:4318/v1/traces"]
        {
            assert_eq!(traces_url(endpoint), "http://collector:4318/v1/traces");
        }
    }
}
