//! How much a topic stores, and how far each of its groups is behind: from heads and commits, never by counting messages.

use super::Store;
use super::error::{Effect, Error};
use super::groups::GroupCapacity;
use super::query::query;
use crate::ids::TopicId;
use crate::store::timeline::Era;

query!(TOPICS_DEPTH = "topics_depth"[INT8, BOOL]);

/// Whether the bytes of backlogs are asked for: they cost an index descent more per group and partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacklogBytes {
    Counted,
    LeftOut,
}

/// What a topic holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDepth {
    pub stored_bytes: i64,
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
    /// Never too few; 0 if they are left out.
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
        let with_bytes = bytes == BacklogBytes::Counted;
        let rows = connection.query(&TOPICS_DEPTH, &[&topic_id.0, &with_bytes], Effect::None).await?;
        let group = |row: &tokio_postgres::Row| {
            let name = row.get::<_, Option<String>>("name")?;
            let capacity =
                GroupCapacity::parse(row.get("capacity")).expect("the database knows the same words");
            Some(GroupDepth { name, capacity, messages: row.get("messages"), bytes: row.get("bytes") })
        };
        let groups = rows.iter().filter_map(group).collect();
        Ok(rows.first().map(|row| TopicDepth { stored_bytes: row.get("stored_bytes"), groups, era }))
    }
}
