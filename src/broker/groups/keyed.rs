//! Lanes whose order is kept by key, with what they need of the tables: which messages go out, what is copied aside, what comes back.
//!
//! The rules are those of the lane; here they meet messages, sockets and settlements. Everything that is written down about parked
//! keys is a settlement of the lane, one at a time, with the commit that moves past what is copied.
//! Order: copies that are done leave the tables before an ack of them is confirmed.

mod picking;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use laneway_client::ErrorCode;
use laneway_client::wire::{BrokerFrame, ErrorFrame, Nack};

use super::copies::Unread;
use super::effects::{GiveUp, How, Settling};
use super::held::Held;
use super::lane::Gate;
use super::lane::keys::{Key, Keys, Parked, ParkedState, Reach};
use super::task::GroupTask;
pub(super) use picking::Picked;

use crate::broker::outbox::WriteLog;
use crate::broker::slab::Slab;
use crate::ids::{Offset, PartitionId, SessionId};
use crate::limits::{LANE_UNDONE_MAX, PARK_BATCH_BYTES, PARK_BATCH_MESSAGES, PARK_PAUSE};
use crate::store::lanes::{ResumeAt, Settled, Settlement};
use crate::store::messages::Message;
use crate::store::parked::{ParkKey, ParkMessage, Parking};

/// What a lane has at hand if its order is kept by key.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    /// Released copies that are not done.
    pub(super) copies: BTreeMap<Offset, Arc<Slab>>,
    pub(super) copied_bytes: u64,
    /// Messages that stand behind parked keys, until they are copied aside.
    behind: BTreeMap<Offset, Message>,
    behind_bytes: u64,
    behind_since: Option<Instant>,
    pub(super) unread: Unread,
    /// Nacks that came while something was written down: they count then.
    nacks: VecDeque<(SessionId, Nack)>,
    /// When what was sent in earlier rounds was written.
    logs: BTreeMap<u32, Arc<WriteLog>>,
}

/// The keys of a lane that was just acquired.
pub(super) fn keys_of(at: &ResumeAt) -> Keys {
    let mut keys = Keys::default();
    for known in &at.parked {
        let state = match known.released {
            true => ParkedState::Released { known_to: Offset::ZERO },
            false => ParkedState::Parked,
        };
        let key = Key::of(known.key.as_ref(), known.parked_offset);
        keys.on_known(key, Parked { offset: known.parked_offset, state });
    }
    keys
}

impl Held {
    /// When a message in flight was written to the socket; `None`: it waits in the outbox.
    pub(super) fn written_at(&self, offset: Offset) -> Option<Instant> {
        let round = self.lane.keys().and_then(|keys| Some(keys.entry(offset)?.last_round()));
        match round.filter(|round| *round != self.lane.round) {
            None => self.log.written_at(offset),
            Some(round) => match self.keyed.as_ref().and_then(|keyed| keyed.logs.get(&round)) {
                Some(log) => log.written_at(offset),
                None => Some(self.lane.oldest_since()), // so long ago that nobody remembers when
            },
        }
    }

    /// Whether a session that has missed a deadline has acknowledged something since: then one message is at fault, not all of it.
    pub(super) fn acks_others(&self) -> bool {
        let acked_at = self.lane.keys().and_then(Keys::acked_at);
        acked_at.is_some_and(|acked_at| acked_at > self.lane.oldest_since())
    }

    /// Keeps a nack until what is being written down is written. False: it comes too often.
    pub(super) fn keep_nack(&mut self, session_id: SessionId, nack: Nack) -> bool {
        let Some(keyed) = &mut self.keyed else { return false };
        let is_new = !keyed.nacks.iter().any(|(_, other)| other.offset == nack.offset);
        if is_new {
            keyed.nacks.push_back((session_id, nack));
        }
        is_new
    }

    /// The next nack that was kept, if it may count now.
    fn next_nack(&mut self) -> Option<(SessionId, Nack)> {
        let may_count = self.lane.gate != Gate::Settling && !self.releasing;
        self.keyed.as_mut().filter(|_| may_count)?.nacks.pop_front()
    }

    /// The requests among the nacks that are still kept.
    pub(super) fn kept_nacks(&self) -> impl Iterator<Item = u64> {
        let nacks = self.keyed.iter().flat_map(|keyed| &keyed.nacks);
        nacks.filter_map(|(_, nack)| nack.id)
    }

    /// When what stands behind parked keys is copied aside at the latest.
    pub(super) fn park_at(&self) -> Option<Instant> {
        let keyed = self.keyed.as_ref().filter(|_| self.lane.gate == Gate::Open)?;
        let since = keyed.behind_since?;
        let is_full = keyed.behind.len() >= PARK_BATCH_MESSAGES || keyed.behind_bytes >= PARK_BATCH_BYTES;
        Some(if is_full { since } else { since + PARK_PAUSE })
    }

    /// What has to be written down about parked keys now.
    fn parking(&mut self, now: Instant) -> Option<Wanted> {
        let is_due = self.park_at().is_some_and(|moment| moment <= now);
        let keys = self.lane.keys()?;
        let is_pressed = keys.undone() >= LANE_UNDONE_MAX / 2 && keys.behind() > 0;
        let done = keys.done_copies();
        // What a step is about to acknowledge is done, or stands behind its key again.
        let is_free = |offset: Offset| !self.reserves(offset, offset.plus(1));
        let behind = match (is_pressed, is_due) {
            (true, _) => keys.next_behind(PARK_BATCH_MESSAGES, Reach::Released, is_free),
            (false, true) => keys.next_behind(PARK_BATCH_MESSAGES, Reach::Parked, is_free),
            (false, false) => Vec::new(),
        };
        let keyed = self.keyed.as_mut()?;
        if is_due && behind.is_empty() {
            keyed.behind_since = None;
        }
        if done.is_empty() && behind.is_empty() {
            return None;
        }
        let messages = behind.iter().map(|(offset, _)| keyed.behind.remove(offset)).collect();
        keyed.behind_bytes = keyed.behind.values().map(Message::bytes).sum();
        Some(Wanted { done, behind, messages })
    }

    /// A message was copied aside with its key.
    pub(super) fn on_parked(&mut self, offset: Offset, now: Instant) {
        self.lane.on_parked(offset, now);
        self.look_behind(now);
        self.drop_copies();
    }

    /// Looks at what stands behind parked keys again, after a while.
    pub(super) fn look_behind(&mut self, now: Instant) {
        let stands_behind = self.lane.keys().is_some_and(|keys| keys.behind() > 0);
        if let Some(keyed) = self.keyed.as_mut().filter(|_| stands_behind) {
            keyed.behind_since.get_or_insert(now);
        }
    }

    /// A message fails for good: what is to be done with it, and under which name its key is parked.
    pub(super) fn give_up(&self, offset: Offset, attempts: u32, reason: String, how: How) -> GiveUp {
        let slab = self.keyed.as_ref().and_then(|keyed| keyed.copies.get(&offset));
        let message =
            slab.and_then(|slab| Slab::piece(slab, offset, 1, u64::MAX).messages().first().cloned());
        GiveUp { offset, attempts, reason, message, how }
    }

    /// The name under which the key of a message is parked.
    pub(super) fn parked_offset(&self, offset: Offset) -> Offset {
        let keys = self.lane.keys();
        let parked = keys.and_then(|keys| keys.parked(&keys.entry(offset)?.key));
        parked.map_or(offset, |parked| parked.offset)
    }

    /// A release takes along which copies are done.
    pub(super) fn add_done_copies(&self, settlement: &mut Settlement) {
        let done = self.lane.keys().map(Keys::done_copies).unwrap_or_default();
        if !done.is_empty() {
            settlement.parking.get_or_insert_default().done.extend(done);
        }
    }

    /// Drops messages that are not needed any more: copies that are done, and what does not stand behind a parked key any more.
    pub(super) fn drop_copies(&mut self) {
        let (Some(keys), Some(keyed)) = (self.lane.keys(), self.keyed.as_mut()) else { return };
        keyed.copies.retain(|offset, _| keys.copy_attempts(*offset).is_some());
        keyed.copied_bytes = keyed.copies.values().map(|slab| slab.bytes() as u64).sum();
        keyed.behind.retain(|offset, _| keys.is_behind(*offset));
        keyed.behind_bytes = keyed.behind.values().map(Message::bytes).sum();
    }
}

/// What is to be written down about parked keys.
struct Wanted {
    done: Vec<Offset>,
    /// Each with the name of its key.
    behind: Vec<(Offset, Offset)>,
    /// The messages themselves, as far as they are at hand.
    messages: Vec<Option<Message>>,
}

/// A settlement about parked keys, in the memory of the one that waits for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parks {
    pub done: Vec<Offset>,
    pub behind: Vec<Offset>,
    pub freed: Option<Offset>,
}

impl GroupTask {
    /// Writes down what has to be about parked keys, and reads what is released. True: the lane waits for it.
    pub(super) fn settle_keys(&mut self, partition_id: PartitionId, now: Instant) -> bool {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return false };
        if held.keyed.is_none() || held.releasing || held.lane.gate != Gate::Open {
            return false;
        }
        let wanted = held.parking(now);
        let names = wanted.iter().flat_map(|wanted| &wanted.behind).map(|(_, parked_offset)| *parked_offset);
        held.overtake_read(names);
        // Order: nothing is read while more is copied behind it.
        if wanted.as_ref().is_none_or(|wanted| wanted.behind.is_empty()) {
            self.read_keys(partition_id, now);
        }
        let Some(Wanted { done, behind, messages }) = wanted else { return false };
        let Some(held) = self.lanes.get_mut(&partition_id) else { return false };
        let offsets: Vec<Offset> = behind.iter().map(|(offset, _)| *offset).collect();
        let ranges = offsets.iter().map(|offset| (*offset, offset.plus(1)));
        let commit = Some(held.lane.commit_without_ranges(ranges));
        held.lane.gate = Gate::Settling;
        let behind = behind.into_iter().zip(messages).map(|((offset, parked_offset), message)| GiveUp {
            offset,
            attempts: 0,
            reason: BEHIND.to_owned(),
            message,
            how: How::Behind { parked_offset },
        });
        let parking = Some(Box::new(Parking { done: done.clone(), ..Parking::default() }));
        let settlement = Settlement { commit, parking, ..Settlement::default() };
        let parks = Parks { done, behind: offsets, freed: None };
        self.effects.settle(held.fence, settlement, behind.collect(), Settling::Parks(parks));
        true
    }

    /// What was written down about parked keys is.
    pub(super) fn on_parks(
        &mut self,
        partition_id: PartitionId,
        parks: &Parks,
        result: Settled,
        now: Instant,
    ) {
        let metrics = self.surroundings.metrics.clone();
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        held.lane.on_behind_parked(&parks.behind, now);
        metrics.on_parked(parks.behind.len());
        let Some(keys) = held.lane.keys_mut() else { return };
        keys.on_copies_removed(&parks.done);
        match (parks.freed, result) {
            (Some(parked_offset), Settled::Done) => {
                keys.on_freed(parked_offset);
                keys.unblock(); // there is room for another one now
                tracing::info!(group.name = self.name, partition = held.number, %parked_offset, "parked key goes on");
            }
            (Some(parked_offset), Settled::KeyKept | Settled::LeaseLost) => {
                keys.on_kept(parked_offset);
                tracing::warn!(group.name = self.name, partition = held.number, %parked_offset, "parked key is read again: it has copies");
            }
            (None, Settled::Done | Settled::KeyKept | Settled::LeaseLost) => {}
        }
        if let Some(keyed) = held.keyed.as_mut() {
            keyed.behind_since = held.lane.keys().is_some_and(|keys| keys.behind() > 0).then_some(now);
        }
        held.drop_copies();
    }

    /// Nacks that were kept count now, until one of them is written down.
    pub(super) fn take_kept_nacks(&mut self, partition_id: PartitionId) {
        while let Some((session_id, nack)) = self.lanes.get_mut(&partition_id).and_then(Held::next_nack) {
            self.on_nack(session_id, nack);
        }
    }

    /// Keys that somebody has released.
    pub(super) fn on_released_keys(&mut self, released: &[(PartitionId, Offset)]) {
        for (partition_id, parked_offset) in released {
            let held = self.lanes.get_mut(partition_id);
            if held.and_then(|held| held.lane.keys_mut()).is_some_and(|keys| keys.on_released(*parked_offset))
            {
                self.commit_if_dirty(*partition_id);
            }
        }
    }

    /// Tells a session that a key is blocked, because too many are parked.
    pub(super) fn tell_too_many_parked(&self, held: &Held) {
        tracing::warn!(
            group.name = self.name,
            partition = held.number,
            "too many keys are parked: one more is blocked"
        );
        let Some(member) = self.members.get(&held.fence.session_id) else { return };
        let Some(outbox) = &member.outbox else { return };
        let detail = "the lane has as many parked keys as it may: a key that fails is blocked until others are replayed or dropped";
        let mut frame = ErrorFrame::new(ErrorCode::TooManyParked, detail);
        frame.subscription = Some(member.subscription);
        frame.partition = Some(held.number);
        outbox.push(BrokerFrame::Error(Box::new(frame)));
    }
}

/// Why a message is parked that has not failed itself.
const BEHIND: &str = "its key is parked";

/// What a settlement writes down of a message that is given up or parked; `None`: retention was faster.
pub(super) fn parked(give_up: &GiveUp, message: Option<Message>) -> (Option<ParkKey>, Option<ParkMessage>) {
    let (key, parked_offset) = match &give_up.how {
        How::DeadLetter => return (None, None),
        How::Behind { parked_offset } => (None, *parked_offset),
        How::Park { parked_offset, key } => {
            (Some(ParkKey { parked_offset: *parked_offset, key: key.clone() }), *parked_offset)
        }
    };
    let message = message.map(|message| ParkMessage {
        message,
        parked_offset,
        attempts: give_up.attempts,
        reason: give_up.reason.clone(),
    });
    (key, message)
}
