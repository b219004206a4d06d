//! What a worker has counted, and what several have counted together.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest time that is told apart, in microseconds.
const LATENCY_US_MAX: u64 = 120_000_000;
/// Digits that are told apart.
const DIGITS: u8 = 3;

/// What was counted in a window, and since the beginning.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Messages in the window.
    pub messages: u64,
    /// How long the window was.
    pub seconds: f64,
    /// Messages since the worker began.
    pub ever: u64,
    /// Messages that were due in the window and had not come when nobody waited for them any longer. They are among the times, as late as
    /// they were waited for.
    pub missing: u64,
    /// Times in the window: microseconds and how often.
    pub latencies: Vec<(u64, u64)>,
}

impl Tally {
    /// What several workers have counted at the same time.
    pub fn sum(tallies: &[Tally]) -> Self {
        let mut latencies = Latencies::new();
        tallies.iter().for_each(|tally| latencies.add(&tally.latencies));
        Self {
            messages: tallies.iter().map(|tally| tally.messages).sum(),
            seconds: tallies.iter().map(|tally| tally.seconds).fold(0.0, f64::max),
            ever: tallies.iter().map(|tally| tally.ever).sum(),
            missing: tallies.iter().map(|tally| tally.missing).sum(),
            latencies: latencies.counted(),
        }
    }

    /// Messages per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.messages as f64 / self.seconds } else { 0.0 }
    }
}

/// A histogram of times.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS).expect("the bounds are in order"))
    }

    pub fn record(&mut self, took: Duration) {
        self.record_us(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn record_us(&mut self, us: u64) {
        self.0.saturating_record(us.max(1));
    }

    /// Several that took the same time.
    pub fn record_times(&mut self, took: Duration, times: u64) {
        self.0.saturating_record_n(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1), times);
    }

    /// How many were recorded.
    pub fn recorded(&self) -> u64 {
        self.0.len()
    }

    pub fn add(&mut self, counted: &[(u64, u64)]) {
        for (us, count) in counted {
            self.0.saturating_record_n(*us, *count);
        }
    }

    pub fn counted(&self) -> Vec<(u64, u64)> {
        self.0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
            .collect()
    }

    /// The time that so large a share stayed below; `None`: nothing was recorded.
    pub fn at(&self, share: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up_and_keep_their_times() {
        let tally = |messages, us| {
            let mut latencies = Latencies::new();
            (0..messages).for_each(|_| latencies.record_us(us));
            Tally { messages, seconds: 2.0, ever: messages * 2, missing: 1, latencies: latencies.counted() }
        };
        let sum = Tally::sum(&[tally(99, 100), tally(1, 5_000)]);
        assert_eq!((sum.messages, sum.ever, sum.missing, sum.rate()), (100, 200, 2, 50.0));
        let mut all = Latencies::new();
        all.add(&sum.latencies);
        assert_eq!(all.at(0.5), Some(100));
        assert!(all.at(1.0).is_some_and(|us| (4_990..=5_010).contains(&us)), "{:?}", all.at(1.0));
    }

    #[test]
    fn nothing_recorded_has_no_percentile() {
        assert_eq!(Latencies::new().at(0.99), None);
        assert_eq!(Tally::default().rate(), 0.0);
    }
}
