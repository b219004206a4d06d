//! Order by key, with keys that are parked: one of the checks that queues add.
//!
//! | rule | says |
//! |---|---|
//! | loss | what was acknowledged is stored once, and is delivered and acknowledged, or the operator has dropped it |
//! | rounds | within an epoch and round, offsets rise |
//! | order | what comes in an epoch comes behind everything earlier of its key, which is done, dropped, or in flight in that epoch |
//! | fence | what was done in an epoch and round does not come in a later one |
//! | rest | every lane ends at the end, no key stays parked, and no key loses more than the operator has asked to drop |
//!
//! What has failed, and what is behind it in its key, is not in flight any more. The broker may hold back batches that it has made before,
//! while it does not trust its lease; so that counts only once they must have come. Members come back as other sessions, so a later round
//! of an epoch is no resume.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::{Evidence, Verdict};
use crate::verify::history::{Event, Term};
use crate::verify::keys::{KeyEvent, Keyed};
use crate::verify::settings::TTL;
use crate::verify::truth::Truth;

/// How long after the answer to a nack a batch may come that was made before.
const HELD_MAX: Duration = TTL.saturating_add(Duration::from_secs(1));

/// What is known of an epoch.
#[derive(Debug, Default)]
struct Epoch {
    /// The last offset of each round.
    rounds: HashMap<u32, i64>,
    /// By key: what is in flight, or was, and the round in which it came last.
    in_flight: HashMap<u32, BTreeMap<i64, u32>>,
    /// What has failed: when that was known, in which round, and what.
    failed: Vec<(Duration, u32, i64)>,
}

impl Epoch {
    /// Forgets what is void, of failures that were known so long ago.
    fn settle(&mut self, at: Duration, messages: &BTreeMap<i64, Keyed>) {
        let in_flight = &mut self.in_flight;
        self.failed.retain(|(known_at, round, offset)| {
            if *known_at + HELD_MAX > at {
                return true;
            }
            let key = messages.get(offset).map(|keyed| keyed.key);
            if let Some(of_key) = key.and_then(|key| in_flight.get_mut(&key)) {
                of_key.retain(|other, came_in| other < offset || *came_in > *round);
            }
            false
        });
    }
}

/// What is known about a partition.
#[derive(Debug, Default)]
struct Lane {
    messages: BTreeMap<i64, Keyed>,
    by_key: HashMap<u32, Vec<i64>>,
    dropped: BTreeSet<i64>,
    epochs: HashMap<i64, Epoch>,
    /// The latest epoch in which each message came.
    seen: HashMap<i64, i64>,
    /// What may be done: an ack was sent.
    asked: HashSet<i64>,
    /// What is done, and when.
    done: HashMap<i64, Term>,
    /// By key: how many of its first messages may be done, or were dropped.
    settled: HashMap<u32, usize>,
}

impl Lane {
    fn on_delivered(&mut self, at: Duration, term: Term, found: &[(i64, Option<Keyed>)]) -> Vec<String> {
        let mut violations = Vec::new();
        self.epochs.entry(term.0).or_default().settle(at, &self.messages);
        for (offset, keyed) in found {
            let Some(keyed) = keyed.filter(|keyed| self.messages.get(offset) == Some(keyed)) else {
                violations.push(format!("{offset} came as {keyed:?}, which is not what is stored"));
                continue;
            };
            if let Some(before) = self.done.get(offset).filter(|before| **before < term) {
                violations.push(format!("{offset} was done in {before:?}, and came in {term:?}"));
            }
            if let Some(first) = self.first_missing(term.0, keyed.key, *offset) {
                violations.push(format!("{offset} came in {term:?} before {first}, which has the same key"));
            }
            let epoch = self.epochs.entry(term.0).or_default();
            let last = epoch.rounds.insert(term.1, *offset);
            if let Some(last) = last.filter(|last| last >= offset) {
                violations.push(format!("{offset} came after {last} in {term:?}"));
            }
            epoch.in_flight.entry(keyed.key).or_default().insert(*offset, term.1);
            let seen = self.seen.entry(*offset).or_insert(term.0);
            *seen = term.0.max(*seen);
        }
        violations
    }

    /// The first message of a key below an offset that is neither done, as far as anybody knows, nor dropped, nor in flight.
    fn first_missing(&mut self, epoch: i64, key: u32, below: i64) -> Option<i64> {
        let offsets = self.by_key.get(&key)?;
        let is_settled = |offset: &i64| self.asked.contains(offset) || self.dropped.contains(offset);
        let settled = self.settled.entry(key).or_default();
        *settled += offsets[*settled..].iter().take_while(|offset| is_settled(offset)).count();
        let in_flight = self.epochs.get(&epoch).and_then(|epoch| epoch.in_flight.get(&key));
        let is_in_flight = |offset: &i64| in_flight.is_some_and(|of_key| of_key.contains_key(offset));
        let earlier = offsets[*settled..].iter().take_while(|offset| **offset < below);
        earlier.copied().find(|offset| !is_settled(offset) && !is_in_flight(offset))
    }

    fn on_confirmed(&mut self, term: Term, offsets: &[i64]) -> Vec<String> {
        let mut violations = Vec::new();
        for offset in offsets {
            self.done.entry(*offset).or_insert(term);
            if let Some(later) = self.seen.get(offset).filter(|later| **later > term.0) {
                violations.push(format!("{offset} was done in {term:?}, and came in epoch {later}"));
            }
        }
        violations
    }

    /// What is not as it should be in the end, if the lane has come so far.
    fn unfinished(&self, committed: i64) -> Vec<String> {
        let mut violations = Vec::new();
        for (offset, keyed) in &self.messages {
            let is_done = self.seen.contains_key(offset) && self.asked.contains(offset);
            if !is_done && !self.dropped.contains(offset) {
                violations.push(format!("{keyed:?} at {offset} was never delivered and acknowledged"));
            }
            if *offset >= committed {
                violations.push(format!("{offset} is not done: its lane is stuck at {committed}"));
            }
        }
        violations
    }
}

fn lanes(truth: &Truth) -> BTreeMap<u32, Lane> {
    let mut lanes: BTreeMap<u32, Lane> = BTreeMap::new();
    for ((partition, offset), keyed) in &truth.keyed {
        let Some(keyed) = keyed else { continue };
        let lane = lanes.entry(*partition).or_default();
        lane.messages.insert(*offset, *keyed);
        lane.by_key.entry(keyed.key).or_default().push(*offset);
    }
    for (partition, offset) in &truth.dropped {
        lanes.entry(*partition).or_default().dropped.insert(*offset);
    }
    lanes
}

pub(super) fn keys(evidence: Evidence<'_>) -> Verdict {
    let mut lanes = lanes(evidence.truth);
    let mut violations = stored(evidence);
    violations.extend(drops(evidence));
    let mut was_replayed = false;
    for entry in &evidence.history.entries {
        let Event::Keyed(event) = &entry.event else { continue };
        let (partition, found) = match event {
            KeyEvent::Delivered { partition, term, messages } => {
                let lane = lanes.entry(*partition).or_default();
                (partition, lane.on_delivered(entry.at, *term, messages))
            }
            KeyEvent::Asked { partition, offsets } => {
                lanes.entry(*partition).or_default().asked.extend(offsets);
                continue;
            }
            KeyEvent::Confirmed { partition, term, offsets } => {
                (partition, lanes.entry(*partition).or_default().on_confirmed(*term, offsets))
            }
            KeyEvent::Failed { partition, term, offset } => {
                let epoch = lanes.entry(*partition).or_default().epochs.entry(term.0).or_default();
                epoch.failed.push((entry.at, term.1, *offset));
                continue;
            }
            KeyEvent::Replayed { .. } => {
                was_replayed = true;
                continue;
            }
            KeyEvent::Stored(_) | KeyEvent::DropAsked { .. } | KeyEvent::Dropped { .. } => continue,
        };
        violations.extend(found.into_iter().map(|found| format!("partition {partition}: {found}")));
    }
    for (partition, lane) in &lanes {
        let unfinished = lane.unfinished(evidence.truth.kept.get(partition).copied().unwrap_or(0));
        violations.extend(unfinished.into_iter().map(|found| format!("partition {partition}: {found}")));
    }
    if evidence.truth.parked > 0 {
        violations.push(format!("{} keys are still parked or released", evidence.truth.parked));
    }
    Verdict::of(was_replayed && lanes.values().any(|lane| !lane.done.is_empty()), violations)
}

/// Whether everything that was acknowledged is stored, and nothing twice.
fn stored(evidence: Evidence<'_>) -> Vec<String> {
    let mut places: HashMap<Keyed, (u32, i64)> = HashMap::new();
    let mut violations = Vec::new();
    for (place, keyed) in &evidence.truth.keyed {
        match keyed.map(|keyed| places.insert(keyed, *place)) {
            Some(None) => {}
            Some(Some(other)) => violations.push(format!("{keyed:?} is stored at {other:?} and {place:?}")),
            None => violations.push(format!("{place:?} is not what anybody has published")),
        }
    }
    let lost = evidence.history.events().filter_map(|event| match event {
        Event::Keyed(KeyEvent::Stored(keyed)) if !places.contains_key(keyed) => Some(keyed),
        _ => None,
    });
    violations.extend(lost.map(|keyed| format!("{keyed:?} was acknowledged and is not stored")));
    violations
}

/// Whether each key has lost as many messages as the operator has dropped. A request without an answer may have counted.
fn drops(evidence: Evidence<'_>) -> Vec<String> {
    let mut counts: BTreeMap<u32, (usize, usize, usize)> = BTreeMap::new();
    for event in evidence.history.events() {
        match event {
            Event::Keyed(KeyEvent::DropAsked { key }) => counts.entry(*key).or_default().0 += 1,
            Event::Keyed(KeyEvent::Dropped { key }) => counts.entry(*key).or_default().1 += 1,
            _ => {}
        }
    }
    for place in &evidence.truth.dropped {
        if let Some(keyed) = evidence.truth.keyed.get(place).copied().flatten() {
            counts.entry(keyed.key).or_default().2 += 1;
        }
    }
    let wrong = counts.into_iter().filter(|(_, (asked, told, gone))| gone > asked || gone < told);
    let text = |(key, (asked, told, gone))| {
        format!("key {key} has lost {gone} messages; {asked} drops were asked for, {told} confirmed")
    };
    wrong.map(text).collect()
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
