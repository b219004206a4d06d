//! Messages over HTTP: published, listed by offset or time, found by trace.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use axum::Json;
use axum::extract::State;
use laneway_client::message::{
    DecodeError, Encoding, MessageList, PublishMessage, PublishRequest, PublishResponse, PublishResult,
    StoredMessage,
};
use laneway_client::{ErrorCode, Problem};
use serde::Deserialize;

use super::Context;
use super::problem::{Body, Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::message::Draft;
use crate::broker::publish::{Addressed, Placed, Published};
use crate::broker::reader::is_cut;
use crate::broker::topics::TopicError;
use crate::ids::{Offset, PartitionId, ProducerId, TraceId};
use crate::limits::{READ_BYTES_MAX, READ_MESSAGES_MAX};
use crate::store::messages::{Message, ReadLimit};

pub(super) async fn publish(
    State(context): State<Context>,
    Path(topic): Path<String>,
    Body(request): Body<PublishRequest>,
) -> Result<Json<PublishResponse>, Failure> {
    let topic = topic_name(topic)?;
    let drafts: Result<Vec<_>, Failure> = request.messages.into_iter().enumerate().map(draft).collect();
    let producer_id = request.producer_id.map(ProducerId);
    let published = context.broker.publisher.publish(&topic, producer_id, drafts?).await?;
    // One partition, one fate: its error is the answer. Several: each message carries its own.
    if let [first, rest @ ..] = published.as_slice()
        && let Err(error) = &first.result
        && rest.iter().all(|other| other.result == first.result)
    {
        return Err(error.clone().into());
    }
    Ok(Json(PublishResponse { results: published.into_iter().map(result).collect() }))
}

fn draft((index, message): (usize, PublishMessage)) -> Result<Addressed, Failure> {
    let field = |name: &str| format!("messages[{index}].{name}");
    let key = message.key.as_deref().map(|key| {
        message.key_encoding.decode(key).map_err(|error| undecoded(field("key"), "key_encoding", error))
    });
    let payload = message.encoding.decode(&message.payload);
    let payload = payload.map_err(|error| undecoded(field("payload"), "encoding", error))?;
    let trace_id = message.trace_id.as_deref().map(|id| trace_id(id, &field("trace_id"))).transpose()?;
    let is_json = message.encoding == Encoding::Json;
    let draft = Draft {
        trace_id,
        cause: None,
        key: key.transpose()?.map(Into::into),
        transaction_id: message.transaction_id,
        headers: message.headers,
        content_type: message.content_type.or(is_json.then(|| "application/json".to_owned())),
        payload: payload.into(),
        producer: None,
    };
    Ok(Addressed { partition: message.partition, sequence: message.sequence, draft })
}

/// A value that does not stand for bytes in the way that its `declared_by` says.
fn undecoded(field: String, declared_by: &str, error: DecodeError) -> Failure {
    let advice = match error {
        DecodeError::NotAString => format!(": declare \"{declared_by}\": \"json\" to send a JSON value"),
        DecodeError::NotText => format!(": declare \"{declared_by}\": \"json\" to send it as it is"),
        DecodeError::NotBase64 => String::new(),
    };
    let detail = format!("{field}: {error}{advice}");
    malformed(field, detail)
}

fn trace_id(text: &str, field: &str) -> Result<TraceId, Failure> {
    let wrong = |_| malformed(field, format!("{text:?} is not a trace id: a UUID or 32 hexadecimal digits"));
    uuid::Uuid::parse_str(text).map(TraceId).map_err(wrong)
}

fn result(published: Published) -> PublishResult {
    let partition = published.partition;
    match published.result {
        Ok(Placed::New(offset)) => {
            PublishResult { partition, offset: Some(offset.0), duplicate: false, error: None }
        }
        Ok(Placed::Duplicate(offset)) => {
            PublishResult { partition, offset: offset.map(|offset| offset.0), duplicate: true, error: None }
        }
        Err(error) => {
            PublishResult { partition, offset: None, duplicate: false, error: Some(*Failure::from(error).0) }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// From this offset on.
    from: Option<i64>,
    /// Before this offset, newest first.
    before: Option<i64>,
    /// From the first message at or after this moment.
    at: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn list(
    State(context): State<Context>,
    Path((topic, partition)): Path<(String, u32)>,
    Query(query): Query<ListQuery>,
) -> Result<Json<MessageList>, Failure> {
    let topic = context.broker.topics.find(&topic_name(topic)?).await?;
    let partitions = topic.partitions.len();
    let partition_id = *topic.partitions.get(partition as usize).ok_or_else(|| {
        let detail =
            format!("topic {} has {partitions} partitions, so there is no partition {partition}", topic.name);
        Failure::from(Problem::new(ErrorCode::PartitionOutOfRange, detail).with_field("partition"))
    })?;
    let messages = read(&context, partition_id, &query).await?;
    let messages = messages.into_iter().map(|message| stored(&topic.name, partition, message)).collect();
    Ok(Json(MessageList { messages, truncated: false }))
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

pub(super) async fn trace(
    State(context): State<Context>,
    Path(id): Path<String>,
) -> Result<Json<MessageList>, Failure> {
    let trace_id = trace_id(&id, "trace_id")?;
    let hops = context.broker.reader.trace(trace_id).await?;
    let truncated = is_cut(&hops);
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

/// A message as HTTP carries it.
pub(super) fn stored(topic: &str, partition: u32, message: Message) -> StoredMessage {
    let (encoding, payload) = Encoding::encode(&message.payload, message.content_type.as_deref());
    let key = message.key.map(|key| Encoding::encode(&key, None));
    let headers = message.headers.as_deref().map(serde_json::from_str).and_then(Result::ok);
    StoredMessage {
        topic: topic.to_owned(),
        partition,
        offset: message.offset.0,
        published_at: message.published_at.to_string(),
        trace_id: message.trace_id.to_string(),
        key_encoding: key.as_ref().map(|(encoding, _)| *encoding).unwrap_or_default(),
        key: key.map(|(_, key)| key),
        transaction_id: message.transaction_id,
        headers: headers.unwrap_or_default(),
        content_type: message.content_type,
        payload,
        encoding,
    }
}
