//! Frames as MessagePack. Control frames go through serde as maps with names; `publish` and `batch` are read by hand.
//!
//! Order of a decode: one whole value, not too deep → `type` and `id` → the struct of that type, strictly.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::bounds::{FRAME_DEPTH_MAX, PUBLISH_MESSAGES_MAX};
use super::broker_frames::Batch;
use super::client_frames::Publish;
use super::depth::Stopped;
use super::frame_error::FrameError;
use super::members::{Current, Members};
use super::new_message::{self, NewMessage};
use super::pack::{self, Expected, Reader};
use super::record::{self, Record};
use super::{Envelope, Tagged, blame, depth, too_deep, too_many_messages};

/// Room for messages is made for this many at most before they are seen; the vector grows with what is really there.
const MESSAGES_AHEAD_MAX: usize = 1_024;

/// One walk over the frame: it is one whole map, not too deep, and has this `type` and `id`.
pub(super) fn open(frame: &Bytes) -> Result<Envelope, FrameError> {
    let mut reader = Reader::new(frame);
    let Ok(members) = reader.map() else {
        return Err(stopped(depth::skip_msgpack(&mut frame.as_ref(), FRAME_DEPTH_MAX)));
    };
    let (mut kind, mut id) = (None, None);
    for _ in 0..members {
        match reader.text() {
            Ok("type") if kind.is_some() => {
                return Err(FrameError::malformed("type stands there twice").with_field("type"));
            }
            Ok("type") => kind = Some(reader.peek(Reader::string).ok()),
            // A wrong one is found again, and named, by whoever reads the members.
            Ok("id") => id = reader.peek(Reader::u64).ok(),
            Ok(_) => {}
            Err(_) => return Err(FrameError::malformed("the frame is not a whole map with text as names")),
        }
        reader.skip().map_err(|why| stopped(Err(why)))?;
    }
    match reader.is_at_end() {
        true => Envelope::new(kind.flatten(), id),
        false => Err(FrameError::malformed("the frame goes on after its map")),
    }
}

/// Why a frame could not be walked; what could be is not a map.
pub(super) fn stopped(walk: Result<(), Stopped>) -> FrameError {
    match walk {
        Ok(()) => FrameError::malformed("the frame is not a map"),
        Err(Stopped::Broken) => FrameError::malformed("the frame is not whole MessagePack"),
        Err(Stopped::TooDeep) => too_deep(),
    }
}

/// The members of a frame, without its `type`.
pub(super) fn body<'de, T: Deserialize<'de>>(frame: &'de [u8]) -> Result<T, FrameError> {
    let current = Current::default();
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(frame);
    T::deserialize(Members::of_frame(&mut deserializer, &current)).map_err(|error| blame(&error, current))
}

pub(super) fn write<T: Serialize>(kind: &'static str, body: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(&Tagged { kind, body }).expect("frames are always MessagePack")
}

/// A member that is read by hand: what was expected of it.
pub(super) fn wrong(field: impl Into<String>) -> impl FnOnce(Expected) -> FrameError {
    let field = field.into();
    move |Expected(what)| FrameError::malformed(format!("{field}: expected {what}")).with_field(field)
}

pub(super) fn unknown(name: &str) -> FrameError {
    FrameError::malformed(format!("unknown member {name:?}")).with_field(name)
}

/// A member that has not been there yet.
pub(super) fn once<T>(member: &mut Option<T>, name: &'static str, value: T) -> Result<(), FrameError> {
    match member.replace(value) {
        None => Ok(()),
        Some(_) => Err(FrameError::malformed(format!("{name} stands there twice")).with_field(name)),
    }
}

pub(super) fn needed<T>(member: Option<T>, name: &'static str) -> Result<T, FrameError> {
    member.ok_or_else(|| FrameError::malformed(format!("missing member {name}")).with_field(name))
}

pub(super) fn read_publish(frame: &Bytes) -> Result<Publish, FrameError> {
    let mut reader = Reader::new(frame);
    let (mut id, mut topic, mut producer_id, mut wait_ms, mut messages) = (None, None, None, None, None);
    for _ in 0..reader.map().map_err(wrong("type"))? {
        match reader.text().map_err(wrong("type"))? {
            "type" => reader.skip().map_err(|why| stopped(Err(why)))?,
            "id" => once(&mut id, "id", reader.u64().map_err(wrong("id"))?)?,
            "topic" => once(&mut topic, "topic", reader.string().map_err(wrong("topic"))?)?,
            "producer_id" => {
                let value = reader.optional(Reader::uuid).map_err(wrong("producer_id"))?;
                once(&mut producer_id, "producer_id", value)?;
            }
            "wait_ms" => {
                let value = reader.optional(Reader::u64).map_err(wrong("wait_ms"))?;
                once(&mut wait_ms, "wait_ms", value)?;
            }
            "messages" => once(&mut messages, "messages", read_messages(&mut reader)?)?,
            other => return Err(unknown(other)),
        }
    }
    Ok(Publish {
        id: needed(id, "id")?,
        topic: needed(topic, "topic")?,
        producer_id: producer_id.flatten(),
        wait_ms: wait_ms.flatten(),
        messages: needed(messages, "messages")?,
    })
}

pub(super) fn read_messages(reader: &mut Reader<'_>) -> Result<Vec<NewMessage>, FrameError> {
    let count = reader.array().map_err(wrong("messages"))? as usize;
    if count > PUBLISH_MESSAGES_MAX {
        return Err(too_many_messages(count));
    }
    records(reader, count, new_message::read)
}

/// `count` arrays, each read by `read`.
fn records<T>(
    reader: &mut Reader<'_>,
    count: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, (&'static str, Expected)>,
) -> Result<Vec<T>, FrameError> {
    let mut records = Vec::with_capacity(count.min(MESSAGES_AHEAD_MAX));
    for index in 0..count {
        let record = read(reader).map_err(|(slot, expected)| match slot {
            "" => wrong(format!("messages[{index}]"))(expected),
            slot => wrong(format!("messages[{index}].{slot}"))(expected),
        });
        records.push(record?);
    }
    Ok(records)
}

pub(super) fn write_publish(publish: &Publish) -> Vec<u8> {
    let bytes: usize = publish.messages.iter().map(|message| message.payload.len() + 64).sum();
    let mut out = Vec::with_capacity(bytes + 128);
    let optional = usize::from(publish.producer_id.is_some()) + usize::from(publish.wait_ms.is_some());
    pack::map(&mut out, 4 + optional);
    pack::text(&mut out, "type");
    pack::text(&mut out, "publish");
    pack::text(&mut out, "id");
    pack::uint(&mut out, publish.id);
    pack::text(&mut out, "topic");
    pack::text(&mut out, &publish.topic);
    if let Some(producer_id) = publish.producer_id {
        pack::text(&mut out, "producer_id");
        pack::bin(&mut out, producer_id.as_bytes());
    }
    if let Some(wait_ms) = publish.wait_ms {
        pack::text(&mut out, "wait_ms");
        pack::uint(&mut out, wait_ms);
    }
    pack::text(&mut out, "messages");
    pack::array(&mut out, publish.messages.len());
    publish.messages.iter().for_each(|message| new_message::write(message, &mut out));
    out
}

pub(super) fn read_batch(frame: &Bytes) -> Result<Batch, FrameError> {
    let mut reader = Reader::new(frame);
    let (mut subscription, mut partition, mut epoch, mut round) = (None, None, None, None);
    let (mut attempts, mut messages) = (None, None);
    for _ in 0..reader.map().map_err(wrong("type"))? {
        match reader.text().map_err(wrong("type"))? {
            "type" => reader.skip().map_err(|why| stopped(Err(why)))?,
            "subscription" => {
                once(&mut subscription, "subscription", reader.u32().map_err(wrong("subscription"))?)?;
            }
            "partition" => once(&mut partition, "partition", reader.u32().map_err(wrong("partition"))?)?,
            "epoch" => once(&mut epoch, "epoch", reader.int().map_err(wrong("epoch"))?)?,
            "round" => once(&mut round, "round", reader.u32().map_err(wrong("round"))?)?,
            "attempts" => {
                once(&mut attempts, "attempts", read_attempts(&mut reader).map_err(wrong("attempts"))?)?;
            }
            "messages" => once(&mut messages, "messages", read_records(&mut reader)?)?,
            other => return Err(unknown(other)),
        }
    }
    Ok(Batch {
        subscription: needed(subscription, "subscription")?,
        partition: needed(partition, "partition")?,
        epoch: needed(epoch, "epoch")?,
        round: needed(round, "round")?,
        attempts: attempts.unwrap_or_default(),
        messages: needed(messages, "messages")?,
    })
}

fn read_records(reader: &mut Reader<'_>) -> Result<Vec<Record>, FrameError> {
    let count = reader.array().map_err(wrong("messages"))? as usize;
    records(reader, count, record::read)
}

fn read_attempts(reader: &mut Reader<'_>) -> Result<Vec<(i64, u32)>, Expected> {
    let mut attempts = Vec::new();
    for _ in 0..reader.array()? {
        match reader.array()? {
            2 => attempts.push((reader.int()?, reader.u32()?)),
            _ => return Err(Expected("pairs of offset and attempt")),
        }
    }
    Ok(attempts)
}
