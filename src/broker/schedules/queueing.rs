//! Partitions whose locks others have when something is due there. Pure.
//!
//! A fire leaves out what is locked, because its neighbours must not wait, and mostly whoever has the lock fires the same. But a
//! partition that is written to without a pause is hardly ever free at the moment of a try: once its messages are late, a fire of that
//! partition alone queues for the lock, for a bounded time, and is let in when the writer before it has committed. Whoever has
//! waited in vain has met a frozen broker, and leaves the partition out again for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::ids::PartitionId;
use crate::limits::{FLUSH_IMPATIENCE, SCHEDULE_LATE_MIN, SCHEDULE_QUEUES_MAX};
use crate::store::fires::DueRow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// Somebody had it at a try before long.
    Skipped { until: Instant },
    /// Somebody does not let go.
    Stuck { until: Instant },
}

/// See the module. Bounded by time: what was met is forgotten after a [`FLUSH_IMPATIENCE`].
#[derive(Debug, Default)]
pub struct Queueing {
    partitions: BTreeMap<PartitionId, Met>,
}

impl Queueing {
    /// Somebody had it.
    pub fn on_skipped(&mut self, partition_id: PartitionId, now: Instant) {
        // What others have fired since is forgotten, too.
        self.partitions.retain(|_, (Met::Skipped { until } | Met::Stuck { until })| *until > now);
        let again = Met::Skipped { until: now + FLUSH_IMPATIENCE };
        let met = self.partitions.entry(partition_id).or_insert(again);
        if matches!(met, Met::Skipped { .. }) {
            *met = again;
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

    /// Of what is due, in the order of due times, the partitions to queue for: a few of them, because each may take its whole patience, and
    /// what is due elsewhere waits meanwhile.
    pub fn chosen(&self, due: &[DueRow]) -> BTreeSet<PartitionId> {
        let mut chosen = BTreeSet::new();
        for row in due.iter().take_while(|row| row.late >= SCHEDULE_LATE_MIN) {
            if chosen.len() >= SCHEDULE_QUEUES_MAX {
                break;
            }
            if matches!(self.partitions.get(&row.partition_id), Some(Met::Skipped { .. })) {
                chosen.insert(row.partition_id);
            }
        }
        chosen
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
        let late = [row(2, SCHEDULE_LATE_MIN), row(1, SCHEDULE_LATE_MIN), row(1, Duration::ZERO)];
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

    #[test]
    fn few_are_queued_for_at_once_and_none_that_was_met_long_ago() {
        let (mut queueing, now) = (Queueing::default(), Instant::now());
        let all = 2 * SCHEDULE_QUEUES_MAX as i64;
        (0..all).for_each(|partition| queueing.on_skipped(PartitionId(partition), now));
        let late: Vec<DueRow> = (0..all).rev().map(|partition| row(partition, SCHEDULE_LATE_MIN)).collect();
        let latest = (all / 2..all).map(PartitionId).collect();
        assert_eq!(queueing.chosen(&late), latest, "those that were due first");
        queueing.on_skipped(PartitionId(all), now + FLUSH_IMPATIENCE);
        assert_eq!(queueing.chosen(&late), [].into(), "somebody else may have fired them since");
        assert_eq!(queueing.partitions.len(), 1);
    }
}
