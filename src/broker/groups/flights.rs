//! Messages in flight, for whoever wants spans of them: from the publish to the socket, and from there to the ack.
//!
//! Empty unless spans are on.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::held::Held;
use crate::broker::slab::Piece;
use crate::ids::{Offset, PartitionId, TraceId};
use crate::telemetry::spans::{self, Span, SpanId, SpanKind, Spans, new_span, publish_span};

/// Which lane, as people name it.
#[derive(Debug, Clone, Copy)]
pub struct LaneName<'a> {
    pub topic: &'a str,
    pub group: &'a str,
    pub partition: u32,
    pub partition_id: PartitionId,
}

/// A message that was delivered and is not done.
#[derive(Debug, Clone, Copy)]
struct Flight {
    trace_id: TraceId,
    span_id: SpanId,
    delivered_at: SystemTime,
}

/// The messages in flight of one lane.
#[derive(Debug, Default)]
pub struct Flights(BTreeMap<Offset, Flight>);

impl Flights {
    /// Messages go to a socket.
    pub fn on_delivered(&mut self, spans: &Spans, lane: LaneName<'_>, pieces: &[Piece]) {
        if !spans.is_on() {
            return;
        }
        let delivered_at = spans::now();
        for message in pieces.iter().flat_map(Piece::messages) {
            let flight = Flight { trace_id: message.trace_id, span_id: new_span(), delivered_at };
            self.0.insert(message.offset, flight);
            spans.record(Span {
                kind: SpanKind::Deliver,
                parent_id: Some(publish_span(message.trace_id, lane.partition_id, message.offset)),
                started_at: message.published_at.into(),
                ended_at: delivered_at,
                ..flight.span(lane, message.offset)
            });
        }
    }

    /// Something was acknowledged: those that are done by now have landed.
    pub fn on_acked(&mut self, spans: &Spans, lane: LaneName<'_>, is_done: impl Fn(Offset) -> bool) {
        let landed: Vec<Offset> = self.0.keys().copied().filter(|offset| is_done(*offset)).collect();
        for offset in landed {
            if let Some(flight) = self.0.remove(&offset) {
                spans.record(Span {
                    span_id: new_span(),
                    parent_id: Some(flight.span_id),
                    ..flight.span(lane, offset)
                });
            }
        }
    }

    /// It has failed: it comes again, or is given up.
    pub fn on_failed(&mut self, offset: Offset) {
        self.0.remove(&offset);
    }
}

impl Held {
    /// As people name it.
    fn name<'a>(&self, topic: &'a str, group: &'a str) -> LaneName<'a> {
        LaneName { topic, group, partition: self.number, partition_id: self.fence.partition_id }
    }

    /// Messages of it go to a socket.
    pub(super) fn departed(&mut self, spans: &Spans, topic: &str, group: &str, pieces: &[Piece]) {
        let name = self.name(topic, group);
        self.flights.on_delivered(spans, name, pieces);
    }

    /// Something of it was acknowledged.
    pub(super) fn landed(&mut self, spans: &Spans, topic: &str, group: &str) {
        if spans.is_on() {
            let (name, lane) = (self.name(topic, group), &self.lane);
            self.flights.on_acked(spans, name, |offset| lane.is_done(offset));
        }
    }
}

impl Flight {
    /// From its delivery to now.
    fn span(&self, lane: LaneName<'_>, offset: Offset) -> Span {
        Span {
            kind: SpanKind::Ack,
            trace_id: self.trace_id,
            span_id: self.span_id,
            parent_id: None,
            started_at: self.delivered_at,
            ended_at: spans::now(),
            topic: lane.topic.to_owned(),
            partition: lane.partition,
            offset,
            group: Some(lane.group.to_owned()),
        }
    }
}
