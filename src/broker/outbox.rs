//! A session's outbox: what groups, tails and answers push, and its writer sends. Bounded in frames and in bytes.
//!
//! Batches leave room for everything else: they are pushed only while few frames and few bytes wait. Whoever finds it full
//! comes back later. A control frame that finds it full ends the connection: its client does not read.
//! What was written, and when, is told back through the batch's [`WriteLog`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Instant;

use laneway_client::wire::record::{BatchHeader, batch_frame};
use laneway_client::wire::{BrokerFrame, Subprotocol};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::slab::Piece;
use crate::ids::Offset;
use crate::limits::{OUTBOX_BYTES_MAX, OUTBOX_FRAMES_MAX, OUTBOX_FRAMES_RESERVED};

/// One frame to send. Why boxes: the channel keeps room for 32 of these per session, also while nothing waits.
#[derive(Debug)]
pub enum Push {
    Frame(Box<BrokerFrame>),
    Batch(Box<BatchPush>),
}

/// A batch, not encoded yet.
#[derive(Debug)]
pub struct BatchPush {
    pub header: BatchHeader,
    pub pieces: Vec<Piece>,
    /// Present for a lane: it may be written only while the broker trusts its lease.
    pub lane: Option<Arc<WriteLog>>,
    /// Who gets the credit back if it is never written.
    refund: Option<Arc<Refund>>,
    written: AtomicBool,
    bytes: usize,
    waiting: Arc<AtomicUsize>,
}

/// Credit of batches that were never written.
#[derive(Debug, Default)]
pub struct Refund {
    messages: AtomicI64,
    bytes: AtomicI64,
}

impl Refund {
    /// Messages and bytes since the last look.
    pub fn take(&self) -> (i64, i64) {
        (self.messages.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }
}

impl BatchPush {
    pub fn encode(&self, subprotocol: Subprotocol) -> Vec<u8> {
        let count = self.pieces.iter().map(Piece::len).sum();
        let records = self.pieces.iter().flat_map(|piece| piece.records(subprotocol));
        batch_frame(subprotocol, &self.header, count, records)
    }

    /// It was handed to the socket.
    pub fn on_written(&self, now: Instant) {
        self.written.store(true, Ordering::Relaxed);
        let end = self.pieces.last().map(Piece::end);
        if let (Some(log), Some(end)) = (&self.lane, end) {
            log.written.lock().push_back((end, now));
        }
    }
}

impl Drop for BatchPush {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(refund) = self.refund.as_ref().filter(|_| !self.written.load(Ordering::Relaxed)) {
            let messages: usize = self.pieces.iter().map(Piece::len).sum();
            refund.messages.fetch_add(messages as i64, Ordering::Relaxed);
            refund.bytes.fetch_add(self.bytes as i64, Ordering::Relaxed);
        }
    }
}

/// When which messages of a lane were written to the socket, in this round.
#[derive(Debug, Default)]
pub struct WriteLog {
    written: Mutex<VecDeque<(Offset, Instant)>>,
}

impl WriteLog {
    /// When a message was written; `None`: not yet. What lies below it is forgotten.
    pub fn written_at(&self, offset: Offset) -> Option<Instant> {
        let mut written = self.written.lock();
        while written.front().is_some_and(|(end, _)| *end <= offset) {
            written.pop_front();
        }
        written.front().map(|(_, at)| *at)
    }
}

/// The way into an outbox. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Outbox {
    sender: mpsc::Sender<Push>,
    /// Bytes of batches that wait to be written.
    waiting: Arc<AtomicUsize>,
    /// Cancelled when the connection has to end because its client does not read.
    overflow: CancellationToken,
}

/// The writer's end.
pub type OutboxReceiver = mpsc::Receiver<Push>;

impl Outbox {
    /// An outbox whose overflow cancels a token.
    pub fn new(overflow: CancellationToken) -> (Self, OutboxReceiver) {
        let (sender, receiver) = mpsc::channel(OUTBOX_FRAMES_MAX);
        (Self { sender, waiting: Arc::default(), overflow }, receiver)
    }

    /// Whether a batch may be pushed now.
    pub fn has_room(&self) -> bool {
        self.sender.capacity() > OUTBOX_FRAMES_RESERVED
            && self.waiting.load(Ordering::Relaxed) < OUTBOX_BYTES_MAX
    }

    /// Pushes a batch; ask [`Outbox::has_room`] first. Returns what it holds in bytes.
    pub fn push_batch(
        &self,
        header: BatchHeader,
        pieces: Vec<Piece>,
        lane: Option<(Arc<WriteLog>, Arc<Refund>)>,
    ) -> u64 {
        let bytes: u64 = pieces.iter().map(Piece::bytes).sum();
        self.waiting.fetch_add(bytes as usize, Ordering::Relaxed);
        let waiting = self.waiting.clone();
        let (lane, refund) = lane.unzip();
        let written = AtomicBool::new(false);
        let batch = BatchPush { header, pieces, lane, refund, written, bytes: bytes as usize, waiting };
        self.send(Push::Batch(Box::new(batch)));
        bytes
    }

    /// Pushes a control frame.
    pub fn push(&self, frame: BrokerFrame) {
        self.send(Push::Frame(Box::new(frame)));
    }

    fn send(&self, push: Push) {
        match self.sender.try_send(push) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.overflow.cancel(),
            Err(mpsc::error::TrySendError::Closed(_)) => {} // the connection is gone, and says so itself
        }
    }
}
