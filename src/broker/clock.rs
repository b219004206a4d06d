//! The database clock as this broker knows it. What is due by the age of a message is judged on that clock, and never early.
//!
//! Read with every heartbeat. The answer is older than the moment at which it is heard, and our clock may run faster than the
//! database's, so what is told in between is a lower bound: at least so late it is there. Invariant: a reading of another era, of
//! another server perhaps, is none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::limits::CLOCK_DRIFT_MAX;
use crate::store::timeline::{Era, Timelines};

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Timestamp,
    heard_at: Instant,
    era: Era,
}

/// What time it is in the database, at least. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct DatabaseClock {
    reading: Arc<Mutex<Option<Reading>>>,
    timelines: Timelines,
}

impl DatabaseClock {
    pub fn new(timelines: Timelines) -> Self {
        Self { reading: Arc::default(), timelines }
    }

    /// The database said `at`, and that was heard at `heard_at`.
    pub fn on_read(&self, at: Timestamp, heard_at: Instant, era: Era) {
        *self.reading.lock() = Some(Reading { at, heard_at, era });
    }

    /// At least so late it is in the database; `None`: nobody has asked it yet.
    pub fn at_least(&self, now: Instant) -> Option<Timestamp> {
        let era = self.timelines.era();
        let reading = (*self.reading.lock()).filter(|reading| reading.era == era)?;
        let passed = now.saturating_duration_since(reading.heard_at).mul_f64(1.0 - CLOCK_DRIFT_MAX);
        // Whole microseconds, as the database counts: what is compared here and there comes to the same.
        Timestamp::from_microsecond(reading.at.checked_add(passed).ok()?.as_microsecond()).ok()
    }
}

/// In how long [`DatabaseClock::at_least`] will have moved on by so much, if it is not read again before.
pub fn until_passed(wanted: Duration) -> Duration {
    wanted.div_f64(1.0 - CLOCK_DRIFT_MAX) + TICK
}

/// The database counts microseconds: rounding must not make a moment come too early, and be asked for again and again.
const TICK: Duration = Duration::from_micros(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_never_late_by_more_than_the_drift_and_never_early() {
        let timelines = Timelines::default();
        let (clock, heard_at) = (DatabaseClock::new(timelines.clone()), Instant::now());
        assert_eq!(clock.at_least(heard_at), None);
        let at = Timestamp::from_second(1_000_000).unwrap();
        clock.on_read(at, heard_at, timelines.era());
        assert_eq!(clock.at_least(heard_at), Some(at));
        let second = Duration::from_secs(1);
        let told = clock.at_least(heard_at + second).unwrap();
        assert!(told < at + second && told > at + second.mul_f64(0.998));
        assert!(clock.at_least(heard_at + until_passed(second)).unwrap() >= at + second);
        timelines.distrust();
        assert_eq!(clock.at_least(heard_at), None, "another server has another clock");
    }
}
