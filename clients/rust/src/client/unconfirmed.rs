//! What was acknowledged of one lane under one epoch, and is not known to be durable: told again after a resume. Pure.
//!
//! Acks are told without asking for an answer, so this grows with what is acknowledged. It stays small: what is done without
//! a gap is one number, and a number of a newer round covers what is below it in older ones.
//! Invariant: everything in here was done by the user, under this epoch.

use std::collections::BTreeMap;

use super::book::Tally;
use crate::wire::OffsetRange;

/// Rounds that are kept; a broker remembers no more.
const ROUNDS_MAX: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    rounds: BTreeMap<u32, Tally>,
}

impl Unconfirmed {
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// An ack is on its way.
    pub fn tell(&mut self, round: u32, tally: &Tally) {
        let below = tally.next.unwrap_or(i64::MIN);
        for known in self.rounds.values_mut() {
            remove(known, i64::MIN, below);
        }
        let told = self.rounds.entry(round).or_default();
        told.next = told.next.max(tally.next);
        told.ranges.extend(&tally.ranges);
        told.ranges.sort_unstable();
        told.ranges.dedup_by(|next, last| {
            let touches = next.from <= last.to;
            if touches {
                last.to = last.to.max(next.to);
            }
            touches
        });
        self.prune();
    }

    /// What an ack has said is durable.
    pub fn confirm(&mut self, tally: &Tally) {
        for known in self.rounds.values_mut() {
            remove(known, i64::MIN, tally.next.unwrap_or(i64::MIN));
            for range in &tally.ranges {
                remove(known, range.from, range.to);
            }
        }
        self.prune();
    }

    /// The acks of a round do not count any more: what is not durable comes again in a newer one.
    pub fn give_up(&mut self, round: u32) {
        self.rounds.remove(&round);
    }

    /// Whether a message that comes again was acknowledged before.
    pub fn covers(&self, offset: i64) -> bool {
        self.rounds.values().any(|told| {
            told.next.is_some_and(|next| offset < next)
                || told.ranges.iter().any(|range| (range.from..range.to).contains(&offset))
        })
    }

    /// Everything once more, round by round.
    pub fn acks(&self) -> impl Iterator<Item = (u32, Tally)> + '_ {
        self.rounds.iter().map(|(round, told)| (*round, told.clone()))
    }

    fn prune(&mut self) {
        self.rounds.retain(|_, told| told.next.is_some() || !told.ranges.is_empty());
        while self.rounds.len() > ROUNDS_MAX {
            self.rounds.pop_first();
        }
    }
}

/// Takes offsets out of a tally. `next` leaves only as a whole: it says everything below.
fn remove(told: &mut Tally, from: i64, to: i64) {
    if from == i64::MIN && told.next.is_some_and(|next| next <= to) {
        told.next = None;
    }
    let outside = |range: &OffsetRange| {
        let before = OffsetRange { from: range.from, to: range.to.min(from) };
        let behind = OffsetRange { from: range.from.max(to), to: range.to };
        [before, behind].into_iter().filter(|part| part.from < part.to)
    };
    told.ranges = told.ranges.iter().flat_map(outside).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(next: Option<i64>, ranges: &[(i64, i64)]) -> Tally {
        Tally { next, ranges: ranges.iter().map(|range| OffsetRange::from(*range)).collect() }
    }

    fn covered(unconfirmed: &Unconfirmed) -> Vec<i64> {
        (0..12).filter(|offset| unconfirmed.covers(*offset)).collect()
    }

    #[test]
    fn acks_add_up_until_they_are_confirmed() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.tell(1, &tally(Some(3), &[(5, 7)]));
        unconfirmed.tell(1, &tally(None, &[(9, 10)]));
        assert_eq!(covered(&unconfirmed), [0, 1, 2, 5, 6, 9]);
        unconfirmed.tell(2, &tally(Some(6), &[]));
        assert_eq!(covered(&unconfirmed), [0, 1, 2, 3, 4, 5, 6, 9]);
        let acks: Vec<_> = unconfirmed.acks().collect();
        assert_eq!(acks, [(1, tally(None, &[(6, 7), (9, 10)])), (2, tally(Some(6), &[]))]);
        unconfirmed.confirm(&tally(Some(6), &[]));
        assert_eq!(covered(&unconfirmed), [6, 9]);
        unconfirmed.confirm(&tally(None, &[(6, 7), (9, 10)]));
        assert!(unconfirmed.is_empty());
    }

    #[test]
    fn a_confirmation_of_less_leaves_the_rest() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.tell(1, &tally(Some(8), &[(9, 12)]));
        unconfirmed.confirm(&tally(Some(4), &[(10, 11)]));
        assert_eq!(unconfirmed.acks().collect::<Vec<_>>(), [(1, tally(Some(8), &[(9, 10), (11, 12)]))]);
        unconfirmed.give_up(1);
        assert!(unconfirmed.is_empty());
    }
}
