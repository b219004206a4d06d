//! Reading messages: by offset both ways, and by time. Every read names one segment table.
//!
//! Who finds the segment, and crosses from one to the next, is the broker's reader; here is one statement at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::Connection;
use super::Store;
use super::error::{Effect, Error};
use super::query::{query, template};
use super::vault::Unopened;
use crate::encryption::Place;
use crate::ids::{DataKeyId, Offset, PartitionId, SegmentId, TraceId};

query!(HEADS_FIND_TIME = "heads_find_time"[INT8, TIMESTAMPTZ]);
template!(SEGMENT_READ = "segment_read"[INT8, INT8, INT8]);
template!(SEGMENT_READ_BACK = "segment_read_back"[INT8, INT8, INT8, INT8]);
template!(SEGMENT_SEARCH = "segment_search"[INT8, INT8, BYTEA, TEXT, INT8, INT8]);
template!(SEGMENT_TRACES = "segment_traces"[INT8_ARRAY]);
template!(SEGMENT_FIND_TIME = "segment_find_time"[INT8, TIMESTAMPTZ]);

/// A stored message; which partition it belongs to, the reader knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub offset: Offset,
    pub published_at: Timestamp,
    pub trace_id: TraceId,
    pub cause: Option<Cause>,
    /// Where people find its cause; the reader adds it. Absent with a cause: that topic is gone.
    pub origin: Option<Arc<Origin>>,
    pub key: Option<Bytes>,
    pub transaction_id: Option<String>,
    /// A JSON object of strings, as text.
    pub headers: Option<String>,
    pub content_type: Option<String>,
    pub payload: Bytes,
    pub producer: Option<String>,
    /// How long after its publish it is worth delivering.
    pub ttl: Option<Duration>,
    /// What has sealed it where it is stored; here it is open.
    pub data_key_id: Option<DataKeyId>,
}

impl Message {
    /// Topic, partition and offset of its cause.
    pub fn cause_named(&self) -> Option<(&str, u32, i64)> {
        let (cause, origin) = (self.cause?, self.origin.as_deref()?);
        Some((&origin.topic, origin.partition, cause.offset.0))
    }

    /// What it counts for in every sum of bytes.
    pub fn bytes(&self) -> u64 {
        let key = self.key.as_ref().map_or(0, Bytes::len);
        (self.payload.len() + key + self.headers.as_ref().map_or(0, String::len)) as u64
    }
}

/// The message that led to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    pub partition_id: PartitionId,
    pub offset: Offset,
}

/// A partition as people name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub topic: String,
    pub partition: u32,
}

/// How much one read may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    pub messages: u32,
    /// The first message comes whatever its size.
    pub bytes: u64,
}

/// Which messages a search is for.
#[derive(Debug, Clone, Copy)]
pub struct Matching<'a> {
    pub key: Option<&'a [u8]>,
    pub transaction_id: Option<&'a str>,
}

/// What a search has found in one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The newest first.
    pub messages: Vec<Message>,
    pub ending: Ending,
}

/// Why a search of a segment has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nothing else matches.
    Exhausted,
    /// The limit is reached: more may match.
    Cut,
}

/// In which direction offsets are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From an offset on.
    Forward,
    /// Before an offset, newest first, down to the floor.
    Backward { floor: Offset },
}

impl Store {
    /// Reads from one segment; [`Error::TableGone`] if retention was faster.
    pub async fn segment_read(
        &self,
        segment_id: SegmentId,
        direction: Direction,
        offset: Offset,
        limit: ReadLimit,
    ) -> Result<Vec<Message>, Error> {
        let messages = i64::from(limit.messages);
        let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
        let connection = self.connection().await?;
        let integers = [("segment_id", segment_id.0)];
        let rows = match direction {
            Direction::Forward => {
                connection.read(&SEGMENT_READ, &integers, &[&offset.0, &messages, &bytes]).await?
            }
            Direction::Backward { floor } => {
                let params: super::connection::Params<'_> = &[&offset.0, &messages, &bytes, &floor.0];
                connection.read(&SEGMENT_READ_BACK, &integers, params).await?
            }
        };
        let mut messages: Vec<Message> = rows.iter().map(message).collect();
        match self.open_rows(&connection, &rows, &mut messages).await {
            Ok(()) => Ok(messages),
            Err(Unopened { place: 0, error }) => Err(error),
            // What stands before it is given out; whoever goes on from there finds it again, first.
            Err(Unopened { place, .. }) => {
                messages.truncate(place);
                Ok(messages)
            }
        }
    }

    /// Messages of one segment that match; [`Error::TableGone`] if retention was faster.
    pub async fn segment_search(
        &self,
        segment_id: SegmentId,
        within: std::ops::Range<Offset>,
        matching: Matching<'_>,
        limit: ReadLimit,
    ) -> Result<Found, Error> {
        let messages = i64::from(limit.messages);
        let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
        let Matching { key, transaction_id } = matching;
        let params: super::connection::Params<'_> =
            &[&within.start.0, &within.end.0, &key, &transaction_id, &messages, &bytes];
        let connection = self.connection().await?;
        let rows = connection.read(&SEGMENT_SEARCH, &[("segment_id", segment_id.0)], params).await?;
        let mut found: Vec<Message> = rows.iter().map(message).collect();
        self.open_rows(&connection, &rows, &mut found).await?;
        let (came, matched) = (rows.len() as i64, rows.first().map_or(0, |row| row.get("matched")));
        let ending = if came == messages || came < matched { Ending::Cut } else { Ending::Exhausted };
        Ok(Found { messages: found, ending })
    }

    /// The traces of some messages of one segment, by offset; those that it does not hold are left out.
    pub async fn segment_traces(
        &self,
        segment_id: SegmentId,
        offsets: &[i64],
    ) -> Result<Vec<(Offset, TraceId)>, Error> {
        let connection = self.connection().await?;
        let rows = connection.read(&SEGMENT_TRACES, &[("segment_id", segment_id.0)], &[&offsets]).await?;
        Ok(rows.iter().map(|row| (Offset(row.get("offset")), TraceId(row.get("trace_id")))).collect())
    }

    /// An offset below which everything in the partition is older than a moment; the answer is a few thousand further at most.
    pub async fn heads_find_time(&self, partition_id: PartitionId, at: Timestamp) -> Result<Offset, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&HEADS_FIND_TIME, &[&partition_id.0, &at], Effect::None).await?;
        Ok(row.map_or(Offset::ZERO, |row| Offset(row.get("next_offset"))))
    }

    /// The first offset of a segment, from a given one on, that was published at or after a moment.
    pub async fn segment_find_time(
        &self,
        segment_id: SegmentId,
        from: Offset,
        at: Timestamp,
    ) -> Result<Option<Offset>, Error> {
        let connection = self.connection().await?;
        let rows =
            connection.read(&SEGMENT_FIND_TIME, &[("segment_id", segment_id.0)], &[&from.0, &at]).await?;
        Ok(rows.first().map(|row| Offset(row.get(0))))
    }
}

impl Store {
    /// Opens messages of a segment, up to the first that does not open.
    pub(super) async fn open_rows(
        &self,
        connection: &Connection,
        rows: &[Row],
        messages: &mut [Message],
    ) -> Result<(), Unopened> {
        let partition_id = |row: &Row| PartitionId(row.get("partition_id"));
        let found = rows.iter().map(partition_id).zip(messages).collect();
        self.open_all(connection, Place::Message, found).await
    }
}

/// Every read returns the same columns.
pub(super) fn message(row: &Row) -> Message {
    let cause_partition_id: Option<i64> = row.get("cause_partition_id");
    let cause_offset: Option<i64> = row.get("cause_offset");
    Message {
        offset: Offset(row.get("offset")),
        published_at: row.get("published_at"),
        trace_id: TraceId(row.get("trace_id")),
        cause: cause_partition_id.zip(cause_offset).map(|(partition, offset)| Cause {
            partition_id: PartitionId(partition),
            offset: Offset(offset),
        }),
        origin: None,
        key: row.get::<_, Option<&[u8]>>("key").map(Bytes::copy_from_slice),
        transaction_id: row.get("transaction_id"),
        headers: row.get("headers"),
        content_type: row.get("content_type"),
        payload: Bytes::copy_from_slice(row.get("payload")),
        producer: row.get("producer"),
        ttl: row.get::<_, Option<i64>>("ttl_ms").map(|ms| Duration::from_millis(ms.max(0) as u64)),
        data_key_id: row.get::<_, Option<uuid::Uuid>>("data_key_id").map(DataKeyId),
    }
}
