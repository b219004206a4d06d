//! How full a topic is, what retention has dropped of it, and what a publisher does when there is no room.

use serde::{Deserialize, Serialize};

/// How full a topic is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopicDepth {
    /// Bytes that it stores.
    pub stored_bytes: u64,
    /// Messages by which its slowest counted group is behind.
    pub backlog_messages: u64,
    /// Bytes by which it is behind, or a few more.
    pub backlog_bytes: u64,
    /// That group, if one is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::group::GroupName>))]
    pub slowest_group: Option<String>,
    /// The group that retention of completed segments waits for, if it waits for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::group::GroupName>))]
    pub retention_waits_for: Option<String>,
}

/// Why something was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// All of it was older than its topic keeps messages.
    Age,
    /// Its topic stored more than it may keep.
    Bytes,
    /// Every group had committed past it, and the grace was over.
    Completed,
    /// An operator had purged its topic.
    Purged,
    /// Nobody had used the group for as long as its topic allows.
    Inactive,
}

impl DropReason {
    /// As it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            DropReason::Age => "age",
            DropReason::Bytes => "bytes",
            DropReason::Completed => "completed",
            DropReason::Purged => "purged",
            DropReason::Inactive => "inactive",
        }
    }
}

/// What retention has dropped: messages of a partition, or a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetentionEvent {
    /// Rises with every event.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub id: i64,
    /// When it was dropped, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub dropped_at: String,
    /// Why.
    pub reason: DropReason,
    /// Of messages: the number of their partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: Option<u32>,
    /// Of messages: the first offset that went.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub from_offset: Option<i64>,
    /// Of messages: the first offset that stayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub to_offset: Option<i64>,
    /// Of messages: their bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub bytes: Option<i64>,
    /// Of a group: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::group::GroupName>))]
    pub group: Option<String>,
}

/// One page of what retention has dropped: `GET /v1/topics/{topic}/retention`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetentionHistory {
    /// Newest first.
    pub events: Vec<RetentionEvent>,
    /// Give this as `before` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub next: Option<i64>,
}

/// What a client does with messages for a topic that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFull {
    /// They wait for room, for as long as a publish may take; who publishes more waits with them.
    #[default]
    Wait,
    /// They are given back at once, with `topic_full`.
    Fail,
}
