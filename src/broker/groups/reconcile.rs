//! Table state against memory: who joins, comes back and leaves; which lanes are acquired, drained, released and lost.
//!
//! Postgres decides, we remember. A lane in memory whose row says otherwise is dropped; a row that names one of our sessions
//! is acted upon. Nothing here depends on having heard of every change: each look starts from the rows alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_client::ErrorCode;
use laneway_client::wire::{
    BrokerFrame, ErrorFrame, LaneDraining, LaneGranted, LaneReset, LaneRevoked, OffsetRange, ResumeOutcome,
    ResumedLane,
};
use tokio::sync::oneshot;

use super::effects::{GiveUp, Listed, Pauses, Settling};
use super::held::Held;
use super::keyed;
use super::lane::{Gate, Lane};
use super::ranges::Ranges;
use super::task::{GroupTask, Look, Member};
use super::times::Keeping;
use super::{Leaving, Reach, selected};
use crate::broker::metrics::Reason;
use crate::broker::outbox::Outbox;
use crate::ids::{BrokerId, Offset, PartitionId, SessionId};
use crate::store::Error;
use crate::store::groups::{GroupSettings, Ordering};
use crate::store::lanes::{Fence, LaneRow, PopState, Release, ResumeAt, Settlement};
use crate::store::management::Running;

impl GroupTask {
    pub(super) fn on_join(&mut self, member: Member) {
        let session_id = member.session_id;
        if self.members.contains_key(&session_id) {
            self.release_all(session_id, Leaving::Closed);
            self.finish_leave(session_id);
        }
        self.members.insert(session_id, member);
        self.enter_if_moved(session_id);
        self.want(Look::Assign);
    }

    /// The broker may have got a new id since the member was entered.
    fn enter_if_moved(&mut self, session_id: SessionId) {
        let Some(broker_id) = self.broker_id else { return };
        let Some(member) = self.members.get_mut(&session_id) else { return };
        if member.broker_id != broker_id && !member.is_leaving() && !member.entering {
            (member.broker_id, member.entering) = (broker_id, true);
            let (hash, terms) = (member.resume_hash.clone(), member.terms.clone());
            self.effects.enter(broker_id, session_id, hash, terms);
        }
    }

    /// A member is in the tables again.
    pub(super) fn on_entered(&mut self, session_id: SessionId) {
        let Some(member) = self.members.get_mut(&session_id) else { return };
        member.entering = false;
        if member.is_leaving() {
            self.effects.leave(session_id, member.broker_id);
        }
        self.enter_if_moved(session_id);
        self.want(Look::Assign);
    }

    /// A member is out of the tables.
    pub(super) fn on_left(&mut self, session_id: SessionId) {
        if let Some(member) = self.members.get_mut(&session_id).filter(|member| member.is_leaving()) {
            member.out = true;
        }
        self.finish_leave_if_free(session_id);
        self.want(Look::Assign);
    }

    pub(super) fn on_detach(&mut self, session_id: SessionId) {
        if let Some(member) = self.members.get_mut(&session_id) {
            member.outbox = None;
        }
    }

    /// Delivery restarts in the next round; what the client has done of the last one still counts.
    pub(super) fn on_attach(
        &mut self,
        session_id: SessionId,
        outbox: Outbox,
        reply: oneshot::Sender<Vec<ResumedLane>>,
    ) {
        let Some(member) = self.members.get_mut(&session_id) else { return };
        member.outbox = Some(outbox);
        if member.purse.reach() == Reach::Topic {
            member.purse.reset(member.first_credit);
        }
        let (subscription, lanes) = (member.subscription, member.lanes.clone());
        let selection = member.selected.as_ref().map(|selected| selected.selection);
        let mut resumed = Vec::new();
        for partition_id in &lanes {
            if let Some(held) = self.lanes.get_mut(partition_id).filter(|held| !held.releasing) {
                held.lane.restart();
                held.log = Arc::default();
                resumed.push((held.number, held.fence.epoch.0, held.lane.round, told(&held.durable)));
            }
        }
        let resumed =
            resumed.into_iter().map(|(partition, epoch, round, (committed_offset, acked))| ResumedLane {
                subscription,
                selection,
                group: self.name.clone(),
                topic: self.topic.name.clone(),
                partition,
                outcome: ResumeOutcome::Resumed,
                reason: None,
                epoch,
                round,
                committed_offset,
                acked,
            });
        let _session_is_gone = reply.send(resumed.collect());
        self.pump_member(session_id);
        self.want(Look::List); // lanes that have become free meanwhile
    }

    pub(super) fn on_leave(&mut self, session_id: SessionId, leaving: Leaving, reply: oneshot::Sender<()>) {
        let Some(member) = self.members.get_mut(&session_id) else {
            return drop(reply); // gone already: that is an answer too
        };
        member.left = Some(reply);
        if leaving != Leaving::Drain {
            member.outbox = None;
        }
        if !member.entering {
            self.effects.leave(session_id, member.broker_id);
        }
        match leaving {
            Leaving::Drain => {
                let until = Instant::now() + self.surroundings.drain;
                let lanes = member.lanes.clone();
                lanes.into_iter().for_each(|partition_id| self.drain(partition_id, until));
            }
            Leaving::Closed | Leaving::Crashed => self.release_all(session_id, leaving),
        }
        self.finish_leave_if_free(session_id);
    }

    pub(super) fn release_all(&mut self, session_id: SessionId, leaving: Leaving) {
        let Some(member) = self.members.get(&session_id) else { return };
        for partition_id in member.lanes.clone() {
            match leaving {
                Leaving::Crashed => self.crash(partition_id, "the consumer was lost", None),
                Leaving::Drain | Leaving::Closed => self.release(partition_id, "left"),
            }
        }
    }

    pub(super) fn finish_leave_if_free(&mut self, session_id: SessionId) {
        let member = self.members.get(&session_id);
        if member.is_some_and(|member| member.is_leaving() && member.out && member.lanes.is_empty()) {
            self.finish_leave(session_id);
        }
    }

    fn finish_leave(&mut self, session_id: SessionId) {
        self.stalled.remove(&session_id);
        if let Some(reply) = self.members.remove(&session_id).and_then(|member| member.left) {
            let _session_is_gone = reply.send(());
        }
    }

    /// The broker's own lease was renewed, lost, or begun anew under another id.
    pub(super) fn on_lease(&mut self) {
        let broker_id = self.surroundings.lease.broker_id();
        if broker_id == self.broker_id {
            if std::mem::take(&mut self.distrusted) {
                self.pump_all();
            }
            return;
        }
        self.broker_id = broker_id;
        let lanes: Vec<PartitionId> = self.lanes.keys().copied().collect();
        lanes.into_iter().for_each(|partition_id| self.lost(partition_id, "broker_lease_lost"));
        let members: Vec<SessionId> = self.members.keys().copied().collect();
        members.into_iter().for_each(|session_id| self.enter_if_moved(session_id));
    }

    pub(super) fn on_listed(&mut self, result: Result<Option<Listed>, Error>) {
        self.looked();
        if result.is_ok() {
            self.look_pauses = Pauses::default();
        }
        let rows = match result {
            Ok(Some(listed)) if !listed.lanes.is_empty() => {
                self.on_settings(listed.settings);
                self.on_keeping(listed.keeping);
                self.on_running(listed.running);
                self.on_released_keys(&listed.released);
                listed.lanes
            }
            Ok(Some(_) | None) => return self.on_gone(),
            Err(error) => {
                tracing::debug!(%error, "the lanes of a group are looked at again in a moment");
                self.look = Look::Assign;
                self.look_at = Instant::now() + self.look_pauses.next();
                return;
            }
        };
        let Some(broker_id) = self.broker_id else { return };
        let gone = |partition_id: &PartitionId| !rows.iter().any(|row| row.partition_id == *partition_id);
        let gone: Vec<PartitionId> = self.lanes.keys().copied().filter(gone).collect();
        gone.into_iter().for_each(|partition_id| self.lost(partition_id, "group_deleted"));
        if rows.iter().any(|row| row.pop == PopState::Expired) {
            self.effects.expire_pops(self.group.settings);
        }
        let (mut free, mut ours) = (Vec::new(), Vec::new());
        for row in &rows {
            self.numbers.insert(row.number, row.partition_id);
            if self.lanes.contains_key(&row.partition_id) {
                self.compare(row);
                continue;
            }
            let is_ours = |session_id: Option<SessionId>| {
                let member = session_id.and_then(|session_id| self.members.get(&session_id));
                member.is_some_and(|member| !member.is_leaving() && member.outbox.is_some())
            };
            let overdue =
                row.holder.is_some() && row.wanted != row.holder && row.drain == Some(Duration::ZERO);
            // An assignment that has just been made has found nobody; the next look tries again.
            let waits = self.members.values().any(|member| !member.is_leaving());
            let nobody = !row.wanted_lives && waits && self.looked_for != Look::Assign;
            if row.holder.is_none() && is_ours(row.wanted) {
                free.extend((row.pop == PopState::None).then_some(*row));
            } else if is_ours(row.holder) && row.holder_broker == Some(broker_id) {
                ours.push(row.partition_id);
            } else if overdue || nobody {
                self.want(Look::Assign);
            }
        }
        if !free.is_empty() || !ours.is_empty() {
            self.looking = true;
            self.effects.acquire(broker_id, free, ours, self.group.settings.ordering);
        }
    }

    /// An operator may have changed the settings: deadlines are counted anew, and what has blocked a lane gets another try.
    fn on_settings(&mut self, settings: GroupSettings) {
        if self.group.settings == settings {
            return;
        }
        tracing::info!(
            group.name = self.name,
            topic.name = self.topic.name,
            ?settings,
            "group settings changed"
        );
        self.group.settings = settings;
        self.lanes.values_mut().for_each(|held| held.window.due = None);
        let lanes: Vec<PartitionId> = self.lanes.keys().copied().collect();
        for partition_id in lanes {
            if let Some(held) =
                self.lanes.get_mut(&partition_id).filter(|held| held.lane.gate == Gate::Blocked)
            {
                held.lane.gate = Gate::Open;
                self.surroundings.metrics.lanes_in("blocked").dec();
            }
            if let Some(held) = self.lanes.get_mut(&partition_id) {
                held.unblock_keys();
            }
            self.set_timer(partition_id);
            self.pump_lane(partition_id);
        }
    }

    /// An operator may have changed whether delivery times are kept.
    fn on_keeping(&mut self, keeping: Keeping) {
        self.keeping = keeping;
        self.lanes.values_mut().for_each(|held| held.lane.times.keep(keeping));
    }

    /// The group was deleted, or its topic.
    fn on_gone(&mut self) {
        let lanes: Vec<PartitionId> = self.lanes.keys().copied().collect();
        lanes.into_iter().for_each(|partition_id| self.lost(partition_id, "group_deleted"));
        for (_, member) in self.members.drain() {
            let detail = format!("group {} of topic {} was deleted", self.name, self.topic.name);
            let mut frame = ErrorFrame::new(ErrorCode::UnknownGroup, detail);
            frame.subscription = Some(member.subscription);
            selected::tell_gone(&member, self.topic.topic_id, frame);
        }
    }

    /// A lane that we hold, against its row.
    fn compare(&mut self, row: &LaneRow) {
        let Some(held) = self.lanes.get_mut(&row.partition_id).filter(|held| !held.releasing) else { return };
        let leaving = self.members.get(&held.fence.session_id).is_none_or(Member::is_leaving);
        if row.epoch != held.fence.epoch || row.holder != Some(held.fence.session_id) {
            return self.lost(row.partition_id, "lease_lost");
        }
        match row.wanted == row.holder {
            true if held.drain_until.is_some() && !leaving => {
                held.drain_until = None; // the others have left again
                self.surroundings.metrics.lanes_in("draining").dec();
                self.pump_lane(row.partition_id);
            }
            true => {}
            false => {
                let until = Instant::now() + row.drain.unwrap_or(self.surroundings.drain);
                self.drain(row.partition_id, until);
            }
        }
    }

    pub(super) fn on_acquired(&mut self, broker_id: BrokerId, result: Result<Vec<ResumeAt>, Error>) {
        self.looked();
        if self.broker_id != Some(broker_id) {
            return; // buried since: what was acquired under that id is lost already
        }
        match result {
            Ok(lanes) => {
                lanes.iter().for_each(|at| self.grant(at));
                self.pump_all(); // together, so that new lanes share the credit from the start
            }
            Err(error) => {
                tracing::debug!(%error, "lanes are acquired in a moment");
                self.want(Look::List);
            }
        }
    }

    fn grant(&mut self, at: &ResumeAt) {
        let Some(session_id) = at.session_id else { return };
        let fence = Fence {
            group_id: self.group.group_id,
            partition_id: at.partition_id,
            epoch: at.epoch,
            session_id,
        };
        let Some(member) = self.members.get_mut(&session_id).filter(|member| !member.is_leaving()) else {
            // It left while the lane was acquired for it.
            let release = Some(Release { suspect_until: at.suspect_until, avoided: None });
            let settlement = Settlement { release, ..Settlement::default() };
            return self.effects.settle(fence, settlement, Vec::new(), Settling::Release { why: "left" });
        };
        let Some(number) = number_of(&self.numbers, at.partition_id) else { return };
        let mut lane = Lane::new(at, Instant::now());
        lane.times.keep(self.keeping);
        if self.group.settings.ordering == Ordering::Key {
            lane.order_by_key(keyed::keys_of(at));
        }
        let reset = (at.committed < at.start_offset).then(|| LaneReset {
            from: at.committed.0,
            to: at.start_offset.0,
            reason: "retention".to_owned(),
        });
        let (committed_offset, acked) = told(&lane.position());
        let metrics = &self.surroundings.metrics;
        metrics.lanes_granted.inc();
        metrics.takeovers.inc_by(u64::from(at.epoch.0 > 1));
        metrics.lanes_in("held").inc();
        metrics.lanes_in("paused").inc_by(i64::from(self.running == Running::Paused));
        tracing::info!(
            group.name = self.name, partition = number, epoch = %at.epoch, session = %session_id, committed_offset,
            "lane granted"
        );
        if let Some(outbox) = &member.outbox {
            outbox.push(BrokerFrame::LaneGranted(LaneGranted {
                subscription: member.subscription,
                partition: number,
                epoch: at.epoch.0,
                round: lane.round,
                committed_offset,
                acked,
                reset,
            }));
        }
        member.lanes.insert(at.partition_id);
        self.surroundings.tails.follow(at.partition_id, &self.wake);
        let held = Held::new(fence, number, lane, &self.surroundings.metrics.blocked_keys);
        self.lanes.insert(at.partition_id, held);
        self.commit_if_dirty(at.partition_id);
    }

    /// No more batches; acks still count until the moment, or until nothing is in flight.
    fn drain(&mut self, partition_id: PartitionId, until: Instant) {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        if held.releasing || held.drain_until.is_some() {
            return;
        }
        held.drain_until = Some(until);
        self.surroundings.metrics.lanes_in("draining").inc();
        let member = self.members.get(&held.fence.session_id);
        if let Some((member, outbox)) = member.and_then(|m| m.outbox.as_ref().map(|outbox| (m, outbox))) {
            let drain = until.saturating_duration_since(Instant::now());
            outbox.push(BrokerFrame::LaneDraining(LaneDraining {
                subscription: member.subscription,
                partition: held.number,
                epoch: held.fence.epoch.0,
                drain_ms: drain.as_millis() as u64,
            }));
        }
        self.release_if_drained(partition_id);
        self.set_timer(partition_id);
    }

    /// Lets a draining lane go once nothing is in flight.
    pub(super) fn release_if_drained(&mut self, partition_id: PartitionId) {
        let Some(held) = self.lanes.get(&partition_id) else { return };
        if held.drain_until.is_some() && held.is_idle() {
            self.release(partition_id, "moved");
        }
    }

    /// Lets a lane go, with everything that is done of it.
    pub(super) fn release(&mut self, partition_id: PartitionId, why: &'static str) {
        let Some(held) = self.lanes.get(&partition_id) else { return };
        let suspect_until = held.lane.suspect_until();
        let release = Release { suspect_until, avoided: None };
        self.release_with(
            partition_id,
            why,
            Settlement { release: Some(release), ..Settlement::default() },
            None,
        );
    }

    /// As [`GroupTask::release`], with what else has to be written down.
    pub(super) fn release_with(
        &mut self,
        partition_id: PartitionId,
        why: &'static str,
        mut settlement: Settlement,
        give_up: Option<GiveUp>,
    ) {
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| !held.releasing) else { return };
        if held.lane.gate == Gate::Settling {
            // Its commit must not be overtaken by one that does not know of it.
            held.release_later = settlement.release.map(|release| (why, release));
            return;
        }
        held.releasing = true;
        held.add_done_copies(&mut settlement);
        settlement.commit.get_or_insert_with(|| held.lane.next_commit());
        settlement.under_way = held.lane.times.under_way();
        let give_up = give_up.into_iter().collect();
        self.effects.settle(held.fence, settlement, give_up, Settling::Release { why });
    }

    /// A lane is somebody else's: nothing of it counts any more.
    pub(super) fn lost(&mut self, partition_id: PartitionId, why: &'static str) {
        if let Some(held) = self.forget(partition_id, why) {
            self.tell_lost(&held);
        }
        self.want(Look::List);
    }

    /// Drops a lane from memory and tells its session.
    pub(super) fn forget(&mut self, partition_id: PartitionId, why: &'static str) -> Option<Held> {
        let held = self.lanes.remove(&partition_id)?;
        if let Some(moment) = held.timer {
            self.timers.remove(&(moment, partition_id));
        }
        self.surroundings.tails.unfollow(partition_id, &self.wake);
        let metrics = &self.surroundings.metrics;
        metrics.lanes_revoked.get_or_create(&Reason { reason: why }).inc();
        metrics.lanes_in("held").dec();
        metrics.lanes_in("paused").dec_by(i64::from(self.running == Running::Paused));
        metrics.lanes_in("draining").dec_by(i64::from(held.drain_until.is_some()));
        metrics.lanes_in("blocked").dec_by(i64::from(held.lane.gate == Gate::Blocked));
        let session_id = held.fence.session_id;
        tracing::info!(
            group.name = self.name, partition = held.number, epoch = %held.fence.epoch, session = %session_id, why,
            "lane revoked"
        );
        if let Some(member) = self.members.get_mut(&session_id) {
            member.lanes.remove(&partition_id);
            if let Some(outbox) = &member.outbox {
                outbox.push(BrokerFrame::LaneRevoked(LaneRevoked {
                    subscription: member.subscription,
                    partition: held.number,
                    epoch: held.fence.epoch.0,
                    reason: why.to_owned(),
                }));
            }
        }
        self.finish_leave_if_free(session_id);
        Some(held)
    }
}

fn number_of(
    numbers: &std::collections::HashMap<u32, PartitionId>,
    partition_id: PartitionId,
) -> Option<u32> {
    numbers.iter().find(|(_, id)| **id == partition_id).map(|(number, _)| *number)
}

/// Committed offset and acked ranges, as the wire tells them.
fn told((committed, acked): &(Offset, Ranges)) -> (i64, Vec<OffsetRange>) {
    (committed.0, acked.pairs().into_iter().map(OffsetRange::from).collect())
}
