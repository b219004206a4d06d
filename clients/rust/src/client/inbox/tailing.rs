//! Tails: readers without a group, which know where each partition goes on.

use std::collections::BTreeMap;

use super::Inbox;

impl<C> Inbox<C> {
    /// In a tail: where partitions begin.
    pub fn on_tailing(&mut self, partition: u32, next_offset: i64) {
        self.positions.entry(partition).or_insert(next_offset);
    }

    /// In a tail: the broker goes on elsewhere. Behind what is dropped, or back, where the database has lost what was sent.
    pub fn on_moved(&mut self, partition: u32, next_offset: i64) {
        self.positions.insert(partition, next_offset);
    }

    /// In a tail: where partitions go on.
    pub fn positions(&self) -> BTreeMap<u32, i64> {
        self.positions.iter().map(|(partition, next)| (*partition, *next)).collect()
    }

    /// In a tail: what was not read yet is asked for again, from where the reader is.
    pub fn rewind(&mut self) {
        self.accounts.close();
        for queued in self.queue.drain(..).rev() {
            self.positions.insert(queued.place.partition, queued.place.offset);
        }
    }
}
