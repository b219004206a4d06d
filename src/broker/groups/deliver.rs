//! Feeding lanes: from the hot tail, or from the segments when behind; within credit, within the outbox, in order.
//!
//! One batch per lane and turn, so that the lanes of a session share its credit. A lane that cannot send waits for what it
//! lacks (growth, credit, room, a moment), and nobody waits for it.

use std::sync::Arc;
use std::time::Instant;

use laneway_client::ErrorCode;
use laneway_client::wire::record::BatchHeader;
use laneway_client::wire::{BrokerFrame, ErrorFrame};

use super::Surroundings;
use super::evict::{Line, Looked};
use super::held::Held;
use super::keyed::Picked;
use super::lane::{Gate, Sendable};
use super::places::{newest, published_at, up_to};
use super::ranges::Ranges;
use super::task::{GroupTask, Look, Member};
use crate::broker::hot_tail::{Found, HotTails};
use crate::broker::keys::unopened;
use crate::broker::outbox::Outbox;
use crate::broker::reader::ReadError;
use crate::broker::slab::{Piece, Slab};
use crate::ids::{Epoch, Offset, PartitionId, SessionId};
use crate::limits::{COMMIT_RETRY_PAUSE, FETCHED_BYTES_KEPT, SEALED_RETRY_PAUSE, STEP_COMMIT_PAUSE};
use crate::store::Error;
use crate::store::management::Running;
use crate::store::messages::Message;
use crate::store::windows::Windows;

/// Turns of lanes that take the credit of one session from each other, before the loop looks at something else.
const TURNS_MAX: usize = 64;

/// Whether a lane has sent a batch, and so may send another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Sent,
    /// It lacks something that comes by itself.
    Waits,
    /// It has a place among those that wait for credit.
    Queued,
}

/// What a lane finds at its cursor.
enum Source {
    Pieces(Vec<Piece>),
    /// Messages of a parked key that is released.
    Copies(Vec<Piece>),
    /// Nothing there yet.
    Dry,
    /// It has to be read from the segments.
    Behind,
}

impl GroupTask {
    /// Partitions have grown.
    pub(super) fn on_grown(&mut self) {
        for _ in 0..TURNS_MAX {
            let grown = self.wake.take();
            if grown.is_empty() {
                return;
            }
            for partition_id in grown {
                if let Some(held) = self.lanes.get_mut(&partition_id) {
                    held.dry_at = None;
                    self.pump_lane(partition_id);
                }
            }
        }
    }

    pub(super) fn on_credit(&mut self, session_id: SessionId, messages: u32, bytes: u64) {
        let Some(member) = self.members.get_mut(&session_id) else { return };
        if let Err(error) = member.purse.add(messages, bytes) {
            let mut frame = ErrorFrame::new(ErrorCode::InvalidCredit, error.to_string());
            frame.subscription = Some(member.subscription);
            if let Some(outbox) = &member.outbox {
                outbox.push(BrokerFrame::Error(Box::new(frame)));
            }
        }
    }

    pub(super) fn pump_all(&mut self) {
        let sessions: Vec<SessionId> = self.members.keys().copied().collect();
        sessions.into_iter().for_each(|session_id| self.pump_member(session_id));
    }

    /// Tries those again whose outbox was full.
    pub(super) fn pump_stalled(&mut self) {
        for session_id in std::mem::take(&mut self.stalled) {
            self.pump_member(session_id);
        }
    }

    /// Sends what all lanes of a session can send, one batch each in turn.
    pub(super) fn pump_member(&mut self, session_id: SessionId) {
        let Some(member) = self.members.get(&session_id) else { return };
        let mut lanes: Vec<PartitionId> = member.lanes.iter().copied().collect();
        while !lanes.is_empty() {
            lanes.retain(|partition_id| self.send_batch(*partition_id) == Turn::Sent);
        }
    }

    /// Sends what one lane can send.
    pub(super) fn pump_lane(&mut self, partition_id: PartitionId) {
        while self.send_batch(partition_id) == Turn::Sent {}
    }

    fn send_batch(&mut self, partition_id: PartitionId) -> Turn {
        let now = Instant::now();
        let turn = match self.running {
            Running::Resumed => self.try_send(partition_id, now),
            Running::Paused => Turn::Waits,
        };
        if let Some(held) = self.lanes.get_mut(&partition_id).filter(|_| turn == Turn::Waits) {
            held.place = None; // others may go first
        }
        if turn != Turn::Sent {
            self.read_keys(partition_id, now); // of what is released, as far as the lane has looked by now
        }
        self.set_timer(partition_id);
        turn
    }

    fn try_send(&mut self, partition_id: PartitionId, now: Instant) -> Turn {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return Turn::Waits };
        let Some(member) = self.members.get_mut(&held.fence.session_id) else { return Turn::Waits };
        let (Some(outbox), false, None) = (&member.outbox, held.releasing, held.drain_until) else {
            return Turn::Waits;
        };
        let Some(sendable) = held.lane.sendable(now) else {
            tell_bounds(held, member.subscription, outbox);
            return Turn::Waits;
        };
        held.told_bound = false;
        if held.window.holds(sendable.from, now) {
            return Turn::Waits;
        }
        let metrics = &self.surroundings.metrics;
        let Some(room) = member.purse.room() else {
            metrics.credit_stalls.inc();
            return held.queue(&member.purse, &self.surroundings.tails, &self.wake, sendable.from);
        };
        if !outbox.has_room() {
            metrics.outbox_stalls.inc();
            self.stalled.insert(held.fence.session_id);
            return held.queue(&member.purse, &self.surroundings.tails, &self.wake, sendable.from);
        }
        if !self.surroundings.lease.is_trusted() {
            self.distrusted = true;
            return Turn::Waits;
        }
        let messages = sendable.messages.min(room.messages).min(member.batch.max_messages);
        let bytes = room.bytes.min(member.batch.max_bytes);
        let picked = match source(held, &self.surroundings.tails, sendable, messages, bytes) {
            Source::Pieces(pieces) => {
                let pieces = without_done(pieces, held.lane.acked());
                match held.choose(&self.group.settings.windows, &self.surroundings, pieces, now) {
                    Chosen::Some(picked) => picked,
                    Chosen::Held => return Turn::Sent, // what comes after it may go
                    Chosen::Waits => return Turn::Waits,
                    Chosen::Look(look) => {
                        self.effects.look(held.fence, look);
                        return Turn::Waits;
                    }
                }
            }
            Source::Copies(pieces) => Picked::all(pieces),
            Source::Dry if held.fetching => return held.keeps_place(&member.purse, &self.wake),
            Source::Dry => return Turn::Waits,
            Source::Behind => {
                metrics.catch_up_reads.inc();
                held.fetching = true;
                let room = held.room_to_read(room.with_messages(sendable.messages), now);
                self.effects.fetch(partition_id, held.fence.epoch, sendable.from, room);
                return held.keeps_place(&member.purse, &self.wake);
            }
        };
        let found = picked.len();
        if found < member.batch.min_messages.min(messages) && held.is_short(now, member.batch.max_wait) {
            return Turn::Waits;
        }
        self.draw(partition_id, picked, now)
    }

    /// Sends what there is credit for, unless another lane of the subscription has waited for longer.
    fn draw(&mut self, partition_id: PartitionId, mut picked: Picked, now: Instant) -> Turn {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return Turn::Waits };
        let Some(member) = self.members.get_mut(&held.fence.session_id) else { return Turn::Waits };
        let pieces = std::mem::take(&mut picked.pieces);
        let Some(head) = pieces.iter().flat_map(Piece::messages).next().map(published_at) else {
            return Turn::Waits;
        };
        let drawn = member.purse.draw(&mut held.place, head, |room, until| {
            let pieces = up_to(pieces, room, until);
            let (found, bytes) = (pieces.iter().map(Piece::len).sum(), pieces.iter().map(Piece::bytes).sum());
            let last = newest(&pieces).unwrap_or(head);
            (pieces, found, bytes, last)
        });
        let Some(pieces) = drawn else {
            member.purse.wait(&mut held.place, head, partition_id, &self.wake);
            return Turn::Queued;
        };
        held.sent_at = newest(&pieces).unwrap_or(head);
        picked.cut(pieces);
        self.send(partition_id, picked, now);
        Turn::Sent
    }

    /// Hands messages of a lane to its session; they are paid for.
    fn send(&mut self, partition_id: PartitionId, picked: Picked, now: Instant) {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        let Some(member) = self.members.get_mut(&held.fence.session_id) else { return };
        let Some(outbox) = &member.outbox else { return };
        let metrics = &self.surroundings.metrics;
        held.short_since = None;
        held.turn_back(&picked.pieces);
        let header = header(held, member.subscription, &picked.pieces);
        metrics.hot_tail_hits.inc_by(u64::from(held.fetched.is_none()));
        let times = picked.pieces.iter().flat_map(Piece::messages).map(|message| message.published_at);
        metrics.on_delivered(times, picked.pieces.iter().map(Piece::bytes).sum());
        held.departed(&self.surroundings.spans, &self.topic.name, &self.name, &picked.pieces);
        let pieces = held.on_sent(picked, now);
        outbox.push_batch(header, pieces, Some((held.log.clone(), member.purse.refund())));
    }

    /// Messages of a lane that was behind.
    pub(super) fn on_fetched(
        &mut self,
        partition_id: PartitionId,
        epoch: Epoch,
        from: Offset,
        result: Result<Vec<Message>, ReadError>,
    ) {
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence.epoch == epoch) else {
            return;
        };
        held.fetching = false;
        match result {
            Ok(messages) => {
                held.fetched = Slab::new(messages).map(Arc::new);
                held.reread = false;
                held.dry_at = held.fetched.is_none().then_some(from);
                self.pump_lane(partition_id);
                self.drop_unsent(partition_id);
            }
            // Retention has overtaken it: a new grant tells the client what is lost.
            Err(ReadError::OutOfRange { .. }) => self.release(partition_id, "retention"),
            Err(ReadError::UnknownPartition) => self.want(Look::List),
            Err(ReadError::Store(error)) => {
                let pause = match unopened(&error) {
                    Some(code) => {
                        if held.told_sealed != Some(from) {
                            held.told_sealed = Some(from);
                            tracing::warn!(partition = held.number, code = code.as_str(), %error, "a lane stops at a message that does not open");
                            tell_sealed(held, self.members.get(&held.fence.session_id), code, &error);
                        }
                        SEALED_RETRY_PAUSE
                    }
                    None => COMMIT_RETRY_PAUSE,
                };
                tracing::debug!(%error, "a lane is fed later");
                held.retry_at = Some(Instant::now() + pause);
                self.set_timer(partition_id);
            }
        }
    }

    /// What was read and could not be sent is read again later, unless it is little: a thousand lanes that wait for a slow
    /// client must not fill the memory.
    fn drop_unsent(&mut self, partition_id: PartitionId) {
        if let Some(held) = self.lanes.get_mut(&partition_id)
            && held.fetched.as_ref().is_some_and(|slab| slab.bytes() > FETCHED_BYTES_KEPT)
        {
            (held.fetched, held.reread) = (None, true);
        }
    }

    /// Something about a lane is due.
    pub(super) fn on_moment(&mut self, partition_id: PartitionId, now: Instant) {
        let ack_deadline = self.group.settings.ack_deadline;
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| !held.releasing) else { return };
        held.retry_at = held.retry_at.filter(|moment| *moment > now);
        held.window.due = held.window.due.filter(|(_, moment)| *moment > now);
        held.lane.open_gate(now);
        if held.drain_until.is_some_and(|until| until <= now) {
            return self.release(partition_id, "moved");
        }
        if held.overdue_at(ack_deadline, now).is_some_and(|moment| moment <= now) {
            if let Some(offset) = held.lane.oldest_in_flight().filter(|_| held.acks_others()) {
                return self.miss(partition_id, offset);
            }
            let session_id = held.fence.session_id;
            return self.crash(partition_id, "ack_deadline", Some(session_id));
        }
        self.commit_if_dirty(partition_id);
        self.pump_lane(partition_id);
        self.set_timer(partition_id);
    }

    /// Lists the lane under the next moment at which something about it may be due. A moment that proves too early is
    /// harmless, so it is only ever moved forward in time when it fires.
    pub(super) fn set_timer(&mut self, partition_id: PartitionId) {
        let (settings, now) = (&self.group.settings, Instant::now());
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        let max_wait = self.members.get(&held.fence.session_id).map(|member| member.batch.max_wait);
        let short = held.short_since.zip(max_wait).map(|(since, max_wait)| since + max_wait);
        let pause = if held.dirty_by_steps { STEP_COMMIT_PAUSE } else { COMMIT_RETRY_PAUSE };
        let commit = (held.lane.is_dirty() && !held.committing).then_some(now + pause);
        // While a failure of another key is written down, nobody judges this one.
        let is_settling = held.keyed.is_some() && held.lane.gate == Gate::Settling;
        let overdue = held.overdue_at(settings.ack_deadline, now).filter(|_| !is_settling);
        // What is past already waits for something else, and whatever that is, makes the lane try again.
        let future = |moment: Option<Instant>| moment.filter(|moment| *moment > now);
        let gate = future(held.lane.next_moment());
        // Not beside a commit: whoever is done with that looks again.
        let park = held.park_at().filter(|_| !held.committing);
        let due = held.window.due.map(|(_, moment)| moment); // may be past by now, and then it is due
        let copies = held.keyed.as_ref().and_then(|keyed| keyed.unread.next_moment(now));
        let moments =
            [gate, held.drain_until, future(short), commit, overdue, held.retry_at, due, park, copies];
        let Some(moment) = moments.into_iter().flatten().min() else { return };
        if held.timer.is_none_or(|listed| moment < listed) {
            if let Some(listed) = held.timer.replace(moment) {
                self.timers.remove(&(listed, partition_id));
            }
            self.timers.insert((moment, partition_id));
        }
    }
}

/// What of some messages goes out now.
enum Chosen {
    Some(Picked),
    /// Nothing: their keys have to wait.
    Held,
    Waits,
    Look(Looked),
}

impl Held {
    /// Which messages go out, as far as keys, delays, windows and ages let them.
    fn choose(
        &mut self,
        windows: &Windows,
        surroundings: &Surroundings,
        pieces: Vec<Piece>,
        now: Instant,
    ) -> Chosen {
        let mut picked = self.pick(pieces, now);
        if picked.is_all_held() {
            self.on_all_held(picked, now);
            return Chosen::Held;
        }
        let pieces = std::mem::take(&mut picked.pieces);
        match self.in_line(windows, surroundings, pieces, now) {
            Line::Due(pieces) => {
                picked.cut(pieces);
                Chosen::Some(picked)
            }
            Line::Waits => Chosen::Waits,
            Line::Look(look) => Chosen::Look(look),
        }
    }
}

/// What stands before messages of a lane.
fn header(held: &Held, subscription: u32, pieces: &[Piece]) -> BatchHeader {
    let ends = pieces.first().map(Piece::first).zip(pieces.last().map(Piece::end));
    let attempts = match (held.lane.keys(), ends) {
        (None, Some((first, last))) => held.lane.attempts_between(first, last),
        (Some(_), _) => {
            let offsets = pieces.iter().flat_map(Piece::messages).map(|message| message.offset);
            held.lane.attempts_of(offsets)
        }
        (None, None) => Vec::new(),
    };
    BatchHeader {
        subscription,
        partition: held.number,
        epoch: held.fence.epoch.0,
        round: held.lane.round,
        attempts,
    }
}

/// Tells a client, once, that its lane is at a bound: too many gaps, or too many messages that wait for their keys.
fn tell_bounds(held: &mut Held, subscription: u32, outbox: &Outbox) {
    let bound = match (held.lane.has_too_many_gaps(), held.lane.has_too_many_waiting()) {
        (true, _) => Some((
            ErrorCode::TooManyGaps,
            "too many single acks wait for messages before them: nothing more is sent until those are acknowledged",
        )),
        (false, true) => Some((
            ErrorCode::TooManyWaiting,
            "too many messages are in flight or wait for their keys: nothing new is sent until the oldest are done",
        )),
        (false, false) => None,
    };
    if let Some((code, detail)) = bound
        && !std::mem::replace(&mut held.told_bound, true)
    {
        let mut frame = ErrorFrame::new(code, detail);
        frame.subscription = Some(subscription);
        frame.partition = Some(held.number);
        outbox.push(BrokerFrame::Error(Box::new(frame)));
    }
}

/// Tells a client that its lane, or a parked key of it, stops at a message that does not open here.
pub(super) fn tell_sealed(held: &Held, member: Option<&Member>, code: ErrorCode, error: &Error) {
    let Some((member, outbox)) = member.and_then(|member| Some((member, member.outbox.as_ref()?))) else {
        return;
    };
    let mut frame = ErrorFrame::new(code, error.to_string());
    frame.subscription = Some(member.subscription);
    frame.partition = Some(held.number);
    outbox.push(BrokerFrame::Error(Box::new(frame)));
}

fn source(held: &mut Held, tails: &HotTails, sendable: Sendable, messages: usize, bytes: u64) -> Source {
    let from = sendable.from;
    if let Some(copies) = held.copies(from, messages, bytes) {
        return if copies.is_empty() { Source::Dry } else { Source::Copies(copies) };
    }
    if held.fetched.is_some() && tails.is_below_start(held.fence.partition_id, from) {
        held.fetched = None; // purged since it was read
    }
    if let Some(slab) = held.fetched.as_ref().filter(|slab| slab.first() <= from && from < slab.end()) {
        return Source::Pieces(vec![Slab::piece(slab, from, messages, bytes)]);
    }
    held.fetched = None;
    match tails.find(held.fence.partition_id, from, messages, bytes) {
        Found::Pieces(pieces) => Source::Pieces(pieces),
        Found::AtEnd => Source::Dry,
        Found::Behind if held.fetching || held.dry_at == Some(from) || held.retry_at.is_some() => Source::Dry,
        Found::Behind => Source::Behind,
    }
}

/// Leaves out what is done already.
pub(super) fn without_done(pieces: Vec<Piece>, done: &Ranges) -> Vec<Piece> {
    if done.is_empty() {
        return pieces;
    }
    let mut left = Vec::new();
    for piece in pieces {
        let mut from = done.after(piece.first());
        while from < piece.end() {
            let to = done.before(from).unwrap_or(piece.end()).min(piece.end());
            left.push(piece.cut(from, to));
            from = done.after(to);
        }
    }
    left
}
