//! Parked keys as HTTP carries them: keys of a group whose messages stand aside, because one of them has failed for good.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error_code::ErrorCode;
use crate::message::{Encoding, StoredMessage};

/// Whether the messages of a parked key are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ParkedState {
    /// They stand aside.
    Parked,
    /// They are delivered again, in order; the key goes on when none is left.
    Released,
}

/// A key of a group that is parked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParkedKey {
    /// By which it is shown, replayed or dropped.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub id: i64,
    /// The topic.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub topic: String,
    /// The group that has parked it.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::group::GroupName))]
    pub group: String,
    /// The number of the partition.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// The key; absent: a message without a key, which stands for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Json, required = false))]
    pub key: Option<Box<RawValue>>,
    /// How `key` stands for bytes.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub key_encoding: Encoding,
    /// Whether its messages are delivered.
    pub state: ParkedState,
    /// How many messages of it stand aside.
    pub messages: u64,
    /// Since when, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub parked_at: String,
    /// The one that it failed at. Absent: it was dropped, and it was the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<ParkedMessage>,
}

/// The message that a parked key failed at.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParkedMessage {
    /// How often it has failed since it was released or published last; 0: it only stands behind another.
    pub attempts: u32,
    /// Why it is parked.
    pub reason: String,
    /// As it was published.
    pub message: StoredMessage,
    /// Why the payload of `message` is null: it is sealed and does not open at this broker (`key_missing`, `not_authentic`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorCode>,
}

/// One page of parked keys, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParkedList {
    /// In the order of their ids.
    pub parked: Vec<ParkedKey>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub next: Option<i64>,
}

/// Which parked keys to list; the default lists all, from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParkedQuery {
    /// Of this topic only.
    pub topic: Option<String>,
    /// Of this group only.
    pub group: Option<String>,
    /// After this id.
    pub after: Option<i64>,
    /// At most this many.
    pub limit: Option<u32>,
}
