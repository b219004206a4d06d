//! Groups, lanes and brokers as HTTP carries them: what operators look at, and where a seek goes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wire::{GroupSettings, Start};

/// A group with its settings, as listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupDescription {
    /// The topic that it consumes.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub topic: String,
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::group::GroupName))]
    pub group: String,
    /// How many sessions take part.
    pub members: u32,
    /// How many messages are not done, in all its lanes.
    #[serde(default)]
    pub lag_messages: i64,
    /// What belongs to the group, for all its members.
    pub settings: GroupSettings,
    /// When it was made, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub created_at: String,
    /// Since when nothing is delivered to it (RFC 3339); absent: it runs, unless its topic is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub paused_at: Option<String>,
}

/// One page of groups: `GET /v1/groups`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupList {
    /// In the order of their topics and names.
    pub groups: Vec<GroupDescription>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which groups to list; the default lists all, from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupQuery {
    /// Of this topic only.
    pub topic: Option<String>,
    /// After this one, as `next` of the page before names it.
    pub after: Option<String>,
    /// At most this many.
    pub limit: Option<u32>,
}

/// A group with its members and lanes: `GET /v1/topics/{topic}/groups/{group}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupDetail {
    /// Name and settings.
    #[serde(flatten)]
    pub group: GroupDescription,
    /// In the order in which they joined.
    pub member_details: Vec<MemberDescription>,
    /// In the order of their partitions.
    pub lanes: Vec<LaneDescription>,
}

/// A session that takes part in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemberDescription {
    /// The session.
    #[cfg_attr(feature = "openapi", schema(value_type = uuid::Uuid))]
    pub session: String,
    /// The broker that has its connection.
    #[cfg_attr(feature = "openapi", schema(value_type = uuid::Uuid))]
    pub broker: String,
    /// When it joined, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub joined_at: String,
    /// The partitions whose lanes it holds.
    pub partitions: Vec<u32>,
}

/// What a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// Nobody holds it, and nobody is to have it.
    Free,
    /// Nobody holds it yet; a session is to have it.
    Waiting,
    /// Its holder finishes; another session is to have it, or none.
    Draining,
    /// Its holder stands at a message that has failed too often.
    Blocked,
    /// Held, with one message in flight at a time, because a consumer has crashed here.
    Suspect,
    /// Held by the session that is to have it.
    Held,
    /// A puller has it for a while, and no session.
    Popped,
}

impl fmt::Display for LaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LaneState::Free => "free",
            LaneState::Waiting => "waiting",
            LaneState::Draining => "draining",
            LaneState::Blocked => "blocked",
            LaneState::Suspect => "suspect",
            LaneState::Held => "held",
            LaneState::Popped => "popped",
        })
    }
}

/// One partition as delivered to one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LaneDescription {
    /// The topic of the partition.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub topic: String,
    /// The group.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::group::GroupName))]
    pub group: String,
    /// The number of the partition.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Grows each time the lane changes hands, and with each seek.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub epoch: i64,
    /// What it is doing.
    pub state: LaneState,
    /// The session that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<uuid::Uuid>))]
    pub holder: Option<String>,
    /// The broker of its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<uuid::Uuid>))]
    pub broker: Option<String>,
    /// The session that is to have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<uuid::Uuid>))]
    pub wanted: Option<String>,
    /// The next offset to resume from.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub committed_offset: i64,
    /// The offset that the next message of the partition gets.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub next_offset: i64,
    /// How many messages are not done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub lag_messages: i64,
    /// For how long the first of them has been waiting, by the time of the flush that it came with.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub lag_seconds: f64,
}

/// One page of lanes: `GET /v1/lanes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LaneList {
    /// In the order of their topics, groups and partitions.
    pub lanes: Vec<LaneDescription>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which lanes to list; the default lists all, from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneQuery {
    /// Of this topic only.
    pub topic: Option<String>,
    /// Of groups of this name only.
    pub group: Option<String>,
    /// After this one, as `next` of the page before names it.
    pub after: Option<String>,
    /// At most this many.
    pub limit: Option<u32>,
}

/// A broker, living or buried within the last hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BrokerDescription {
    /// Its id, for this life.
    #[cfg_attr(feature = "openapi", schema(value_type = uuid::Uuid))]
    pub broker: String,
    /// When it registered (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub started_at: String,
    /// Until when it lives without another heartbeat (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub expires_at: String,
    /// When it ended or was buried (RFC 3339); absent while it lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub dead_at: Option<String>,
    /// Its sessions that are members of some group.
    pub sessions: u64,
    /// Lanes that its sessions hold.
    pub lanes: u64,
}

/// The youngest brokers: `GET /v1/brokers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BrokerList {
    /// The youngest first.
    pub brokers: Vec<BrokerDescription>,
}

/// Where to: `POST /v1/topics/{topic}/groups/{group}/seek`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Seek {
    /// An offset below what retention has kept becomes the first that is left, one beyond the end becomes the end.
    pub to: Start,
    /// Which partitions, each once, at least one; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Partitions>))]
    pub partitions: Option<Vec<u32>>,
}

/// Where the lanes of a group go on after a seek.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sought {
    /// In the order of their partitions.
    pub lanes: Vec<SoughtLane>,
}

/// A lane after a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SoughtLane {
    /// The number of its partition.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Every holder of an older epoch has lost it.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub epoch: i64,
    /// The next offset to be delivered.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub committed_offset: i64,
}
