//! Finding the messages of a trace.
//!
//! A flush writes one block per partition; the index maps half a trace id to blocks, and the message decides.

use super::Store;
use super::error::{Effect, Error};
use super::messages::{Message, message};
use super::query::{query, template};
use crate::ids::{Offset, PartitionId, SegmentId, TraceId};

query!(TRACE_BLOCKS_FIND = "trace_blocks_find"[INT8, INT8]);
template!(SEGMENT_FIND_TRACE = "segment_find_trace"[INT8, INT8, UUID, INT8]);

/// Offsets of one partition that may hold messages of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub partition_id: PartitionId,
    pub first_offset: Offset,
    pub end_offset: Offset,
}

impl Store {
    /// The blocks that may hold messages of a trace, in the order they were written.
    pub async fn trace_blocks_find(&self, trace_id: TraceId, limit: usize) -> Result<Vec<Block>, Error> {
        let connection = self.connection().await?;
        let limit = limit as i64;
        let rows = connection.query(&TRACE_BLOCKS_FIND, &[&trace_id.prefix(), &limit], Effect::None).await?;
        let block = |row: &tokio_postgres::Row| {
            let first_offset = Offset(row.get("first_offset"));
            let messages = i64::from(row.get::<_, i32>("messages"));
            Block {
                partition_id: PartitionId(row.get("partition_id")),
                first_offset,
                end_offset: first_offset.plus(messages),
            }
        };
        Ok(rows.iter().map(block).collect())
    }

    /// The messages of a trace among some offsets of one segment.
    pub async fn segment_find_trace(
        &self,
        segment_id: SegmentId,
        block: Block,
        trace_id: TraceId,
        limit: usize,
    ) -> Result<Vec<Message>, Error> {
        let connection = self.connection().await?;
        let limit = limit as i64;
        let params: super::connection::Params<'_> =
            &[&block.first_offset.0, &block.end_offset.0, &trace_id.0, &limit];
        let rows = connection.read(&SEGMENT_FIND_TRACE, &[("segment_id", segment_id.0)], params).await?;
        Ok(rows.iter().map(message).collect())
    }
}
