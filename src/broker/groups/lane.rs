//! One lane in the hands of its holder: cursor, in-flight window, rounds, failures. Pure: time comes as an argument.
//!
//! Everything below `committed` is done, `acked` is done beyond it, everything below `cursor` was sent in this round or is
//! done. What was sent and is not done is in flight.
//! Invariant: within a round offsets are sent rising, without gaps apart from those that are done.

pub mod by_key;
mod commits;
mod failures;
pub mod keys;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use keys::Keys;

use super::ranges::Ranges;
use super::times::Times;
use crate::ids::Offset;
use crate::limits::{LANE_GAPS_MAX, LANE_IN_FLIGHT_MAX, LANE_ROUNDS_REMEMBERED};
use crate::store::lanes::ResumeAt;

/// A message that has failed and is not done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failure {
    pub attempts: u32,
    pub reason: String,
    /// Not before this moment again.
    pub retry_at: Instant,
}

/// What keeps a lane from sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    Open,
    /// A failure is being written down; what follows from it comes then.
    Settling,
    /// A message waits for its next try.
    Until(Instant),
    /// A message has failed too often and the group's policy is to stop at it.
    Blocked,
}

/// Why an ack or a nack does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// The round has ended, and what it names is void.
    #[error("round {round} has ended: only what lies below offset {below} still counts")]
    StaleRound { round: u32, below: Offset },
    /// It was never sent.
    #[error("offsets from {sent} on have not been sent")]
    BeyondSent { sent: Offset },
    /// Order is kept by key, and what was sent in that round does not count any more.
    #[error("offset {offset} is not in flight under round {round}: it comes again, or its key is parked")]
    Void { round: u32, offset: Offset },
    /// It is done already.
    #[error("offset {offset} is done already")]
    Done { offset: Offset },
    /// It is about to be done.
    #[error("a step that acknowledges offset {offset} is under way")]
    UnderWay { offset: Offset },
}

/// How much may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sendable {
    pub from: Offset,
    pub messages: usize,
}

/// A lane that this broker holds for one of its sessions.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))] // the model keeps lanes as states
pub struct Lane {
    pub round: u32,
    pub gate: Gate,
    committed: Offset,
    acked: Ranges,
    cursor: Offset,
    /// The furthest that was ever sent in this epoch: what may be acknowledged.
    sent: Offset,
    /// From which offset on each ended round is void, the newest last.
    void_from: VecDeque<(u32, Offset)>,
    /// Below this, one message at a time.
    suspect_until: Offset,
    failed: BTreeMap<Offset, Failure>,
    /// Since when the oldest message in flight has been the oldest.
    oldest_since: Instant,
    commits: i64,
    dirty: bool,
    pub times: Times,
    /// Present if order is kept by key. Boxed: most lanes have none.
    keys: Option<Box<Keys>>,
}

impl Lane {
    /// A lane that was just acquired; `now` is the moment for the delays that it has inherited.
    pub fn new(at: &ResumeAt, now: Instant) -> Self {
        let mut acked = Ranges::from_pairs(at.acked.iter().copied());
        let committed = acked.settle(at.committed.max(at.start_offset));
        let failure = |failed: &crate::store::lanes::Failed| Failure {
            attempts: failed.attempts,
            reason: failed.reason.clone(),
            retry_at: now + failed.retry_in,
        };
        let done = acked.clone();
        let open =
            at.failed.iter().filter(|failed| failed.offset >= committed && !done.contains(failed.offset));
        Self {
            round: 1,
            gate: Gate::Open,
            committed,
            acked,
            cursor: committed,
            sent: committed,
            void_from: VecDeque::new(),
            suspect_until: at.suspect_until,
            failed: open.map(|failed| (failed.offset, failure(failed))).collect(),
            oldest_since: now,
            commits: 0,
            dirty: committed > at.committed,
            times: Times::default(),
            keys: None,
        }
    }

    /// Keeps order by key from now on; nothing was sent yet.
    pub fn order_by_key(&mut self, keys: Keys) {
        self.keys = Some(Box::new(keys));
    }

    #[cfg(test)]
    pub fn committed(&self) -> Offset {
        self.committed
    }

    /// The committed offset, and what is acknowledged beyond it.
    pub fn position(&self) -> (Offset, Ranges) {
        (self.committed, self.acked.clone())
    }

    pub fn acked(&self) -> &Ranges {
        &self.acked
    }

    pub fn cursor(&self) -> Offset {
        self.cursor
    }

    /// Whether a message is done.
    pub fn is_done(&self, offset: Offset) -> bool {
        offset < self.committed || self.acked.contains(offset)
    }

    /// Messages that were sent in this round and are not done.
    pub fn in_flight(&self) -> i64 {
        if let Some(keys) = &self.keys {
            return keys.flying() as i64;
        }
        (self.cursor.0 - self.committed.0) - self.acked.count_below(self.cursor)
    }

    /// How many messages are done, counted from the first offset of the partition.
    pub fn done(&self) -> i64 {
        self.committed.0 + self.acked.count_below(Offset(i64::MAX))
    }

    /// The oldest message in flight; by key, the one that was sent before all others.
    pub fn oldest_in_flight(&self) -> Option<Offset> {
        match &self.keys {
            Some(keys) => keys.oldest_flying(),
            None => (self.in_flight() > 0).then_some(self.committed),
        }
    }

    /// The only message in flight, if it is alone.
    pub fn alone_in_flight(&self) -> Option<Offset> {
        self.oldest_in_flight().filter(|_| self.in_flight() == 1)
    }

    /// Below this, one message at a time.
    pub fn suspect_until(&self) -> Offset {
        self.suspect_until
    }

    /// Everything that was sent is suspect if its consumer has died on it.
    pub fn suspect_until_now(&self) -> Offset {
        match self.in_flight() {
            0 => self.suspect_until,
            _ => self.suspect_until.max(self.cursor),
        }
    }

    /// Whether so many single acks are waiting for those before them that nothing more is sent.
    pub fn has_too_many_gaps(&self) -> bool {
        self.acked.len() >= LANE_GAPS_MAX
    }

    /// Lets a message be tried again whose moment has come.
    pub fn open_gate(&mut self, now: Instant) {
        if let Gate::Until(moment) = self.gate
            && moment <= now
        {
            self.gate = Gate::Open;
        }
    }

    /// What may be sent now; `None`: nothing, until something happens or [`Lane::next_moment`] comes.
    pub fn sendable(&mut self, now: Instant) -> Option<Sendable> {
        self.open_gate(now);
        if self.keys.is_some() {
            return self.sendable_by_key(now);
        }
        let in_flight = self.in_flight();
        // With gaps and nothing in flight, the message that all the others wait for still has to be sent.
        let gaps = self.has_too_many_gaps();
        if self.gate != Gate::Open || (gaps && in_flight > 0) || in_flight >= LANE_IN_FLIGHT_MAX {
            return None;
        }
        self.cursor = self.acked.after(self.cursor);
        if let Some(failure) = self.failed.get(&self.cursor)
            && failure.retry_at > now
        {
            if in_flight == 0 {
                self.gate = Gate::Until(failure.retry_at);
            }
            return None;
        }
        let next_failure = self.failed.range(self.cursor.plus(1)..).next();
        let until_failure = next_failure
            .filter(|(_, failure)| failure.retry_at > now)
            .map_or(i64::MAX, |(offset, _)| offset.0 - self.cursor.0);
        if in_flight > 0 && self.committed < self.suspect_until {
            return None;
        }
        let messages = match gaps || self.cursor < self.suspect_until {
            true => 1,
            false => (LANE_IN_FLIGHT_MAX - in_flight).min(until_failure),
        };
        Some(Sendable { from: self.cursor, messages: messages as usize })
    }

    /// Messages up to an offset were handed to the session.
    pub fn on_sent(&mut self, next: Offset, now: Instant) {
        if self.in_flight() == 0 {
            self.oldest_since = now;
        }
        self.times.on_sent(self.cursor, next, now);
        self.cursor = next;
        self.sent = self.sent.max(next);
    }

    /// Acknowledges everything below `next`, and single ranges. Nothing counts unless all of it may.
    pub fn on_ack(
        &mut self,
        round: u32,
        next: Option<Offset>,
        ranges: &[(Offset, Offset)],
        now: Instant,
    ) -> Result<(), AckError> {
        if self.keys.is_some() {
            return self.on_ack_by_key(round, next, ranges, now);
        }
        let bound = self.void_bound(round);
        let furthest = ranges.iter().map(|range| range.1).chain(next).max().unwrap_or(Offset::ZERO);
        let sent = self.sent_in(round);
        if furthest > sent {
            return Err(AckError::BeyondSent { sent });
        }
        let clip = |offset: Offset| bound.map_or(offset, |bound| offset.min(bound));
        if let Some(next) = next {
            self.acknowledge(self.committed, clip(next), now);
        }
        for (from, to) in ranges {
            self.acknowledge((*from).max(self.committed), clip(*to), now);
        }
        self.settle(now);
        match bound {
            Some(below) if furthest > below => Err(AckError::StaleRound { round, below }),
            Some(_) | None => Ok(()),
        }
    }

    fn acknowledge(&mut self, from: Offset, to: Offset, now: Instant) {
        for (first, end) in self.acked.gaps(from, to) {
            self.times.on_acked(first, end, now);
        }
        self.acked.insert(from, to);
    }

    /// What a step would acknowledge: all of it must have been sent in a round that stands, and not be done.
    /// Of what `next` covers, only what is not done yet.
    pub fn check_step(
        &self,
        round: u32,
        next: Option<Offset>,
        ranges: &[(Offset, Offset)],
    ) -> Result<Vec<(Offset, Offset)>, AckError> {
        if self.keys.is_some() {
            return self.check_step_by_key(round, next, ranges);
        }
        let furthest = ranges.iter().map(|range| range.1).chain(next).max().unwrap_or(Offset::ZERO);
        let sent = self.sent_in(round);
        if furthest > sent {
            return Err(AckError::BeyondSent { sent });
        }
        if let Some(below) = self.void_bound(round).filter(|below| furthest > *below) {
            return Err(AckError::StaleRound { round, below });
        }
        let is_done = |offset: Offset| offset < self.committed || self.acked.contains(offset);
        for (from, to) in ranges {
            if let Some(offset) = (from.0..to.0).map(Offset).find(|offset| is_done(*offset)) {
                return Err(AckError::Done { offset });
            }
        }
        let mut wanted = Ranges::from_pairs(ranges.iter().copied());
        if let Some(next) = next {
            self.acked.gaps(self.committed, next).for_each(|(from, to)| wanted.insert(from, to));
        }
        match (wanted.is_empty(), next) {
            (true, next) => Err(AckError::Done { offset: Offset(next.map_or(0, |next| next.0 - 1).max(0)) }),
            (false, _) => {
                Ok(wanted.pairs().into_iter().map(|(from, to)| (Offset(from), Offset(to))).collect())
            }
        }
    }

    /// A step has acknowledged these, durably, and told when; what round they were sent in does not matter any more.
    pub fn on_step(&mut self, ranges: &[(Offset, Offset)], now: Instant) {
        if self.keys.is_some() {
            return self.on_step_by_key(ranges, now);
        }
        for (from, to) in ranges {
            self.acked.insert((*from).max(self.committed), *to);
        }
        self.settle(now);
    }

    /// Something more is acknowledged.
    fn settle(&mut self, now: Instant) {
        let before = self.committed;
        self.committed = self.acked.settle(self.committed);
        self.cursor = self.cursor.max(self.committed);
        self.failed = self.failed.split_off(&self.committed);
        let acked = &self.acked;
        self.failed.retain(|offset, _| !acked.contains(*offset));
        self.times.on_committed_offset(self.committed);
        self.dirty = true;
        if self.committed != before && self.keys.is_none() {
            self.oldest_since = now; // by key the oldest in flight is another one
        }
    }

    /// How far a round has got; of those that have ended only what is void is remembered.
    fn sent_in(&self, round: u32) -> Offset {
        if round == self.round { self.cursor } else { self.sent }
    }

    /// From which offset on acks of a round are void; `None`: it is the current one.
    fn void_bound(&self, round: u32) -> Option<Offset> {
        if round == self.round {
            return None;
        }
        let later = self.void_from.iter().filter(|(ended, _)| *ended >= round);
        let known = round < self.round && self.void_from.front().is_some_and(|(oldest, _)| *oldest <= round);
        match known {
            true => later.map(|(_, offset)| *offset).min(),
            false => Some(Offset::ZERO), // too long ago, or never begun
        }
    }

    /// Whether a nack of an offset counts.
    pub fn check_nack(&self, round: u32, offset: Offset) -> Result<(), AckError> {
        if self.keys.is_some() {
            return self.check_nack_by_key(round, offset);
        }
        if let Some(below) = self.void_bound(round).filter(|below| offset >= *below) {
            return Err(AckError::StaleRound { round, below });
        }
        let sent = self.sent_in(round);
        if offset >= sent {
            return Err(AckError::BeyondSent { sent });
        }
        if offset < self.committed || self.acked.contains(offset) {
            return Err(AckError::Done { offset });
        }
        Ok(())
    }

    /// The session came back: everything is sent again in the next round, and what it has done meanwhile still counts.
    pub fn restart(&mut self) {
        match &mut self.keys {
            Some(keys) => {
                keys.restart();
                self.round += 1;
            }
            None => self.end_round(self.sent, self.gate),
        }
    }

    /// Ends the round: what is in flight from `void_from` on is void, and delivery goes on at the first message that is
    /// not done, once the gate opens.
    pub fn end_round(&mut self, void_from: Offset, gate: Gate) {
        self.void_from.push_back((self.round, void_from));
        while self.void_from.len() > LANE_ROUNDS_REMEMBERED {
            self.void_from.pop_front();
        }
        self.round += 1;
        self.cursor = self.committed;
        self.gate = gate;
    }

    /// The first message that is to be sent next.
    pub fn next_offset(&self) -> Offset {
        let ready = self.keys.as_ref().and_then(|keys| keys.first_ready());
        ready.unwrap_or_else(|| self.acked.after(self.cursor))
    }

    /// What of `[from, to)` is neither done nor in flight.
    pub fn undone(&self, from: Offset, to: Offset) -> Vec<(Offset, Offset)> {
        let mut done = self.acked.clone();
        for (offset, _) in self.keys.iter().flat_map(|keys| keys.entries_in(from, to)) {
            if self.keys.as_ref().is_some_and(|keys| keys.is_flying(offset) || keys.is_behind(offset)) {
                done.insert(offset, offset.plus(1));
            }
        }
        done.gaps(from.max(self.committed), to).collect()
    }

    /// Since when the oldest message in flight has been the oldest, or has been worked on.
    pub fn oldest_since(&self) -> Instant {
        self.oldest_since
    }

    /// The client is still at work on the oldest message.
    pub fn on_progress(&mut self, now: Instant) {
        self.oldest_since = now;
    }

    /// When the oldest message in flight is overdue, if it was written to the socket at `written_at`.
    pub fn deadline(&self, written_at: Instant, ack_deadline: Duration) -> Instant {
        self.oldest_since.max(written_at) + ack_deadline
    }

    /// When something has to be looked at without anything happening.
    pub fn next_moment(&self) -> Option<Instant> {
        if let Some(keys) = &self.keys {
            return keys.next_moment();
        }
        match self.gate {
            Gate::Until(moment) => Some(moment),
            Gate::Open | Gate::Settling | Gate::Blocked => None,
        }
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "lane/by_key_tests.rs"]
mod by_key_tests;

#[cfg(test)]
#[path = "lane/key_tests.rs"]
mod key_tests;
