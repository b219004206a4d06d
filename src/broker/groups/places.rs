//! The places of lanes among those that wait for the credit of their subscription: whose turn it is, and how much of it goes out.
//!
//! The purse decides; here a lane finds out since when its next message waits, and what of it fits.

use std::sync::Arc;

use super::credit::Room;
use super::deliver::Turn;
use super::held::Held;
use super::purse::{Place, PublishedAt, Purse, Reach};
use crate::broker::hot_tail::{Found, HotTails, Wake};
use crate::broker::slab::{Piece, Slab};
use crate::ids::Offset;
use crate::store::messages::Message;

impl Held {
    /// Lists itself among those that wait for credit, unless it has nothing to send.
    pub(super) fn queue(
        &mut self,
        purse: &Arc<Purse>,
        tails: &HotTails,
        wake: &Arc<Wake>,
        from: Offset,
    ) -> Turn {
        if self.place.as_ref().is_some_and(Place::is_listed) {
            return Turn::Queued;
        }
        let Some(head) = self.head(tails, from) else { return Turn::Waits };
        purse.wait(&mut self.place, head, self.fence.partition_id, wake);
        Turn::Queued
    }

    /// When its next message was published, as far as is known; `None`: there is none, or it is on its way.
    fn head(&self, tails: &HotTails, from: Offset) -> Option<PublishedAt> {
        if let Some(slab) = self.fetched.as_ref().filter(|slab| slab.first() <= from && from < slab.end()) {
            return Slab::piece(slab, from, 1, u64::MAX).messages().first().map(published_at);
        }
        match tails.find(self.fence.partition_id, from, 1, u64::MAX) {
            Found::Pieces(pieces) => pieces.iter().flat_map(Piece::messages).next().map(published_at),
            Found::AtEnd => None,
            Found::Behind if self.fetching || self.dry_at == Some(from) || self.retry_at.is_some() => None,
            Found::Behind => Some(self.sent_at),
        }
    }

    /// While it is read for, a lane that had to wait for its turn keeps it: over several topics, because they are in order of
    /// age; in one, if it was read for in vain before.
    pub(super) fn keeps_place(&mut self, purse: &Arc<Purse>, wake: &Arc<Wake>) -> Turn {
        let keeps = match purse.reach() {
            Reach::Selection => true,
            Reach::Topic => self.reread,
        };
        match &self.place {
            Some(place) if keeps && place.is_listed() => Turn::Queued,
            Some(_) if keeps => {
                purse.wait(&mut self.place, self.sent_at, self.fence.partition_id, wake);
                Turn::Queued
            }
            Some(_) | None => Turn::Waits,
        }
    }
}

pub(super) fn published_at(message: &Message) -> PublishedAt {
    message.published_at.as_microsecond()
}

/// When the last of some messages was published.
pub(super) fn newest(pieces: &[Piece]) -> Option<PublishedAt> {
    pieces.last()?.messages().last().map(published_at)
}

/// The first of some messages: as many as there is room for, and only those that are as old as others that wait. Never none.
pub(super) fn up_to(mut pieces: Vec<Piece>, room: Room, until: PublishedAt) -> Vec<Piece> {
    let found: usize = pieces.iter().map(Piece::len).sum();
    let bytes: u64 = pieces.iter().map(Piece::bytes).sum();
    if until == PublishedAt::MAX && found <= room.messages && bytes <= room.bytes {
        return pieces; // nobody waits
    }
    let mut bytes = room.bytes;
    let fits = pieces.iter().flat_map(Piece::messages).take(room.messages).take_while(|message| {
        let has_room = bytes > 0;
        bytes = bytes.saturating_sub(message.bytes());
        has_room && published_at(message) <= until
    });
    let mut left = fits.count().max(1);
    pieces.retain_mut(|piece| {
        let many = piece.len().min(left);
        left -= many;
        if many > 0 && many < piece.len() {
            *piece = piece.cut(piece.first(), piece.first().plus(many as i64));
        }
        many > 0
    });
    pieces
}
