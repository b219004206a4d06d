//! Steps: acks and publishes that happen in one transaction, known by the id that their client gave them.
//!
//! Many steps share a flush. All of them happen, or none: if one cannot, the flush says which and writes nothing, and the others
//! come again. What a step acknowledges is a row of its own beside the commits of its lane (`docs/adr/0005-steps.md`).
//! Locks: lane rows, then partition rows, each by id, waiting. Order: the locks, then `steps_check`, `messages_append`, for
//! messages that wait `schedules_insert`, and `steps_insert`, each with a snapshot that is younger than the locks, in one READ COMMITTED transaction and round trip.

use std::collections::HashMap;
use std::time::Instant;

use jiff::Timestamp;
use postgres_types::ToSql;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Connection, Params, Pipelined};
use super::data_keys::{DATA_KEYS_HOLD, distinct};
use super::error::{Effect, Error};
use super::flush::{Flush, MESSAGES_APPEND, Refused, Report, stall_for};
use super::lanes::Fence;
use super::locks::PARTITIONS_LOCK_WAITING;
use super::query::{Query, query};
use super::schedules::{
    Due, SCHEDULES_INSERT, ScheduleColumns, TimeFault, UnitReport, bounds, no_bounds, unit_reports,
};
use super::times::{LaneTime, TimeColumns};
use super::{Store, retry};
use crate::ids::{Epoch, GroupId, Offset, PartitionId, StepId};
use crate::limits::{EXPIRE_ROWS_MAX, STEP_ACK_AGE_MIN, STEP_WINDOW};

query!(STEPS_LOCK_LANES = "steps_lock_lanes"[INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, UUID_ARRAY]);
query!(
    STEPS_CHECK = "steps_check"[
        UUID_ARRAY, // steps
        INT4_ARRAY, INT4_ARRAY, // lanes
        INT4_ARRAY, INT8_ARRAY, // partitions
        INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY, INT8_ARRAY, // ids
        INT4_ARRAY, TIMESTAMPTZ_ARRAY, INT8, INT8 // times
    ]
);
query!(
    STEPS_INSERT = "steps_insert"[
        UUID_ARRAY, BYTEA_ARRAY, // steps
        INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, // messages
        INT8_ARRAY, INT4_ARRAY, // batches
        INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, // acks
        INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY // times
    ]
);
query!(PARKED_MESSAGES_STEP = "parked_messages_step"[INT8_ARRAY, INT8_ARRAY, INT8_ARRAY]);
query!(STEPS_HOLD_LANES = "steps_hold_lanes"[INT8_ARRAY, INT8_ARRAY, INT8_ARRAY]);
query!(STEPS_FIND = "steps_find"[UUID]);
query!(STEPS_EXPIRE = "steps_expire"[INT8, INT8]);
query!(STEP_ACKS_FORGET = "step_acks_forget"[INT8, INT8]);

/// The transaction's name in the metrics.
const STEPS: &str = "steps";

/// What was done, to tell a repetition from another step of the same id.
pub type Digest = [u8; 32];

/// Where a message stands, by the number of its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub partition: u32,
    pub offset: Offset,
}

/// A step that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneStep {
    pub digest: Vec<u8>,
    /// Of its messages, in their order.
    pub placed: Vec<Placed>,
}

/// Lanes, each once, that steps acknowledge on.
#[derive(Debug, Default)]
pub struct StepLanes {
    fences: Vec<Fence>,
    group_ids: Vec<i64>,
    partition_ids: Vec<i64>,
    epochs: Vec<i64>,
    sessions: Vec<Uuid>,
}

impl StepLanes {
    /// The place of a lane, counted from 1; it is added if it is not there yet.
    fn place(&mut self, fence: &Fence) -> i32 {
        let place = self.fences.iter().position(|other| other == fence).unwrap_or_else(|| {
            self.fences.push(*fence);
            self.group_ids.push(fence.group_id.0);
            self.partition_ids.push(fence.partition_id.0);
            self.epochs.push(fence.epoch.0);
            self.sessions.push(fence.session_id.0);
            self.fences.len() - 1
        });
        place as i32 + 1
    }
}

/// The steps of a flush, column by column; steps and messages count from 1.
#[derive(Debug, Default)]
pub struct StepColumns<'a> {
    step_ids: Vec<Uuid>,
    digests: Vec<&'a [u8]>,
    lanes: StepLanes,
    lane_steps: Vec<i32>,
    lane_places: Vec<i32>,
    partition_steps: Vec<i32>,
    partition_ids: Vec<i64>,
    message_steps: Vec<i32>,
    message_partitions: Vec<i32>,
    message_batches: Vec<i32>,
    message_places: Vec<i64>,
    id_messages: Vec<i32>,
    id_partition_ids: Vec<i64>,
    id_transaction_ids: Vec<&'a str>,
    id_windows_ms: Vec<i64>,
    due_messages: Vec<i32>,
    due_ats: Vec<Timestamp>,
    ack_group_ids: Vec<i64>,
    ack_partition_ids: Vec<i64>,
    ack_epochs: Vec<i64>,
    ack_from: Vec<i64>,
    ack_to: Vec<i64>,
    /// Which of the acks ends where, by the place of its lane: what stands together is one row.
    ack_ends: HashMap<(i32, i64), usize>,
    copies: (Vec<i64>, Vec<i64>, Vec<i64>),
    time_group_ids: Vec<i64>,
    time_partition_ids: Vec<i64>,
    times: TimeColumns,
    /// The last of the times of each lane, to which the next may belong.
    time_lasts: HashMap<(i64, i64), (usize, LaneTime)>,
}

/// Where a message of a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Into a batch of the flush, counted from 1, at a position.
    Batch { batch: i32, position: i32 },
    /// Into a unit of schedules, counted from 1, at a position.
    Schedule { unit: i32, position: i32 },
    /// It is stored already, or waits already: below 0.
    Stored(Offset),
}

/// A transaction id to look for.
#[derive(Debug, Clone, Copy)]
pub struct NamedBy<'a> {
    pub transaction_id: &'a str,
    pub window_ms: i64,
}

impl<'a> StepColumns<'a> {
    /// Adds a step; what belongs to it follows.
    pub fn step(&mut self, step_id: StepId, digest: &'a Digest) {
        self.step_ids.push(step_id.0);
        self.digests.push(digest);
    }

    fn number(&self) -> i32 {
        self.step_ids.len() as i32
    }

    /// Adds what the last step acknowledges on one lane.
    pub fn ack(&mut self, fence: &Fence, ranges: &[(Offset, Offset)]) {
        self.lane_steps.push(self.number());
        let place = self.lanes.place(fence);
        self.lane_places.push(place);
        for (from, to) in ranges {
            let ack = match self.ack_ends.remove(&(place, from.0)) {
                Some(ack) => {
                    self.ack_to[ack] = to.0;
                    ack
                }
                None => {
                    self.ack_group_ids.push(fence.group_id.0);
                    self.ack_partition_ids.push(fence.partition_id.0);
                    self.ack_epochs.push(fence.epoch.0);
                    self.ack_from.push(from.0);
                    self.ack_to.push(to.0);
                    self.ack_to.len() - 1
                }
            };
            self.ack_ends.insert((place, to.0), ack);
        }
    }

    /// Adds which of that are parked copies.
    pub fn copies(&mut self, fence: &Fence, offsets: &[Offset]) {
        for offset in offsets {
            self.copies.0.push(fence.group_id.0);
            self.copies.1.push(fence.partition_id.0);
            self.copies.2.push(offset.0);
        }
    }

    /// Adds when that was delivered and acknowledged; `now`: what it is as old as.
    pub fn times(&mut self, fence: &Fence, times: &[LaneTime], now: Instant) {
        let lane = (fence.group_id.0, fence.partition_id.0);
        for time in times {
            let last = self.time_lasts.get(&lane).filter(|(_, last)| last.goes_on_with(time)).copied();
            let place = match last {
                Some((place, last)) => {
                    self.times.end_offsets[place] = time.end.0;
                    self.time_lasts.insert(lane, (place, LaneTime { end: time.end, ..last }));
                    continue;
                }
                None => self.times.end_offsets.len(),
            };
            self.time_group_ids.push(lane.0);
            self.time_partition_ids.push(lane.1);
            self.times.add(time, now);
            self.time_lasts.insert(lane, (place, *time));
        }
    }

    /// The last step writes to a partition.
    pub fn partition(&mut self, partition_id: PartitionId) {
        self.partition_steps.push(self.number());
        self.partition_ids.push(partition_id.0);
    }

    /// The steps that write to some of these partitions, counted from 0.
    fn writing_to(&self, partitions: &[PartitionId]) -> Vec<usize> {
        let of_steps = self.partition_steps.iter().zip(&self.partition_ids);
        let theirs = of_steps.filter(|(_, id)| partitions.contains(&PartitionId(**id)));
        theirs.map(|(step, _)| *step as usize - 1).collect()
    }

    /// Adds a message of the last step, by the number of its partition.
    pub fn message(&mut self, partition: u32, place: Place) {
        let (batch, place) = match place {
            Place::Batch { batch, position } => (batch, i64::from(position)),
            Place::Schedule { unit, position } => (-unit, i64::from(position)),
            Place::Stored(offset) => (0, offset.0),
        };
        self.message_steps.push(self.number());
        self.message_partitions.push(partition as i32);
        self.message_batches.push(batch);
        self.message_places.push(place);
    }

    /// The last message is due at a time; one that counts from now needs no judgement.
    pub fn due(&mut self, due: Due) {
        if let (Some(at), _) = due.params() {
            self.due_messages.push(self.message_steps.len() as i32);
            self.due_ats.push(at);
        }
    }

    /// The last message has a name that may be known.
    pub fn named(&mut self, partition_id: PartitionId, by: NamedBy<'a>) {
        self.id_messages.push(self.message_steps.len() as i32);
        self.id_partition_ids.push(partition_id.0);
        self.id_transaction_ids.push(by.transaction_id);
        self.id_windows_ms.push(by.window_ms);
    }
}

/// Why a flush of steps has written nothing. Steps and messages count from 0, in the order of adding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The step was done before.
    Known { step: usize, done: DoneStep },
    /// A lane of the step has another holder or epoch.
    LeaseLost { step: usize },
    /// A partition of the step is gone.
    PartitionGone { step: usize },
    /// A partition of the step takes nothing now.
    PartitionPaused { step: usize },
    /// A partition of the step takes only what is sealed, and a message is not.
    PartitionUnsealed { step: usize },
    /// A message has an older copy of the same transaction id.
    Repeated { message: usize, offset: Offset },
    /// The time of a message is not taken.
    Time { message: usize, fault: TimeFault },
}

/// What became of a flush of steps.
#[derive(Debug)]
pub enum Outcome {
    /// All of them are done; the reports are of their batches, and of the units that wait.
    Committed { stored: Vec<Report>, scheduled: Vec<UnitReport> },
    /// Nothing was written, because of these.
    Obstructed(Vec<Obstacle>),
    /// Rolled back or never sent.
    NothingHappened(Error),
    /// The connection was lost with the commit on its way.
    Unknown(Error),
}

impl Connection {
    /// Writes steps: all of them, or none.
    ///
    /// Cancel safety: none. Dropped half-way, the outcome is unknown and the connection is not used again.
    pub async fn flush_steps(
        &self,
        steps: &StepColumns<'_>,
        flush: &Flush<'_>,
        schedules: &ScheduleColumns<'_>,
    ) -> Outcome {
        let columns = flush.columns();
        let messages = flush.params(&columns);
        let lanes: [&(dyn ToSql + Sync); 4] =
            [&steps.lanes.group_ids, &steps.lanes.partition_ids, &steps.lanes.epochs, &steps.lanes.sessions];
        let plain = [flush.plain(), schedules.plain()].concat();
        let partitions: [&(dyn ToSql + Sync); 2] = [&steps.partition_ids, &plain];
        let (bounds, no_bounds) = (bounds(), no_bounds());
        let check = check_params(steps, &bounds);
        let waiting = schedules.params(&no_bounds);
        let insert = insert_params(steps, flush);
        let copies: [&(dyn ToSql + Sync); 3] = [&steps.copies.0, &steps.copies.1, &steps.copies.2];
        let writes = !steps.partition_ids.is_empty();
        let mut statements: Vec<(&'static Query, Params<'_>)> = vec![(&STEPS_LOCK_LANES, &lanes)];
        if writes {
            statements.push((&PARTITIONS_LOCK_WAITING, &partitions));
        }
        statements.push((&STEPS_CHECK, &check));
        if writes {
            statements.push((&MESSAGES_APPEND, &messages));
        }
        if !schedules.units.is_empty() {
            statements.push((&SCHEDULES_INSERT, &waiting));
        }
        statements.push((&STEPS_INSERT, &insert));
        let keys = distinct(flush.messages.data_key_ids.iter().chain(&schedules.data_key_ids));
        let hold: [&(dyn ToSql + Sync); 1] = [&keys];
        if !keys.is_empty() {
            statements.push((&DATA_KEYS_HOLD, &hold));
        }
        if !steps.copies.0.is_empty() {
            statements.push((&PARKED_MESSAGES_STEP, &copies));
        }
        let bytes = flush.batches.bytes.iter().sum::<i64>() + schedules.bytes;
        match self.pipeline(STEPS, stall_for(bytes), &statements).await {
            Pipelined::Committed(rows) => committed(&rows, writes, steps, schedules),
            Pipelined::NothingHappened(error) => Outcome::NothingHappened(error),
            Pipelined::Unknown(error) => Outcome::Unknown(error),
        }
    }
}

fn check_params<'a>(
    steps: &'a StepColumns<'_>,
    (past_ms, ahead_ms): &'a (i64, i64),
) -> [&'a (dyn ToSql + Sync); 13] {
    [
        &steps.step_ids,
        &steps.lane_steps,
        &steps.lane_places,
        &steps.partition_steps,
        &steps.partition_ids,
        &steps.id_messages,
        &steps.id_partition_ids,
        &steps.id_transaction_ids,
        &steps.id_windows_ms,
        &steps.due_messages,
        &steps.due_ats,
        past_ms,
        ahead_ms,
    ]
}

fn insert_params<'a>(steps: &'a StepColumns<'_>, flush: &'a Flush<'_>) -> [&'a (dyn ToSql + Sync); 19] {
    let [first_offsets, end_offsets, delivered_us, acked_us] = steps.times.params();
    [
        &steps.step_ids,
        &steps.digests,
        &steps.message_steps,
        &steps.message_partitions,
        &steps.message_batches,
        &steps.message_places,
        &flush.batches.partition_ids,
        &flush.batches.messages,
        &steps.ack_group_ids,
        &steps.ack_partition_ids,
        &steps.ack_epochs,
        &steps.ack_from,
        &steps.ack_to,
        &steps.time_group_ids,
        &steps.time_partition_ids,
        first_offsets,
        end_offsets,
        delivered_us,
        acked_us,
    ]
}

/// The rows of each statement, in the order of sending.
fn committed(
    rows: &[Vec<Row>],
    writes: bool,
    steps: &StepColumns<'_>,
    schedules: &ScheduleColumns<'_>,
) -> Outcome {
    let (check, append) = if writes { (&rows[2], Some(&rows[3])) } else { (&rows[1], None) };
    let refused = if writes { Refused::of(&rows[1]) } else { Refused::default() };
    let paused = steps.writing_to(&refused.paused);
    let unsealed = steps.writing_to(&refused.unsealed);
    match check.is_empty() {
        true => {
            let stored = append.into_iter().flatten().map(Report::of).collect();
            let scheduled = match schedules.units.is_empty() {
                true => Vec::new(),
                false => unit_reports(schedules.partition_ids.len(), &rows[4]), // only what writes has schedules
            };
            Outcome::Committed { stored, scheduled }
        }
        false => Outcome::Obstructed(check.iter().map(|row| obstacle(row, &paused, &unsealed)).collect()),
    }
}

/// `paused`: the steps that write to a partition which takes nothing now; `unsealed`: to one which takes only what is sealed.
fn obstacle(row: &Row, paused: &[usize], unsealed: &[usize]) -> Obstacle {
    let place = row.get::<_, i32>("place") as usize - 1;
    match row.get::<_, &str>("kind") {
        "known" => Obstacle::Known { step: place, done: done_step(row) },
        "lost" => Obstacle::LeaseLost { step: place },
        "gone" if paused.contains(&place) => Obstacle::PartitionPaused { step: place },
        "gone" if unsealed.contains(&place) => Obstacle::PartitionUnsealed { step: place },
        "gone" => Obstacle::PartitionGone { step: place },
        word @ ("past" | "far") => Obstacle::Time { message: place, fault: TimeFault::of(word) },
        _ => {
            let offsets: Vec<i64> = row.get("offsets");
            Obstacle::Repeated { message: place, offset: Offset(offsets.first().copied().unwrap_or(0)) }
        }
    }
}

fn done_step(row: &Row) -> DoneStep {
    let (partitions, offsets): (Vec<i32>, Vec<i64>) = (row.get("partitions"), row.get("offsets"));
    let placed = partitions.into_iter().zip(offsets);
    let placed =
        placed.map(|(partition, offset)| Placed { partition: partition as u32, offset: Offset(offset) });
    DoneStep { digest: row.get("digest"), placed: placed.collect() }
}

/// A lane as a step names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedLane {
    pub group_id: GroupId,
    pub partition_id: PartitionId,
    pub epoch: Epoch,
}

/// What is known about a step that cannot be tried here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Done(DoneStep),
    /// It is not done, and never will be: a lane that it names has another epoch by now.
    Never,
    /// It is not done; a try that is still under way somewhere may do it yet.
    Open,
}

impl Store {
    /// How a step stands, after whoever is at work on its lanes has finished.
    pub async fn steps_stand(&self, step_id: StepId, lanes: &[NamedLane]) -> Result<Standing, Error> {
        let mut lanes = lanes.to_vec();
        lanes.sort_unstable_by_key(|lane| (lane.group_id, lane.partition_id));
        let group_ids: Vec<i64> = lanes.iter().map(|lane| lane.group_id.0).collect();
        let partition_ids: Vec<i64> = lanes.iter().map(|lane| lane.partition_id.0).collect();
        let epochs: Vec<i64> = lanes.iter().map(|lane| lane.epoch.0).collect();
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            let params: Params<'_> = &[&group_ids, &partition_ids, &epochs];
            let held = transaction.query(&STEPS_HOLD_LANES, params, Effect::None).await?;
            let done = transaction.query_opt(&STEPS_FIND, &[&step_id.0], Effect::None).await?;
            transaction.rollback().await?;
            let stands = held.len() == lanes.len() && held.iter().all(|row| row.get("stands"));
            Ok(match (done, stands) {
                (Some(row), _) => Standing::Done(done_step(&row)),
                (None, false) => Standing::Never,
                (None, true) => Standing::Open,
            })
        })
        .await
    }

    /// Forgets steps that nobody may ask for any more, and acks of steps that commits know, in short transactions.
    pub async fn steps_expire(&self) -> Result<u64, Error> {
        let mut gone = 0;
        let (window_ms, age_ms) = (STEP_WINDOW.as_millis() as i64, STEP_ACK_AGE_MIN.as_millis() as i64);
        for (query, age) in [(&STEPS_EXPIRE, window_ms), (&STEP_ACKS_FORGET, age_ms)] {
            loop {
                let connection = self.connection().await?;
                let rows = connection.execute(query, &[&EXPIRE_ROWS_MAX, &age]).await?;
                gone += rows;
                if rows < EXPIRE_ROWS_MAX as u64 {
                    break;
                }
            }
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::SessionId;

    fn fence(partition: i64) -> Fence {
        let (group_id, partition_id) = (GroupId(1), PartitionId(partition));
        Fence { group_id, partition_id, epoch: Epoch(1), session_id: SessionId(Uuid::nil()) }
    }

    #[test]
    fn neighbours_of_one_lane_are_one_row_and_others_are_not() {
        let now = Instant::now() + Duration::from_secs(60);
        let time = |first: i64, acked_after_ms| LaneTime {
            first: Offset(first),
            end: Offset(first + 1),
            delivered_at: now - Duration::from_secs(50),
            acked_at: now - Duration::from_secs(40) + Duration::from_millis(acked_after_ms),
        };
        let mut columns = StepColumns::default();
        // The third is of another lane, the fourth leaves one out, the fifth was acknowledged much later.
        for (partition, offset, after_ms) in [(7, 10, 0), (7, 11, 9), (8, 12, 9), (7, 13, 9), (7, 14, 500)] {
            columns.ack(&fence(partition), &[(Offset(offset), Offset(offset + 1))]);
            columns.times(&fence(partition), &[time(offset, after_ms)], now);
        }
        assert_eq!(columns.ack_partition_ids, [7, 8, 7]);
        assert_eq!((columns.ack_from, columns.ack_to), (vec![10, 12, 13], vec![12, 13, 15]));
        assert_eq!(columns.time_partition_ids, [7, 8, 7, 7]);
        assert_eq!(columns.times.first_offsets, [10, 12, 13, 14]);
        assert_eq!(columns.times.end_offsets, [12, 13, 14, 15]);
    }
}
