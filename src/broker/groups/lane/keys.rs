//! What a lane keeps in mind if order is kept by key: which messages are in flight, which wait, which keys are parked. Pure.
//!
//! Every message below the lane's cursor that is not done has an entry, and so has every copy of a parked message that is to be
//! delivered again. A key that fails is stopped: its messages wait in its line, and those of other keys go on.
//! Invariant: of one key, what waits lies behind what is in flight.
//! Invariant: `ready` is what waits of keys that are neither stopped nor parked.

mod flying;
mod parked;
mod voided;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;

use crate::ids::Offset;
use flying::Flying;
use voided::Voided;

/// What messages are ordered by; one without a key has nothing to be ordered with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Named(Bytes),
    Own(Offset),
}

impl Key {
    /// Of a message.
    pub fn of(key: Option<&Bytes>, offset: Offset) -> Self {
        key.map_or(Key::Own(offset), |key| Key::Named(key.clone()))
    }
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    /// It was never sent.
    Fresh,
    Flying,
    /// It was sent, and that does not count any more.
    Void,
    /// It is sent again, and what was said about it before still counts.
    Again,
}

/// Where a message is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    Stream,
    /// From its parked copy, which has failed so often since it was released.
    Copy {
        attempts: u32,
    },
}

/// A message that is not done.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub struct Entry {
    pub key: Key,
    pub origin: Origin,
    state: State,
    /// The first and the last round it was sent in, of those that count.
    rounds: (u32, u32),
    /// The same of those that were void last.
    void: (u32, u32),
}

impl Entry {
    /// One that was not sent yet.
    fn fresh(key: Key, origin: Origin) -> Self {
        Self { key, origin, state: State::Fresh, rounds: (0, 0), void: (0, 0) }
    }

    /// Whether what is said about it in a round counts.
    pub fn counts(&self, round: u32) -> bool {
        matches!(self.state, State::Flying | State::Again) && self.rounds.0 <= round && round <= self.rounds.1
    }

    /// Whether it was sent in a round, as far as is remembered.
    pub fn was_sent_in(&self, round: u32) -> bool {
        self.counts(round) && (self.rounds.0 == round || self.rounds.1 == round)
    }

    /// Whether it was sent in a round and does not count there any more, as far as is remembered.
    pub fn is_void_in(&self, round: u32) -> bool {
        !self.counts(round) && (self.void.0 == round || self.void.1 == round)
    }

    /// The round it was sent in last.
    pub fn last_round(&self) -> u32 {
        self.rounds.1
    }

    pub fn was_never_sent(&self) -> bool {
        self.state == State::Fresh && self.void == (0, 0)
    }

    fn is_copy(&self) -> bool {
        matches!(self.origin, Origin::Copy { .. })
    }

    /// It waits, and nothing that was said about it counts any more.
    fn make_void(&mut self) {
        if matches!(self.state, State::Flying | State::Again) {
            self.void = self.rounds;
        }
        self.state = State::Void;
    }
}

/// What keeps a key from being sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Stop {
    #[default]
    None,
    /// A failure is being written down.
    Settling,
    /// Its first message waits for its next try.
    Until(Instant),
    /// It has failed too often, and the group's policy is to stop at it.
    Blocked,
}

/// The messages of one key that wait.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
struct Line {
    stop: Stop,
    waiting: BTreeSet<Offset>,
}

/// A key whose messages are copied aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parked {
    /// The message that parked it: its name in the tables.
    pub offset: Offset,
    pub state: ParkedState,
}

/// Whether the copies of a key are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParkedState {
    Parked,
    /// They are, in order. Those below this offset are known here, or done.
    Released {
        known_to: Offset,
    },
}

/// Which messages that stand behind others are copied aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those of keys that are parked.
    Parked,
    /// Those of released keys, too: too many of them wait here.
    Released,
}

/// See the module.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))] // the model keeps lanes as states
pub struct Keys {
    entries: BTreeMap<Offset, Entry>,
    flying: Flying,
    lines: BTreeMap<Key, Line>,
    ready: BTreeSet<Offset>,
    stops: BTreeSet<(Instant, Key)>,
    /// How many keys are stopped because they are blocked.
    blocked: usize,
    parked: BTreeMap<Key, Parked>,
    /// Those of them that are released, by name, and how many copies of each are here.
    released: BTreeMap<Offset, (Key, usize)>,
    /// What came from the stream for a key that is parked.
    behind: BTreeSet<Offset>,
    /// Released keys whose next copy lies behind such a message: that one has to be copied aside first.
    obstructed: BTreeSet<Offset>,
    /// Released keys whose next copy lies beyond what the lane has looked at, with that copy: what comes before it of the key is
    /// not known yet.
    beyond: BTreeMap<Offset, Offset>,
    /// Keys that were released when the lane came here: copies of them may have been in flight when its consumer died.
    inherited: BTreeSet<Offset>,
    /// Copies that are done, to be removed from the tables.
    done_copies: BTreeSet<Offset>,
    voided: Voided,
    /// Within a round offsets rise: what was sent in this one ends here.
    round_end: i64,
    /// When something was acknowledged last.
    acked_at: Option<Instant>,
}

impl Keys {
    pub fn flying(&self) -> usize {
        self.flying.len()
    }

    /// The message in flight with the lowest offset.
    pub fn first_flying(&self) -> Option<Offset> {
        self.flying.first()
    }

    /// The message in flight that was sent before all others.
    pub fn oldest_flying(&self) -> Option<Offset> {
        self.flying.oldest()
    }

    pub fn is_flying(&self, offset: Offset) -> bool {
        self.flying.contains(offset)
    }

    /// The first message that waits and may be sent.
    pub fn first_ready(&self) -> Option<Offset> {
        self.ready.first().copied()
    }

    pub fn is_ready(&self, offset: Offset) -> bool {
        self.ready.contains(&offset)
    }

    /// Messages that are ready, from an offset on, and are read from their copies.
    pub fn ready_copies(&self, from: Offset) -> impl Iterator<Item = Offset> {
        let is_copy = |offset: &Offset| self.entries.get(offset).is_some_and(Entry::is_copy);
        self.ready.range(from..).copied().take_while(is_copy)
    }

    /// How many messages are not done.
    pub fn undone(&self) -> usize {
        self.entries.len()
    }

    pub fn entry(&self, offset: Offset) -> Option<&Entry> {
        self.entries.get(&offset)
    }

    pub fn entries_in(&self, from: Offset, to: Offset) -> impl Iterator<Item = (Offset, &Entry)> {
        let (from, to) = (from, to.max(from));
        self.entries.range(from..to).map(|(offset, entry)| (*offset, entry))
    }

    /// Whether a new message of a key has to wait.
    pub fn holds(&self, key: &Key) -> bool {
        self.lines.contains_key(key) || self.parked.contains_key(key)
    }

    /// Whether nothing is stopped or parked, so that every new message may be sent.
    pub fn is_free(&self) -> bool {
        self.lines.is_empty() && self.parked.is_empty()
    }

    pub fn acked_at(&self) -> Option<Instant> {
        self.acked_at
    }

    pub fn on_acked(&mut self, now: Instant) {
        self.acked_at = Some(now);
    }

    /// Whether something can be sent from an offset on only in another round.
    pub fn goes_back(&self, first: Offset) -> bool {
        first.0 < self.round_end
    }

    pub fn begin_round(&mut self) {
        self.round_end = 0;
    }

    /// The next thing that is sent begins a round.
    fn end_round(&mut self) {
        self.round_end = i64::MAX;
    }

    /// A message was sent, for the first time or again.
    pub fn on_sent(&mut self, offset: Offset, key: Key, round: u32) {
        self.unwait(offset);
        let entry = self.entries.entry(offset).or_insert(Entry::fresh(key, Origin::Stream));
        entry.rounds = match entry.state {
            State::Fresh | State::Void => (round, round),
            State::Flying | State::Again => (entry.rounds.0, round),
        };
        entry.state = State::Flying;
        self.flying.insert(offset);
        self.round_end = self.round_end.max(offset.0 + 1);
    }

    /// A message from the stream that cannot be sent now.
    pub fn on_held(&mut self, offset: Offset, key: Key) {
        if self.entries.contains_key(&offset) {
            return; // its copy is under way already
        }
        let is_parked = self.parked.contains_key(&key);
        self.entries.insert(offset, Entry::fresh(key.clone(), Origin::Stream));
        match is_parked {
            true => _ = self.behind.insert(offset),
            false => self.wait(offset, key),
        }
    }

    fn wait(&mut self, offset: Offset, key: Key) {
        let line = self.lines.entry(key).or_default();
        line.waiting.insert(offset);
        if line.stop == Stop::None {
            self.ready.insert(offset);
        }
    }

    fn unwait(&mut self, offset: Offset) {
        self.ready.remove(&offset);
        self.behind.remove(&offset);
        let Some(key) = self.entries.get(&offset).map(|entry| &entry.key) else { return };
        if let Some(line) = self.lines.get_mut(key) {
            line.waiting.remove(&offset);
            if line.waiting.is_empty() && line.stop == Stop::None {
                self.lines.remove(&key.clone());
            }
        }
    }

    /// Stops a key, or lets it go on.
    pub fn stop(&mut self, key: &Key, stop: Stop) {
        let line = self.lines.entry(key.clone()).or_default();
        let before = std::mem::replace(&mut line.stop, stop);
        if let Stop::Until(moment) = before {
            self.stops.remove(&(moment, key.clone()));
        }
        self.blocked += usize::from(stop == Stop::Blocked);
        self.blocked -= usize::from(before == Stop::Blocked);
        match stop {
            Stop::None => self.ready.extend(line.waiting.iter().copied()),
            Stop::Settling | Stop::Until(_) | Stop::Blocked => {
                for offset in &line.waiting {
                    self.ready.remove(offset);
                }
            }
        }
        if let Stop::Until(moment) = stop {
            self.stops.insert((moment, key.clone()));
        }
        if line.waiting.is_empty() && stop == Stop::None {
            self.lines.remove(key);
        }
    }

    /// Lets those keys go on whose moment has come.
    pub fn wake(&mut self, now: Instant) {
        while let Some((moment, key)) = self.stops.first().cloned()
            && moment <= now
        {
            self.stop(&key, Stop::None);
        }
    }

    /// How many keys are blocked.
    pub fn blocked(&self) -> usize {
        self.blocked
    }

    /// Lets those keys go on that are blocked: something about the group has changed.
    pub fn unblock(&mut self) {
        let is_blocked = |(_, line): &(&Key, &Line)| line.stop == Stop::Blocked;
        let blocked: Vec<Key> = self.lines.iter().filter(is_blocked).map(|(key, _)| key.clone()).collect();
        blocked.iter().for_each(|key| self.stop(key, Stop::None));
    }

    /// When the next key goes on by itself.
    pub fn next_moment(&self) -> Option<Instant> {
        self.stops.first().map(|(moment, _)| *moment)
    }

    /// A message has failed: it and what is in flight behind it of its key is void, and waits.
    pub fn void(&mut self, offset: Offset) -> Option<Key> {
        let key = self.entries.get(&offset)?.key.clone();
        self.stop(&key, Stop::Settling);
        let behind = self.entries.range(offset..).filter(|(_, entry)| entry.key == key);
        let void: Vec<Offset> =
            behind.filter(|(_, entry)| entry.state != State::Fresh).map(|(offset, _)| *offset).collect();
        for offset in void {
            if let Some(entry) = self.entries.get_mut(&offset) {
                entry.make_void();
            }
            self.flying.remove(offset);
            self.wait(offset, key.clone());
        }
        self.end_round();
        Some(key)
    }

    /// Everything in flight is sent again, and what is said about it meanwhile still counts.
    pub fn restart(&mut self) {
        for offset in self.flying.take() {
            let Some(entry) = self.entries.get_mut(&offset) else { continue };
            entry.state = State::Again;
            let key = entry.key.clone();
            self.wait(offset, key);
        }
        self.round_end = 0;
    }

    /// A message is done. A key that waited for it, or was blocked by it, goes on.
    pub fn remove(&mut self, offset: Offset) -> Option<Entry> {
        let held_up = self.held_up_by(offset);
        self.unwait(offset);
        self.flying.remove(offset);
        let entry = self.entries.remove(&offset)?;
        if let Some(key) = held_up {
            self.stop(&key, Stop::None);
        }
        if entry.is_copy() {
            self.voided.remove_in(offset, offset.plus(1)); // it came again, and that is over
            self.done_copies.insert(offset);
            self.copy_gone(&entry.key);
        }
        Some(entry)
    }

    /// The first message of `[from, to)` that was copied aside, and about which a round says nothing that counts.
    pub fn voided_in(&self, from: Offset, to: Offset, round: u32) -> Option<Offset> {
        self.voided.first_in(from, to, round)
    }

    /// As [`Keys::voided_in`], of what was sent in that round.
    pub fn voided_below(&self, below: Offset, round: u32) -> Option<Offset> {
        self.voided.first_sent_in(below, round)
    }

    /// These are done after all, whatever round they were sent in. `ranges`: with those that were copied aside meanwhile.
    pub fn on_stepped(&mut self, offsets: &[Offset], ranges: &[(Offset, Offset)]) {
        ranges.iter().for_each(|(from, to)| self.voided.remove_in(*from, *to));
        self.on_copies_removed(offsets);
    }

    /// The key that is stopped because of a message, which is the first that waits of it.
    fn held_up_by(&self, offset: Offset) -> Option<Key> {
        let key = &self.entries.get(&offset)?.key;
        let line = self.lines.get(key).filter(|line| line.waiting.first() == Some(&offset))?;
        match line.stop {
            Stop::Until(_) | Stop::Blocked => Some(key.clone()),
            Stop::None | Stop::Settling => None,
        }
    }

    /// Messages have expired. What is parked does not.
    pub fn on_evicted(&mut self, from: Offset, to: Offset) {
        let gone = self.entries_in(from, to).filter(|(_, entry)| !entry.is_copy());
        let gone: Vec<Offset> = gone.map(|(offset, _)| offset).collect();
        gone.into_iter().for_each(|offset| drop(self.remove(offset)));
    }

    fn copy_gone(&mut self, key: &Key) {
        if let Some(parked) = self.parked.get(key)
            && let Some((_, copies)) = self.released.get_mut(&parked.offset)
        {
            *copies = copies.saturating_sub(1);
        }
    }

    /// How often a copy has failed since it was released, if the message is one.
    pub fn copy_attempts(&self, offset: Offset) -> Option<u32> {
        match self.entries.get(&offset)?.origin {
            Origin::Copy { attempts } => Some(attempts),
            Origin::Stream => None,
        }
    }

    /// A copy has failed once more.
    pub fn charge_copy(&mut self, offset: Offset, attempts: u32) {
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.origin = Origin::Copy { attempts };
        }
    }
}
