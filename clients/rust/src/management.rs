//! What operators do to running topics and groups, as HTTP carries it: pause, resume, purge, and partitions in numbers.

use serde::{Deserialize, Serialize};

use crate::admin::{Admin, AdminError};
use crate::group_api::GroupDetail;
use crate::topic::TopicDetail;

/// What to purge: `POST /v1/topics/{topic}/purge`. On the wire: `{"all": true}`, `{"before_at": time}` or
/// `{"before_offset": offset, "partition": partition}`.
///
/// ```
/// use laneway_client::management::Purge;
/// let all: Purge = serde_json::from_str(r#"{"all": true}"#).unwrap();
/// assert_eq!(all, Purge::All);
/// assert!(serde_json::from_str::<Purge>(r#"{"all": true, "partition": 3}"#).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub enum Purge {
    /// Everything that is stored when the purge happens.
    All,
    /// What was published before this moment (RFC 3339), which must not lie in the future.
    BeforeAt(String),
    /// What lies below this offset in one partition.
    BeforeOffset {
        /// The number of the partition.
        partition: u32,
        /// The first offset that stays; not beyond the next offset.
        before_offset: i64,
    },
}

/// The members of a [`Purge`]: exactly one form of it is taken.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    all: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before_offset: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
}

impl TryFrom<Fields> for Purge {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<Self, Self::Error> {
        match fields {
            Fields { all: Some(true), before_at: None, before_offset: None, partition: None } => {
                Ok(Self::All)
            }
            Fields { all: None, before_at: Some(at), before_offset: None, partition: None } => {
                Ok(Self::BeforeAt(at))
            }
            Fields {
                all: None,
                before_at: None,
                before_offset: Some(before_offset),
                partition: Some(partition),
            } => match before_offset {
                0.. => Ok(Self::BeforeOffset { partition, before_offset }),
                _ => Err("before_offset must not be negative"),
            },
            _ => Err("say exactly one of all (true), before_at, or before_offset with its partition"),
        }
    }
}

impl From<Purge> for Fields {
    fn from(purge: Purge) -> Self {
        match purge {
            Purge::All => Self { all: Some(true), ..Self::default() },
            Purge::BeforeAt(at) => Self { before_at: Some(at), ..Self::default() },
            Purge::BeforeOffset { partition, before_offset } => {
                Self { before_offset: Some(before_offset), partition: Some(partition), ..Self::default() }
            }
        }
    }
}

/// What a purge has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Purged {
    /// How many messages can be read no more.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub messages: i64,
    /// The partitions that it was about, in the order of their numbers.
    pub partitions: Vec<PurgedPartition>,
}

/// A partition after a purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PurgedPartition {
    /// Its number in the topic, from 0.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// How many of its messages can be read no more.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub messages: i64,
    /// First offset that can still be read.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub start_offset: i64,
}

/// Partitions in numbers: `GET /v1/topics/{topic}/partitions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PartitionList {
    /// In the order of their numbers.
    pub partitions: Vec<PartitionStatistics>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub next: Option<u32>,
}

/// One partition in numbers. They come from heads and commits: no message is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PartitionStatistics {
    /// Its number in the topic, from 0.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// First offset that can be read.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub start_offset: i64,
    /// Offset that the next message will get.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub next_offset: i64,
    /// Messages between the two.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub stored_messages: i64,
    /// Bytes of keys, headers and payloads between the two; an estimate where a purge has cut a flush.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub stored_bytes: i64,
    /// Messages that wait for their time, and are not among them yet.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub scheduled_messages: i64,
    /// How long ago the oldest message that is stored was published, by the time of its flush; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub oldest_seconds: Option<f64>,
    /// When the newest message was published, if there ever was one (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub last_published_at: Option<String>,
    /// The largest lag of any group; absent: the topic has no group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub lag_messages: Option<i64>,
    /// Each group, by name.
    pub groups: Vec<LaneStatistics>,
}

/// How far one group is in a partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LaneStatistics {
    /// The group.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::group::GroupName))]
    pub group: String,
    /// How many messages are not done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub lag_messages: i64,
    /// For how long the first of them has been waiting, by the time of its flush.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub lag_seconds: f64,
    /// How many of them are with a consumer. Any broker knows what was popped; what a session has, only its own: absent if that is
    /// not the one that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
}

impl Admin {
    /// Pauses a topic: it takes no messages and delivers none. Answered once nothing more is stored.
    pub async fn pause_topic(&self, topic: &str) -> Result<TopicDetail, AdminError> {
        self.answer(self.http.post(self.url(&["v1", "topics", topic, "pause"]))).await
    }

    /// Lets a topic go on.
    pub async fn resume_topic(&self, topic: &str) -> Result<TopicDetail, AdminError> {
        self.answer(self.http.post(self.url(&["v1", "topics", topic, "resume"]))).await
    }

    /// Pauses a group: nothing is delivered to it. Its members keep their lanes and may acknowledge what they have.
    pub async fn pause_group(&self, topic: &str, group: &str) -> Result<GroupDetail, AdminError> {
        self.answer(self.http.post(self.group(topic, group, &["pause"]))).await
    }

    /// Lets a group go on.
    pub async fn resume_group(&self, topic: &str, group: &str) -> Result<GroupDetail, AdminError> {
        self.answer(self.http.post(self.group(topic, group, &["resume"]))).await
    }

    /// Drops messages of a topic for good. Groups that are behind are told by a reset.
    pub async fn purge_topic(&self, topic: &str, purge: &Purge) -> Result<Purged, AdminError> {
        self.answer(self.http.post(self.url(&["v1", "topics", topic, "purge"])).json(purge)).await
    }

    /// One page of partitions in numbers, after a given one.
    pub async fn list_partitions(
        &self,
        topic: &str,
        after: Option<u32>,
    ) -> Result<PartitionList, AdminError> {
        let mut url = self.url(&["v1", "topics", topic, "partitions"]);
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", &after.to_string());
        }
        self.answer(self.http.get(url)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_names_exactly_one_bound_and_is_written_as_it_is_read() {
        let forms = [
            (Purge::All, r#"{"all":true}"#),
            (Purge::BeforeAt("2026-01-31T12:00:00Z".into()), r#"{"before_at":"2026-01-31T12:00:00Z"}"#),
            (Purge::BeforeOffset { partition: 3, before_offset: 7 }, r#"{"before_offset":7,"partition":3}"#),
        ];
        for (purge, text) in forms {
            assert_eq!(serde_json::to_string(&purge).unwrap(), text);
            assert_eq!(serde_json::from_str::<Purge>(text).unwrap(), purge);
        }
        for wrong in [
            "{}",
            r#"{"all":false}"#,
            r#"{"all":true,"before_offset":1,"partition":0}"#,
            r#"{"before_offset":1}"#,
            r#"{"partition":1}"#,
            r#"{"before_offset":-1,"partition":0}"#,
            r#"{"before_at":"2026-01-31T12:00:00Z","partition":0}"#,
            r#"{"all":true,"topic":"orders"}"#,
        ] {
            assert!(serde_json::from_str::<Purge>(wrong).is_err(), "{wrong}");
        }
    }
}
