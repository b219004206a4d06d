//! Hands out messages at the moments they are due, to several connections in turn.
//!
//! Why: a thread and not a timer of the runtime, which is exact to a millisecond only; that would be most of the latency of a fast
//! system.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::{Nanos, now_ns};
use crate::schedule::Schedule;

/// Finer sleep would take the processor away from what is measured.
const PAUSE_MIN: Duration = Duration::from_micros(100);
/// Handed out and not yet taken: more than any schedule has messages, so that the pace never waits.
const AHEAD_MAX: usize = 1 << 20;

/// What is due at once on one connection.
pub type Due = Vec<Nanos>;

/// Begins a schedule. Each receiver belongs to one connection and ends with the schedule.
pub fn begin(schedule: Schedule, connections: u32) -> Vec<mpsc::Receiver<Due>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..connections).map(|_| mpsc::channel(AHEAD_MAX)).unzip();
    std::thread::spawn(move || hand_out(schedule, &senders));
    receivers
}

fn hand_out(schedule: Schedule, connections: &[mpsc::Sender<Due>]) {
    let mut number = 0;
    while let Some(due) = schedule.due_ns(number) {
        let now = now_ns();
        if due > now {
            std::thread::sleep(Duration::from_nanos(due - now).max(PAUSE_MIN));
            continue;
        }
        // A late wake-up sends all that is due by now, each with the moment that it was due.
        let mut turns = vec![Due::new(); connections.len()];
        while let Some(due) = schedule.due_ns(number).filter(|due| *due <= now) {
            turns[number as usize % connections.len()].push(due);
            number += 1;
        }
        for (connection, turn) in connections.iter().zip(turns).filter(|(_, turn)| !turn.is_empty()) {
            if connection.blocking_send(turn).is_err() {
                return; // the worker is ending
            }
        }
    }
}
