//! The spans of a step: its own, and those of the messages that it has published.

use std::time::SystemTime;

use crate::broker::Broker;
use crate::broker::publish::published_span;
use crate::broker::steps::{Done, StepAck, StepUnit};
use crate::ids::{Offset, PartitionId, TraceId};
use crate::telemetry::spans::{self, Seed, Span, SpanKind, Spans, new_span, publish_span};

/// What has to be known of a step before it is done.
pub(super) struct Told {
    started_at: SystemTime,
    /// Its first acknowledged message: where it stands, and its trace, if it is still in memory.
    first: Option<(PartitionId, Offset, Option<TraceId>)>,
    /// Of each message, in the order of the step: topic, partition, and whose span it continues.
    messages: Vec<Option<(String, PartitionId, Seed)>>,
}

impl Told {
    pub fn new(
        broker: &Broker,
        acks: &[StepAck],
        units: &[StepUnit],
        topics: &[String],
        counts: &[usize],
    ) -> Self {
        let mut messages = vec![None; counts.iter().sum()];
        let topic_of = |index: usize| {
            let mut end = 0;
            let place = counts.iter().position(|count| {
                end += count;
                index < end
            });
            place.map(|place| topics[place].clone()).unwrap_or_default()
        };
        for unit in units {
            for (message, index) in unit.messages.iter().zip(&unit.indexes) {
                messages[*index] = Some((topic_of(*index), unit.partition_id, message.seed()));
            }
        }
        let first = acks.first().and_then(|ack| {
            let (partition_id, offset) = (ack.fence.partition_id, ack.ranges.first()?.0);
            Some((partition_id, offset, broker.tails.trace_of(partition_id, offset)))
        });
        Self { started_at: spans::now(), first, messages }
    }

    /// It is done.
    pub fn tell(self, spans: &Spans, done: &Done) {
        let published = self.messages.iter().flatten().map(|(_, _, seed)| seed.trace_id).next();
        if let Some((partition_id, offset, trace_id)) = self.first
            && let Some(trace_id) = trace_id.or(published)
        {
            spans.record(Span {
                kind: SpanKind::Transact,
                trace_id,
                span_id: new_span(),
                parent_id: Some(publish_span(trace_id, partition_id, offset)),
                started_at: self.started_at,
                ended_at: spans::now(),
                topic: self.messages.first().cloned().flatten().map(|(topic, ..)| topic).unwrap_or_default(),
                partition: done.placed.first().map_or(0, |placed| placed.partition),
                offset,
                group: None,
            });
        }
        for (message, placed) in self.messages.into_iter().zip(&done.placed) {
            // What waits has no place yet.
            if let Some((topic, partition_id, seed)) = message.filter(|_| placed.offset >= Offset::ZERO) {
                let place = (partition_id, placed.partition, placed.offset);
                spans.record(published_span(seed, place, &topic, self.started_at));
            }
        }
    }
}
