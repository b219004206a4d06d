//! The protocol of the socket: every frame, in both encodings. Broker and clients use this one implementation.
//!
//! | module | owns |
//! |---|---|
//! | [`client_frames`] | frames from the client |
//! | [`broker_frames`] | frames from the broker |
//! | [`shared`] | values that stand in several frames |
//! | [`new_message`] | a message to publish |
//! | [`selecting`] | subscriptions that select their topics |
//! | [`tracing`] | reading and watching traces |
//! | [`transact`] | a step: acks and publishes together |
//! | [`record`] | a stored message, and batches made of encoded ones |
//! | [`bounds`] | defaults and bounds that both sides know |
//! | [`close`] | close codes: come back or not? |
//!
//! Invariant: no input makes a decoder panic, recurse without bound, or allocate more than a small multiple of its own
//! length. `docs/PROTOCOL.md` is the specification; the golden frames in `tests/fixtures/protocol` are its examples.

pub mod bounds;
pub mod broker_frames;
pub mod client_frames;
pub mod close;
mod depth;
mod frame_error;
mod group_settings;
mod json;
mod members;
mod msgpack;
pub mod new_message;
mod pack;
pub mod record;
pub mod selecting;
pub mod shared;
pub mod tracing;
pub mod transact;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use broker_frames::{
    Acked, Batch, BrokerFrame, Duplicate, ErrorFrame, Fault, GoAway, LaneDraining, LaneGranted, LaneReset,
    LaneRevoked, Limits, Published, PublishedUnit, ResumeReport, ResumedLane, Scheduled, Subscribed,
    TailedLane, Tailing, Unsubscribed, Untailed, Welcome,
};
pub use client_frames::{
    Ack, BatchOptions, ClientFrame, Credit, Hello, Nack, Progress, Publish, Resume, Subscribe, Tail,
    Unsubscribe, Untail, WantedSettings,
};
pub use close::{Advice, CloseCode};
pub use frame_error::FrameError;
pub use group_settings::GroupSettings;
pub use new_message::NewMessage;
pub use record::{BatchHeader, Record, RecordRef, batch_frame};
pub use selecting::{Select, Selected, TOPIC_NUMBERS_FROM, TopicJoined, TopicLeft};
pub use shared::{
    CreditGrant, GroupCapacity, GroupOrdering, OffsetRange, OnExpiry, OnFailure, ResumeOutcome, Start, Token,
};
pub use tracing::{ReadTrace, TraceChanged, Traced, Watch, Watching};
pub use transact::{Placed, StepPublish, Transact, Transacted};

use crate::error_code::ErrorCode;
use members::Current;
pub(crate) use members::optional as strict_optional;

/// How frames are written, agreed on by the upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subprotocol {
    /// Text frames.
    Json,
    /// Binary frames.
    MessagePack,
}

impl Subprotocol {
    /// Both, the one that a broker prefers first.
    pub const ALL: &[Subprotocol] = &[Subprotocol::MessagePack, Subprotocol::Json];

    /// As `Sec-WebSocket-Protocol` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "laneway.v1.json",
            Self::MessagePack => "laneway.v1.msgpack",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|subprotocol| subprotocol.name() == name)
    }

    /// Reads a frame from a client. Payloads and keys of MessagePack are slices of `frame`.
    pub fn decode_client(self, frame: &Bytes) -> Result<ClientFrame, FrameError> {
        let Envelope { kind, id } = self.open(frame)?;
        let decoded = self.client_frame(&kind, frame).map_err(|error| error.with_id(id))?;
        match decoded.check() {
            Ok(()) => Ok(decoded),
            Err((field, detail)) => Err(FrameError::malformed(detail).with_field(field).with_id(id)),
        }
    }

    /// Reads a frame from a broker. Payloads and keys of MessagePack are slices of `frame`.
    pub fn decode_broker(self, frame: &Bytes) -> Result<BrokerFrame, FrameError> {
        let Envelope { kind, id } = self.open(frame)?;
        self.broker_frame(&kind, frame).map_err(|error| error.with_id(id))
    }

    /// Writes a frame of a client.
    pub fn encode_client(self, frame: &ClientFrame) -> Vec<u8> {
        let kind = frame.kind();
        match frame {
            ClientFrame::Hello(body) => self.write(kind, body),
            ClientFrame::Publish(publish) => match self {
                Self::Json => json::write_publish(publish),
                Self::MessagePack => msgpack::write_publish(publish),
            },
            ClientFrame::Transact(step) => match self {
                Self::Json => transact::write_json(step),
                Self::MessagePack => transact::write_msgpack(step),
            },
            ClientFrame::Subscribe(body) => self.write(kind, body),
            ClientFrame::Select(body) => self.write(kind, body),
            ClientFrame::Ack(body) => self.write(kind, body),
            ClientFrame::Nack(body) => self.write(kind, body),
            ClientFrame::Progress(body) => self.write(kind, body),
            ClientFrame::Credit(body) => self.write(kind, body),
            ClientFrame::Unsubscribe(body) => self.write(kind, body),
            ClientFrame::Tail(body) => self.write(kind, body),
            ClientFrame::Untail(body) => self.write(kind, body),
            ClientFrame::Trace(body) => self.write(kind, body),
            ClientFrame::Watch(body) => self.write(kind, body),
            ClientFrame::Heartbeat => self.write(kind, &Nothing {}),
        }
    }

    /// Writes a frame of a broker.
    pub fn encode_broker(self, frame: &BrokerFrame) -> Vec<u8> {
        let kind = frame.kind();
        match frame {
            BrokerFrame::Welcome(body) => self.write(kind, body),
            BrokerFrame::Published(body) => self.write(kind, body),
            BrokerFrame::Transacted(body) => self.write(kind, body),
            BrokerFrame::Subscribed(body) => self.write(kind, body),
            BrokerFrame::Selected(body) => self.write(kind, body),
            BrokerFrame::TopicJoined(body) => self.write(kind, body),
            BrokerFrame::TopicLeft(body) => self.write(kind, body),
            BrokerFrame::LaneGranted(body) => self.write(kind, body),
            BrokerFrame::LaneDraining(body) => self.write(kind, body),
            BrokerFrame::LaneRevoked(body) => self.write(kind, body),
            BrokerFrame::Batch(batch) => self.write_batch(batch),
            BrokerFrame::Acked(body) => self.write(kind, body),
            BrokerFrame::Unsubscribed(body) => self.write(kind, body),
            BrokerFrame::Tailing(body) => self.write(kind, body),
            BrokerFrame::Untailed(body) => self.write(kind, body),
            BrokerFrame::Traced(body) => self.write(kind, body),
            BrokerFrame::Watching(body) => self.write(kind, body),
            BrokerFrame::TraceChanged(body) => self.write(kind, body),
            BrokerFrame::Heartbeat => self.write(kind, &Nothing {}),
            BrokerFrame::GoAway(body) => self.write(kind, body),
            BrokerFrame::Error(body) => self.write(kind, body),
        }
    }

    /// Appends one record as this subprotocol writes it: a body for [`batch_frame`].
    pub fn encode_record(self, record: &RecordRef<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Json => record::encode_json(record, out),
            Self::MessagePack => record::encode_msgpack(record, out),
        }
    }

    fn client_frame(self, kind: &str, frame: &Bytes) -> Result<ClientFrame, FrameError> {
        Ok(match kind {
            "hello" => ClientFrame::Hello(self.body(frame)?),
            "publish" => ClientFrame::Publish(match self {
                Self::Json => json::read_publish(frame)?,
                Self::MessagePack => msgpack::read_publish(frame)?,
            }),
            "transact" => ClientFrame::Transact(match self {
                Self::Json => transact::read_json(frame)?,
                Self::MessagePack => transact::read_msgpack(frame)?,
            }),
            "subscribe" => ClientFrame::Subscribe(self.body(frame)?),
            "select" => ClientFrame::Select(Box::new(self.body(frame)?)),
            "ack" => ClientFrame::Ack(self.body(frame)?),
            "nack" => ClientFrame::Nack(self.body(frame)?),
            "progress" => ClientFrame::Progress(self.body(frame)?),
            "credit" => ClientFrame::Credit(self.body(frame)?),
            "unsubscribe" => ClientFrame::Unsubscribe(self.body(frame)?),
            "tail" => ClientFrame::Tail(self.body(frame)?),
            "untail" => ClientFrame::Untail(self.body(frame)?),
            "trace" => ClientFrame::Trace(self.body(frame)?),
            "watch" => ClientFrame::Watch(self.body(frame)?),
            "heartbeat" => self.body(frame).map(|Nothing {}| ClientFrame::Heartbeat)?,
            other => return Err(unknown_type(other)),
        })
    }

    fn broker_frame(self, kind: &str, frame: &Bytes) -> Result<BrokerFrame, FrameError> {
        Ok(match kind {
            "welcome" => BrokerFrame::Welcome(self.body(frame)?),
            "published" => BrokerFrame::Published(self.body(frame)?),
            "transacted" => BrokerFrame::Transacted(self.body(frame)?),
            "subscribed" => BrokerFrame::Subscribed(Box::new(self.body(frame)?)),
            "selected" => BrokerFrame::Selected(self.body(frame)?),
            "topic_joined" => BrokerFrame::TopicJoined(self.body(frame)?),
            "topic_left" => BrokerFrame::TopicLeft(self.body(frame)?),
            "lane_granted" => BrokerFrame::LaneGranted(self.body(frame)?),
            "lane_draining" => BrokerFrame::LaneDraining(self.body(frame)?),
            "lane_revoked" => BrokerFrame::LaneRevoked(self.body(frame)?),
            "batch" => BrokerFrame::Batch(match self {
                Self::Json => json::read_batch(frame)?,
                Self::MessagePack => msgpack::read_batch(frame)?,
            }),
            "acked" => BrokerFrame::Acked(self.body(frame)?),
            "unsubscribed" => BrokerFrame::Unsubscribed(self.body(frame)?),
            "tailing" => BrokerFrame::Tailing(self.body(frame)?),
            "untailed" => BrokerFrame::Untailed(self.body(frame)?),
            "traced" => BrokerFrame::Traced(self.body(frame)?),
            "watching" => BrokerFrame::Watching(self.body(frame)?),
            "trace_changed" => BrokerFrame::TraceChanged(self.body(frame)?),
            "heartbeat" => self.body(frame).map(|Nothing {}| BrokerFrame::Heartbeat)?,
            "go_away" => BrokerFrame::GoAway(self.body(frame)?),
            "error" => BrokerFrame::Error(self.body(frame)?),
            other => return Err(unknown_type(other)),
        })
    }

    fn open(self, frame: &Bytes) -> Result<Envelope, FrameError> {
        match self {
            Self::Json => json::open(frame),
            Self::MessagePack => msgpack::open(frame),
        }
    }

    fn body<'de, T: Deserialize<'de>>(self, frame: &'de Bytes) -> Result<T, FrameError> {
        match self {
            Self::Json => json::body(frame),
            Self::MessagePack => msgpack::body(frame),
        }
    }

    fn write<T: Serialize>(self, kind: &'static str, body: &T) -> Vec<u8> {
        match self {
            Self::Json => json::write(kind, body),
            Self::MessagePack => msgpack::write(kind, body),
        }
    }

    fn write_batch(self, batch: &Batch) -> Vec<u8> {
        let bodies: Vec<Vec<u8>> = batch.messages.iter().map(|record| self.record(record)).collect();
        let header = BatchHeader {
            subscription: batch.subscription,
            partition: batch.partition,
            epoch: batch.epoch,
            round: batch.round,
            attempts: batch.attempts.clone(),
        };
        batch_frame(self, &header, bodies.len(), bodies.iter().map(Vec::as_slice))
    }

    fn record(self, record: &Record) -> Vec<u8> {
        let headers = record.headers.as_ref();
        let headers = headers.map(|headers| serde_json::to_string(headers).expect("strings are always JSON"));
        let mut out = Vec::new();
        let borrowed = RecordRef {
            offset: record.offset,
            published_at_us: record.published_at_us,
            trace_id: record.trace_id,
            cause: record.cause.as_ref().map(|cause| (cause.topic.as_str(), cause.partition, cause.offset)),
            key: record.key.as_deref(),
            transaction_id: record.transaction_id.as_deref(),
            headers: headers.as_deref(),
            content_type: record.content_type.as_deref(),
            payload: &record.payload,
        };
        self.encode_record(&borrowed, &mut out);
        out
    }
}

/// What is read of every frame first: it decides the struct, and an error can repeat the id.
#[derive(Debug)]
struct Envelope {
    kind: String,
    id: Option<u64>,
}

impl Envelope {
    fn new(kind: Option<String>, id: Option<u64>) -> Result<Self, FrameError> {
        match kind {
            Some(kind) => Ok(Self { kind, id }),
            None => Err(FrameError::malformed("the frame has no type").with_field("type").with_id(id)),
        }
    }
}

fn unknown_type(kind: &str) -> FrameError {
    FrameError::new(ErrorCode::UnknownType, format!("there is no frame of type {kind:?}")).with_field("type")
}

fn too_deep() -> FrameError {
    let detail = format!("the frame nests more than {} levels", bounds::FRAME_DEPTH_MAX);
    FrameError::new(ErrorCode::TooDeep, detail)
}

fn too_many_messages(count: usize) -> FrameError {
    let detail =
        format!("a publish has at most {} messages, this one has {count}", bounds::PUBLISH_MESSAGES_MAX);
    FrameError::new(ErrorCode::TooLarge, detail).with_field("messages")
}

/// The members of a frame that has none.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A frame on its way out: its type first, then its members.
#[derive(Serialize)]
struct Tagged<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// An error of serde, with the member that was being read, or that was missed.
fn blame(error: &dyn std::fmt::Display, current: Current) -> FrameError {
    let detail = error.to_string();
    let missing = detail.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    let field = match (current.into_name(), missing) {
        (Some(member), Some(missing)) => Some(format!("{member}.{missing}")),
        (Some(member), None) => Some(member),
        (None, missing) => missing.map(str::to_owned),
    };
    match field {
        Some(field) => FrameError::malformed(format!("{field}: {detail}")).with_field(field),
        None => FrameError::malformed(detail),
    }
}

#[cfg(test)]
mod tests;
