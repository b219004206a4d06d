//! What a tail remembers of what it has sent: some messages, by which it finds out how much of that the database still has.
//!
//! Histories that differ are the same up to a point. So the newest mark that is still there is a place where a tail can go on
//! without skipping anything. Many marks of late, few of long ago: the end is what a lost timeline has lost.

use jiff::Timestamp;

use super::reader::{ReadError, Reader};
use crate::ids::{Offset, PartitionId, TraceId};
use crate::limits::TAIL_MARKS_MAX;
use crate::store::messages::{Message, ReadLimit};

/// One message, whatever its size.
const ONE: ReadLimit = ReadLimit { messages: 1, bytes: 1 };

/// A message that was sent, as far as it takes to know it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub offset: Offset,
    published_at: Timestamp,
    trace_id: TraceId,
}

impl Mark {
    pub fn of(message: &Message) -> Self {
        Self { offset: message.offset, published_at: message.published_at, trace_id: message.trace_id }
    }
}

/// Marks in the order of their offsets.
#[derive(Debug, Default)]
pub struct Marks {
    marks: Vec<Mark>,
}

impl Marks {
    /// Remembers a message that was sent after all others. When there are too many, every second of the older half goes.
    pub fn add(&mut self, mark: Mark) {
        self.marks.push(mark);
        if self.marks.len() > TAIL_MARKS_MAX {
            let newer = self.marks.split_off(TAIL_MARKS_MAX / 2);
            self.marks = self.marks.iter().copied().step_by(2).chain(newer).collect();
        }
    }

    /// Where to go on instead of `next`: behind the newest message that was sent and is still there, as it was.
    pub async fn find_place(
        &mut self,
        reader: &Reader,
        partition_id: PartitionId,
        next: Offset,
    ) -> Result<Offset, ReadError> {
        while let Some(mark) = self.marks.last().copied() {
            let there = message_at(reader, partition_id, mark.offset).await?;
            if there.as_ref().map(Mark::of) == Some(mark) {
                return Ok(mark.offset.plus(1));
            }
            self.marks.pop();
        }
        // Nothing was sent, or nothing of it is left: not beyond the end.
        let last = reader.read_back(partition_id, Offset(i64::MAX), ONE).await?;
        Ok(next.min(last.first().map_or(Offset::ZERO, |last| last.offset.plus(1))))
    }
}

async fn message_at(
    reader: &Reader,
    partition_id: PartitionId,
    offset: Offset,
) -> Result<Option<Message>, ReadError> {
    match reader.read(partition_id, offset, ONE).await {
        Ok(messages) => Ok(messages.into_iter().next()),
        Err(ReadError::OutOfRange { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(offset: i64) -> Mark {
        Mark {
            offset: Offset(offset),
            published_at: Timestamp::UNIX_EPOCH,
            trace_id: TraceId(uuid::Uuid::nil()),
        }
    }

    #[test]
    fn the_newest_marks_are_all_kept_and_the_oldest_one_too() {
        let mut marks = Marks::default();
        (0..10_000).for_each(|offset| marks.add(mark(offset)));
        assert!(marks.marks.len() <= TAIL_MARKS_MAX);
        assert_eq!(marks.marks[0], mark(0));
        assert!(marks.marks.is_sorted_by_key(|mark| mark.offset));
        for expected in (9_990..10_000).rev() {
            assert_eq!(marks.marks.pop(), Some(mark(expected)));
        }
    }
}
