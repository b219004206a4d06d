//! Many producers, each with a connection of its own, one message at a time, waiting for its answer.

use std::time::Instant;

use futures_util::SinkExt as _;
use laneway_client::wire::BrokerFrame;
use tokio::task::JoinSet;

use super::numbered::Numbered;
use super::session::{self, Receiver, Sender, Traffic};
use super::{Post, Round, Window, WorkerError};
use crate::bench::messages::Supply;
use crate::bench::tally::{Latencies, Tally};

/// One of them.
struct One {
    sender: Sender,
    receiver: Receiver,
    numbered: Numbered,
}

/// See the module.
pub(super) struct Singles {
    producers: Vec<One>,
    ever: u64,
}

impl Singles {
    pub async fn open(post: &Post, partitions: u32, producers: usize) -> Result<Self, WorkerError> {
        let mut opened = Vec::new();
        for number in 0..producers {
            let (sender, receiver) = session::open(post.broker(number), Traffic::Heavy).await?;
            let numbered = Numbered::new(&post.topic, partitions, Supply::small());
            opened.push(One { sender, receiver, numbered });
        }
        Ok(Self { producers: opened, ever: 0 })
    }

    pub fn senders(&mut self) -> impl Iterator<Item = &mut Sender> {
        self.producers.iter_mut().map(|one| &mut one.sender)
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
            let message = self.numbered.message();
            self.sender.send(self.numbered.publish(vec![message])).await?;
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
