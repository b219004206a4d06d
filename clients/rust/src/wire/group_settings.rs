//! What belongs to a group, as brokers tell it.
//!
//! What was added later is left out where it is the default, so that older clients read it, too.

use serde::{Deserialize, Serialize};

use super::shared::{GroupCapacity, GroupOrdering, OnExpiry, OnFailure};

/// All settings of a group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    /// How long the oldest unacknowledged message may take.
    pub ack_deadline_ms: u64,
    /// Attempts before `on_failure` decides.
    pub max_attempts: u32,
    /// Pause after the first failure.
    pub backoff_base_ms: u64,
    /// By how much the pause grows with each failure.
    pub backoff_factor: f64,
    /// Longest pause.
    pub backoff_cap_ms: u64,
    /// What becomes of a message that failed for good.
    pub on_failure: OnFailure,
    /// Whether what it has not done counts against the limits of its topic; absent: it does.
    #[serde(default, skip_serializing_if = "GroupCapacity::is_counted")]
    pub capacity: GroupCapacity,
    /// Messages are delivered when they are at least so old. Absent: at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub delay_ms: u64,
    /// A partition is delivered when it has been quiet for so long. Absent: at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub window_ms: u64,
    /// No message waits longer for that. Absent: ten times `window_ms`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub window_max_ms: u64,
    /// Older messages are not delivered. Absent: whatever their age.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub max_age_ms: u64,
    /// What becomes of a message that has expired. Absent: `evict`.
    #[serde(default = "OnExpiry::usual", skip_serializing_if = "OnExpiry::is_usual")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub on_expiry: OnExpiry,
    /// What keeps its order. Absent: all messages of a partition.
    #[serde(default, skip_serializing_if = "GroupOrdering::is_partition")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub ordering: GroupOrdering,
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}
