//! Messages as columns of a flush.

use std::time::Duration;

use crate::broker::message::NewMessage;
use crate::store::flush::Flush;

/// How long transaction ids are remembered, as the flush takes it.
pub(in crate::broker) fn window_ms(window: Duration) -> i64 {
    i64::try_from(window.as_millis()).unwrap_or(i64::MAX)
}

/// Adds a message at a position of a batch.
pub(in crate::broker) fn add_message<'a>(
    flush: &mut Flush<'a>,
    batch: i32,
    position: i32,
    message: &'a NewMessage,
    window_ms: i64,
) {
    if let Some(id) = message.transaction_id() {
        flush.ids.batch.push(batch);
        flush.ids.position.push(position);
        flush.ids.transaction_ids.push(id);
        flush.ids.windows_ms.push(window_ms);
    }
    let columns = &mut flush.messages;
    columns.batch.push(batch);
    columns.position.push(position);
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
    columns.ttls_ms.push(message.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)));
    flush.traces.all.push(message.trace_id.prefix());
    for link in &message.links {
        flush.links.batch.push(batch);
        flush.links.position.push(position);
        flush.links.trace_ids.push(message.trace_id.0);
        flush.links.linked_trace_ids.push(link.0);
    }
}

/// Each trace once per batch, of those added since `before`: a pipeline run often sends several messages together.
pub(in crate::broker) fn add_traces(flush: &mut Flush<'_>, before: usize) {
    let traces = &mut flush.traces;
    let mut mine = traces.all.split_off(before);
    mine.sort_unstable();
    mine.dedup();
    traces.first.push(before as i32 + 1);
    traces.last.push((before + mine.len()) as i32);
    traces.all.append(&mut mine);
}
