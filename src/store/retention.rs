//! Retention: dropping whole segments by age, by bytes, and once every group is past them, at a cost that does not depend on
//! how much they hold.
//!
//! Order: the new start is committed, then the table is detached, then dropped. Each step is a transaction of its own and
//! is found again in the catalogue after a crash, by whichever broker looks next. The open segment of a quiet partition is
//! cut and detached in one transaction under the partition's lock, because until then a flush may still write into it.

use super::connection::Transaction;
use super::error::{Effect, Error};
use super::locks::{NOTHING_PLAIN, PARTITIONS_LOCK_WAITING};
use super::query::{query, template};
use super::retention_counts::LetGo;
use super::retention_history::{DropReason, RETENTION_EVENTS_RECORD};
use super::{Connection, Store, retry};
use crate::ids::{Offset, PartitionId, SegmentId};

query!(TRACE_LINKS_TRIM = "trace_links_trim"[INT8, INT8]);
query!(SEGMENTS_EXPIRED = "segments_expired"[]);
query!(SEGMENTS_RETIRE = "segments_retire"[INT8, INT8]);
query!(SEGMENTS_EMPTIED = "segments_emptied"[]);
query!(SEGMENTS_CUT_EMPTIED = "segments_cut_emptied"[INT8, INT8]);
query!(SEGMENTS_CUT = "segments_cut"[INT8, INT8, TEXT]);
query!(SEGMENTS_COMPLETE = "segments_complete"[]);
query!(SEGMENTS_COMPLETED = "segments_completed"[INT8, INT8]);
query!(SEGMENTS_LEAVING = "segments_leaving"[]);
query!(SEGMENTS_DETACHED = "segments_detached"[INT8]);
query!(SEGMENTS_FORGET = "segments_forget"[INT8]);
query!(HEADS_TRIM = "heads_trim"[INT8, INT8]);
template!(SEGMENT_DETACH = "segment_detach"[]);
template!(SEGMENT_DROP = "segment_drop"[]);

/// A segment that retention lets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    pub segment_id: SegmentId,
    pub partition_id: PartitionId,
    pub kind: ExpiredKind,
    pub reason: DropReason,
}

/// How it has to be let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiredKind {
    /// Full: nobody writes to it.
    Sealed,
    /// The one that takes messages, though none has come for the whole retention age, or since all were done.
    Open,
    /// The one that takes messages, of which everything was purged.
    Emptied,
}

/// A segment on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    pub segment_id: SegmentId,
    pub partition_id: PartitionId,
    pub step: LeavingStep,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeavingStep {
    Detach,
    Drop,
}

/// A segment was let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    /// Of its partition, from now on.
    pub start: Offset,
    /// What went with it; zeros: a purge took that before.
    pub messages: u64,
    pub bytes: u64,
}

impl Connection {
    /// What age, bytes and completion let go, oldest first within each partition.
    pub async fn segments_expired(&self) -> Result<Vec<Expired>, Error> {
        let rows = self.query(&SEGMENTS_EXPIRED, &[], Effect::None).await?;
        let expired = |row: &tokio_postgres::Row| Expired {
            segment_id: SegmentId(row.get("segment_id")),
            partition_id: PartitionId(row.get("partition_id")),
            kind: if row.get("sealed") { ExpiredKind::Sealed } else { ExpiredKind::Open },
            reason: DropReason::parse(row.get("reason")).expect("the query knows the same reasons"),
        };
        Ok(rows.iter().map(expired).collect())
    }

    /// Open segments of which everything was purged.
    async fn segments_emptied(&self) -> Result<Vec<Expired>, Error> {
        let rows = self.query(&SEGMENTS_EMPTIED, &[], Effect::None).await?;
        let emptied = |row: &tokio_postgres::Row| Expired {
            segment_id: SegmentId(row.get("segment_id")),
            partition_id: PartitionId(row.get("partition_id")),
            kind: ExpiredKind::Emptied,
            reason: DropReason::Purged,
        };
        Ok(rows.iter().map(emptied).collect())
    }

    /// Moves the start of the partition past a segment; `None`: it is not its turn (any more).
    pub async fn segments_retire(&mut self, expired: Expired) -> Result<Option<Retired>, Error> {
        match expired.kind {
            ExpiredKind::Sealed => self.retire_sealed(expired).await,
            ExpiredKind::Open | ExpiredKind::Emptied => self.retire_open(expired).await,
        }
    }

    /// Drops what only points at messages below a start.
    async fn segments_trim(&self, partition_id: PartitionId, start: Offset) -> Result<(), Error> {
        self.execute(&HEADS_TRIM, &[&partition_id.0, &start.0]).await?;
        self.execute(&TRACE_LINKS_TRIM, &[&partition_id.0, &start.0]).await?;
        Ok(())
    }

    async fn retire_sealed(&mut self, expired: Expired) -> Result<Option<Retired>, Error> {
        let transaction = self.begin().await?;
        let retired = move_start(&transaction, expired).await?;
        transaction.commit().await?;
        Ok(retired)
    }

    async fn retire_open(&mut self, expired: Expired) -> Result<Option<Retired>, Error> {
        let transaction = self.begin().await?;
        let retired = move_start(&transaction, expired).await?;
        if retired.is_some() {
            transaction.run(&SEGMENT_DETACH, &integers(expired.partition_id, expired.segment_id)).await?;
        }
        transaction.commit().await?;
        Ok(retired)
    }

    /// The segments on their way out.
    pub async fn segments_leaving(&self) -> Result<Vec<Leaving>, Error> {
        let rows = self.query(&SEGMENTS_LEAVING, &[], Effect::None).await?;
        let leaving = |row: &tokio_postgres::Row| Leaving {
            segment_id: SegmentId(row.get("segment_id")),
            partition_id: PartitionId(row.get("partition_id")),
            step: if row.get("attached") { LeavingStep::Detach } else { LeavingStep::Drop },
        };
        Ok(rows.iter().map(leaving).collect())
    }

    /// Takes a segment one step further; losing the race to another broker is fine.
    pub async fn segments_leave(&mut self, leaving: Leaving) -> Result<(), Error> {
        let (query, template) = match leaving.step {
            LeavingStep::Detach => (&SEGMENTS_DETACHED, &SEGMENT_DETACH),
            LeavingStep::Drop => (&SEGMENTS_FORGET, &SEGMENT_DROP),
        };
        let transaction = self.begin().await?;
        if transaction.execute(query, &[&leaving.segment_id.0]).await? == 1 {
            transaction.run(template, &integers(leaving.partition_id, leaving.segment_id)).await?;
        }
        transaction.commit().await
    }
}

/// Order: the lock in a statement of its own, so that the next ones see everything that was published before it.
async fn move_start(transaction: &Transaction<'_>, expired: Expired) -> Result<Option<Retired>, Error> {
    let Expired { partition_id, segment_id, kind, reason } = expired;
    let locks: super::connection::Params<'_> = &[&vec![partition_id.0], &NOTHING_PLAIN];
    transaction.query(&PARTITIONS_LOCK_WAITING, locks, Effect::None).await?;
    let place: super::connection::Params<'_> = &[&partition_id.0, &segment_id.0];
    if reason == DropReason::Completed
        && transaction.query_opt(&SEGMENTS_COMPLETED, place, Effect::None).await?.is_none()
    {
        return Ok(None); // a group has come or moved back, or a message was published
    }
    let reason = reason.as_str();
    let row = match kind {
        ExpiredKind::Sealed => transaction.query_opt(&SEGMENTS_RETIRE, place, Effect::Possible).await?,
        ExpiredKind::Open => {
            let params: super::connection::Params<'_> = &[&partition_id.0, &segment_id.0, &reason];
            transaction.query_opt(&SEGMENTS_CUT, params, Effect::Possible).await?
        }
        // Its purge has moved the start, and stands in the history.
        ExpiredKind::Emptied => {
            let row = transaction.query_opt(&SEGMENTS_CUT_EMPTIED, place, Effect::Possible).await?;
            let start = |row: tokio_postgres::Row| Offset(row.get("start_offset"));
            return Ok(row.map(|row| Retired { start: start(row), messages: 0, bytes: 0 }));
        }
    };
    let Some(row) = row else { return Ok(None) };
    let (start, from, bytes): (i64, i64, i64) =
        (row.get("start_offset"), row.get("from_offset"), row.get("bytes"));
    if from < start {
        // Otherwise a purge went so far before, and that stands in the history.
        transaction
            .execute(&RETENTION_EVENTS_RECORD, &[&partition_id.0, &reason, &from, &start, &bytes])
            .await?;
    }
    let count = |count: i64| u64::try_from(count).unwrap_or(0); // none, if a purge was there first
    Ok(Some(Retired { start: Offset(start), messages: count(start - from), bytes: count(bytes) }))
}

fn integers(partition_id: PartitionId, segment_id: SegmentId) -> [(&'static str, i64); 2] {
    [("partition_id", partition_id.0), ("segment_id", segment_id.0)]
}

impl Store {
    /// One pass of retention: retires what expired, then detaches and drops whatever is on its way out.
    /// Returns how many segments were retired. What somebody keeps locked is left for the next pass.
    pub async fn retention_pass(&self) -> Result<usize, Error> {
        let mut retired = 0;
        let marked = retry::contended(retry::Policy::CONTENDED, || async {
            self.upkeep_connection().await?.execute(&SEGMENTS_COMPLETE, &[]).await
        });
        or_later(marked.await)?;
        // A list of its own: in the head of the loop its connection would be held for as long as the loop runs.
        let mut all_expired = self.upkeep_connection().await?.segments_expired().await?;
        all_expired.extend(self.upkeep_connection().await?.segments_emptied().await?);
        for expired in all_expired {
            let gone = retry::contended(retry::Policy::DDL_LATER, || async {
                self.upkeep_connection().await?.segments_retire(expired).await
            });
            let Some(Retired { start, messages, bytes }) = or_later(gone.await)?.flatten() else { continue };
            retired += 1;
            let (partition_id, reason) = (expired.partition_id, expired.reason);
            self.let_go.on_let_go(reason, LetGo { segments: 1, messages, bytes });
            tracing::info!(
                partition = %partition_id, start_offset = %start, reason = reason.as_str(), "segment retired"
            );
            let trimmed = retry::contended(retry::Policy::DDL_LATER, || async {
                self.upkeep_connection().await?.segments_trim(partition_id, start).await
            });
            or_later(trimmed.await)?;
        }
        self.segments_let_go().await?;
        let dropped = retry::contended(retry::Policy::DDL_LATER, || async {
            self.upkeep_connection().await?.trace_cuts_drop().await
        });
        or_later(dropped.await)?;
        Ok(retired)
    }

    /// Detaches and drops the segments on their way out.
    pub(super) async fn segments_let_go(&self) -> Result<(), Error> {
        // Twice: what is detached in the first round is dropped in the second.
        for _ in 0..2 {
            let all_leaving = self.upkeep_connection().await?.segments_leaving().await?;
            for leaving in all_leaving {
                let left = retry::contended(retry::Policy::DDL_LATER, || async {
                    self.upkeep_connection().await?.segments_leave(leaving).await
                });
                or_later(left.await)?;
            }
        }
        Ok(())
    }
}

/// `None`: somebody keeps it locked, and one such segment must not hold up the others.
pub(super) fn or_later<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ Error::Contended { .. }) => {
            tracing::debug!(%error, "left for the next pass of retention");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
