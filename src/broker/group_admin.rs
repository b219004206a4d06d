//! Groups and lanes for operators: what there is, and what they change about it.
//!
//! Nothing here speaks with the tasks that serve a group. A change is written down and hinted at; whoever serves the group
//! looks at the rows, as after every other change.

use laneway_client::group_api::Seek;
use laneway_client::wire::WantedSettings;
use laneway_client::{GroupName, TopicName};

use super::Broker;
use super::groups::settings::{self, InvalidSetting};
use super::groups::{SubscribeError, start};
use super::reader::ReadError;
use super::topics::TopicError;
use crate::ids::{ParkedId, TopicId};
use crate::limits::{BROKERS_LISTED_MAX, LANES_PAGE_MAX};
use crate::store::Error;
use crate::store::group_changes::{GroupAltered, GroupChanges, GroupDeleted, IfUsed, Sought};
use crate::store::groups::GroupSettings;
use crate::store::overview::{
    BrokerOverview, GroupOverview, LaneFilter, LaneKey, LaneOverview, MemberOverview,
};
use crate::store::topics::Topic;
use crate::store::windows::WindowChanges;

/// Why nothing was done about a group.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GroupError {
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error("topic {topic} has no group {group}")]
    Unknown { topic: String, group: String },
    #[error("group {group} has {members} members; let them leave first, or delete it by force")]
    HasMembers { group: String, members: usize },
    #[error(
        "group {group} has members, or somebody has popped from it: its ordering is changed while nobody consumes"
    )]
    InUse { group: String },
    #[error("group {group} has parked keys: its ordering is changed when they are replayed or dropped")]
    HasParked { group: String },
    #[error(
        "group {group} has {keys} parked keys ({named}); replay or drop them first, or delete it by force"
    )]
    KeepsParked { group: String, keys: i64, named: String },
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    #[error("to: {reason}")]
    To { reason: String },
    #[error("partitions[{index}]: topic {topic} has {count} partitions, and none of the number {partition}")]
    PartitionOutOfRange { index: usize, topic: String, count: usize, partition: u32 },
    #[error("partitions[{index}]: {partition} stands there twice")]
    PartitionTwice { index: usize, partition: u32 },
    #[error("partitions: name at least one, or leave them out to mean all")]
    NoPartition,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] Error),
}

/// A group with everything that is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupShown {
    pub overview: GroupOverview,
    pub members: Vec<MemberOverview>,
    pub lanes: Vec<LaneOverview>,
}

impl Broker {
    /// Groups after a given one, of one topic or of all.
    pub async fn list_groups(
        &self,
        topic: Option<&TopicName>,
        after: (&str, &str),
        limit: u32,
    ) -> Result<Vec<GroupOverview>, GroupError> {
        let topic_id = self.topic_id(topic).await?;
        Ok(self.store.groups_list(topic_id, after, limit).await?)
    }

    /// One group with its members and lanes.
    pub async fn show_group(&self, topic: &TopicName, group: &GroupName) -> Result<GroupShown, GroupError> {
        let (topic_id, overview) = self.find_group(topic, group).await?;
        let members = self.store.members_describe(overview.group.group_id).await?;
        let filter = LaneFilter {
            topic_id: Some(topic_id),
            group: Some(group.as_str()),
            after: LaneKey::FIRST,
            limit: LANES_PAGE_MAX,
        };
        let lanes = self.store.lanes_describe(filter).await?;
        Ok(GroupShown { overview, members, lanes })
    }

    /// Lanes after a given one, of one topic or group or of all.
    pub async fn list_lanes(
        &self,
        topic: Option<&TopicName>,
        group: Option<&GroupName>,
        after: LaneKey<'_>,
        limit: u32,
    ) -> Result<Vec<LaneOverview>, GroupError> {
        let topic_id = self.topic_id(topic).await?;
        let group = group.map(GroupName::as_str);
        Ok(self.store.lanes_describe(LaneFilter { topic_id, group, after, limit }).await?)
    }

    /// The youngest brokers.
    pub async fn list_brokers(&self) -> Result<Vec<BrokerOverview>, GroupError> {
        Ok(self.store.brokers_list(BROKERS_LISTED_MAX).await?)
    }

    /// Changes settings of a group; those who serve it take them over at the hint.
    pub async fn alter_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        wanted: &WantedSettings,
    ) -> Result<(), GroupError> {
        let (_, overview) = self.find_group(topic, group).await?;
        let check = |now: &GroupSettings| settings::checked(&settings::altered(now, wanted)).map(|_| ()); // with those that stay
        match self.store.groups_alter(overview.group.group_id, &changes(wanted), check).await? {
            GroupAltered::Done => {
                tracing::info!(group.name = %group, topic.name = %topic, ?wanted, "group altered");
                Ok(())
            }
            GroupAltered::Refused(error) => Err(error.into()),
            GroupAltered::Unknown => Err(unknown(topic, group)),
            GroupAltered::InUse => Err(GroupError::InUse { group: group.to_string() }),
            GroupAltered::HasParked => Err(GroupError::HasParked { group: group.to_string() }),
        }
    }

    /// Deletes a group; its dead letters stay.
    pub async fn delete_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        if_used: IfUsed,
    ) -> Result<(), GroupError> {
        let (_, overview) = self.find_group(topic, group).await?;
        match self.store.groups_delete(overview.group.group_id, if_used).await? {
            GroupDeleted::Done => {
                tracing::info!(group.name = %group, topic.name = %topic, "group deleted");
                Ok(())
            }
            GroupDeleted::HasMembers(members) => {
                Err(GroupError::HasMembers { group: group.to_string(), members })
            }
            GroupDeleted::HasParked { keys, first } => {
                Err(GroupError::KeepsParked { group: group.to_string(), keys, named: named(keys, &first) })
            }
            GroupDeleted::Unknown => Err(unknown(topic, group)),
        }
    }

    /// Moves lanes of a group to another place, live: holders lose them and get them again there.
    pub async fn seek_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        seek: &Seek,
    ) -> Result<Vec<Sought>, GroupError> {
        let (_, overview) = self.find_group(topic, group).await?;
        let found = self.store.topics_find(topic).await?;
        let found = found.ok_or_else(|| TopicError::Unknown { name: topic.to_string() })?;
        let chosen = chosen(found, seek.partitions.as_deref())?;
        let targets = start::first_offsets(&self.reader, &chosen, Some(&seek.to)).await.map_err(refused)?;
        let sought = self.store.lanes_seek(overview.group.group_id, &targets).await?;
        let sought = sought.ok_or_else(|| unknown(topic, group))?;
        tracing::info!(group.name = %group, topic.name = %topic, to = ?seek.to, lanes = sought.len(), "group moved");
        Ok(sought)
    }

    async fn topic_id(&self, topic: Option<&TopicName>) -> Result<Option<TopicId>, TopicError> {
        match topic {
            Some(name) => Ok(Some(self.topics.find(name).await?.topic_id)),
            None => Ok(None),
        }
    }

    async fn find_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<(TopicId, GroupOverview), GroupError> {
        // Not what is remembered: that may be an older topic of the same name.
        let found = self.store.topics_find(topic).await?;
        let topic_id = found.ok_or_else(|| TopicError::Unknown { name: topic.to_string() })?.topic_id;
        let overview = self.store.groups_describe(topic_id, group.as_str()).await?;
        Ok((topic_id, overview.ok_or_else(|| unknown(topic, group))?))
    }
}

fn unknown(topic: &TopicName, group: &GroupName) -> GroupError {
    GroupError::Unknown { topic: topic.to_string(), group: group.to_string() }
}

/// The first of some parked keys, and that there are more.
fn named(keys: i64, first: &[ParkedId]) -> String {
    let names: Vec<String> = first.iter().map(ToString::to_string).collect();
    let more = if keys > first.len() as i64 { ", …" } else { "" };
    names.join(", ") + more
}

fn changes(wanted: &WantedSettings) -> GroupChanges {
    GroupChanges {
        ack_deadline_ms: wanted.ack_deadline_ms,
        max_attempts: wanted.max_attempts,
        backoff_base_ms: wanted.backoff_base_ms,
        backoff_factor: wanted.backoff_factor,
        backoff_cap_ms: wanted.backoff_cap_ms,
        on_failure: wanted.on_failure.map(settings::failure_policy),
        capacity: wanted.capacity.map(settings::capacity),
        windows: WindowChanges {
            delay_ms: wanted.delay_ms,
            window_ms: wanted.window_ms,
            window_max_ms: wanted.window_max_ms,
            max_age_ms: wanted.max_age_ms,
            on_expiry: wanted.on_expiry.map(settings::expiry_policy),
        },
        ordering: wanted.ordering.map(settings::ordering),
    }
}

/// The topic with only those partitions that a seek names.
fn chosen(mut topic: Topic, numbers: Option<&[u32]>) -> Result<Topic, GroupError> {
    let Some(numbers) = numbers else { return Ok(topic) };
    if numbers.is_empty() {
        return Err(GroupError::NoPartition);
    }
    let mut partitions = Vec::with_capacity(numbers.len().min(topic.partitions.len()));
    for (index, partition) in numbers.iter().copied().enumerate() {
        let Some(partition_id) = topic.partitions.get(partition as usize) else {
            let (topic, count) = (topic.name, topic.partitions.len());
            return Err(GroupError::PartitionOutOfRange { index, topic, count, partition });
        };
        if partitions.contains(partition_id) {
            return Err(GroupError::PartitionTwice { index, partition });
        }
        partitions.push(*partition_id);
    }
    topic.partitions = partitions;
    Ok(topic)
}

/// What a place to start from can be refused for.
fn refused(error: SubscribeError) -> GroupError {
    match error {
        SubscribeError::Read(error) => error.into(),
        SubscribeError::Store(error) => error.into(),
        SubscribeError::Topic(error) => error.into(),
        SubscribeError::Start { reason } => GroupError::To { reason },
        SubscribeError::Setting(_)
        | SubscribeError::Mismatch(_)
        | SubscribeError::Batch { .. }
        | SubscribeError::Credit(_)
        | SubscribeError::AlreadySubscribed
        | SubscribeError::NoLease => GroupError::To { reason: error.to_string() },
    }
}
