//! The writing half of a connection: takes what the outbox holds, encodes it, and flushes once per turn.
//!
//! Sends the heartbeats, because it alone knows when it last wrote. A batch of a lane goes out only while the broker trusts
//! its lease, looked at right before it is written; otherwise it waits here, in order, and other frames go on.
//! Invariant: a batch that was made under a former id of the broker is never written.

use std::collections::{HashSet, VecDeque};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::stream::SplitSink;
use futures_util::{Sink as _, SinkExt as _};
use laneway_client::wire::{BrokerFrame, CloseCode, Subprotocol};
use tokio::sync::oneshot;

use super::activity::Activity;
use super::ending::Ending;
use crate::broker::lease::Lease;
use crate::broker::outbox::{BatchPush, OutboxReceiver, Push};
use crate::ids::BrokerId;
use crate::limits::{WRITE_STALL_TIMEOUT, WRITE_TURN_BYTES};

/// Why nothing more can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteEnd {
    /// The connection is gone.
    Lost,
    /// The client does not read.
    Stalled,
}

/// A socket to write on, in one encoding.
#[derive(Debug)]
pub(super) struct FrameSink {
    pub sink: SplitSink<WebSocket, Message>,
    pub subprotocol: Subprotocol,
    pub activity: Arc<Activity>,
}

impl FrameSink {
    /// Waits until the socket takes another message.
    async fn ready(&mut self) -> Result<(), WriteEnd> {
        let sink = &mut self.sink;
        let ready = std::future::poll_fn(|context| Pin::new(&mut *sink).poll_ready(context));
        unstalled(&self.activity, ready).await
    }

    /// Hands over a message; [`FrameSink::ready`] must have come first.
    fn hand_over(&mut self, message: Message) -> Result<(), WriteEnd> {
        Pin::new(&mut self.sink).start_send(message).map_err(|_| WriteEnd::Lost)
    }

    /// Hands over a frame; [`FrameSink::ready`] must have come first. Returns its size.
    fn write(&mut self, frame: Vec<u8>) -> Result<usize, WriteEnd> {
        let bytes = frame.len();
        self.hand_over(match self.subprotocol {
            Subprotocol::MessagePack => Message::Binary(frame.into()),
            Subprotocol::Json => Message::Text(Utf8Bytes::try_from(frame).map_err(|_| WriteEnd::Lost)?),
        })?;
        Ok(bytes)
    }

    pub async fn feed(&mut self, frame: &BrokerFrame) -> Result<usize, WriteEnd> {
        self.ready().await?;
        self.write(self.subprotocol.encode_broker(frame))
    }

    pub async fn flush(&mut self) -> Result<(), WriteEnd> {
        unstalled(&self.activity, self.sink.flush()).await
    }

    /// Says how it ends, and closes.
    pub async fn close(&mut self, ending: &Ending) -> Result<(), WriteEnd> {
        if let Some(error) = &ending.error {
            self.feed(&BrokerFrame::Error(error.clone())).await?;
        }
        if let Some(code) = ending.close {
            self.ready().await?;
            let reason = Utf8Bytes::from_static(code.name());
            self.hand_over(Message::Close(Some(CloseFrame { code: code.code(), reason })))?;
        }
        self.flush().await
    }
}

/// Waits for the socket for as long as it takes anything at all.
async fn unstalled(
    activity: &Activity,
    work: impl Future<Output = Result<(), axum::Error>>,
) -> Result<(), WriteEnd> {
    let mut work = pin!(work);
    let began = Instant::now();
    loop {
        let moved = activity.written_at().max(began);
        match tokio::time::timeout_at((moved + WRITE_STALL_TIMEOUT).into(), work.as_mut()).await {
            Ok(result) => return result.map_err(|_| WriteEnd::Lost),
            Err(_) if activity.written_at() > moved => {}
            Err(_) => return Err(WriteEnd::Stalled),
        }
    }
}

/// What may be done with the batch of a lane now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Write,
    Hold,
    Drop,
}

/// The writing half of an open session.
#[derive(Debug)]
pub(super) struct Writer {
    sink: FrameSink,
    outbox: OutboxReceiver,
    lease: Lease,
    heartbeat: Duration,
    wrote_at: Instant,
    /// The id of the broker that lanes are held under.
    broker_id: Option<BrokerId>,
    /// Once that id has changed: lanes that were granted since. Others belong to the former id.
    regranted: Option<HashSet<(u32, u32)>>,
    /// Batches that wait for trust. Bounded by the bytes of the outbox, which count them until they are dropped.
    held: VecDeque<Box<BatchPush>>,
    /// Batches that are written, but not flushed.
    unflushed: Vec<BatchPush>,
}

impl Writer {
    /// `broker_id` is what the lease said before any lane could push a batch.
    pub fn new(
        sink: FrameSink,
        outbox: OutboxReceiver,
        lease: Lease,
        broker_id: Option<BrokerId>,
        heartbeat: Duration,
    ) -> Self {
        Self {
            sink,
            outbox,
            lease,
            heartbeat,
            wrote_at: Instant::now(),
            broker_id,
            regranted: None,
            held: VecDeque::new(),
            unflushed: Vec::new(),
        }
    }

    /// Writes until told to finish. Cancel safety: none. Spawned once; the owner aborts it if it is late.
    pub async fn run(mut self, mut finish: oneshot::Receiver<Ending>) -> Result<(), WriteEnd> {
        loop {
            let beat_at = self.wrote_at + self.heartbeat;
            tokio::select! {
                biased; // the end first; what was held back before what came later
                ending = &mut finish => return match ending {
                    Ok(ending) => self.finish(&ending).await,
                    Err(_) => Err(WriteEnd::Lost), // the owner is gone
                },
                () = self.lease.changed(), if !self.held.is_empty() => self.release().await?,
                Some(push) = self.outbox.recv() => self.turn(push).await?,
                () = tokio::time::sleep_until(beat_at.into()) => {
                    self.sink.feed(&BrokerFrame::Heartbeat).await?;
                    self.flush().await?;
                }
            }
        }
    }

    /// Writes what is ready, up to a bound, and flushes once.
    async fn turn(&mut self, first: Push) -> Result<(), WriteEnd> {
        let mut bytes = self.write(first).await?;
        while bytes < WRITE_TURN_BYTES
            && let Ok(next) = self.outbox.try_recv()
        {
            bytes += self.write(next).await?;
        }
        self.flush().await
    }

    async fn write(&mut self, push: Push) -> Result<usize, WriteEnd> {
        match push {
            Push::Frame(frame) => {
                self.note(&frame);
                self.sink.feed(&frame).await
            }
            Push::Batch(batch) if batch.lane.is_some() && !self.held.is_empty() => {
                self.held.push_back(batch);
                Ok(0)
            }
            Push::Batch(batch) => self.write_batch(batch).await,
        }
    }

    async fn write_batch(&mut self, batch: Box<BatchPush>) -> Result<usize, WriteEnd> {
        let frame = batch.encode(self.sink.subprotocol);
        self.sink.ready().await?;
        match self.admission(&batch) {
            Admission::Write => {
                let bytes = self.sink.write(frame)?;
                self.unflushed.push(*batch);
                Ok(bytes)
            }
            Admission::Hold => {
                self.held.push_back(batch);
                Ok(0)
            }
            Admission::Drop => Ok(0),
        }
    }

    fn admission(&mut self, batch: &BatchPush) -> Admission {
        if batch.lane.is_none() {
            return Admission::Write;
        }
        self.look_at_lease();
        let lane = (batch.header.subscription, batch.header.partition);
        if self.regranted.as_ref().is_some_and(|lanes| !lanes.contains(&lane)) {
            return Admission::Drop;
        }
        if self.lease.is_trusted() { Admission::Write } else { Admission::Hold }
    }

    /// Under a new id, everything that was made under the former one is void.
    fn look_at_lease(&mut self) {
        let Some(now) = self.lease.broker_id() else { return };
        if self.broker_id.replace(now).is_some_and(|before| before != now) {
            self.held.clear();
            self.regranted = Some(HashSet::new());
        }
    }

    /// Frames that say whose a lane is also say which of the batches held back are void.
    fn note(&mut self, frame: &BrokerFrame) {
        let (lane, first_epoch) = match frame {
            BrokerFrame::LaneGranted(lane) => ((lane.subscription, lane.partition), lane.epoch),
            BrokerFrame::LaneRevoked(lane) => {
                ((lane.subscription, lane.partition), lane.epoch.saturating_add(1))
            }
            BrokerFrame::Welcome(_)
            | BrokerFrame::Published(_)
            | BrokerFrame::Subscribed(_)
            | BrokerFrame::Selected(_)
            | BrokerFrame::TopicJoined(_)
            | BrokerFrame::TopicLeft(_)
            | BrokerFrame::LaneDraining(_)
            | BrokerFrame::Batch(_)
            | BrokerFrame::Acked(_)
            | BrokerFrame::Unsubscribed(_)
            | BrokerFrame::Tailing(_)
            | BrokerFrame::Transacted(_)
            | BrokerFrame::Untailed(_)
            | BrokerFrame::Traced(_)
            | BrokerFrame::Watching(_)
            | BrokerFrame::TraceChanged(_)
            | BrokerFrame::Heartbeat
            | BrokerFrame::GoAway(_)
            | BrokerFrame::Error(_) => return,
        };
        self.look_at_lease();
        if let (Some(lanes), BrokerFrame::LaneGranted(_)) = (&mut self.regranted, frame) {
            lanes.insert(lane);
        }
        self.held.retain(|batch| {
            (batch.header.subscription, batch.header.partition) != lane || batch.header.epoch >= first_epoch
        });
    }

    /// The lease has changed: what was held back goes first, if it is trusted again under the same id.
    async fn release(&mut self) -> Result<(), WriteEnd> {
        self.look_at_lease();
        let mut waiting = std::mem::take(&mut self.held);
        while self.lease.is_trusted()
            && let Some(batch) = waiting.pop_front()
        {
            self.write_batch(batch).await?;
        }
        self.held.append(&mut waiting);
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), WriteEnd> {
        self.sink.flush().await?;
        self.wrote_at = Instant::now();
        self.unflushed.drain(..).for_each(|batch| batch.on_written(self.wrote_at));
        Ok(())
    }

    /// Writes the answers that wait, but no more batches, and closes.
    async fn finish(mut self, ending: &Ending) -> Result<(), WriteEnd> {
        self.outbox.close();
        if ending.close != Some(CloseCode::TooSlow) {
            while let Ok(push) = self.outbox.try_recv() {
                match push {
                    Push::Frame(frame) => drop(self.sink.feed(&frame).await?),
                    Push::Batch(_) => {}
                }
            }
        }
        self.sink.close(ending).await
    }
}
