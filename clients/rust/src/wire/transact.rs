//! A step of a pipeline: acks and publishes that happen together or not at all.
//!
//! The frame is read by hand in MessagePack, because its messages are the arrays of [`new_message`]; the acks in it are maps.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::bounds::{PUBLISH_MESSAGES_MAX, TRANSACT_ACKS_MAX, TRANSACT_PUBLISHES_MAX};
use super::client_frames::Ack;
use super::frame_error::FrameError;
use super::json::{self, Messages};
use super::members::Strict;
use super::msgpack::{needed, once, read_messages, stopped, unknown, wrong};
use super::new_message::{self, NewMessage};
use super::pack::{self, Reader};
use super::{blame, too_many_messages};
use crate::error_code::ErrorCode;
use crate::message::PublishMessage;

/// Acknowledges messages and stores others, in one transaction. All of it happens, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transact {
    /// Repeated in `transacted`.
    pub id: u64,
    /// Names the step: sent again, on any broker, it is answered with its first result.
    pub step_id: Uuid,
    /// What is done; none of them has an `id` of its own. At least one, each lane once.
    pub acks: Vec<Ack>,
    /// What follows from it.
    pub publishes: Vec<StepPublish>,
}

/// Messages of a step for one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPublish {
    /// Where to.
    pub topic: String,
    /// What; none of them has a `sequence`, because the step is what is repeated or not.
    pub messages: Vec<NewMessage>,
}

/// A step is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transacted {
    /// Of `transact`.
    pub id: u64,
    /// Of `transact`.
    pub step_id: Uuid,
    /// Whether it had been done before: this is the result of that time.
    pub repeated: bool,
    /// For each publish of the step, where each of its messages stands.
    pub placed: Vec<Vec<Placed>>,
}

/// Where a message stands. On the wire: `[partition, offset]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, i64)", into = "(u32, i64)")]
pub struct Placed {
    /// The number of its partition.
    pub partition: u32,
    /// Its offset there. Below 0: it waits for its time, and this is its schedule id, negated.
    pub offset: i64,
}

impl Placed {
    /// The id under which it waits for its time, if it does.
    pub fn schedule_id(&self) -> Option<i64> {
        (self.offset < 0).then_some(-self.offset)
    }
}

impl From<(u32, i64)> for Placed {
    fn from((partition, offset): (u32, i64)) -> Self {
        Self { partition, offset }
    }
}

impl From<Placed> for (u32, i64) {
    fn from(placed: Placed) -> Self {
        (placed.partition, placed.offset)
    }
}

impl Transact {
    /// What the types alone cannot say: the field at fault and a sentence.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let lane = |ack: &Ack| (ack.subscription, ack.partition);
        let twice =
            |(place, ack): (usize, &Ack)| self.acks[..place].iter().any(|other| lane(other) == lane(ack));
        if self.step_id.is_nil() {
            return Err(("step_id", "a step id of zeros names no step"));
        }
        if self.acks.is_empty() {
            return Err(("acks", "a step acknowledges something; without acks it is a publish"));
        }
        if self.acks.iter().any(|ack| ack.id.is_some()) {
            return Err(("acks", "an ack of a step has no id of its own"));
        }
        if self.acks.iter().enumerate().any(twice) {
            return Err(("acks", "a lane stands in a step once, under one epoch"));
        }
        if self.publishes.iter().any(|publish| publish.messages.is_empty()) {
            return Err(("publishes", "a publish of a step has at least one message"));
        }
        let mut messages = self.publishes.iter().flat_map(|publish| &publish.messages);
        match messages.any(|message| message.sequence.is_some()) {
            true => Err(("publishes", "a message of a step has no sequence: the step id tells a repetition")),
            false => self.acks.iter().try_for_each(Ack::check),
        }
    }

    /// More parts than a step may have.
    fn bounded(self) -> Result<Self, FrameError> {
        let messages = self.publishes.iter().map(|publish| publish.messages.len()).sum::<usize>();
        let too_many = |field: &str, max: usize, found: usize| {
            let detail = format!("a step has at most {max} {field}, this one has {found}");
            Err(FrameError::new(ErrorCode::TooLarge, detail).with_field(field))
        };
        match (self.acks.len(), self.publishes.len()) {
            (acks, _) if acks > TRANSACT_ACKS_MAX => too_many("acks", TRANSACT_ACKS_MAX, acks),
            (_, publishes) if publishes > TRANSACT_PUBLISHES_MAX => {
                too_many("publishes", TRANSACT_PUBLISHES_MAX, publishes)
            }
            _ if messages > PUBLISH_MESSAGES_MAX => Err(too_many_messages(messages)),
            _ => Ok(self),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransactIn {
    id: u64,
    step_id: Uuid,
    acks: Vec<Strict<Ack>>,
    #[serde(default)]
    publishes: Vec<Strict<StepPublishIn>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepPublishIn {
    topic: String,
    messages: Messages,
}

#[derive(Serialize)]
struct TransactOut<'a> {
    id: u64,
    step_id: Uuid,
    acks: &'a [Ack],
    publishes: Vec<StepPublishOut<'a>>,
}

#[derive(Serialize)]
struct StepPublishOut<'a> {
    topic: &'a str,
    messages: Vec<PublishMessage>,
}

pub(super) fn read_json(frame: &[u8]) -> Result<Transact, FrameError> {
    let TransactIn { id, step_id, acks, publishes } = json::body(frame)?;
    let acks = acks.into_iter().map(|Strict(ack)| ack).collect();
    let publishes = publishes.into_iter().enumerate().map(|(place, Strict(publish))| {
        let within = format!("publishes[{place}].");
        if publish.messages.count > PUBLISH_MESSAGES_MAX {
            return Err(too_many_messages(publish.messages.count).within(&within));
        }
        let messages = publish.messages.kept.into_iter().enumerate();
        let messages = messages
            .map(|(index, message)| NewMessage::from_json(message, &format!("{within}messages[{index}].")));
        Ok(StepPublish { topic: publish.topic, messages: messages.collect::<Result<_, _>>()? })
    });
    Transact { id, step_id, acks, publishes: publishes.collect::<Result<_, _>>()? }.bounded()
}

pub(super) fn write_json(transact: &Transact) -> Vec<u8> {
    let publishes = transact.publishes.iter().map(|publish| StepPublishOut {
        topic: &publish.topic,
        messages: publish.messages.iter().map(new_message::to_json).collect(),
    });
    let Transact { id, step_id, acks, .. } = transact;
    let out = TransactOut { id: *id, step_id: *step_id, acks, publishes: publishes.collect() };
    json::write("transact", &out)
}

pub(super) fn read_msgpack(frame: &Bytes) -> Result<Transact, FrameError> {
    let mut reader = Reader::new(frame);
    let (mut id, mut step_id, mut acks, mut publishes) = (None, None, None, None);
    for _ in 0..reader.map().map_err(wrong("type"))? {
        match reader.text().map_err(wrong("type"))? {
            "type" => reader.skip().map_err(|why| stopped(Err(why)))?,
            "id" => once(&mut id, "id", reader.u64().map_err(wrong("id"))?)?,
            "step_id" => once(&mut step_id, "step_id", reader.uuid().map_err(wrong("step_id"))?)?,
            "acks" => once(&mut acks, "acks", read_acks(&mut reader)?)?,
            "publishes" => once(&mut publishes, "publishes", read_publishes(&mut reader)?)?,
            other => return Err(unknown(other)),
        }
    }
    let transact = Transact {
        id: needed(id, "id")?,
        step_id: needed(step_id, "step_id")?,
        acks: needed(acks, "acks")?,
        publishes: publishes.unwrap_or_default(),
    };
    transact.bounded()
}

fn read_acks(reader: &mut Reader<'_>) -> Result<Vec<Ack>, FrameError> {
    let mut acks = Vec::new();
    for place in 0..reader.array().map_err(wrong("acks"))? {
        let value = reader.value().map_err(|why| stopped(Err(why)))?;
        let ack = Strict::<Ack>::deserialize(&mut rmp_serde::Deserializer::from_read_ref(value));
        let Strict(ack) =
            ack.map_err(|error| blame(&error, Default::default()).within(&format!("acks[{place}].")))?;
        acks.push(ack);
    }
    Ok(acks)
}

fn read_publishes(reader: &mut Reader<'_>) -> Result<Vec<StepPublish>, FrameError> {
    let mut publishes = Vec::new();
    for place in 0..reader.array().map_err(wrong("publishes"))? {
        let publish = read_publish(reader).map_err(|error| error.within(&format!("publishes[{place}].")))?;
        publishes.push(publish);
    }
    Ok(publishes)
}

fn read_publish(reader: &mut Reader<'_>) -> Result<StepPublish, FrameError> {
    let (mut topic, mut messages) = (None, None);
    for _ in 0..reader.map().map_err(wrong("topic"))? {
        match reader.text().map_err(wrong("topic"))? {
            "topic" => once(&mut topic, "topic", reader.string().map_err(wrong("topic"))?)?,
            "messages" => once(&mut messages, "messages", read_messages(reader)?)?,
            other => return Err(unknown(other)),
        }
    }
    Ok(StepPublish { topic: needed(topic, "topic")?, messages: needed(messages, "messages")? })
}

pub(super) fn write_msgpack(transact: &Transact) -> Vec<u8> {
    let mut out = Vec::new();
    pack::map(&mut out, 5);
    pack::text(&mut out, "type");
    pack::text(&mut out, "transact");
    pack::text(&mut out, "id");
    pack::uint(&mut out, transact.id);
    pack::text(&mut out, "step_id");
    pack::bin(&mut out, transact.step_id.as_bytes());
    pack::text(&mut out, "acks");
    out.extend(rmp_serde::to_vec_named(&transact.acks).expect("acks are always MessagePack"));
    pack::text(&mut out, "publishes");
    pack::array(&mut out, transact.publishes.len());
    for publish in &transact.publishes {
        pack::map(&mut out, 2);
        pack::text(&mut out, "topic");
        pack::text(&mut out, &publish.topic);
        pack::text(&mut out, "messages");
        pack::array(&mut out, publish.messages.len());
        publish.messages.iter().for_each(|message| new_message::write(message, &mut out));
    }
    out
}
