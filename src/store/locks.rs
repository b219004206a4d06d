//! The locks of partitions, which whoever changes one holds, and whom of them they keep out.
//!
//! A partition may be locked and still take nothing: its topic is paused, or is encrypted and what is to be written is not sealed.
//! That is decided in the statement that locks, by the row that it locks, so that no memory of a broker can be too old for it.
//! Locks: partition rows, by id.

use tokio_postgres::Row;
use uuid::Uuid;

use super::query::{Query, query};
use crate::ids::PartitionId;

query!(PARTITIONS_LOCK = "partitions_lock"[INT8_ARRAY, INT8_ARRAY]);
query!(PARTITIONS_LOCK_WAITING = "partitions_lock_waiting"[INT8_ARRAY, INT8_ARRAY]);

/// For locks under which no new message is written as it is.
pub(super) static NOTHING_PLAIN: Vec<i64> = Vec::new();

/// What to do about a partition that somebody else has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Leave it out; its neighbours must not wait.
    Skip,
    /// Wait for it with the others of this flush, but not for long.
    Queue,
    /// Wait for it; it is alone in this flush.
    Wait,
}

impl LockMode {
    pub(super) fn query(self) -> &'static Query {
        match self {
            LockMode::Skip => &PARTITIONS_LOCK,
            LockMode::Queue | LockMode::Wait => &PARTITIONS_LOCK_WAITING,
        }
    }
}

/// Partitions that were locked and get nothing of what is to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Their topics take nothing now.
    pub paused: Vec<PartitionId>,
    /// Their topics are encrypted, and something is not sealed.
    pub unsealed: Vec<PartitionId>,
}

impl Refused {
    /// By the answer of the statement that locks.
    pub(super) fn of(locked: &[Row]) -> Self {
        let named = |name| {
            let ids: Vec<i64> = locked.first().map(|row| row.get(name)).unwrap_or_default();
            ids.into_iter().map(PartitionId).collect()
        };
        Self { paused: named("paused"), unsealed: named("unsealed") }
    }

    pub fn is_empty(&self) -> bool {
        self.paused.is_empty() && self.unsealed.is_empty()
    }
}

/// The partitions of some batches, counted from 1, that are to get a message as it is.
pub(super) fn plain(partition_ids: &[i64], batches: &[i32], data_key_ids: &[Option<Uuid>]) -> Vec<i64> {
    let plain = batches.iter().zip(data_key_ids).filter(|(_, id)| id.is_none());
    let mut plain: Vec<i64> = plain.map(|(batch, _)| partition_ids[*batch as usize - 1]).collect();
    plain.dedup();
    plain
}
