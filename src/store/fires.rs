//! What is due: looked for, and appended to its partitions by the statement that takes it out of the schedules.
//!
//! Called by the chore that fires schedules; the rows themselves are [`schedules`](super::schedules)'.
//! Locks: partition rows, by id. Order: the locks, then what depends on them, with a younger snapshot, in one READ COMMITTED
//! transaction and round trip.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use postgres_types::ToSql;
use tokio_postgres::Row;

use super::connection::{Connection, Params, Pipelined};
use super::error::{Effect, Error};
use super::flush::{LOCKS_LIMIT, stall_for};
use super::locks::{LockMode, NOTHING_PLAIN};
use super::query::query;
use crate::ids::{Offset, PartitionId};
use crate::limits::{FLUSH_PATIENCE, SCHEDULES_PER_FIRE_MAX};

query!(SCHEDULES_LOOK = "schedules_look"[TIMESTAMPTZ, INT8_ARRAY, INT8, INT8_ARRAY]);
query!(SCHEDULES_FIRE = "schedules_fire"[TIMESTAMPTZ, INT8_ARRAY, INT8_ARRAY, INT8]);

/// The transaction's name in the metrics.
const FIRE: &str = "fire";

/// A message that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueRow {
    pub partition_id: PartitionId,
    /// What it counts, and a little more if it is sealed.
    pub bytes: u64,
    /// For how long it has been due.
    pub late: Duration,
}

/// What a look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// On the database clock.
    pub looked_at: Timestamp,
    /// Of all that waits, whether it runs or not.
    pub first_due_at: Option<Timestamp>,
    /// How long until something is due, or until it is worth to look; `None`: nothing is ahead.
    pub first_in: Option<Duration>,
    /// What is due where it runs and nobody is at work, in the order of due times; about as much as was asked for.
    pub due: Vec<DueRow>,
    /// Those partitions of them whose topics have limits, with the names of the topics.
    pub limited: Vec<(PartitionId, String)>,
}

/// What a fire takes: from some partitions the first messages, as far as their bytes go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Portion {
    /// With how many messages of each, at most.
    pub partitions: BTreeMap<PartitionId, u64>,
    /// Of all together, at most.
    pub bytes: u64,
}

impl Portion {
    /// The first of these rows that go together: so many, and so many bytes; the first one whatever its size.
    pub fn first_of(rows: &[DueRow], messages_max: u64, bytes_max: u64) -> Self {
        let mut portion = Self::default();
        for row in rows.iter().take(usize::try_from(messages_max).unwrap_or(usize::MAX)) {
            if !portion.partitions.is_empty() && portion.bytes.saturating_add(row.bytes) > bytes_max {
                break;
            }
            *portion.partitions.entry(row.partition_id).or_default() += 1;
            portion.bytes = portion.bytes.saturating_add(row.bytes);
        }
        portion
    }

    pub fn messages(&self) -> u64 {
        self.partitions.values().sum()
    }
}

/// What was appended to one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    pub partition_id: PartitionId,
    pub next_offset: Offset,
    pub messages: u64,
    pub bytes: u64,
    /// How late each message was.
    pub lateness: Vec<Duration>,
}

/// What became of a fire.
#[derive(Debug)]
pub enum FireOutcome {
    Committed(Vec<Fired>),
    NothingHappened(Error),
    Unknown(Error),
}

impl Connection {
    /// What is due now, and when to look again. Nothing that waits is due before `from`.
    /// `held`: partitions that have to wait, of topics that are full for one.
    pub async fn schedules_look(
        &self,
        from: Timestamp,
        busy: &[PartitionId],
        held: &[PartitionId],
    ) -> Result<Look, Error> {
        let [busy, held] = [busy, held]
            .map(|partitions| partitions.iter().map(|partition_id| partition_id.0).collect::<Vec<i64>>());
        let params: Params<'_> = &[&from, &busy, &SCHEDULES_PER_FIRE_MAX, &held];
        let rows = self.query(&SCHEDULES_LOOK, params, Effect::None).await?;
        let row = rows.first().ok_or_else(|| Error::Unavailable { reason: "a look has no answer".into() })?;
        let first_in_us: Option<i64> = row.get("first_in_us");
        let (partitions, bytes): (Vec<i64>, Vec<i64>) = (row.get("due_partition_ids"), row.get("due_bytes"));
        let late_us: Vec<i64> = row.get("due_late_us");
        let due = partitions.into_iter().zip(bytes).zip(late_us);
        let limited: Vec<i64> = row.get("limited_partition_ids");
        let topics: Vec<String> = row.get("limited_topics");
        Ok(Look {
            looked_at: row.get("looked_at"),
            first_due_at: row.get("first_due_at"),
            first_in: first_in_us.map(micros),
            due: due
                .map(|((partition_id, bytes), late_us)| DueRow {
                    partition_id: PartitionId(partition_id),
                    bytes: bytes.unsigned_abs(),
                    late: micros(late_us),
                })
                .collect(),
            limited: limited.into_iter().map(PartitionId).zip(topics).collect(),
        })
    }

    /// Appends what is due to those of the partitions that nobody else holds, and takes it out of the schedules. `mode`: whether it
    /// waits for those that somebody does; for too long, and the fire is contended.
    ///
    /// Cancel safety: none. Dropped half-way, the outcome is unknown and the connection is not used again.
    pub async fn schedules_fire(&self, from: Timestamp, portion: &Portion, mode: LockMode) -> FireOutcome {
        let partition_ids: Vec<i64> = portion.partitions.keys().map(|partition_id| partition_id.0).collect();
        let bigint = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let messages: Vec<i64> = portion.partitions.values().copied().map(bigint).collect();
        let bytes = bigint(portion.bytes);
        // What was written down before its topic was encrypted is moved as it is.
        let locks: [&(dyn ToSql + Sync); 2] = [&partition_ids, &NOTHING_PLAIN];
        let fire: [&(dyn ToSql + Sync); 4] = [&from, &partition_ids, &messages, &bytes];
        let patience = format!("{}ms", FLUSH_PATIENCE.as_millis());
        let patience: [&(dyn ToSql + Sync); 1] = [&patience];
        let mut statements = vec![(mode.query(), &locks[..]), (&SCHEDULES_FIRE, &fire[..])];
        if mode == LockMode::Queue {
            statements.insert(0, (&LOCKS_LIMIT, &patience));
        }
        match self.pipeline(FIRE, stall_for(bytes), &statements).await {
            Pipelined::Committed(mut rows) => {
                FireOutcome::Committed(rows.pop().iter().flatten().map(fired).collect())
            }
            Pipelined::NothingHappened(error) => FireOutcome::NothingHappened(error),
            Pipelined::Unknown(error) => FireOutcome::Unknown(error),
        }
    }
}

fn fired(row: &Row) -> Fired {
    let (first_offset, messages): (i64, i32) = (row.get("first_offset"), row.get("messages"));
    let late_us: Vec<i64> = row.get("late_us");
    Fired {
        partition_id: PartitionId(row.get("partition_id")),
        next_offset: Offset(first_offset + i64::from(messages)),
        messages: messages as u64,
        bytes: row.get::<_, i64>("bytes") as u64,
        lateness: late_us.into_iter().map(micros).collect(),
    }
}

fn micros(us: i64) -> Duration {
    Duration::from_micros(us.max(0) as u64)
}
