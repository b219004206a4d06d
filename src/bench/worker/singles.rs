//! Many producers, each with a connection of its own, one message at a time, waiting for its answer.

use std::time::Instant;

use futures_util::SinkExt as _;
use laneway_client::wire::{BrokerFrame, NewMessage};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::session::{self, Receiver, Sender, Traffic, single};
use super::{Post, Round, Window, WorkerError};
use crate::bench::messages::Supply;
use crate::bench::tally::{Latencies, Tally};

/// One of them.
struct One {
    topic: String,
    sender: Sender,
    receiver: Receiver,
    supply: Supply,
    next_id: u64,
}

/// See the module.
pub(super) struct Singles {
    producers: Vec<One>,
    ever: u64,
}

impl Singles {
    pub async fn open(post: &Post, producers: usize) -> Result<Self, WorkerError> {
        let mut opened = Vec::new();
        for number in 0..producers {
            let (sender, receiver) = session::open(post.broker(number), Traffic::Heavy).await?;
            let supply = Supply::small();
            opened.push(One { topic: post.topic.clone(), sender, receiver, supply, next_id: 0 });
        }
        Ok(Self { producers: opened, ever: 0 })
    }

    pub async fn work(&mut self, round: Round) -> Result<Tally, WorkerError> {
        let window = Window::of(round);
        let mut tasks = JoinSet::new();
        for one in self.producers.drain(..) {
            tasks.spawn(one.work(window));
        }
        let mut tallies = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (one, tally) = done??;
            self.producers.push(one);
            tallies.push(tally);
        }
        let mut sum = Tally::sum(&tallies);
        self.ever += sum.ever;
        sum.ever = self.ever;
        Ok(sum)
    }
}

impl One {
    async fn work(mut self, window: Window) -> Result<(Self, Tally), WorkerError> {
        let (mut counted, mut all, mut latencies) = (0, 0, Latencies::new());
        while Instant::now() < window.to {
            let sent_at = Instant::now();
            self.next_id += 1;
            let (payload, key) = self.supply.draw();
            let message = NewMessage {
                key: Some(key),
                payload,
                trace_id: Some(Uuid::now_v7()),
                ..NewMessage::default()
            };
            self.sender.send(single(self.next_id, &self.topic, message)).await?;
            self.receiver.until(|frame| matches!(frame, BrokerFrame::Published(_))).await?;
            all += 1;
            let now = Instant::now();
            if window.contains(now) {
                counted += 1;
                latencies.record(now - sent_at);
            }
        }
        let seconds = (window.to - window.from).as_secs_f64();
        Ok((
            self,
            Tally { messages: counted, seconds, ever: all, missing: 0, latencies: latencies.counted() },
        ))
    }
}
