//! What was delivered of one lane in one round, and what of it is done: turns single acks into few frames. Pure.
//!
//! Acks may come in any order. What is done without a gap from the start is told as `next`, the rest as ranges, each once.
//! Invariant: `next` never passes a message of the round that is not done.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::wire::{GroupOrdering, OffsetRange};

/// How far a delivered message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    Done,
    Told,
    /// It comes again, or its key is parked: what is said about it does not count.
    Void,
}

/// A message that was delivered.
#[derive(Debug)]
struct Entry {
    offset: i64,
    mark: Mark,
    /// Kept only if order is kept by key.
    key: Option<Bytes>,
}

/// What one ack frame says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub next: Option<i64>,
    pub ranges: Vec<OffsetRange>,
}

/// One round of one lane.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// In the order of delivery, which is that of offsets.
    entries: VecDeque<Entry>,
    /// Done since the last tally.
    fresh: usize,
    ordering: GroupOrdering,
}

impl Book {
    pub fn new(ordering: GroupOrdering) -> Self {
        Self { ordering, ..Self::default() }
    }

    /// A message was delivered.
    pub fn deliver(&mut self, offset: i64, key: Option<&Bytes>) {
        debug_assert!(self.entries.back().is_none_or(|last| last.offset < offset));
        self.entries.push_back(Entry { offset, mark: Mark::Open, key: key.cloned() });
    }

    /// What is open of a key, from an offset on, does not count any more. Without a key: that message alone.
    pub fn void(&mut self, key: Option<&Bytes>, offset: i64) {
        let from = self.entries.partition_point(|entry| entry.offset < offset);
        for entry in self.entries.range_mut(from..) {
            let is_its = key.map_or(entry.offset == offset, |key| entry.key.as_ref() == Some(key));
            if is_its && entry.mark == Mark::Open {
                entry.mark = Mark::Void;
            }
        }
        self.forget_settled();
    }

    /// Drops what nobody asks for any more from the front.
    fn forget_settled(&mut self) {
        while self.entries.front().is_some_and(|entry| matches!(entry.mark, Mark::Told | Mark::Void)) {
            self.entries.pop_front();
        }
    }

    /// A message is done. False: it was not delivered in this round, or was done before.
    pub fn ack(&mut self, offset: i64) -> bool {
        let is_open = self.mark_open(offset, Mark::Done);
        self.fresh += usize::from(is_open);
        is_open
    }

    /// A step has acknowledged a message: the broker knows, and there is nothing to tell.
    pub fn on_stepped(&mut self, offset: i64) {
        self.mark_open(offset, Mark::Told);
        self.forget_settled();
    }

    /// Whether a message was delivered in this round and is not done.
    pub fn is_open(&self, offset: i64) -> bool {
        self.place_of(offset).is_some_and(|index| self.entries[index].mark == Mark::Open)
    }

    /// Marks a message that is not done. False: it is not open.
    fn mark_open(&mut self, offset: i64, mark: Mark) -> bool {
        match self.place_of(offset) {
            Some(index) if self.entries[index].mark == Mark::Open => {
                self.entries[index].mark = mark;
                true
            }
            Some(_) | None => false,
        }
    }

    fn place_of(&self, offset: i64) -> Option<usize> {
        self.entries.binary_search_by_key(&offset, |entry| entry.offset).ok()
    }

    /// Whether everything that was delivered is done, up to gaps.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many acks wait to be told.
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// What is to be told now, if anything.
    pub fn tally(&mut self) -> Option<Tally> {
        if std::mem::take(&mut self.fresh) == 0 {
            return None;
        }
        let mut tally = Tally::default();
        // By key, what is not of this round may lie below: nothing is said about it.
        while self.ordering == GroupOrdering::Partition
            && let Some(Entry { offset, mark: Mark::Done | Mark::Told, .. }) = self.entries.front()
        {
            tally.next = Some(offset + 1);
            self.entries.pop_front();
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.mark == Mark::Done) {
            entry.mark = Mark::Told;
            match tally.ranges.last_mut() {
                Some(last) if last.to == entry.offset => last.to += 1,
                Some(_) | None => tally.ranges.push(OffsetRange { from: entry.offset, to: entry.offset + 1 }),
            }
        }
        self.forget_settled();
        Some(tally)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What a broker knows after a tally.
    fn learn(known: &mut BTreeSet<i64>, all: &[i64], tally: &Tally) {
        let covered = |offset: &i64| {
            tally.next.is_some_and(|next| *offset < next)
                || tally.ranges.iter().any(|range| range.from <= *offset && *offset < range.to)
        };
        known.extend(all.iter().filter(|offset| covered(offset)));
    }

    proptest! {
        #[test]
        fn tallies_say_exactly_what_was_acked_in_any_order(
            gaps in prop::collection::vec(1..3_i64, 1..40),
            order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..80),
        ) {
            let all: Vec<i64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let mut book = Book::default();
            all.iter().for_each(|offset| book.deliver(*offset, None));
            let (mut acked, mut known) = (BTreeSet::new(), BTreeSet::new());
            for (pick, flush) in order {
                let offset = *pick.get(&all);
                prop_assert_eq!(book.ack(offset), acked.insert(offset));
                if flush && let Some(tally) = book.tally() {
                    learn(&mut known, &all, &tally);
                    prop_assert_eq!(&known, &acked);
                }
            }
            if let Some(tally) = book.tally() {
                learn(&mut known, &all, &tally);
            }
            prop_assert_eq!(&known, &acked);
            prop_assert_eq!(book.tally(), None);
        }
    }

    #[test]
    fn acks_in_order_are_one_number_and_others_are_ranges() {
        let mut book = Book::default();
        (0..10).for_each(|offset| book.deliver(offset, None));
        for offset in [0, 1, 2, 5, 6, 8] {
            assert!(book.ack(offset));
        }
        let ranges = vec![OffsetRange { from: 5, to: 7 }, OffsetRange { from: 8, to: 9 }];
        assert_eq!(book.tally(), Some(Tally { next: Some(3), ranges }));
        assert!(book.ack(3) && book.ack(4));
        assert_eq!(book.tally(), Some(Tally { next: Some(7), ranges: vec![] }));
        assert!(!book.ack(99), "it was never delivered");
    }

    #[test]
    fn by_key_only_single_messages_are_told_and_a_failing_key_is_void_alone() {
        let mut book = Book::new(GroupOrdering::Key);
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        for (offset, key) in [(0, &a), (1, &b), (2, &a), (4, &b)] {
            book.deliver(offset, Some(key));
        }
        assert!(book.ack(1) && book.ack(4));
        let ranges = vec![OffsetRange { from: 1, to: 2 }, OffsetRange { from: 4, to: 5 }];
        assert_eq!(book.tally(), Some(Tally { next: None, ranges }));
        book.void(Some(&a), 2);
        assert!(!book.ack(2), "it is void");
        assert!(book.ack(0), "it lies before the one that failed");
        assert_eq!(book.tally(), Some(Tally { next: None, ranges: vec![OffsetRange { from: 0, to: 1 }] }));
        assert!(book.is_empty());
    }

    #[test]
    fn what_a_step_has_acknowledged_is_not_told_and_holds_nothing_up() {
        let mut book = Book::default();
        (0..5).for_each(|offset| book.deliver(offset, None));
        assert!(book.ack(2));
        book.on_stepped(1);
        assert!(book.is_open(0) && !book.is_open(1) && !book.is_open(2));
        assert!(!book.ack(1), "it is done");
        assert_eq!(book.tally(), Some(Tally { next: None, ranges: vec![OffsetRange { from: 2, to: 3 }] }));
        book.on_stepped(0);
        assert_eq!(book.tally(), None, "the broker knows already that everything up to 2 is done");
        assert!(book.ack(3));
        assert_eq!(book.tally(), Some(Tally { next: Some(4), ranges: vec![] }));
        book.on_stepped(4);
        assert!(book.is_empty());
    }
}
