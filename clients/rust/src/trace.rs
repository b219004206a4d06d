//! A trace as HTTP and the socket carry it: every message of it as a tree of causes, and what each group has made of them.
//!
//! All moments are on the database clock (RFC 3339), all spans of time in microseconds.

use serde::{Deserialize, Serialize};

use crate::message::{Cause, Encoding};

/// Everything that is known about a trace: `GET /v1/traces/{trace_id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trace {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = uuid::Uuid))]
    pub trace_id: String,
    /// Its messages as a tree, written down from the roots: a cause stands before its effects, and effects of one cause in the
    /// order of publishing.
    pub hops: Vec<Hop>,
    /// The chain of causes that ends with what happened last: places in `hops`, the root first.
    pub critical_path: Vec<usize>,
    /// Along the critical path: between publish and delivery, in all.
    pub waiting_us: i64,
    /// Along the critical path: between delivery and ack, in all.
    pub handling_us: i64,
    /// Other traces that messages of this one have named.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<uuid::Uuid>))]
    pub links: Vec<String>,
    /// Other traces whose messages have named this one.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<uuid::Uuid>))]
    pub linked_by: Vec<String>,
    /// Present and true if it has more messages than one answer holds; these are the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub truncated: bool,
}

/// A message of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hop {
    /// Its topic.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub topic: String,
    /// The number of its partition.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Its position there.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub offset: i64,
    /// Its key, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How `key` stands for bytes: as text or in base64.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub key_encoding: Encoding,
    /// Bytes of its payload.
    pub size: u64,
    /// Who has published it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<String>,
    /// Its transaction id, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction_id: Option<String>,
    /// When it was published.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub published_at: String,
    /// The message that led to this one, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The place of its cause in `hops`. Absent: it has none, or that is not stored any more, or not in this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// How many causes stand above it.
    pub depth: u32,
    /// What each group has made of it, by name. Groups that began behind it are left out.
    pub groups: Vec<GroupHop>,
}

/// What has become of a message in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HopState {
    /// It is not done, and has not failed.
    Waiting,
    /// It has failed, and comes again.
    Retrying,
    /// It is done.
    Acked,
    /// The group has given it up, and kept it.
    DeadLettered,
    /// The group has given it up, and left it out.
    Skipped,
    /// It had expired, and the group has left it out.
    Evicted,
    /// It is copied aside with its key, until an operator replays or drops it.
    Parked,
    /// An operator has dropped its copy.
    Dropped,
}

impl HopState {
    /// As it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Retrying => "retrying",
            Self::Acked => "acked",
            Self::DeadLettered => "dead_lettered",
            Self::Skipped => "skipped",
            Self::Evicted => "evicted",
            Self::Parked => "parked",
            Self::Dropped => "dropped",
        }
    }
}

/// A message as one group sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupHop {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::group::GroupName))]
    pub group: String,
    /// What has become of it.
    pub state: HopState,
    /// While it waits or is tried again: how many messages of its partition are to be done before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<i64>,
    /// When it was delivered last. Absent: not yet, or nobody knows any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub delivered_at: Option<String>,
    /// When it was done. Absent: it is not, or nobody knows any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub acked_at: Option<String>,
    /// How often it was tried, as far as that is known: the one that succeeded counts too.
    pub attempts: u32,
    /// The attempts that failed, oldest first, as far as they are remembered.
    pub failures: Vec<Failure>,
    /// The number of its dead letter, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<i64>,
    /// From publish to the first delivery that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_us: Option<i64>,
    /// From the last delivery to the ack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handling_us: Option<i64>,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// Its number, from 1; 0: it had expired, and was not tried.
    pub attempt: u32,
    /// Why.
    pub reason: String,
    /// When it was delivered. Absent: nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub delivered_at: Option<String>,
    /// When it failed.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub failed_at: String,
}
