//! Frames from the broker, one struct per type. Members have the names of the wire.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::group_settings::GroupSettings;
use super::record::Record;
use super::selecting::{Selected, TopicJoined, TopicLeft};
use super::shared::{OffsetRange, ResumeOutcome, Token};
use super::tracing::{TraceChanged, Traced, Watching};
use super::transact::Transacted;
use crate::error_code::{Class, ErrorCode};

/// A frame from the broker.
#[derive(Debug, Clone, PartialEq)]
pub enum BrokerFrame {
    /// The session is open.
    Welcome(Box<Welcome>),
    /// What became of a publish.
    Published(Published),
    /// A step is done.
    Transacted(Transacted),
    /// The session takes part in the group.
    Subscribed(Box<Subscribed>),
    /// The session selects topics.
    Selected(Box<Selected>),
    /// A topic takes part in a selection.
    TopicJoined(Box<TopicJoined>),
    /// A topic no longer does.
    TopicLeft(Box<TopicLeft>),
    /// A lane is the session's.
    LaneGranted(LaneGranted),
    /// A lane is about to move.
    LaneDraining(LaneDraining),
    /// A lane is gone.
    LaneRevoked(LaneRevoked),
    /// Messages.
    Batch(Batch),
    /// An ack, nack or progress has been committed.
    Acked(Acked),
    /// The session has left the group.
    Unsubscribed(Unsubscribed),
    /// The session reads without a group.
    Tailing(Tailing),
    /// It no longer does.
    Untailed(Untailed),
    /// A trace, as far as it is known.
    Traced(Box<Traced>),
    /// The session watches traces.
    Watching(Watching),
    /// Something has happened in a trace.
    TraceChanged(TraceChanged),
    /// I am here.
    Heartbeat,
    /// The broker is leaving.
    GoAway(GoAway),
    /// Something was refused or went wrong.
    Error(Box<ErrorFrame>),
}

/// The session is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// Of `hello`.
    pub id: u64,
    /// The session, for a later resume.
    pub session: Uuid,
    /// What proves a later resume.
    pub resume_token: Token,
    /// The broker at the other end.
    pub broker: Uuid,
    /// The heartbeat that holds.
    pub heartbeat_ms: u32,
    /// The grace that holds.
    pub resume_grace_ms: u32,
    /// What this broker allows.
    pub limits: Limits,
    /// What became of the session that `hello` wanted to resume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeReport>,
}

/// What a broker allows one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of one frame.
    pub frame_bytes_max: u64,
    /// Messages of one publish.
    pub publish_messages_max: u32,
    /// Publishes without an answer yet.
    pub publishes_in_flight_max: u32,
    /// Subscriptions, tails counted.
    pub subscriptions_max: u32,
    /// Credit of one subscription, in messages.
    pub credit_messages_max: u32,
    /// Credit of one subscription, in bytes.
    pub credit_bytes_max: u64,
}

/// What became of the session that a client came back for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeReport {
    /// Of the session.
    pub outcome: ResumeOutcome,
    /// Why it was reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its lanes, one by one.
    pub lanes: Vec<ResumedLane>,
}

/// What became of one lane of a session that a client came back for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumedLane {
    /// The subscription, by its number as before.
    pub subscription: u32,
    /// The subscription that has selected its topic, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<u32>,
    /// Its group.
    pub group: String,
    /// Its topic.
    pub topic: String,
    /// The lane's partition.
    pub partition: u32,
    /// Of this lane.
    pub outcome: ResumeOutcome,
    /// Why it was reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The epoch that holds now.
    pub epoch: i64,
    /// The round that deliveries start with.
    pub round: u32,
    /// Where they start.
    pub committed_offset: i64,
    /// Acknowledged beyond it.
    pub acked: Vec<OffsetRange>,
}

/// What became of a publish, unit by unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Of `publish`.
    pub id: u64,
    /// One per partition.
    pub units: Vec<PublishedUnit>,
}

/// The messages of one partition in one publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedUnit {
    /// Where they belong.
    pub partition: u32,
    /// Which messages of the publish, from 0, in order.
    pub positions: Vec<u32>,
    /// The offset of the first that was stored; the others follow without a gap. Absent: none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_offset: Option<i64>,
    /// Those of which an earlier copy was found, so that no second one was stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duplicates: Vec<Duplicate>,
    /// Those that wait for their time, or did so before they were appended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduled: Vec<Scheduled>,
    /// Why none was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

/// A message of which an earlier copy was found. On the wire: `[position, offset or null]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, Option<i64>)", into = "(u32, Option<i64>)")]
pub struct Duplicate {
    /// Its position in the publish.
    pub position: u32,
    /// Where the earlier copy stands, if that is still known.
    pub offset: Option<i64>,
}

impl From<(u32, Option<i64>)> for Duplicate {
    fn from((position, offset): (u32, Option<i64>)) -> Self {
        Self { position, offset }
    }
}

impl From<Duplicate> for (u32, Option<i64>) {
    fn from(duplicate: Duplicate) -> Self {
        (duplicate.position, duplicate.offset)
    }
}

/// A message that waits for its time. On the wire: `[position, schedule]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, i64)", into = "(u32, i64)")]
pub struct Scheduled {
    /// Its position in the publish.
    pub position: u32,
    /// The id by which it is shown, moved or cancelled.
    pub schedule: i64,
}

impl From<(u32, i64)> for Scheduled {
    fn from((position, schedule): (u32, i64)) -> Self {
        Self { position, schedule }
    }
}

impl From<Scheduled> for (u32, i64) {
    fn from(scheduled: Scheduled) -> Self {
        (scheduled.position, scheduled.schedule)
    }
}

/// Why a unit was not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The stable code.
    pub code: ErrorCode,
    /// Of the code.
    pub class: Class,
    /// One sentence for people.
    pub detail: String,
    /// The member at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// With `sequence_gap`: the sequence that must come next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<i64>,
}

impl Fault {
    /// A fault of one code, told in one sentence.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, class: code.class(), detail: detail.into(), field: None, expected: None }
    }
}

/// The session takes part in the group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscribed {
    /// Of `subscribe`.
    pub id: u64,
    /// The number by which both sides speak of it from now on.
    pub subscription: u32,
    /// The group.
    pub group: String,
    /// Its topic.
    pub topic: String,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// The group's settings, all of them.
    pub settings: GroupSettings,
}

/// A lane is the session's. Comes before the first batch of its epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneGranted {
    /// Which subscription.
    pub subscription: u32,
    /// Which partition.
    pub partition: u32,
    /// The epoch of its batches and acks.
    pub epoch: i64,
    /// The round that deliveries start with.
    pub round: u32,
    /// Where they start.
    pub committed_offset: i64,
    /// Acknowledged beyond it; not sent again.
    pub acked: Vec<OffsetRange>,
    /// What the group has lost here, because retention was faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<LaneReset>,
}

/// Messages that a lane could not continue with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneReset {
    /// The first one.
    pub from: i64,
    /// The first one that is still there.
    pub to: i64,
    /// Why.
    pub reason: String,
}

/// A lane is about to move: no more batches; finish and ack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneDraining {
    /// Which subscription.
    pub subscription: u32,
    /// Which partition.
    pub partition: u32,
    /// Its epoch.
    pub epoch: i64,
    /// How long acks still count.
    pub drain_ms: u64,
}

/// A lane is gone: drop what is queued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneRevoked {
    /// Which subscription.
    pub subscription: u32,
    /// Which partition.
    pub partition: u32,
    /// The epoch that is over.
    pub epoch: i64,
    /// Why.
    pub reason: String,
}

/// Messages of one lane, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Which subscription, of a group or a tail.
    pub subscription: u32,
    /// Which partition.
    pub partition: u32,
    /// Of the lane; 0 in a tail.
    pub epoch: i64,
    /// Of the lane; 0 in a tail.
    pub round: u32,
    /// Offset and number of failed attempts, for messages that have failed before.
    pub attempts: Vec<(i64, u32)>,
    /// At least one.
    pub messages: Vec<Record>,
}

/// An ack, nack or progress that carried an id has been committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acked {
    /// Of the frame answered.
    pub id: u64,
    /// Which subscription.
    pub subscription: u32,
    /// Which partition.
    pub partition: u32,
    /// Of the lane.
    pub epoch: i64,
    /// The next offset to resume from, durable.
    pub committed_offset: i64,
}

/// The session has left the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsubscribed {
    /// Of `unsubscribe`.
    pub id: u64,
    /// Which subscription.
    pub subscription: u32,
}

/// The session reads without a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tailing {
    /// Of `tail`.
    pub id: u64,
    /// The number by which both sides speak of it from now on.
    pub subscription: u32,
    /// The topic.
    pub topic: String,
    /// Where each partition begins.
    pub lanes: Vec<TailedLane>,
}

/// Where a tail begins in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TailedLane {
    /// Which partition.
    pub partition: u32,
    /// The offset of the first message that will be sent.
    pub next_offset: i64,
}

/// The session no longer reads without a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Untailed {
    /// Of `untail`.
    pub id: u64,
    /// Which subscription.
    pub subscription: u32,
}

/// The broker is leaving: it drains the session's lanes and closes with 1012.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoAway {
    /// Why.
    pub reason: String,
    /// How long to wait before connecting again.
    pub delay_ms: u64,
}

/// Something was refused or went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorFrame {
    /// Of the frame at fault, if it had one that could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The stable code.
    pub code: ErrorCode,
    /// Of the code.
    pub class: Class,
    /// One sentence for people.
    pub detail: String,
    /// The member at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The subscription concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<u32>,
    /// The partition concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// With `out_of_range`: the first offset that can still be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<i64>,
    /// With `sequence_gap`: the sequence that must come next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<i64>,
    /// With class `retry`: how long to wait at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With `topic_full`: how much there is already of what is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// With `topic_full`: how much there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl ErrorFrame {
    /// An error of one code, told in one sentence.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            id: None,
            code,
            class: code.class(),
            detail: detail.into(),
            field: None,
            subscription: None,
            partition: None,
            start: None,
            expected: None,
            retry_after_ms: None,
            depth: None,
            limit: None,
        }
    }
}

impl BrokerFrame {
    /// Its `type`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Welcome(_) => "welcome",
            Self::Published(_) => "published",
            Self::Transacted(_) => "transacted",
            Self::Subscribed(_) => "subscribed",
            Self::Selected(_) => "selected",
            Self::TopicJoined(_) => "topic_joined",
            Self::TopicLeft(_) => "topic_left",
            Self::LaneGranted(_) => "lane_granted",
            Self::LaneDraining(_) => "lane_draining",
            Self::LaneRevoked(_) => "lane_revoked",
            Self::Batch(_) => "batch",
            Self::Acked(_) => "acked",
            Self::Unsubscribed(_) => "unsubscribed",
            Self::Tailing(_) => "tailing",
            Self::Untailed(_) => "untailed",
            Self::Traced(_) => "traced",
            Self::Watching(_) => "watching",
            Self::TraceChanged(_) => "trace_changed",
            Self::Heartbeat => "heartbeat",
            Self::GoAway(_) => "go_away",
            Self::Error(_) => "error",
        }
    }
}
