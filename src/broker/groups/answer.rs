//! Acks, nacks, progress, and what follows from failures: another try, a dead letter, a stop.
//!
//! Whatever a client says about a lane counts only under the lane's epoch. A failure is written down before anything follows
//! from it, so that attempts survive restarts and takeovers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use laneway_client::ErrorCode;
use laneway_client::wire::{Ack, Acked, BrokerFrame, ErrorFrame, Nack, Progress};
use rand::Rng as _;

use super::backoff;
use super::effects::Settling;
use super::failing::Failed;
use super::held::Held;
use super::lane::{AckError, Failure, Gate};
use super::pause::pause;
use super::task::{GroupTask, Look};
use super::verdict::Verdict;
use crate::broker::appender::{CommitError, Urgency};
use crate::ids::{Epoch, Offset, PartitionId, SessionId};
use crate::limits::{COMMITS_PER_THINNING, NACK_DELAY_MAX, NACK_REASON_CHARS_MAX};
use crate::store::lanes::{Release, Settled, Settlement};

/// Which lane a client speaks about.
struct Named {
    session_id: SessionId,
    id: Option<u64>,
    partition: u32,
    epoch: i64,
}

impl GroupTask {
    pub(super) fn on_ack(&mut self, session_id: SessionId, ack: &Ack) {
        let named = Named { session_id, id: ack.id, partition: ack.partition, epoch: ack.epoch };
        let Some(partition_id) = self.held_lane(&named) else { return };
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        let ranges: Vec<(Offset, Offset)> =
            ack.ranges.iter().map(|range| (Offset(range.from), Offset(range.to))).collect();
        let (number, done) = (held.lane.next_number(), held.lane.done());
        let result = held.lane.on_ack(ack.round, ack.next.map(Offset), &ranges, Instant::now());
        self.surroundings.metrics.acked_messages.inc_by((held.lane.done() - done) as u64);
        held.landed(&self.surroundings.spans, &self.topic.name, &self.name);
        match result {
            Ok(()) => held.confirms.extend(ack.id.map(|id| (number, id))),
            Err(error) => self.refuse(&named, &error),
        }
        self.commit_if_dirty(partition_id);
        self.release_if_drained(partition_id);
        self.pump_lane(partition_id);
    }

    pub(super) fn on_nack(&mut self, session_id: SessionId, nack: Nack) {
        let named = Named { session_id, id: nack.id, partition: nack.partition, epoch: nack.epoch };
        let Some(partition_id) = self.held_lane(&named) else { return };
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        let offset = Offset(nack.offset);
        if let Err(error) = held.lane.check_nack(nack.round, offset) {
            return self.refuse(&named, &error);
        }
        if held.reserves(offset, offset.plus(1)) {
            return self.refuse(&named, &AckError::UnderWay { offset });
        }
        if held.keyed.is_some() && held.lane.gate == Gate::Settling {
            // What is written down is about other keys: it counts, a little later.
            if !held.keep_nack(session_id, nack.clone()) {
                self.refuse(&named, &AckError::Void { round: nack.round, offset });
            }
            return;
        }
        if held.window.evicting && held.window.nack.is_none() {
            held.window.nack = Some((session_id, nack)); // the round goes on: it counts, a little later
            return;
        }
        if held.lane.gate == Gate::Settling {
            // A failure of an earlier message is being written down: this one is redelivered anyway.
            return self.refuse(&named, &AckError::StaleRound { round: nack.round, below: offset });
        }
        let mut reason = nack.reason.unwrap_or_else(|| "nack".to_owned());
        if let Some((end, _)) = reason.char_indices().nth(NACK_REASON_CHARS_MAX) {
            reason.truncate(end);
        }
        let now = self.surroundings.lease.clock().at_least(Instant::now()).unwrap_or_else(Timestamp::now);
        // Who does not ask for an answer cannot hear of a refusal, and would wait for the deadline of the message.
        let most = NACK_DELAY_MAX.as_millis() as u64;
        let delay_ms = nack.delay_ms.map(|ms| if nack.id.is_none() { ms.min(most) } else { ms });
        let delay = match pause(delay_ms, nack.until.as_deref(), now) {
            Ok(delay) => delay,
            Err(fault) => return self.tell(&named, ErrorCode::InvalidTime, fault.to_string(), fault.field()),
        };
        self.surroundings.metrics.nacks.inc();
        self.fail(partition_id, offset, reason.replace('\0', ""), delay, nack.id);
    }

    pub(super) fn on_progress(&mut self, session_id: SessionId, progress: &Progress) {
        let Progress { id, partition, epoch, .. } = *progress;
        let named = Named { session_id, id, partition, epoch };
        let Some(partition_id) = self.held_lane(&named) else { return };
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        held.lane.on_progress(Instant::now());
        if let Some(id) = id {
            self.confirm(partition_id, id);
        }
    }

    /// The lane that a client speaks about, if its session holds it under that epoch.
    pub(super) fn lane_of(&self, session_id: SessionId, partition: u32, epoch: i64) -> Option<PartitionId> {
        let partition_id = self.numbers.get(&partition).copied()?;
        let held = self.lanes.get(&partition_id)?;
        let holds = held.fence.session_id == session_id && held.fence.epoch.0 == epoch && !held.releasing;
        holds.then_some(partition_id)
    }

    /// The lane that a client speaks about; it is told if it does not hold it under that epoch.
    fn held_lane(&mut self, named: &Named) -> Option<PartitionId> {
        if let Some(partition_id) = self.lane_of(named.session_id, named.partition, named.epoch) {
            return Some(partition_id);
        }
        let detail =
            format!("this session does not hold partition {} under epoch {}", named.partition, named.epoch);
        self.tell(named, ErrorCode::LeaseLost, detail, "epoch");
        None
    }

    fn refuse(&mut self, named: &Named, error: &AckError) {
        let (code, field) = match error {
            AckError::StaleRound { .. } | AckError::Void { .. } => (ErrorCode::StaleRound, "round"),
            AckError::BeyondSent { .. } => (ErrorCode::BeyondSent, "offset"),
            AckError::Done { .. } => (ErrorCode::Malformed, "offset"),
            AckError::UnderWay { .. } => (ErrorCode::AlreadyDone, "offset"),
        };
        self.tell(named, code, error.to_string(), field);
    }

    fn tell(&self, named: &Named, code: ErrorCode, detail: String, field: &str) {
        let Some(member) = self.members.get(&named.session_id) else { return };
        let Some(outbox) = &member.outbox else { return };
        let mut frame = ErrorFrame::new(code, detail);
        frame.id = named.id;
        frame.field = Some(field.to_owned());
        frame.subscription = Some(member.subscription);
        frame.partition = Some(named.partition);
        outbox.push(BrokerFrame::Error(Box::new(frame)));
    }

    /// What was to be confirmed of a lane that is lost will not be: nothing of it has happened.
    pub(super) fn tell_lost(&self, held: &Held) {
        let session_id = held.fence.session_id;
        for id in held.confirms.iter().map(|(_, id)| *id).chain(held.kept_nacks()) {
            let named = Named { session_id, id: Some(id), partition: held.number, epoch: held.fence.epoch.0 };
            let detail = "the lane has another holder by now; what was not confirmed may be delivered again";
            self.tell(&named, ErrorCode::LeaseLost, detail.to_owned(), "epoch");
        }
    }

    /// A request about a lane is done, durably.
    fn confirm(&self, partition_id: PartitionId, id: u64) {
        let Some(held) = self.lanes.get(&partition_id) else { return };
        let Some(member) = self.members.get(&held.fence.session_id) else { return };
        if let Some(outbox) = &member.outbox {
            outbox.push(BrokerFrame::Acked(Acked {
                id,
                subscription: member.subscription,
                partition: held.number,
                epoch: held.fence.epoch.0,
                committed_offset: held.durable.0.0,
            }));
        }
    }

    /// Sends what is done to the appender, one commit per lane at a time.
    pub(super) fn commit_if_dirty(&mut self, partition_id: PartitionId) {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        if held.committing || held.releasing || held.lane.gate == Gate::Settling {
            return;
        }
        if self.settle_keys(partition_id, Instant::now()) {
            return; // it has the commit with it
        }
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        if let Some(commit) = held.lane.take_commit() {
            held.committing = true;
            held.committing_at = held.lane.position();
            held.dirty_by_steps = false;
            let urgency = if held.confirms.is_empty() { Urgency::Later } else { Urgency::Now };
            self.effects.commit(held.fence, commit, urgency);
        }
    }

    pub(super) fn on_committed(
        &mut self,
        partition_id: PartitionId,
        epoch: Epoch,
        number: i64,
        result: Result<(), CommitError>,
    ) {
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence.epoch == epoch) else {
            return;
        };
        held.committing = false;
        match result {
            Ok(()) => {
                held.on_stored();
                held.lane.times.on_stored(number);
                if number - held.thinned_to >= COMMITS_PER_THINNING {
                    self.effects.thin(held.fence, held.thinned_to, number);
                    held.thinned_to = number;
                }
                let (done, waiting) = held.confirms.iter().copied().partition(|(at, _)| *at <= number);
                held.confirms = waiting;
                let done: Vec<(i64, u64)> = done;
                done.into_iter().for_each(|(_, id)| self.confirm(partition_id, id));
                self.commit_if_dirty(partition_id);
                self.set_timer(partition_id); // for what did not wait for the commit alone
            }
            Err(CommitError::LeaseLost) if held.releasing => {} // the release has committed it
            Err(CommitError::LeaseLost) => self.lost(partition_id, "lease_lost"),
            Err(CommitError::Overloaded | CommitError::Stopping) => {
                held.lane.mark_dirty();
                held.lane.times.on_not_sent();
                self.set_timer(partition_id);
            }
        }
    }

    /// A message has failed: its round ends, and what follows is decided by how often it has failed.
    fn fail(
        &mut self,
        partition_id: PartitionId,
        offset: Offset,
        reason: String,
        delay: Option<Duration>,
        id: Option<u64>,
    ) {
        let settings = self.group.settings;
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        let attempts = held.lane.attempts_after_failure(offset);
        let delay = delay.unwrap_or_else(|| backoff::delay(&settings, attempts, rand::rng().random()));
        let verdict = held.verdict(offset, attempts, &settings);
        let failed = Failed { offset, attempts, reason: reason.clone(), delay, verdict };
        let (settlement, give_up) = held.failed(failed);
        if verdict == Verdict::Park {
            held.overtake_read([held.parked_offset(offset)]);
        }
        held.lane.on_failing(offset, Instant::now());
        held.flights.on_failed(offset);
        if held.keyed.is_none() {
            held.log = Arc::default();
        }
        let what = match verdict {
            Verdict::Retry | Verdict::Block => Settling::Charge { id, offset, attempts, reason, delay },
            Verdict::DeadLetter | Verdict::Skip => Settling::GiveUp { id, offset },
            Verdict::Park => Settling::Park { id, offset },
        };
        let (fence, is_full) = (held.fence, held.is_full_of_parked(verdict, &settings, attempts));
        self.effects.settle(fence, settlement, give_up.into_iter().collect(), what);
        if let Some(held) = self.lanes.get(&partition_id).filter(|_| is_full) {
            self.tell_too_many_parked(held);
        }
    }

    /// A message has missed its deadline, while others of its lane are acknowledged: it fails alone, and its key with it.
    pub(super) fn miss(&mut self, partition_id: PartitionId, offset: Offset) {
        if self.lanes.get(&partition_id).is_none_or(|held| held.lane.gate == Gate::Settling) {
            return; // whoever is done with that looks again
        }
        self.surroundings.metrics.deadlines_missed.inc();
        self.fail(partition_id, offset, "ack_deadline".to_owned(), None, None);
    }

    /// The consumer of a lane is gone, or has missed its deadline. Only a message that was alone in flight is charged; if
    /// there were several, they are sent one by one from now on.
    pub(super) fn crash(&mut self, partition_id: PartitionId, why: &'static str, avoided: Option<SessionId>) {
        let settings = self.group.settings;
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| !held.releasing) else { return };
        let reached = held.lane.oldest_in_flight().filter(|offset| held.written_at(*offset).is_some());
        let suspect_until = match reached {
            None => held.lane.suspect_until(),
            Some(_) => held.lane.suspect_until_now(),
        };
        let mut settlement =
            Settlement { release: Some(Release { suspect_until, avoided }), ..Settlement::default() };
        self.surroundings.metrics.deadlines_missed.inc_by(u64::from(avoided.is_some()));
        let mut give_up = None;
        // What a step under way acknowledges has not failed, whoever is gone meanwhile.
        let is_at_fault = |offset: &Offset| reached.is_some() && !held.reserves(*offset, offset.plus(1));
        if let Some(offset) = held.lane.alone_in_flight().filter(is_at_fault) {
            let attempts = held.lane.attempts_after_failure(offset);
            let delay = backoff::delay(&settings, attempts, rand::rng().random());
            let verdict = held.verdict(offset, attempts, &settings);
            let release = settlement.release;
            let failed = Failed { offset, attempts, reason: why.to_owned(), delay, verdict };
            (settlement, give_up) = held.failed(failed);
            settlement.release = release;
        }
        self.release_with(partition_id, why, settlement, give_up);
    }

    pub(super) fn on_settled(
        &mut self,
        partition_id: PartitionId,
        epoch: Epoch,
        what: Settling,
        result: Settled,
    ) {
        let settings = self.group.settings;
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence.epoch == epoch) else {
            return self.want(Look::List);
        };
        if result == Settled::LeaseLost {
            held.confirms.extend(what.id().map(|id| (0, id)));
            return self.lost(partition_id, "lease_lost");
        }
        let now = Instant::now();
        let id = match what {
            Settling::Release { why } => return self.on_released(partition_id, why),
            Settling::Charge { id, offset, attempts, reason, delay } => {
                let failure = Failure { attempts, reason, retry_at: now + delay };
                let blocks = held.verdict(offset, attempts, &settings) == Verdict::Block;
                self.surroundings.metrics.retries.inc_by(u64::from(!blocks));
                let is_keyed = held.keyed.is_some();
                self.surroundings.metrics.lanes_in("blocked").inc_by(i64::from(blocks && !is_keyed));
                held.on_charged(offset, failure, blocks);
                id
            }
            Settling::Park { id, offset } => {
                tracing::warn!(group.name = self.name, partition = held.number, %offset, "message parked with its key");
                self.surroundings.metrics.on_given_up("park");
                self.surroundings.metrics.on_parked(1);
                held.on_parked(offset, now);
                id
            }
            Settling::Parks(parks) => {
                self.on_parks(partition_id, &parks, result, now);
                None
            }
            Settling::GiveUp { id, offset } => {
                tracing::warn!(
                    group.name = self.name, partition = held.number, %offset, policy = settings.on_failure.as_str(),
                    "message given up"
                );
                self.surroundings.metrics.on_given_up(settings.on_failure.as_str());
                held.lane.on_given_up(offset, now);
                held.drop_copies();
                id
            }
        };
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        held.tell_blocked();
        let later = held.release_later.take();
        if let Some(id) = id {
            self.confirm(partition_id, id);
        }
        if let Some((why, release)) = later {
            let settlement = Settlement { release: Some(release), ..Settlement::default() };
            return self.release_with(partition_id, why, settlement, None);
        }
        self.take_kept_nacks(partition_id);
        self.commit_if_dirty(partition_id);
        self.release_if_drained(partition_id);
        self.pump_lane(partition_id);
    }

    /// A lane is free, with everything that was done of it.
    fn on_released(&mut self, partition_id: PartitionId, why: &'static str) {
        let confirms = self.lanes.get_mut(&partition_id).map(|held| {
            held.durable = held.lane.position(); // as it was released: nothing has counted since
            std::mem::take(&mut held.confirms)
        });
        for (_, id) in confirms.into_iter().flatten() {
            self.confirm(partition_id, id);
        }
        if let Some(held) = self.forget(partition_id, why) {
            self.tell_lost(&held); // what came too late to count
        }
        self.want(Look::Assign);
    }
}
