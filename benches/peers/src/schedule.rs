//! When the messages of an open-loop producer are due: evenly, at the offered rate, from the start to the end of the window.
//!
//! Invariant: what is due depends on the clock alone. Nobody's slowness moves a later message, so none is left out.

use crate::clock::{Nanos, Window};

/// The moments at which messages are due.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    window: Window,
    /// Messages per second.
    rate: u32,
}

impl Schedule {
    pub fn new(window: Window, rate: u32) -> Self {
        Self { window, rate: rate.max(1) }
    }

    /// When a message is due; `None`: the schedule is over.
    pub fn due_ns(self, number: u64) -> Option<Nanos> {
        let after = u128::from(number) * 1_000_000_000 / u128::from(self.rate);
        let due = self.window.start_ns + after as Nanos;
        (due < self.window.to_ns).then_some(due)
    }

    /// How many messages are due in the window.
    pub fn in_window(self) -> u64 {
        self.before(self.window.to_ns) - self.before(self.window.from_ns)
    }

    /// How many messages are due before a moment.
    fn before(self, moment: Nanos) -> u64 {
        let nanos = u128::from(moment - self.window.start_ns);
        (nanos * u128::from(self.rate)).div_ceil(1_000_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { start_ns: 5_000, from_ns: 2_000_005_000, to_ns: 5_000_005_000 };

    #[test]
    fn messages_are_due_evenly_until_the_window_ends() {
        let schedule = Schedule::new(WINDOW, 1_000);
        assert_eq!(schedule.due_ns(0), Some(5_000));
        assert_eq!(schedule.due_ns(3), Some(3_005_000));
        assert_eq!(schedule.due_ns(5_000), None);
    }

    #[test]
    fn what_is_due_in_the_window_is_known_before_it_is_sent() {
        for rate in [1, 3, 7, 1_000, 80_000] {
            let schedule = Schedule::new(WINDOW, rate);
            let dues = (0..).map_while(|number| schedule.due_ns(number));
            assert_eq!(
                schedule.in_window(),
                dues.filter(|due| WINDOW.contains(*due)).count() as u64,
                "{rate}"
            );
        }
    }
}
