//! Messages that were copied aside after they were sent. Pure.
//!
//! Whoever was sent them may still say that they are done, or have failed. That does not count, and must not be confirmed as if they
//! were done: they come again.

use std::collections::BTreeMap;

use crate::ids::Offset;
use crate::limits::LANE_UNDONE_MAX;

/// See the module. Bounded: of more, those with the lowest offsets are forgotten.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Voided {
    /// The first and the last round that each was sent in.
    rounds: BTreeMap<Offset, (u32, u32)>,
}

impl Voided {
    /// It was sent in these rounds last; none of them: it never was.
    pub fn insert(&mut self, offset: Offset, rounds: (u32, u32)) {
        if rounds == (0, 0) {
            return;
        }
        self.rounds.insert(offset, rounds);
        while self.rounds.len() > LANE_UNDONE_MAX {
            self.rounds.pop_first();
        }
    }

    /// These are done after all.
    pub fn remove_in(&mut self, from: Offset, to: Offset) {
        let done: Vec<Offset> = self.rounds.range(from..to.max(from)).map(|(offset, _)| *offset).collect();
        for offset in done {
            self.rounds.remove(&offset);
        }
    }

    /// The first of `[from, to)` about which nothing that is said in a round counts.
    pub fn first_in(&self, from: Offset, to: Offset, round: u32) -> Option<Offset> {
        let mut those = self.rounds.range(from..to.max(from));
        those.find(|(_, (_, last))| round <= *last).map(|(offset, _)| *offset)
    }

    /// The first below an offset that was sent in a round, as far as is remembered.
    pub fn first_sent_in(&self, below: Offset, round: u32) -> Option<Offset> {
        let mut those = self.rounds.range(..below);
        those.find(|(_, (first, last))| [*first, *last].contains(&round)).map(|(offset, _)| *offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes_first() {
        let mut voided = Voided::default();
        (0..=LANE_UNDONE_MAX as i64).for_each(|offset| voided.insert(Offset(offset), (1, 2)));
        assert_eq!(voided.rounds.len(), LANE_UNDONE_MAX);
        assert_eq!(voided.first_in(Offset(0), Offset(9), 1), Some(Offset(1)));
        assert_eq!(voided.first_in(Offset(0), Offset(9), 3), None, "it came again since");
        assert_eq!(voided.first_sent_in(Offset(9), 2), Some(Offset(1)));
        assert_eq!(voided.first_sent_in(Offset(1), 2), None);
        voided.insert(Offset(20_000), (0, 0));
        assert_eq!(voided.first_in(Offset(20_000), Offset(20_001), 0), None, "it was never sent");
    }
}
