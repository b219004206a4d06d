//! Messages that wait for their time: written down, listed, moved, cancelled. What is due is [`fires`](super::fires)'.
//!
//! Whoever changes a row of `schedule` holds the lock of its partition: ids rise in the order of commits, and a message is
//! appended, moved or cancelled by one transaction alone. What is due is taken out and appended by the same statement.
//! Locks: partition rows, by id. Order: the locks, then what depends on them, with a younger snapshot, in one READ COMMITTED
//! transaction and round trip.

use std::time::Duration;

use jiff::Timestamp;
use postgres_types::ToSql;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Connection, Params, Pipelined};
use super::data_keys::{DATA_KEYS_HOLD, distinct};
use super::dead_letters::{COMMITS_WAIT, Rest};
use super::error::{Effect, Error};
use super::flush::stall_for;
use super::locks::{NOTHING_PLAIN, PARTITIONS_LOCK_WAITING, Refused, plain};
use super::messages::{Message, message};
use super::query::query;
use super::{Store, retry};
use crate::encryption::Place;
use crate::ids::{Offset, PartitionId, ScheduleId, TopicId};
use crate::limits::{SCHEDULE_AHEAD_MAX, SCHEDULE_PAST_MAX};

query!(
    SCHEDULES_INSERT = "schedules_insert"[
        INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, // units
        INT4_ARRAY, TIMESTAMPTZ_ARRAY, INT8_ARRAY, UUID_ARRAY, INT8_ARRAY, UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, // messages
        BYTEA_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, TEXT_ARRAY, // messages, continued
        INT8, INT8, INT8_ARRAY, UUID_ARRAY // bounds; ttls and data keys of messages
    ]
);
query!(SCHEDULES_LIST = "schedules_list"[INT8, INT8, INT8, INT8]);
query!(SCHEDULES_SUM = "schedules_sum"[]);
query!(SCHEDULES_FIND = "schedules_find"[INT8]);
query!(SCHEDULES_CANCEL = "schedules_cancel"[INT8]);
query!(SCHEDULES_MOVE = "schedules_move"[INT8, TIMESTAMPTZ, INT8, INT8, INT8]);

/// The transaction's name in the metrics.
const SCHEDULE: &str = "schedule";

/// When a message is to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    At(Timestamp),
    /// Counted on the database clock, from when it is written down.
    After(Duration),
}

impl Due {
    /// As the statements take it: one of both.
    pub(super) fn params(self) -> (Option<Timestamp>, Option<i64>) {
        match self {
            Due::At(at) => (Some(at), None),
            Due::After(delay) => (None, Some(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))),
        }
    }
}

/// How many messages of a topic wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledSum {
    pub topic: String,
    pub messages: i64,
}

/// Why a time is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeFault {
    #[error("the time is past by more than {} s", SCHEDULE_PAST_MAX.as_secs())]
    Past,
    #[error("the time is more than {} days ahead", SCHEDULE_AHEAD_MAX.as_secs() / 86_400)]
    Far,
}

impl TimeFault {
    pub(super) fn of(word: &str) -> Self {
        if word == "past" { TimeFault::Past } else { TimeFault::Far }
    }
}

/// Where a message stands that was to be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It waits from now on.
    New(ScheduleId),
    /// It was scheduled before; it may have been appended meanwhile.
    Scheduled(ScheduleId),
    /// A copy of the same transaction id is stored.
    Stored(Offset),
}

/// What became of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitReport {
    /// Of its messages in their order, and when the first new one is due.
    Written { standings: Vec<Standing>, first_due_at: Option<Timestamp> },
    /// Nothing of it was written, because of the time of one message, by its place.
    Refused { place: usize, fault: TimeFault },
    /// Its partition is gone.
    Gone,
    /// An operator has paused its topic.
    Paused,
    /// Its topic is encrypted, and something of it is not sealed.
    Unsealed,
}

/// What became of a transaction that writes schedules down.
#[derive(Debug)]
pub enum Outcome {
    /// A report per unit, in their order.
    Committed(Vec<UnitReport>),
    NothingHappened(Error),
    Unknown(Error),
}

/// Schedules to be written down, column by column. Units count from 1.
#[derive(Debug, Default)]
pub struct ScheduleColumns<'a> {
    pub partition_ids: Vec<i64>,
    pub topic_ids: Vec<i64>,
    pub windows_ms: Vec<i64>,
    pub units: Vec<i32>,
    deliver_ats: Vec<Option<Timestamp>>,
    delays_ms: Vec<Option<i64>>,
    pub producer_ids: Vec<Option<Uuid>>,
    pub sequences: Vec<Option<i64>>,
    pub trace_ids: Vec<Uuid>,
    pub cause_partition_ids: Vec<Option<i64>>,
    pub cause_offsets: Vec<Option<i64>>,
    pub keys: Vec<Option<&'a [u8]>>,
    pub transaction_ids: Vec<Option<&'a str>>,
    pub headers: Vec<Option<&'a str>>,
    pub content_types: Vec<Option<&'a str>>,
    pub payloads: Vec<&'a [u8]>,
    pub producers: Vec<Option<&'a str>>,
    /// Of each message, as the text of an array.
    pub links: Vec<Option<String>>,
    pub ttls_ms: Vec<Option<i64>>,
    /// What has sealed the payloads.
    pub data_key_ids: Vec<Option<Uuid>>,
    /// Of all messages together.
    pub bytes: i64,
}

impl ScheduleColumns<'_> {
    /// Adds when the next message is due.
    pub fn due(&mut self, due: Due) {
        let (deliver_at, delay_ms) = due.params();
        self.deliver_ats.push(deliver_at);
        self.delays_ms.push(delay_ms);
    }

    /// The partitions for which a message is written down as it is.
    pub(super) fn plain(&self) -> Vec<i64> {
        plain(&self.partition_ids, &self.units, &self.data_key_ids)
    }

    pub(super) fn params<'p>(&'p self, (past_ms, ahead_ms): &'p (i64, i64)) -> [&'p (dyn ToSql + Sync); 22] {
        [
            &self.partition_ids,
            &self.topic_ids,
            &self.windows_ms,
            &self.units,
            &self.deliver_ats,
            &self.delays_ms,
            &self.producer_ids,
            &self.sequences,
            &self.trace_ids,
            &self.cause_partition_ids,
            &self.cause_offsets,
            &self.keys,
            &self.transaction_ids,
            &self.headers,
            &self.content_types,
            &self.payloads,
            &self.producers,
            &self.links,
            past_ms,
            ahead_ms,
            &self.ttls_ms,
            &self.data_key_ids,
        ]
    }
}

impl Connection {
    /// Writes schedules down; each unit whole, or not at all.
    ///
    /// Cancel safety: none. Dropped half-way, the outcome is unknown and the connection is not used again.
    pub async fn schedules_insert(&self, columns: &ScheduleColumns<'_>) -> Outcome {
        let bounds = bounds();
        let plain = columns.plain();
        let locks: [&(dyn ToSql + Sync); 2] = [&columns.partition_ids, &plain];
        let insert = columns.params(&bounds);
        let keys = distinct(&columns.data_key_ids);
        let hold: [&(dyn ToSql + Sync); 1] = [&keys];
        let mut statements = vec![(&PARTITIONS_LOCK_WAITING, &locks[..]), (&SCHEDULES_INSERT, &insert[..])];
        if !keys.is_empty() {
            statements.push((&DATA_KEYS_HOLD, &hold));
        }
        match self.pipeline(SCHEDULE, stall_for(columns.bytes), &statements).await {
            Pipelined::Committed(rows) => {
                let mut reports = unit_reports(columns.partition_ids.len(), &rows[1]);
                let Refused { paused, unsealed } = Refused::of(&rows[0]);
                let units = reports.iter_mut().zip(&columns.partition_ids);
                for (report, id) in units.filter(|(report, _)| **report == UnitReport::Gone) {
                    if paused.contains(&PartitionId(*id)) {
                        *report = UnitReport::Paused;
                    } else if unsealed.contains(&PartitionId(*id)) {
                        *report = UnitReport::Unsealed;
                    }
                }
                Outcome::Committed(reports)
            }
            Pipelined::NothingHappened(error) => Outcome::NothingHappened(error),
            Pipelined::Unknown(error) => Outcome::Unknown(error),
        }
    }
}

pub(super) fn bounds() -> (i64, i64) {
    (SCHEDULE_PAST_MAX.as_millis() as i64, SCHEDULE_AHEAD_MAX.as_millis() as i64)
}

/// For messages of steps, whose times are judged before: nothing that passes there may be refused a moment later.
pub(super) fn no_bounds() -> (i64, i64) {
    let (_, ahead_ms) = bounds();
    (ahead_ms, ahead_ms * 2)
}

pub(super) fn unit_reports(units: usize, rows: &[Row]) -> Vec<UnitReport> {
    let mut reports = vec![UnitReport::Gone; units];
    for row in rows {
        let unit = row.get::<_, i32>("unit") as usize - 1;
        reports[unit] = unit_report(row);
    }
    reports
}

fn unit_report(row: &Row) -> UnitReport {
    if let Some(fault) = row.get::<_, Option<&str>>("fault") {
        let place = row.get::<_, Option<i64>>("fault_at").unwrap_or(0) as usize;
        return UnitReport::Refused { place, fault: TimeFault::of(fault) };
    }
    let (places, fresh): (Vec<i64>, Vec<bool>) = (row.get("places"), row.get("fresh"));
    let standing = |(place, is_new): (i64, bool)| match (place, is_new) {
        (id, true) => Standing::New(ScheduleId(-id)),
        (id @ ..0, false) => Standing::Scheduled(ScheduleId(-id)),
        (offset, false) => Standing::Stored(Offset(offset)),
    };
    let standings = places.into_iter().zip(fresh).map(standing).collect();
    UnitReport::Written { standings, first_due_at: row.get("first_due_at") }
}

/// A message that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub id: ScheduleId,
    pub topic: String,
    /// The number of its partition.
    pub partition: u32,
    pub partition_id: PartitionId,
    pub due_at: Timestamp,
    pub scheduled_at: Timestamp,
    /// As it was published; it has no offset yet.
    pub message: Message,
    /// Why its payload is left out: it does not open here.
    pub unopened: Option<Error>,
}

/// Some schedules, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulePage {
    pub schedules: Vec<Schedule>,
    pub rest: Rest,
}

/// Which schedules are listed.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleFilter {
    pub topic_id: Option<TopicId>,
    pub after: ScheduleId,
    pub limit: u32,
    /// The first comes whatever its size.
    pub bytes: u64,
}

impl Store {
    /// One page of schedules, by id. Those that do not open are among them, without their payloads.
    pub async fn schedules_list(&self, filter: ScheduleFilter) -> Result<SchedulePage, Error> {
        let topic_id = filter.topic_id.map(|id| id.0);
        let limit = i64::from(filter.limit);
        let bytes = i64::try_from(filter.bytes).unwrap_or(i64::MAX);
        let params: Params<'_> = &[&topic_id, &filter.after.0, &limit, &bytes];
        let connection = self.connection().await?;
        let rows = connection.query(&SCHEDULES_LIST, params, Effect::None).await?;
        let found: i64 = rows.first().map_or(0, |row| row.get("found"));
        let rest = if found > rows.len() as i64 { Rest::More } else { Rest::End };
        let mut schedules: Vec<Schedule> = rows.iter().map(schedule).collect();
        let unopened = self.open_each(&connection, Place::Message, opened(&mut schedules)).await?;
        schedules.iter_mut().zip(unopened).for_each(|(schedule, unopened)| schedule.unopened = unopened);
        Ok(SchedulePage { schedules, rest })
    }

    /// How many messages wait, topic by topic. Costs what partitions have had schedules, however many wait.
    pub async fn schedules_sum(&self) -> Result<Vec<ScheduledSum>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&SCHEDULES_SUM, &[], Effect::None).await?;
        let sum = |row: &Row| ScheduledSum { topic: row.get("topic"), messages: row.get("scheduled") };
        Ok(rows.iter().map(sum).collect())
    }

    /// A schedule by id, if it still waits.
    pub async fn schedules_find(&self, id: ScheduleId) -> Result<Option<Schedule>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&SCHEDULES_FIND, &[&id.0], Effect::None).await?;
        let mut found = row.as_ref().map(schedule);
        self.open_all(&connection, Place::Message, opened(found.as_mut_slice())).await?;
        Ok(found)
    }

    /// The partition of a schedule, whether its payload opens or not; `None`: it no longer waits.
    pub async fn schedules_home(&self, id: ScheduleId) -> Result<Option<PartitionId>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&SCHEDULES_FIND, &[&id.0], Effect::None).await?;
        Ok(row.map(|row| PartitionId(row.get("partition_id"))))
    }

    /// Takes a schedule out; `None`: it no longer waits.
    pub async fn schedules_cancel(
        &self,
        id: ScheduleId,
        partition_id: PartitionId,
    ) -> Result<Option<()>, Error> {
        let done = self.schedules_change(partition_id, &SCHEDULES_CANCEL, &[&id.0]).await?;
        Ok(done.map(|_| ()))
    }

    /// Gives a schedule another time, and says which on the database clock; `None`: it no longer waits.
    pub async fn schedules_move(
        &self,
        id: ScheduleId,
        partition_id: PartitionId,
        due: Due,
    ) -> Result<Option<Result<Timestamp, TimeFault>>, Error> {
        let (deliver_at, delay_ms) = due.params();
        let (past_ms, ahead_ms) = bounds();
        let params: Params<'_> = &[&id.0, &deliver_at, &delay_ms, &past_ms, &ahead_ms];
        let row = self.schedules_change(partition_id, &SCHEDULES_MOVE, params).await?;
        Ok(row.map(|row| match row.get::<_, Option<&str>>("fault") {
            Some(fault) => Err(TimeFault::of(fault)),
            None => Ok(row.get("due_at")),
        }))
    }

    /// One statement about a schedule, under the lock of its partition.
    async fn schedules_change(
        &self,
        partition_id: PartitionId,
        query: &'static super::query::Query,
        params: Params<'_>,
    ) -> Result<Option<Row>, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            transaction.query(&COMMITS_WAIT, &[], Effect::None).await?;
            let locks: Params<'_> = &[&vec![partition_id.0], &NOTHING_PLAIN];
            transaction.query(&PARTITIONS_LOCK_WAITING, locks, Effect::None).await?;
            let row = transaction.query_opt(query, params, Effect::None).await?;
            transaction.commit().await?;
            Ok(row)
        })
        .await
    }
}

/// What is to be opened of schedules.
fn opened(schedules: &mut [Schedule]) -> Vec<(PartitionId, &mut Message)> {
    schedules.iter_mut().map(|schedule| (schedule.partition_id, &mut schedule.message)).collect()
}

fn schedule(row: &Row) -> Schedule {
    Schedule {
        id: ScheduleId(row.get("schedule_id")),
        topic: row.get("topic"),
        partition: row.get::<_, i32>("number") as u32,
        partition_id: PartitionId(row.get("partition_id")),
        due_at: row.get("due_at"),
        scheduled_at: row.get("scheduled_at"),
        message: message(row),
        unopened: None,
    }
}
