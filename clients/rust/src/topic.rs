//! Topics as people name, set and read them.

use serde::{Deserialize, Serialize};

use crate::labels::{LabelChanges, Labels};
use crate::name::{self, BrokenRule, NAME_CHARS_MAX};

/// Longest topic name.
pub const TOPIC_NAME_CHARS_MAX: usize = NAME_CHARS_MAX;

/// Most partitions of one topic.
pub const TOPIC_PARTITIONS_MAX: u32 = 1_000;

/// The name of a topic: 1 to 249 characters of `[a-zA-Z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TopicName(String);

/// A name that breaks the rule, with the rule in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopicName {
    /// Nothing between the quotes.
    #[error(
        "a topic name must not be empty: it has 1 to {TOPIC_NAME_CHARS_MAX} characters of a-z, A-Z, 0-9, '.', '_' and '-'"
    )]
    Empty,
    /// More characters than a name may have.
    #[error("a topic name has at most {TOPIC_NAME_CHARS_MAX} characters, this one has {chars}")]
    TooLong {
        /// How many it has.
        chars: usize,
    },
    /// `.` or `..`: in an address these lead elsewhere.
    #[error("a topic cannot be named '.' or '..', because addresses take '.' and '..' for directories")]
    Dots,
    /// A character outside the set.
    #[error("a topic name consists of a-z, A-Z, 0-9, '.', '_' and '-', but this one contains {character:?}")]
    Character {
        /// The first one at fault.
        character: char,
    },
}

impl From<BrokenRule> for InvalidTopicName {
    fn from(broken: BrokenRule) -> Self {
        match broken {
            BrokenRule::Empty => Self::Empty,
            BrokenRule::TooLong { chars } => Self::TooLong { chars },
            BrokenRule::Dots => Self::Dots,
            BrokenRule::Character { character } => Self::Character { character },
        }
    }
}

impl TopicName {
    /// Checks a name against the rule.
    ///
    /// ```
    /// use laneway_client::TopicName;
    /// assert!(TopicName::new("orders.v2").is_ok());
    /// assert!(TopicName::new("orders; DROP TABLE topic").is_err());
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidTopicName> {
        let name = name.into();
        name::check(&name)?;
        Ok(Self(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for TopicName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What to make: `POST /v1/topics`. Everything but the name has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateTopic {
    /// See [`TopicName`].
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub name: String,
    /// 1 to 1,000.
    #[serde(default = "default_partitions")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000, default = 1))]
    pub partitions: u32,
    /// Largest payload of one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 67108864))]
    pub payload_bytes_max: Option<u32>,
    /// Most messages of one segment; retention drops whole segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 16, maximum = 100000000))]
    pub segment_messages: Option<u32>,
    /// Messages older than this may be dropped; absent: kept for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, value_type = Option<crate::openapi::AgeMs>))]
    pub retention_age_ms: Option<u64>,
    /// The oldest messages are dropped while the topic stores more than this; absent: kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::StoredBytes>))]
    pub retention_bytes: Option<u64>,
    /// How long a transaction id is remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 604800000))]
    pub dedup_window_ms: Option<u64>,
    /// Whether it is kept when messages were delivered and done; absent: it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = true))]
    pub delivery_times: Option<bool>,
    /// Publishes are refused while the slowest counted group would be more messages behind; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::TopicLimit>))]
    pub max_backlog_messages: Option<u64>,
    /// Publishes are refused while the slowest counted group would be more bytes behind; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::TopicLimit>))]
    pub max_backlog_bytes: Option<u64>,
    /// Publishes are refused while the topic would store more bytes; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::TopicLimit>))]
    pub max_stored_bytes: Option<u64>,
    /// Segments are dropped this long after every group has committed past them; absent: kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::GraceMs>))]
    pub retention_completed_ms: Option<u64>,
    /// A group that nobody has used for so long is deleted; absent: kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::ExpiryMs>))]
    pub group_expiry_ms: Option<u64>,
    /// Words by name, such as `namespace` and `task`, which subscriptions can match; at most 16.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::LabelMap))]
    pub labels: Labels,
    /// How payloads are stored; absent: as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

fn default_partitions() -> u32 {
    1
}

impl CreateTopic {
    /// A topic with the defaults.
    pub fn new(name: impl Into<String>, partitions: u32) -> Self {
        Self {
            name: name.into(),
            partitions,
            payload_bytes_max: None,
            segment_messages: None,
            retention_age_ms: None,
            retention_bytes: None,
            dedup_window_ms: None,
            delivery_times: None,
            max_backlog_messages: None,
            max_backlog_bytes: None,
            max_stored_bytes: None,
            retention_completed_ms: None,
            group_expiry_ms: None,
            labels: Labels::new(),
            encryption: None,
        }
    }
}

/// What to change: `PATCH /v1/topics/{topic}`. What is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AlterTopic {
    /// More than it has. Keys and transaction ids that are routed by hash may land elsewhere from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub partitions: Option<u32>,
    /// Largest payload of one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 67108864))]
    pub payload_bytes_max: Option<u32>,
    /// Messages older than this may be dropped; `null`: kept for ever.
    #[serde(default, skip_serializing_if = "Retention::is_left")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::AgeMs>))]
    pub retention_age_ms: Retention,
    /// The oldest messages are dropped while the topic stores more than this; `null`: kept.
    #[serde(default, skip_serializing_if = "Retention::is_left")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::StoredBytes>))]
    pub retention_bytes: Retention,
    /// How long a transaction id is remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 604800000))]
    pub dedup_window_ms: Option<u64>,
    /// Whether it is kept when messages were delivered and done. Members that are at work follow within seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_times: Option<bool>,
    /// Publishes are refused while the slowest counted group would be more messages behind; `null`: never.
    #[serde(default, skip_serializing_if = "Retention::is_left")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::TopicLimit>))]
    pub max_backlog_messages: Retention,
    /// Publishes are refused while the slowest counted group would be more bytes behind; `null`: never.
    #[serde(default, skip_serializing_if = "Retention::is_left")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::TopicLimit>))]
    pub max_backlog_bytes: Retention,
    /// Publishes are refused while the topic would store more bytes; `null`: never.
    #[serde(default, skip_serializing_if = "Retention::is_left")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::TopicLimit>))]
    pub max_stored_bytes: Retention,
    /// Segments are dropped this long after every group has committed past them; `null`: kept.
    #[serde(default, skip_serializing_if = "Retention::is_left")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::GraceMs>))]
    pub retention_completed_ms: Retention,
    /// A group that nobody has used for so long is deleted; `null`: kept.
    #[serde(default, skip_serializing_if = "Retention::is_left")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::ExpiryMs>))]
    pub group_expiry_ms: Retention,
    /// Merged with the labels it has; `null` takes one away.
    #[serde(default, skip_serializing_if = "LabelChanges::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::LabelChangeMap))]
    pub labels: LabelChanges,
    /// How the payloads of new messages are stored; stored ones stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

/// How the payloads of a topic are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Encryption {
    /// As they are.
    #[default]
    None,
    /// Sealed with AES-256-GCM, under keys from the key ring of the brokers.
    #[serde(rename = "aes_256_gcm")]
    Aes256Gcm,
}

impl Encryption {
    /// As it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Aes256Gcm => "aes_256_gcm",
        }
    }

    /// Whether payloads are stored as they are.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl std::str::FromStr for Encryption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::None, Self::Aes256Gcm];
        let found = known.into_iter().find(|encryption| encryption.as_str() == text);
        found.ok_or_else(|| "it is aes_256_gcm or none".to_owned())
    }
}

/// What becomes of a bound on what a topic keeps or takes. On the wire: absent, `null` or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retention {
    /// It stays as it is.
    #[default]
    Leave,
    /// There is none any more.
    None,
    /// This is it.
    Bound(u64),
}

impl Retention {
    fn is_left(&self) -> bool {
        *self == Self::Leave
    }
}

impl Serialize for Retention {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Leave | Self::None => serializer.serialize_none(),
            Self::Bound(bound) => serializer.serialize_u64(*bound),
        }
    }
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map_or(Self::None, Self::Bound))
    }
}

/// A topic with its settings, as listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopicDescription {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub name: String,
    /// How many partitions it has.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub partitions: u32,
    /// Largest payload of one message.
    pub payload_bytes_max: u32,
    /// Most messages of one segment.
    pub segment_messages: u32,
    /// Age at which messages may be dropped, if any.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub retention_age_ms: Option<u64>,
    /// Bytes above which the oldest messages are dropped, if any.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub retention_bytes: Option<u64>,
    /// How long a transaction id is remembered.
    pub dedup_window_ms: u64,
    /// Whether it is kept when messages were delivered and done.
    pub delivery_times: bool,
    /// Messages by which its slowest counted group may be behind before publishes are refused, if that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backlog_messages: Option<u64>,
    /// Bytes by which its slowest counted group may be behind, if that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backlog_bytes: Option<u64>,
    /// Bytes that it may store before publishes are refused, if that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_stored_bytes: Option<u64>,
    /// How long after every group has committed past a segment it is dropped, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_completed_ms: Option<u64>,
    /// How long a group may be unused before it is deleted, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_expiry_ms: Option<u64>,
    /// Words by name; absent: it has none.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::LabelMap, required = false))]
    pub labels: Labels,
    /// How the payloads of new messages are stored; absent: as they are.
    #[serde(default, skip_serializing_if = "Encryption::is_none")]
    pub encryption: Encryption,
    /// When it was made, on the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub created_at: String,
    /// Since when it takes no messages and delivers none (RFC 3339); absent: it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub paused_at: Option<String>,
}

/// One page of topics by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopicList {
    /// In the order of their names.
    pub topics: Vec<TopicDescription>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A topic with where each of its partitions stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopicDetail {
    /// Name and settings.
    #[serde(flatten)]
    pub topic: TopicDescription,
    /// In the order of their numbers.
    pub partition_details: Vec<PartitionDescription>,
    /// How full it is; only of a topic that has limits or drops what is completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<crate::capacity::TopicDepth>,
}

/// Where a partition starts and ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PartitionDescription {
    /// Its number in the topic, from 0.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// First offset that can be read.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub start_offset: i64,
    /// Offset that the next message will get.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub next_offset: i64,
    /// Bytes of keys, headers and payloads between the two.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub stored_bytes: i64,
    /// When its newest message was published, if there is one (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>, required))]
    pub last_published_at: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_obeys_the_rule_or_is_refused_with_it() {
        assert!(TopicName::new("a").is_ok());
        assert!(TopicName::new("A-z_0.9").is_ok());
        assert!(TopicName::new("x".repeat(249)).is_ok());
        assert_eq!(TopicName::new(""), Err(InvalidTopicName::Empty));
        assert_eq!(TopicName::new("."), Err(InvalidTopicName::Dots));
        assert_eq!(TopicName::new(".."), Err(InvalidTopicName::Dots));
        assert!(TopicName::new("...").is_ok());
        assert_eq!(TopicName::new("x".repeat(250)), Err(InvalidTopicName::TooLong { chars: 250 }));
        for (name, character) in [("a b", ' '), ("a/b", '/'), ("a\0", '\0'), ("naïve", 'ï'), ("a'--", '\'')]
        {
            assert_eq!(TopicName::new(name), Err(InvalidTopicName::Character { character }));
        }
    }
}
