//! What one appender remembers of the partitions that it writes: where each stood after its last flush here, and how far each
//! producer had come by then. Pure.
//!
//! Why: a producer's last sequence is looked up in the database for each partition of each flush, which with many partitions was a
//! third of a flush. If a partition still stands where this appender has left it, nobody else has written to it since, and what
//! is remembered is what a look-up would find. The flush compares under the lock; memory never decides alone.
//! Invariant: forgets everything with its connection, because what was in doubt may have been written.

use std::collections::HashMap;
use std::ops::Range;

use crate::ids::{Offset, PartitionId, ProducerId, Sequence};
use crate::limits::{REMEMBERED_PARTITIONS_MAX, REMEMBERED_PRODUCERS_MAX};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Memory {
    partitions: HashMap<PartitionId, Remembered>,
}

#[derive(Debug)]
struct Remembered {
    next_offset: Offset,
    /// What each producer sends next; the one that was heard of last comes last.
    producers: Vec<(ProducerId, Sequence)>,
}

/// What there was to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgotten {
    Nothing,
    Something,
}

impl Memory {
    /// Where the partition stands if the producer goes on with this sequence; absent if that has to be looked up.
    pub fn known(
        &self,
        partition_id: PartitionId,
        producer_id: ProducerId,
        first: Sequence,
    ) -> Option<Offset> {
        let remembered = self.partitions.get(&partition_id)?;
        remembered.producers.contains(&(producer_id, first)).then_some(remembered.next_offset)
    }

    /// A batch was written here: from which offset to which, and what its producers send next.
    pub fn on_stored(
        &mut self,
        partition_id: PartitionId,
        offsets: Range<Offset>,
        producers: impl IntoIterator<Item = (ProducerId, Sequence)>,
    ) {
        if self.partitions.len() >= REMEMBERED_PARTITIONS_MAX && !self.partitions.contains_key(&partition_id)
        {
            self.forget();
        }
        let remembered = self
            .partitions
            .entry(partition_id)
            .or_insert_with(|| Remembered { next_offset: offsets.start, producers: Vec::new() });
        if remembered.next_offset != offsets.start {
            remembered.producers.clear(); // somebody else has written since
        }
        remembered.next_offset = offsets.end;
        for (producer_id, next) in producers {
            remembered.producers.retain(|(other, _)| *other != producer_id);
            remembered.producers.push((producer_id, next));
        }
        let surplus = remembered.producers.len().saturating_sub(REMEMBERED_PRODUCERS_MAX);
        remembered.producers.drain(..surplus);
    }

    pub fn forget(&mut self) -> Forgotten {
        let was_empty = self.partitions.is_empty();
        self.partitions.clear();
        if was_empty { Forgotten::Nothing } else { Forgotten::Something }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const HERE: PartitionId = PartitionId(7);

    fn next(producer: u128, sequence: i64) -> (ProducerId, Sequence) {
        (ProducerId(Uuid::from_u128(producer)), Sequence(sequence))
    }

    fn known(memory: &Memory, producer: u128, first: i64) -> Option<i64> {
        let (producer_id, first) = next(producer, first);
        memory.known(HERE, producer_id, first).map(|offset| offset.0)
    }

    #[test]
    fn what_was_written_here_need_not_be_looked_up_while_nobody_else_writes() {
        let mut memory = Memory::default();
        memory.on_stored(HERE, Offset(10)..Offset(15), [next(1, 3), next(2, 6), next(1, 4)]);
        assert_eq!((known(&memory, 1, 4), known(&memory, 2, 6)), (Some(15), Some(15)));
        assert_eq!((known(&memory, 1, 3), known(&memory, 3, 0)), (None, None), "a repetition, a stranger");
        memory.on_stored(HERE, Offset(15)..Offset(16), [next(2, 7)]);
        assert_eq!(known(&memory, 1, 4), Some(16), "its neighbour has written here, too");
        memory.on_stored(HERE, Offset(20)..Offset(21), [next(2, 8)]);
        assert_eq!(
            (known(&memory, 1, 4), known(&memory, 2, 8)),
            (None, Some(21)),
            "another broker has written"
        );
        memory.forget();
        assert_eq!(known(&memory, 2, 8), None);
    }

    #[test]
    fn of_many_producers_the_latest_are_remembered() {
        let mut memory = Memory::default();
        let count = REMEMBERED_PRODUCERS_MAX as i64 + 1;
        for place in 0..count {
            memory.on_stored(HERE, Offset(place)..Offset(place + 1), [next(place as u128, 1)]);
        }
        assert_eq!((known(&memory, 0, 1), known(&memory, 1, 1)), (None, Some(count)));
    }
}
