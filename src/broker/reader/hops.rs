//! Reading the messages of a trace, wherever they stand: block by block, some blocks at once.
//!
//! Like every read it looks into a remembered catalogue first, and again into the newest if that proves too old. What lies below
//! the start of a partition is not read at all: its data keys may be gone, so that it opens no more.

use futures_util::StreamExt as _;

use super::{Freshness, ReadError, Reader};
use crate::broker::keys::unopened;
use crate::ids::{Offset, PartitionId, TraceId};
use crate::limits::{TRACE_BLOCKS_MAX, TRACE_BYTES_MAX, TRACE_HOPS_MAX, TRACE_READS_AT_ONCE};
use crate::store::Error;
use crate::store::messages::Message;
use crate::store::segments::{Catalogue, Segment};
use crate::store::traces::{Block, Payloads};

/// One message of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    pub partition_id: PartitionId,
    pub message: Message,
    /// Bytes of its payload, which may not have been read.
    pub size: u64,
}

/// The messages of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTrace {
    /// In the order of publishing.
    pub hops: Vec<Hop>,
    /// Whether a bound was reached, so that later hops may be missing.
    pub truncated: bool,
}

fn is_full(hops: &[Hop]) -> bool {
    hops.len() >= TRACE_HOPS_MAX || hops.iter().map(|hop| hop.message.bytes()).sum::<u64>() >= TRACE_BYTES_MAX
}

impl Reader {
    /// Every stored message of a trace; the first ones if there are too many.
    pub async fn trace(&self, trace_id: TraceId, payloads: Payloads) -> Result<FoundTrace, ReadError> {
        self.trace_within(trace_id, payloads, TRACE_BLOCKS_MAX).await
    }

    /// The same, as far as so many blocks of the index tell.
    pub async fn trace_within(
        &self,
        trace_id: TraceId,
        payloads: Payloads,
        blocks_max: usize,
    ) -> Result<FoundTrace, ReadError> {
        let (mut hops, mut looked_at, mut last) = (Vec::new(), 0, None);
        let mut truncated = false;
        while !truncated {
            let blocks = self.store.trace_blocks_find(trace_id, last, TRACE_HOPS_MAX).await?;
            looked_at += blocks.len();
            last = blocks.last().copied();
            let has_more = blocks.len() >= TRACE_HOPS_MAX;
            truncated = self.trace_blocks(trace_id, blocks, payloads, &mut hops).await?
                || has_more && looked_at >= blocks_max;
            if !has_more {
                break;
            }
        }
        hops.sort_by_key(|hop| (hop.message.published_at, hop.partition_id, hop.message.offset));
        Ok(FoundTrace { hops, truncated })
    }

    /// Adds what some blocks hold of a trace. Returns whether there are as many as there may be.
    async fn trace_blocks(
        &self,
        trace_id: TraceId,
        blocks: Vec<Block>,
        payloads: Payloads,
        hops: &mut Vec<Hop>,
    ) -> Result<bool, ReadError> {
        let reads = blocks.into_iter().map(|block| self.trace_block(trace_id, block, payloads));
        let mut reads = futures_util::stream::iter(reads).buffered(TRACE_READS_AT_ONCE);
        while !is_full(hops)
            && let Some(read) = reads.next().await
        {
            match read {
                Ok(found) => hops.extend(found),
                Err(ReadError::UnknownPartition) => {} // its topic is gone, the index has still to follow
                Err(error) => return Err(error),
            }
        }
        Ok(is_full(hops))
    }

    async fn trace_block(
        &self,
        trace_id: TraceId,
        block: Block,
        payloads: Payloads,
    ) -> Result<Vec<Hop>, ReadError> {
        let mut freshness = Freshness::Remembered;
        loop {
            let catalogue = self.catalogue(block.partition_id, &mut freshness).await?;
            let newest = catalogue.segments.last().map_or(Offset::ZERO, |segment| segment.end_offset);
            if newest < block.end_offset && freshness == Freshness::Remembered {
                freshness = Freshness::JustRead;
                continue;
            }
            match self.trace_segments(trace_id, block, &catalogue, payloads).await {
                Ok(hops) => return Ok(hops),
                Err(Error::TableGone { .. }) => freshness = Freshness::JustRead,
                Err(error) if freshness == Freshness::Remembered && unopened(&error).is_some() => {
                    freshness = Freshness::JustRead; // it may be purged
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn trace_segments(
        &self,
        trace_id: TraceId,
        block: Block,
        catalogue: &Catalogue,
        payloads: Payloads,
    ) -> Result<Vec<Hop>, Error> {
        let mut hops = Vec::new();
        // What lies below the start may not open any more.
        let block = Block { first_offset: block.first_offset.max(catalogue.start_offset), ..block };
        let overlaps = |segment: &&Segment| {
            segment.first_offset < block.end_offset && block.first_offset < segment.end_offset
        };
        for segment in catalogue.segments.iter().filter(overlaps) {
            let found =
                self.store.segment_find_trace(segment.segment_id, block, trace_id, payloads, TRACE_HOPS_MAX);
            for (mut message, size) in found.await? {
                self.name_causes(std::slice::from_mut(&mut message)).await?;
                hops.push(Hop { partition_id: block.partition_id, message, size });
            }
        }
        Ok(hops)
    }
}
