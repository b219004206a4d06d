//! Several figures of one thing, and how two things compare that took turns.

use serde::Serialize;

/// A median with its spread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub rounds: Vec<f64>,
}

impl Figures {
    /// `None`: there are none.
    pub fn of(rounds: Vec<f64>) -> Option<Self> {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Some(Self { median, min, max, rounds })
    }

    /// The median of the ratios of the rounds, not the ratio of the medians: the two of a round ran side by side in time.
    pub fn ratio(of: &[f64], to: &[f64]) -> Option<Self> {
        let pairs = of.iter().zip(to).filter(|(_, to)| **to > 0.0);
        Self::of(pairs.map(|(of, to)| of / to).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_what_was_measured() {
        assert_eq!(Figures::of(vec![3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Figures::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        let one = Figures::of(vec![7.0]).unwrap();
        assert_eq!((one.min, one.max), (7.0, 7.0));
        assert_eq!(Figures::of(Vec::new()), None);
    }

    #[test]
    fn a_ratio_pairs_what_ran_in_the_same_round() {
        let ratio = Figures::ratio(&[10.0, 40.0, 90.0], &[10.0, 20.0, 30.0]).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 1.0, 3.0));
        assert_eq!(Figures::ratio(&[1.0], &[0.0]), None, "nothing compares to nothing");
    }
}
