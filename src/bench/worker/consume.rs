//! Members of groups: they take what they are given, acknowledge batch by batch, and count what the broker says is committed.
//!
//! Each lane has one ack at a time that asks to be confirmed, as a client does that wants to know how far it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::SinkExt as _;
use laneway_client::wire::{
    Ack, Acked, Batch, BrokerFrame, ClientFrame, Credit, CreditGrant, Record, Start, Subscribe,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::session::{self, Receiver, Sender, Traffic, encoded};
use super::{From, Job, Post, Rounds, Speed, Window, WorkerError, say};
use crate::bench::messages::{now_us, stamp};
use crate::bench::tally::{Latencies, Tally};

/// What a member accepts ahead of what it has acknowledged.
const CREDIT_MESSAGES: u32 = 40_000;
const CREDIT_BYTES: u64 = 32 << 20;
/// Credit is given back in pieces, so that it costs a frame now and then.
const CREDIT_PIECE: u32 = CREDIT_MESSAGES / 8;
/// A slow member accepts little: what it holds, it holds up.
const SLOW_CREDIT_MESSAGES: u32 = 1_000;
/// What a slow member may make up for when it was kept from working: a timer wakes late.
const SLOW_ARREARS_MAX: Duration = Duration::from_millis(100);
/// Before the first round, so that lanes find their members while nothing is in flight.
const FIRST_CREDIT: CreditGrant = CreditGrant { messages: 1, bytes: 1 };

/// What all members of this process have counted.
#[derive(Debug, Default)]
struct Count {
    ever: u64,
    window: Option<Window>,
    messages: u64,
    /// Of messages that were due in the window, whenever they came.
    latencies: Latencies,
}

impl Count {
    fn begin(&mut self, window: Window) {
        *self = Self { window: Some(window), ever: self.ever, ..Self::default() };
    }

    /// Messages that are due in the window and have not come.
    fn missing(&self) -> u64 {
        let due = self.window.map_or(0, |window| window.round.due);
        due.saturating_sub(self.latencies.recorded())
    }

    /// Invariant: every message that was due is in the times, also one that never came.
    fn tally(&self) -> Tally {
        let (mut latencies, missing) = (self.latencies.clone(), self.missing());
        let seconds = self.window.map_or(0.0, |window| {
            latencies.record_times(window.to.elapsed(), missing);
            (window.to - window.from).as_secs_f64()
        });
        let latencies = latencies.counted();
        Tally { messages: self.messages, seconds, ever: self.ever, missing, latencies }
    }
}

/// Counts of all members, and the news that there is nothing to wait for any more.
#[derive(Debug, Default)]
struct Shared {
    count: Mutex<Count>,
    complete: Notify,
}

impl Shared {
    /// Returns when the window is over and what was due in it has come, or is too late.
    async fn over(&self, window: Window) {
        tokio::time::sleep_until(window.to.into()).await;
        while self.count.lock().missing() > 0 {
            tokio::select! {
                () = self.complete.notified() => {}
                () = tokio::time::sleep_until(window.too_late().into()) => return,
            }
        }
    }
}

pub(super) async fn run(post: &Post, mut rounds: Rounds) -> Result<(), WorkerError> {
    let Job::Consume { groups, speed, from } = &post.job else {
        return Err("this job consumes nothing".into());
    };
    let shared = Arc::new(Shared::default());
    let mut members = JoinSet::new();
    let begun = CancellationToken::new();
    for (number, group) in groups.iter().enumerate() {
        let (sender, receiver) = session::open(post.broker(number), Traffic::Heavy).await?;
        let member =
            Member::subscribe((sender, receiver), post, group, (*speed, *from), shared.clone()).await?;
        members.spawn(member.run(begun.clone()));
    }
    say(&Tally::default())?; // it is ready
    loop {
        tokio::select! {
            round = rounds.next() => {
                let Some(round) = round? else { return Ok(()) };
                let window = Window::of(round);
                shared.count.lock().begin(window);
                begun.cancel();
                tokio::select! {
                    () = shared.over(window) => {}
                    ended = members.join_next() => return ended_early(ended),
                }
                let tally = shared.count.lock().tally();
                say(&tally)?;
            }
            ended = members.join_next() => return ended_early(ended),
        }
    }
}

type Ended = Option<Result<Result<(), WorkerError>, tokio::task::JoinError>>;

fn ended_early(ended: Ended) -> Result<(), WorkerError> {
    match ended {
        Some(ended) => ended?,
        None => Err("there is no group to be a member of".into()),
    }
}

/// What a message takes of the credit; ours have no headers.
fn credit_bytes(record: &Record) -> usize {
    record.payload.len() + record.key.as_ref().map_or(0, Bytes::len)
}

/// How far a lane is.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    /// Durable, as far as was said.
    committed: i64,
    /// An ack that asks to be confirmed is under way.
    confirming: bool,
    /// Everything below was acknowledged since, without asking.
    unconfirmed: Option<(i64, u32, i64)>,
}

/// One member of one group.
struct Member {
    sender: Sender,
    receiver: Receiver,
    subscription: u32,
    speed: Speed,
    lanes: HashMap<u32, Lane>,
    next_id: u64,
    /// Messages and bytes that are done and not given back as credit.
    spent: (u32, u64),
    /// When a slow one is done with what it has taken.
    busy_until: Instant,
    shared: Arc<Shared>,
}

impl Member {
    async fn subscribe(
        (mut sender, mut receiver): (Sender, Receiver),
        post: &Post,
        group: &str,
        (speed, from): (Speed, From),
        shared: Arc<Shared>,
    ) -> Result<Self, WorkerError> {
        let subscribe = Subscribe {
            id: 1,
            group: group.to_owned(),
            topic: post.topic.clone(),
            start: Some(match from {
                From::Oldest => Start::Earliest,
                From::Newest => Start::Latest,
            }),
            credit: FIRST_CREDIT,
            batch: None,
            settings: None,
        };
        sender.send(encoded(&ClientFrame::Subscribe(subscribe))).await?;
        let frame = receiver.until(|frame| matches!(frame, BrokerFrame::Subscribed(_))).await?;
        let BrokerFrame::Subscribed(subscribed) = frame else { return Err("not subscribed".into()) };
        let subscription = subscribed.subscription;
        Ok(Self {
            sender,
            receiver,
            subscription,
            speed,
            lanes: HashMap::new(),
            next_id: 1,
            spent: (0, 0),
            busy_until: Instant::now(),
            shared,
        })
    }

    async fn run(mut self, begun: CancellationToken) -> Result<(), WorkerError> {
        let mut has_begun = false;
        loop {
            let mut frame = tokio::select! {
                () = begun.cancelled(), if !has_begun => {
                    has_begun = true;
                    self.accept_all().await?;
                    None
                }
                frame = self.receiver.next() => Some(frame?),
            };
            while let Some(taken) = frame {
                self.take(taken).await?;
                frame = self.receiver.ready()?;
            }
            self.sender.flush().await?;
        }
    }

    /// The first round has begun.
    async fn accept_all(&mut self) -> Result<(), WorkerError> {
        let messages = match self.speed {
            Speed::Full => CREDIT_MESSAGES,
            Speed::Slow { .. } => SLOW_CREDIT_MESSAGES,
        };
        self.spent = (0, 0);
        let credit = Credit { subscription: self.subscription, messages, bytes: CREDIT_BYTES };
        Ok(self.sender.feed(encoded(&ClientFrame::Credit(credit))).await?)
    }

    async fn take(&mut self, frame: BrokerFrame) -> Result<(), WorkerError> {
        match frame {
            BrokerFrame::Batch(batch) => self.on_batch(batch).await,
            BrokerFrame::Acked(acked) => self.on_acked(&acked).await,
            BrokerFrame::LaneGranted(granted) => {
                let lane = Lane { committed: granted.committed_offset, ..Lane::default() };
                self.lanes.insert(granted.partition, lane);
                Ok(())
            }
            BrokerFrame::LaneRevoked(revoked) => {
                self.lanes.remove(&revoked.partition);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn on_batch(&mut self, batch: Batch) -> Result<(), WorkerError> {
        let (messages, now) = (batch.messages.len() as u32, now_us());
        // As the broker counts: what is not given back is missing after some million messages.
        let bytes: usize = batch.messages.iter().map(credit_bytes).sum();
        self.time(&batch, now);
        if let Speed::Slow { rate } = self.speed {
            self.sender.flush().await?;
            let since = Instant::now().checked_sub(SLOW_ARREARS_MAX).unwrap_or(self.busy_until);
            let took = Duration::from_secs_f64(f64::from(messages) / f64::from(rate));
            self.busy_until = self.busy_until.max(since) + took;
            tokio::time::sleep_until(self.busy_until.into()).await;
        }
        let Some(last) = batch.messages.last() else { return Ok(()) };
        self.acknowledge(batch.partition, (batch.epoch, batch.round, last.offset + 1)).await?;
        self.spent = (self.spent.0 + messages, self.spent.1 + bytes as u64);
        let piece = match self.speed {
            Speed::Full => CREDIT_PIECE,
            Speed::Slow { .. } => 1,
        };
        if self.spent.0 >= piece {
            let (messages, bytes) = std::mem::take(&mut self.spent);
            let credit = Credit { subscription: self.subscription, messages, bytes };
            self.sender.feed(encoded(&ClientFrame::Credit(credit))).await?;
        }
        Ok(())
    }

    /// Times what carries its moment: what was due in the window, also after its end, or, where nothing is due by the clock, what is
    /// delivered in it.
    fn time(&self, batch: &Batch, now: i64) {
        let mut count = self.shared.count.lock();
        let Some(window) = count.window else { return };
        let is_paced = window.round.due > 0;
        let moments = batch.messages.iter().filter_map(|record| stamp(&record.payload));
        for moment in moments.filter(|moment| window.contains_us(if is_paced { *moment } else { now })) {
            count.latencies.record_us((now - moment).max(0) as u64);
        }
        if is_paced && count.missing() == 0 {
            self.shared.complete.notify_one();
        }
    }

    /// Acknowledges everything below an offset; asks for confirmation unless that is under way.
    async fn acknowledge(&mut self, partition: u32, upto: (i64, u32, i64)) -> Result<(), WorkerError> {
        let lane = self.lanes.entry(partition).or_default();
        let id = (!lane.confirming).then(|| {
            self.next_id += 1;
            self.next_id
        });
        lane.unconfirmed = id.is_none().then_some(upto);
        lane.confirming = true;
        let (epoch, round, next) = upto;
        let ack = Ack {
            id,
            subscription: self.subscription,
            partition,
            epoch,
            round,
            next: Some(next),
            ranges: Vec::new(),
        };
        Ok(self.sender.feed(encoded(&ClientFrame::Ack(ack))).await?)
    }

    async fn on_acked(&mut self, acked: &Acked) -> Result<(), WorkerError> {
        let lane = self.lanes.entry(acked.partition).or_default();
        let more = (acked.committed_offset - lane.committed).max(0) as u64;
        lane.committed = lane.committed.max(acked.committed_offset);
        lane.confirming = false;
        let unconfirmed = lane.unconfirmed.take().filter(|(_, _, next)| *next > acked.committed_offset);
        {
            let mut count = self.shared.count.lock();
            count.ever += more;
            if count.window.is_some_and(|window| window.contains(Instant::now())) {
                count.messages += more;
            }
        }
        match unconfirmed {
            Some(upto) => self.acknowledge(acked.partition, upto).await,
            None => Ok(()),
        }
    }
}
