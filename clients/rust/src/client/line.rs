//! The messages of one producer for one partition: numbered, in order, kept until their fate is known. Pure.
//!
//! Several frames may be under way at once. If one of them fails, nothing more is sent until all are answered, and then
//! everything that is not settled is sent again with the numbers it had: one copy each, order kept.
//! Invariant: the sequences of `entries` follow each other without a gap, but for what was refused.
//! Invariant: a message that was sent keeps its number until a broker has said that nothing of it is stored.

use std::collections::VecDeque;
use std::time::Instant;

use uuid::Uuid;

use crate::wire::NewMessage;

/// One message that waits for its fate.
#[derive(Debug)]
struct Entry<T> {
    sequence: i64,
    message: NewMessage,
    bytes: usize,
    deadline: Instant,
    ticket: T,
    /// A broker may have it.
    was_sent: bool,
    /// A connection was lost, or a broker did not know: it may be stored.
    doubtful: bool,
    expired: bool,
    done: bool,
}

/// What a gap leads to.
#[derive(Debug)]
pub(super) enum Gap<T> {
    /// Everything is sent again from what the broker expects.
    Resend,
    /// The broker has forgotten the producer. Nothing is lost and nothing is stored twice: it begins anew.
    Restarted,
    /// The broker expects something that is gone: these cannot be stored once and in order.
    Lost(Vec<T>),
}

/// The messages of one partition.
#[derive(Debug)]
pub(super) struct Line<T> {
    producer_id: Uuid,
    next_sequence: i64,
    entries: VecDeque<Entry<T>>,
    /// How many of the first entries are under way.
    sent: usize,
    /// Frames under way that hold some of them.
    frames: usize,
    rewinding: bool,
    /// The lowest sequence that was refused: what follows it moves up as soon as it is sure that nothing there is stored.
    hole: Option<i64>,
    /// What was refused there may have been stored by an earlier try.
    hole_is_doubtful: bool,
    paused_until: Option<Instant>,
    /// Whether its owner has it in the queue of those that may be ready.
    pub queued: bool,
}

impl<T> Line<T> {
    pub fn new(producer_id: Uuid) -> Self {
        Self {
            producer_id,
            next_sequence: 0,
            entries: VecDeque::new(),
            sent: 0,
            frames: 0,
            rewinding: false,
            hole: None,
            hole_is_doubtful: false,
            paused_until: None,
            queued: false,
        }
    }

    pub fn producer_id(&self) -> Uuid {
        self.producer_id
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes a message in, behind all others.
    pub fn push(&mut self, message: NewMessage, bytes: usize, deadline: Instant, ticket: T) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.entries.push_back(Entry {
            sequence,
            message,
            bytes,
            deadline,
            ticket,
            was_sent: false,
            doubtful: false,
            expired: false,
            done: false,
        });
    }

    /// Whether something may be sent now.
    pub fn is_ready(&self, now: Instant) -> bool {
        self.sent < self.entries.len()
            && !self.rewinding
            && self.paused_until.is_none_or(|paused_until| paused_until <= now)
    }

    /// When something may be sent that may not be sent yet.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused_until.filter(|_| self.sent < self.entries.len() && !self.rewinding)
    }

    /// The next messages to send, numbered, with their bytes; they are under way from now on. At least one if any is ready,
    /// else as many as fit.
    pub fn take(
        &mut self,
        messages_max: usize,
        bytes_max: usize,
        partition: u32,
    ) -> (Vec<NewMessage>, usize) {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = self.entries.get_mut(self.sent) {
            if taken.len() >= messages_max || (!taken.is_empty() && bytes + entry.bytes > bytes_max) {
                break;
            }
            let last = taken.last().and_then(|last: &NewMessage| last.sequence);
            if last.is_some_and(|last| last + 1 != entry.sequence) {
                break; // the numbers of a frame follow each other
            }
            bytes += entry.bytes;
            entry.was_sent = true;
            let sequence = Some(entry.sequence);
            taken.push(NewMessage { partition: Some(partition), sequence, ..entry.message.clone() });
            self.sent += 1;
        }
        if !taken.is_empty() {
            self.frames += 1;
        }
        (taken, bytes)
    }

    /// Bytes of the next message to send.
    pub fn next_bytes(&self) -> Option<usize> {
        self.entries.get(self.sent).map(|entry| entry.bytes)
    }

    /// A message is stored. Returns the ticket if its fate was not known yet.
    pub fn on_stored(&mut self, sequence: i64) -> Option<&mut T> {
        let index = self.index_of(sequence)?;
        let entry = &mut self.entries[index];
        if entry.done {
            return None;
        }
        entry.done = true;
        if self.hole.is_some_and(|hole| hole < sequence) {
            (self.hole, self.hole_is_doubtful) = (None, false); // its number was used after all
        }
        Some(&mut entry.ticket)
    }

    /// Nothing of these is stored, and the same may be sent again after a pause. `doubtful`: they may be stored after all.
    pub fn on_failed(&mut self, sequences: &[i64], resume_at: Instant, doubtful: bool) {
        for sequence in sequences {
            if let Some(index) = self.index_of(*sequence) {
                self.entries[index].doubtful |= doubtful;
            }
        }
        self.rewinding = true;
        self.paused_until = self.paused_until.max(Some(resume_at));
    }

    /// Whether a message may be stored after all, by an earlier try.
    pub fn is_doubtful(&self, sequence: i64) -> bool {
        self.index_of(sequence).is_some_and(|index| self.entries[index].doubtful)
    }

    /// A message is not stored and never will be, not here. It leaves, and those behind it move up.
    pub fn on_refused(&mut self, sequence: i64) -> Option<(NewMessage, T)> {
        let index = self.index_of(sequence)?;
        let entry = self.entries.remove(index)?;
        if index < self.sent {
            self.sent -= 1;
        }
        self.hole_is_doubtful |= entry.doubtful;
        self.hole = Some(self.hole.map_or(entry.sequence, |hole| hole.min(entry.sequence)));
        self.rewinding = true;
        Some((entry.message, entry.ticket))
    }

    /// The broker expects another number.
    pub fn on_gap(&mut self, expected: i64, now: Instant) -> Gap<T> {
        self.rewinding = true;
        let front = self.entries.iter().find(|entry| !entry.done).map(|entry| entry.sequence);
        let reachable = front.is_none_or(|front| front <= expected);
        if reachable || self.hole.is_some_and(|hole| hole <= expected) {
            if self.hole == Some(expected) {
                self.hole_is_doubtful = false; // nothing from there on is stored
                self.entries.iter_mut().for_each(|entry| entry.doubtful &= entry.sequence < expected);
            }
            self.paused_until = self.paused_until.max(Some(now));
            return Gap::Resend;
        }
        if self.entries.iter().any(|entry| entry.doubtful && !entry.done) {
            self.restart();
            self.sent = 0;
            return Gap::Lost(
                self.entries.drain(..).filter(|entry| !entry.done).map(|entry| entry.ticket).collect(),
            );
        }
        self.restart();
        Gap::Restarted
    }

    /// One of the frames under way is answered; what is settled leaves. Call it after what the answer says was noted.
    pub fn on_answered(&mut self) {
        self.frames = self.frames.saturating_sub(1);
        self.settle();
    }

    /// Nothing that is under way will be answered any more.
    pub fn on_disconnected(&mut self) {
        for entry in self.entries.iter_mut().take(self.sent) {
            entry.doubtful = true;
        }
        self.frames = 0;
        self.rewinding = true;
        self.paused_until = None;
        self.settle();
    }

    /// Tells those that have waited too long. What was never sent leaves; the rest stays until its fate is known, so that
    /// the messages behind it keep their order.
    pub fn on_time(&mut self, now: Instant, mut tell: impl FnMut(&mut T, bool)) {
        let mut kept = VecDeque::with_capacity(self.entries.len());
        let mut next = self.entries.front().map_or(self.next_sequence, |entry| entry.sequence);
        for mut entry in self.entries.drain(..) {
            if entry.deadline <= now && !entry.expired && !entry.done {
                tell(&mut entry.ticket, entry.was_sent);
                entry.expired = true;
            }
            if entry.expired && !entry.was_sent {
                continue;
            }
            if !entry.was_sent {
                entry.sequence = next.max(kept.back().map_or(next, |last: &Entry<T>| last.sequence + 1));
            }
            next = entry.sequence + 1;
            kept.push_back(entry);
        }
        self.next_sequence = next;
        self.entries = kept;
    }

    /// When the first message will have waited too long.
    pub fn deadline(&self) -> Option<Instant> {
        self.entries.iter().find(|entry| !entry.expired && !entry.done).map(|entry| entry.deadline)
    }

    /// All that is left, for the end.
    pub fn drain(&mut self) -> impl Iterator<Item = (T, bool)> + '_ {
        self.sent = 0;
        self.entries.drain(..).filter(|entry| !entry.done).map(|entry| (entry.ticket, entry.was_sent))
    }

    fn index_of(&self, sequence: i64) -> Option<usize> {
        self.entries.binary_search_by_key(&sequence, |entry| entry.sequence).ok()
    }

    fn settle(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.done) {
            self.entries.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
        if self.frames == 0 && self.rewinding {
            self.rewinding = false;
            self.sent = 0;
            // What may be stored under a number keeps it, and so does what is behind it, until the broker says what it expects.
            let in_doubt =
                self.hole_is_doubtful || self.entries.iter().any(|entry| entry.doubtful && !entry.done);
            if let Some(hole) = self.hole.take_if(|_| !in_doubt) {
                let first = self.entries.front().map_or(hole, |entry| entry.sequence.min(hole));
                self.renumber(first);
            }
        }
    }

    fn renumber(&mut self, first: i64) {
        for (sequence, entry) in (first..).zip(self.entries.iter_mut()) {
            entry.sequence = sequence;
        }
        self.next_sequence = first + self.entries.len() as i64;
    }

    /// A new producer, whose first message is the oldest that is left.
    fn restart(&mut self) {
        self.producer_id = Uuid::new_v4();
        (self.hole, self.hole_is_doubtful) = (Some(0), false);
        self.entries.retain(|entry| !entry.done);
        self.next_sequence = self.entries.len() as i64;
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
