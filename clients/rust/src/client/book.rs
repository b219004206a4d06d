//! What was delivered of one lane in one round, and what of it is done: turns single acks into few frames. Pure.
//!
//! Acks may come in any order. What is done without a gap from the start is told as `next`, the rest as ranges, each once.
//! Invariant: `next` never passes a message of the round that is not done.

use std::collections::VecDeque;

use crate::wire::OffsetRange;

/// How far a delivered message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    Done,
    Told,
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
    entries: VecDeque<(i64, Mark)>,
    /// Done since the last tally.
    fresh: usize,
}

impl Book {
    /// A message was delivered.
    pub fn deliver(&mut self, offset: i64) {
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < offset));
        self.entries.push_back((offset, Mark::Open));
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
        while let Some((_, Mark::Told)) = self.entries.front() {
            self.entries.pop_front();
        }
    }

    /// Whether a message was delivered in this round and is not done.
    pub fn is_open(&self, offset: i64) -> bool {
        self.place_of(offset).is_some_and(|index| self.entries[index].1 == Mark::Open)
    }

    /// Marks a message that is not done. False: it is not open.
    fn mark_open(&mut self, offset: i64, mark: Mark) -> bool {
        match self.place_of(offset) {
            Some(index) if self.entries[index].1 == Mark::Open => {
                self.entries[index].1 = mark;
                true
            }
            Some(_) | None => false,
        }
    }

    fn place_of(&self, offset: i64) -> Option<usize> {
        self.entries.binary_search_by_key(&offset, |(offset, _)| *offset).ok()
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
        while let Some((offset, Mark::Done | Mark::Told)) = self.entries.front().copied() {
            tally.next = Some(offset + 1);
            self.entries.pop_front();
        }
        for (offset, mark) in self.entries.iter_mut().filter(|(_, mark)| *mark == Mark::Done) {
            *mark = Mark::Told;
            match tally.ranges.last_mut() {
                Some(last) if last.to == *offset => last.to += 1,
                Some(_) | None => tally.ranges.push(OffsetRange { from: *offset, to: *offset + 1 }),
            }
        }
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
            all.iter().for_each(|offset| book.deliver(*offset));
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
        (0..10).for_each(|offset| book.deliver(offset));
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
    fn what_a_step_has_acknowledged_is_not_told_and_holds_nothing_up() {
        let mut book = Book::default();
        (0..5).for_each(|offset| book.deliver(offset));
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
