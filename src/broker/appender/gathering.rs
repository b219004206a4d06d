//! Whether the next flush waits for more units to arrive. Pure: time comes as an argument.
//!
//! A flush costs something for each partition in it, whatever it writes there. One that has many partitions and few messages for each is
//! mostly that price; the frames that its answers set free arrive together a moment later, and share the next one if it waits for
//! them. So after a thin flush the next gathers for a part of what that one took, until as much has come as was answered or nothing
//! comes any more.
//! Invariant: after a flush with few partitions, or with much for each, nothing waits.

use std::time::{Duration, Instant};

use crate::limits::{GATHER_MAX, GATHER_PARTITIONS_MIN, GATHER_QUIET, GATHER_THIN_MESSAGES};

/// A flush gathers for at most this part of what the last one took: what it may cost is bounded by what there is to gain.
const SHARE: u32 = 2;
/// So long a silence, as a part of the same, says that nothing more comes.
const QUIET_SHARE: u32 = 8;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gathering {
    thin: Option<Thin>,
    arrived: Option<Arrived>,
}

/// The last flush, which was thin.
#[derive(Debug, Clone, Copy)]
struct Thin {
    messages: usize,
    took: Duration,
}

/// What has come since.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    messages: usize,
    first_at: Instant,
    last_at: Instant,
}

impl Gathering {
    /// Units of so many messages have arrived.
    pub fn on_arrived(&mut self, messages: usize, now: Instant) {
        let arrived = self.arrived.get_or_insert(Arrived { messages: 0, first_at: now, last_at: now });
        arrived.messages += messages;
        arrived.last_at = now;
    }

    /// A flush of so many partitions and messages is over, and took so long.
    pub fn on_flushed(&mut self, partitions: usize, messages: usize, took: Duration) {
        let is_thin = partitions >= GATHER_PARTITIONS_MIN && messages < partitions * GATHER_THIN_MESSAGES;
        // Why the larger one fades: a flush that left too early must not become what is waited for.
        let before = self.thin.map_or(0, |thin| thin.messages - thin.messages / 4);
        self.thin = is_thin.then_some(Thin { messages: messages.max(before), took });
        self.arrived = None;
    }

    /// Until when the next flush waits if nothing more arrives; absent: it leaves now.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        let (thin, arrived) = (self.thin?, self.arrived?);
        let quiet = (thin.took / QUIET_SHARE).max(GATHER_QUIET);
        let until = (arrived.first_at + (thin.took / SHARE).min(GATHER_MAX)).min(arrived.last_at + quiet);
        (arrived.messages < thin.messages && now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(16);
    const PARTITIONS: usize = GATHER_PARTITIONS_MIN;

    fn after(partitions: usize, messages: usize) -> (Gathering, Instant) {
        let mut gathering = Gathering::default();
        gathering.on_flushed(partitions, messages, TOOK);
        let now = Instant::now();
        gathering.on_arrived(1, now);
        (gathering, now)
    }

    #[test]
    fn after_a_thin_flush_the_next_waits_while_units_arrive_but_not_for_long() {
        let (mut gathering, began) = after(PARTITIONS, PARTITIONS);
        assert_eq!(gathering.until(began), Some(began + GATHER_QUIET));
        assert_eq!(gathering.until(began + GATHER_QUIET), None, "nothing more has arrived");
        let mut now = began;
        while let Some(until) = gathering.until(now) {
            assert!(until <= began + TOOK / SHARE);
            now += GATHER_QUIET / 2;
            gathering.on_arrived(1, now);
        }
        assert!(now >= began + TOOK / SHARE, "units kept arriving");
    }

    #[test]
    fn it_leaves_when_as_much_has_come_as_was_answered() {
        let (mut gathering, now) = after(PARTITIONS, PARTITIONS);
        gathering.on_arrived(PARTITIONS - 2, now);
        assert!(gathering.until(now).is_some());
        gathering.on_arrived(1, now);
        assert_eq!(gathering.until(now), None);
        gathering.on_flushed(PARTITIONS, PARTITIONS / 2, TOOK);
        gathering.on_arrived(PARTITIONS / 2, now);
        assert!(gathering.until(now).is_some(), "the last one left too early");
    }

    #[test]
    fn after_a_flush_with_few_partitions_or_with_much_for_each_nothing_waits() {
        for (partitions, messages) in
            [(PARTITIONS - 1, PARTITIONS), (PARTITIONS, PARTITIONS * GATHER_THIN_MESSAGES), (0, 0)]
        {
            let (gathering, now) = after(partitions, messages);
            assert_eq!(gathering.until(now), None, "{partitions} partitions, {messages} messages");
        }
        let (mut gathering, now) = after(PARTITIONS, PARTITIONS);
        gathering.on_flushed(1, 1, TOOK);
        gathering.on_arrived(1, now);
        assert_eq!(gathering.until(now), None, "the thin one is forgotten");
    }
}
