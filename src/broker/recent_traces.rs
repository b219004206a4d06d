//! The traces of messages that were read from the segments lately: what a session works off is named as a cause soon after.
//!
//! It may forget at any time, the oldest reads first; who asks then reads again. Invariant: what it knows was read in this era.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ids::{Offset, PartitionId, TraceId};
use crate::limits::RECENT_TRACES_MAX;
use crate::store::messages::Message;
use crate::store::timeline::Era;

/// Where a read began.
type Start = (PartitionId, Offset);

#[derive(Debug, Default)]
struct Reads {
    era: Era,
    /// Traces of messages that stand together, by where they begin.
    traces: BTreeMap<Start, Box<[TraceId]>>,
    /// The oldest first.
    order: VecDeque<Start>,
    /// Messages of all of them.
    messages: usize,
}

/// What is remembered. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct RecentTraces {
    reads: Arc<Mutex<Reads>>,
}

impl RecentTraces {
    /// Remembers contiguous messages of a partition.
    pub fn remember(&self, partition_id: PartitionId, messages: &[Message], era: Era) {
        let Some(first) = messages.first() else { return };
        debug_assert!(messages.windows(2).all(|pair| pair[0].offset.plus(1) == pair[1].offset));
        let traces = messages.iter().map(|message| message.trace_id).collect();
        self.reads.lock().add((partition_id, first.offset), traces, era);
    }

    /// The traces of those messages that it knows.
    pub fn find(&self, partition_id: PartitionId, offsets: &[Offset], era: Era) -> HashMap<Offset, TraceId> {
        let reads = self.reads.lock();
        if reads.era != era {
            return HashMap::new();
        }
        offsets.iter().filter_map(|offset| Some((*offset, reads.find(partition_id, *offset)?))).collect()
    }
}

impl Reads {
    fn add(&mut self, start: Start, traces: Box<[TraceId]>, era: Era) {
        if self.era != era {
            *self = Self { era, ..Self::default() };
        }
        self.messages += traces.len();
        match self.traces.insert(start, traces) {
            Some(before) => self.messages -= before.len(), // and it keeps its place in the order
            None => self.order.push_back(start),
        }
        while self.messages > RECENT_TRACES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.messages -= self.traces.remove(&oldest).map_or(0, |traces| traces.len());
        }
    }

    /// Reads may overlap: only the one that begins last before the message is looked at.
    fn find(&self, partition_id: PartitionId, offset: Offset) -> Option<TraceId> {
        let upto = (partition_id, offset);
        let (start, traces) = self.traces.range(..=upto).next_back()?;
        let place = usize::try_from(offset.0 - start.1.0).ok()?;
        traces.get(place).copied().filter(|_| start.0 == partition_id)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn traces(from: u128, count: usize) -> Box<[TraceId]> {
        (0..count as u128).map(|number| TraceId(Uuid::from_u128(from + number))).collect()
    }

    fn known(reads: &Reads, partition: i64, offset: i64) -> Option<u128> {
        reads.find(PartitionId(partition), Offset(offset)).map(|trace_id| trace_id.0.as_u128())
    }

    #[test]
    fn what_was_read_is_known_by_its_place_and_nothing_else_is() {
        let (mut reads, era) = (Reads::default(), Era::default());
        reads.add((PartitionId(1), Offset(10)), traces(100, 5), era);
        reads.add((PartitionId(2), Offset(0)), traces(200, 2), era);
        let asked = [(1, 9), (1, 10), (1, 14), (1, 15), (2, 1), (2, 10), (3, 0)];
        let found = asked.map(|(partition, offset)| known(&reads, partition, offset));
        assert_eq!(found, [None, Some(100), Some(104), None, Some(201), None, None]);
    }

    #[test]
    fn the_oldest_reads_are_forgotten_first_and_a_read_that_is_repeated_counts_once() {
        let (mut reads, era) = (Reads::default(), Era::default());
        let half = RECENT_TRACES_MAX / 2;
        for _ in 0..3 {
            reads.add((PartitionId(1), Offset(0)), traces(0, half), era);
        }
        reads.add((PartitionId(2), Offset(0)), traces(0, half), era);
        assert_eq!((known(&reads, 1, 0), known(&reads, 2, 0)), (Some(0), Some(0)));
        reads.add((PartitionId(3), Offset(0)), traces(7, 1), era);
        assert_eq!((known(&reads, 1, 0), known(&reads, 2, 0), known(&reads, 3, 0)), (None, Some(0), Some(7)));
        assert_eq!((reads.messages, reads.order.len(), reads.traces.len()), (half + 1, 2, 2));
    }
}
