//! Reading a trace: every message of it as a tree of causes, with what each group has made of them.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | reading: the hops, then all groups of all hops at once |
//! | `hop` | one message as one group sees it |
//! | `tree` | causes before effects, and the critical path |

mod hop;
mod tree;

use jiff::Timestamp;
use laneway_client::message::Encoding;
use laneway_client::trace::{GroupHop, Hop, Trace};

use super::reader::{self, FoundTrace, ReadError, Reader};
use crate::ids::{Offset, PartitionId, TraceId};
use crate::limits::{TRACE_BLOCKS_MAX, TRACE_LINKS_MAX};
use crate::store::Store;
use crate::store::messages::{Message, Origin};
use crate::store::traces::{Payloads, TracedGroup};
use hop::{Span, group_hop};
use tree::{Node, Tree, grow};

/// Reads traces. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Traces {
    store: Store,
    reader: Reader,
}

/// A message with its names and what groups have made of it.
struct Traced {
    partition_id: PartitionId,
    message: Message,
    size: u64,
    origin: std::sync::Arc<Origin>,
    groups: Vec<GroupHop>,
    spans: Vec<Span>,
}

impl Traces {
    pub fn new(store: Store, reader: Reader) -> Self {
        Self { store, reader }
    }

    /// Everything that is known about a trace; `None`: no message of it is stored.
    pub async fn read(&self, trace_id: TraceId) -> Result<Option<Trace>, ReadError> {
        self.read_within(trace_id, TRACE_BLOCKS_MAX).await
    }

    /// The same, as far as so many blocks of the index tell.
    pub async fn read_within(
        &self,
        trace_id: TraceId,
        blocks_max: usize,
    ) -> Result<Option<Trace>, ReadError> {
        let FoundTrace { hops, truncated } =
            self.reader.trace_within(trace_id, Payloads::Sized, blocks_max).await?;
        let traced = self.traced(hops).await?;
        if traced.is_empty() {
            return Ok(None);
        }
        let links = self.store.trace_links_find(trace_id, TRACE_LINKS_MAX).await?;
        let text = |ids: Vec<TraceId>| ids.into_iter().map(|id| id.to_string()).collect();
        let (hops, critical_path, times) = assemble(traced);
        Ok(Some(Trace {
            trace_id: trace_id.to_string(),
            hops,
            critical_path,
            waiting_us: times.waiting_us,
            handling_us: times.handling_us,
            links: text(links.links),
            linked_by: text(links.linked_by),
            truncated,
        }))
    }

    async fn traced(&self, hops: Vec<reader::Hop>) -> Result<Vec<Traced>, ReadError> {
        let places: Vec<(PartitionId, Offset)> =
            hops.iter().map(|hop| (hop.partition_id, hop.message.offset)).collect();
        let groups = match places.is_empty() {
            true => Vec::new(),
            false => self.store.trace_groups(&places).await?,
        };
        let mut groups = groups.into_iter().peekable();
        let mut traced = Vec::with_capacity(hops.len());
        for (place, reader::Hop { partition_id, message, size }) in hops.into_iter().enumerate() {
            let mine: Vec<TracedGroup> =
                std::iter::from_fn(|| groups.next_if(|group| group.place == place)).collect();
            // Deleted while we looked: nobody can find it any more.
            let Some(origin) = self.reader.origin(partition_id).await? else { continue };
            let (groups, spans) =
                mine.into_iter().map(|group| group_hop(message.published_at, group)).unzip();
            traced.push(Traced { partition_id, message, size, origin, groups, spans });
        }
        Ok(traced)
    }
}

/// The hops as a tree, the critical path, and the times along it.
fn assemble(traced: Vec<Traced>) -> (Vec<Hop>, Vec<usize>, Times) {
    let nodes: Vec<Node<(PartitionId, Offset)>> = traced.iter().map(node).collect();
    let tree = grow(&nodes);
    let times = Times::along(&tree, &traced);
    let mut traced: Vec<Option<Traced>> = traced.into_iter().map(Some).collect();
    let Tree { order, parents, depths, critical_path } = tree;
    let places = order.iter().zip(parents).zip(depths);
    let hops = places.filter_map(|((at, parent), depth)| Some(shown(traced[*at].take()?, parent, depth)));
    (hops.collect(), critical_path, times)
}

fn node(traced: &Traced) -> Node<(PartitionId, Offset)> {
    let published_us = traced.message.published_at.as_microsecond();
    Node {
        place: (traced.partition_id, traced.message.offset),
        cause: traced.message.cause.map(|cause| (cause.partition_id, cause.offset)),
        published_us,
        ended_us: traced
            .spans
            .iter()
            .map(|span| span.ended_us)
            .max()
            .map_or(published_us, |ended| ended.max(published_us)),
    }
}

/// How the time along the critical path was spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    waiting_us: i64,
    handling_us: i64,
}

impl Times {
    /// Of each hop that group counts which led on: the one in whose hands it was when the next hop was published, else the one
    /// that was done with it last.
    fn along(tree: &Tree, traced: &[Traced]) -> Self {
        let mut times = Self::default();
        for (step, here) in tree.critical_path.iter().enumerate() {
            let hop = &traced[tree.order[*here]];
            let next = tree.critical_path.get(step + 1).map(|next| &traced[tree.order[*next]]);
            let led_on = next.map(|next| next.message.published_at.as_microsecond());
            let held = led_on.and_then(|at| hop.spans.iter().find(|span| span.holds(at)));
            if let Some(span) = held.or_else(|| hop.spans.iter().max_by_key(|span| span.ended_us)) {
                times.waiting_us += span.waiting_us.unwrap_or_default();
                times.handling_us += span.handling_us.unwrap_or_default();
            }
        }
        times
    }
}

fn shown(traced: Traced, parent: Option<usize>, depth: u32) -> Hop {
    let Traced { message, size, origin, groups, .. } = traced;
    let cause = message.cause_named().map(|(topic, partition, offset)| laneway_client::Cause {
        topic: topic.to_owned(),
        partition,
        offset,
    });
    let key = message.key.as_deref().map(Encoding::encode_text);
    Hop {
        topic: origin.topic.clone(),
        partition: origin.partition,
        offset: message.offset.0,
        key_encoding: key.as_ref().map(|(encoding, _)| *encoding).unwrap_or_default(),
        key: key.map(|(_, key)| key),
        size,
        producer: message.producer,
        transaction_id: message.transaction_id,
        published_at: message.published_at.to_string(),
        cause,
        parent,
        depth,
        groups,
    }
}

/// A moment as the wire writes it; one that no calendar has is left out.
fn moment(us: i64) -> Option<String> {
    Timestamp::from_microsecond(us).ok().map(|at| at.to_string())
}
