//! Which messages of a lane go out if its order is kept by key: those whose key neither waits nor is parked, and released copies.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::held::Held;
use super::super::lane::by_key::Turn;
use super::super::lane::keys::{Key, ParkedState};
use crate::broker::slab::{Piece, Slab};
use crate::ids::Offset;
use crate::limits::LANE_ROUNDS_REMEMBERED;

/// What of some messages goes out, and what does not.
pub struct Picked {
    pub pieces: Vec<Piece>,
    /// Present if order is kept by key: what was found, of which the pieces are a part.
    found: Option<Found>,
}

struct Found {
    pieces: Vec<Piece>,
    held: Vec<(Offset, Key, Turn)>,
    /// Everything below was looked at.
    end: Offset,
}

impl Picked {
    /// All of them go out.
    pub fn all(pieces: Vec<Piece>) -> Self {
        Self { pieces, found: None }
    }

    pub fn len(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
    }

    /// Whether nothing goes out, although something was found.
    pub fn is_all_held(&self) -> bool {
        self.pieces.is_empty() && self.found.is_some()
    }

    /// Only the first of them go, and of what is held, what lies between them.
    pub fn cut(&mut self, pieces: Vec<Piece>) {
        let end = pieces.last().map_or(Offset::ZERO, Piece::end);
        if let Some(found) = &mut self.found
            && pieces.iter().map(Piece::len).sum::<usize>() < found.sent()
        {
            found.held.retain(|(offset, ..)| *offset < end);
            found.end = end;
        }
        self.pieces = pieces;
    }
}

impl Found {
    /// How many of what was found could go out.
    fn sent(&self) -> usize {
        let all: usize = self.pieces.iter().map(Piece::len).sum();
        all - self.held.len()
    }
}

impl Held {
    /// Released copies that go out next, if it is their turn.
    pub fn copies(&self, from: Offset, messages: usize, bytes: u64) -> Option<Vec<Piece>> {
        let (keys, keyed) = (self.lane.keys()?, self.keyed.as_ref()?);
        keys.copy_attempts(from)?;
        let mut left = bytes;
        let mut pieces = Vec::new();
        let goes_along = |offset: &Offset| *offset == from || !self.lane.is_suspect(*offset);
        for offset in keys.ready_copies(from).take_while(goes_along).take(messages) {
            let Some(slab) = keyed.copies.get(&offset).filter(|_| left > 0) else { break };
            let piece = Slab::piece(slab, offset, 1, u64::MAX);
            left = left.saturating_sub(piece.bytes());
            pieces.push(piece);
        }
        Some(pieces)
    }

    /// Which messages go out.
    pub fn pick(&self, pieces: Vec<Piece>, now: Instant) -> Picked {
        let Some(keys) = self.lane.keys().filter(|_| !pieces.is_empty()) else { return Picked::all(pieces) };
        let is_new = pieces.first().is_some_and(|piece| !keys.is_ready(piece.first()));
        if is_new && keys.is_free() && !self.lane.has_failed() {
            return Picked::all(pieces);
        }
        let (mut sent, mut held, mut stopped) = (Vec::new(), Vec::new(), BTreeSet::new());
        let cursor = self.lane.cursor();
        let end = pieces.last().map_or(Offset::ZERO, Piece::end);
        for piece in &pieces {
            let mut from = piece.first();
            for message in piece.messages() {
                let key = Key::of(message.key.as_ref(), message.offset);
                let turn = match self.lane.turn(message.offset, &key, now) {
                    // What waits goes alone; the next turn looks at what is new.
                    Turn::Goes if !is_new && message.offset >= cursor => Turn::Held,
                    // After a seek a copy stands in the stream, too: it goes with the copies before it, which do not.
                    Turn::Goes if keys.copy_attempts(message.offset).is_some() => Turn::Held,
                    Turn::Goes if stopped.contains(&key) => Turn::Held,
                    turn => turn,
                };
                if turn == Turn::Goes {
                    continue;
                }
                sent.push(piece.cut(from, message.offset));
                from = message.offset.plus(1);
                if is_new {
                    stopped.insert(key.clone());
                    held.push((message.offset, key, turn));
                }
            }
            sent.push(piece.cut(from, piece.end()));
        }
        sent.retain(|piece| !piece.is_empty());
        let found = is_new.then_some(Found { pieces, held, end });
        Picked { pieces: sent, found }
    }

    /// Messages of keys that are parked are kept until they are copied aside.
    fn keep_behind(&mut self, found: &Found, now: Instant) {
        let (Some(keys), Some(keyed)) = (self.lane.keys(), self.keyed.as_mut()) else { return };
        let is_parked =
            |key: &Key| keys.parked(key).is_some_and(|parked| parked.state == ParkedState::Parked);
        let parked: BTreeSet<Offset> =
            found.held.iter().filter(|(_, key, _)| is_parked(key)).map(|(offset, ..)| *offset).collect();
        if parked.is_empty() {
            return;
        }
        keyed.behind_since.get_or_insert(now);
        for message in found.pieces.iter().flat_map(Piece::messages) {
            if parked.contains(&message.offset) {
                keyed.behind_bytes += message.bytes();
                keyed.behind.insert(message.offset, message.clone());
            }
        }
    }

    /// Nothing of what was found goes out: it waits.
    pub fn on_all_held(&mut self, picked: Picked, now: Instant) {
        let Some(found) = picked.found else { return };
        self.keep_behind(&found, now);
        self.lane.on_sent_by_key(std::iter::empty(), found.held.into_iter(), found.end, now);
    }

    /// Begins another round if these cannot be sent in this one.
    pub fn turn_back(&mut self, pieces: &[Piece]) {
        let Some(first) = pieces.first().map(Piece::first) else { return };
        let round = self.lane.round;
        if self.lane.turn_back(first) {
            self.put_log_away(round);
        }
    }

    fn put_log_away(&mut self, round: u32) {
        let log = std::mem::take(&mut self.log);
        if let Some(keyed) = &mut self.keyed {
            keyed.logs.insert(round, log);
            while keyed.logs.len() > LANE_ROUNDS_REMEMBERED {
                keyed.logs.pop_first();
            }
        }
    }

    /// These go to the session.
    pub fn on_sent(&mut self, picked: Picked, now: Instant) -> Vec<Piece> {
        let Picked { pieces, found } = picked;
        let last = pieces.last().map_or(Offset::ZERO, Piece::end);
        if self.lane.keys().is_none() {
            self.lane.on_sent(last, now);
            return pieces;
        }
        if let Some(found) = &found {
            self.keep_behind(found, now);
        }
        let messages = pieces.iter().flat_map(Piece::messages);
        let sent = messages.map(|message| (message.offset, Key::of(message.key.as_ref(), message.offset)));
        // What waited, or was copied aside, does not tell how far the lane has looked.
        let first = pieces.first().map_or(Offset::ZERO, Piece::first);
        let is_new = self.lane.keys().is_some_and(|keys| !keys.is_ready(first));
        let end = found.as_ref().map(|found| found.end).or(is_new.then_some(last)).unwrap_or(Offset::ZERO);
        let held = found.into_iter().flat_map(|found| found.held);
        self.lane.on_sent_by_key(sent, held, end, now);
        pieces
    }
}
