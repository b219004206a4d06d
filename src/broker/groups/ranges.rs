//! A set of offsets as half-open ranges: what is acknowledged beyond the committed offset. Pure.
//!
//! Invariant: ranges are non-empty, rising, and do not touch each other.

use crate::ids::Offset;

/// Offsets as rising, separate, half-open ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(i64, i64)>);

impl Ranges {
    /// Ranges in any order, overlapping or not.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (Offset, Offset)>) -> Self {
        let mut ranges = Self::default();
        for (from, to) in pairs {
            ranges.insert(from, to);
        }
        ranges
    }

    /// Adds `[from, to)`.
    pub fn insert(&mut self, from: Offset, to: Offset) {
        let (mut from, mut to) = (from.0, to.0);
        if from >= to {
            return;
        }
        let first = self.0.partition_point(|range| range.1 < from);
        let mut last = first;
        while last < self.0.len() && self.0[last].0 <= to {
            from = from.min(self.0[last].0);
            to = to.max(self.0[last].1);
            last += 1;
        }
        self.0.splice(first..last, [(from, to)]);
    }

    /// Drops everything below an offset, and returns the first offset from there on that is not in the set.
    pub fn settle(&mut self, below: Offset) -> Offset {
        let mut next = below.0;
        let mut gone = 0;
        for range in &mut self.0 {
            if range.0 > next {
                break;
            }
            next = next.max(range.1);
            gone += 1;
        }
        self.0.drain(..gone);
        Offset(next)
    }

    pub fn contains(&self, offset: Offset) -> bool {
        self.after(offset) != offset
    }

    /// The first offset from here on that is not in the set.
    pub fn after(&self, offset: Offset) -> Offset {
        let place = self.0.partition_point(|range| range.1 <= offset.0);
        match self.0.get(place) {
            Some(range) if range.0 <= offset.0 => Offset(range.1),
            Some(_) | None => offset,
        }
    }

    /// The first offset from here on that is in the set.
    pub fn before(&self, offset: Offset) -> Option<Offset> {
        let place = self.0.partition_point(|range| range.1 <= offset.0);
        self.0.get(place).map(|range| Offset(range.0.max(offset.0)))
    }

    /// How many offsets below a bound are in the set.
    pub fn count_below(&self, bound: Offset) -> i64 {
        self.0.iter().map(|range| (range.1.min(bound.0) - range.0).max(0)).sum()
    }

    /// What of `[from, to)` is not in the set, as half-open ranges.
    pub fn gaps(&self, from: Offset, to: Offset) -> impl Iterator<Item = (Offset, Offset)> {
        let mut next = from;
        std::iter::from_fn(move || {
            next = self.after(next);
            let end = self.before(next).unwrap_or(to).min(to);
            let gap = (next < end).then_some((next, end));
            next = end;
            gap
        })
    }

    /// Where the last range ends.
    pub fn end(&self) -> Offset {
        Offset(self.0.last().map_or(i64::MIN, |range| range.1))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn pairs(&self) -> Vec<(i64, i64)> {
        self.0.clone()
    }

    /// As Postgres reads a multirange.
    pub fn to_multirange(&self) -> String {
        let ranges: Vec<String> = self.0.iter().map(|(from, to)| format!("[{from},{to})")).collect();
        format!("{{{}}}", ranges.join(","))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_of_ranges_is_the_set_of_its_offsets(
            inserts in prop::collection::vec((0i64..60, 0i64..8), 0..30), below in 0i64..60,
        ) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for (from, length) in inserts {
                ranges.insert(Offset(from), Offset(from + length));
                set.extend(from..from + length);
            }
            for offset in 0..80 {
                prop_assert_eq!(ranges.contains(Offset(offset)), set.contains(&offset));
            }
            prop_assert_eq!(ranges.count_below(Offset(below)), set.range(..below).count() as i64);
            for pair in ranges.pairs().windows(2) {
                prop_assert!(pair[0].1 < pair[1].0);
            }
            let missing: Vec<i64> =
                ranges.gaps(Offset(below), Offset(70)).flat_map(|(from, to)| from.0..to.0).collect();
            prop_assert_eq!(missing, (below..70).filter(|offset| !set.contains(offset)).collect::<Vec<_>>());
            let next = ranges.settle(Offset(below));
            prop_assert_eq!(next.0, (below..).find(|offset| !set.contains(offset)).unwrap());
            prop_assert!(ranges.pairs().iter().all(|range| range.0 > next.0));
        }
    }

    #[test]
    fn ranges_are_written_as_postgres_reads_them() {
        let ranges = Ranges::from_pairs([(Offset(7), Offset(8)), (Offset(1), Offset(3))]);
        assert_eq!(ranges.to_multirange(), "{[1,3),[7,8)}");
        assert_eq!(Ranges::default().to_multirange(), "{}");
    }
}
