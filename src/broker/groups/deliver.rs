//! Feeding lanes: from the hot tail, or from the segments when behind; within credit, within the outbox, in order.
//!
//! One batch per lane and turn, so that the lanes of a session share its credit. A lane that cannot send waits for what it
//! lacks (growth, credit, room, a moment), and nobody waits for it.

use std::sync::Arc;
use std::time::Instant;

use laneway_client::ErrorCode;
use laneway_client::wire::record::BatchHeader;
use laneway_client::wire::{BrokerFrame, ErrorFrame};

use super::evict::Line;
use super::lane::Sendable;
use super::ranges::Ranges;
use super::task::{GroupTask, Held, Look};
use crate::broker::hot_tail::{Found, HotTails};
use crate::broker::outbox::Outbox;
use crate::broker::reader::ReadError;
use crate::broker::slab::{Piece, Slab};
use crate::ids::{Epoch, Offset, PartitionId, SessionId};
use crate::limits::{COMMIT_RETRY_PAUSE, FETCHED_BYTES_KEPT, STEP_COMMIT_PAUSE};
use crate::store::management::Running;
use crate::store::messages::Message;

/// Whether a lane has sent a batch, and so may send another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Sent,
    Waits,
}

/// What a lane finds at its cursor.
enum Source {
    Pieces(Vec<Piece>),
    /// Nothing there yet.
    Dry,
    /// It has to be read from the segments.
    Behind,
}

impl GroupTask {
    /// Partitions have grown.
    pub(super) fn on_grown(&mut self) {
        for partition_id in self.wake.take() {
            if let Some(held) = self.lanes.get_mut(&partition_id) {
                held.dry_at = None;
                self.pump_lane(partition_id);
            }
        }
    }

    pub(super) fn on_credit(&mut self, session_id: SessionId, messages: u32, bytes: u64) {
        let Some(member) = self.members.get_mut(&session_id) else { return };
        match member.credit.add(messages, bytes) {
            Ok(()) => self.pump_member(session_id),
            Err(error) => {
                let mut frame = ErrorFrame::new(ErrorCode::InvalidCredit, error.to_string());
                frame.subscription = Some(member.subscription);
                if let Some(outbox) = &member.outbox {
                    outbox.push(BrokerFrame::Error(Box::new(frame)));
                }
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
        let after = member.next_lane.unwrap_or(PartitionId(0));
        let mut lanes: Vec<PartitionId> =
            member.lanes.range(after..).chain(member.lanes.range(..after)).copied().collect();
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
            tell_gaps(held, member.subscription, outbox);
            return Turn::Waits;
        };
        held.told_gaps = false;
        if held.window.holds(sendable.from, now) {
            return Turn::Waits;
        }
        let metrics = &self.surroundings.metrics;
        member.credit.restore(member.refund.take());
        let Some(room) = member.credit.room() else {
            metrics.credit_stalls.inc();
            member.next_lane = Some(partition_id);
            return Turn::Waits;
        };
        if !outbox.has_room() {
            metrics.outbox_stalls.inc();
            member.next_lane = Some(partition_id);
            self.stalled.insert(held.fence.session_id);
            return Turn::Waits;
        }
        if !self.surroundings.lease.is_trusted() {
            self.distrusted = true;
            return Turn::Waits;
        }
        let messages = sendable.messages.min(room.messages).min(member.batch.max_messages);
        let bytes = room.bytes.min(member.batch.max_bytes);
        let pieces = match source(held, &self.surroundings.tails, sendable, messages, bytes) {
            Source::Pieces(pieces) => without_done(pieces, held.lane.acked()),
            Source::Dry => return Turn::Waits,
            Source::Behind => {
                metrics.catch_up_reads.inc();
                held.fetching = true;
                let room = held.room_to_read(room.with_messages(sendable.messages), now);
                self.effects.fetch(partition_id, held.fence.epoch, sendable.from, room);
                return Turn::Waits;
            }
        };
        let pieces = match held.in_line(&self.group.settings.windows, &self.surroundings, pieces, now) {
            Line::Due(pieces) => pieces,
            Line::Waits => return Turn::Waits,
            Line::Look(look) => {
                self.effects.look(held.fence, look);
                return Turn::Waits;
            }
        };
        let found: usize = pieces.iter().map(Piece::len).sum();
        if found < member.batch.min_messages.min(messages) && held.is_short(now, member.batch.max_wait) {
            return Turn::Waits;
        }
        let (Some(first), Some(last)) = (pieces.first().map(Piece::first), pieces.last().map(Piece::end))
        else {
            return Turn::Waits;
        };
        held.short_since = None;
        let header = header(held, member.subscription, first, last);
        metrics.hot_tail_hits.inc_by(u64::from(held.fetched.is_none()));
        let published_at = pieces.iter().flat_map(Piece::messages).map(|message| message.published_at);
        metrics.on_delivered(published_at, pieces.iter().map(Piece::bytes).sum());
        held.departed(&self.surroundings.spans, &self.topic.name, &self.name, &pieces);
        let bytes = outbox.push_batch(header, pieces, Some((held.log.clone(), member.refund.clone())));
        member.credit.spend(found, bytes);
        held.lane.on_sent(last, now);
        Turn::Sent
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
                held.dry_at = held.fetched.is_none().then_some(from);
                self.pump_lane(partition_id);
                self.drop_unsent(partition_id);
            }
            // Retention has overtaken it: a new grant tells the client what is lost.
            Err(ReadError::OutOfRange { .. }) => self.release(partition_id, "retention"),
            Err(ReadError::UnknownPartition) => self.want(Look::List),
            Err(ReadError::Store(error)) => {
                tracing::debug!(%error, "a lane is fed later");
                held.retry_at = Some(Instant::now() + COMMIT_RETRY_PAUSE);
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
            held.fetched = None;
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
        let overdue = held.overdue_at(settings.ack_deadline, now);
        // What is past already waits for something else, and whatever that is, makes the lane try again.
        let future = |moment: Option<Instant>| moment.filter(|moment| *moment > now);
        let gate = future(held.lane.next_moment());
        let due = held.window.due.map(|(_, moment)| moment); // may be past by now, and then it is due
        let moments = [gate, held.drain_until, future(short), commit, overdue, held.retry_at, due];
        let Some(moment) = moments.into_iter().flatten().min() else { return };
        if held.timer.is_none_or(|listed| moment < listed) {
            if let Some(listed) = held.timer.replace(moment) {
                self.timers.remove(&(listed, partition_id));
            }
            self.timers.insert((moment, partition_id));
        }
    }
}

/// What stands before messages of a lane.
fn header(held: &Held, subscription: u32, first: Offset, last: Offset) -> BatchHeader {
    BatchHeader {
        subscription,
        partition: held.number,
        epoch: held.fence.epoch.0,
        round: held.lane.round,
        attempts: held.lane.attempts_between(first, last),
    }
}

/// Tells a client, once, that it has too many gaps.
fn tell_gaps(held: &mut Held, subscription: u32, outbox: &Outbox) {
    if held.lane.has_too_many_gaps() && !std::mem::replace(&mut held.told_gaps, true) {
        let detail = "too many single acks wait for messages before them: nothing more is sent until those are acknowledged";
        let mut frame = ErrorFrame::new(ErrorCode::TooManyGaps, detail);
        frame.subscription = Some(subscription);
        frame.partition = Some(held.number);
        outbox.push(BrokerFrame::Error(Box::new(frame)));
    }
}

fn source(held: &mut Held, tails: &HotTails, sendable: Sendable, messages: usize, bytes: u64) -> Source {
    let from = sendable.from;
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
fn without_done(pieces: Vec<Piece>, done: &Ranges) -> Vec<Piece> {
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
