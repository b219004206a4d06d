//! What operators do to running topics and groups: pause, resume and purge them, and count what their partitions hold.
//!
//! Locks: the topic row, then its partitions by id, as when it is deleted: flushes under way are waited for, and later ones find
//! what was decided. A group has only its own row. Nothing here reads a message: heads, commits and the catalogue know.

use jiff::Timestamp;

use super::connection::Params;
use super::dead_letters::COMMITS_WAIT;
use super::error::{Effect, Error};
use super::groups::GROUPS_HINT;
use super::locks::{NOTHING_PLAIN, PARTITIONS_LOCK_WAITING};
use super::query::{Query, query};
use super::retention::{HEADS_TRIM, TRACE_LINKS_TRIM};
use super::retention_counts::LetGo;
use super::retention_history::DropReason;
use super::topics::{TOPICS_LOCK, TOPICS_LOCK_PARTITIONS};
use super::{Store, retry};
use crate::ids::{GroupId, Offset, PartitionId, TopicId};

query!(TOPICS_PAUSE = "topics_pause"[INT8]);
query!(TOPICS_RESUME = "topics_resume"[INT8]);
query!(GROUPS_PAUSE = "groups_pause"[INT8]);
query!(GROUPS_RESUME = "groups_resume"[INT8]);
query!(PARTITIONS_PURGE = "partitions_purge"[INT8_ARRAY, INT8_ARRAY]);
query!(PARTITIONS_COUNT = "partitions_count"[INT8, INT4, INT8]);
query!(LANES_WAITING = "lanes_waiting"[INT8_ARRAY]);

/// Whether a topic or a group goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    Paused,
    Resumed,
}

/// How far a partition is purged; `None`: all that it holds.
pub type PurgeTo = (PartitionId, Option<Offset>);

/// A partition after a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    pub partition_id: PartitionId,
    /// Its number in the topic, from 0.
    pub number: u32,
    /// Its start before, and now: the same if there was nothing to purge.
    pub from: Offset,
    pub to: Offset,
    /// What lay between the two, and how many segments lay there whole.
    pub bytes: u64,
    pub segments: u64,
}

/// A partition in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionCount {
    pub partition_id: PartitionId,
    /// Its number in the topic, from 0.
    pub number: u32,
    pub start_offset: Offset,
    pub next_offset: Offset,
    /// Bytes between the two.
    pub stored_bytes: i64,
    /// How long ago its oldest message was published; `None`: it has none.
    pub oldest_seconds: Option<f64>,
    pub last_published_at: Option<Timestamp>,
    /// Messages that wait for their time.
    pub scheduled: i64,
}

/// How far a group is behind in a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub partition_id: PartitionId,
    pub group_id: GroupId,
    pub group: String,
    /// Messages that are not done.
    pub lag: i64,
    /// How long the first of them has been waiting.
    pub lag_seconds: f64,
    /// What a puller has, zero if nobody has the lane; `None`: a session holds it, and its broker knows.
    pub in_flight: Option<u64>,
}

impl Store {
    /// Pauses or resumes a topic. Once this is answered, nothing is stored in a paused one. `false`: there is no such topic.
    pub async fn topics_run(&self, topic_id: TopicId, running: Running) -> Result<bool, Error> {
        let query = match running {
            Running::Paused => &TOPICS_PAUSE,
            Running::Resumed => &TOPICS_RESUME,
        };
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.query_opt(&TOPICS_LOCK, &[&topic_id.0], Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(false);
            }
            transaction.query(&TOPICS_LOCK_PARTITIONS, &[&topic_id.0], Effect::None).await?;
            transaction.query(query, &[&topic_id.0], Effect::Possible).await?;
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    /// Pauses or resumes a group, and tells those who serve it. `false`: there is no such group.
    pub async fn groups_run(&self, group_id: GroupId, running: Running) -> Result<bool, Error> {
        let query: &'static Query = match running {
            Running::Paused => &GROUPS_PAUSE,
            Running::Resumed => &GROUPS_RESUME,
        };
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.execute(query, &[&group_id.0]).await? == 0 {
                transaction.rollback().await?;
                return Ok(false);
            }
            transaction.query(&GROUPS_HINT, &[&vec![group_id.0]], Effect::Possible).await?;
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    /// Moves the starts of partitions forward, of all or of none; once this is answered, for good. Partitions that are gone are left
    /// out of the answer.
    pub async fn partitions_purge(&self, targets: &[PurgeTo]) -> Result<Vec<Purged>, Error> {
        let partition_ids: Vec<i64> = targets.iter().map(|(partition_id, _)| partition_id.0).collect();
        let offsets: Vec<Option<i64>> = targets.iter().map(|(_, to)| to.map(|to| to.0)).collect();
        let purged = retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            transaction.query(&COMMITS_WAIT, &[], Effect::None).await?;
            let locks: Params<'_> = &[&partition_ids, &NOTHING_PLAIN];
            transaction.query(&PARTITIONS_LOCK_WAITING, locks, Effect::None).await?;
            let params: Params<'_> = &[&partition_ids, &offsets];
            let rows = transaction.query(&PARTITIONS_PURGE, params, Effect::Possible).await?;
            transaction.commit().await?;
            Ok(rows.iter().map(purged).collect::<Vec<_>>())
        })
        .await?;
        for Purged { from, to, bytes, segments, .. } in purged.iter().copied() {
            let gone = LetGo { segments, messages: (to.0 - from.0).unsigned_abs(), bytes };
            self.let_go.on_let_go(DropReason::Purged, gone);
        }
        self.trim(&purged).await;
        Ok(purged)
    }

    /// Drops what only points at purged messages. It is harmless where it stays: retention comes by again.
    async fn trim(&self, purged: &[Purged]) {
        let trimmed = async {
            let connection = self.connection().await?;
            for Purged { partition_id, to, .. } in purged.iter().filter(|purged| purged.to > purged.from) {
                connection.execute(&HEADS_TRIM, &[&partition_id.0, &to.0]).await?;
                connection.execute(&TRACE_LINKS_TRIM, &[&partition_id.0, &to.0]).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = trimmed.await {
            tracing::debug!(%error, "heads below a purge are dropped later");
        }
    }

    /// Partitions of a topic by number, after a given one (-1: from the first).
    pub async fn partitions_count(
        &self,
        topic_id: TopicId,
        after: i32,
        limit: u32,
    ) -> Result<Vec<PartitionCount>, Error> {
        let connection = self.connection().await?;
        let params: Params<'_> = &[&topic_id.0, &after, &i64::from(limit)];
        let rows = connection.query(&PARTITIONS_COUNT, params, Effect::None).await?;
        Ok(rows.iter().map(partition_count).collect())
    }

    /// How far the groups are behind in some partitions, by partition and name.
    pub async fn lanes_waiting(&self, partitions: &[PartitionId]) -> Result<Vec<Waiting>, Error> {
        let partition_ids: Vec<i64> = partitions.iter().map(|partition_id| partition_id.0).collect();
        let connection = self.connection().await?;
        let rows = connection.query(&LANES_WAITING, &[&partition_ids], Effect::None).await?;
        let waiting = |row: &tokio_postgres::Row| Waiting {
            partition_id: PartitionId(row.get("partition_id")),
            group_id: GroupId(row.get("group_id")),
            group: row.get("group_name"),
            lag: row.get("lag"),
            lag_seconds: row.get::<_, Option<f64>>("lag_seconds").unwrap_or_default(),
            in_flight: row.get::<_, Option<i64>>("in_flight").map(|count| count.max(0) as u64),
        };
        Ok(rows.iter().map(waiting).collect())
    }
}

fn purged(row: &tokio_postgres::Row) -> Purged {
    Purged {
        partition_id: PartitionId(row.get("partition_id")),
        number: row.get::<_, i32>("number") as u32,
        from: Offset(row.get("start_offset")),
        to: Offset(row.get("to_offset")),
        bytes: u64::try_from(row.get::<_, i64>("bytes")).unwrap_or(0),
        segments: u64::try_from(row.get::<_, i64>("segments")).unwrap_or(0),
    }
}

fn partition_count(row: &tokio_postgres::Row) -> PartitionCount {
    let (start_offset, next_offset) = (Offset(row.get("start_offset")), Offset(row.get("next_offset")));
    PartitionCount {
        partition_id: PartitionId(row.get("partition_id")),
        number: row.get::<_, i32>("number") as u32,
        start_offset,
        next_offset,
        stored_bytes: row.get("stored_bytes"),
        oldest_seconds: row.get("oldest_seconds"),
        last_published_at: row.get("last_published_at"),
        scheduled: row.get("scheduled"),
    }
}
