//! Frames from the client, one struct per type. Members have the names of the wire.
//!
//! Absent members are `None`; what stands in for them is said where it is decided: by [`bounds`](super::bounds) or by the
//! broker. What can be checked without knowing anything else is checked by [`ClientFrame::check`].

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::bounds;
use super::members;
use super::new_message::NewMessage;
use super::selecting::Select;
use super::shared::{
    CreditGrant, GroupCapacity, GroupOrdering, OffsetRange, OnExpiry, OnFailure, Start, Token,
};
use super::tracing::{ReadTrace, Watch};
use super::transact::Transact;

/// A frame from the client.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientFrame {
    /// Opens the session.
    Hello(Hello),
    /// Stores messages.
    Publish(Publish),
    /// Acknowledges and stores, together.
    Transact(Transact),
    /// Joins a group.
    Subscribe(Subscribe),
    /// Joins a group on several topics.
    Select(Box<Select>),
    /// These are done.
    Ack(Ack),
    /// This one failed.
    Nack(Nack),
    /// Still at work.
    Progress(Progress),
    /// Accepts more.
    Credit(Credit),
    /// Leaves a group.
    Unsubscribe(Unsubscribe),
    /// Reads without a group.
    Tail(Tail),
    /// Stops reading or watching without a group.
    Untail(Untail),
    /// Reads a trace.
    Trace(ReadTrace),
    /// Watches traces.
    Watch(Watch),
    /// I am here.
    Heartbeat,
}

/// Opens the session; the first frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Repeated in `welcome`.
    pub id: u64,
    /// A name for logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// For authentication, once there is some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// The session to take up again.
    #[serde(default, deserialize_with = "members::optional", skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// How long lanes wait for this client after its connection is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_grace_ms: Option<u32>,
    /// How long a side may be silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u32>,
}

impl Hello {
    /// The heartbeat that holds: the one asked for, within its bounds, or the default.
    pub fn agreed_heartbeat_ms(&self) -> u32 {
        let wanted = self.heartbeat_ms.unwrap_or(bounds::HEARTBEAT_MS_DEFAULT);
        wanted.clamp(bounds::HEARTBEAT_MS_MIN, bounds::HEARTBEAT_MS_MAX)
    }

    /// The grace that holds: the one asked for, within its bound, or the default.
    pub fn agreed_resume_grace_ms(&self) -> u32 {
        self.resume_grace_ms.unwrap_or(bounds::RESUME_GRACE_MS_DEFAULT).min(bounds::RESUME_GRACE_MS_MAX)
    }
}

/// Which session to take up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// As `welcome` named it.
    pub session: Uuid,
    /// As `welcome` gave it.
    pub token: Token,
}

/// Stores messages; those that share a partition are stored all or none, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// Repeated in `published`.
    pub id: u64,
    /// Where to.
    pub topic: String,
    /// With it, every message carries a `sequence`, and a retry is one copy.
    pub producer_id: Option<Uuid>,
    /// How long it may wait for room in a topic that is full; absent: it is refused at once.
    pub wait_ms: Option<u64>,
    /// What.
    pub messages: Vec<NewMessage>,
}

/// Joins a group on a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscribe {
    /// Repeated in `subscribed`.
    pub id: u64,
    /// The group's name.
    pub group: String,
    /// The topic's name.
    pub topic: String,
    /// Where a new group begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// What is accepted to begin with.
    #[serde(deserialize_with = "members::required")]
    pub credit: CreditGrant,
    /// How to cut batches.
    #[serde(default, deserialize_with = "members::optional", skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchOptions>,
    /// Settings of the group.
    #[serde(default, deserialize_with = "members::optional", skip_serializing_if = "Option::is_none")]
    pub settings: Option<WantedSettings>,
}

/// How to cut batches; what is left out is the broker's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchOptions {
    /// Most messages of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u32>,
    /// Most bytes of a batch, unless one message alone has more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Wait for so many messages, but no longer than `max_wait_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_messages: Option<u32>,
    /// How long to wait for `min_messages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<u32>,
}

/// Settings of a group as a subscriber wants them; what is left out is as it is, or the broker's default for a new group.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WantedSettings {
    /// How long the oldest unacknowledged message may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86400000))]
    pub ack_deadline_ms: Option<u64>,
    /// Attempts before `on_failure` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000000))]
    pub max_attempts: Option<u32>,
    /// Pause after the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86400000))]
    pub backoff_base_ms: Option<u64>,
    /// By how much the pause grows with each failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub backoff_factor: Option<f64>,
    /// Longest pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86400000))]
    pub backoff_cap_ms: Option<u64>,
    /// What becomes of a message that failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// Whether what the group has not done counts against the limits of its topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<GroupCapacity>,
    /// Messages are delivered when they are at least so old; 0: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 31536000000_u64))]
    pub delay_ms: Option<u64>,
    /// A partition is delivered when it has been quiet for so long; 0: at once. Else at least 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 31536000000_u64))]
    pub window_ms: Option<u64>,
    /// No message waits longer for that, however busy its partition is; 0: ten times `window_ms`. Else not shorter than it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 31536000000_u64))]
    pub window_max_ms: Option<u64>,
    /// Older messages are not delivered, see `on_expiry`; 0: whatever their age. Else longer than the delay and the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 31536000000_u64))]
    pub max_age_ms: Option<u64>,
    /// What becomes of a message that is older than `max_age_ms` or than its own `ttl_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
    /// What keeps its order: all messages of a partition, or those of each key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<GroupOrdering>,
}

/// These are done: everything below `next`, and the `ranges`. At least one of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// With it: answered by `acked` after commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Which subscription.
    pub subscription: u32,
    /// Which of its lanes.
    pub partition: u32,
    /// As the batch had it.
    pub epoch: i64,
    /// As the batch had it.
    pub round: u32,
    /// Everything below is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
    /// Single messages that are done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<OffsetRange>,
}

impl Ack {
    /// What the types alone cannot say: the field at fault and a sentence.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match self {
            Self { next: None, ranges, .. } if ranges.is_empty() => {
                Err(("next", "an ack has next, ranges or both"))
            }
            Self { next: Some(..0), .. } => Err(("next", "next must not be negative")),
            Self { ranges, .. } if ranges.iter().any(|range| range.from < 0 || range.from >= range.to) => {
                Err(("ranges", "a range is [from, to) with 0 <= from < to"))
            }
            Self { .. } => Ok(()),
        }
    }
}

/// This message failed. Ends the round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nack {
    /// With it: answered by `acked` after commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Which subscription.
    pub subscription: u32,
    /// Which of its lanes.
    pub partition: u32,
    /// As the batch had it.
    pub epoch: i64,
    /// As the batch had it.
    pub round: u32,
    /// The message that failed.
    pub offset: i64,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Pause before the next attempt, instead of the group's backoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// When the next attempt may be made (RFC 3339), instead of the group's backoff. At most one of this and `delay_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// Still at work on the oldest unacknowledged message: its deadline starts anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// With it: answered by `acked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Which subscription.
    pub subscription: u32,
    /// Which of its lanes.
    pub partition: u32,
    /// As the batch had it.
    pub epoch: i64,
    /// As the batch had it.
    pub round: u32,
}

/// Accepts more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credit {
    /// Which subscription, of a group or a tail.
    pub subscription: u32,
    /// This many messages more.
    pub messages: u32,
    /// This many bytes more.
    pub bytes: u64,
}

/// Leaves a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsubscribe {
    /// Repeated in `unsubscribed`.
    pub id: u64,
    /// Which subscription.
    pub subscription: u32,
}

/// Reads without a group: no lease, nothing committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// Repeated in `tailing`.
    pub id: u64,
    /// The topic's name.
    pub topic: String,
    /// Which partitions; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<u32>>,
    /// Where to begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// What is accepted to begin with.
    #[serde(deserialize_with = "members::required")]
    pub credit: CreditGrant,
    /// How to cut batches.
    #[serde(default, deserialize_with = "members::optional", skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchOptions>,
}

/// Stops reading without a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Untail {
    /// Repeated in `untailed`.
    pub id: u64,
    /// Which subscription.
    pub subscription: u32,
}

impl ClientFrame {
    /// Its `type`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Publish(_) => "publish",
            Self::Transact(_) => "transact",
            Self::Subscribe(_) => "subscribe",
            Self::Select(_) => "select",
            Self::Ack(_) => "ack",
            Self::Nack(_) => "nack",
            Self::Progress(_) => "progress",
            Self::Credit(_) => "credit",
            Self::Unsubscribe(_) => "unsubscribe",
            Self::Tail(_) => "tail",
            Self::Untail(_) => "untail",
            Self::Trace(_) => "trace",
            Self::Watch(_) => "watch",
            Self::Heartbeat => "heartbeat",
        }
    }

    /// Its `id`, if it has one.
    pub const fn id(&self) -> Option<u64> {
        match self {
            Self::Hello(Hello { id, .. })
            | Self::Publish(Publish { id, .. })
            | Self::Transact(Transact { id, .. })
            | Self::Subscribe(Subscribe { id, .. })
            | Self::Unsubscribe(Unsubscribe { id, .. })
            | Self::Tail(Tail { id, .. })
            | Self::Untail(Untail { id, .. })
            | Self::Trace(ReadTrace { id, .. })
            | Self::Watch(Watch { id, .. }) => Some(*id),
            Self::Select(select) => Some(select.id),
            Self::Ack(Ack { id, .. }) | Self::Nack(Nack { id, .. }) | Self::Progress(Progress { id, .. }) => {
                *id
            }
            Self::Credit(_) | Self::Heartbeat => None,
        }
    }

    /// What the types alone cannot say: the field at fault and a sentence.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match self {
            Self::Ack(ack) => ack.check(),
            Self::Transact(transact) => transact.check(),
            Self::Trace(trace) => trace.check(),
            Self::Watch(watch) => watch.check(),
            Self::Publish(Publish { wait_ms: Some(bounds::PUBLISH_WAIT_MS_BEYOND..), .. }) => {
                Err(("wait_ms", "a publish waits for at most 20,000 milliseconds"))
            }
            Self::Nack(Nack { offset: ..0, .. }) => Err(("offset", "offset must not be negative")),
            Self::Nack(Nack { delay_ms: Some(_), until: Some(_), .. }) => {
                Err(("until", "a nack has delay_ms or until, not both"))
            }
            Self::Subscribe(Subscribe { start: Some(Start::Offset(..0)), .. })
            | Self::Tail(Tail { start: Some(Start::Offset(..0)), .. }) => {
                Err(("start.offset", "offset must not be negative"))
            }
            Self::Subscribe(Subscribe {
                settings: Some(WantedSettings { backoff_factor: Some(factor), .. }),
                ..
            }) if !factor.is_finite() => {
                Err(("settings.backoff_factor", "backoff_factor must be a finite number"))
            }
            Self::Select(select) => select.check(),
            Self::Hello(_)
            | Self::Publish(_)
            | Self::Subscribe(_)
            | Self::Nack(_)
            | Self::Progress(_)
            | Self::Credit(_)
            | Self::Unsubscribe(_)
            | Self::Tail(_)
            | Self::Untail(_)
            | Self::Heartbeat => Ok(()),
        }
    }
}
