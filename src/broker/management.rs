//! Pausing, resuming and purging, and partitions in numbers: what operators do to topics and groups that are at work.
//!
//! Postgres decides; nothing here is believed because somebody has asked for it. What this broker remembers is put right at once,
//! the others follow at the hint, and at their polls if it is lost.

use futures_util::future::try_join_all;
use jiff::Timestamp;
use laneway_client::management::Purge;
use laneway_client::{GroupName, TopicName};

use super::Broker;
use super::group_admin::GroupError;
use super::reader::ReadError;
use super::topics::TopicError;
use crate::ids::{Offset, PartitionId};
use crate::limits::PURGE_AHEAD_MAX;
use crate::store::Error;
use crate::store::management::{PartitionCount, PurgeTo, Purged, Running, Waiting};
use crate::store::topics::Topic;

/// Why nothing was purged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PurgeError {
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error("before_at: {reason}")]
    At { reason: String },
    #[error("topic {topic} has {count} partitions, and none of the number {partition}")]
    PartitionOutOfRange { topic: String, count: usize, partition: u32 },
    #[error("before_offset: partition {partition} ends at {next}, which {offset} lies beyond")]
    BeyondEnd { partition: u32, next: Offset, offset: i64 },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] Error),
}

/// A partition in numbers, with each group that reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionShown {
    pub count: PartitionCount,
    pub lanes: Vec<LaneShown>,
}

/// How far one group is in a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneShown {
    pub waiting: Waiting,
    /// Known unless a session of another broker holds the lane.
    pub in_flight: Option<u64>,
}

impl Broker {
    /// Pauses or resumes a topic. Once a pause is answered, no broker stores anything in it.
    pub async fn run_topic(&self, name: &TopicName, running: Running) -> Result<(), TopicError> {
        let topic = self.newest(name).await?;
        let found = self.store.topics_run(topic.topic_id, running).await;
        self.topics.forget(name);
        match found? {
            true => {
                tracing::info!(topic.name = %name, topic = %topic.topic_id, ?running, "topic paused or resumed");
                Ok(())
            }
            false => Err(TopicError::Unknown { name: name.to_string() }),
        }
    }

    /// Pauses or resumes a group; those who serve it follow at the hint.
    pub async fn run_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        running: Running,
    ) -> Result<(), GroupError> {
        let topic_id = self.newest(topic).await?.topic_id;
        let unknown = || GroupError::Unknown { topic: topic.to_string(), group: group.to_string() };
        let found = self.store.groups_find(topic_id, group.as_str()).await?.ok_or_else(unknown)?;
        match self.store.groups_run(found.group_id, running).await? {
            true => {
                tracing::info!(group.name = %group, topic.name = %topic, ?running, "group paused or resumed");
                Ok(())
            }
            false => Err(unknown()),
        }
    }

    /// Drops messages for good: all partitions that it is about move their starts together, or none does.
    pub async fn purge_topic(&self, name: &TopicName, purge: &Purge) -> Result<Vec<Purged>, PurgeError> {
        let topic = self.newest(name).await?;
        let targets = self.purge_to(&topic, purge).await?;
        let purged = self.store.partitions_purge(&targets).await?;
        if purged.is_empty() {
            return Err(TopicError::Unknown { name: name.to_string() }.into()); // it was deleted meanwhile
        }
        for Purged { partition_id, to, .. } in &purged {
            self.reader.on_start(*partition_id, *to);
            self.tails.on_start(*partition_id, *to);
        }
        let messages = purged.iter().map(|purged| purged.to.0 - purged.from.0).sum::<i64>();
        self.metrics.purged_messages.inc_by(messages.unsigned_abs());
        tracing::info!(topic.name = %name, topic = %topic.topic_id, ?purge, messages, "topic purged");
        Ok(purged)
    }

    async fn purge_to(&self, topic: &Topic, purge: &Purge) -> Result<Vec<PurgeTo>, PurgeError> {
        match purge {
            Purge::All => Ok(topic.partitions.iter().map(|partition_id| (*partition_id, None)).collect()),
            Purge::BeforeAt(text) => {
                let at = moment(text)?;
                let find = topic.partitions.iter().map(|partition_id| self.first_at(*partition_id, at));
                Ok(try_join_all(find).await?)
            }
            Purge::BeforeOffset { partition, before_offset } => {
                let Some(partition_id) = topic.partitions.get(*partition as usize) else {
                    let (topic, count) = (topic.name.clone(), topic.partitions.len());
                    return Err(PurgeError::PartitionOutOfRange { topic, count, partition: *partition });
                };
                let next = self.next_of(*partition_id).await?;
                match *before_offset > next.0 {
                    true => {
                        Err(PurgeError::BeyondEnd { partition: *partition, next, offset: *before_offset })
                    }
                    false => Ok(vec![(*partition_id, Some(Offset(*before_offset)))]),
                }
            }
        }
    }

    /// The first offset published at or after a moment, or where the partition ended before it was looked for.
    async fn first_at(&self, partition_id: PartitionId, at: Timestamp) -> Result<PurgeTo, PurgeError> {
        let next = self.next_of(partition_id).await?;
        let first = self.reader.offset_at(partition_id, at).await?;
        Ok((partition_id, Some(first.unwrap_or(next))))
    }

    async fn next_of(&self, partition_id: PartitionId) -> Result<Offset, Error> {
        let heads = self.store.heads_newest(&[partition_id]).await?;
        Ok(heads.first().map_or(Offset::ZERO, |head| head.next))
    }

    /// Partitions of a topic in numbers, after a given one.
    pub async fn count_partitions(
        &self,
        name: &TopicName,
        after: Option<u32>,
        limit: u32,
    ) -> Result<Vec<PartitionShown>, TopicError> {
        let topic = self.newest(name).await?;
        let after = after.map_or(-1, |after| i32::try_from(after).unwrap_or(i32::MAX));
        let counts = self.store.partitions_count(topic.topic_id, after, limit).await?;
        let partitions: Vec<PartitionId> = counts.iter().map(|count| count.partition_id).collect();
        let waiting = self.store.lanes_waiting(&partitions).await?;
        let mut groups: Vec<_> = waiting.iter().map(|waiting| waiting.group_id).collect();
        groups.sort_unstable();
        groups.dedup();
        let in_flight = self.groups.in_flight(&groups).await;
        let mut shown: Vec<PartitionShown> =
            counts.into_iter().map(|count| PartitionShown { count, lanes: Vec::new() }).collect();
        for waiting in waiting {
            let held_here = in_flight.get(&(waiting.group_id, waiting.partition_id)).copied();
            let in_flight = waiting.in_flight.or(held_here);
            if let Some(of) = shown.iter_mut().find(|of| of.count.partition_id == waiting.partition_id) {
                of.lanes.push(LaneShown { waiting, in_flight });
            }
        }
        Ok(shown)
    }

    /// Not what is remembered: that may be an older topic of the same name.
    async fn newest(&self, name: &TopicName) -> Result<Topic, TopicError> {
        let found = self.store.topics_find(name).await?;
        found.ok_or_else(|| TopicError::Unknown { name: name.to_string() })
    }
}

/// A moment that everything before it may be purged; one in the future is a mistake, not a wish.
fn moment(text: &str) -> Result<Timestamp, PurgeError> {
    let wrong = |error: jiff::Error| PurgeError::At {
        reason: format!("{text:?} is not a time like 2026-01-31T12:00:00Z: {error}"),
    };
    let at: Timestamp = text.parse().map_err(wrong)?;
    let latest = Timestamp::now().checked_add(PURGE_AHEAD_MAX).map_err(wrong)?;
    match at > latest {
        true => {
            Err(PurgeError::At { reason: format!("{at} lies in the future; to purge everything, say all") })
        }
        false => Ok(at),
    }
}
