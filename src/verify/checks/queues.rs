//! What queues add to the promises: messages that wait for their time, lanes that are pulled, topics with limits, order by key.
//!
//! | check | says |
//! |---|---|
//! | `schedules` | a message that waits is appended once, not before it is due, and never lost |
//! | `pops` | pulled lanes lose nothing, give out each pop in order and once, and fence those who are late |
//! | `capacity` | a topic with a limit is never deeper than its limit and a flush per appender connection |
//! | `keys` | order by key, with keys that are parked; in a file of its own |

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::keys::keys;
use super::{Evidence, Verdict};
use crate::verify::history::Event;

/// Judges one of them.
type Checker = fn(Evidence<'_>) -> Verdict;

/// By name, in the order of the table above.
const CHECKERS: [(&str, Checker); 4] =
    [("schedules", schedules), ("pops", pops), ("capacity", capacity), ("keys", keys)];

/// Judges all of them.
pub fn judge(evidence: Evidence<'_>) -> BTreeMap<&'static str, Verdict> {
    CHECKERS.iter().map(|(name, check)| (*name, check(evidence))).collect()
}

fn schedules(evidence: Evidence<'_>) -> Verdict {
    let mut fired: HashMap<i64, Vec<(u32, i64)>> = HashMap::new();
    let mut violations = Vec::new();
    for appended in &evidence.truth.later {
        let place = (appended.partition, appended.offset);
        let Some(later) = appended.later else {
            violations.push(format!("{place:?} is not what anybody has published"));
            continue;
        };
        fired.entry(later.number).or_default().push(place);
        if appended.published_us < later.due_us {
            let early = later.due_us - appended.published_us;
            violations.push(format!("message {} was appended {early} µs before it was due", later.number));
        }
    }
    let twice = fired.iter().filter(|(_, places)| places.len() > 1);
    violations
        .extend(twice.map(|(number, places)| format!("message {number} was appended twice: {places:?}")));
    let mut tried = false;
    for event in evidence.history.events() {
        if let Event::Scheduled { later } = event {
            tried = true;
            if !fired.contains_key(&later.number) {
                violations.push(format!("message {} was acknowledged and never appended", later.number));
            }
        }
    }
    if evidence.truth.waiting > 0 {
        violations.push(format!("{} messages still wait, long after they were due", evidence.truth.waiting));
    }
    Verdict::of(tried, violations)
}

/// What is known about a pulled lane so far.
#[derive(Debug, Default)]
struct Lane {
    /// What each pop has given out.
    popped: BTreeMap<i64, Vec<i64>>,
    /// What is durably done, and under which epoch.
    done: BTreeMap<i64, i64>,
    /// Of each pop: the highest epoch that was known when its ack was sent.
    asked: HashMap<i64, i64>,
    delivered: BTreeSet<i64>,
}

impl Lane {
    fn on_popped(&mut self, epoch: i64, offsets: &[i64]) -> Vec<String> {
        let mut violations = Vec::new();
        if !offsets.is_sorted_by(|one, next| one < next) {
            violations.push(format!("epoch {epoch} gave out {offsets:?}, which do not rise"));
        }
        if self.popped.insert(epoch, offsets.to_vec()).is_some() {
            violations.push(format!("epoch {epoch} was given out twice"));
        }
        let again = offsets.iter().filter_map(|offset| {
            let before = self.done.get(offset).filter(|before| **before < epoch)?;
            Some(format!("{offset} was done in epoch {before}, and given out in epoch {epoch}"))
        });
        violations.extend(again);
        self.delivered.extend(offsets);
        violations
    }

    fn on_acked(&mut self, epoch: i64) -> Vec<String> {
        let later = self.asked.get(&epoch).filter(|known| **known > epoch);
        let overlaps =
            later.map(|known| format!("an ack of epoch {epoch} counted after epoch {known} was given out"));
        for offset in self.popped.get(&epoch).into_iter().flatten() {
            self.done.entry(*offset).or_insert(epoch);
        }
        // What was done in this epoch must not have been given out again before this was heard.
        let own = self.popped.get(&epoch).cloned().unwrap_or_default();
        let again = self.popped.range(epoch + 1..).flat_map(|(next, offsets)| {
            let both = offsets.iter().filter(|offset| own.contains(offset));
            both.map(move |offset| {
                format!("{offset} was done in epoch {epoch}, and given out in epoch {next}")
            })
        });
        overlaps.into_iter().chain(again).collect()
    }
}

fn pops(evidence: Evidence<'_>) -> Verdict {
    let mut lanes: BTreeMap<u32, Lane> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in evidence.history.events() {
        let (partition, found) = match event {
            Event::Popped { partition, epoch, offsets } => {
                (partition, lanes.entry(*partition).or_default().on_popped(*epoch, offsets))
            }
            Event::PopAsked { partition, epoch } => {
                let lane = lanes.entry(*partition).or_default();
                let known = lane.popped.keys().next_back().copied().unwrap_or(*epoch);
                lane.asked.insert(*epoch, known);
                continue;
            }
            Event::PopAcked { partition, epoch, .. } => {
                (partition, lanes.entry(*partition).or_default().on_acked(*epoch))
            }
            _ => continue,
        };
        violations.extend(found.into_iter().map(|found| format!("partition {partition}: {found}")));
    }
    for appended in &evidence.truth.later {
        let is_seen =
            lanes.get(&appended.partition).is_some_and(|lane| lane.delivered.contains(&appended.offset));
        let place = (appended.partition, appended.offset);
        if !is_seen && !evidence.truth.pulled_dead.contains(&place) {
            violations.push(format!("{place:?} was never given out"));
        }
        let committed = evidence.truth.pulled.get(&appended.partition).copied().unwrap_or(0);
        if appended.offset >= committed {
            violations.push(format!("{place:?} is not done: its lane is stuck at {committed}"));
        }
    }
    Verdict::of(lanes.values().any(|lane| !lane.done.is_empty()), violations)
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
    use crate::verify::later::Later;
    use crate::verify::probes::Probes;
    use crate::verify::truth::{Appended, Truth};

    fn later(number: i64) -> Later {
        Later { number, due_us: 1_000 * number }
    }

    fn appended(offset: i64) -> Appended {
        let published_us = 1_000 * offset + 5;
        Appended { partition: 0, offset, later: Some(later(offset)), published_us }
    }

    fn popped(epoch: i64, offsets: &[i64]) -> Event {
        Event::Popped { partition: 0, epoch, offsets: offsets.to_vec() }
    }

    fn asked(epoch: i64) -> Event {
        Event::PopAsked { partition: 0, epoch }
    }

    fn acked(epoch: i64) -> Event {
        Event::PopAcked { partition: 0, epoch, end: 0 }
    }

    /// Four messages; the second pop is late, is fenced, and what it had comes again.
    fn good() -> (Vec<Event>, Truth) {
        let mut events: Vec<Event> = (0..4).map(|number| Event::Scheduled { later: later(number) }).collect();
        events.extend([
            popped(1, &[0, 1]),
            asked(1),
            acked(1),
            popped(2, &[2, 3]),
            popped(3, &[2]),
            asked(2),
        ]);
        events.push(Event::PopRefused { partition: 0, epoch: 2, fenced: true });
        events.extend([asked(3), acked(3), popped(4, &[3]), asked(4), acked(4)]);
        events.extend([Event::Full, Event::Depth { messages: 900, bound: 1_000 }]);
        let truth =
            Truth { later: (0..4).map(appended).collect(), pulled: [(0, 4)].into(), ..Truth::default() };
        (events, truth)
    }

    fn verdict(name: &str, events: Vec<Event>, truth: &Truth) -> &'static str {
        let (history, probes) = (History::of(events), Probes::default());
        judge(Evidence { history: &history, truth, probes: &probes })[name].name()
    }

    fn broken(name: &str, change: impl FnOnce(&mut Vec<Event>, &mut Truth)) {
        let (mut events, mut truth) = good();
        assert_eq!(verdict(name, events.clone(), &truth), "held");
        change(&mut events, &mut truth);
        assert_eq!(verdict(name, events, &truth), "violated", "{name}");
    }

    #[test]
    fn a_schedule_that_is_lost_or_fires_early_or_twice_is_found() {
        broken("schedules", |_, truth| truth.later.truncate(3));
        broken("schedules", |_, truth| truth.later[2].published_us = 1_999);
        broken("schedules", |_, truth| truth.later.push(Appended { offset: 4, ..appended(3) }));
        broken("schedules", |_, truth| truth.later[1].later = None);
        broken("schedules", |_, truth| truth.waiting = 1);
    }

    #[test]
    fn a_pop_that_loses_repeats_disorders_or_escapes_its_fence_is_found() {
        broken("pops", |events, _| events[4] = popped(1, &[1, 0]));
        broken("pops", |events, _| events[8] = popped(3, &[1, 2])); // done in the first epoch
        broken("pops", |events, _| events[8] = popped(2, &[2, 3])); // one epoch, two pullers
        broken("pops", |events, _| events[10] = acked(2)); // it was late, and counted
        broken("pops", |events, _| {
            events[7] = popped(2, &[2]);
            events.truncate(13); // the last one was never given out
        });
        broken("pops", |_, truth| truth.pulled = [(0, 3)].into());
    }

    #[test]
    fn a_topic_that_is_deeper_than_it_may_be_is_found() {
        broken("capacity", |events, _| events.push(Event::Depth { messages: 1_001, bound: 1_000 }));
    }

    #[test]
    fn what_did_not_happen_was_not_tried() {
        let truth = Truth::default();
        for name in ["schedules", "pops", "capacity", "keys"] {
            assert_eq!(verdict(name, vec![Event::Depth { messages: 0, bound: 1 }], &truth), "not_tried");
        }
    }
}
