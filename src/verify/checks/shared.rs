//! A group that sessions and pullers share: a lane is of one side at a time, and nothing is lost or given out again once it is done. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Evidence, Verdict};
use crate::verify::history::Event;
use crate::verify::mixed::{Shared, Side};

/// What is known about a lane so far.
#[derive(Debug, Default)]
struct Lane {
    /// Whose each epoch was, and what was given out under it.
    given: BTreeMap<i64, (Side, BTreeSet<i64>)>,
    /// What is durably done, and under which epoch.
    done: BTreeMap<i64, i64>,
    /// The highest epoch that was known when something of another was first about to be acknowledged.
    asked: HashMap<i64, i64>,
    delivered: BTreeSet<i64>,
}

impl Lane {
    fn on_given(&mut self, side: Side, epoch: i64, offsets: &[i64]) -> Vec<String> {
        let mut violations = Vec::new();
        for offset in offsets {
            if let Some(before) = self.done.get(offset).filter(|before| **before < epoch) {
                violations
                    .push(format!("{offset} was done in epoch {before}, and given out in epoch {epoch}"));
            }
        }
        let (whose, given) = self.given.entry(epoch).or_insert_with(|| (side, BTreeSet::new()));
        if *whose != side {
            violations.push(format!("epoch {epoch} was a {whose:?}'s and a {side:?}'s"));
        }
        for offset in offsets {
            if !given.insert(*offset) {
                violations.push(format!("{offset} was given out twice in epoch {epoch}"));
            }
        }
        self.delivered.extend(offsets);
        violations
    }

    fn on_done(&mut self, epoch: i64, own: &[i64]) -> Vec<String> {
        for offset in own {
            self.done.entry(*offset).or_insert(epoch);
        }
        let later = self.asked.get(&epoch).filter(|known| **known > epoch);
        let overlap =
            later.map(|known| format!("an ack of epoch {epoch} counted after epoch {known} was given out"));
        // It must not have been given out again before this was heard, either.
        let again = self.given.range(epoch + 1..).flat_map(|(next, (_, given))| {
            let both = own.iter().filter(|offset| given.contains(offset));
            both.map(move |offset| {
                format!("{offset} was done in epoch {epoch}, and given out in epoch {next}")
            })
        });
        overlap.into_iter().chain(again).collect()
    }

    fn has_done(&self, side: Side) -> bool {
        let is_of_side = |epoch: &i64| self.given.get(epoch).is_some_and(|(whose, _)| *whose == side);
        self.done.values().any(is_of_side)
    }
}

pub(super) fn shared(evidence: Evidence<'_>) -> Verdict {
    let mut lanes: BTreeMap<u32, Lane> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in evidence.history.events() {
        let Event::Shared(shared) = event else { continue };
        let (partition, found) = match shared {
            Shared::Given { side, partition, epoch, offsets } => {
                (partition, lanes.entry(*partition).or_default().on_given(*side, *epoch, offsets))
            }
            Shared::Asked { partition, epoch } => {
                let lane = lanes.entry(*partition).or_default();
                let known = lane.given.keys().next_back().copied().unwrap_or(*epoch);
                lane.asked.insert(*epoch, known);
                continue;
            }
            Shared::Done { partition, epoch, offsets, .. } => {
                (partition, lanes.entry(*partition).or_default().on_done(*epoch, offsets))
            }
        };
        violations.extend(found.into_iter().map(|found| format!("partition {partition}: {found}")));
    }
    for appended in &evidence.truth.later {
        let place = (appended.partition, appended.offset);
        let is_seen =
            lanes.get(&appended.partition).is_some_and(|lane| lane.delivered.contains(&appended.offset));
        if !is_seen && !evidence.truth.shared_dead.contains(&place) {
            violations.push(format!("{place:?} was never given out"));
        }
        let committed = evidence.truth.shared.get(&appended.partition).copied().unwrap_or(0);
        if appended.offset >= committed {
            violations.push(format!("{place:?} is not done: its lane is stuck at {committed}"));
        }
    }
    let has_done = |side| lanes.values().any(|lane| lane.has_done(side));
    Verdict::of(has_done(Side::Session) && has_done(Side::Puller), violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::checks::queues::judge;
    use crate::verify::history::History;
    use crate::verify::probes::Probes;
    use crate::verify::truth::{Appended, Truth};

    fn given(side: Side, epoch: i64, offsets: &[i64]) -> Event {
        Event::Shared(Shared::Given { side, partition: 0, epoch, offsets: offsets.to_vec() })
    }

    fn asked(epoch: i64) -> Event {
        Event::Shared(Shared::Asked { partition: 0, epoch })
    }

    fn done(side: Side, epoch: i64, offsets: &[i64]) -> Event {
        Event::Shared(Shared::Done { side, partition: 0, epoch, offsets: offsets.to_vec() })
    }

    /// A session does 0 and 1 and leaves; a puller does 2; another session gets what is left.
    fn good() -> (Vec<Event>, Truth) {
        let events = vec![
            given(Side::Session, 1, &[0, 1]), // 0
            asked(1),
            done(Side::Session, 1, &[0, 1]), // 2
            given(Side::Session, 1, &[2, 3]),
            given(Side::Puller, 2, &[2]), // 4
            asked(2),
            done(Side::Puller, 2, &[2]), // 6
            given(Side::Session, 3, &[3]),
            asked(3), // 8
            done(Side::Session, 3, &[3]),
        ];
        let appended = |offset| Appended { partition: 0, offset, later: None, published_us: 0 };
        let truth =
            Truth { later: (0..4).map(appended).collect(), shared: [(0, 4)].into(), ..Truth::default() };
        (events, truth)
    }

    fn verdict(events: Vec<Event>, truth: &Truth) -> &'static str {
        let (history, probes) = (History::of(events), Probes::default());
        judge(Evidence { history: &history, truth, probes: &probes })["shared"].name()
    }

    fn broken(change: impl FnOnce(&mut Vec<Event>, &mut Truth)) {
        let (mut events, mut truth) = good();
        assert_eq!(verdict(events.clone(), &truth), "held");
        change(&mut events, &mut truth);
        assert_eq!(verdict(events, &truth), "violated");
    }

    #[test]
    fn a_lane_of_both_sides_that_loses_repeats_or_belongs_to_both_is_found() {
        broken(|events, _| events[4] = given(Side::Puller, 1, &[2])); // one epoch, two sides
        broken(|events, _| events[4] = given(Side::Puller, 2, &[1])); // done by the session
        broken(|events, _| events[3] = given(Side::Session, 1, &[1, 2])); // twice in one epoch
        broken(|events, _| events.insert(5, done(Side::Session, 1, &[2]))); // the puller had it by then
        broken(|events, _| events.extend([asked(1), done(Side::Session, 1, &[])])); // late, and it counted
        broken(|events, _| {
            events[3] = given(Side::Session, 1, &[2]);
            events.truncate(7); // 3 was never given out
        });
        broken(|_, truth| truth.shared = [(0, 3)].into());
    }

    #[test]
    fn if_one_side_alone_has_done_everything_sharing_was_not_tried() {
        let (mut events, truth) = good();
        events[4] = given(Side::Session, 2, &[2]);
        assert_eq!(verdict(events, &truth), "not_tried");
    }
}
