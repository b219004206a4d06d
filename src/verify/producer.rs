//! A producer: numbered messages in frames of several, a few frames in flight, and everything that is not settled again, with the
//! numbers it had, at whichever broker answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_client::wire::{
    BrokerFrame, ClientFrame, NewMessage, Publish, Published, PublishedUnit, Subprotocol,
};
use laneway_client::{Class, ErrorCode};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::history::{Event, Recorder};
use super::link::{Incoming, Link};
use super::settings::{HEARTBEAT, PARTITIONS, TOPIC};
use super::value::Value;

/// Frames that wait for their answers.
const IN_FLIGHT_MAX: usize = 6;
/// Most messages of a frame.
const FRAME_MESSAGES_MAX: usize = 40;
/// Between two frames: enough work for the brokers, and room for everybody else on a small machine.
const FRAME_PAUSE: Duration = Duration::from_millis(30);
/// After a refusal that may pass, and between two tries to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Without a sign of life from the broker the connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// One frame in so many has a message that breaks a rule.
const BROKEN_EVERY: u32 = 50;
/// Added to the number of a producer for what is to be refused, so that it is never mistaken.
pub(super) const REFUSED: u32 = 1_000;

/// A frame that is not settled.
#[derive(Debug)]
struct Frame {
    /// Of the last time it was sent; `None`: it waits to be sent again.
    id: Option<u64>,
    /// What is left of it.
    values: Vec<Value>,
}

/// See the module.
pub(super) struct Producer {
    number: u32,
    producer_id: Uuid,
    brokers: Arc<[SocketAddr]>,
    recorder: Arc<Recorder>,
    /// No new messages from then on.
    enough: CancellationToken,
    random: StdRng,
    next: [i64; PARTITIONS as usize],
    unsettled: VecDeque<Frame>,
    /// Something failed: what is under way is awaited, and then everything that is left is sent again.
    rewinding: bool,
    next_id: u64,
    frames: u64,
    broken: BTreeMap<u64, Vec<Value>>,
}

impl Producer {
    pub fn new(
        number: u32,
        seed: u64,
        brokers: Arc<[SocketAddr]>,
        recorder: Arc<Recorder>,
        enough: CancellationToken,
    ) -> Self {
        Self {
            number,
            producer_id: Uuid::new_v4(),
            brokers,
            recorder,
            enough,
            random: StdRng::seed_from_u64(seed),
            next: [0; PARTITIONS as usize],
            unsettled: VecDeque::new(),
            rewinding: false,
            next_id: 1,
            frames: 0,
            broken: BTreeMap::new(),
        }
    }

    /// Publishes until it is told that it is enough and everything is settled.
    pub async fn run(mut self) {
        while !self.is_done() {
            let address = self.brokers[self.random.random_range(0..self.brokers.len())];
            let subprotocol = match self.random.random_bool(0.5) {
                true => Subprotocol::MessagePack,
                false => Subprotocol::Json,
            };
            match Link::open(address, subprotocol, None).await {
                Some((link, _)) => self.serve(link).await,
                None => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    fn is_done(&self) -> bool {
        self.enough.is_cancelled() && self.unsettled.is_empty()
    }

    /// Works on one connection until it is lost, or all is done.
    async fn serve(&mut self, mut link: Link) {
        self.rewinding = true;
        self.unsettled.iter_mut().for_each(|frame| frame.id = None);
        self.broken.clear(); // nobody will say what became of them
        let mut frames = tokio::time::interval(FRAME_PAUSE);
        frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut heard_at = Instant::now();
        let mut said_at = Instant::now();
        while !self.is_done() && heard_at.elapsed() < SILENCE_MAX {
            let sent = tokio::select! {
                incoming = link.next() => {
                    heard_at = Instant::now();
                    match incoming {
                        Incoming::Frame(frame) => self.on_frame(*frame),
                        Incoming::Ended(_) => return,
                    }
                    continue;
                }
                _ = frames.tick() => self.next_frame(),
            };
            let sent = match sent {
                Some(frame) => frame,
                None if said_at.elapsed() > HEARTBEAT / 2 => ClientFrame::Heartbeat,
                None => continue,
            };
            said_at = Instant::now();
            match tokio::time::timeout(SILENCE_MAX, link.send(&sent)).await {
                Ok(Some(())) => {}
                Ok(None) | Err(_) => return,
            }
        }
        link.close().await;
    }

    /// What to send next, if anything.
    fn next_frame(&mut self) -> Option<ClientFrame> {
        if self.rewinding && self.unsettled.iter().all(|frame| frame.id.is_none()) {
            self.rewinding = false;
        }
        let under_way = self.unsettled.iter().filter(|frame| frame.id.is_some()).count();
        if self.rewinding || under_way >= IN_FLIGHT_MAX {
            return None;
        }
        if let Some(index) = self.unsettled.iter().position(|frame| frame.id.is_none()) {
            return Some(self.send(index));
        }
        if self.enough.is_cancelled() {
            return None;
        }
        if self.random.random_ratio(1, BROKEN_EVERY) {
            return Some(self.broken_frame());
        }
        let values = self.new_values();
        self.unsettled.push_back(Frame { id: None, values });
        Some(self.send(self.unsettled.len() - 1))
    }

    fn new_values(&mut self) -> Vec<Value> {
        let mut values = Vec::new();
        for _ in 0..self.random.random_range(1..=FRAME_MESSAGES_MAX) {
            let partition = self.random.random_range(0..PARTITIONS);
            let number = self.next[partition as usize];
            self.next[partition as usize] += 1;
            values.push(Value { producer: self.number, partition, number, frame: self.frames, of: 0 });
        }
        self.frames += 1;
        let mut counts = [0; PARTITIONS as usize];
        values.iter().for_each(|value| counts[value.partition as usize] += 1);
        values.iter_mut().for_each(|value| value.of = counts[value.partition as usize]);
        values
    }

    fn send(&mut self, index: usize) -> ClientFrame {
        let id = self.id();
        let frame = &mut self.unsettled[index];
        frame.id = Some(id);
        let message = |value: &Value| NewMessage { sequence: Some(value.number), ..message(*value) };
        let messages = frame.values.iter().map(message).collect();
        ClientFrame::Publish(Publish {
            id,
            topic: TOPIC.into(),
            producer_id: Some(self.producer_id),
            wait_ms: None,
            messages,
        })
    }

    /// Good messages beside one for a partition that does not exist: none of them may be stored.
    fn broken_frame(&mut self) -> ClientFrame {
        let id = self.id();
        let value = |number| Value {
            producer: self.number + REFUSED,
            partition: number as u32 % PARTITIONS,
            number: number as i64,
            frame: id,
            of: 1,
        };
        let values: Vec<Value> = (0..3).map(value).collect();
        let mut messages: Vec<NewMessage> = values.iter().map(|value| message(*value)).collect();
        messages[2].partition = Some(PARTITIONS);
        self.broken.insert(id, values);
        ClientFrame::Publish(Publish { id, topic: TOPIC.into(), producer_id: None, wait_ms: None, messages })
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn on_frame(&mut self, frame: BrokerFrame) {
        match frame {
            BrokerFrame::Published(published) => self.on_published(&published),
            BrokerFrame::Error(error) => {
                let Some(id) = error.id else { return };
                if let Some(values) = self.broken.remove(&id) {
                    if error.class == Class::Refused {
                        values.into_iter().for_each(|value| self.recorder.note(Event::Refused { value }));
                    }
                } else if let Some(frame) = self.unsettled.iter_mut().find(|frame| frame.id == Some(id)) {
                    frame.id = None;
                    self.rewinding = true;
                }
            }
            _ => {}
        }
    }

    fn on_published(&mut self, published: &Published) {
        let Some(index) = self.unsettled.iter().position(|frame| frame.id == Some(published.id)) else {
            return;
        };
        let frame = &mut self.unsettled[index];
        let mut settled = vec![false; frame.values.len()];
        for unit in &published.units {
            match &unit.error {
                None => {
                    for (position, offset) in offsets(unit) {
                        let Some(value) = frame.values.get(position) else { continue };
                        settled[position] = true;
                        if let Some(offset) = offset {
                            self.recorder.note(Event::Stored { value: *value, offset });
                        }
                    }
                }
                Some(fault) => {
                    self.rewinding = true;
                    if fault.code == ErrorCode::SequenceGap {
                        tracing::debug!(producer = self.number, expected = ?fault.expected, "a gap");
                    }
                }
            }
        }
        let mut settled = settled.into_iter();
        frame.values.retain(|_| !settled.next().unwrap_or(false));
        frame.id = None;
        if frame.values.is_empty() {
            self.unsettled.remove(index);
        } else {
            self.rewinding = true;
        }
    }
}

fn message(value: Value) -> NewMessage {
    NewMessage {
        payload: value.payload(),
        partition: Some(value.partition),
        trace_id: Some(value.trace_id()),
        ..NewMessage::default()
    }
}

/// The positions of a unit that was stored, and where their messages stand.
fn offsets(unit: &PublishedUnit) -> Vec<(usize, Option<i64>)> {
    let mut next = unit.first_offset;
    let mut offsets = Vec::with_capacity(unit.positions.len());
    for position in &unit.positions {
        let offset = match unit.duplicates.iter().find(|duplicate| duplicate.position == *position) {
            Some(duplicate) => duplicate.offset,
            None => {
                let offset = next;
                next = next.map(|next| next + 1);
                offset
            }
        };
        offsets.push((*position as usize, offset));
    }
    offsets
}
