//! What happens to messages, as spans of their traces, for whoever exports them. Off unless somebody does: then a question to a
//! handle that is empty is all that it costs.
//!
//! Ids are derived, not handed on: the span of a publish is named after the place of its message, so that every broker knows the
//! parent of a delivery, and of a publish that the message has caused, without having seen it.

use std::time::SystemTime;

use laneway_client::traceparent;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::ids::{Offset, PartitionId, TraceId};

/// Spans that wait to be exported; more are dropped, and counted.
const WAITING_MAX: usize = 10_000;

/// The id of a span.
pub type SpanId = [u8; 8];

/// What a span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// From the frame to the commit.
    Publish,
    /// From the publish to the socket.
    Deliver,
    /// From the delivery to the ack.
    Ack,
    /// A step: from the frame to the commit.
    Transact,
}

impl SpanKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Deliver => "deliver",
            Self::Ack => "ack",
            Self::Transact => "transact",
        }
    }
}

/// One span, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub kind: SpanKind,
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub parent_id: Option<SpanId>,
    pub started_at: SystemTime,
    pub ended_at: SystemTime,
    pub topic: String,
    pub partition: u32,
    pub offset: Offset,
    pub group: Option<String>,
}

/// The way to the exporter. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    sender: Option<mpsc::Sender<Span>>,
    /// Those that no collector has got.
    lost: Counter,
}

impl Spans {
    /// Spans that somebody takes.
    pub fn channel() -> (Self, mpsc::Receiver<Span>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self { sender: Some(sender), lost: Counter::default() }, receiver)
    }

    /// Where those are counted that no collector has got.
    pub fn lost(&self) -> Counter {
        self.lost.clone()
    }

    /// Adds what is counted here to `/metrics`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "spans_lost",
            "Spans that no collector has got: too many waited, or it did not take them",
            self.lost(),
        );
    }

    /// Whether anybody wants them.
    pub fn is_on(&self) -> bool {
        self.sender.is_some()
    }

    /// Hands one on. An exporter that is behind loses it; nobody waits for it.
    pub fn record(&self, span: Span) {
        if let Some(sender) = &self.sender
            && sender.try_send(span).is_err()
        {
            self.lost.inc();
        }
    }
}

/// What is known of a message before it is stored: whose span it continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    pub trace_id: TraceId,
    pub parent_id: Option<SpanId>,
}

impl Seed {
    /// Of a message with these headers, as JSON, and this cause. The span of the producer comes before that of the cause.
    pub fn new(trace_id: TraceId, headers: Option<&str>, cause: Option<(PartitionId, Offset)>) -> Self {
        let parent_id = headers
            .and_then(producer_span)
            .or_else(|| cause.map(|(partition_id, offset)| publish_span(trace_id, partition_id, offset)));
        Self { trace_id, parent_id }
    }
}

/// The span that the header `traceparent` names.
fn producer_span(headers: &str) -> Option<SpanId> {
    let headers: std::collections::BTreeMap<String, String> = serde_json::from_str(headers).ok()?;
    let parent = headers.get(traceparent::HEADER)?;
    traceparent::parse(parent).ok()?;
    let digits = parent.split('-').nth(2)?;
    u64::from_str_radix(digits, 16).ok().map(u64::to_be_bytes)
}

/// The span of the publish of a message.
pub fn publish_span(trace_id: TraceId, partition_id: PartitionId, offset: Offset) -> SpanId {
    let mut hash = Sha256::new();
    hash.update(trace_id.0.as_bytes());
    hash.update(partition_id.0.to_be_bytes());
    hash.update(offset.0.to_be_bytes());
    let hash = hash.finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&hash[..8]);
    id[7] |= 1; // never zero, which stands for no span
    id
}

/// The moment of a span. Why this clock: collectors put the spans of many machines on one axis, and nothing durable hangs on it.
#[allow(clippy::disallowed_methods)]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// A span that nobody has to find again.
pub fn new_span() -> SpanId {
    (rand::random::<u64>() | 1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_producers_span_comes_before_that_of_the_cause() {
        let trace_id = TraceId::generate();
        let place = (PartitionId(7), Offset(3));
        let headers = r#"{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#;
        let seed = Seed::new(trace_id, Some(headers), Some(place));
        assert_eq!(seed.parent_id, Some([0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]));
        let caused = Seed::new(trace_id, Some(r#"{"region":"eu"}"#), Some(place));
        assert_eq!(caused.parent_id, Some(publish_span(trace_id, place.0, place.1)));
        assert_eq!(Seed::new(trace_id, None, None).parent_id, None);
    }

    #[test]
    fn nobody_waits_for_an_exporter() {
        let span = || Span {
            kind: SpanKind::Publish,
            trace_id: TraceId::generate(),
            span_id: new_span(),
            parent_id: None,
            started_at: now(),
            ended_at: now(),
            topic: "orders".into(),
            partition: 0,
            offset: Offset(0),
            group: None,
        };
        let (spans, mut receiver) = Spans::channel();
        (0..WAITING_MAX + 5).for_each(|_| spans.record(span()));
        let mut taken = 0;
        while receiver.try_recv().is_ok() {
            taken += 1;
        }
        assert_eq!((taken, Spans::default().is_on()), (WAITING_MAX, false));
        assert_eq!(spans.lost().get(), 5);
    }
}
