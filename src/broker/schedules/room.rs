//! Room for what is due in topics with limits: it goes in as a publish does, as much of it as fits, and the rest stays due.
//!
//! Why: whatever is appended counts against the limits of its topic, and the bound of `docs/adr/0009-capacity.md` holds only if all
//! of it is let in by the gauge first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use laneway_client::TopicName;

use crate::broker::capacity::gauge::Load;
use crate::broker::capacity::{Admission, Capacity, NoRoom};
use crate::broker::topics::Topics;
use crate::ids::PartitionId;
use crate::limits::FLUSH_BYTES_MAX;
use crate::store::fires::{DueRow, Look, Portion};
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
    pub portion: Portion,
    _admission: Option<Arc<Admission>>,
}

/// How a partition is fired after a fire that it was part of has failed: whatever is wrong with one holds up no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apart {
    /// Without others.
    Alone,
    /// A message at a time.
    Single,
}

/// What is due and goes together, in the order of due times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lot {
    /// The topic, if it has limits.
    pub topic: Option<String>,
    pub rows: Vec<DueRow>,
}

impl Lot {
    /// What a look has found, sorted by what may go together.
    pub fn of(look: &Look, apart: &BTreeMap<PartitionId, Apart>) -> Vec<Self> {
        let topics: HashMap<PartitionId, &str> =
            look.limited.iter().map(|(partition_id, topic)| (*partition_id, topic.as_str())).collect();
        let mut lots: BTreeMap<(Option<PartitionId>, Option<&str>), Vec<DueRow>> = BTreeMap::new();
        for row in &look.due {
            let how = apart.get(&row.partition_id);
            let place = (how.map(|_| row.partition_id), topics.get(&row.partition_id).copied());
            let rows = lots.entry(place).or_default();
            if rows.is_empty() || how != Some(&Apart::Single) {
                rows.push(*row);
            }
        }
        let lot = |((_, topic), rows): ((_, Option<&str>), _)| Self { topic: topic.map(str::to_owned), rows };
        lots.into_iter().map(lot).collect()
    }

    pub fn partitions(&self) -> BTreeSet<PartitionId> {
        self.rows.iter().map(|row| row.partition_id).collect()
    }

    /// What goes at once where there are no limits. Why not its own bytes: others may be faster with the first, and more fit.
    fn free(&self) -> Portion {
        let portion = Portion::first_of(&self.rows, u64::MAX, FLUSH_BYTES_MAX as u64);
        Portion { bytes: portion.bytes.max(FLUSH_BYTES_MAX as u64), ..portion }
    }

    /// The most that is worth asking for: what is larger than a limit would be let into an empty topic whole.
    fn most(&self, limits: &TopicLimits) -> Portion {
        let messages = limits.backlog_messages.unwrap_or(u64::MAX).max(1);
        let bounds = [limits.backlog_bytes, limits.stored_bytes, Some(FLUSH_BYTES_MAX as u64)];
        let bytes = bounds.into_iter().flatten().min().unwrap_or(u64::MAX);
        Portion::first_of(&self.rows, messages, bytes)
    }
}

impl Room {
    /// Lets in as much of what is due as there is room for; `None`: none of it, for now.
    pub async fn admit(&self, lot: &Lot) -> Option<Grant> {
        let Some(topic) = lot.topic.clone() else {
            return Some(Grant { portion: lot.free(), _admission: None });
        };
        let name = TopicName::new(topic).ok()?;
        let topic = match self.topics.find(&name).await {
            Ok(topic) => topic,
            Err(error) => {
                tracing::debug!(%error, topic.name = %name, "what is due waits until its topic is known");
                return None;
            }
        };
        let mut portion = lot.most(&topic.settings.limits);
        loop {
            let load = Load { messages: portion.messages(), bytes: portion.bytes };
            match self.capacity.admit(&topic, || load, None).await {
                Ok(_admission) => return Some(Grant { portion, _admission }),
                Err(NoRoom::Full(_)) if load.messages > 1 => {
                    portion = Portion::first_of(&lot.rows, load.messages / 2, portion.bytes);
                }
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
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;

    fn row(partition: i64, bytes: u64) -> DueRow {
        DueRow { partition_id: PartitionId(partition), bytes, late: Duration::ZERO }
    }

    fn rows(partition: i64, messages: usize, bytes: u64) -> Vec<DueRow> {
        vec![row(partition, bytes); messages]
    }

    #[test]
    fn what_is_due_is_asked_for_by_topic_and_never_for_more_than_a_limit() {
        let due = [rows(1, 600, 10), rows(2, 1, 5), rows(3, 200, 10), rows(4, 7, 1)].concat();
        let limited = [(1, "a"), (2, "b"), (3, "a")].map(|(id, topic)| (PartitionId(id), topic.to_owned()));
        let looked_at = Timestamp::UNIX_EPOCH;
        let look = Look { looked_at, first_due_at: None, first_in: None, due, limited: limited.into() };
        let lots = Lot::of(&look, &BTreeMap::new());
        assert_eq!(lots[0], Lot { topic: None, rows: rows(4, 7, 1) });
        let all = &lots[1];
        assert_eq!((lots.len(), all.partitions().len(), all.rows.len()), (3, 2, 800));
        let apart = [(PartitionId(3), Apart::Alone), (PartitionId(4), Apart::Single)].into();
        let sizes: Vec<usize> = Lot::of(&look, &apart).iter().map(|lot| lot.rows.len()).collect();
        assert_eq!(sizes, [600, 1, 200, 1], "what has failed goes apart, and last");
        let most = |limits: TopicLimits| {
            let portion = all.most(&limits);
            (portion.messages(), portion.bytes)
        };
        assert_eq!(most(TopicLimits::default()), (800, 8_000));
        assert_eq!(most(TopicLimits { backlog_messages: Some(100), ..TopicLimits::default() }), (100, 1_000));
        assert_eq!(most(TopicLimits { backlog_bytes: Some(1_009), ..TopicLimits::default() }), (100, 1_000));
        let narrow = TopicLimits { stored_bytes: Some(3), ..TopicLimits::default() };
        assert_eq!(most(narrow), (1, 10), "it goes alone");
    }

    #[test]
    fn a_portion_counts_what_its_own_messages_have_and_not_what_messages_have_on_average() {
        let sizes = [(1, 1), (1, 7_000_000), (2, 1), (1, 2_000_000), (1, 1)];
        let due: Vec<DueRow> = sizes.map(|(partition, bytes)| row(partition, bytes)).into();
        let topic = Lot { topic: Some("a".into()), rows: due.clone() };
        let most = topic.most(&TopicLimits::default());
        assert_eq!(most.partitions, [(PartitionId(1), 2), (PartitionId(2), 1)].into());
        assert_eq!(most.bytes, 7_000_002);
        let half = Portion::first_of(&due, most.messages() / 2, most.bytes);
        assert_eq!((half.messages(), half.bytes), (1, 1));
    }
}
