//! A set of offsets as ranges that do not touch.

use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Offsets {
    /// First → one beyond the last.
    ranges: BTreeMap<i64, i64>,
}

impl Offsets {
    pub fn insert(&mut self, from: i64, to: i64) {
        if from >= to {
            return;
        }
        let (mut from, mut to) = (from, to);
        // Everything that begins at or below the end and ends at or above the beginning becomes one range.
        while let Some((&first, &end)) = self.ranges.range(..=to).next_back().filter(|(_, end)| **end >= from)
        {
            self.ranges.remove(&first);
            from = from.min(first);
            to = to.max(end);
        }
        self.ranges.insert(from, to);
    }

    pub fn extend(&mut self, ranges: &[(i64, i64)]) {
        ranges.iter().for_each(|(from, to)| self.insert(*from, *to));
    }

    pub fn contains(&self, offset: i64) -> bool {
        self.ranges.range(..=offset).next_back().is_some_and(|(_, end)| offset < *end)
    }

    /// The first offset of a range that is not in the set.
    pub fn first_missing(&self, from: i64, to: i64) -> Option<i64> {
        let mut next = from;
        while next < to {
            match self.ranges.range(..=next).next_back().filter(|(_, end)| next < **end) {
                Some((_, end)) => next = *end,
                None => return Some(next),
            }
        }
        None
    }

    /// The first offset of this set that is not in the other.
    pub fn first_missing_in(&self, other: &Self) -> Option<i64> {
        self.ranges.iter().find_map(|(from, to)| other.first_missing(*from, *to))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(ranges in prop::collection::vec((0_i64..50, 0_i64..10), 0..20), from in 0_i64..60, length in 0_i64..10) {
            let (mut offsets, mut plain) = (Offsets::default(), std::collections::BTreeSet::new());
            for (first, length) in ranges {
                offsets.insert(first, first + length);
                plain.extend(first..first + length);
            }
            for offset in -1..70 {
                prop_assert_eq!(offsets.contains(offset), plain.contains(&offset));
            }
            let missing = (from..from + length).find(|offset| !plain.contains(offset));
            prop_assert_eq!(offsets.first_missing(from, from + length), missing);
        }
    }
}
