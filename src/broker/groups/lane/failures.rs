//! Messages of a lane that have failed, were given up or have expired. Pure: time comes as an argument.

use std::time::Instant;

use super::{Failure, Gate, Lane};
use crate::ids::Offset;

impl Lane {
    /// How often a message has failed, if it fails now too.
    pub fn attempts_after_failure(&self, offset: Offset) -> u32 {
        let copy = self.keys.as_ref().and_then(|keys| keys.copy_attempts(offset));
        copy.or_else(|| Some(self.failed.get(&offset)?.attempts)).unwrap_or(0).saturating_add(1)
    }

    /// A failure was written down: the message is tried again when the gate opens.
    pub fn on_charged(&mut self, offset: Offset, failure: Failure, gate: Gate) {
        self.gate = gate;
        self.failed.insert(offset, failure);
    }

    /// A message was given up: it is done.
    pub fn on_given_up(&mut self, offset: Offset, now: Instant) {
        let oldest = self.oldest_in_flight();
        self.failed.remove(&offset);
        self.on_key_given_up(offset);
        self.acked.insert(offset.max(self.committed), offset.plus(1));
        self.committed = self.acked.settle(self.committed);
        self.cursor = self.cursor.max(self.committed);
        self.times.on_committed_offset(self.committed);
        match self.keys {
            Some(_) => self.track_oldest(oldest, now),
            None => self.oldest_since = now,
        }
        self.dirty = true;
        self.gate = Gate::Open;
    }

    /// These have expired, and that is written down: they are done.
    pub fn on_evicted(&mut self, ranges: impl IntoIterator<Item = (Offset, Offset)>, now: Instant) {
        let oldest = self.oldest_in_flight();
        for (from, to) in ranges {
            self.acked.insert(from.max(self.committed), to);
            if let Some(keys) = &mut self.keys {
                keys.on_evicted(from, to);
            }
        }
        self.settle(now);
        if self.keys.is_some() {
            self.track_oldest(oldest, now);
        }
        self.gate = Gate::Open;
    }

    /// The failures among messages that are about to be sent.
    pub fn attempts_between(&self, from: Offset, to: Offset) -> Vec<(i64, u32)> {
        self.failed.range(from..to).map(|(offset, failure)| (offset.0, failure.attempts)).collect()
    }

    /// Whether a message has failed that is not done.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }
}
