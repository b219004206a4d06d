//! Lanes of a group that keeps order by key: what a failure makes void is its key alone, and acks are told one by one.
//!
//! Messages of several rounds are in work at once. One that comes again in a newer round, and those of its key behind it, replace
//! what came before; everything else stays as it is.

use bytes::Bytes;

use super::{Inbox, Lane, Place};
use crate::wire::Record;

/// What a lane remembers if its order is kept by key.
#[derive(Debug)]
pub(super) struct Keyed {
    /// What came in rounds before this one comes again.
    floor: u32,
    /// The highest offset that has come: only what is not above it can be a copy.
    highest: i64,
}

impl Keyed {
    pub fn new(round: u32) -> Self {
        Self { floor: round, highest: -1 }
    }
}

impl<C> Lane<C> {
    /// The session was taken up again: everything that is not done comes again.
    pub(super) fn on_key_round(&mut self, round: u32) {
        if let Some(keyed) = &mut self.keyed {
            keyed.floor = round;
        }
    }

    /// Whether a message is to be worked on, if order is kept by key.
    pub(super) fn counts_by_key(&self, place: Place) -> Option<bool> {
        let keyed = self.keyed.as_ref()?;
        let is_open = self.books.get(&place.round).is_some_and(|book| book.is_open(place.offset));
        Some(place.round >= keyed.floor && is_open)
    }

    /// Makes what has come of a key from an offset on void, up to a round.
    fn void_key(&mut self, key: Option<&Bytes>, offset: i64, round: u32) {
        for (_, book) in self.books.range_mut(..=round) {
            book.void(key, offset);
        }
        let current = self.round;
        self.books.retain(|round, book| *round == current || !book.is_empty());
    }
}

impl<C> Inbox<C> {
    /// A message comes that may have come before: then it, and what came of its key behind it, is replaced.
    pub(super) fn replace(&mut self, place: Place, record: &Record) {
        let Some(lane) = self.lanes.get_mut(&place.partition).filter(|lane| lane.epoch == place.epoch) else {
            return;
        };
        let Some(keyed) = &mut lane.keyed else { return };
        if place.offset > keyed.highest {
            keyed.highest = place.offset;
            return;
        }
        lane.void_key(record.key.as_ref(), place.offset, place.round.saturating_sub(1));
        self.drop_key(place, record.key.clone(), place.round);
    }

    /// A message failed: its key is void from there on.
    pub(super) fn void_key(&mut self, place: Place, key: Option<Bytes>) {
        let Some(lane) = self.lanes.get_mut(&place.partition) else { return };
        let round = lane.round;
        lane.void_key(key.as_ref(), place.offset, round);
        self.drop_key(place, key, round + 1);
    }

    /// Drops what is queued of a key, from an offset on, of rounds before one.
    fn drop_key(&mut self, place: Place, key: Option<Bytes>, before: u32) {
        self.drop_queued(|queued| {
            let is_same = match &key {
                Some(key) => queued.record.key.as_ref() == Some(key),
                None => queued.place.offset == place.offset,
            };
            is_same
                && queued.place.partition == place.partition
                && queued.place.round < before
                && queued.place.offset >= place.offset
        });
    }
}
