//! A message to publish: bytes here, and on the wire either a JSON object ([`PublishMessage`]) or a MessagePack array.
//!
//! Invariant: payload and key come out of either encoding bit for bit as they went in.

use std::collections::BTreeMap;

use bytes::Bytes;
use uuid::Uuid;

use super::bounds::JSON_PAYLOAD_DEPTH_MAX;
use super::depth;
use super::frame_error::FrameError;
use super::pack::{self, Expected, Reader};
use crate::message::{Cause, DecodeError, Encoding, PublishMessage};
use crate::traceparent;

/// Version of the MessagePack array, its first element.
const VERSION: i64 = 1;
/// Elements of the array with everything in it.
const SLOTS: u32 = 14;
/// Without `ttl_ms`: its last one may be left out.
const SLOTS_LASTING: u32 = 13;
/// Without a time, too: the two before it.
const SLOTS_UNTIMED: u32 = 11;
/// Elements that an array has at least: cause and links may be left out, too.
const SLOTS_MIN: u32 = 9;

/// One message to publish.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewMessage {
    /// The body.
    pub payload: Bytes,
    /// Messages of one key stay in order.
    pub key: Option<Bytes>,
    /// Explicit partition; wins over the key.
    pub partition: Option<u32>,
    /// The trace it belongs to. Absent: that of the header `traceparent`, else of the cause; else the broker makes one.
    pub trace_id: Option<Uuid>,
    /// The message that led to this one; it belongs to the same trace.
    pub cause: Option<Cause>,
    /// Other traces that this one has to do with.
    pub links: Vec<Uuid>,
    /// Names the message: a second one with the same id is not stored within the topic's window.
    pub transaction_id: Option<String>,
    /// Free text by name.
    pub headers: BTreeMap<String, String>,
    /// What the payload is, as a media type.
    pub content_type: Option<String>,
    /// With a `producer_id`: the number of this message among those the producer sends to its partition, from 0.
    pub sequence: Option<i64>,
    /// When it is to be appended (RFC 3339), instead of now. At most one of this and `delay_ms`.
    pub deliver_at: Option<String>,
    /// Milliseconds until it is to be appended, instead of now.
    pub delay_ms: Option<u64>,
    /// How long after its publish it is worth delivering, in milliseconds; of one with a time, after it was appended. Absent: for ever.
    pub ttl_ms: Option<u64>,
}

/// The JSON value for a payload: as it is where the content type is JSON, and it is, and fits into a frame; else text.
pub(super) fn payload_value(
    payload: &[u8],
    content_type: Option<&str>,
) -> (Encoding, Box<serde_json::value::RawValue>) {
    let fits = content_type.is_some() && depth::json(payload) <= JSON_PAYLOAD_DEPTH_MAX;
    Encoding::encode(payload, content_type.filter(|_| fits))
}

/// As JSON carries it.
pub(super) fn to_json(message: &NewMessage) -> PublishMessage {
    let (encoding, payload) = payload_value(&message.payload, message.content_type.as_deref());
    let key = message.key.as_deref().map(|key| Encoding::encode(key, None));
    PublishMessage {
        payload,
        encoding,
        key_encoding: key.as_ref().map(|(encoding, _)| *encoding).unwrap_or_default(),
        key: key.map(|(_, key)| key),
        partition: message.partition,
        trace_id: message.trace_id.map(|id| id.to_string()),
        cause: message.cause.clone(),
        links: message.links.iter().map(Uuid::to_string).collect(),
        transaction_id: message.transaction_id.clone(),
        headers: message.headers.clone(),
        content_type: message.content_type.clone(),
        sequence: message.sequence,
        deliver_at: message.deliver_at.clone(),
        delay_ms: message.delay_ms,
        ttl_ms: message.ttl_ms,
    }
}

impl NewMessage {
    /// Whether it waits for its time.
    pub fn is_scheduled(&self) -> bool {
        self.deliver_at.is_some() || self.delay_ms.is_some()
    }

    /// From what JSON carries; `within` stands before the names of its fields in an error.
    pub fn from_json(message: PublishMessage, within: &str) -> Result<Self, FrameError> {
        let field = |name: &str| format!("{within}{name}");
        let key = message.key.as_deref().map(|key| message.key_encoding.decode(key)).transpose();
        let key = key.map_err(|error| undecoded(field("key"), "key_encoding", error))?;
        let payload = message.encoding.decode(&message.payload);
        let payload = payload.map_err(|error| undecoded(field("payload"), "encoding", error))?;
        let mut headers = message.headers;
        let trace_id = match message.trace_id.as_deref() {
            Some(text) => Some(given_trace(text, &field("trace_id"), &mut headers)?),
            None => None,
        };
        let links = message.links.iter().enumerate();
        let links = links.map(|(place, id)| self::trace_id(id, &field(&format!("links[{place}]"))));
        let links = links.collect::<Result<_, _>>()?;
        let is_json = message.encoding == Encoding::Json;
        Ok(NewMessage {
            payload: payload.into(),
            key: key.map(Into::into),
            partition: message.partition,
            trace_id,
            cause: message.cause,
            links,
            transaction_id: message.transaction_id,
            headers,
            content_type: message.content_type.or(is_json.then(|| "application/json".to_owned())),
            sequence: message.sequence,
            deliver_at: message.deliver_at,
            delay_ms: message.delay_ms,
            ttl_ms: message.ttl_ms,
        })
    }
}

/// A value that does not stand for bytes in the way that its `declared_by` says.
pub(super) fn undecoded(field: String, declared_by: &str, error: DecodeError) -> FrameError {
    let advice = match error {
        DecodeError::NotAString => format!(": declare \"{declared_by}\": \"json\" to send a JSON value"),
        DecodeError::NotText => format!(": declare \"{declared_by}\": \"json\" to send it as it is"),
        DecodeError::NotBase64 => String::new(),
    };
    FrameError::malformed(format!("{field}: {error}{advice}")).with_field(field)
}

/// A trace id as a producer writes it. A `traceparent` becomes a header, so that its span is forwarded too.
fn given_trace(text: &str, field: &str, headers: &mut BTreeMap<String, String>) -> Result<Uuid, FrameError> {
    match traceparent::parse(text) {
        Ok(trace_id) => {
            headers.entry(traceparent::HEADER.to_owned()).or_insert_with(|| text.to_owned());
            Ok(trace_id)
        }
        Err(_) => trace_id(text, field),
    }
}

/// A trace id as JSON carries it.
pub(super) fn trace_id(text: &str, field: &str) -> Result<Uuid, FrameError> {
    Uuid::parse_str(text).map_err(|_| {
        let detail = format!("{text:?} is not a trace id: a UUID or 32 hexadecimal digits");
        FrameError::malformed(detail).with_field(field)
    })
}

/// Appends the MessagePack array.
pub(super) fn write(message: &NewMessage, out: &mut Vec<u8>) {
    // As few as it takes: older brokers know no more.
    let is_plain = message.cause.is_none() && message.links.is_empty();
    let slots = match (message.ttl_ms, message.is_scheduled(), is_plain) {
        (Some(_), ..) => SLOTS,
        (None, true, _) => SLOTS_LASTING,
        (None, false, false) => SLOTS_UNTIMED,
        (None, false, true) => SLOTS_MIN,
    };
    pack::array(out, slots as usize);
    pack::int(out, VERSION);
    pack::bin(out, &message.payload);
    pack::optional(out, message.key.as_deref(), pack::bin);
    pack::optional(out, message.partition, |out, partition| pack::int(out, partition.into()));
    pack::optional(out, message.trace_id, |out, id| pack::bin(out, id.as_bytes()));
    pack::optional(out, message.transaction_id.as_deref(), pack::text);
    pack::optional(out, (!message.headers.is_empty()).then_some(&message.headers), pack::text_map);
    pack::optional(out, message.content_type.as_deref(), pack::text);
    pack::optional(out, message.sequence, pack::int);
    if slots == SLOTS_MIN {
        return;
    }
    pack::optional(out, message.cause.as_ref(), |out, cause| {
        write_cause(out, &cause.topic, cause.partition, cause.offset);
    });
    pack::optional(out, (!message.links.is_empty()).then_some(&message.links), |out, links| {
        pack::array(out, links.len());
        links.iter().for_each(|link| pack::bin(out, link.as_bytes()));
    });
    if slots >= SLOTS_LASTING {
        pack::optional(out, message.deliver_at.as_deref(), pack::text);
        pack::optional(out, message.delay_ms, pack::uint);
    }
    if slots == SLOTS {
        pack::optional(out, message.ttl_ms, pack::uint);
    }
}

/// A cause as MessagePack carries it: `[topic, partition, offset]`.
pub(super) fn write_cause(out: &mut Vec<u8>, topic: &str, partition: u32, offset: i64) {
    pack::array(out, 3);
    pack::text(out, topic);
    pack::uint(out, partition.into());
    pack::int(out, offset);
}

/// Reads what [`write_cause`] has written.
pub(super) fn read_cause(reader: &mut Reader<'_>) -> Result<Cause, Expected> {
    match reader.array()? {
        3 => Ok(Cause { topic: reader.string()?, partition: reader.u32()?, offset: reader.int()? }),
        _ => Err(Expected("an array of topic, partition and offset")),
    }
}

fn read_links(reader: &mut Reader<'_>) -> Result<Vec<Uuid>, Expected> {
    (0..reader.array()?).map(|_| reader.uuid()).collect()
}

/// Reads the MessagePack array. Payload and key are slices of the frame. An error comes with the slot at fault.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<NewMessage, (&'static str, Expected)> {
    let slot = |name| move |expected| (name, expected);
    let slots = reader.array().map_err(slot(""))?;
    let version = reader.int().map_err(slot("version"))?;
    if version != VERSION || ![SLOTS, SLOTS_LASTING, SLOTS_UNTIMED, SLOTS_MIN].contains(&slots) {
        return Err(("version", Expected("an array of 9, 11, 13 or 14 elements that begins with 1")));
    }
    let mut message = NewMessage {
        payload: reader.bytes().map_err(slot("payload"))?,
        key: reader.optional(Reader::bytes).map_err(slot("key"))?,
        partition: reader.optional(Reader::u32).map_err(slot("partition"))?,
        trace_id: reader.optional(Reader::uuid).map_err(slot("trace_id"))?,
        transaction_id: reader.optional(Reader::string).map_err(slot("transaction_id"))?,
        headers: reader.optional(Reader::text_map).map_err(slot("headers"))?.unwrap_or_default(),
        content_type: reader.optional(Reader::string).map_err(slot("content_type"))?,
        sequence: reader.optional(Reader::int).map_err(slot("sequence"))?,
        ..NewMessage::default()
    };
    if slots >= SLOTS_UNTIMED {
        message.cause = reader.optional(read_cause).map_err(slot("cause"))?;
        message.links = reader.optional(read_links).map_err(slot("links"))?.unwrap_or_default();
    }
    if slots >= SLOTS_LASTING {
        message.deliver_at = reader.optional(Reader::string).map_err(slot("deliver_at"))?;
        message.delay_ms = reader.optional(Reader::u64).map_err(slot("delay_ms"))?;
    }
    if slots == SLOTS {
        message.ttl_ms = reader.optional(Reader::u64).map_err(slot("ttl_ms"))?;
    }
    Ok(message)
}
