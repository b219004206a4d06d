//! Messages that wait for their time, as HTTP carries them: listed, shown, moved and cancelled by id.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error_code::ErrorCode;
use crate::message::{Cause, Encoding};

/// A message that waits for its time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedule {
    /// By which it is shown, moved or cancelled.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub id: i64,
    /// The topic it is for.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub topic: String,
    /// The number of the partition it is for.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// When it is appended, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub due_at: String,
    /// When it was published, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub scheduled_at: String,
    /// The trace it belongs to; it is seen there once it is appended.
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

/// One page of schedules, in the order of their ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleList {
    /// In the order of their ids, which is the order in which they were published.
    pub schedules: Vec<Schedule>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub next: Option<i64>,
}

/// Which schedules to list; the default lists all, from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleQuery {
    /// Of this topic only.
    pub topic: Option<String>,
    /// After this id.
    pub after: Option<i64>,
    /// At most this many.
    pub limit: Option<u32>,
}

/// Another time for a schedule: `PATCH /v1/schedules/{id}`. One of both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveSchedule {
    /// When it is to be appended (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>, required = false))]
    pub deliver_at: Option<String>,
    /// Milliseconds from now until it is to be appended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::DelayMs>, required = false))]
    pub delay_ms: Option<u64>,
}
