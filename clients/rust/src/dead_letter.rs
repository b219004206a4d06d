//! Dead letters as HTTP carries them: messages that a group has given up, whole, with the reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error_code::ErrorCode;
use crate::message::{Cause, Encoding};

/// A message that a group has given up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetter {
    /// By which it is shown, published again or dropped.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub id: i64,
    /// The topic it was published to.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub topic: String,
    /// The number of its partition.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Where it stood there.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub offset: i64,
    /// The group that has given it up.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::group::GroupName))]
    pub group: String,
    /// How often the group has tried.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub reason: String,
    /// When it was given up, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub dead_at: String,
    /// When it was published, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub published_at: String,
    /// The trace it belongs to.
    #[cfg_attr(feature = "openapi", schema(value_type = uuid::Uuid))]
    pub trace_id: String,
    /// The message that led to this one, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Its key, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Json, required = false))]
    pub key: Option<Box<RawValue>>,
    /// How `key` stands for bytes.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub key_encoding: Encoding,
    /// Its transaction id, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_id: Option<String>,
    /// Free text by name.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub headers: BTreeMap<String, String>,
    /// What the payload is, if the producer said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The body.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Json))]
    pub payload: Box<RawValue>,
    /// How `payload` stands for bytes.
    pub encoding: Encoding,
    /// In a list only: why `payload` is null. It is sealed and does not open at this broker (`key_missing`, `not_authentic`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorCode>,
}

/// One page of dead letters, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterList {
    /// In the order of their ids.
    pub dead_letters: Vec<DeadLetter>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub next: Option<i64>,
}

/// Which dead letters to list; the default lists all, from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterQuery {
    /// Of this topic only.
    pub topic: Option<String>,
    /// Of this group only.
    pub group: Option<String>,
    /// After this id.
    pub after: Option<i64>,
    /// At most this many.
    pub limit: Option<u32>,
}

/// Where a dead letter was published again: `POST /v1/dead-letters/{id}/replay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Replayed {
    /// The same partition as before.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Its new position there.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub offset: i64,
}
