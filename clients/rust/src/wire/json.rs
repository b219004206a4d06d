//! Frames as JSON text.
//!
//! Order of a decode: UTF-8 → depth → `type` and `id` → the struct of that type, strictly.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::bounds::{FRAME_DEPTH_MAX, PUBLISH_MESSAGES_MAX};
use super::broker_frames::Batch;
use super::client_frames::Publish;
use super::frame_error::FrameError;
use super::members::{self, Current, Members, Strict};
use super::new_message::{self, NewMessage};
use super::record::Record;
use super::{Envelope, Tagged, blame, depth, too_deep, too_many_messages};
use crate::message::{Cause, Encoding, PublishMessage};

/// What is read of every frame first.
#[derive(Deserialize)]
struct Opening<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

pub(super) fn open(frame: &[u8]) -> Result<Envelope, FrameError> {
    let text = std::str::from_utf8(frame).map_err(|_| FrameError::malformed("the frame is not UTF-8"))?;
    if depth::json(frame) > FRAME_DEPTH_MAX {
        return Err(too_deep());
    }
    let opening: Opening<'_> = serde_json::from_str(text)
        .map_err(|error| FrameError::malformed(format!("the frame is not a JSON object: {error}")))?;
    let id = opening.id.and_then(|id| serde_json::from_str(id.get()).ok());
    let kind = opening.kind.and_then(|kind| serde_json::from_str(kind.get()).ok());
    Envelope::new(kind, id)
}

/// The members of a frame, without its `type`.
pub(super) fn body<'de, T: Deserialize<'de>>(frame: &'de [u8]) -> Result<T, FrameError> {
    let current = Current::default();
    let mut deserializer = serde_json::Deserializer::from_slice(frame);
    T::deserialize(Members::of_frame(&mut deserializer, &current)).map_err(|error| blame(&error, current))
}

pub(super) fn write<T: Serialize>(kind: &'static str, body: &T) -> Vec<u8> {
    serde_json::to_vec(&Tagged { kind, body }).expect("frames are always JSON")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishIn {
    id: u64,
    topic: String,
    producer_id: Option<Uuid>,
    wait_ms: Option<u64>,
    messages: Messages,
}

#[derive(Serialize)]
struct PublishOut<'a> {
    id: u64,
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    producer_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    messages: Vec<PublishMessage>,
}

pub(super) fn read_publish(frame: &[u8]) -> Result<Publish, FrameError> {
    let PublishIn { id, topic, producer_id, wait_ms, messages } = body(frame)?;
    if messages.count > PUBLISH_MESSAGES_MAX {
        return Err(too_many_messages(messages.count));
    }
    let messages = messages.kept.into_iter().enumerate();
    let messages =
        messages.map(|(index, message)| NewMessage::from_json(message, &format!("messages[{index}].")));
    Ok(Publish { id, topic, producer_id, wait_ms, messages: messages.collect::<Result<_, _>>()? })
}

pub(super) fn write_publish(publish: &Publish) -> Vec<u8> {
    let Publish { id, topic, producer_id, wait_ms, messages } = publish;
    let messages = messages.iter().map(new_message::to_json).collect();
    write("publish", &PublishOut { id: *id, topic, producer_id: *producer_id, wait_ms: *wait_ms, messages })
}

/// The messages of a publish, kept only as far as a publish may have any.
pub(super) struct Messages {
    pub(super) kept: Vec<PublishMessage>,
    pub(super) count: usize,
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(MessagesVisitor)
    }
}

struct MessagesVisitor;

impl<'de> Visitor<'de> for MessagesVisitor {
    type Value = Messages;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Messages, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < PUBLISH_MESSAGES_MAX {
            match seq.next_element()? {
                Some(Strict(message)) => kept.push(message),
                None => break,
            }
        }
        let mut count = kept.len();
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Messages { kept, count })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchIn<'a> {
    subscription: u32,
    partition: u32,
    epoch: i64,
    round: u32,
    #[serde(default)]
    attempts: Vec<(i64, u32)>,
    #[serde(borrow)]
    messages: Vec<RecordIn<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordIn<'a> {
    offset: i64,
    published_at: String,
    trace_id: String,
    #[serde(default, deserialize_with = "members::optional")]
    cause: Option<Cause>,
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(default)]
    key_encoding: Encoding,
    transaction_id: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    content_type: Option<String>,
    #[serde(borrow)]
    payload: &'a RawValue,
    encoding: Encoding,
}

pub(super) fn read_batch(frame: &[u8]) -> Result<Batch, FrameError> {
    let BatchIn { subscription, partition, epoch, round, attempts, messages } = body(frame)?;
    let messages = messages.into_iter().enumerate().map(|(index, record)| self::record(index, record));
    let messages = messages.collect::<Result<_, _>>()?;
    Ok(Batch { subscription, partition, epoch, round, attempts, messages })
}

fn record(index: usize, record: RecordIn<'_>) -> Result<Record, FrameError> {
    let field = |name: &str| format!("messages[{index}].{name}");
    let key = record.key.map(|key| record.key_encoding.decode(key)).transpose();
    let key = key.map_err(|error| new_message::undecoded(field("key"), "key_encoding", error))?;
    let payload = record.encoding.decode(record.payload);
    let payload = payload.map_err(|error| new_message::undecoded(field("payload"), "encoding", error))?;
    let published_at: Timestamp = record.published_at.parse().map_err(|error| {
        let field = field("published_at");
        FrameError::malformed(format!("{field}: not a time of RFC 3339: {error}")).with_field(field)
    })?;
    Ok(Record {
        offset: record.offset,
        published_at_us: published_at.as_microsecond(),
        trace_id: new_message::trace_id(&record.trace_id, &field("trace_id"))?,
        cause: record.cause,
        key: key.map(Into::into),
        transaction_id: record.transaction_id,
        headers: record.headers,
        content_type: record.content_type,
        payload: payload.into(),
    })
}
