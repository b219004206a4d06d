//! Room for what is due in topics with limits: it goes in as a publish does, as much of it as fits, and the rest stays due.
//!
//! Why: whatever is appended counts against the limits of its topic, and the bound of `docs/adr/0009-capacity.md` holds only if all
//! of it is let in by the gauge first.

use std::sync::Arc;

use laneway_client::TopicName;

use crate::broker::capacity::gauge::Load;
use crate::broker::capacity::{Admission, Capacity, NoRoom};
use crate::broker::topics::Topics;
use crate::ids::PartitionId;
use crate::store::schedules::LimitedDue;
use crate::store::topics::TopicLimits;

/// Who knows how much room there is.
#[derive(Debug, Clone)]
pub struct Room {
    pub topics: Topics,
    pub capacity: Capacity,
}

/// What of a topic may be appended; counted as let in until this is dropped, which is when it is appended or not.
#[derive(Debug)]
pub struct Grant {
    pub partitions: Vec<PartitionId>,
    pub messages: i64,
    _admission: Option<Arc<Admission>>,
}

/// What is due in one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDue {
    pub topic: String,
    pub partitions: Vec<PartitionId>,
    pub messages: u64,
    pub bytes: u64,
}

impl TopicDue {
    /// What is due in partitions, by topic.
    pub fn by_topic(due: &[LimitedDue]) -> Vec<Self> {
        let mut topics: Vec<Self> = Vec::new();
        for LimitedDue { partition_id, topic, messages, bytes } in due {
            let known = topics.iter().position(|other| other.topic == *topic);
            let place = known.unwrap_or_else(|| {
                topics.push(Self { topic: topic.clone(), partitions: Vec::new(), messages: 0, bytes: 0 });
                topics.len() - 1
            });
            let of = &mut topics[place];
            of.partitions.push(*partition_id);
            (of.messages, of.bytes) = (of.messages + messages, of.bytes + bytes);
        }
        topics
    }

    /// Some of its messages; their bytes are an estimate, but for all of them.
    fn load_of(&self, messages: u64) -> Load {
        let bytes = u128::from(self.bytes) * u128::from(messages) / u128::from(self.messages.max(1));
        Load { messages, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) }
    }

    /// The most that is worth asking for: what is larger than a limit would be let into an empty topic whole.
    fn most(&self, limits: &TopicLimits) -> u64 {
        let by_bytes = |limit: Option<u64>| {
            let limit = limit.filter(|limit| *limit < self.bytes)?;
            let fitting = u128::from(self.messages) * u128::from(limit) / u128::from(self.bytes.max(1));
            Some(u64::try_from(fitting).unwrap_or(u64::MAX))
        };
        let bounds = [limits.backlog_messages, by_bytes(limits.backlog_bytes), by_bytes(limits.stored_bytes)];
        bounds.into_iter().flatten().fold(self.messages, u64::min).max(1)
    }
}

impl Room {
    /// Lets in as much of what is due as there is room for; `None`: none of it, for now.
    pub async fn admit(&self, due: &TopicDue) -> Option<Grant> {
        let name = TopicName::new(due.topic.clone()).ok()?;
        let topic = match self.topics.find(&name).await {
            Ok(topic) => topic,
            Err(error) => {
                tracing::debug!(%error, topic.name = %name, "what is due waits until its topic is known");
                return None;
            }
        };
        let mut messages = due.most(&topic.settings.limits);
        loop {
            match self.capacity.admit(&topic, || due.load_of(messages), None).await {
                Ok(_admission) => {
                    let messages = i64::try_from(messages).unwrap_or(i64::MAX);
                    return Some(Grant { partitions: due.partitions.clone(), messages, _admission });
                }
                Err(NoRoom::Full(_)) if messages > 1 => messages /= 2,
                Err(NoRoom::Full(_)) => return None,
                Err(NoRoom::Topic(error)) => {
                    tracing::debug!(%error, topic.name = %name, "what is due waits until its topic was looked at");
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(partition: i64, topic: &str, messages: u64, bytes: u64) -> LimitedDue {
        LimitedDue { partition_id: PartitionId(partition), topic: topic.into(), messages, bytes }
    }

    #[test]
    fn what_is_due_is_asked_for_by_topic_and_never_for_more_than_a_limit() {
        let topics =
            TopicDue::by_topic(&[due(1, "a", 600, 6_000), due(2, "b", 1, 5), due(3, "a", 200, 2_000)]);
        assert_eq!(topics.len(), 2);
        let all = &topics[0];
        assert_eq!((all.partitions.len(), all.messages, all.bytes), (2, 800, 8_000));
        let most = |limits: TopicLimits| all.most(&limits);
        assert_eq!(most(TopicLimits::default()), 800);
        assert_eq!(most(TopicLimits { backlog_messages: Some(100), ..TopicLimits::default() }), 100);
        assert_eq!(most(TopicLimits { backlog_bytes: Some(1_000), ..TopicLimits::default() }), 100);
        assert_eq!(most(TopicLimits { stored_bytes: Some(3), ..TopicLimits::default() }), 1, "it goes alone");
        assert_eq!((all.load_of(800).bytes, all.load_of(1).bytes), (8_000, 10));
    }
}
