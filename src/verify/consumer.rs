//! A consumer of a group: takes what it is given, writes down what it sees, and acknowledges in a way of its own.
//!
//! One task per consumer. It lives through many connections: it is cut, frozen, killed and sent away, and comes back as the same
//! session or as another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_client::wire::{
    Ack, Acked, Advice, Batch, BatchOptions, BrokerFrame, ClientFrame, CloseCode, Credit, CreditGrant,
    ErrorFrame, LaneGranted, Nack, OffsetRange, Record, Resume, ResumeOutcome, Start, Subprotocol, Subscribe,
    WantedSettings, Welcome,
};
use laneway_client::{Class, ErrorCode};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::mpsc;

use super::history::{Event, LaneId, Ranges, Sight, Term};
use super::link::{Incoming, Link};
use super::scene::{Order, Scene, Style};
use super::settings::{ACK_DEADLINE, GROUPS, HEARTBEAT, TOPIC};
use super::steps::{Answer, Steps};
use super::value::Value;

/// Credit: small enough that batches are many.
const CREDIT_MESSAGES: u32 = 400;
const CREDIT_BYTES: u64 = 16 << 20;
/// Messages of a batch.
const BATCH_MESSAGES: u32 = 60;
/// Between two tries to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Without a sign of life from the broker the connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often those that collect acknowledge.
const COLLECT_PAUSE: Duration = Duration::from_millis(100);
/// One batch in so many is followed by an ack of what was never sent.
const ODD_EVERY: u32 = 200;

/// An ack that waits for its answer.
#[derive(Debug)]
struct Waiting {
    lane: LaneId,
    term: Term,
    ranges: Ranges,
    is_odd: bool,
}

/// See the module.
pub(super) struct Consumer {
    number: usize,
    group: usize,
    style: Style,
    scene: Arc<Scene>,
    orders: mpsc::Receiver<Order>,
    random: StdRng,
    /// The broker of this connection.
    broker: usize,
    /// Terms of the lanes, as far as they were told.
    terms: HashMap<u32, Term>,
    /// Collected and not acknowledged yet: the last batch of each lane, and everything that its ack will stand for.
    collected: HashMap<u32, (Batch, Ranges)>,
    waiting: HashMap<u64, Waiting>,
    steps: Steps,
    next_id: u64,
}

/// Why a consumer left a connection.
enum Left {
    /// It may take the session up again.
    Lost,
    /// It comes back as another session.
    Gone,
    Stopped,
}

impl Consumer {
    pub fn new(
        number: usize,
        group: usize,
        style: Style,
        seed: u64,
        scene: Arc<Scene>,
        orders: mpsc::Receiver<Order>,
    ) -> Self {
        Self {
            number,
            group,
            style,
            scene,
            orders,
            random: StdRng::seed_from_u64(seed),
            broker: 0,
            terms: HashMap::new(),
            collected: HashMap::new(),
            waiting: HashMap::new(),
            steps: Steps::default(),
            next_id: 100,
        }
    }

    /// Consumes until the run ends.
    pub async fn run(mut self) {
        let mut last: Option<Welcome> = None;
        while !self.scene.stop.is_cancelled() {
            self.broker = self.random.random_range(0..self.scene.brokers.len());
            let subprotocol = match self.random.random_bool(0.5) {
                true => Subprotocol::MessagePack,
                false => Subprotocol::Json,
            };
            let resume = last
                .as_ref()
                .filter(|_| self.random.random_bool(0.8))
                .map(|welcome| Resume { session: welcome.session, token: welcome.resume_token.clone() });
            let address = self.scene.brokers[self.broker];
            let Some((link, welcome)) = Link::open(address, subprotocol, resume).await else {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            };
            self.collected.clear();
            let is_member = self.on_welcome(&welcome);
            last = match self.work(link, is_member).await {
                Left::Lost => Some(welcome),
                Left::Gone => None,
                Left::Stopped => return,
            };
        }
    }

    /// Whether the session is a member still.
    fn on_welcome(&mut self, welcome: &Welcome) -> bool {
        let Some(report) = welcome.resume.as_ref().filter(|report| report.outcome == ResumeOutcome::Resumed)
        else {
            self.terms.clear();
            self.waiting.clear(); // another session: nobody will answer
            return false;
        };
        for lane in report.lanes.iter().filter(|lane| lane.outcome == ResumeOutcome::Resumed) {
            self.granted(lane.partition, (lane.epoch, lane.round), lane.committed_offset, &lane.acked);
        }
        // A session may have been taken up before its subscribe arrived.
        !report.lanes.is_empty()
    }

    fn granted(&mut self, partition: u32, term: Term, committed: i64, acked: &[OffsetRange]) {
        self.terms.insert(partition, term);
        let acked = acked.iter().map(|range| (range.from, range.to)).collect();
        let (lane, consumer, broker) = (self.lane(partition), self.number, self.broker);
        self.note(Event::Granted { lane, term, consumer, broker, committed, acked });
    }

    fn lane(&self, partition: u32) -> LaneId {
        LaneId { group: self.group, partition }
    }

    fn note(&self, event: Event) {
        self.scene.recorder.note(event);
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    async fn work(&mut self, mut link: Link, is_member: bool) -> Left {
        if !is_member && say(&mut link, &self.subscribe()).await.is_none() {
            return Left::Lost;
        }
        self.steps.on_connected(); // whatever was under way is asked for again
        let mut pace = tokio::time::interval(COLLECT_PAUSE);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut heard_at, mut said_at) = (Instant::now(), Instant::now());
        let stop = self.scene.stop.clone();
        loop {
            let frames = tokio::select! {
                incoming = link.next() => {
                    heard_at = Instant::now();
                    match incoming {
                        Incoming::Frame(frame) => match self.on_frame(*frame).await {
                            Ok(frames) => frames,
                            Err(left) => return leave(link, left).await,
                        },
                        Incoming::Ended(code) => return self.on_ended(code),
                    }
                }
                Some(order) = self.orders.recv() => match order {
                    Order::Die => return Left::Gone,
                    Order::Leave => return leave(link, Left::Gone).await,
                    Order::Freeze(time) => {
                        tokio::time::sleep(time).await;
                        heard_at = Instant::now();
                        Vec::new()
                    }
                },
                _ = pace.tick() => {
                    let mut frames = self.acks_of_collected();
                    frames.extend(self.steps.again());
                    frames
                }
                () = stop.cancelled() => return leave(link, Left::Stopped).await,
            };
            let is_quiet = frames.is_empty() && said_at.elapsed() > HEARTBEAT / 2;
            for frame in frames.into_iter().chain(is_quiet.then_some(ClientFrame::Heartbeat)) {
                said_at = Instant::now();
                if say(&mut link, &frame).await.is_none() {
                    return Left::Lost;
                }
            }
            if heard_at.elapsed() > SILENCE_MAX {
                return Left::Lost;
            }
        }
    }

    fn subscribe(&mut self) -> ClientFrame {
        ClientFrame::Subscribe(Subscribe {
            id: self.id(),
            group: GROUPS[self.group].into(),
            topic: TOPIC.into(),
            start: Some(Start::Earliest),
            credit: CreditGrant { messages: CREDIT_MESSAGES, bytes: CREDIT_BYTES },
            batch: Some(BatchOptions { max_messages: Some(BATCH_MESSAGES), ..BatchOptions::default() }),
            settings: Some(WantedSettings {
                ack_deadline_ms: Some(ACK_DEADLINE.as_millis() as u64),
                max_attempts: Some(1_000_000),
                backoff_base_ms: Some(5),
                backoff_factor: Some(1.0),
                backoff_cap_ms: Some(5),
                ..WantedSettings::default()
            }),
        })
    }

    fn on_ended(&mut self, code: Option<u16>) -> Left {
        let known = code.and_then(CloseCode::from_code);
        // Another connection of ours has taken the session: that is how resuming works.
        if let Some(known) =
            known.filter(|known| known.advice() == Advice::Stop && *known != CloseCode::TakenOver)
        {
            self.scene.findings.lock().closes_not_retryable.push(known.code());
            return Left::Gone;
        }
        Left::Lost
    }

    /// What to answer; `Err`: it leaves.
    async fn on_frame(&mut self, frame: BrokerFrame) -> Result<Vec<ClientFrame>, Left> {
        match frame {
            BrokerFrame::Batch(batch) => return self.on_batch(batch).await,
            BrokerFrame::LaneGranted(granted) => self.on_granted(&granted),
            BrokerFrame::LaneRevoked(revoked) => {
                self.terms.remove(&revoked.partition);
                self.collected.remove(&revoked.partition);
            }
            BrokerFrame::LaneDraining(_) => return Ok(self.acks_of_collected()),
            BrokerFrame::Acked(acked) => self.on_acked(&acked),
            BrokerFrame::Transacted(done) => {
                let now = |lane: LaneId| self.terms.get(&lane.partition).copied();
                self.steps.on_transacted(&done, now).into_iter().for_each(|event| self.note(event));
            }
            BrokerFrame::Error(error) => return self.on_error(&error),
            BrokerFrame::GoAway(_) => return Err(Left::Gone),
            _ => {}
        }
        Ok(Vec::new())
    }

    fn on_granted(&mut self, granted: &LaneGranted) {
        let term = (granted.epoch, granted.round);
        if let Some(reset) = &granted.reset {
            let lane = self.lane(granted.partition);
            self.note(Event::Reset { lane, from: reset.from, to: reset.to });
        }
        self.granted(granted.partition, term, granted.committed_offset, &granted.acked);
    }

    fn on_acked(&mut self, acked: &Acked) {
        let Some(Waiting { lane, term, ranges, is_odd }) = self.waiting.remove(&acked.id) else { return };
        if is_odd {
            let text = format!("{lane:?} {term:?}: an ack of {ranges:?}, never sent, was confirmed");
            return self.scene.findings.lock().odd_acks_confirmed.push(text);
        }
        let now = self.terms.get(&lane.partition).copied().filter(|now| now.0 == term.0);
        let during = now.map_or(term, |now| now.max(term));
        self.note(Event::Confirmed { lane, term, during, ranges, committed: acked.committed_offset });
    }

    fn on_error(&mut self, error: &ErrorFrame) -> Result<Vec<ClientFrame>, Left> {
        match self.steps.on_error(error) {
            Answer::Mine(event) => {
                event.into_iter().for_each(|event| self.note(event));
                return Ok(Vec::new());
            }
            Answer::NotMine => {}
        }
        let Some(waiting) = error.id.and_then(|id| self.waiting.remove(&id)) else {
            // A subscribe that failed: from the beginning. Of a lost ack without a name nobody waits for an answer.
            return match (error.id, error.code) {
                (Some(_), ErrorCode::AlreadySubscribed) | (None, _) => Ok(Vec::new()),
                (Some(_), _) => Err(Left::Gone),
            };
        };
        if waiting.is_odd {
            self.scene.findings.lock().odd_acks += 1;
        } else if error.class == Class::Refused {
            let Waiting { lane, term, ranges, .. } = waiting;
            self.note(Event::AckRefused { lane, term, ranges, fenced: error.code == ErrorCode::LeaseLost });
        }
        Ok(Vec::new())
    }

    async fn on_batch(&mut self, batch: Batch) -> Result<Vec<ClientFrame>, Left> {
        let lane = self.lane(batch.partition);
        let term = (batch.epoch, batch.round);
        self.terms.insert(batch.partition, term);
        let messages = batch.messages.iter().map(sight).collect();
        self.note(Event::Delivered { lane, term, consumer: self.number, messages });
        let mut frames = match self.style {
            Style::Steady => vec![self.ack_all(&batch)],
            Style::Slow => {
                tokio::time::sleep(Duration::from_millis(self.random.random_range(1..20))).await;
                vec![self.ack_all(&batch)]
            }
            Style::Collecting => {
                self.collect(&batch);
                Vec::new()
            }
            Style::Singles => self.ack_singles(&batch),
            Style::Nacking => self.nack_some(&batch),
            Style::Dying if self.random.random_ratio(1, 100) => return Err(Left::Lost),
            Style::Dying => vec![self.ack_all(&batch)],
            Style::Stepping => vec![self.step(&batch)],
        };
        if self.random.random_ratio(1, ODD_EVERY) {
            frames.push(self.odd_ack(&batch));
        }
        frames.push(ClientFrame::Credit(Credit {
            subscription: batch.subscription,
            messages: batch.messages.len() as u32,
            bytes: batch.messages.iter().map(|message| message.payload.len() as u64).sum(),
        }));
        Ok(frames)
    }

    /// The whole batch, together with what follows from it.
    fn step(&mut self, batch: &Batch) -> ClientFrame {
        let (id, lane, ranges) = (self.id(), self.lane(batch.partition), ranges_of(&batch.messages));
        self.note(Event::Asked { lane, term: (batch.epoch, batch.round), ranges: ranges.clone() });
        self.steps.step(id, lane, batch, ranges)
    }

    /// Everything below the end of a batch that came whole and in order.
    fn ack_all(&mut self, batch: &Batch) -> ClientFrame {
        self.ack(batch, end(batch), ranges_of(&batch.messages), false)
    }

    fn ack(&mut self, batch: &Batch, next: Option<i64>, ranges: Ranges, is_odd: bool) -> ClientFrame {
        let id = self.id();
        let (lane, term) = (self.lane(batch.partition), (batch.epoch, batch.round));
        if !is_odd {
            self.note(Event::Asked { lane, term, ranges: ranges.clone() });
        }
        let singles = ranges.iter().map(|(from, to)| OffsetRange { from: *from, to: *to });
        let singles = if next.is_some() { Vec::new() } else { singles.collect() };
        self.waiting.insert(id, Waiting { lane, term, ranges, is_odd });
        ClientFrame::Ack(Ack {
            id: Some(id),
            subscription: batch.subscription,
            partition: batch.partition,
            epoch: batch.epoch,
            round: batch.round,
            next,
            ranges: singles,
        })
    }

    fn collect(&mut self, batch: &Batch) {
        let before = self.collected.remove(&batch.partition);
        // What was collected in an earlier term comes again.
        let before = before.filter(|(last, _)| (last.epoch, last.round) == (batch.epoch, batch.round));
        let mut ranges = before.map(|(_, ranges)| ranges).unwrap_or_default();
        ranges.extend(ranges_of(&batch.messages));
        self.collected.insert(batch.partition, (batch.clone(), ranges));
    }

    fn acks_of_collected(&mut self) -> Vec<ClientFrame> {
        let collected: Vec<(Batch, Ranges)> =
            self.collected.drain().map(|(_, collected)| collected).collect();
        collected.into_iter().map(|(batch, ranges)| self.ack(&batch, end(&batch), ranges, false)).collect()
    }

    fn ack_singles(&mut self, batch: &Batch) -> Vec<ClientFrame> {
        let mut offsets: Vec<i64> = batch.messages.iter().map(|message| message.offset).collect();
        offsets.shuffle(&mut self.random);
        let half = offsets.len() / 2;
        let mut frames = Vec::new();
        for some in [&offsets[..half], &offsets[half..]].into_iter().filter(|some| !some.is_empty()) {
            let mut ranges: Ranges = some.iter().map(|offset| (*offset, offset + 1)).collect();
            ranges.sort_unstable();
            frames.push(self.ack(batch, None, ranges, false));
        }
        frames
    }

    /// Now and then: what is before a message, and not that message.
    fn nack_some(&mut self, batch: &Batch) -> Vec<ClientFrame> {
        if !self.random.random_ratio(1, 20) {
            return vec![self.ack_all(batch)];
        }
        let index = self.random.random_range(0..batch.messages.len());
        let offset = batch.messages[index].offset;
        let before = ranges_of(&batch.messages[..index]);
        let mut frames = Vec::new();
        if !before.is_empty() {
            frames.push(self.ack(batch, None, before, false));
        }
        let (lane, term) = (self.lane(batch.partition), (batch.epoch, batch.round));
        self.note(Event::Nacked { lane, term, offset });
        frames.push(ClientFrame::Nack(Nack {
            id: None,
            subscription: batch.subscription,
            partition: batch.partition,
            epoch: batch.epoch,
            round: batch.round,
            offset,
            reason: Some("verify refuses it".into()),
            delay_ms: None,
            until: None,
        }));
        frames
    }

    /// Acknowledges what was never sent.
    fn odd_ack(&mut self, batch: &Batch) -> ClientFrame {
        let last = batch.messages.last().map_or(0, |message| message.offset);
        let beyond = last + 1_000_000;
        self.ack(batch, Some(beyond), vec![(last + 1, beyond)], true)
    }
}

fn ranges_of(messages: &[Record]) -> Ranges {
    messages.iter().map(|message| (message.offset, message.offset + 1)).collect()
}

fn end(batch: &Batch) -> Option<i64> {
    batch.messages.last().map(|message| message.offset + 1)
}

pub(super) fn sight(record: &Record) -> Sight {
    let value = Value::parse(&record.payload);
    let trace_is_exact = value.is_some_and(|value| value.trace_id() == record.trace_id);
    Sight { offset: record.offset, value, trace_is_exact }
}

/// Sends, and gives up on a connection that takes nothing.
async fn say(link: &mut Link, frame: &ClientFrame) -> Option<()> {
    tokio::time::timeout(SILENCE_MAX, link.send(frame)).await.ok()?
}

async fn leave(link: Link, left: Left) -> Left {
    match left {
        Left::Lost => drop(link),
        Left::Gone | Left::Stopped => link.close().await,
    }
    left
}
