//! The flush: everything a broker publishes at once, in one transaction and one round trip.
//!
//! The appender fills a [`Flush`] column by column; Postgres locks, deduplicates and numbers under one snapshot that is
//! younger than the locks. What the flush returns is a row per batch and per misfit, never a row per message: a frozen
//! client whose answer overflows the socket would hold its locks past every timeout.
//! What sessions have acknowledged joins it: a commit of a lane is a row more, not a transaction more.
//! Locks: lane rows, then partition rows, each by id. Order: the locks, then `messages_append` and `lane_commits_insert`,
//! in one READ COMMITTED transaction.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use postgres_types::ToSql;
use uuid::Uuid;

use super::connection::{Connection, Params, Pipelined};
use super::data_keys::{DATA_KEYS_HOLD, distinct};
use super::error::{Effect, Error};
use super::lanes::{Commit, Fence};
use super::locks::plain;
pub use super::locks::{LockMode, Refused};
use super::query::{Query, query};
use super::times::TimeColumns;
use crate::ids::{Offset, Sequence};
use crate::limits::{
    APPENDER_STALL_TIMEOUT, FLUSH_BYTES_MAX, FLUSH_LOCKS_PER_PARTITION, FLUSH_PARTITIONS_MAX, FLUSH_PATIENCE,
};

query!(LANES_LOCK = "lanes_lock"[INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, UUID_ARRAY]);
query!(
    LANE_COMMITS_INSERT = "lane_commits_insert"[
        INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, TEXT_ARRAY, // lanes
        INT4_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY // times
    ]
);
query!(LOCKS_LIMIT = "locks_limit"[TEXT]);
query!(LOCKS_ROOM = "locks_room"[]);
query!(
    MESSAGES_APPEND = "messages_append"[
        INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, // batches
        INT4_ARRAY, UUID_ARRAY, INT8_ARRAY, // checks
        INT4_ARRAY, UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, TEXT_ARRAY, // runs
        INT4_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, // ids
        INT4_ARRAY, INT4_ARRAY, UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY, // messages
        TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, // messages, continued
        INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, // traces
        INT4_ARRAY, INT4_ARRAY, UUID_ARRAY, UUID_ARRAY, // links
        INT8_ARRAY, // checks, continued
        INT8_ARRAY, UUID_ARRAY // messages, more
    ]
);

/// What the link to the database must carry at least: about 80 Mbit/s.
const SLOWEST_LINK_BYTES_PER_MS: u64 = 10_000;

/// The transaction's name in the metrics.
const FLUSH: &str = "flush";

/// Where the first message of a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In this flush, counted from the start of its batch.
    Position(i64),
    /// Already stored: an older copy with the same transaction id.
    Stored(Offset),
}

/// Partitions and what is written to each; the others refer to them by number, from 1.
#[derive(Debug, Default)]
pub struct Batches {
    pub partition_ids: Vec<i64>,
    pub messages: Vec<i32>,
    pub bytes: Vec<i64>,
}

/// The first sequence that each producer sends to a batch.
#[derive(Debug, Default)]
pub struct Checks {
    pub batch: Vec<i32>,
    pub producer_ids: Vec<Uuid>,
    pub first_sequences: Vec<i64>,
    /// Where the partition stands if the sequence is known to fit; else it is looked up.
    pub known_offsets: Vec<Option<i64>>,
}

/// Runs to remember: pieces of what a producer sent that stand together.
#[derive(Debug, Default)]
pub struct Runs {
    pub batch: Vec<i32>,
    pub producer_ids: Vec<Uuid>,
    pub first_sequences: Vec<i64>,
    pub last_sequences: Vec<i64>,
    pub places: Vec<i64>,
    pub placed_by: Vec<&'static str>,
}

impl Runs {
    /// Adds one message; it lengthens the last run if both its sequence and its place follow on.
    pub fn add(&mut self, batch: i32, producer_id: Uuid, sequence: i64, place: Place) {
        let (place, placed_by) = match place {
            Place::Position(position) => (position, "position"),
            Place::Stored(offset) => (offset.0, "offset"),
        };
        if self.follows(batch, producer_id, sequence, place, placed_by) {
            if let Some(last) = self.last_sequences.last_mut() {
                *last = sequence;
            }
            return;
        }
        self.batch.push(batch);
        self.producer_ids.push(producer_id);
        self.first_sequences.push(sequence);
        self.last_sequences.push(sequence);
        self.places.push(place);
        self.placed_by.push(placed_by);
    }

    fn follows(&self, batch: i32, producer_id: Uuid, sequence: i64, place: i64, placed_by: &str) -> bool {
        let Some(run) = self.batch.len().checked_sub(1) else { return false };
        let length = self.last_sequences[run] - self.first_sequences[run] + 1;
        self.batch[run] == batch
            && self.producer_ids[run] == producer_id
            && self.first_sequences[run] + length == sequence
            && self.places[run] + length == place
            && self.placed_by[run] == placed_by
    }
}

/// Transaction ids to look up and to remember.
#[derive(Debug, Default)]
pub struct TransactionIds<'a> {
    pub batch: Vec<i32>,
    pub position: Vec<i32>,
    pub transaction_ids: Vec<&'a str>,
    pub windows_ms: Vec<i64>,
}

/// The messages themselves, batch by batch.
#[derive(Debug, Default)]
pub struct Messages<'a> {
    pub batch: Vec<i32>,
    pub position: Vec<i32>,
    pub trace_ids: Vec<Uuid>,
    pub cause_partition_ids: Vec<Option<i64>>,
    pub cause_offsets: Vec<Option<i64>>,
    pub keys: Vec<Option<&'a [u8]>>,
    pub transaction_ids: Vec<Option<&'a str>>,
    pub headers: Vec<Option<&'a str>>,
    pub content_types: Vec<Option<&'a str>>,
    pub payloads: Vec<&'a [u8]>,
    pub producers: Vec<Option<&'a str>>,
    pub ttls_ms: Vec<Option<i64>>,
    /// What has sealed the payloads.
    pub data_key_ids: Vec<Option<Uuid>>,
}

/// The first halves of the trace ids of each batch: `all[first..=last]`, counted from 1.
#[derive(Debug, Default)]
pub struct Traces {
    pub first: Vec<i32>,
    pub last: Vec<i32>,
    pub all: Vec<i64>,
}

/// Traces that messages have named.
#[derive(Debug, Default)]
pub struct Links {
    pub batch: Vec<i32>,
    pub position: Vec<i32>,
    pub trace_ids: Vec<Uuid>,
    pub linked_trace_ids: Vec<Uuid>,
}

/// What is done of some lanes, each under its fence.
#[derive(Debug, Default)]
pub struct LaneCommits {
    pub group_ids: Vec<i64>,
    pub partition_ids: Vec<i64>,
    pub epochs: Vec<i64>,
    pub sessions: Vec<Uuid>,
    pub numbers: Vec<i64>,
    pub committed_offsets: Vec<i64>,
    pub acked: Vec<String>,
    /// The lane that each of the times belongs to, counted from 1.
    time_places: Vec<i32>,
    times: TimeColumns,
}

impl LaneCommits {
    /// Adds one; its place in the reports is the order of adding. `now`: what its times are as old as.
    pub fn add(&mut self, fence: &Fence, commit: &Commit, now: Instant) {
        self.group_ids.push(fence.group_id.0);
        self.partition_ids.push(fence.partition_id.0);
        self.epochs.push(fence.epoch.0);
        self.sessions.push(fence.session_id.0);
        self.numbers.push(commit.number);
        self.committed_offsets.push(commit.committed.0);
        self.acked.push(commit.acked.clone());
        for time in commit.times.iter() {
            self.time_places.push(self.group_ids.len() as i32);
            self.times.add(time, now);
        }
    }

    /// The parameters of `lane_commits_insert`; `lanes_lock` takes the first four.
    fn params(&self) -> [&(dyn ToSql + Sync); 12] {
        let [first_offsets, end_offsets, delivered_us, acked_us] = self.times.params();
        [
            &self.group_ids,
            &self.partition_ids,
            &self.epochs,
            &self.sessions,
            &self.numbers,
            &self.committed_offsets,
            &self.acked,
            &self.time_places,
            first_offsets,
            end_offsets,
            delivered_us,
            acked_us,
        ]
    }

    fn is_empty(&self) -> bool {
        self.group_ids.is_empty()
    }
}

/// One flush, column by column.
#[derive(Debug, Default)]
pub struct Flush<'a> {
    pub lanes: LaneCommits,
    pub batches: Batches,
    pub checks: Checks,
    pub runs: Runs,
    pub ids: TransactionIds<'a>,
    pub messages: Messages<'a>,
    pub traces: Traces,
    pub links: Links,
}

/// What a flush reports. `batch` counts from 0 here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A batch was written from this offset on.
    Stored { batch: usize, first_offset: Offset, published_at: Timestamp },
    /// A producer's first sequence did not follow the last one stored; its batch was not written.
    Sequence { batch: usize, check: usize, last: Option<Sequence> },
    /// A transaction id was known; its batch was not written.
    Repeated { batch: usize, position: usize, offset: Offset },
}

/// What became of the commit of a lane. One that was busy has no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneReport {
    Stored {
        place: usize,
    },
    /// The lane has another holder or epoch; nothing happened.
    LeaseLost {
        place: usize,
    },
}

/// What a committed flush reports.
#[derive(Debug, Default)]
pub struct Reports {
    /// Batches without one were locked by somebody else, or are refused.
    pub batches: Vec<Report>,
    pub refused: Refused,
    pub lanes: Vec<LaneReport>,
}

/// What became of a flush.
#[derive(Debug)]
pub enum Outcome {
    /// Committed.
    Committed(Reports),
    /// Rolled back or never sent.
    NothingHappened(Error),
    /// The connection was lost with the commit on its way.
    Unknown(Error),
}

impl Connection {
    /// How many partitions one flush may have, by the room that the server has for locks.
    pub async fn flush_partitions_max(&self) -> Result<usize, Error> {
        let row = self.query_opt(&LOCKS_ROOM, &[], Effect::None).await?;
        let room: i64 = row.map_or(0, |row| row.get("room"));
        let partitions = usize::try_from(room / FLUSH_LOCKS_PER_PARTITION).unwrap_or(0);
        Ok(partitions.clamp(1, FLUSH_PARTITIONS_MAX))
    }

    /// Writes a flush.
    ///
    /// Cancel safety: none. Dropped half-way, the outcome is unknown and the connection is not used again.
    pub async fn flush(&self, mode: LockMode, flush: &Flush<'_>) -> Outcome {
        let columns = flush.columns();
        let messages = flush.params(&columns);
        let plain = flush.plain();
        let partitions: [&(dyn ToSql + Sync); 2] = [&flush.batches.partition_ids, &plain];
        let commits = flush.lanes.params();
        let (has_lanes, has_batches) = (!flush.lanes.is_empty(), !flush.batches.partition_ids.is_empty());
        let patience = format!("{}ms", FLUSH_PATIENCE.as_millis());
        let patience: [&(dyn ToSql + Sync); 1] = [&patience];
        let mut statements: Vec<(&'static Query, Params<'_>)> = Vec::with_capacity(6);
        if mode == LockMode::Queue {
            statements.push((&LOCKS_LIMIT, &patience));
        }
        if has_lanes {
            statements.push((&LANES_LOCK, &commits[..4]));
        }
        if has_batches {
            statements.push((mode.query(), &partitions));
            statements.push((&MESSAGES_APPEND, &messages));
        }
        if has_lanes {
            statements.push((&LANE_COMMITS_INSERT, &commits));
        }
        let keys = distinct(&flush.messages.data_key_ids);
        let hold: [&(dyn ToSql + Sync); 1] = [&keys];
        if !keys.is_empty() {
            statements.push((&DATA_KEYS_HOLD, &hold));
        }
        let stall = stall_for(flush.batches.bytes.iter().sum());
        match self.pipeline(FLUSH, stall, &statements).await {
            Pipelined::Committed(mut rows) => {
                rows.pop_if(|_| !keys.is_empty());
                let lanes = rows.pop_if(|_| has_lanes).unwrap_or_default();
                let batches = rows.pop_if(|_| has_batches).unwrap_or_default();
                let locked = rows.pop_if(|_| has_batches).unwrap_or_default();
                Outcome::Committed(Reports {
                    batches: batches.iter().map(Report::of).collect(),
                    refused: Refused::of(&locked),
                    lanes: lanes.iter().map(lane_report).collect(),
                })
            }
            Pipelined::NothingHappened(error) => Outcome::NothingHappened(error),
            Pipelined::Unknown(error) => Outcome::Unknown(error),
        }
    }
}

/// The locks are held while the second statement arrives, so a broker that freezes meanwhile is ended after a second. Only
/// a unit that is larger than a flush should be gets more, because it cannot be sent in pieces.
pub(super) fn stall_for(bytes: i64) -> Duration {
    let beyond = (bytes as u64).saturating_sub(FLUSH_BYTES_MAX as u64);
    APPENDER_STALL_TIMEOUT + Duration::from_millis(beyond / SLOWEST_LINK_BYTES_PER_MS)
}

impl super::connection::Transaction<'_> {
    /// Writes a flush as part of a larger transaction; nothing has happened before its commit.
    pub(super) async fn append(&self, mode: LockMode, flush: &Flush<'_>) -> Result<Reports, Error> {
        use super::error::Effect;
        let plain = flush.plain();
        let locked = self.query(mode.query(), &[&flush.batches.partition_ids, &plain], Effect::None).await?;
        let columns = flush.columns();
        let rows = self.query(&MESSAGES_APPEND, &flush.params(&columns), Effect::None).await?;
        let batches = rows.iter().map(Report::of).collect();
        Ok(Reports { batches, refused: Refused::of(&locked), lanes: Vec::new() })
    }
}

/// Optional columns as they are sent: a column that the whole flush leaves empty costs nothing per row.
pub(super) struct Columns<'a> {
    cause_partition_ids: &'a [Option<i64>],
    cause_offsets: &'a [Option<i64>],
    keys: &'a [Option<&'a [u8]>],
    transaction_ids: &'a [Option<&'a str>],
    headers: &'a [Option<&'a str>],
    content_types: &'a [Option<&'a str>],
    producers: &'a [Option<&'a str>],
    ttls_ms: &'a [Option<i64>],
    data_key_ids: &'a [Option<Uuid>],
}

impl<'a> Columns<'a> {
    fn of(messages: &'a Messages<'a>) -> Self {
        Self {
            cause_partition_ids: or_empty(&messages.cause_partition_ids),
            cause_offsets: or_empty(&messages.cause_offsets),
            keys: or_empty(&messages.keys),
            transaction_ids: or_empty(&messages.transaction_ids),
            headers: or_empty(&messages.headers),
            content_types: or_empty(&messages.content_types),
            producers: or_empty(&messages.producers),
            ttls_ms: or_empty(&messages.ttls_ms),
            data_key_ids: or_empty(&messages.data_key_ids),
        }
    }
}

fn or_empty<T>(column: &[Option<T>]) -> &[Option<T>] {
    if column.iter().all(Option::is_none) { &[] } else { column }
}

impl<'f> Flush<'f> {
    /// The partitions that are to get a message as it is.
    pub(super) fn plain(&self) -> Vec<i64> {
        let Messages { batch, data_key_ids, .. } = &self.messages;
        plain(&self.batches.partition_ids, batch, data_key_ids)
    }

    /// The optional columns as they are sent.
    pub(super) fn columns(&self) -> Columns<'_> {
        Columns::of(&self.messages)
    }

    /// The parameters of `messages_append`.
    pub(super) fn params<'a>(&'a self, columns: &'a Columns<'a>) -> [&'a (dyn ToSql + Sync); 37] {
        let Flush { batches, checks, runs, ids, messages, traces, links, lanes: _ } = self;
        [
            &batches.partition_ids,
            &batches.messages,
            &batches.bytes,
            &checks.batch,
            &checks.producer_ids,
            &checks.first_sequences,
            &runs.batch,
            &runs.producer_ids,
            &runs.first_sequences,
            &runs.last_sequences,
            &runs.places,
            &runs.placed_by,
            &ids.batch,
            &ids.position,
            &ids.transaction_ids,
            &ids.windows_ms,
            &messages.batch,
            &messages.position,
            &messages.trace_ids,
            &columns.cause_partition_ids,
            &columns.cause_offsets,
            &columns.keys,
            &columns.transaction_ids,
            &columns.headers,
            &columns.content_types,
            &messages.payloads,
            &columns.producers,
            &traces.first,
            &traces.last,
            &traces.all,
            &links.batch,
            &links.position,
            &links.trace_ids,
            &links.linked_trace_ids,
            &checks.known_offsets,
            &columns.ttls_ms,
            &columns.data_key_ids,
        ]
    }
}

impl Report {
    /// A row of `messages_append`.
    pub(super) fn of(row: &tokio_postgres::Row) -> Self {
        let kind: &str = row.get("kind");
        let batch = row.get::<_, i32>("batch") as usize - 1;
        let place: i64 = row.get("place");
        match kind {
            "stored" => {
                Report::Stored { batch, first_offset: Offset(place), published_at: row.get("published_at") }
            }
            "sequence" => Report::Sequence {
                batch,
                check: place as usize - 1,
                last: row.get::<_, Option<i64>>("number").map(Sequence),
            },
            _ => Report::Repeated { batch, position: place as usize, offset: Offset(row.get("number")) },
        }
    }
}

fn lane_report(row: &tokio_postgres::Row) -> LaneReport {
    let place = row.get::<_, i32>("place") as usize - 1;
    match row.get::<_, &str>("kind") {
        "stored" => LaneReport::Stored { place },
        _ => LaneReport::LeaseLost { place },
    }
}
