//! How much a topic stores and may hold, and how far each of its groups is behind: from heads and commits, never by counting
//! messages.

use tokio_postgres::Row;

use super::Store;
use super::error::{Effect, Error};
use super::groups::GroupCapacity;
use super::query::query;
use super::topics::{TopicLimits, limits};
use crate::ids::TopicId;
use crate::store::timeline::Era;

query!(TOPICS_DEPTH = "topics_depth"[INT8, BOOL]);

/// Which backlogs are told in bytes: that costs an index descent more per group and partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacklogBytes {
    All,
    /// Those of a topic that limits them.
    Limited,
}

/// What a topic holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDepth {
    pub stored_bytes: i64,
    /// What it may hold, as of the same moment.
    pub limits: TopicLimits,
    pub groups: Vec<GroupDepth>,
    /// In which it was read.
    pub era: Era,
}

/// How far a group is behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDepth {
    pub name: String,
    pub capacity: GroupCapacity,
    pub messages: i64,
    /// Never too few; 0 if they were not asked for.
    pub bytes: i64,
}

impl TopicDepth {
    /// The group that is furthest behind among those that a predicate picks, if it is behind at all.
    pub fn slowest(&self, pick: impl Fn(&GroupDepth) -> bool) -> Option<&GroupDepth> {
        self.groups
            .iter()
            .filter(|group| group.messages > 0 && pick(group))
            .max_by_key(|group| group.messages)
    }
}

impl Store {
    /// How deep a topic is; `None`: there is no such topic any more.
    pub async fn topics_depth(
        &self,
        topic_id: TopicId,
        bytes: BacklogBytes,
    ) -> Result<Option<TopicDepth>, Error> {
        let connection = self.connection().await?;
        let era = connection.era();
        let with_bytes = bytes == BacklogBytes::All;
        let rows = connection.query(&TOPICS_DEPTH, &[&topic_id.0, &with_bytes], Effect::None).await?;
        let group = |row: &Row| {
            let name = row.get::<_, Option<String>>("name")?;
            let capacity =
                GroupCapacity::parse(row.get("capacity")).expect("the database knows the same words");
            Some(GroupDepth { name, capacity, messages: row.get("messages"), bytes: row.get("bytes") })
        };
        let groups = rows.iter().filter_map(group).collect();
        let depth = |row| TopicDepth {
            stored_bytes: Row::get(row, "stored_bytes"),
            limits: limits(row),
            groups,
            era,
        };
        Ok(rows.first().map(depth))
    }
}
