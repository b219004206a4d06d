//! A lane whose order is kept by key: what may be sent, acknowledged and refused then. Pure: time comes as an argument.
//!
//! Messages leave in the order of their offsets, and those of different keys do not wait for each other. A message that failed is
//! sent again in a later round, with those behind it of its key; everything else stays in flight, and its acks count.
//! Invariant: within a round offsets are sent rising. Whatever goes back begins a round.

use std::time::Instant;

use super::keys::{Key, Keys, Origin, Stop};
use super::{AckError, Failure, Gate, Lane, Sendable};
use crate::ids::Offset;
use crate::limits::{LANE_IN_FLIGHT_MAX, LANE_UNDONE_MAX};

/// Why a message is not sent now, or that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Goes,
    /// Its key waits, or is parked.
    Held,
    /// It has failed before, and its moment has not come.
    Until(Instant),
}

impl Lane {
    /// What is known about keys, if order is kept by them.
    pub fn keys(&self) -> Option<&Keys> {
        self.keys.as_deref()
    }

    pub fn keys_mut(&mut self) -> Option<&mut Keys> {
        self.keys.as_deref_mut()
    }

    /// As [`Lane::sendable`]. What waits and may go, goes first.
    pub(super) fn sendable_by_key(&mut self, now: Instant) -> Option<Sendable> {
        let gaps = self.has_too_many_gaps();
        let keys = self.keys.as_deref_mut()?;
        keys.wake(now);
        let in_flight = keys.flying() as i64;
        if self.gate != Gate::Open || (gaps && in_flight > 0) || in_flight >= LANE_IN_FLIGHT_MAX {
            return None;
        }
        self.cursor = self.acked.after(self.cursor);
        let from = keys.first_ready().unwrap_or(self.cursor);
        let is_new = from == self.cursor && !keys.is_ready(from);
        let room = LANE_UNDONE_MAX.saturating_sub(keys.undone()) as i64;
        // With gaps, only what lies between them: its acks make them fewer.
        if is_new && (room == 0 || (gaps && from >= self.acked.end())) {
            return None;
        }
        let suspect = |offset: Offset| is_suspect(keys, self.suspect_until, offset);
        if in_flight > 0 && (suspect(from) || keys.first_flying().is_some_and(suspect)) {
            return None;
        }
        let room = if is_new { room } else { i64::MAX };
        let messages = match gaps || suspect(from) {
            true => 1,
            false => (LANE_IN_FLIGHT_MAX - in_flight).min(room),
        };
        Some(Sendable { from, messages: messages as usize })
    }

    /// Whether so many messages are in flight or wait for their keys that nothing new is sent.
    pub fn has_too_many_waiting(&self) -> bool {
        let Some(keys) = self.keys.as_deref() else { return false };
        let is_stuck = keys.first_ready().is_none() && (keys.flying() as i64) < LANE_IN_FLIGHT_MAX;
        is_stuck && keys.undone() >= LANE_UNDONE_MAX
    }

    /// A released key whose copies are to be read, with the offset from which on. None before the lane has looked at everything
    /// that was acknowledged before it came here: until then it does not know what lies between.
    /// `waits`: whether a key is not to be read now.
    pub fn next_copies(&self, waits: impl Fn(&Offset) -> bool) -> Option<(Offset, Offset)> {
        let looked_to = self.acked.after(self.cursor);
        self.keys.as_deref().filter(|_| looked_to >= self.acked.end())?.next_to_read(looked_to, waits)
    }

    /// Copies of a released key were read.
    pub fn on_copies(&mut self, parked_offset: Offset, copies: &[(Offset, u32, Option<Instant>)]) {
        let looked_to = self.acked.after(self.cursor);
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.on_copies(parked_offset, copies, looked_to);
        }
    }

    /// Whether a message may be what its consumer has died on, and goes alone.
    pub fn is_suspect(&self, offset: Offset) -> bool {
        self.keys.as_deref().is_some_and(|keys| is_suspect(keys, self.suspect_until, offset))
    }

    /// Whether a message may be sent, if nothing has been sent or held since [`Lane::sendable`].
    pub fn turn(&self, offset: Offset, key: &Key, now: Instant) -> Turn {
        let Some(keys) = &self.keys else { return Turn::Goes };
        if offset < self.cursor {
            return if keys.is_ready(offset) { Turn::Goes } else { Turn::Held };
        }
        match self.failed.get(&offset).map(|failure| failure.retry_at).filter(|moment| *moment > now) {
            _ if keys.holds(key) => Turn::Held,
            Some(moment) => Turn::Until(moment),
            None => Turn::Goes,
        }
    }

    /// Begins another round, if messages from here on can be sent only in one.
    pub fn turn_back(&mut self, first: Offset) -> bool {
        let goes_back = self.keys.as_ref().is_some_and(|keys| keys.goes_back(first));
        if goes_back && let Some(keys) = &mut self.keys {
            keys.begin_round();
            self.round += 1;
        }
        goes_back
    }

    /// These were handed to the session, and those were held; all that is below `end` was looked at.
    pub fn on_sent_by_key(
        &mut self,
        sent: impl Iterator<Item = (Offset, Key)>,
        held: impl Iterator<Item = (Offset, Key, Turn)>,
        end: Offset,
        now: Instant,
    ) {
        let oldest = self.oldest_in_flight();
        let Some(keys) = self.keys.as_deref_mut() else { return };
        let mut run: Option<(Offset, Offset)> = None;
        for (offset, key) in sent {
            let is_copy = keys.copy_attempts(offset).is_some();
            keys.on_sent(offset, key, self.round);
            self.sent = self.sent.max(offset.plus(1));
            if is_copy {
                continue; // the lane is past it, and with it what is told of its times
            }
            run = match run {
                Some((first, last)) if last == offset => Some((first, offset.plus(1))),
                Some((first, last)) => {
                    self.times.on_sent(first, last, now);
                    Some((offset, offset.plus(1)))
                }
                None => Some((offset, offset.plus(1))),
            };
        }
        if let Some((first, last)) = run {
            self.times.on_sent(first, last, now);
        }
        for (offset, key, turn) in held.filter(|(offset, ..)| *offset >= self.cursor) {
            keys.on_held(offset, key.clone());
            if let Turn::Until(moment) = turn {
                keys.stop(&key, Stop::Until(moment));
            }
        }
        self.cursor = self.cursor.max(end);
        self.track_oldest(oldest, now);
    }

    /// As [`Lane::on_ack`]: `next` stands for what was sent in the round below it.
    pub(super) fn on_ack_by_key(
        &mut self,
        round: u32,
        next: Option<Offset>,
        ranges: &[(Offset, Offset)],
        now: Instant,
    ) -> Result<(), AckError> {
        let Some(keys) = self.keys.as_deref_mut() else { return Ok(()) };
        let furthest = ranges.iter().map(|range| range.1).chain(next).max().unwrap_or(Offset::ZERO);
        let fresh = |keys: &Keys, (from, to): &(Offset, Offset)| {
            keys.entries_in(*from, *to).find(|(_, entry)| entry.was_never_sent()).map(|(offset, _)| offset)
        };
        let unsent = (furthest > self.sent).then_some(self.sent);
        if let Some(sent) = unsent.or_else(|| ranges.iter().find_map(|range| fresh(keys, range))) {
            return Err(AckError::BeyondSent { sent });
        }
        let mut done: Vec<Offset> = Vec::new();
        let mut void = None;
        for (from, to) in ranges {
            for (offset, entry) in keys.entries_in(*from, *to) {
                match entry.counts(round) {
                    true => done.push(offset),
                    false => void = void.or(Some(offset)),
                }
            }
            void = void.or_else(|| keys.voided_in(*from, *to, round));
        }
        for (offset, entry) in next.into_iter().flat_map(|next| keys.entries_in(Offset::ZERO, next)) {
            if entry.was_sent_in(round) {
                done.push(offset);
            } else if entry.is_void_in(round) {
                void = void.or(Some(offset));
            }
        }
        void = void.or_else(|| keys.voided_below(next?, round));
        self.complete(&mut done, now);
        self.dirty = true; // what is done already is confirmed with a commit, too
        match void {
            Some(offset) => Err(AckError::Void { round, offset }),
            None => Ok(()),
        }
    }

    /// Messages are done, in any order.
    fn complete(&mut self, done: &mut Vec<Offset>, now: Instant) {
        done.sort_unstable();
        done.dedup();
        let oldest = self.oldest_in_flight();
        let mut run: Option<(Offset, Offset)> = None;
        for offset in done.iter().copied() {
            if let Some(keys) = self.keys.as_deref_mut() {
                keys.remove(offset);
                keys.on_acked(now);
            }
            run = match run {
                Some((first, last)) if last == offset => Some((first, offset.plus(1))),
                Some((first, last)) => {
                    self.acknowledge(first.max(self.committed), last, now);
                    Some((offset, offset.plus(1)))
                }
                None => Some((offset, offset.plus(1))),
            };
        }
        if let Some((first, last)) = run {
            self.acknowledge(first.max(self.committed), last, now);
            self.settle(now);
        }
        self.track_oldest(oldest, now);
    }

    /// The deadline of the oldest message in flight begins anew if it was another one before.
    pub(super) fn track_oldest(&mut self, before: Option<Offset>, now: Instant) {
        if self.oldest_in_flight() != before {
            self.oldest_since = now;
        }
    }

    /// As [`Lane::check_step`].
    pub(super) fn check_step_by_key(
        &self,
        round: u32,
        next: Option<Offset>,
        ranges: &[(Offset, Offset)],
    ) -> Result<Vec<(Offset, Offset)>, AckError> {
        let Some(keys) = self.keys.as_deref() else { return Ok(Vec::new()) };
        let mut wanted = super::Ranges::default();
        for (from, to) in ranges {
            if *to > self.sent {
                return Err(AckError::BeyondSent { sent: self.sent });
            }
            for offset in (from.0..to.0).map(Offset) {
                match keys.entry(offset) {
                    None if keys.voided_in(offset, offset.plus(1), round).is_some() => {
                        return Err(AckError::Void { round, offset });
                    }
                    None => return Err(AckError::Done { offset }),
                    Some(entry) if entry.was_never_sent() => {
                        return Err(AckError::BeyondSent { sent: offset });
                    }
                    Some(entry) if !entry.counts(round) => return Err(AckError::Void { round, offset }),
                    Some(_) => wanted.insert(offset, offset.plus(1)),
                }
            }
        }
        for (offset, entry) in next.into_iter().flat_map(|next| keys.entries_in(Offset::ZERO, next)) {
            if entry.was_sent_in(round) {
                wanted.insert(offset, offset.plus(1));
            } else if entry.is_void_in(round) {
                return Err(AckError::Void { round, offset });
            }
        }
        if let Some(offset) = next.and_then(|next| keys.voided_below(next, round)) {
            return Err(AckError::Void { round, offset });
        }
        match wanted.is_empty() {
            true => Err(AckError::Done { offset: Offset(next.map_or(0, |next| next.0 - 1).max(0)) }),
            false => Ok(wanted.pairs().into_iter().map(|(from, to)| (Offset(from), Offset(to))).collect()),
        }
    }

    /// Which of these are parked copies.
    pub fn copies_in(&self, ranges: &[(Offset, Offset)]) -> Vec<Offset> {
        let Some(keys) = self.keys.as_deref() else { return Vec::new() };
        let entries = ranges.iter().flat_map(|(from, to)| keys.entries_in(*from, *to));
        let copies = entries.filter(|(_, entry)| matches!(entry.origin, Origin::Copy { .. }));
        copies.map(|(offset, _)| offset).collect()
    }

    /// As [`Lane::on_step`].
    pub(super) fn on_step_by_key(&mut self, ranges: &[(Offset, Offset)], now: Instant) {
        let Some(keys) = self.keys.as_deref() else { return };
        let entries = ranges.iter().flat_map(|(from, to)| keys.entries_in(*from, *to));
        let mut done: Vec<Offset> = entries.map(|(offset, _)| offset).collect();
        // The step has told when they were delivered, and has removed their copies.
        self.complete(&mut done, now);
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.on_stepped(&done, ranges);
        }
    }

    /// As [`Lane::check_nack`].
    pub(super) fn check_nack_by_key(&self, round: u32, offset: Offset) -> Result<(), AckError> {
        let Some(keys) = self.keys.as_deref() else { return Ok(()) };
        match keys.entry(offset) {
            _ if offset >= self.sent => Err(AckError::BeyondSent { sent: self.sent }),
            None if keys.voided_in(offset, offset.plus(1), round).is_some() => {
                Err(AckError::Void { round, offset })
            }
            None => Err(AckError::Done { offset }),
            Some(entry) if entry.was_never_sent() => Err(AckError::BeyondSent { sent: offset }),
            Some(entry) if entry.counts(round) => Ok(()),
            Some(_) => Err(AckError::Void { round, offset }),
        }
    }

    /// A message has failed, and that is being written down: its key waits for it, nobody else is void.
    pub fn on_failing(&mut self, offset: Offset, now: Instant) {
        let oldest = self.oldest_in_flight();
        match self.keys.as_deref_mut() {
            Some(keys) => {
                keys.void(offset);
                self.gate = Gate::Settling;
                self.track_oldest(oldest, now);
            }
            None => self.end_round(offset, Gate::Settling),
        }
    }

    /// A failure was written down, and the key of the message is stopped.
    pub fn on_key_charged(&mut self, offset: Offset, failure: Failure, stop: Stop) {
        self.gate = Gate::Open;
        let Some(keys) = self.keys.as_deref_mut() else { return };
        let Some(entry) = keys.entry(offset) else { return };
        let (key, origin) = (entry.key.clone(), entry.origin);
        match origin {
            Origin::Copy { .. } => keys.charge_copy(offset, failure.attempts),
            Origin::Stream => _ = self.failed.insert(offset, failure),
        }
        keys.stop(&key, stop);
    }

    /// A message was given up: it is done, and its key goes on.
    pub(super) fn on_key_given_up(&mut self, offset: Offset) {
        let Some(keys) = self.keys.as_deref_mut() else { return };
        if let Some(entry) = keys.remove(offset) {
            keys.stop(&entry.key, Stop::None);
        }
        keys.on_copies_removed(&[offset]); // with the same settlement
    }

    /// A message was copied aside, with its key: it is done here.
    pub fn on_parked(&mut self, offset: Offset, now: Instant) {
        self.gate = Gate::Open;
        let oldest = self.oldest_in_flight();
        let (committed, acked) = (self.committed, &self.acked);
        let is_done = |offset: Offset| offset < committed || acked.contains(offset);
        if let Some(keys) = self.keys.as_deref_mut()
            && let Some(key) = keys.entry(offset).map(|entry| entry.key.clone())
        {
            keys.on_parked(offset, &key, is_done);
        }
        self.acked.insert(offset.max(self.committed), offset.plus(1));
        self.settle(now);
        self.track_oldest(oldest, now);
    }

    /// Messages that stand behind parked keys were copied aside: they are done here.
    pub fn on_behind_parked(&mut self, offsets: &[Offset], now: Instant) {
        self.gate = Gate::Open;
        for offset in offsets {
            self.acked.insert((*offset).max(self.committed), offset.plus(1));
        }
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.on_behind_parked(offsets);
        }
        self.settle(now);
    }

    /// How often messages that are about to be sent have failed.
    pub fn attempts_of(&self, offsets: impl Iterator<Item = Offset>) -> Vec<(i64, u32)> {
        let of_copy = |offset| self.keys.as_ref().and_then(|keys| keys.copy_attempts(offset));
        let attempts = |offset: Offset| {
            let attempts = of_copy(offset).or_else(|| self.failed.get(&offset).map(|failed| failed.attempts));
            attempts.filter(|attempts| *attempts > 0).map(|attempts| (offset.0, attempts))
        };
        offsets.filter_map(attempts).collect()
    }
}

fn is_suspect(keys: &Keys, suspect_until: Offset, offset: Offset) -> bool {
    offset < suspect_until && !keys.is_released_here(offset)
}
