//! Partitions whose locks others have when something is due there. Pure.
//!
//! A fire leaves out what is locked, because its neighbours must not wait, and mostly whoever has the lock fires the same. But a
//! partition that is written to without a pause is hardly ever free at the moment of a try: once its messages are late, a fire of that
//! partition alone queues for the lock, for a bounded time, and is let in when the writer before it has committed. Whoever has
//! waited in vain has met a frozen broker, and leaves the partition out again for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::ids::PartitionId;
use crate::limits::{FLUSH_IMPATIENCE, SCHEDULE_LATE_MIN};
use crate::store::fires::DueRow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// Somebody had it at the last try.
    Skipped,
    /// Somebody does not let go.
    Stuck { until: Instant },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Queueing {
    partitions: BTreeMap<PartitionId, Met>,
}

impl Queueing {
    /// Somebody had it.
    pub fn on_skipped(&mut self, partition_id: PartitionId, now: Instant) {
        let met = self.partitions.entry(partition_id).or_insert(Met::Skipped);
        if let Met::Stuck { until } = *met
            && until <= now
        {
            *met = Met::Skipped;
        }
    }

    /// Something of it was appended.
    pub fn on_fired(&mut self, partition_id: PartitionId) {
        self.partitions.remove(&partition_id);
    }

    /// Nobody has let go of it in time.
    pub fn on_waited_in_vain(&mut self, partition_id: PartitionId, now: Instant) {
        self.partitions.insert(partition_id, Met::Stuck { until: now + FLUSH_IMPATIENCE });
    }

    /// Of what is due, in the order of due times, the partitions to queue for.
    pub fn chosen(&self, due: &[DueRow]) -> BTreeSet<PartitionId> {
        let is_late = |partition_id: &PartitionId| {
            let first = due.iter().find(|row| row.partition_id == *partition_id);
            first.is_some_and(|row| row.late >= SCHEDULE_LATE_MIN)
        };
        let skipped = self.partitions.iter().filter(|(_, met)| **met == Met::Skipped);
        skipped.map(|(partition_id, _)| *partition_id).filter(is_late).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const P: PartitionId = PartitionId(1);

    fn row(partition: i64, late: Duration) -> DueRow {
        DueRow { partition_id: PartitionId(partition), bytes: 1, late }
    }

    #[test]
    fn what_is_late_and_was_locked_is_queued_for_until_nobody_lets_go() {
        let (mut queueing, now) = (Queueing::default(), Instant::now());
        let late = [row(1, SCHEDULE_LATE_MIN), row(2, SCHEDULE_LATE_MIN), row(1, Duration::ZERO)];
        let in_time = [row(1, SCHEDULE_LATE_MIN / 2)];
        assert_eq!(queueing.chosen(&late), [].into(), "nobody had it");
        queueing.on_skipped(P, now);
        assert_eq!(queueing.chosen(&in_time), [].into(), "others fire it");
        assert_eq!(queueing.chosen(&late), [P].into());
        queueing.on_waited_in_vain(P, now);
        queueing.on_skipped(P, now);
        assert_eq!(queueing.chosen(&late), [].into());
        queueing.on_skipped(P, now + FLUSH_IMPATIENCE);
        assert_eq!(queueing.chosen(&late), [P].into());
        queueing.on_fired(P);
        assert_eq!(queueing.chosen(&late), [].into());
    }
}
