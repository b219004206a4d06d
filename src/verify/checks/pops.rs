//! Lanes that are pulled: nothing is lost, each pop is in order and given out once, its time is its own, who is late is fenced, and what
//! is refused comes again when it should. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Evidence, Verdict};
use crate::verify::history::Event;
use crate::verify::puller::{Again, Pulled};

/// What a pop has given out.
#[derive(Debug)]
struct Pop {
    offsets: Vec<i64>,
    at_us: i64,
    /// Nobody else gets its messages before, unless it is settled.
    until_us: i64,
}

/// What is known about a pulled lane so far.
#[derive(Debug, Default)]
struct Lane {
    popped: BTreeMap<i64, Pop>,
    /// What is durably done, and under which epoch.
    done: BTreeMap<i64, i64>,
    /// Of each pop: the highest epoch that was known when it was about to be settled.
    asked: HashMap<i64, i64>,
    /// What was refused and has not come again: not before this moment.
    refused: BTreeMap<i64, i64>,
    delivered: BTreeSet<i64>,
}

impl Lane {
    fn on_popped(&mut self, epoch: i64, pop: Pop) -> Vec<String> {
        let (offsets, at_us) = (&pop.offsets, pop.at_us);
        let mut violations = Vec::new();
        if !offsets.is_sorted_by(|one, next| one < next) {
            violations.push(format!("epoch {epoch} gave out {offsets:?}, which do not rise"));
        }
        for offset in offsets {
            if let Some(before) = self.done.get(offset).filter(|before| **before < epoch) {
                violations
                    .push(format!("{offset} was done in epoch {before}, and given out in epoch {epoch}"));
            }
            if self.refused.remove(offset).is_some_and(|not_before_us| at_us < not_before_us) {
                violations.push(format!("{offset} was refused, and came again in epoch {epoch} too early"));
            }
        }
        let before = self.popped.range(..epoch).next_back();
        if let Some((other, _)) =
            before.filter(|(other, pop)| at_us < pop.until_us && !self.asked.contains_key(*other))
        {
            violations.push(format!("epoch {epoch} was given out while epoch {other} had time"));
        }
        self.delivered.extend(offsets);
        if self.popped.insert(epoch, pop).is_some() {
            violations.push(format!("epoch {epoch} was given out twice"));
        }
        violations
    }

    fn on_asked(&mut self, epoch: i64) {
        let known = self.popped.keys().next_back().copied().unwrap_or(epoch);
        self.asked.insert(epoch, known);
    }

    /// What was settled in an epoch must have been settled while no other was given out.
    fn overlap(&self, epoch: i64, what: &str) -> Option<String> {
        let known = self.asked.get(&epoch).filter(|known| **known > epoch)?;
        Some(format!("{what} of epoch {epoch} counted after epoch {known} was given out"))
    }

    fn on_acked(&mut self, epoch: i64, end: i64) -> Vec<String> {
        let of_pop = self.popped.get(&epoch).into_iter().flat_map(|pop| pop.offsets.iter().copied());
        let own: Vec<i64> = of_pop.filter(|offset| *offset < end).collect();
        self.on_done(epoch, &own, "an ack")
    }

    fn on_done(&mut self, epoch: i64, own: &[i64], what: &str) -> Vec<String> {
        for offset in own {
            self.done.entry(*offset).or_insert(epoch);
        }
        // It must not have been given out again before this was heard, either.
        let again = self.popped.range(epoch + 1..).flat_map(|(next, pop)| {
            let both = pop.offsets.iter().filter(|offset| own.contains(offset));
            both.map(move |offset| {
                format!("{offset} was done in epoch {epoch}, and given out in epoch {next}")
            })
        });
        self.overlap(epoch, what).into_iter().chain(again).collect()
    }

    fn on_nacked(&mut self, epoch: i64, offset: i64, not_before_us: i64, comes_again: Again) -> Vec<String> {
        if comes_again == Again::No {
            return self.on_done(epoch, &[offset], "a nack");
        }
        let mut violations: Vec<String> = self.overlap(epoch, "a nack").into_iter().collect();
        let mut later = self.popped.range(epoch + 1..).filter(|(_, pop)| pop.offsets.contains(&offset));
        match later.next() {
            Some((next, pop)) if pop.at_us < not_before_us => {
                violations.push(format!("{offset} was refused, and came again in epoch {next} too early"));
            }
            Some(_) => {}
            None => _ = self.refused.insert(offset, not_before_us),
        }
        violations
    }

    fn on_extended(&mut self, epoch: i64, until_us: i64) -> Option<String> {
        let pop = self.popped.get_mut(&epoch)?;
        pop.until_us = pop.until_us.max(until_us);
        let (next, _) = self.popped.range(epoch + 1..).find(|(_, pop)| pop.at_us < until_us)?;
        Some(format!("epoch {epoch} was given more time, and epoch {next} was given out within"))
    }

    fn on_fenced(&self, epoch: i64, at_us: i64) -> Option<String> {
        let pop = self.popped.get(&epoch).filter(|pop| at_us < pop.until_us)?;
        Some(format!("epoch {epoch} was told to be over {} µs too early", pop.until_us - at_us))
    }

    fn on(&mut self, pulled: &Pulled) -> Vec<String> {
        match pulled {
            Pulled::Popped { epoch, offsets, at_us, until_us, .. } => {
                let pop = Pop { offsets: offsets.clone(), at_us: *at_us, until_us: *until_us };
                self.on_popped(*epoch, pop)
            }
            Pulled::Asked { epoch, .. } => {
                self.on_asked(*epoch);
                Vec::new()
            }
            Pulled::Acked { epoch, end, .. } => self.on_acked(*epoch, *end),
            Pulled::Nacked { epoch, offset, not_before_us, comes_again, .. } => {
                self.on_nacked(*epoch, *offset, *not_before_us, *comes_again)
            }
            Pulled::Extended { epoch, until_us, .. } => {
                self.on_extended(*epoch, *until_us).into_iter().collect()
            }
            Pulled::Fenced { epoch, at_us, .. } => self.on_fenced(*epoch, *at_us).into_iter().collect(),
        }
    }
}

fn partition(pulled: &Pulled) -> u32 {
    match pulled {
        Pulled::Popped { partition, .. }
        | Pulled::Asked { partition, .. }
        | Pulled::Acked { partition, .. }
        | Pulled::Nacked { partition, .. }
        | Pulled::Extended { partition, .. }
        | Pulled::Fenced { partition, .. } => *partition,
    }
}

pub(super) fn pops(evidence: Evidence<'_>) -> Verdict {
    let mut lanes: BTreeMap<u32, Lane> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in evidence.history.events() {
        let Event::Pulled(pulled) = event else { continue };
        let partition = partition(pulled);
        let found = lanes.entry(partition).or_default().on(pulled);
        violations.extend(found.into_iter().map(|found| format!("partition {partition}: {found}")));
    }
    for (partition, lane) in &lanes {
        let never = lane.refused.keys().map(|offset| (*partition, *offset));
        let never = never.filter(|place| !evidence.truth.pulled_dead.contains(place));
        violations.extend(never.map(|place| format!("{place:?} was refused, and never came again")));
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
    let had = |kind: fn(&Pulled) -> bool| {
        evidence.history.events().any(|event| matches!(event, Event::Pulled(pulled) if kind(pulled)))
    };
    let was_refused = had(|pulled| matches!(pulled, Pulled::Nacked { .. }));
    let was_extended = had(|pulled| matches!(pulled, Pulled::Extended { .. }));
    let was_done = lanes.values().any(|lane| !lane.done.is_empty());
    Verdict::of(was_done && was_refused && was_extended, violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::checks::queues::judge;
    use crate::verify::history::History;
    use crate::verify::probes::Probes;
    use crate::verify::truth::{Appended, Truth};

    const P: u32 = 0;

    fn popped(epoch: i64, offsets: &[i64], at_us: i64, until_us: i64) -> Event {
        let offsets = offsets.to_vec();
        Event::Pulled(Pulled::Popped { partition: P, epoch, offsets, at_us, until_us })
    }

    fn asked(epoch: i64) -> Event {
        Event::Pulled(Pulled::Asked { partition: P, epoch })
    }

    fn acked(epoch: i64, end: i64) -> Event {
        Event::Pulled(Pulled::Acked { partition: P, epoch, end })
    }

    fn nacked(epoch: i64, offset: i64, not_before_us: i64, comes_again: Again) -> Event {
        Event::Pulled(Pulled::Nacked { partition: P, epoch, offset, not_before_us, comes_again })
    }

    fn fenced(epoch: i64, at_us: i64) -> Event {
        Event::Pulled(Pulled::Fenced { partition: P, epoch, at_us })
    }

    /// Five messages. The second pop is late, is fenced, and what it had comes again; 3 is refused once, and the last pop gets more time.
    fn good() -> (Vec<Event>, Truth) {
        let events = vec![
            popped(1, &[0, 1], 10, 110), // 0
            asked(1),
            acked(1, 2),
            popped(2, &[2, 3], 20, 120), // 3
            popped(3, &[2, 3], 130, 230),
            asked(2), // 5
            fenced(2, 140),
            asked(3), // 7
            nacked(3, 3, 300, Again::Yes),
            asked(3), // 9
            acked(3, 3),
            popped(4, &[3, 4], 310, 410), // 11
            Event::Pulled(Pulled::Extended { partition: P, epoch: 4, until_us: 600 }),
            asked(4), // 13
            acked(4, 5),
        ];
        let appended = |offset| Appended { partition: P, offset, later: None, published_us: 0 };
        let truth =
            Truth { later: (0..5).map(appended).collect(), pulled: [(P, 5)].into(), ..Truth::default() };
        (events, truth)
    }

    fn verdict(events: Vec<Event>, truth: &Truth) -> &'static str {
        let (history, probes) = (History::of(events), Probes::default());
        judge(Evidence { history: &history, truth, probes: &probes })["pops"].name()
    }

    fn broken(change: impl FnOnce(&mut Vec<Event>, &mut Truth)) {
        let (mut events, mut truth) = good();
        assert_eq!(verdict(events.clone(), &truth), "held");
        change(&mut events, &mut truth);
        assert_eq!(verdict(events, &truth), "violated");
    }

    #[test]
    fn a_pop_that_loses_repeats_disorders_or_escapes_its_fence_is_found() {
        broken(|events, _| events[0] = popped(1, &[1, 0], 10, 110));
        broken(|events, _| events[4] = popped(3, &[1, 2], 130, 230)); // 1 was done in the first epoch
        broken(|events, _| events[4] = popped(2, &[2, 3], 130, 230)); // one epoch, two pullers
        broken(|events, _| events[6] = acked(2, 4)); // it was late, and counted
        broken(|events, _| {
            events[11] = popped(4, &[3], 310, 410); // 4 was never given out
        });
        broken(|_, truth| truth.pulled = [(P, 4)].into());
    }

    #[test]
    fn a_pop_whose_time_is_not_its_own_is_found() {
        broken(|events, _| events[4] = popped(3, &[2, 3], 119, 230)); // the second had time
        broken(|events, _| events[6] = fenced(2, 119)); // and was told that it had none
        broken(|events, _| events.insert(13, popped(5, &[3, 4], 500, 700))); // after it was given more
        broken(|events, _| {
            events.insert(12, popped(5, &[3, 4], 420, 700)); // before that was heard
        });
    }

    #[test]
    fn a_refused_message_that_comes_too_early_or_never_or_after_it_was_given_up_is_found() {
        broken(|events, _| events[11] = popped(4, &[3, 4], 299, 410));
        broken(|events, _| {
            events[8] = nacked(3, 2, 300, Again::Yes); // 2 never came again
            events[10] = acked(3, 2);
        });
        broken(|events, _| events[8] = nacked(3, 3, 300, Again::No)); // and it came
        broken(|events, _| events[6] = nacked(2, 3, 0, Again::Yes)); // of a pop that was over
    }

    #[test]
    fn without_a_nack_or_an_extend_pops_were_not_tried() {
        let (mut events, truth) = good();
        events.remove(12);
        assert_eq!(verdict(events, &truth), "not_tried");
        let (mut events, truth) = good();
        events.remove(8);
        assert_eq!(verdict(events, &truth), "not_tried");
    }

    #[test]
    fn what_came_again_before_its_nack_was_heard_is_held_against_the_same_moment() {
        for (not_before_us, expected) in [(310, "held"), (311, "violated")] {
            let (mut events, truth) = good();
            let again = events.remove(11);
            events.splice(8..11, [again, nacked(3, 3, not_before_us, Again::Yes)]);
            assert_eq!(verdict(events, &truth), expected);
        }
    }
}
