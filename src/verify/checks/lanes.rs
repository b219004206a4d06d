//! Promises about who holds a lane, and which of its effects count.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::offsets::Offsets;
use super::{Evidence, Verdict, storage};
use crate::verify::history::{Event, LaneId, Ranges, Term};
use crate::verify::settings::{FaultKind, GROUPS};

/// What makes zombies.
const FREEZES: &[FaultKind] =
    &[FaultKind::FreezeBroker, FaultKind::FreezeConsumer, FaultKind::BlackholeClients];

/// Figures of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub lost: usize,
    pub duplicated_after_ack: usize,
    pub order_violations: usize,
    pub overlaps: usize,
    pub fenced: usize,
}

impl Counts {
    pub fn of(evidence: Evidence<'_>) -> Self {
        Self {
            lost: storage::lost(evidence).len(),
            duplicated_after_ack: repeated_after_ack(evidence).len(),
            order_violations: disorder(evidence).len(),
            overlaps: overlaps(evidence).len(),
            fenced: evidence
                .history
                .events()
                .filter(|event| matches!(event, Event::AckRefused { fenced: true, .. }))
                .count(),
        }
    }
}

/// Two owners of one epoch, and effects of an epoch that a later one did not know of when it began.
fn overlaps(evidence: Evidence<'_>) -> Vec<String> {
    let mut overlaps = Vec::new();
    let mut owners: HashMap<(LaneId, i64), usize> = HashMap::new();
    for event in evidence.history.events() {
        let Event::Granted { lane, term: (epoch, _), consumer, .. } = event else { continue };
        let owner = *owners.entry((*lane, *epoch)).or_insert(*consumer);
        if owner != *consumer {
            overlaps.push(format!("{lane:?}: epoch {epoch} went to consumers {owner} and {consumer}"));
        }
    }
    overlaps.extend(forgotten(evidence));
    overlaps
}

/// Confirmed acks that a later epoch did not know when it began: so they were accepted after it, or lost.
fn forgotten(evidence: Evidence<'_>) -> Vec<String> {
    let mut confirmed: HashMap<LaneId, BTreeMap<i64, Offsets>> = HashMap::new();
    for event in evidence.history.events() {
        if let Event::Confirmed { lane, term: (epoch, _), ranges, .. }
        | Event::Stepped { lane, term: (epoch, _), ranges, .. } = event
        {
            confirmed.entry(*lane).or_default().entry(*epoch).or_default().extend(ranges);
        }
    }
    let mut forgotten = Vec::new();
    for event in evidence.history.events() {
        let Event::Granted { lane, term: (epoch, _), committed, acked, .. } = event else { continue };
        let mut known = Offsets::default();
        known.insert(0, *committed);
        known.extend(acked);
        for (earlier, offsets) in confirmed.get(lane).into_iter().flat_map(|lane| lane.range(..epoch)) {
            if let Some(offset) = offsets.first_missing_in(&known) {
                forgotten.push(format!(
                    "{lane:?}: {offset} was confirmed in epoch {earlier}, and epoch {epoch} began without it"
                ));
            }
        }
    }
    forgotten
}

pub(super) fn one_owner(evidence: Evidence<'_>) -> Verdict {
    let grants = evidence.history.events().filter(|event| matches!(event, Event::Granted { .. })).count();
    Verdict::of(
        grants > 0 && evidence.history.had(&[FaultKind::ChurnConsumers, FaultKind::KillBroker]),
        overlaps(evidence),
    )
}

/// Acks that were sent after somebody else had a later epoch, and were confirmed all the same.
pub(super) fn zombies_fenced(evidence: Evidence<'_>) -> Verdict {
    let mut newest: HashMap<LaneId, i64> = HashMap::new();
    let mut late: HashMap<(LaneId, Term, &Ranges), i64> = HashMap::new();
    let (mut accepted, mut seen) = (Vec::new(), 0);
    for event in evidence.history.events() {
        match event {
            Event::Granted { lane, term: (epoch, _), .. } => {
                let newest = newest.entry(*lane).or_insert(*epoch);
                *newest = (*newest).max(*epoch);
            }
            Event::Asked { lane, term, ranges } => {
                if let Some(epoch) = newest.get(lane).filter(|epoch| **epoch > term.0) {
                    late.insert((*lane, *term, ranges), *epoch);
                }
            }
            Event::Confirmed { lane, term, ranges, .. } | Event::Stepped { lane, term, ranges, .. } => {
                if let Some(epoch) = late.get(&(*lane, *term, ranges)) {
                    accepted
                        .push(format!("{lane:?}: an ack of {term:?} was accepted after epoch {epoch} began"));
                }
            }
            Event::AckRefused { fenced, .. } => seen += usize::from(*fenced),
            _ => {}
        }
    }
    Verdict::of(seen > 0 && evidence.history.had(FREEZES), accepted)
}

pub(super) fn committed_rises(evidence: Evidence<'_>) -> Verdict {
    let mut told: HashMap<LaneId, BTreeMap<i64, Vec<i64>>> = HashMap::new();
    let mut shown: HashMap<LaneId, i64> = HashMap::new();
    for event in evidence.history.events() {
        match event {
            Event::Granted { lane, term: (epoch, _), committed, .. }
            | Event::Confirmed { lane, term: (epoch, _), committed, .. } => {
                told.entry(*lane).or_default().entry(*epoch).or_default().push(*committed);
            }
            Event::Delivered { lane, messages, .. } => {
                let end = messages.iter().map(|message| message.offset + 1).max().unwrap_or(0);
                let shown = shown.entry(*lane).or_default();
                *shown = (*shown).max(end);
            }
            _ => {}
        }
    }
    let mut wrong = Vec::new();
    for (lane, epochs) in &told {
        let in_order = epochs.values().flatten();
        for (before, after) in
            in_order.clone().zip(in_order.clone().skip(1)).filter(|(before, after)| before > after)
        {
            wrong.push(format!("{lane:?}: committed {after} after {before}"));
        }
        let highest = in_order.max().copied().unwrap_or(0);
        let stored = evidence.truth.committed.get(lane).copied().unwrap_or(0);
        if stored < highest {
            wrong.push(format!("{lane:?}: {highest} was told, but {stored} is stored"));
        }
        if stored > shown.get(lane).copied().unwrap_or(0) {
            wrong.push(format!(
                "{lane:?}: {stored} is committed, but only {:?} was ever sent",
                shown.get(lane)
            ));
        }
    }
    wrong.extend(evidence.probes.odd_acks_confirmed.iter().cloned());
    Verdict::of(evidence.probes.odd_acks > 0, wrong)
}

/// Acks that were refused because their round had ended, and the refusals of messages that have ended rounds.
struct Ended<'a> {
    stale: HashSet<(LaneId, Term, &'a Ranges)>,
    nacked: HashMap<LaneId, Vec<(Term, i64)>>,
}

impl<'a> Ended<'a> {
    fn of(evidence: Evidence<'a>) -> Self {
        let mut ended = Self { stale: HashSet::new(), nacked: HashMap::new() };
        for event in evidence.history.events() {
            match event {
                Event::AckRefused { lane, term, ranges, fenced: false } => {
                    ended.stale.insert((*lane, *term, ranges));
                }
                Event::Nacked { lane, term, offset } => {
                    ended.nacked.entry(*lane).or_default().push((*term, *offset));
                }
                _ => {}
            }
        }
        ended
    }

    /// What of an ack may have counted: if its round had ended, only what lies below a message that was refused since it began, and
    /// not the last message, because that made it stale.
    fn counted(&self, lane: LaneId, term: Term, ranges: &'a Ranges) -> Ranges {
        if !self.stale.contains(&(lane, term, ranges)) {
            return ranges.clone();
        }
        let since = |(nacked, _): &&(Term, i64)| nacked.0 == term.0 && nacked.1 >= term.1;
        let nacks = self.nacked.get(&lane).into_iter().flatten().filter(since);
        let void_from = nacks.map(|(_, offset)| *offset).max().unwrap_or(i64::MAX);
        let last = ranges.iter().map(|range| range.1 - 1).max().unwrap_or(0);
        let bound = void_from.min(last);
        ranges.iter().map(|(from, to)| (*from, (*to).min(bound))).filter(|(from, to)| from < to).collect()
    }
}

/// Deliveries that are not the exact remainder, in order. An epoch begins with what it was granted with: acks of earlier ones that
/// are not in it have not happened. Within an epoch acks count before they are durable, even if they are fenced in the end.
fn disorder(evidence: Evidence<'_>) -> Vec<String> {
    let ended = Ended::of(evidence);
    let mut done: HashMap<(LaneId, i64), Offsets> = HashMap::new();
    let mut runs: HashMap<(LaneId, Term), i64> = HashMap::new();
    let mut disorder = Vec::new();
    for event in evidence.history.events() {
        match event {
            Event::Granted { lane, term, committed, acked, .. } => {
                let done = done.entry((*lane, term.0)).or_default();
                done.insert(0, *committed);
                done.extend(acked);
            }
            Event::Asked { lane, term, ranges } => {
                done.entry((*lane, term.0)).or_default().extend(&ended.counted(*lane, *term, ranges));
            }
            Event::Delivered { lane, term, messages, .. } => {
                let done = done.entry((*lane, term.0)).or_default();
                for message in messages {
                    let next = runs.entry((*lane, *term)).or_insert(0);
                    if message.offset < *next {
                        disorder.push(format!("{lane:?} {term:?}: {} after {next}", message.offset));
                    } else if let Some(missing) = done.first_missing(*next, message.offset) {
                        disorder.push(format!(
                            "{lane:?} {term:?}: {} came, but {missing} did not",
                            message.offset
                        ));
                    }
                    *next = message.offset + 1;
                }
            }
            _ => {}
        }
    }
    disorder
}

/// Deliveries under a later term than the one in which their ack was confirmed.
fn repeated_after_ack(evidence: Evidence<'_>) -> Vec<String> {
    let mut confirmed: HashMap<(LaneId, i64), Term> = HashMap::new();
    for event in evidence.history.events() {
        let (Event::Confirmed { lane, during, ranges, .. } | Event::Stepped { lane, during, ranges, .. }) =
            event
        else {
            continue;
        };
        for offset in ranges.iter().flat_map(|(from, to)| *from..*to) {
            let first = confirmed.entry((*lane, offset)).or_insert(*during);
            *first = (*first).min(*during);
        }
    }
    let mut repeated = Vec::new();
    for event in evidence.history.events() {
        let Event::Delivered { lane, term, messages, .. } = event else { continue };
        for message in messages {
            if let Some(under) = confirmed.get(&(*lane, message.offset)).filter(|under| *under < term) {
                let offset = message.offset;
                repeated.push(format!(
                    "{lane:?}: {offset} was confirmed in {under:?} and came again in {term:?}"
                ));
            }
        }
    }
    repeated
}

pub(super) fn exact_remainder(evidence: Evidence<'_>) -> Verdict {
    let tried = evidence
        .history
        .events()
        .any(|event| matches!(event, Event::Delivered { term: (_, round), .. } if *round > 1));
    Verdict::of(tried, disorder(evidence).into_iter().chain(repeated_after_ack(evidence)).collect())
}

pub(super) fn one_clock(evidence: Evidence<'_>) -> Verdict {
    Verdict::of(evidence.history.had(&[FaultKind::SkewClock]), overlaps(evidence))
}

pub(super) fn never_stuck(evidence: Evidence<'_>) -> Verdict {
    let mut stuck = Vec::new();
    if evidence.probes.producers_unsettled > 0 {
        let count = evidence.probes.producers_unsettled;
        stuck.push(format!("{count} producers have no answer, long after everything was healed"));
    }
    let partitions: Vec<u32> = {
        let mut all: Vec<u32> = evidence.truth.messages.keys().map(|(partition, _)| *partition).collect();
        all.dedup();
        all
    };
    for (partition, group) in
        partitions.iter().flat_map(|partition| (0..GROUPS.len()).map(move |group| (*partition, group)))
    {
        let lane = LaneId { group, partition };
        let (committed, end) =
            (evidence.truth.committed.get(&lane).copied().unwrap_or(0), evidence.truth.end(partition));
        if committed != end {
            stuck.push(format!(
                "{lane:?}: {committed} of {end} is committed, long after everything was healed"
            ));
        }
    }
    Verdict::of(!partitions.is_empty(), stuck)
}

pub(super) fn drain_loses_nothing(evidence: Evidence<'_>) -> Verdict {
    let closes = evidence.probes.closes_not_retryable.iter();
    let closes = closes.map(|code| format!("a draining broker closed a connection with {code}"));
    let violations = closes.chain(storage::lost(evidence)).chain(repeated_after_ack(evidence)).collect();
    Verdict::of(evidence.history.had(&[FaultKind::StopBroker]), violations)
}
