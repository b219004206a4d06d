//! How long to wait before the next try: doubling from `backoff_min` to `backoff_max`, with jitter so that
//! brokers of one machine do not start their databases in step.
//!
//! Called by `supervisor`. Pure: randomness is an argument.

use std::time::Duration;

use super::settings::Pace;

/// 2^20 × any sensible minimum is beyond any sensible maximum; the bound keeps the arithmetic from
/// overflowing.
const DOUBLINGS_MAX: u32 = 20;

/// `attempt` counts from 1; `jitter` lies in 0..=1 and takes away at most half, but never goes below the
/// minimum.
pub fn delay(attempt: u32, pace: &Pace, jitter: f64) -> Duration {
    let doublings = attempt.saturating_sub(1).min(DOUBLINGS_MAX);
    let full = pace.backoff_min.saturating_mul(1 << doublings).min(pace.backoff_max);
    full.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0).max(pace.backoff_min)
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::*;

    #[test]
    fn pauses_double_from_the_minimum_to_the_maximum() {
        let pace = Pace::default();
        let pauses: Vec<u128> = (1..=9).map(|n| delay(n, &pace, 0.0).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
    }

    proptest! {
        #[test]
        fn every_pause_lies_between_the_minimum_and_the_maximum(attempt: u32, jitter in -1.0..2.0f64) {
            let pace = Pace::default();
            let pause = delay(attempt, &pace, jitter);
            prop_assert!(pause >= pace.backoff_min && pause <= pace.backoff_max);
        }
    }
}
