//! Promises about what is stored.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::offsets::Offsets;
use super::{Evidence, Verdict};
use crate::verify::history::{Event, LaneId, Sight};
use crate::verify::settings::{FaultKind, GROUPS, PIPELINE};
use crate::verify::value::Value;

/// What kills those who have just said yes.
const CRASHES: &[FaultKind] = &[FaultKind::KillBroker, FaultKind::RestartPostgres];
/// What comes between a publish and its answer.
const CUTS: &[FaultKind] = &[
    FaultKind::KillBroker,
    FaultKind::CutClients,
    FaultKind::TruncateClients,
    FaultKind::CutDatabase,
    FaultKind::TruncateDatabase,
];
/// What ends a flush in the middle.
const ABORTS: &[FaultKind] = &[
    FaultKind::KillBroker,
    FaultKind::TerminateBackends,
    FaultKind::TruncateDatabase,
    FaultKind::CutDatabase,
    FaultKind::RestartPostgres,
];

/// Acknowledged messages that are not stored as acknowledged, or that a group never got.
pub(super) fn lost(evidence: Evidence<'_>) -> Vec<String> {
    let delivered = delivered(evidence);
    let dead: HashSet<(LaneId, i64)> = evidence.truth.dead.iter().copied().collect();
    let mut lost = Vec::new();
    for event in evidence.history.events() {
        let Event::Stored { value, offset } = event else { continue };
        let found = evidence.truth.messages.get(&(value.partition, *offset)).and_then(|found| found.value);
        if found != Some(*value) {
            lost.push(format!("{value:?} was acknowledged at {offset}, where the database has {found:?}"));
        }
        for (group, name) in GROUPS.iter().enumerate() {
            let lane = LaneId { group, partition: value.partition };
            let has_it = delivered.get(&lane).is_some_and(|offsets| offsets.contains(*offset));
            if !has_it && !dead.contains(&(lane, *offset)) {
                lost.push(format!("{value:?} at {offset} was never delivered to {name}"));
            }
        }
    }
    lost
}

/// What each group was given, and what it was told that it will not get.
fn delivered(evidence: Evidence<'_>) -> HashMap<LaneId, Offsets> {
    let mut delivered: HashMap<LaneId, Offsets> = HashMap::new();
    for event in evidence.history.events() {
        match event {
            Event::Delivered { lane, messages, .. } => {
                let offsets = delivered.entry(*lane).or_default();
                messages.iter().for_each(|message| offsets.insert(message.offset, message.offset + 1));
            }
            Event::Reset { lane, from, to } => delivered.entry(*lane).or_default().insert(*from, *to),
            _ => {}
        }
    }
    delivered
}

pub(super) fn never_lost(evidence: Evidence<'_>) -> Verdict {
    Verdict::of(evidence.history.had(CRASHES), lost(evidence))
}

pub(super) fn refused_is_gone(evidence: Evidence<'_>) -> Verdict {
    let refused: HashSet<Value> = evidence
        .history
        .events()
        .filter_map(|event| match event {
            Event::Refused { value } => Some(*value),
            _ => None,
        })
        .collect();
    let stored = evidence.truth.messages.iter().filter_map(|((_, offset), found)| {
        let value = found.value.filter(|value| refused.contains(value))?;
        Some(format!("{value:?} was refused, and stands at {offset}"))
    });
    let seen = sights(evidence).filter_map(|(_, sight)| {
        let value = sight.value.filter(|value| refused.contains(value))?;
        Some(format!("{value:?} was refused, and was delivered as {}", sight.offset))
    });
    Verdict::of(!refused.is_empty(), stored.chain(seen).collect())
}

/// Every message that anybody was shown, with its partition.
fn sights<'a>(evidence: Evidence<'a>) -> impl Iterator<Item = (u32, &'a Sight)> {
    evidence.history.events().flat_map(|event| {
        let (partition, messages): (u32, &[Sight]) = match event {
            Event::Delivered { lane, messages, .. } => (lane.partition, messages),
            Event::Tailed { partition, messages, .. } => (*partition, messages),
            _ => (0, &[]),
        };
        messages.iter().map(move |message| (partition, message))
    })
}

pub(super) fn one_message_per_offset(evidence: Evidence<'_>) -> Verdict {
    let mut names: HashMap<(u32, i64), Option<Value>> = HashMap::new();
    let mut conflicts = Vec::new();
    let mut name = |place: (u32, i64), value: Option<Value>| {
        let before = *names.entry(place).or_insert(value);
        if before != value {
            conflicts.push(format!("{place:?} named {before:?} and {value:?}"));
        }
    };
    for (place, found) in &evidence.truth.messages {
        name(*place, found.value);
    }
    for event in evidence.history.events() {
        if let Event::Stored { value, offset } = event {
            name((value.partition, *offset), Some(*value));
        }
    }
    for (partition, sight) in sights(evidence) {
        name((partition, sight.offset), sight.value);
    }
    Verdict::of(!evidence.truth.messages.is_empty(), conflicts)
}

pub(super) fn visible_in_order(evidence: Evidence<'_>) -> Verdict {
    let mut gaps = Vec::new();
    let mut expected: BTreeMap<u32, i64> = BTreeMap::new();
    for (partition, offset) in evidence.truth.messages.keys() {
        let next = expected.entry(*partition).or_default();
        if offset != next {
            gaps.push(format!("partition {partition} has no message {next}, but {offset}"));
        }
        *next = offset + 1;
    }
    let mut tailed: HashMap<(usize, u32), i64> = HashMap::new();
    for event in evidence.history.events() {
        let Event::Tailed { partition, reader, messages } = event else { continue };
        let next = tailed.entry((*reader, *partition)).or_default();
        for message in messages {
            if message.offset != *next {
                gaps.push(format!("a reader of partition {partition} saw {} after {next}", message.offset));
            }
            *next = message.offset + 1;
        }
    }
    let tried = evidence.history.had(&[FaultKind::BlackholeDatabase, FaultKind::DelayDatabase]);
    Verdict::of(tried && !tailed.is_empty(), gaps)
}

pub(super) fn producers_order(evidence: Evidence<'_>) -> Verdict {
    let mut next: HashMap<(u32, u32), i64> = HashMap::new();
    let mut inversions = Vec::new();
    for ((partition, offset), found) in &evidence.truth.messages {
        let Some(value) = found.value else { continue };
        let expected = next.entry((value.producer, value.partition)).or_default();
        if value.number != *expected || value.partition != *partition {
            inversions.push(format!("{value:?} stands at {partition}:{offset}, where {expected} is due"));
        }
        *expected = value.number + 1;
    }
    Verdict::of(evidence.history.had(CUTS), inversions)
}

pub(super) fn one_copy(evidence: Evidence<'_>) -> Verdict {
    let mut places: HashMap<Value, (u32, i64)> = HashMap::new();
    let mut copies = Vec::new();
    for (place, found) in &evidence.truth.messages {
        let Some(value) = found.value else { continue };
        if let Some(before) = places.insert(value, *place) {
            copies.push(format!("{value:?} stands at {before:?} and at {place:?}"));
        }
    }
    Verdict::of(evidence.history.had(CUTS), copies)
}

pub(super) fn all_or_nothing(evidence: Evidence<'_>) -> Verdict {
    let mut units: BTreeMap<(u32, u32, u64), (u32, u32)> = BTreeMap::new();
    for value in evidence.truth.messages.values().filter_map(|found| found.value) {
        units.entry((value.producer, value.partition, value.frame)).or_insert((0, value.of)).0 += 1;
    }
    let partial = units.iter().filter(|(_, (found, of))| found != of).map(
        |((producer, partition, frame), (found, of))| {
            format!("frame {frame} of producer {producer} for partition {partition}: {found} of {of} stored")
        },
    );
    Verdict::of(evidence.history.had(ABORTS), partial.collect())
}

pub(super) fn traces_exact(evidence: Evidence<'_>) -> Verdict {
    let stored = evidence.truth.messages.iter().filter(|(_, found)| !found.trace_is_exact);
    let stored = stored.map(|(place, found)| format!("{:?} at {place:?} has another trace id", found.value));
    let seen = sights(evidence).filter(|(_, sight)| !sight.trace_is_exact);
    let seen = seen.map(|(_, sight)| format!("{:?} came with another trace id", sight.value));
    let tried = sights(evidence).next().is_some() && evidence.probes.dead_letter_traces_exact.is_some();
    let probe = evidence.probes.dead_letter_traces_exact.filter(|exact| !exact);
    let probe = probe.map(|_| "a dead letter has another trace id than its message".to_owned());
    Verdict::of(tried, stored.chain(seen).chain(probe).collect())
}

/// The members of one group acknowledge by steps only, and each step publishes what it stands for: every message that is done
/// has exactly one result, and nothing else has any.
pub(super) fn steps_atomic(evidence: Evidence<'_>) -> Verdict {
    let mut results: HashMap<u32, Offsets> = HashMap::new();
    let mut wrong = Vec::new();
    for (partition, ranges) in &evidence.truth.results {
        let known = results.entry(*partition).or_default();
        for offset in ranges.iter().flat_map(|(from, to)| *from..*to) {
            if known.contains(offset) {
                wrong.push(format!("{partition}:{offset} has two results"));
            }
            known.insert(offset, offset + 1);
        }
    }
    for (lane, committed) in evidence.truth.committed.iter().filter(|(lane, _)| lane.group == PIPELINE) {
        let known = results.entry(lane.partition).or_default();
        if let Some(offset) = known.first_missing(0, *committed) {
            wrong.push(format!("{}:{offset} is acknowledged, and has no result", lane.partition));
        }
        let end = evidence.truth.end(lane.partition);
        let mut open = Offsets::default();
        open.insert(0, if *committed == end { end } else { i64::MAX }); // beyond what is committed, single acks may be done
        if let Some(offset) = known.first_missing_in(&open) {
            wrong.push(format!("{}:{offset} has a result, and is not there", lane.partition));
        }
    }
    Verdict::of(evidence.history.had(CRASHES) && !evidence.truth.results.is_empty(), wrong)
}
