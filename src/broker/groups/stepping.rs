//! What steps of pipelines acknowledge: reserved while they are under way, done when they are stored.
//!
//! The step itself is written elsewhere, under the fence of each lane. Nothing of it is in the lane's own commits until the
//! group has been told; whoever takes the lane over meanwhile finds it in the tables.

use std::sync::Arc;
use std::time::Instant;

use laneway_client::wire::Ack;

use super::held::Held;
use super::lane::AckError;
use super::task::{GroupTask, Look};
use crate::ids::{GroupId, Offset, PartitionId, SessionId, StepId};
use crate::store::lanes::Fence;
use crate::store::times::LaneTime;

/// What a step may acknowledge on one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    pub fence: Fence,
    /// Rising, separate, and not done.
    pub ranges: Vec<(Offset, Offset)>,
    /// When they were delivered, and when the step came: the step tells it, and the lane does not.
    pub times: Arc<[LaneTime]>,
    /// Those of them that are parked copies: the step removes them.
    pub copies: Vec<Offset>,
}

/// Why a step may not acknowledge something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreserved {
    pub group_id: GroupId,
    /// Absent: the topic has no such partition.
    pub partition_id: Option<PartitionId>,
    pub why: Refused,
}

/// Why a step may not acknowledge something, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("this session does not hold partition {partition} under epoch {epoch}")]
    NotHeld { partition: u32, epoch: i64 },
    #[error(transparent)]
    Ack(#[from] AckError),
    #[error("another step that acknowledges offset {offset} is under way")]
    UnderWay { offset: Offset },
    #[error("a step of this id is under way, and acknowledges something else of partition {partition}")]
    OtherTry { partition: u32 },
}

/// What a step under way acknowledges of a lane. Invariant: a step has one of them on a lane, whatever its copies.
#[derive(Debug)]
pub(super) struct Reservation {
    step_id: StepId,
    ranges: Vec<(Offset, Offset)>,
    times: Arc<[LaneTime]>,
    /// Copies of the step that are under way: the last one that is not done gives it back.
    copies: u32,
}

impl Held {
    /// Whether a step under way acknowledges something in `[from, to)`.
    pub(super) fn reserves(&self, from: Offset, to: Offset) -> bool {
        self.reserved.iter().any(|reservation| common((from, to), &reservation.ranges).is_some())
    }

    fn take_reservation(&mut self, step_id: StepId) -> Option<Reservation> {
        let place = self.reserved.iter().position(|reservation| reservation.step_id == step_id)?;
        let reservation = self.reserved.remove(place);
        self.lane.times.unreserve(&reservation.ranges);
        Some(reservation)
    }

    /// A copy of a step was not done. Another one may still be.
    fn unreserve(&mut self, step_id: StepId) {
        if let Some(reservation) = self.reserved.iter_mut().find(|reservation| reservation.step_id == step_id)
            && reservation.copies > 1
        {
            reservation.copies -= 1;
        } else if let Some(reservation) = self.take_reservation(step_id) {
            self.lane.times.give_back(&reservation.times);
        }
    }

    /// Reserves ranges for one copy more of a step; `None`: another copy has reserved others.
    fn reserve(&mut self, step_id: StepId, ranges: &[(Offset, Offset)]) -> Option<Arc<[LaneTime]>> {
        if let Some(known) = self.reserved.iter_mut().find(|reservation| reservation.step_id == step_id) {
            let is_same = known.ranges == ranges;
            known.copies += u32::from(is_same);
            return is_same.then(|| known.times.clone());
        }
        let times = self.lane.times.reserve(ranges, Instant::now());
        self.reserved.push(Reservation { step_id, ranges: ranges.to_vec(), times: times.clone(), copies: 1 });
        Some(times)
    }
}

impl GroupTask {
    pub(super) fn reserve(
        &mut self,
        session_id: SessionId,
        step_id: StepId,
        ack: &Ack,
    ) -> Result<Reserved, Unreserved> {
        let refused = |why: Refused| Unreserved {
            group_id: self.group.group_id,
            partition_id: self.topic.partitions.get(ack.partition as usize).copied(),
            why,
        };
        let Some(partition_id) = self.lane_of(session_id, ack.partition, ack.epoch) else {
            return Err(refused(Refused::NotHeld { partition: ack.partition, epoch: ack.epoch }));
        };
        let Some(held) = self.lanes.get(&partition_id) else {
            return Err(refused(Refused::NotHeld { partition: ack.partition, epoch: ack.epoch }));
        };
        let ranges: Vec<(Offset, Offset)> =
            ack.ranges.iter().map(|range| (Offset(range.from), Offset(range.to))).collect();
        let ranges = held.lane.check_step(ack.round, ack.next.map(Offset), &ranges);
        let ranges = ranges.map_err(|error| refused(error.into()))?;
        let others = held.reserved.iter().filter(|other| other.step_id != step_id);
        let others = others.flat_map(|other| &other.ranges);
        if let Some(offset) = others.filter_map(|other| common(*other, &ranges)).min() {
            return Err(refused(Refused::UnderWay { offset }));
        }
        let Some(held) = self.lanes.get_mut(&partition_id) else {
            return Err(refused(Refused::NotHeld { partition: ack.partition, epoch: ack.epoch }));
        };
        let Some(times) = held.reserve(step_id, &ranges) else {
            return Err(refused(Refused::OtherTry { partition: ack.partition }));
        };
        let copies = held.lane.copies_in(&ranges);
        Ok(Reserved { fence: held.fence, ranges, times, copies })
    }

    pub(super) fn on_step_done(&mut self, fence: Fence, step_id: StepId, ranges: &[(Offset, Offset)]) {
        let partition_id = fence.partition_id;
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence == fence) else { return };
        drop(held.take_reservation(step_id));
        let done = held.lane.done();
        held.dirty_by_steps |= !held.lane.is_dirty();
        held.lane.on_step(ranges, Instant::now());
        held.drop_copies();
        self.surroundings.metrics.acked_messages.inc_by((held.lane.done() - done).max(0) as u64);
        held.landed(&self.surroundings.spans, &self.topic.name, &self.name);
        self.set_timer(partition_id);
        self.release_if_drained(partition_id);
        self.pump_lane(partition_id);
    }

    /// If its fence was why, the tables tell.
    pub(super) fn on_step_undone(&mut self, fence: Fence, step_id: StepId) {
        let partition_id = fence.partition_id;
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence == fence) else { return };
        held.unreserve(step_id);
        held.look_behind(Instant::now());
        self.set_timer(partition_id);
        self.release_if_drained(partition_id);
        self.want(Look::List);
    }
}

/// The first offset that a range shares with others.
fn common(range: (Offset, Offset), others: &[(Offset, Offset)]) -> Option<Offset> {
    let shared = |other: &(Offset, Offset)| (range.0.max(other.0), range.1.min(other.1));
    others.iter().map(shared).filter(|(from, to)| from < to).map(|(from, _)| from).min()
}
