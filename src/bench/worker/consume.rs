//! Members of groups: they take what they are given, acknowledge batch by batch, and count what the broker says is committed.
//!
//! Each lane has one ack at a time that asks to be confirmed, as a client does that wants to know how far it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::SinkExt as _;
use laneway_client::wire::{
    Ack, Acked, Batch, BrokerFrame, ClientFrame, Credit, CreditGrant, Start, Subscribe,
};
use parking_lot::Mutex;
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
/// Before the first round, so that lanes find their members while nothing is in flight.
const FIRST_CREDIT: CreditGrant = CreditGrant { messages: 1, bytes: 1 };

/// What all members of this process have counted.
#[derive(Debug, Default)]
struct Count {
    ever: u64,
    window: Option<Window>,
    messages: u64,
    latencies: Latencies,
}

impl Count {
    fn begin(&mut self, window: Window) {
        *self = Self { window: Some(window), ever: self.ever, ..Self::default() };
    }
}

pub(super) async fn run(post: &Post, mut rounds: Rounds) -> Result<(), WorkerError> {
    let Job::Consume { groups, speed, from } = &post.job else {
        return Err("this job consumes nothing".into());
    };
    let count = Arc::new(Mutex::new(Count::default()));
    let mut members = JoinSet::new();
    let begun = CancellationToken::new();
    for (number, group) in groups.iter().enumerate() {
        let (sender, receiver) = session::open(post.broker(number), Traffic::Heavy).await?;
        let member =
            Member::subscribe((sender, receiver), post, group, (*speed, *from), count.clone()).await?;
        members.spawn(member.run(begun.clone()));
    }
    say(&Tally::default())?; // it is ready
    loop {
        tokio::select! {
            round = rounds.next() => {
                let Some(round) = round? else { return Ok(()) };
                let window = Window::of(round);
                count.lock().begin(window);
                begun.cancel();
                tokio::select! {
                    () = tokio::time::sleep_until(window.to.into()) => {}
                    ended = members.join_next() => return ended_early(ended),
                }
                let seconds = (window.to - window.from).as_secs_f64();
                let tally = {
                    let count = count.lock();
                    Tally { messages: count.messages, seconds, ever: count.ever, latencies: count.latencies.counted() }
                };
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
    count: Arc<Mutex<Count>>,
}

impl Member {
    async fn subscribe(
        (mut sender, mut receiver): (Sender, Receiver),
        post: &Post,
        group: &str,
        (speed, from): (Speed, From),
        count: Arc<Mutex<Count>>,
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
            count,
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
        let bytes: usize = batch.messages.iter().map(|record| record.payload.len()).sum();
        {
            let mut count = self.count.lock();
            if count.window.is_some_and(|window| window.contains(Instant::now())) {
                for sent_at in batch.messages.iter().filter_map(|record| stamp(&record.payload)) {
                    count.latencies.record_us((now - sent_at).max(0) as u64);
                }
            }
        }
        if let Speed::Slow { rate } = self.speed {
            self.sender.flush().await?;
            tokio::time::sleep(Duration::from_secs_f64(f64::from(messages) / f64::from(rate))).await;
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
            let mut count = self.count.lock();
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
