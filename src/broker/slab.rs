//! A slab: messages of one partition that stand together and came together, encoded once for everybody.
//!
//! Deliveries are made of pieces of slabs. The body of a message is the same for all groups, so its encoding is kept; what
//! differs travels in the header of the batch.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use laneway_client::wire::Subprotocol;
use laneway_client::wire::record::{self, RecordRef};

use crate::ids::Offset;
use crate::store::messages::Message;

/// What a message costs in memory beside its own bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 256;

/// Contiguous messages of one partition; never empty.
#[derive(Debug)]
pub struct Slab {
    messages: Vec<Message>,
    bytes: usize,
    json: OnceLock<Encoded>,
    msgpack: OnceLock<Encoded>,
}

#[derive(Debug)]
struct Encoded {
    bytes: Vec<u8>,
    /// Where each record ends.
    ends: Vec<usize>,
}

impl Slab {
    /// `None` if there is no message.
    pub fn new(messages: Vec<Message>) -> Option<Self> {
        if messages.is_empty() {
            return None;
        }
        debug_assert!(messages.windows(2).all(|pair| pair[0].offset.plus(1) == pair[1].offset));
        let sizes = messages.iter().map(|message| message.bytes() as usize + MESSAGE_OVERHEAD_BYTES);
        let bytes = sizes.sum();
        Some(Self { messages, bytes, json: OnceLock::new(), msgpack: OnceLock::new() })
    }

    pub fn first(&self) -> Offset {
        self.messages[0].offset
    }

    pub fn end(&self) -> Offset {
        self.first().plus(self.messages.len() as i64)
    }

    /// When its last message was published.
    pub fn last_published_at(&self) -> Timestamp {
        self.messages[self.messages.len() - 1].published_at
    }

    /// What it costs in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A piece from an offset on (or from its start, if that is later), within bounds; the first message comes whatever
    /// its size.
    pub fn piece(slab: &Arc<Slab>, from: Offset, messages: usize, bytes: u64) -> Piece {
        let start = (from.0 - slab.first().0).max(0) as usize;
        let mut end = start;
        let mut left = bytes;
        while end < slab.messages.len() && end - start < messages && left > 0 {
            left = left.saturating_sub(slab.messages[end].bytes());
            end += 1;
        }
        Piece { slab: slab.clone(), range: start..end }
    }

    fn encoded(&self, subprotocol: Subprotocol) -> &Encoded {
        let (cell, encode): (_, fn(&RecordRef<'_>, &mut Vec<u8>)) = match subprotocol {
            Subprotocol::Json => (&self.json, record::encode_json),
            Subprotocol::MessagePack => (&self.msgpack, record::encode_msgpack),
        };
        cell.get_or_init(|| {
            let mut bytes = Vec::with_capacity(self.bytes);
            let mut ends = Vec::with_capacity(self.messages.len());
            for message in &self.messages {
                encode(&record_of(message), &mut bytes);
                ends.push(bytes.len());
            }
            bytes.shrink_to_fit();
            Encoded { bytes, ends }
        })
    }
}

fn record_of(message: &Message) -> RecordRef<'_> {
    RecordRef {
        offset: message.offset.0,
        published_at_us: message.published_at.as_microsecond(),
        trace_id: message.trace_id.0,
        cause: message.cause_named(),
        key: message.key.as_deref(),
        transaction_id: message.transaction_id.as_deref(),
        headers: message.headers.as_deref(),
        content_type: message.content_type.as_deref(),
        payload: &message.payload,
    }
}

/// Some messages of a slab.
#[derive(Debug, Clone)]
pub struct Piece {
    slab: Arc<Slab>,
    range: Range<usize>,
}

impl Piece {
    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    pub fn first(&self) -> Offset {
        self.slab.first().plus(self.range.start as i64)
    }

    pub fn end(&self) -> Offset {
        self.slab.first().plus(self.range.end as i64)
    }

    pub fn messages(&self) -> &[Message] {
        &self.slab.messages[self.range.clone()]
    }

    /// What the messages count for in every sum of bytes.
    pub fn bytes(&self) -> u64 {
        self.messages().iter().map(Message::bytes).sum()
    }

    /// The part of it in `[from, to)`.
    pub fn cut(&self, from: Offset, to: Offset) -> Piece {
        let place = |offset: Offset| {
            (offset.0 - self.slab.first().0).clamp(self.range.start as i64, self.range.end as i64) as usize
        };
        let (start, end) = (place(from), place(to));
        Piece { slab: self.slab.clone(), range: start..end.max(start) }
    }

    /// The encoded records, one slice each.
    pub fn records(&self, subprotocol: Subprotocol) -> impl Iterator<Item = &[u8]> {
        let encoded = self.slab.encoded(subprotocol);
        self.range.clone().map(move |place| {
            let start = if place == 0 { 0 } else { encoded.ends[place - 1] };
            &encoded.bytes[start..encoded.ends[place]]
        })
    }
}
