//! Parked keys of a lane: what stands behind them, and which of their copies are delivered again. Pure.
//!
//! Invariant: a copy has an entry only if the lane has looked at everything up to it, and nothing of its key from the stream that
//! lies before it stands behind it.

use std::time::Instant;

use super::{Entry, Key, Keys, Origin, Parked, ParkedState, Reach, State, Stop};
use crate::ids::Offset;

impl Keys {
    pub fn parked_keys(&self) -> usize {
        self.parked.len()
    }

    pub fn parked(&self, key: &Key) -> Option<Parked> {
        self.parked.get(key).copied()
    }

    /// A key that was parked before this lane came here.
    pub fn on_known(&mut self, key: Key, parked: Parked) {
        if parked.state != ParkedState::Parked {
            self.inherited.insert(parked.offset);
            self.released.insert(parked.offset, (key.clone(), 0));
        }
        self.parked.insert(key, parked);
    }

    /// A message was copied aside: it is done here, and its key is parked with everything behind it. `is_done`: whether a
    /// message is done in the stream.
    pub fn on_parked(&mut self, offset: Offset, key: &Key, is_done: impl Fn(Offset) -> bool) {
        self.remove_aside(offset);
        let parked = self.parked.entry(key.clone()).or_insert(Parked { offset, state: ParkedState::Parked });
        parked.state = ParkedState::Parked;
        let name = parked.offset;
        self.released.remove(&name);
        self.forget_reads(name);
        self.stop(key, Stop::None);
        let of_key = self.entries.iter().filter(|(at, entry)| entry.key == *key && **at > offset);
        let those: Vec<Offset> = of_key.map(|(offset, _)| *offset).collect();
        for offset in those {
            self.unwait(offset);
            self.flying.remove(offset);
            let Some(entry) = self.entries.get_mut(&offset) else { continue };
            if entry.is_copy() && is_done(offset) {
                entry.make_void();
                self.voided.insert(offset, entry.void);
                self.entries.remove(&offset); // the tables have it
                continue;
            }
            if entry.state != State::Fresh {
                entry.make_void();
            }
            (entry.origin, entry.state) = (Origin::Stream, State::Fresh);
            self.behind.insert(offset);
        }
    }

    /// The copies of a key are to be delivered. False: that is known, or there is no such key.
    pub fn on_released(&mut self, parked_offset: Offset) -> bool {
        if self.released.contains_key(&parked_offset) {
            return false;
        }
        let found = self.parked.iter_mut().find(|(_, parked)| parked.offset == parked_offset);
        match found {
            Some((key, parked)) if parked.state == ParkedState::Parked => {
                parked.state = ParkedState::Released { known_to: Offset::ZERO };
                // Some that lie before the one that failed may still be in flight.
                let is_its_copy = |entry: &&Entry| entry.key == *key && entry.is_copy();
                let here = self.entries.values().filter(is_its_copy).count();
                self.released.insert(parked_offset, (key.clone(), here));
                true
            }
            Some(_) | None => false,
        }
    }

    /// A released key none of whose copies is here, with the offset from which on they are to be read. The lane has looked at
    /// everything below `looked_to`. `waits`: whether a key is not to be read now.
    pub fn next_to_read(
        &self,
        looked_to: Offset,
        waits: impl Fn(&Offset) -> bool,
    ) -> Option<(Offset, Offset)> {
        let is_wanted = |(name, (_, copies)): &(&Offset, &(Key, usize))| {
            let is_beyond = self.beyond.get(name).is_some_and(|first| *first >= looked_to);
            *copies == 0 && !is_beyond && !self.obstructed.contains(name) && !waits(name)
        };
        let (offset, (key, _)) = self.released.iter().find(is_wanted)?;
        match self.parked.get(key)?.state {
            ParkedState::Released { known_to } => Some((*offset, known_to)),
            ParkedState::Parked => None,
        }
    }

    /// Copies of a released key were read: they are delivered next, in order. Those that the lane has not looked up to are read
    /// again later, because what comes before them of the key is not known yet; it has looked at everything below `looked_to`.
    pub fn on_copies(
        &mut self,
        parked_offset: Offset,
        copies: &[(Offset, u32, Option<Instant>)],
        looked_to: Offset,
    ) {
        let Some((key, here)) = self.released.get_mut(&parked_offset) else { return };
        let key = key.clone();
        let is_its = |offset: &&Offset| self.entries.get(offset).is_some_and(|entry| entry.key == key);
        let nearest = self.behind.iter().find(is_its).copied().unwrap_or(Offset(i64::MAX));
        let first = copies.first().map(|(offset, ..)| *offset);
        let copies =
            &copies[..copies.partition_point(|(offset, ..)| *offset <= nearest && *offset < looked_to)];
        self.beyond.remove(&parked_offset);
        match first.filter(|_| copies.is_empty()) {
            Some(first) if first >= looked_to => _ = self.beyond.insert(parked_offset, first),
            Some(_) => _ = self.obstructed.insert(parked_offset),
            None => {}
        }
        let Some(ParkedState::Released { known_to }) =
            self.parked.get_mut(&key).map(|parked| &mut parked.state)
        else {
            return;
        };
        let (known_from, mut added) = (*known_to, Vec::new());
        *known_to = copies.last().map_or(*known_to, |(offset, ..)| offset.plus(1));
        for (offset, attempts, retry_at) in copies {
            let is_here = self.entries.get(offset).is_some_and(Entry::is_copy);
            if *offset < known_from || is_here || self.done_copies.contains(offset) {
                continue;
            }
            self.behind.remove(offset); // the same message, after a seek
            let entry = Entry::fresh(key.clone(), Origin::Copy { attempts: *attempts });
            self.entries.insert(*offset, entry);
            added.push((*offset, *retry_at));
            *here += 1;
        }
        for (offset, retry_at) in added {
            self.wait(offset, key.clone());
            if let Some(moment) = retry_at {
                self.stop(&key, Stop::Until(moment));
            }
        }
    }

    /// Somebody has parked a key again that was taken for released.
    pub fn on_not_released(&mut self, parked_offset: Offset) {
        self.forget_reads(parked_offset);
        if let Some((key, _)) = self.released.remove(&parked_offset)
            && let Some(parked) = self.parked.get_mut(&key)
        {
            parked.state = ParkedState::Parked;
        }
    }

    /// Nothing of a key is left in the tables: it goes on from the stream.
    pub fn on_freed(&mut self, parked_offset: Offset) {
        self.forget_reads(parked_offset);
        let Some((key, _)) = self.released.remove(&parked_offset) else { return };
        self.parked.remove(&key);
        let is_its = |offset: &&Offset| self.entries.get(offset).is_some_and(|entry| entry.key == key);
        let behind: Vec<Offset> = self.behind.iter().filter(is_its).copied().collect();
        for offset in behind {
            self.behind.remove(&offset);
            self.wait(offset, key.clone());
        }
    }

    /// A key that seemed to have no copies left has some: they are read from the first on.
    pub fn on_kept(&mut self, parked_offset: Offset) {
        self.forget_reads(parked_offset);
        if let Some((key, _)) = self.released.get(&parked_offset)
            && let Some(parked) = self.parked.get_mut(key)
        {
            parked.state = ParkedState::Released { known_to: Offset::ZERO };
        }
    }

    /// What is known about the copies of a key from before does not hold any more.
    fn forget_reads(&mut self, parked_offset: Offset) {
        self.obstructed.remove(&parked_offset);
        self.beyond.remove(&parked_offset);
        self.inherited.remove(&parked_offset);
    }

    /// Whether a message is a copy that was not in flight before the lane came here: its key was released since.
    pub fn is_released_here(&self, offset: Offset) -> bool {
        let parked = self.entries.get(&offset).filter(|entry| entry.is_copy());
        let parked = parked.and_then(|entry| self.parked.get(&entry.key));
        parked.is_some_and(|parked| !self.inherited.contains(&parked.offset))
    }

    /// Copies that are done and still in the tables.
    pub fn done_copies(&self) -> Vec<Offset> {
        self.done_copies.iter().copied().collect()
    }

    /// They are out of the tables.
    pub fn on_copies_removed(&mut self, offsets: &[Offset]) {
        offsets.iter().for_each(|offset| _ = self.done_copies.remove(offset));
    }

    /// What is to be copied aside next, each with the name of its key, as far as it is free for that.
    pub fn next_behind(
        &self,
        most: usize,
        reach: Reach,
        is_free: impl Fn(Offset) -> bool,
    ) -> Vec<(Offset, Offset)> {
        let name = |offset: &Offset| {
            let parked = self.parked.get(&self.entries.get(offset)?.key)?;
            let is_due = parked.state == ParkedState::Parked || self.obstructed.contains(&parked.offset);
            (reach == Reach::Released || is_due).then_some((*offset, parked.offset))
        };
        self.behind.iter().filter(|offset| is_free(**offset)).filter_map(name).take(most).collect()
    }

    /// Messages that stood behind parked keys were copied aside: they are done here, and keys that they were in the way of are
    /// looked at again.
    pub fn on_behind_parked(&mut self, offsets: &[Offset]) {
        for offset in offsets {
            self.remove_aside(*offset);
        }
        self.obstructed.clear();
    }

    /// A message stands in the tables: it is done here, and nothing that was said about it counts.
    fn remove_aside(&mut self, offset: Offset) {
        if let Some(entry) = self.remove(offset) {
            self.voided.insert(offset, entry.void);
        }
        self.done_copies.remove(&offset); // it stays in the tables
    }

    /// How many messages stand behind parked keys, released ones included.
    pub fn behind(&self) -> usize {
        self.behind.len()
    }

    pub fn is_behind(&self, offset: Offset) -> bool {
        self.behind.contains(&offset)
    }
}
