//! What may be popped of a lane, and what becomes of a pop: acks, nacks, and a time that is over. Pure.
//!
//! The same rules as for lanes that sessions hold: strictly in order, a message that waits for its next try stops the lane, and
//! after a crash one message at a time is given out, so that only the culprit is charged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_client::pull_api::{PopAcked, PopNacked, PopVerdict};

use crate::broker::groups::ranges::Ranges;
use crate::broker::groups::verdict::Verdict;
use crate::ids::Offset;
use crate::limits::{EVICTED_RANGES_MAX, EVICTION_GAPS_MAX, LANE_GAPS_MAX};
use crate::store::groups::GroupSettings;
use crate::store::lanes::{Charge, Commit, DeadLetter, Failed, ResumeAt, Settlement};
use crate::store::messages::Message;
use crate::store::pops::{Change, Decided, PoppedLane, Standing};
use crate::store::times::{FailedAttempt, LaneTime};
use crate::store::windows::{Evicted, Eviction};

/// Why nothing was done with a pop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the pop is over: its time has passed, it was done, or the lane has another epoch by now")]
    LeaseLost,
    #[error("offsets from {end} on are not part of the pop, or come again")]
    BeyondSent { end: Offset },
    #[error("offset {offset} is done already")]
    AlreadyDone { offset: Offset },
    #[error("the lane has {LANE_GAPS_MAX} gaps, as many as it may: acknowledge the oldest messages first")]
    TooManyGaps,
    /// To be read first: it is kept aside.
    #[error("offset {offset} has to be read first")]
    NeedsMessage { offset: Offset },
}

/// Whether delivery times of a topic are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Times,
    Nothing,
}

/// A message that may have to be kept aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Poison {
    NotRead,
    /// `None`: retention was faster.
    Read(Option<Box<Message>>),
}

/// What may be popped of a free lane now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub from: Offset,
    pub messages: u32,
    committed: Offset,
    acked: Ranges,
}

impl Plan {
    /// `None`: nothing, for now.
    pub fn of(
        at: &ResumeAt,
        next_offset: Offset,
        messages_max: u32,
        settings: &GroupSettings,
    ) -> Option<Self> {
        let (committed, acked) = position(at);
        let holds_up = |failed: &&Failed| {
            !failed.retry_in.is_zero() || Verdict::of(failed.attempts, settings) == Verdict::Block
        };
        let undone = at.failed.iter().filter(|f| f.offset >= committed && !acked.contains(f.offset));
        let stop = undone.filter(holds_up).map(|failed| failed.offset).min().unwrap_or(next_offset);
        let there = stop.min(next_offset).0 - committed.0;
        if there <= 0 {
            return None;
        }
        let one = committed < at.suspect_until || acked.len() >= LANE_GAPS_MAX;
        let messages_max = if one { 1 } else { messages_max };
        let messages = u32::try_from(there).unwrap_or(u32::MAX).min(messages_max);
        Some(Self { from: committed, messages, committed, acked })
    }

    pub fn committed(&self) -> Offset {
        self.committed
    }

    /// What was read, without what is done already.
    pub fn undone(&self, messages: Vec<Message>) -> Vec<Message> {
        messages.into_iter().filter(|message| !self.acked.contains(message.offset)).collect()
    }

    /// The commit after which everything below an offset is done: the first of a new epoch.
    pub fn commit_up_to(&self, end: Offset, keep: Keep) -> Commit {
        let mut acked = self.acked.clone();
        let now = Instant::now();
        let times = times(&acked, self.from, end, (now, now), keep);
        acked.insert(self.from, end);
        let committed = acked.settle(self.committed);
        Commit { number: 1, committed, acked: acked.to_multirange(), times }
    }
}

/// The committed offset and what is acknowledged beyond it, as far as retention has left it.
fn position(at: &ResumeAt) -> (Offset, Ranges) {
    let mut acked = Ranges::from_pairs(at.acked.iter().copied());
    let committed = acked.settle(at.committed.max(at.start_offset));
    (committed, acked)
}

/// When what of a range is not done yet was delivered and done.
fn times(
    acked: &Ranges,
    from: Offset,
    to: Offset,
    (delivered_at, acked_at): (Instant, Instant),
    keep: Keep,
) -> Arc<[LaneTime]> {
    let time = |(first, end)| LaneTime { first, end, delivered_at, acked_at };
    match keep {
        Keep::Times => acked.gaps(from, to).map(time).collect(),
        Keep::Nothing => Arc::default(),
    }
}

/// Messages below an offset that are not done.
fn undone_below(committed: Offset, acked: &Ranges, end: Offset) -> u32 {
    let count = (end.0 - committed.0) - acked.count_below(end);
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}

/// A pop is over once all of it is done.
fn change(remaining: u32, lane: &PoppedLane, otherwise: Change) -> Change {
    match remaining {
        0 => Change::Free { suspect_until: lane.at.suspect_until },
        _ => otherwise,
    }
}

/// What an ack has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    pub answer: PopAcked,
    /// Messages that were not done before.
    pub fresh: u64,
}

/// What is done of a pop: everything below `next`, and single messages.
pub fn ack(
    lane: &PoppedLane,
    next: Option<Offset>,
    offsets: &[Offset],
    keep: Keep,
) -> Result<Decided<Acked>, Refused> {
    let (before, mut acked) = position(&lane.at);
    let is_done = |offset: &Offset| *offset < before || acked.contains(*offset);
    let is_known = next.is_none_or(|next| next <= before) && offsets.iter().all(is_done);
    let end = match lane.standing {
        Standing::Open { end } => end,
        // The same ack again: its first answer was lost.
        Standing::Over if is_known => {
            let answer = PopAcked { committed_offset: before.0, remaining: 0 };
            return Ok(Decided { effect: None, answer: Acked { answer, fresh: 0 } });
        }
        Standing::Over | Standing::Expired { .. } => return Err(Refused::LeaseLost),
    };
    if next.is_some_and(|next| next > end) || offsets.iter().any(|offset| *offset >= end) {
        return Err(Refused::BeyondSent { end });
    }
    let (now, mut told, mut fresh) = (Instant::now(), Vec::new(), 0);
    let single = offsets.iter().map(|offset| (*offset, offset.plus(1)));
    for (from, to) in single.chain(next.map(|next| (before, next))) {
        let from = from.max(before);
        fresh += acked.gaps(from, to).map(|(first, end)| (end.0 - first.0) as u64).sum::<u64>();
        told.extend_from_slice(&times(&acked, from, to, (lane.delivered_at, now), keep));
        acked.insert(from, to);
    }
    let committed = acked.settle(before);
    if acked.len() > LANE_GAPS_MAX {
        return Err(Refused::TooManyGaps);
    }
    let remaining = undone_below(committed, &acked, end);
    let answer = Acked { answer: PopAcked { committed_offset: committed.0, remaining }, fresh };
    if is_known && remaining > 0 {
        return Ok(Decided { effect: None, answer });
    }
    let commit =
        Commit { number: lane.commits + 1, committed, acked: acked.to_multirange(), times: told.into() };
    let settlement = Settlement { commit: Some(commit), ..Settlement::default() };
    Ok(Decided { effect: Some((settlement, change(remaining, lane, Change::Keep))), answer })
}

/// A failure as it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blame {
    pub reason: String,
    pub delay: Duration,
}

/// What is written down of a failure, what is done and acknowledged with it, and what follows.
struct Failing {
    settlement: Settlement,
    committed: Offset,
    acked: Ranges,
    attempts: u32,
    verdict: Verdict,
}

/// How often a message has failed, if it fails now too.
pub fn attempts_after_failure(at: &ResumeAt, offset: Offset) -> u32 {
    let failed = at.failed.iter().find(|failed| failed.offset == offset);
    failed.map_or(0, |failed| failed.attempts).saturating_add(1)
}

fn fail(
    lane: &PoppedLane,
    offset: Offset,
    blame: &Blame,
    settings: &GroupSettings,
    poison: &Poison,
) -> Result<Failing, Refused> {
    let (mut committed, mut acked) = position(&lane.at);
    let attempts = attempts_after_failure(&lane.at, offset);
    let verdict = Verdict::of(attempts, settings);
    let Blame { reason, delay } = blame.clone();
    let mut settlement = Settlement::default();
    match (verdict, poison) {
        (Verdict::Retry | Verdict::Block | Verdict::Park, _) => {
            settlement.charge = Some(Charge { offset, attempts, reason: reason.clone(), delay });
        }
        (Verdict::DeadLetter, Poison::NotRead) => return Err(Refused::NeedsMessage { offset }),
        (Verdict::DeadLetter, Poison::Read(message)) => {
            settlement.dead_letter = message.as_deref().map(|message| DeadLetter {
                message: message.clone(),
                attempts,
                reason: reason.clone(),
            });
        }
        (Verdict::Skip, _) => {}
    }
    if matches!(verdict, Verdict::DeadLetter | Verdict::Skip) {
        acked.insert(offset, offset.plus(1));
        committed = acked.settle(committed);
    }
    settlement.commit = Some(Commit {
        number: lane.commits + 1,
        committed,
        acked: acked.to_multirange(),
        times: Arc::default(),
    });
    settlement.failure = Some(FailedAttempt {
        offset,
        attempt: attempts,
        outcome: verdict.outcome(),
        reason,
        delivered_at: Some(lane.delivered_at),
        failed_at: Instant::now(),
    });
    Ok(Failing { settlement, committed, acked, attempts, verdict })
}

/// A message of a pop has failed: it and what lies after it come again, what lies before may still be acknowledged.
pub fn nack(
    lane: &PoppedLane,
    offset: Offset,
    blame: &Blame,
    settings: &GroupSettings,
    poison: &Poison,
) -> Result<Decided<PopNacked>, Refused> {
    let Standing::Open { end } = lane.standing else { return Err(Refused::LeaseLost) };
    let (committed, acked) = position(&lane.at);
    if offset >= end {
        return Err(Refused::BeyondSent { end });
    }
    if offset < committed || acked.contains(offset) {
        return Err(Refused::AlreadyDone { offset });
    }
    let failing = fail(lane, offset, blame, settings, poison)?;
    let remaining = undone_below(failing.committed, &failing.acked, offset);
    let answer = PopNacked {
        committed_offset: failing.committed.0,
        remaining,
        attempts: failing.attempts,
        verdict: told(failing.verdict),
    };
    let change = change(remaining, lane, Change::EndsAt(offset));
    Ok(Decided { effect: Some((failing.settlement, change)), answer })
}

/// The time of a pop is over. Only a message that was alone is charged; several are given out one by one from now on. Returns the
/// verdict on the one that was charged.
pub fn expire(
    lane: &PoppedLane,
    settings: &GroupSettings,
    poison: &Poison,
    blame: impl Fn(u32) -> Blame,
) -> Result<Decided<Option<Verdict>>, Refused> {
    let Standing::Expired { end } = lane.standing else { return Err(Refused::LeaseLost) };
    let (committed, acked) = position(&lane.at);
    let suspect_until = lane.at.suspect_until;
    let free = |suspect_until| Change::Free { suspect_until };
    match undone_below(committed, &acked, end) {
        0 => Ok(Decided { effect: Some((Settlement::default(), free(suspect_until))), answer: None }),
        1 => {
            let blame = blame(attempts_after_failure(&lane.at, committed));
            let failing = fail(lane, committed, &blame, settings, poison)?;
            let effect = Some((failing.settlement, free(suspect_until)));
            Ok(Decided { effect, answer: Some(failing.verdict) })
        }
        _ => {
            let effect = Some((Settlement::default(), free(suspect_until.max(end))));
            Ok(Decided { effect, answer: None })
        }
    }
}

/// Moves a free lane past what has expired, as far as it is not done. Returns what was evicted; nothing, if nothing is left of it.
pub fn evict(lane: &PoppedLane, eviction: &Eviction) -> Result<Decided<Eviction>, Refused> {
    if lane.standing != Standing::Over {
        return Err(Refused::LeaseLost);
    }
    let (committed, mut acked) = position(&lane.at);
    let is_full = acked.len() >= EVICTION_GAPS_MAX;
    let parts = eviction.ranges.iter().flat_map(|range| {
        let parts = acked.gaps(range.first.max(committed), range.end);
        parts.map(|(first, end)| Evicted { first, end, why: range.why })
    });
    // What begins at the committed offset adds no gap.
    let fitting = parts.filter(|part| !is_full || part.first == committed);
    let ranges: Vec<Evicted> = fitting.take(EVICTED_RANGES_MAX).collect();
    let answer = eviction.narrowed(ranges, |offset| attempts_after_failure(&lane.at, offset) - 1);
    if answer.ranges.is_empty() {
        return Ok(Decided { effect: None, answer });
    }
    answer.ranges.iter().for_each(|range| acked.insert(range.first, range.end));
    let committed = acked.settle(committed);
    let commit =
        Commit { number: lane.commits + 1, committed, acked: acked.to_multirange(), times: Arc::default() };
    let settlement =
        Settlement { commit: Some(commit), eviction: Some(answer.clone()), ..Settlement::default() };
    Ok(Decided { effect: Some((settlement, Change::Keep)), answer })
}

fn told(verdict: Verdict) -> PopVerdict {
    match verdict {
        Verdict::Retry => PopVerdict::Retry,
        Verdict::DeadLetter => PopVerdict::DeadLetter,
        Verdict::Skip => PopVerdict::Skip,
        // Nobody pops from a group that parks.
        Verdict::Block | Verdict::Park => PopVerdict::Block,
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
