//! Tables ahead of need, for the partitions that steps write to. Pure, apart from asking.
//!
//! What is remembered may be behind: others write to the same partitions. A table that is missing all the same is found by the
//! flush, and asked for then.

use std::collections::HashMap;

use super::StepUnit;
use crate::broker::appender::coverage::{Coverage, Growth};
use crate::ids::{Offset, PartitionId};

/// Partitions that need tables for this many messages.
pub(super) type Wanted = (PartitionId, usize);

/// What is known about the tables of partitions.
#[derive(Debug, Default)]
pub(super) struct Tables {
    partitions: HashMap<PartitionId, Coverage>,
    wanted: Vec<Wanted>,
}

impl Tables {
    /// Whether tables exist for all messages of a step behind those that a flush takes already, as far as is known. What even an
    /// empty flush has no tables for is wanted from now on. `taken`: messages of the flush, by partition; the step's join them.
    pub fn cover(&mut self, units: &[StepUnit], taken: &mut HashMap<PartitionId, usize>) -> bool {
        let mut with = taken.clone();
        let mut covered = true;
        for unit in units {
            let messages = with.entry(unit.partition_id).or_default();
            *messages += unit.messages.len();
            let is_first = !taken.contains_key(&unit.partition_id);
            let coverage = self.partitions.entry(unit.partition_id).or_insert(Coverage::Unknown);
            match *coverage {
                Coverage::Known { next, end, .. } if next.0 + *messages as i64 <= end.0 => {}
                Coverage::Unknown | Coverage::Known { growth: Growth::Idle, .. } if is_first => {
                    *coverage = Coverage::Asked;
                    self.wanted.push((unit.partition_id, *messages));
                    covered = false;
                }
                Coverage::Unknown | Coverage::Asked | Coverage::Known { .. } => covered = false,
            }
        }
        if covered {
            *taken = with;
        }
        covered
    }

    /// What has to be asked for since the last time.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    /// A batch was written; if the last segment has begun, the next one is wanted.
    pub fn wrote(&mut self, partition_id: PartitionId, next_offset: Offset) {
        let Some(Coverage::Known { next, ahead_from, growth, .. }) = self.partitions.get_mut(&partition_id)
        else {
            return;
        };
        *next = next_offset.max(*next);
        if *growth == Growth::Idle && *next >= *ahead_from {
            *growth = Growth::UnderWay;
            self.wanted.push((partition_id, 1));
        }
    }

    /// Tables were made, or not: then it is tried anew when they are wanted again.
    pub fn covered(&mut self, partition_id: PartitionId, coverage: Option<Coverage>) {
        self.partitions.insert(partition_id, coverage.unwrap_or(Coverage::Unknown));
    }

    /// A table was missing: what is remembered about these partitions is wrong, unless a question is under way.
    pub fn disproved(&mut self, partitions: impl Iterator<Item = PartitionId>) {
        for partition_id in partitions {
            let coverage = self.partitions.entry(partition_id).or_insert(Coverage::Unknown);
            if let Coverage::Known { growth, .. } = coverage {
                *coverage = if *growth == Growth::UnderWay { Coverage::Asked } else { Coverage::Unknown };
            }
        }
    }
}
