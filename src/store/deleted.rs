//! Sweeping up after a deleted topic: its tables and rows go piece by piece, beside the publish path.
//!
//! Order, per partition: its segments are retired and leave as retention lets them leave; then its table goes, then the rows
//! that only its id finds, then its own row; the topic's row is last. Each step is a small transaction that any broker finds
//! again in the rows that are left, so a crash loses nothing and several brokers may sweep at once.
//! Invariant: a deleted partition takes no message and gets no table, so what is swept does not come back.

use super::connection::Transaction;
use super::error::{Effect, Error};
use super::query::{Query, query, template};
use super::retention::or_later;
use super::segments::SEGMENTS_TRY_LOCK;
use super::topics::TOPICS_DROP_GROUPS;
use super::{Connection, Store, retry};
use crate::ids::{PartitionId, TopicId};
use crate::limits::EXPIRE_ROWS_MAX;

query!(TOPICS_DELETED = "topics_deleted"[]);
query!(TOPICS_FORGET = "topics_forget"[INT8]);
query!(PARTITIONS_DELETED = "partitions_deleted"[]);
query!(PARTITIONS_DRAINED = "partitions_drained"[INT8]);
query!(PARTITIONS_FORGET = "partitions_forget"[INT8]);
query!(SEGMENTS_ABANDON = "segments_abandon"[INT8]);
query!(HEADS_SWEEP = "heads_sweep"[INT8, INT8]);
query!(PRODUCER_RUNS_SWEEP = "producer_runs_sweep"[INT8, INT8]);
query!(TRANSACTIONS_SWEEP = "transactions_sweep"[INT8, INT8]);
query!(TRACE_LINKS_SWEEP = "trace_links_sweep"[INT8, INT8]);
query!(DEAD_LETTERS_SWEEP = "dead_letters_sweep"[INT8, INT8]);
query!(SCHEDULES_SWEEP = "schedules_sweep"[INT8, INT8]);
query!(SCHEDULES_SWEEP_SEEN = "schedules_sweep_seen"[INT8, INT8]);
template!(PARTITION_DROP = "partition_drop"[]);

/// Whether a step was done or has to wait for the next pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    /// Segments are left, or another broker is at it.
    NotYet,
}

impl Store {
    /// One pass over everything that deleted topics have left. Returns how many of them are gone for good now.
    /// What somebody keeps locked is left for the next pass.
    pub async fn topics_sweep(&self) -> Result<usize, Error> {
        let partitions = self.upkeep_connection().await?.partitions_deleted().await?;
        for partition_id in &partitions {
            let abandoned = retry::contended(retry::Policy::DDL_LATER, || async {
                self.upkeep_connection().await?.segments_abandon(*partition_id).await
            });
            or_later(abandoned.await)?;
        }
        if !partitions.is_empty() {
            self.segments_let_go().await?;
        }
        for partition_id in partitions {
            or_later(self.partition_sweep(partition_id).await)?;
        }
        let mut gone = 0;
        let topics = self.upkeep_connection().await?.topics_deleted().await?;
        for topic_id in topics {
            let forgotten = retry::contended(retry::Policy::DDL_LATER, || async {
                self.upkeep_connection().await?.topics_forget(topic_id).await
            });
            if or_later(forgotten.await)? == Some(Step::Done) {
                gone += 1;
                tracing::info!(topic = %topic_id, "deleted topic swept");
            }
        }
        Ok(gone)
    }

    /// Drops the table and the rows of a deleted partition, if its segments are gone.
    async fn partition_sweep(&self, partition_id: PartitionId) -> Result<(), Error> {
        let dropped = retry::contended(retry::Policy::DDL_LATER, || async {
            self.upkeep_connection().await?.partition_drop(partition_id).await
        });
        if dropped.await? == Step::NotYet {
            return Ok(());
        }
        for query in [
            &HEADS_SWEEP,
            &PRODUCER_RUNS_SWEEP,
            &TRANSACTIONS_SWEEP,
            &DEAD_LETTERS_SWEEP,
            &TRACE_LINKS_SWEEP,
            &SCHEDULES_SWEEP,
            &SCHEDULES_SWEEP_SEEN,
        ] {
            self.rows_sweep(query, partition_id).await?;
        }
        retry::contended(retry::Policy::DDL_LATER, || async {
            self.upkeep_connection().await?.execute(&PARTITIONS_FORGET, &[&partition_id.0]).await
        })
        .await?;
        Ok(())
    }

    async fn rows_sweep(&self, query: &'static Query, partition_id: PartitionId) -> Result<(), Error> {
        loop {
            let rows = retry::contended(retry::Policy::DDL_LATER, || async {
                self.upkeep_connection().await?.execute(query, &[&partition_id.0, &EXPIRE_ROWS_MAX]).await
            });
            if rows.await? < EXPIRE_ROWS_MAX as u64 {
                return Ok(());
            }
        }
    }
}

impl Connection {
    async fn partitions_deleted(&self) -> Result<Vec<PartitionId>, Error> {
        let rows = self.query(&PARTITIONS_DELETED, &[], Effect::None).await?;
        Ok(rows.iter().map(|row| PartitionId(row.get("partition_id"))).collect())
    }

    async fn topics_deleted(&self) -> Result<Vec<TopicId>, Error> {
        let rows = self.query(&TOPICS_DELETED, &[], Effect::None).await?;
        Ok(rows.iter().map(|row| TopicId(row.get("topic_id"))).collect())
    }

    /// Retires all segments of a deleted partition, whatever they hold.
    async fn segments_abandon(&mut self, partition_id: PartitionId) -> Result<Step, Error> {
        let transaction = self.begin().await?;
        if !is_ours(&transaction, partition_id).await? {
            transaction.rollback().await?;
            return Ok(Step::NotYet);
        }
        transaction.execute(&SEGMENTS_ABANDON, &[&partition_id.0]).await?;
        transaction.commit().await?;
        Ok(Step::Done)
    }

    /// Drops the table of a deleted partition, if no segment is left that would go with it.
    async fn partition_drop(&mut self, partition_id: PartitionId) -> Result<Step, Error> {
        let transaction = self.begin().await?;
        if !is_ours(&transaction, partition_id).await? {
            transaction.rollback().await?;
            return Ok(Step::NotYet);
        }
        let drained = transaction.query_opt(&PARTITIONS_DRAINED, &[&partition_id.0], Effect::None).await?;
        if !drained.is_some_and(|row| row.get("drained")) {
            transaction.rollback().await?;
            return Ok(Step::NotYet);
        }
        transaction.run(&PARTITION_DROP, &[("partition_id", partition_id.0)]).await?;
        transaction.commit().await?;
        Ok(Step::Done)
    }

    /// Forgets a topic that has nothing left. A group that was made while its topic was being deleted goes first.
    async fn topics_forget(&self, topic_id: TopicId) -> Result<Step, Error> {
        self.execute(&TOPICS_DROP_GROUPS, &[&topic_id.0]).await?;
        match self.execute(&TOPICS_FORGET, &[&topic_id.0]).await? {
            0 => Ok(Step::NotYet),
            _ => Ok(Step::Done),
        }
    }
}

/// Whether this transaction may change the tables of a partition: nobody else makes or drops some.
async fn is_ours(transaction: &Transaction<'_>, partition_id: PartitionId) -> Result<bool, Error> {
    let locked = transaction.query_opt(&SEGMENTS_TRY_LOCK, &[&partition_id.0], Effect::None).await?;
    Ok(locked.is_some_and(|row| row.get("locked")))
}
