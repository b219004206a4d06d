//! Where partitions start and end, and what they store: answered from heads, never by counting.

use jiff::Timestamp;

use super::Store;
use super::error::{Effect, Error};
use super::query::query;
use crate::ids::{Offset, PartitionId, TopicId};

query!(PARTITIONS_NAME = "partitions_name"[INT8]);
query!(PARTITIONS_DESCRIBE = "partitions_describe"[INT8]);
query!(HEADS_NEWEST = "heads_newest"[INT8_ARRAY]);

/// A partition as it stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub partition_id: PartitionId,
    /// Its number in the topic, from 0.
    pub number: u32,
    /// First offset that can be read.
    pub start_offset: Offset,
    /// Offset that the next message gets.
    pub next_offset: Offset,
    /// Bytes between the two.
    pub stored_bytes: i64,
    /// When its newest message was published.
    pub last_published_at: Option<Timestamp>,
}

/// From where to where the messages of a partition stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub partition_id: PartitionId,
    pub start: Offset,
    pub next: Offset,
}

impl Store {
    /// Where some partitions start and end now; those without a message are left out.
    pub async fn heads_newest(&self, partitions: &[PartitionId]) -> Result<Vec<Extent>, Error> {
        let partition_ids: Vec<i64> = partitions.iter().map(|partition_id| partition_id.0).collect();
        let connection = self.connection().await?;
        let rows = connection.query(&HEADS_NEWEST, &[&partition_ids], Effect::None).await?;
        let extent = |row: &tokio_postgres::Row| Extent {
            partition_id: PartitionId(row.get("partition_id")),
            start: Offset(row.get("start_offset")),
            next: Offset(row.get("next_offset")),
        };
        Ok(rows.iter().map(extent).collect())
    }

    /// Where a partition ends now, and when its newest message was published; `None`: it never had any.
    pub async fn head_newest(&self, partition_id: PartitionId) -> Result<Option<(Offset, Timestamp)>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&HEADS_NEWEST, &[&vec![partition_id.0]], Effect::None).await?;
        Ok(row.map(|row| (Offset(row.get("next_offset")), row.get("published_at"))))
    }

    /// The partitions of a topic by number; empty if there is no such topic.
    pub async fn partitions_describe(&self, topic_id: TopicId) -> Result<Vec<Partition>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&PARTITIONS_DESCRIBE, &[&topic_id.0], Effect::None).await?;
        let partition = |row: &tokio_postgres::Row| Partition {
            partition_id: PartitionId(row.get("partition_id")),
            number: row.get::<_, i32>("number") as u32,
            start_offset: Offset(row.get("start_offset")),
            next_offset: Offset(row.get("next_offset")),
            stored_bytes: row.get("stored_bytes"),
            last_published_at: row.get("last_published_at"),
        };
        Ok(rows.iter().map(partition).collect())
    }

    /// The topic and the number of a partition; `None`: no such partition.
    pub async fn partitions_name(&self, partition_id: PartitionId) -> Result<Option<(String, u32)>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&PARTITIONS_NAME, &[&partition_id.0], Effect::None).await?;
        Ok(row.map(|row| (row.get("name"), row.get::<_, i32>("number") as u32)))
    }
}
