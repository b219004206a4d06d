//! Copies of released keys: read one key at a time, and delivered in the place of what stands in the stream.
//!
//! A key whose next copy does not open stops, and no other: it is set aside, its session is told once, and it is looked at again
//! after a while, because only an operator can change it. What can be read before such a copy is delivered.
//! Invariant: a released key is freed only when nothing of it is left in the tables.
//! Invariant: what was read counts only if nothing was copied aside behind the same key meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::deliver::tell_sealed;
use super::effects::{Effects, Event, Settling};
use super::held::Held;
use super::keyed::Parks;
use super::lane::Gate;
use super::lane::keys::Keys;
use super::task::GroupTask;
use crate::broker::keys::unopened;
use crate::broker::slab::Slab;
use crate::ids::{Epoch, Offset, PartitionId};
use crate::limits::{
    COMMIT_RETRY_PAUSE, COPIES_HELD_BYTES_MAX, COPIES_HELD_MAX, COPIES_READ_BYTES, COPIES_READ_MAX,
    SEALED_RETRY_PAUSE,
};
use crate::store::Error;
use crate::store::lanes::{Fence, Settlement};
use crate::store::parked::{Copies, Copy, Parking};

/// What of the released keys of a lane is read, and what has to wait.
#[derive(Debug, Default)]
pub(super) struct Unread {
    reading: Reading,
    /// A read has failed and is not tried before this moment.
    retry_at: Option<Instant>,
    /// Keys whose next copy does not open, by name.
    sealed: BTreeMap<Offset, Sealed>,
}

/// Whether copies of a released key are being read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reading {
    #[default]
    None,
    /// Those of the key of this name, from this copy on.
    UnderWay { parked_offset: Offset, from: Offset },
    /// More of the key has been copied aside meanwhile: nobody knows whether the read has seen it, so it does not count.
    Overtaken,
}

/// A released key whose next copy does not open.
#[derive(Debug)]
struct Sealed {
    /// Where that was found.
    at: Offset,
    /// When it is looked at again.
    until: Instant,
}

impl Unread {
    /// A copy does not open. True: that is new.
    fn on_sealed(&mut self, parked_offset: Offset, at: Offset, now: Instant) -> bool {
        let sealed = Sealed { at, until: now + SEALED_RETRY_PAUSE };
        self.sealed.insert(parked_offset, sealed).is_none_or(|before| before.at != at)
    }

    /// When the next thing that waits is looked at again.
    pub(super) fn next_moment(&self, now: Instant) -> Option<Instant> {
        let sealed = self.sealed.values().map(|sealed| sealed.until);
        // What is past already is looked at when the read ends that is under way.
        sealed.chain(self.retry_at).filter(|moment| *moment > now).min()
    }
}

impl Held {
    /// The released key that is read now, from which copy on, and how much of it; none, while one is being read.
    pub(super) fn begin_read(&mut self, now: Instant) -> Option<((Offset, Offset), (i64, i64))> {
        let keyed = self.keyed.as_mut()?;
        let unread = &keyed.unread;
        let may_read = unread.reading == Reading::None && unread.retry_at.is_none_or(|moment| moment <= now);
        let messages = COPIES_HELD_MAX.saturating_sub(keyed.copies.len());
        let bytes = COPIES_HELD_BYTES_MAX.saturating_sub(keyed.copied_bytes);
        if !may_read || self.lane.gate != Gate::Open || self.releasing || messages == 0 || bytes == 0 {
            return None;
        }
        let waits = |name: &Offset| unread.sealed.get(name).is_some_and(|sealed| sealed.until > now);
        let (parked_offset, from) = self.lane.next_copies(waits)?;
        keyed.unread.reading = Reading::UnderWay { parked_offset, from };
        keyed.unread.retry_at = None;
        let limit = (COPIES_READ_MAX.min(messages as i64), COPIES_READ_BYTES.min(bytes as i64));
        Some(((parked_offset, from), limit))
    }

    /// More of these keys is copied aside: what is being read of them may have been read before or after it.
    pub(super) fn overtake_read(&mut self, parked_offsets: impl IntoIterator<Item = Offset>) {
        let Some(keyed) = &mut self.keyed else { return };
        if let Reading::UnderWay { parked_offset: name, .. } = keyed.unread.reading
            && parked_offsets.into_iter().any(|parked_offset| parked_offset == name)
        {
            keyed.unread.reading = Reading::Overtaken;
        }
    }

    /// What was read is here. Returns from which copy on; none: it does not count.
    pub(super) fn end_read(&mut self) -> Option<Offset> {
        match std::mem::take(&mut self.keyed.as_mut()?.unread.reading) {
            Reading::UnderWay { from, .. } => Some(from),
            Reading::None | Reading::Overtaken => None,
        }
    }

    /// A key that was taken for released is parked. What has come for it meanwhile waits to be copied aside, too.
    pub(super) fn on_not_released(&mut self, parked_offset: Offset, now: Instant) {
        if let Some(keys) = self.lane.keys_mut() {
            keys.on_not_released(parked_offset);
        }
        self.look_behind(now);
    }

    /// Copies of a released key were read.
    pub(super) fn take_copies(&mut self, parked_offset: Offset, copies: Vec<Copy>, now: Instant) {
        let known = |copy: &Copy| {
            let retry_at = (!copy.retry_in.is_zero()).then(|| now + copy.retry_in);
            (copy.message.offset, copy.attempts, retry_at)
        };
        let known: Vec<(Offset, u32, Option<Instant>)> = copies.iter().map(known).collect();
        self.lane.on_copies(parked_offset, &known);
        let Some(keyed) = &mut self.keyed else { return };
        for copy in copies {
            let offset = copy.message.offset;
            keyed.copies.extend(Slab::new(vec![copy.message]).map(|slab| (offset, Arc::new(slab))));
        }
        self.look_behind(now);
        self.drop_copies();
    }
}

impl Effects {
    /// Reads copies of a released key.
    fn read_copies(&self, fence: Fence, (parked_offset, from): (Offset, Offset), limit: (i64, i64)) {
        let (store, reader) = (self.surroundings.store.clone(), self.surroundings.reader.clone());
        self.spawn(async move {
            let read = async {
                let mut copies = store.parked_messages_read(&fence, parked_offset, from, limit).await?;
                if let Copies::Some(copies) = &mut copies {
                    for copy in copies {
                        reader.name_causes(std::slice::from_mut(&mut copy.message)).await?;
                    }
                }
                Ok(copies)
            };
            let Fence { partition_id, epoch, .. } = fence;
            Event::Copies { partition_id, epoch, parked_offset, result: read.await }
        });
    }
}

impl GroupTask {
    /// Reads what is released, unless it is being read.
    pub(super) fn read_keys(&mut self, partition_id: PartitionId, now: Instant) {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        if let Some((unread, limit)) = held.begin_read(now) {
            self.effects.read_copies(held.fence, unread, limit);
        }
    }

    /// Copies of a released key, or that none is left.
    pub(super) fn on_copies(
        &mut self,
        partition_id: PartitionId,
        epoch: Epoch,
        parked_offset: Offset,
        result: Result<Copies, Error>,
    ) {
        let now = Instant::now();
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence.epoch == epoch) else {
            return;
        };
        let is_open = held.lane.gate == Gate::Open && !held.releasing;
        let was_at = held.end_read();
        let Some(keyed) = held.keyed.as_mut() else { return };
        if result.is_ok() {
            keyed.unread.sealed.remove(&parked_offset);
        }
        match result {
            Ok(_) if was_at.is_none() => {} // it is read again
            Ok(Copies::Some(copies)) => held.take_copies(parked_offset, copies, now),
            // What is being written down may put something there: then it is read again.
            Ok(Copies::None) if is_open => {
                return self.free_key(partition_id, parked_offset);
            }
            Ok(Copies::None) => {}
            Ok(Copies::NotReleased) => held.on_not_released(parked_offset, now),
            Err(error) => match unopened(&error).zip(was_at) {
                // The keys beside it are read all the same.
                Some((code, at)) => {
                    if keyed.unread.on_sealed(parked_offset, at, now) {
                        let (group, partition) = (&self.name, held.number);
                        tracing::warn!(group.name = group, partition, %parked_offset, code = code.as_str(), %error, "a parked key stops at a copy that does not open");
                        tell_sealed(held, self.members.get(&held.fence.session_id), code, &error);
                    }
                }
                None => {
                    tracing::debug!(%error, "parked messages are read later");
                    keyed.unread.retry_at = Some(now + COMMIT_RETRY_PAUSE);
                }
            },
        }
        self.commit_if_dirty(partition_id);
        self.pump_lane(partition_id);
        self.set_timer(partition_id);
    }

    /// Nothing of a key is left in the tables.
    fn free_key(&mut self, partition_id: PartitionId, parked_offset: Offset) {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        let done = held.lane.keys().map(Keys::done_copies).unwrap_or_default();
        let parking = Parking { done: done.clone(), freed: vec![parked_offset], ..Parking::default() };
        let commit = Some(held.lane.next_commit());
        held.lane.gate = Gate::Settling;
        let settlement = Settlement { commit, parking: Some(Box::new(parking)), ..Settlement::default() };
        let parks = Parks { done, behind: Vec::new(), freed: Some(parked_offset) };
        self.effects.settle(held.fence, settlement, Vec::new(), Settling::Parks(parks));
    }
}
