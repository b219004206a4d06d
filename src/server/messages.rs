//! Messages over HTTP: listed by offset or time, read one by one, found by trace.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use laneway_client::message::{Cause, Encoding, MessageList, StoredMessage};
use laneway_client::openapi::{Moment, Position, TraceText};
use laneway_client::{ErrorCode, Problem, TopicName};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::IntoParams;

use super::Context;
use super::openapi::{Common, Gone, Malformed, NotFound, Unprocessable};
use super::problem::{Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::reader::FoundTrace;
use crate::broker::topics::TopicError;
use crate::ids::{Offset, PartitionId, TraceId};
use crate::limits::{READ_BYTES_MAX, READ_MESSAGES_MAX};
use crate::store::messages::{Message, ReadLimit};
use crate::store::topics::Topic;
use crate::store::traces::Payloads;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// From this offset on.
    #[param(value_type = Position, required = false)]
    from: Option<i64>,
    /// Before this offset, newest first.
    #[param(value_type = Position, required = false)]
    before: Option<i64>,
    /// From the first message at or after this moment.
    #[param(value_type = Moment, required = false)]
    at: Option<String>,
    /// At most this many.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 10000)]
    limit: Option<u32>,
}

/// Messages of a partition: one page from an offset or a moment on, or backwards before an offset or from the end.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/partitions/{partition}/messages",
    operation_id = "list_messages",
    tag = "messages",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("partition" = u32, Path, description = "The number of the partition", maximum = 999, example = 0), ListQuery),
    responses((status = 200, body = MessageList, description = "One page"), Malformed, NotFound, Gone, Unprocessable, Common)
)]
pub(super) async fn list(
    State(context): State<Context>,
    Path((topic, partition)): Path<(String, u32)>,
    Query(query): Query<ListQuery>,
) -> Result<Json<MessageList>, Failure> {
    let (topic, partition_id) = partition_of(&context, topic, partition).await?;
    let messages = read(&context, partition_id, &query).await?;
    let messages = messages.into_iter().map(|message| stored(&topic.name, partition, message)).collect();
    Ok(Json(MessageList { messages, truncated: false }))
}

/// One message.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/partitions/{partition}/messages/{offset}",
    operation_id = "show_message",
    tag = "messages",
    params(
        ("topic" = TopicName, Path, description = "The name of the topic", example = "orders"),
        ("partition" = u32, Path, description = "The number of the partition", maximum = 999, example = 0),
        ("offset" = Position, Path, description = "Where it stands", example = 0)
    ),
    responses(
        (status = 200, body = StoredMessage, description = "The message"),
        Malformed,
        NotFound,
        Gone,
        Unprocessable,
        Common
    )
)]
pub(super) async fn show(
    State(context): State<Context>,
    Path((topic, partition, at)): Path<(String, u32, i64)>,
) -> Result<Json<StoredMessage>, Failure> {
    let at = offset("offset", at)?;
    let (topic, partition_id) = partition_of(&context, topic, partition).await?;
    let limit = ReadLimit { messages: 1, bytes: READ_BYTES_MAX };
    let found = context.broker.reader.read(partition_id, at, limit).await?;
    match found.into_iter().next() {
        Some(message) => Ok(Json(stored(&topic.name, partition, message))),
        None => {
            let detail = format!("partition {partition} of {} has no message {at} yet", topic.name);
            Err(Failure::from(Problem::new(ErrorCode::UnknownMessage, detail).with_field("offset")))
        }
    }
}

/// A partition that a path names.
async fn partition_of(
    context: &Context,
    topic: String,
    partition: u32,
) -> Result<(Arc<Topic>, PartitionId), Failure> {
    let topic = context.broker.topics.find(&topic_name(topic)?).await?;
    let partitions = topic.partitions.len();
    let partition_id = *topic.partitions.get(partition as usize).ok_or_else(|| {
        let detail =
            format!("topic {} has {partitions} partitions, so there is no partition {partition}", topic.name);
        Failure::from(Problem::new(ErrorCode::PartitionOutOfRange, detail).with_field("partition"))
    })?;
    Ok((topic, partition_id))
}

async fn read(
    context: &Context,
    partition_id: PartitionId,
    query: &ListQuery,
) -> Result<Vec<Message>, Failure> {
    let reader = &context.broker.reader;
    let limit = ReadLimit { messages: page(query.limit)?, bytes: READ_BYTES_MAX };
    match (query.from, query.before, &query.at) {
        (Some(from), None, None) => Ok(reader.read(partition_id, offset("from", from)?, limit).await?),
        (None, Some(before), None) => {
            Ok(reader.read_back(partition_id, offset("before", before)?, limit).await?)
        }
        (None, None, Some(at)) => {
            let wrong = |error: jiff::Error| {
                malformed("at", format!("{at:?} is not a time like 2026-01-31T12:00:00Z: {error}"))
            };
            let at = at.parse().map_err(wrong)?;
            match reader.offset_at(partition_id, at).await? {
                Some(from) => Ok(reader.read(partition_id, from, limit).await?),
                None => Ok(Vec::new()),
            }
        }
        (None, None, None) => Ok(reader.read_back(partition_id, Offset(i64::MAX), limit).await?),
        _ => Err(malformed("from", "give one of from, before and at")),
    }
}

fn page(limit: Option<u32>) -> Result<u32, Failure> {
    match limit.unwrap_or(100) {
        limit @ 1..=READ_MESSAGES_MAX => Ok(limit),
        limit => {
            Err(malformed("limit", format!("limit must be between 1 and {READ_MESSAGES_MAX}, not {limit}")))
        }
    }
}

fn offset(field: &'static str, value: i64) -> Result<Offset, Failure> {
    match value {
        0.. => Ok(Offset(value)),
        _ => Err(malformed(field, format!("{field} must not be negative"))),
    }
}

/// A trace id as text has it.
pub(super) fn trace_id(text: &str, field: &str) -> Result<TraceId, Failure> {
    let wrong = |_| malformed(field, format!("{text:?} is not a trace id: a UUID or 32 hexadecimal digits"));
    uuid::Uuid::parse_str(text).map(TraceId).map_err(wrong)
}

/// The trace that a path names.
pub(super) fn trace_of_path(text: &str) -> Result<TraceId, Failure> {
    match trace_id(text, "trace_id")? {
        TraceId(id) if id.is_nil() => {
            Err(malformed("trace_id", "the trace id is all zero, which stands for no trace"))
        }
        trace_id => Ok(trace_id),
    }
}

/// The messages of a trace, oldest first.
#[utoipa::path(
    get,
    path = "/v1/traces/{trace_id}/messages",
    operation_id = "list_trace_messages",
    tag = "messages",
    params(("trace_id" = TraceText, Path, description = "A UUID or 32 hexadecimal digits", example = "0af7651916cd43dd8448eb211c80319c")),
    responses((status = 200, body = MessageList, description = "Its messages"), Malformed, Common)
)]
pub(super) async fn trace(
    State(context): State<Context>,
    Path(id): Path<String>,
) -> Result<Json<MessageList>, Failure> {
    let trace_id = trace_of_path(&id)?;
    let FoundTrace { hops, truncated } = context.broker.reader.trace(trace_id, Payloads::Read).await?;
    let mut names: HashMap<PartitionId, (String, u32)> = HashMap::new();
    let mut messages = Vec::with_capacity(hops.len());
    for hop in hops {
        let (topic, partition) = match names.entry(hop.partition_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => match context.broker.topics.name_of(hop.partition_id).await {
                Ok(name) => unknown.insert(name),
                Err(TopicError::Unknown { .. }) => continue, // deleted while we looked
                Err(error) => return Err(error.into()),
            },
        };
        messages.push(stored(topic, *partition, hop.message));
    }
    Ok(Json(MessageList { messages, truncated }))
}

/// A cause as HTTP carries it.
pub(super) fn cause((topic, partition, offset): (&str, u32, i64)) -> Cause {
    Cause { topic: topic.to_owned(), partition, offset }
}

/// A message of a list; null in the place of a payload that does not open.
pub(super) fn listed(
    topic: &str,
    partition: u32,
    message: Message,
    error: Option<ErrorCode>,
) -> StoredMessage {
    let mut shown = stored(topic, partition, message);
    if error.is_some() {
        shown.payload = RawValue::NULL.to_owned();
    }
    shown
}

/// A message as HTTP carries it.
pub(super) fn stored(topic: &str, partition: u32, message: Message) -> StoredMessage {
    let (encoding, payload) = Encoding::encode(&message.payload, message.content_type.as_deref());
    let cause = message.cause_named().map(cause);
    let key = message.key.map(|key| Encoding::encode(&key, None));
    let headers = message.headers.as_deref().map(serde_json::from_str).and_then(Result::ok);
    StoredMessage {
        topic: topic.to_owned(),
        partition,
        offset: message.offset.0,
        published_at: message.published_at.to_string(),
        trace_id: message.trace_id.to_string(),
        cause,
        key_encoding: key.as_ref().map(|(encoding, _)| *encoding).unwrap_or_default(),
        key: key.map(|(_, key)| key),
        transaction_id: message.transaction_id,
        headers: headers.unwrap_or_default(),
        content_type: message.content_type,
        payload,
        encoding,
    }
}
