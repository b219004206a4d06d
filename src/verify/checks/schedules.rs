//! Messages that wait for their time: once, not early, in order, never lost; and what becomes of those that are cancelled or moved. Pure.

use std::collections::{BTreeMap, HashMap};

use super::{Evidence, Verdict};
use crate::verify::history::{Event, History};
use crate::verify::later::Later;
use crate::verify::reschedule::Second;
use crate::verify::truth::Appended;

/// What is known of a message that waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Fate {
    /// When its publish was answered.
    scheduled_us: Option<i64>,
    second: Option<Second>,
}

impl Fate {
    /// Whether it must be in its partition in the end.
    fn must_fire(&self) -> bool {
        let may_be_cancelled =
            matches!(self.second, Some(Second::CancelAsked { .. } | Second::Cancelled { .. }));
        self.scheduled_us.is_some() && !may_be_cancelled
    }

    /// Before it, nobody may append the message.
    fn earliest_us(&self, later: Later) -> i64 {
        match self.second {
            Some(Second::Moved { due_us, .. }) => due_us,
            Some(Second::MoveAsked { due_us, .. }) => due_us.min(later.due_us),
            Some(Second::CancelAsked { .. } | Second::Cancelled { .. } | Second::Gone { .. }) | None => {
                later.due_us
            }
        }
    }

    /// When it is due, if that is certain, and was known before: what comes too late is due when it comes.
    fn due_us(&self, later: Later) -> Option<i64> {
        let (due_us, known_us) = match self.second {
            Some(Second::Moved { due_us, at_us, .. }) => (due_us, at_us),
            Some(Second::MoveAsked { .. }) => return None,
            Some(Second::CancelAsked { .. } | Second::Cancelled { .. } | Second::Gone { .. }) | None => {
                (later.due_us, self.scheduled_us?)
            }
        };
        (known_us < due_us).then_some(due_us)
    }
}

fn fates(history: &History) -> HashMap<i64, Fate> {
    let mut fates: HashMap<i64, Fate> = HashMap::new();
    for event in history.events() {
        match event {
            Event::Scheduled { later, at_us } => {
                fates.entry(later.number).or_default().scheduled_us = Some(*at_us)
            }
            Event::Second(second) => {
                let (Second::CancelAsked { number }
                | Second::Cancelled { number }
                | Second::MoveAsked { number, .. }
                | Second::Moved { number, .. }
                | Second::Gone { number }) = second;
                fates.entry(*number).or_default().second = Some(*second);
            }
            _ => {}
        }
    }
    fates
}

/// Where each message stands, by number.
fn fired(later: &[Appended]) -> BTreeMap<i64, Vec<Appended>> {
    let mut fired: BTreeMap<i64, Vec<Appended>> = BTreeMap::new();
    for appended in later {
        if let Some(later) = appended.later {
            fired.entry(later.number).or_default().push(*appended);
        }
    }
    fired
}

pub(super) fn schedules(evidence: Evidence<'_>) -> Verdict {
    let (fates, fired) = (fates(evidence.history), fired(&evidence.truth.later));
    let mut violations = disordered(&evidence.truth.later, &fates);
    for appended in &evidence.truth.later {
        let place = (appended.partition, appended.offset);
        let Some(later) = appended.later else {
            violations.push(format!("{place:?} is not what anybody has published"));
            continue;
        };
        let earliest_us = fates.get(&later.number).map_or(later.due_us, |fate| fate.earliest_us(later));
        if appended.published_us < earliest_us {
            let early = earliest_us - appended.published_us;
            violations.push(format!("message {} was appended {early} µs before it was due", later.number));
        }
    }
    for (number, found) in fired.iter().filter(|(_, found)| found.len() > 1) {
        let places: Vec<_> = found.iter().map(|one| (one.partition, one.offset)).collect();
        violations.push(format!("message {number} was appended twice: {places:?}"));
    }
    let lost = fates.iter().filter(|(number, fate)| fate.must_fire() && !fired.contains_key(number));
    violations
        .extend(lost.map(|(number, _)| format!("message {number} was acknowledged and never appended")));
    if evidence.truth.waiting > 0 {
        violations.push(format!("{} messages still wait, long after they were due", evidence.truth.waiting));
    }
    Verdict::of(fates.values().any(|fate| fate.scheduled_us.is_some()), violations)
}

/// What stands behind a message of its partition that was due later.
fn disordered(later: &[Appended], fates: &HashMap<i64, Fate>) -> Vec<String> {
    let mut places: Vec<&Appended> = later.iter().collect();
    places.sort_by_key(|appended| (appended.partition, appended.offset));
    let mut latest: HashMap<u32, (i64, i64)> = HashMap::new();
    let mut violations = Vec::new();
    for appended in places {
        let Some(later) = appended.later else { continue };
        let Some(due_us) = fates.get(&later.number).and_then(|fate| fate.due_us(later)) else { continue };
        let (before_us, before) = latest.entry(appended.partition).or_insert((due_us, later.number));
        if due_us < *before_us {
            violations.push(format!(
                "message {} was due before message {before} and stands behind it",
                later.number
            ));
        } else {
            (*before_us, *before) = (due_us, later.number);
        }
    }
    violations
}

/// What was cancelled is never appended; what was moved is appended at its new time; and what was told to be gone is there.
pub(super) fn reschedules(evidence: Evidence<'_>) -> Verdict {
    let (fates, fired) = (fates(evidence.history), fired(&evidence.truth.later));
    let (mut cancelled, mut moved, mut violations) = (0, 0, Vec::new());
    for (number, second) in fates.iter().filter_map(|(number, fate)| Some((number, fate.second?))) {
        let found = fired.get(number).and_then(|found| found.first());
        match (second, found) {
            (Second::Cancelled { .. }, found) => {
                cancelled += 1;
                violations.extend(found.map(|_| format!("message {number} was cancelled and appended")));
            }
            (Second::Moved { due_us, .. }, Some(found)) => {
                moved += 1;
                let early = (due_us - found.published_us).max(0);
                if early > 0 {
                    violations.push(format!("message {number} was moved, and appended {early} µs too early"));
                }
            }
            (Second::Moved { .. }, None) => {
                violations.push(format!("message {number} was moved and is lost"))
            }
            (Second::Gone { .. }, None) => {
                violations.push(format!("message {number} waited no more, and was never appended"));
            }
            (Second::Gone { .. }, Some(_))
            | (Second::CancelAsked { .. } | Second::MoveAsked { .. }, Some(_) | None) => {}
        }
    }
    Verdict::of(cancelled > 0 && moved > 0, violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::checks::queues::judge;
    use crate::verify::probes::Probes;
    use crate::verify::truth::Truth;

    fn later(number: i64) -> Later {
        Later { number, due_us: 1_000 * number }
    }

    fn appended(offset: i64, number: i64, published_us: i64) -> Appended {
        Appended { partition: 0, offset, later: Some(later(number)), published_us }
    }

    /// Six messages in one partition: 3 is cancelled, 1 is moved behind 4, and nobody knows whether 5 was moved.
    fn good() -> (Vec<Event>, Truth) {
        let scheduled = |number: i64| Event::Scheduled { later: later(number), at_us: 1_000 * number - 500 };
        let mut events: Vec<Event> = (0..6).map(scheduled).collect();
        let seconds = [
            Second::CancelAsked { number: 3 }, // 6
            Second::Cancelled { number: 3 },
            Second::MoveAsked { number: 1, due_us: 4_500 }, // 8
            Second::Moved { number: 1, due_us: 4_500, at_us: 900 },
            Second::MoveAsked { number: 5, due_us: 2_500 }, // 10
            Second::Gone { number: 2 },
        ];
        events.extend(seconds.map(Event::Second));
        let later = vec![
            appended(0, 0, 5),
            appended(1, 2, 2_005),
            appended(2, 5, 2_505),
            appended(3, 4, 4_005),
            appended(4, 1, 4_505),
        ];
        (events, Truth { later, ..Truth::default() })
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
    fn a_schedule_that_is_lost_or_fires_early_twice_or_out_of_order_is_found() {
        broken("schedules", |_, truth| _ = truth.later.remove(1));
        broken("schedules", |_, truth| truth.later[1].published_us = 1_999);
        broken("schedules", |_, truth| truth.later[2].published_us = 2_499); // early for either time
        broken("schedules", |_, truth| truth.later.push(appended(5, 4, 4_600)));
        broken("schedules", |_, truth| truth.later[1].later = None);
        broken("schedules", |_, truth| truth.waiting = 1);
        broken("schedules", |_, truth| {
            (truth.later[3].offset, truth.later[4].offset) = (4, 3); // 1 is due after 4 by now
            truth.later[3].published_us = 4_510;
        });
    }

    #[test]
    fn what_came_too_late_or_may_have_been_moved_has_no_place_of_its_own() {
        let (mut events, mut truth) = good();
        events[2] = Event::Scheduled { later: later(2), at_us: 3_000 };
        truth.later[1] = appended(5, 2, 4_600);
        assert_eq!(verdict("schedules", events, &truth), "held");
    }

    #[test]
    fn what_was_cancelled_and_fires_or_was_moved_and_does_not_is_found() {
        broken("reschedules", |_, truth| truth.later.push(appended(5, 3, 4_600)));
        broken("reschedules", |_, truth| truth.later[4].published_us = 4_499);
        broken("reschedules", |_, truth| truth.later.truncate(4));
        broken("reschedules", |_, truth| _ = truth.later.remove(1)); // it was told to be gone
    }

    #[test]
    fn without_a_cancel_or_a_move_neither_was_tried() {
        for left_out in [7, 9] {
            let (mut events, mut truth) = good();
            events.remove(left_out);
            truth.later.retain(|one| one.offset != 4 || left_out == 7);
            assert_eq!(verdict("reschedules", events, &truth), "not_tried");
        }
    }
}
