//! The body of every HTTP error: `application/problem+json`, with our stable code.

use serde::{Deserialize, Serialize};

use crate::error_code::{Class, ErrorCode};

/// What went wrong, for machines (`code`, `class`, `field`) and for people (`detail`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{} ({})", self.detail, self.code.as_str())]
pub struct Problem {
    /// Always the code again, as a relative reference.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words that do not change with the request.
    pub title: String,
    /// The HTTP status, repeated in the body for logs.
    #[cfg_attr(feature = "openapi", schema(minimum = 400, maximum = 599))]
    pub status: u16,
    /// One sentence for people: what is wrong and, where we know it, what to do.
    pub detail: String,
    /// The stable code.
    pub code: ErrorCode,
    /// Whether to try again, and whether it may have happened.
    pub class: Class,
    /// The field at fault, as the request names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// With `out_of_range`: the first offset that can still be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub start: Option<i64>,
    /// With `sequence_gap`: the sequence number that must come next.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub expected: Option<i64>,
    /// With `topic_full`: how much there is already of what is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// With `topic_full`: how much there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// With class `retry`: how long to wait at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem of one code, told in one sentence.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/problems/{}", code.as_str()),
            title: code.as_str().replace('_', " "),
            status: code.http_status(),
            detail: detail.into(),
            code,
            class: code.class(),
            field: None,
            start: None,
            expected: None,
            depth: None,
            limit: None,
            retry_after_ms: None,
        }
    }

    /// Names the field at fault.
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
}
