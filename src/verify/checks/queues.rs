//! What queues add to the promises: messages that wait for their time, lanes that are pulled, topics with limits, order by key.
//!
//! | check | says |
//! |---|---|
//! | `schedules` | a message that waits is appended once, not before it is due, in the order of due times, and never lost |
//! | `reschedules` | what is cancelled is never appended, what is moved is appended at its new time |
//! | `pops` | pulled lanes lose nothing, give out each pop in order and once, for its time, and fence those who are late |
//! | `shared` | lanes that pullers share with sessions are of one side at a time |
//! | `capacity` | a topic with a limit is never deeper than its limit and a flush per appender connection |
//! | `keys` | order by key, with keys that are parked |
//!
//! Each but `capacity` stands in a file of its own.

use std::collections::BTreeMap;

use super::keys::keys;
use super::pops::pops;
use super::schedules::{reschedules, schedules};
use super::shared::shared;
use super::{Evidence, Verdict};
use crate::verify::history::Event;

/// Judges one of them.
type Checker = fn(Evidence<'_>) -> Verdict;

/// By name, in the order of the table above.
const CHECKERS: [(&str, Checker); 6] = [
    ("schedules", schedules),
    ("reschedules", reschedules),
    ("pops", pops),
    ("shared", shared),
    ("capacity", capacity),
    ("keys", keys),
];

/// Judges all of them.
pub fn judge(evidence: Evidence<'_>) -> BTreeMap<&'static str, Verdict> {
    CHECKERS.iter().map(|(name, check)| (*name, check(evidence))).collect()
}

fn capacity(evidence: Evidence<'_>) -> Verdict {
    let (mut was_full, mut was_looked_at, mut violations) = (false, false, Vec::new());
    for event in evidence.history.events() {
        match event {
            Event::Full => was_full = true,
            Event::Depth { messages, bound } => {
                was_looked_at = true;
                if messages > bound {
                    violations.push(format!("{messages} messages deep, and it may be {bound}"));
                }
            }
            _ => {}
        }
    }
    Verdict::of(was_full && was_looked_at, violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::history::History;
    use crate::verify::probes::Probes;
    use crate::verify::truth::Truth;

    fn verdicts(events: Vec<Event>) -> BTreeMap<&'static str, Verdict> {
        let (history, probes, truth) = (History::of(events), Probes::default(), Truth::default());
        judge(Evidence { history: &history, truth: &truth, probes: &probes })
    }

    #[test]
    fn a_topic_that_is_deeper_than_it_may_be_is_found() {
        let depth = |messages| Event::Depth { messages, bound: 1_000 };
        assert_eq!(verdicts(vec![Event::Full, depth(1_000)])["capacity"].name(), "held");
        assert_eq!(verdicts(vec![Event::Full, depth(1_000), depth(1_001)])["capacity"].name(), "violated");
    }

    #[test]
    fn what_did_not_happen_was_not_tried() {
        let verdicts = verdicts(vec![Event::Depth { messages: 0, bound: 1 }]);
        assert_eq!(verdicts.len(), 6);
        for (name, verdict) in verdicts {
            assert_eq!(verdict.name(), "not_tried", "{name}");
        }
    }
}
