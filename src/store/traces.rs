//! Finding the messages of a trace.
//!
//! A flush writes one block per partition; the index maps half a trace id to blocks, and the message decides.

use futures_util::future::try_join_all;
use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use super::error::{Effect, Error};
use super::messages::{Message, message};
use super::partitions::PARTITIONS_NAME;
use super::query::{query, template};
use super::segments::SEGMENTS_LIST;
pub use super::times::FailureOutcome;
use super::{Connection, Store};
use crate::ids::{DeadLetterId, Offset, PartitionId, SegmentId, TraceId};

query!(TRACE_GROUPS = "trace_groups"[INT8_ARRAY, INT8_ARRAY]);
query!(TRACE_LINKS_FIND = "trace_links_find"[UUID, INT8]);
query!(TRACE_BLOCKS_FIND = "trace_blocks_find"[INT8, INT8, TIMESTAMPTZ, INT8, INT8]);
template!(SEGMENT_FIND_TRACE = "segment_find_trace"[INT8, INT8, UUID, INT8]);
template!(SEGMENT_FIND_HOPS = "segment_find_hops"[INT8, INT8, UUID, INT8]);

/// Whether the payloads of a trace are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payloads {
    Read,
    /// Only how large they are.
    Sized,
}

/// Offsets of one partition that may hold messages of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub partition_id: PartitionId,
    pub first_offset: Offset,
    pub end_offset: Offset,
    /// When it was written.
    pub published_at: Timestamp,
}

/// An attempt at a message that has failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TracedFailure {
    pub attempt: u32,
    pub outcome: FailureOutcome,
    pub reason: String,
    /// In microseconds since 1970.
    pub delivered_us: Option<i64>,
    /// In microseconds since 1970.
    pub failed_us: i64,
}

/// What a group has made of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedGroup {
    /// Which of the messages that were asked for.
    pub place: usize,
    pub group: String,
    pub is_done: bool,
    /// Messages of the partition that are to be done before it.
    pub ahead: i64,
    pub delivered_at: Option<Timestamp>,
    pub acked_at: Option<Timestamp>,
    pub attempts: u32,
    /// Oldest first.
    pub failures: Vec<TracedFailure>,
    pub dead_letter_id: Option<DeadLetterId>,
    /// Its key is parked, and it stands aside.
    pub is_parked: bool,
}

/// Traces that have to do with a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceLinks {
    /// Those that it has named.
    pub links: Vec<TraceId>,
    /// Those that have named it.
    pub linked_by: Vec<TraceId>,
}

impl Store {
    /// Opens connections of the pool and lets each look for a trace that nobody has, so that whoever is the first to read one waits
    /// neither for a connection nor for plans and catalogues.
    pub async fn trace_reads_prepare(&self, connections: usize) -> Result<(), Error> {
        let nobody = TraceId(Uuid::now_v7());
        let connections = connections.min(self.settings().pool_size as usize);
        let opened = try_join_all((0..connections).map(|_| self.connection())).await?;
        let look = async |connection: &Connection| {
            let none: &Vec<i64> = &Vec::new();
            let first: super::connection::Params<'_> =
                &[&nobody.prefix(), &1_i64, &None::<Timestamp>, &None::<i64>, &None::<i64>];
            connection.query(&TRACE_BLOCKS_FIND, first, Effect::None).await?;
            connection.query(&TRACE_GROUPS, &[none, none], Effect::None).await?;
            connection.query(&SEGMENTS_LIST, &[&0_i64], Effect::None).await?;
            connection.query(&PARTITIONS_NAME, &[&0_i64], Effect::None).await?;
            connection.query(&TRACE_LINKS_FIND, &[&nobody.0, &1_i64], Effect::None).await
        };
        try_join_all(opened.iter().map(|connection| look(connection))).await.map(drop)
    }

    /// What each group has made of some messages, in their order and by name of the group.
    pub async fn trace_groups(&self, messages: &[(PartitionId, Offset)]) -> Result<Vec<TracedGroup>, Error> {
        let partition_ids: Vec<i64> = messages.iter().map(|(partition_id, _)| partition_id.0).collect();
        let offsets: Vec<i64> = messages.iter().map(|(_, offset)| offset.0).collect();
        let connection = self.connection().await?;
        let rows = connection.query(&TRACE_GROUPS, &[&partition_ids, &offsets], Effect::None).await?;
        rows.iter().map(traced_group).collect()
    }

    /// Which traces a trace has to do with.
    pub async fn trace_links_find(&self, trace_id: TraceId, limit: usize) -> Result<TraceLinks, Error> {
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> = &[&trace_id.0, &(limit as i64)];
        let mut links = TraceLinks::default();
        for row in connection.query(&TRACE_LINKS_FIND, params, Effect::None).await? {
            let side = if row.get("outward") { &mut links.links } else { &mut links.linked_by };
            side.push(TraceId(row.get("other")));
        }
        Ok(links)
    }

    /// The blocks that may hold messages of a trace, in the order they were written, behind the last one of the page before.
    pub async fn trace_blocks_find(
        &self,
        trace_id: TraceId,
        last: Option<Block>,
        limit: usize,
    ) -> Result<Vec<Block>, Error> {
        let connection = self.connection().await?;
        let limit = limit as i64;
        let at = last.map(|last| last.published_at);
        let (partition_id, offset) =
            (last.map(|last| last.partition_id.0), last.map(|last| last.first_offset.0));
        let params: super::connection::Params<'_> =
            &[&trace_id.prefix(), &limit, &at, &partition_id, &offset];
        let rows = connection.query(&TRACE_BLOCKS_FIND, params, Effect::None).await?;
        let block = |row: &tokio_postgres::Row| {
            let first_offset = Offset(row.get("first_offset"));
            let messages = i64::from(row.get::<_, i32>("messages"));
            Block {
                partition_id: PartitionId(row.get("partition_id")),
                first_offset,
                end_offset: first_offset.plus(messages),
                published_at: row.get("published_at"),
            }
        };
        Ok(rows.iter().map(block).collect())
    }

    /// The messages of a trace among some offsets of one segment, with the sizes of their payloads.
    pub async fn segment_find_trace(
        &self,
        segment_id: SegmentId,
        block: Block,
        trace_id: TraceId,
        payloads: Payloads,
        limit: usize,
    ) -> Result<Vec<(Message, u64)>, Error> {
        let connection = self.connection().await?;
        let limit = limit as i64;
        let params: super::connection::Params<'_> =
            &[&block.first_offset.0, &block.end_offset.0, &trace_id.0, &limit];
        let template = match payloads {
            Payloads::Read => &SEGMENT_FIND_TRACE,
            Payloads::Sized => &SEGMENT_FIND_HOPS,
        };
        let rows = connection.read(template, &[("segment_id", segment_id.0)], params).await?;
        let mut messages: Vec<Message> = rows.iter().map(message).collect();
        self.open_rows(&connection, &rows, &mut messages).await?;
        let sizes = rows.iter().map(|row| row.get::<_, i32>("size") as u64);
        Ok(messages.into_iter().zip(sizes).collect())
    }
}

fn traced_group(row: &tokio_postgres::Row) -> Result<TracedGroup, Error> {
    let failures = serde_json::from_str(row.get("failures"));
    Ok(TracedGroup {
        place: row.get::<_, i32>("place") as usize - 1,
        group: row.get("group_name"),
        is_done: row.get("is_done"),
        ahead: row.get("ahead"),
        delivered_at: row.get("delivered_at"),
        acked_at: row.get("acked_at"),
        attempts: row.get::<_, i32>("attempts") as u32,
        failures: failures
            .map_err(|error| Error::Unexpected { sqlstate: String::new(), message: error.to_string() })?,
        dead_letter_id: row.get::<_, Option<i64>>("dead_letter_id").map(DeadLetterId),
        is_parked: row.get("is_parked"),
    })
}
