//! Messages that wait as columns of the statement that writes them down.

use uuid::Uuid;

use crate::broker::message::NewMessage;
use crate::ids::TraceId;
use crate::store::schedules::{Due, ScheduleColumns};

/// Adds a message of a unit, counted from 1. `number`: the producer and the sequence under which it is published.
pub(in crate::broker) fn add_message<'a>(
    columns: &mut ScheduleColumns<'a>,
    unit: i32,
    due: Due,
    number: Option<(Uuid, i64)>,
    message: &'a NewMessage,
) {
    columns.units.push(unit);
    columns.due(due);
    columns.producer_ids.push(number.map(|(producer_id, _)| producer_id));
    columns.sequences.push(number.map(|(_, sequence)| sequence));
    columns.trace_ids.push(message.trace_id.0);
    columns.cause_partition_ids.push(message.cause.map(|cause| cause.partition_id.0));
    columns.cause_offsets.push(message.cause.map(|cause| cause.offset.0));
    columns.keys.push(message.key());
    columns.transaction_ids.push(message.transaction_id());
    columns.headers.push(message.headers.as_deref());
    columns.content_types.push(message.content_type.as_deref());
    columns.payloads.push(message.stored_payload());
    columns.data_key_ids.push(message.data_key_id());
    columns.producers.push(message.producer.as_deref());
    columns.links.push(links(&message.links));
    columns.ttls_ms.push(message.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)));
    columns.bytes += message.bytes() as i64;
}

/// As the text of an array.
fn links(links: &[TraceId]) -> Option<String> {
    let ids: Vec<String> = links.iter().map(|link| link.0.to_string()).collect();
    (!ids.is_empty()).then(|| format!("{{{}}}", ids.join(",")))
}
