//! When the messages of an offered rate are due, and handing them out at those moments to several connections in turn.
//!
//! Invariant: what is due depends on the clock alone. Nobody's slowness moves a later message, so none is left out; whoever cannot send
//! yet holds it back, and its time counts from the moment at which it was due.
//!
//! Why: a thread and not a timer of the runtime, which is exact to a millisecond only. `benches/peers` paces its producers in the same way.

use std::time::Duration;

use tokio::sync::mpsc;

use super::messages::now_us;
use super::worker::Round;

/// Finer sleep would take the processor away from what is measured.
const PAUSE_MIN: Duration = Duration::from_micros(100);
/// Handed out and not yet taken: more than any schedule has turns, so that the pace never waits.
const AHEAD_MAX: usize = 1 << 20;
const US_PER_SECOND: i128 = 1_000_000;

/// The moments of what is due at once on one connection.
pub(super) type Due = Vec<i64>;

/// Evenly spread over a round, from its start to the end of its window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    round: Round,
    /// Messages per second.
    rate: u32,
}

impl Schedule {
    pub fn new(round: Round, rate: u32) -> Self {
        Self { round, rate: rate.max(1) }
    }

    /// When a message is due; `None`: the schedule is over.
    fn due_us(self, number: u64) -> Option<i64> {
        let after = i128::from(number) * US_PER_SECOND / i128::from(self.rate);
        let due = self.round.start_us + after as i64;
        (due < self.round.to_us()).then_some(due)
    }

    /// How many messages are due in the window.
    pub fn in_window(self) -> u64 {
        self.before(self.round.to_us()) - self.before(self.round.from_us())
    }

    fn before(self, moment_us: i64) -> u64 {
        let us = i128::from(moment_us - self.round.start_us) * i128::from(self.rate);
        (us.max(0) as u128).div_ceil(US_PER_SECOND as u128) as u64
    }
}

/// Begins a schedule. Each receiver belongs to one connection and ends with the schedule.
pub(super) fn begin(schedule: Schedule, connections: usize) -> Vec<mpsc::Receiver<Due>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..connections).map(|_| mpsc::channel(AHEAD_MAX)).unzip();
    std::thread::spawn(move || hand_out(schedule, &senders));
    receivers
}

fn hand_out(schedule: Schedule, connections: &[mpsc::Sender<Due>]) {
    let mut number = 0;
    while let Some(due) = schedule.due_us(number) {
        let now = now_us();
        if due > now {
            std::thread::sleep(Duration::from_micros(due.abs_diff(now)).max(PAUSE_MIN));
            continue;
        }
        // A late wake-up hands out all that is due by now, each with the moment that it was due.
        let mut turns = vec![Due::new(); connections.len()];
        while let Some(due) = schedule.due_us(number).filter(|due| *due <= now) {
            turns[number as usize % connections.len()].push(due);
            number += 1;
        }
        for (connection, turn) in connections.iter().zip(turns).filter(|(_, turn)| !turn.is_empty()) {
            if connection.blocking_send(turn).is_err() {
                return; // nobody waits for it any more
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(window: Duration) -> Round {
        Round::beginning(Duration::from_millis(50), window)
    }

    #[test]
    fn what_is_due_in_the_window_is_known_before_it_is_sent() {
        for rate in [1, 3, 7, 1_000, 80_000] {
            let round = round(Duration::from_secs(3));
            let schedule = Schedule::new(round, rate);
            let dues = (0..).map_while(|number| schedule.due_us(number));
            let counted = dues.filter(|due| *due >= round.from_us()).count() as u64;
            assert_eq!(schedule.in_window(), counted, "{rate}");
        }
    }

    #[tokio::test]
    async fn every_message_is_handed_out_once_in_turns_and_not_before_it_is_due() {
        let round = round(Duration::from_millis(150));
        let schedule = Schedule::new(round, 1_000);
        let mut handed_out = Vec::new();
        for mut connection in begin(schedule, 4) {
            let mut of_it = 0;
            while let Some(due) = connection.recv().await {
                assert!(due.iter().all(|due| *due <= now_us()));
                of_it += due.len();
                handed_out.extend(due);
            }
            assert_eq!(of_it, 50, "each has a quarter");
        }
        handed_out.sort_unstable();
        handed_out.dedup();
        assert_eq!(handed_out.len(), 200);
    }
}
