//! Pops as HTTP carries them: messages for consumers without a connection of their own, and what they say of them afterwards.
//!
//! A pop is known by its partition and epoch alone. Whoever has these may acknowledge, refuse or extend it, at any broker.

use serde::{Deserialize, Serialize};

use crate::message::StoredMessage;
use crate::wire::{Start, WantedSettings};

/// What to pop: `POST /v1/topics/{topic}/groups/{group}/pop`. The default asks for what is there, without waiting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PopRequest {
    /// At most this many messages; 100 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub max_messages: Option<u32>,
    /// How long to wait for the first message, in milliseconds; not at all unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 20000))]
    pub wait_ms: Option<u32>,
    /// How long the messages may take until they are acknowledged, in milliseconds; as the group says unless given. Not beside
    /// `auto_ack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86400000))]
    pub ack_deadline_ms: Option<u64>,
    /// At most once: the messages are done as soon as they are answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub auto_ack: bool,
    /// Where a group begins that this pop makes; one that exists goes on where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Settings of a group that this pop makes; one that exists must agree. Groups that are popped are in order by partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<WantedSettings>,
}

/// The answer to a pop.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PopResponse {
    /// Absent: nothing has come in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pop: Option<Pop>,
}

/// Messages of one lane, which nobody else gets until they are done or the time is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pop {
    /// The number of the partition; names the pop, together with the epoch.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Grows with each pop of the lane: an older one counts no more.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub epoch: i64,
    /// Everything below is done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub committed_offset: i64,
    /// The first offset beyond the messages: acknowledged as `next`, all of them are done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub end_offset: i64,
    /// Until when they may be acknowledged, on the database clock (RFC 3339); absent if they are done already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub expires_at: Option<String>,
    /// What retention has dropped before the group got to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<PopReset>,
    /// Those of the messages that have failed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub attempts: Vec<PopAttempts>,
    /// At least one, rising, without those that were acknowledged before.
    pub messages: Vec<StoredMessage>,
}

/// Messages that a lane could not continue with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PopReset {
    /// The first one.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub from: i64,
    /// The first one that is still there.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub to: i64,
}

/// How often a message has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PopAttempts {
    /// Which one.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub offset: i64,
    /// Attempts so far.
    pub attempts: u32,
}

/// What is done of a pop: `POST /v1/topics/{topic}/groups/{group}/ack`. At least one of `next` and `offsets`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PopAck {
    /// As the pop says.
    #[cfg_attr(feature = "openapi", schema(maximum = 999, example = 0))]
    pub partition: u32,
    /// As the pop says.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position, example = 1))]
    pub epoch: i64,
    /// Single messages, in any order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<crate::openapi::Position>, required = false, max_items = 1000))]
    pub offsets: Vec<i64>,
    /// Everything below this offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>, example = 1))]
    pub next: Option<i64>,
}

/// A pop after an ack. It is safe to send the same ack again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PopAcked {
    /// Everything below is done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub committed_offset: i64,
    /// Messages of the pop that are not done; none: it is over, and its lane is free.
    pub remaining: u32,
}

/// A message of a pop that could not be handled: `POST /v1/topics/{topic}/groups/{group}/nack`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PopNack {
    /// As the pop says.
    #[cfg_attr(feature = "openapi", schema(maximum = 999, example = 0))]
    pub partition: u32,
    /// As the pop says.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position, example = 1))]
    pub epoch: i64,
    /// Which one. The messages after it come again, too: the lane keeps its order.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position, example = 9))]
    pub offset: i64,
    /// Why, for people; up to 1,000 characters are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it is tried again, in milliseconds from now; by the backoff of the group unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86400000))]
    pub delay_ms: Option<u64>,
    /// When it is tried again, instead (RFC 3339): up to a day ahead. A moment that is past by up to a minute is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub until: Option<String>,
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PopVerdict {
    /// It comes again after a while.
    Retry,
    /// It is kept aside, and the lane goes on.
    DeadLetter,
    /// The lane goes on without it.
    Skip,
    /// The lane stops at it, until the settings of the group are altered or it is moved.
    Block,
}

/// A pop after a nack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PopNacked {
    /// Everything below is done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub committed_offset: i64,
    /// Messages before the refused one that are not done; none: the pop is over.
    pub remaining: u32,
    /// How often the message has failed by now.
    pub attempts: u32,
    /// What becomes of it.
    pub verdict: PopVerdict,
}

/// More time for a pop: `POST /v1/topics/{topic}/groups/{group}/extend`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PopExtend {
    /// As the pop says.
    #[cfg_attr(feature = "openapi", schema(maximum = 999, example = 0))]
    pub partition: u32,
    /// As the pop says.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position, example = 1))]
    pub epoch: i64,
    /// How long from now on, in milliseconds; as the group says unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86400000))]
    pub ack_deadline_ms: Option<u64>,
}

/// A pop that has more time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PopExtended {
    /// Until when it may be acknowledged, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub expires_at: String,
}
