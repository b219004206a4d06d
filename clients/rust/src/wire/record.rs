//! A stored message as a batch carries it, and batches put together from records that are encoded already.
//!
//! The broker encodes a record once per encoding and shares the bytes between all groups: what differs between them
//! stands in the [`BatchHeader`], and [`batch_frame`] joins both. Borrowed fields ([`RecordRef`]) spare it the copies.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use uuid::Uuid;

use super::Subprotocol;
use super::new_message::{payload_value, read_cause, write_cause};
use super::pack::{self, Expected, Reader};
use crate::message::{Cause, Encoding};

/// Version of the MessagePack array, its first element.
const VERSION: i64 = 1;
/// Elements of the array.
const SLOTS: u32 = 10;

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its position in its partition.
    pub offset: i64,
    /// On the database clock, in microseconds since 1970.
    pub published_at_us: i64,
    /// The trace it belongs to.
    pub trace_id: Uuid,
    /// The message that led to this one, if it has one.
    pub cause: Option<Cause>,
    /// Its key, if it has one.
    pub key: Option<Bytes>,
    /// Its transaction id, if it has one.
    pub transaction_id: Option<String>,
    /// Free text by name, if it has any.
    pub headers: Option<BTreeMap<String, String>>,
    /// What the payload is, if the producer said so.
    pub content_type: Option<String>,
    /// The body.
    pub payload: Bytes,
}

/// A stored message, borrowed from where it lies.
#[derive(Debug, Clone, Copy)]
pub struct RecordRef<'a> {
    /// Its position in its partition.
    pub offset: i64,
    /// On the database clock, in microseconds since 1970.
    pub published_at_us: i64,
    /// The trace it belongs to.
    pub trace_id: Uuid,
    /// The message that led to this one, if it has one: topic, partition, offset.
    pub cause: Option<(&'a str, u32, i64)>,
    /// Its key, if it has one.
    pub key: Option<&'a [u8]>,
    /// Its transaction id, if it has one.
    pub transaction_id: Option<&'a str>,
    /// The text of a JSON object of strings, as it is stored. Anything else counts as none.
    pub headers: Option<&'a str>,
    /// What the payload is, if the producer said so.
    pub content_type: Option<&'a str>,
    /// The body.
    pub payload: &'a [u8],
}

/// Appends the record as a MessagePack array.
pub fn encode_msgpack(record: &RecordRef<'_>, out: &mut Vec<u8>) {
    pack::array(out, SLOTS as usize);
    pack::int(out, VERSION);
    pack::int(out, record.offset);
    pack::int(out, record.published_at_us);
    pack::bin(out, record.trace_id.as_bytes());
    pack::optional(out, record.cause, |out, (topic, partition, offset)| {
        write_cause(out, topic, partition, offset);
    });
    pack::optional(out, record.key, pack::bin);
    pack::optional(out, record.transaction_id, pack::text);
    pack::optional(out, record.headers.and_then(pairs), |out, Pairs(pairs)| {
        pack::map(out, pairs.len());
        for (name, value) in pairs {
            pack::text(out, &name);
            pack::text(out, &value);
        }
    });
    pack::optional(out, record.content_type, pack::text);
    pack::bin(out, record.payload);
}

/// Appends the record as a JSON object.
pub fn encode_json(record: &RecordRef<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"offset":"#);
    out.extend_from_slice(record.offset.to_string().as_bytes());
    out.extend_from_slice(br#","published_at":""#);
    out.extend_from_slice(rfc_3339(record.published_at_us).as_bytes());
    out.extend_from_slice(br#"","trace_id":""#);
    out.extend_from_slice(record.trace_id.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes());
    out.push(b'"');
    if let Some((topic, partition, offset)) = record.cause {
        let cause = format!(r#"{{"topic":{},"partition":{partition},"offset":{offset}}}"#, quoted(topic));
        member(out, "cause", &cause);
    }
    if let Some(key) = record.key {
        let (encoding, key) = Encoding::encode(key, None);
        member(out, "key", key.get());
        member(out, "key_encoding", word(encoding));
    }
    if let Some(id) = record.transaction_id {
        member(out, "transaction_id", &quoted(id));
    }
    if let Some(headers) = record.headers.filter(|headers| pairs(headers).is_some()) {
        member(out, "headers", headers);
    }
    if let Some(content_type) = record.content_type {
        member(out, "content_type", &quoted(content_type));
    }
    let (encoding, payload) = payload_value(record.payload, record.content_type);
    member(out, "payload", payload.get());
    member(out, "encoding", word(encoding));
    out.push(b'}');
}

fn member(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value.as_bytes());
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is always JSON")
}

const fn word(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Text => "\"text\"",
        Encoding::Json => "\"json\"",
        Encoding::Base64 => "\"base64\"",
    }
}

/// Moments that no calendar of four-digit years has are cut to its ends.
fn rfc_3339(microseconds: i64) -> String {
    let end = if microseconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_microsecond(microseconds).unwrap_or(end).to_string()
}

/// Names and values in their order.
struct Pairs<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

fn pairs(headers: &str) -> Option<Pairs<'_>> {
    serde_json::from_str(headers).ok()
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor).map(|pairs| Pairs(pairs.0))
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some((Text(name), Text(value))) = map.next_entry()? {
            pairs.push((name, value));
        }
        Ok(Pairs(pairs))
    }
}

/// What a batch says about its lane: all but the messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchHeader {
    /// Which subscription.
    pub subscription: u32,
    /// Which partition.
    pub partition: u32,
    /// Of the lane; 0 in a tail.
    pub epoch: i64,
    /// Of the lane; 0 in a tail.
    pub round: u32,
    /// Offset and number of failed attempts, for messages that have failed before.
    pub attempts: Vec<(i64, u32)>,
}

/// A whole batch frame from `count` records that are encoded for this subprotocol already; `bodies` may hold one record
/// each or, in MessagePack, any number of them one after the other. In JSON each body is one record.
pub fn batch_frame<'a>(
    subprotocol: Subprotocol,
    header: &BatchHeader,
    count: usize,
    bodies: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    match subprotocol {
        Subprotocol::MessagePack => {
            msgpack_header(header, count, &mut out);
            bodies.for_each(|body| out.extend_from_slice(body));
        }
        Subprotocol::Json => {
            json_header(header, &mut out);
            for (index, body) in bodies.enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(body);
            }
            out.extend_from_slice(b"]}");
        }
    }
    out
}

fn msgpack_header(header: &BatchHeader, count: usize, out: &mut Vec<u8>) {
    pack::map(out, if header.attempts.is_empty() { 6 } else { 7 });
    pack::text(out, "type");
    pack::text(out, "batch");
    pack::text(out, "subscription");
    pack::uint(out, header.subscription.into());
    pack::text(out, "partition");
    pack::uint(out, header.partition.into());
    pack::text(out, "epoch");
    pack::int(out, header.epoch);
    pack::text(out, "round");
    pack::uint(out, header.round.into());
    if !header.attempts.is_empty() {
        pack::text(out, "attempts");
        pack::array(out, header.attempts.len());
        for (offset, attempt) in &header.attempts {
            pack::array(out, 2);
            pack::int(out, *offset);
            pack::uint(out, (*attempt).into());
        }
    }
    pack::text(out, "messages");
    pack::array(out, count);
}

fn json_header(header: &BatchHeader, out: &mut Vec<u8>) {
    let BatchHeader { subscription, partition, epoch, round, attempts } = header;
    let start = format!(
        r#"{{"type":"batch","subscription":{subscription},"partition":{partition},"epoch":{epoch},"round":{round}"#
    );
    out.extend_from_slice(start.as_bytes());
    if !attempts.is_empty() {
        member(out, "attempts", &serde_json::to_string(attempts).expect("numbers are always JSON"));
    }
    out.extend_from_slice(br#","messages":["#);
}

/// Reads the MessagePack array. Payload and key are slices of the frame. An error comes with the slot at fault.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Record, (&'static str, Expected)> {
    let slot = |name| move |expected| (name, expected);
    let slots = reader.array().map_err(slot(""))?;
    let version = reader.int().map_err(slot("version"))?;
    if (version, slots) != (VERSION, SLOTS) {
        return Err(("version", Expected("an array of 10 elements that begins with 1")));
    }
    let offset = reader.int().map_err(slot("offset"))?;
    let published_at_us = reader.int().map_err(slot("published_at"))?;
    let trace_id = reader.uuid().map_err(slot("trace_id"))?;
    Ok(Record {
        offset,
        published_at_us,
        trace_id,
        cause: reader.optional(read_cause).map_err(slot("cause"))?,
        key: reader.optional(Reader::bytes).map_err(slot("key"))?,
        transaction_id: reader.optional(Reader::string).map_err(slot("transaction_id"))?,
        headers: reader.optional(Reader::text_map).map_err(slot("headers"))?,
        content_type: reader.optional(Reader::string).map_err(slot("content_type"))?,
        payload: reader.bytes().map_err(slot("payload"))?,
    })
}
