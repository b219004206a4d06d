//! What a worker counts: messages in the window, and how late messages that were due in the window came.
//!
//! Invariant: every message that was due in the window is in the times, also one that never came: with the time that it was waited
//! for. Leaving it out would make a system that chokes look fast.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{Counting, Job};
use crate::clock::{Window, now_ns};
use crate::schedule::Schedule;

/// Longest time that is told apart, in microseconds.
const LATENCY_US_MAX: u64 = 120_000_000;
/// Digits that are told apart.
const DIGITS: u8 = 3;

/// What was counted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Messages in the window.
    pub messages: u64,
    /// Messages that were due in the window and did not come in time to be waited for.
    pub missing: u64,
    /// Microseconds and how often.
    pub latencies: Vec<(u64, u64)>,
}

impl Tally {
    /// The times below which these shares stayed, in microseconds; `None`: nothing was timed.
    pub fn percentiles<const N: usize>(&self, shares: [f64; N]) -> Option<[f64; N]> {
        let mut histogram = histogram();
        for (us, times) in &self.latencies {
            histogram.saturating_record_n(*us, *times);
        }
        (!histogram.is_empty()).then(|| shares.map(|share| histogram.value_at_quantile(share) as f64))
    }
}

/// Counts while the worker works.
#[derive(Debug)]
pub struct Count {
    pub window: Window,
    /// Messages that are due in the window; none where none is timed.
    expected: u64,
    messages: AtomicU64,
    latencies: Mutex<Histogram<u64>>,
    complete: Notify,
}

impl Count {
    pub fn new(window: Window, job: &Job) -> Self {
        let expected = match job {
            Job::Consume { counting: Counting::Delivered { rate }, .. } => {
                Schedule::new(window, *rate).in_window()
            }
            Job::Consume { counting: Counting::Acknowledged, .. } => 0,
            Job::Batches | Job::Singles { .. } | Job::Scheduled { .. } => 0,
        };
        Self {
            window,
            expected,
            messages: AtomicU64::new(0),
            latencies: Mutex::new(histogram()),
            complete: Notify::new(),
        }
    }

    /// Counts messages that are done now.
    pub fn done(&self, messages: u64) {
        if self.window.contains(now_ns()) {
            self.messages.fetch_add(messages, Ordering::Relaxed);
        }
    }

    /// Counts messages that are delivered now, by the moments at which they were due.
    pub fn delivered(&self, dues: impl IntoIterator<Item = u64>) {
        let now = now_ns();
        let mut latencies = self.latencies.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut messages = 0;
        for due in dues {
            messages += 1;
            if self.window.contains(due) {
                latencies.saturating_record(us(now.saturating_sub(due)));
            }
        }
        self.done(messages);
        if self.expected > 0 && latencies.len() >= self.expected {
            self.complete.notify_one();
        }
    }

    /// Returns when every message that is due in the window was delivered. Cancel safety: safe.
    pub async fn complete(&self) {
        self.complete.notified().await;
    }

    pub fn tally(&self) -> Tally {
        let mut latencies = self.latencies.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let missing = self.expected.saturating_sub(latencies.len());
        latencies.saturating_record_n(us(now_ns().saturating_sub(self.window.to_ns)), missing);
        let step = |step: hdrhistogram::iterators::IterationValue<u64>| {
            (step.value_iterated_to(), step.count_since_last_iteration())
        };
        Tally {
            messages: self.messages.load(Ordering::Relaxed),
            missing,
            latencies: latencies.iter_recorded().map(step).collect(),
        }
    }
}

fn us(nanos: u64) -> u64 {
    (nanos / 1_000).max(1)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS).expect("the bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(window: Window) -> Count {
        let counting = Counting::Delivered { rate: 10 };
        Count::new(window, &Job::Consume { groups: Vec::new(), partitions: Vec::new(), counting })
    }

    #[test]
    fn only_what_happens_in_the_window_is_counted() {
        let second = 1_000_000_000;
        let now = now_ns();
        let open = count(Window { start_ns: now - second, from_ns: now - second, to_ns: now + second });
        open.done(5);
        assert_eq!(open.tally().messages, 5);
        let over =
            count(Window { start_ns: now - 3 * second, from_ns: now - 2 * second, to_ns: now - second });
        over.done(5);
        assert_eq!(over.tally().messages, 0);
    }

    #[test]
    fn a_message_that_never_came_counts_as_late_as_it_was_waited_for() {
        let second = 1_000_000_000;
        let now = now_ns();
        let count =
            count(Window { start_ns: now - 4 * second, from_ns: now - 3 * second, to_ns: now - 2 * second });
        count.delivered((0..9).map(|_| now - 2 * second - 1));
        let tally = count.tally();
        assert_eq!((tally.missing, tally.messages), (1, 0), "ten were due, and the window was over");
        let [p50, all] = tally.percentiles([0.5, 1.0]).unwrap();
        assert!(
            (1_990_000.0..2_100_000.0).contains(&p50) && (1_990_000.0..2_100_000.0).contains(&all),
            "{all}"
        );
    }

    #[test]
    fn tallies_of_several_workers_add_up() {
        let one = Tally { messages: 99, missing: 0, latencies: vec![(100, 99)] };
        let other = Tally { messages: 1, missing: 2, latencies: vec![(5_000, 1)] };
        let both = super::super::sum(&[one, other]);
        assert_eq!((both.messages, both.missing), (100, 2));
        let [p50, p99, max] = both.percentiles([0.5, 0.99, 1.0]).unwrap();
        assert_eq!((p50, p99), (100.0, 100.0));
        assert!((4_990.0..5_010.0).contains(&max), "{max}");
        assert_eq!(Tally::default().percentiles([0.5]), None, "nothing was timed");
    }
}
