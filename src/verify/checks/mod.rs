//! One checker per promise. Each is a pure function of what was seen, what the database holds, and what the probes found; each
//! has a test that feeds it a broken history and sees it fail.
//!
//! | file | promises |
//! |---|---|
//! | `storage` | what is stored: 1–4, 7–9, 18, 19 |
//! | `lanes` | who holds what, and what counts: 10–14, 16 |
//! | `queues`, `schedules`, `pops`, `shared`, `keys` | what queues add: schedules, pops, groups of sessions and pullers, order by key; capacity |
//! | `scenes` | what probes have tried in scenes of their own: 2, 5, 6, 15, 17, 20–25 |

mod keys;
mod lanes;
mod offsets;
mod pops;
pub mod queues;
mod scenes;
mod schedules;
mod shared;
mod storage;

pub use lanes::Counts;

use super::history::History;
use super::probes::Probes;
use super::truth::Truth;

/// Number of promises.
pub const PROMISES: usize = 25;
/// Violations of one promise that are told in full; the rest is counted.
const TOLD_MAX: usize = 20;

/// Everything that there is to judge.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    pub history: &'a History,
    pub truth: &'a Truth,
    pub probes: &'a Probes,
}

/// What became of a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Held,
    /// With what shows it.
    Violated(Vec<String>),
    /// Nothing in the run has put it to the test.
    NotTried,
}

impl Verdict {
    /// Violated if there is a violation, else held if it was tried.
    fn of(tried: bool, violations: Vec<String>) -> Self {
        match (violations.is_empty(), tried) {
            (false, _) => Self::Violated(shortened(violations)),
            (true, true) => Self::Held,
            (true, false) => Self::NotTried,
        }
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Violated(_) => "violated",
            Self::NotTried => "not_tried",
        }
    }
}

fn shortened(mut violations: Vec<String>) -> Vec<String> {
    let more = violations.len().saturating_sub(TOLD_MAX);
    violations.truncate(TOLD_MAX);
    if more > 0 {
        violations.push(format!("and {more} more"));
    }
    violations
}

/// Judges one promise.
type Checker = fn(Evidence<'_>) -> Verdict;

/// What each promise says, in a few words, and its checker; in their order.
const CHECKERS: [(&str, Checker); PROMISES] = [
    ("an acknowledged message is never lost", storage::never_lost),
    ("a refused publish is never delivered", storage::refused_is_gone),
    ("an offset names one message for ever", storage::one_message_per_offset),
    ("offsets become visible in order, without gaps", storage::visible_in_order),
    ("an aborted flush stalls nobody", scenes::aborted_flush),
    ("a foreign long transaction is harmless", scenes::foreign_transaction),
    ("a producer's order is kept across reconnects", storage::producers_order),
    ("a retried publish is one copy", storage::one_copy),
    ("the messages of a frame for a partition are all or nothing", storage::all_or_nothing),
    ("a lane has one owner at a time", lanes::one_owner),
    ("a zombie is fenced", lanes::zombies_fenced),
    ("committed offsets only rise", lanes::committed_rises),
    ("redelivery starts at the first unacked message and skips acked ones", lanes::exact_remainder),
    ("leases live on one clock", lanes::one_clock),
    ("a rebalance moves only what must move, and ends", scenes::rebalance),
    ("a group is never stuck", lanes::never_stuck),
    ("a poison message leaves in order, its neighbours stay", scenes::poison),
    ("trace ids are bit-exact", storage::traces_exact),
    ("ack and publish are atomic", storage::steps_atomic),
    ("database chaos is survived", scenes::database_chaos),
    ("lost notifications are harmless", scenes::lost_notifications),
    ("retention is never silent", scenes::retention),
    ("half-open and slow readers are contained", scenes::slow_readers),
    ("a drain loses nothing", lanes::drain_loses_nothing),
    ("bad input never hurts others", scenes::bad_input),
];

/// A promise and what became of it.
#[derive(Debug, Clone)]
pub struct Judged {
    /// From 1.
    pub number: usize,
    pub promise: &'static str,
    pub verdict: Verdict,
}

/// Judges every promise.
pub fn judge(evidence: Evidence<'_>) -> Vec<Judged> {
    let judged = |(index, (promise, check)): (usize, &(&'static str, Checker))| Judged {
        number: index + 1,
        promise,
        verdict: check(evidence),
    };
    CHECKERS.iter().enumerate().map(judged).collect()
}

#[cfg(test)]
mod tests;
