//! Single messages at an offered rate: each is sent at its time, whether earlier ones are answered or not, and carries the moment at
//! which it should have been sent. So a stall is seen by every message that it holds up, not by one.

use std::time::{Duration, Instant};

use futures_util::SinkExt as _;
use laneway_client::wire::{BrokerFrame, NewMessage};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::session::{self, Receiver, Sender, Traffic, single};
use super::{Post, Round, Window, WorkerError};
use crate::bench::messages::{Supply, now_us, stamped};
use crate::bench::tally::{Latencies, Tally};

/// See the module.
pub(super) struct Pace {
    connections: Vec<(Sender, Receiver)>,
    topic: String,
    /// Between two messages of one connection.
    interval: Duration,
    ever: u64,
}

impl Pace {
    pub async fn open(post: &Post, connections: usize, rate: u32) -> Result<Self, WorkerError> {
        let mut opened = Vec::new();
        for number in 0..connections {
            opened.push(session::open(post.broker(number), Traffic::Heavy).await?);
        }
        let interval = Duration::from_secs_f64(connections as f64 / f64::from(rate));
        Ok(Self { connections: opened, topic: post.topic.clone(), interval, ever: 0 })
    }

    /// Counts answers, and how long they took from the moment at which the message should have been sent.
    pub async fn work(&mut self, round: Round) -> Result<Tally, WorkerError> {
        let (window, began) = (Window::of(round), Instant::now());
        let mut tasks = JoinSet::new();
        let count = self.connections.len() as u32;
        for (number, (sender, receiver)) in self.connections.drain(..).enumerate() {
            let first = began + self.interval * number as u32 / count;
            let schedule = Schedule { first, interval: self.interval, window };
            let topic = self.topic.clone();
            tasks.spawn(async move {
                let messages = schedule.messages();
                let (sent, heard) = tokio::try_join!(
                    send(sender, topic, schedule, messages),
                    hear(receiver, schedule, messages)
                )?;
                Ok::<_, WorkerError>((sent, heard))
            });
        }
        let mut tallies = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (sender, (receiver, tally)) = done??;
            self.connections.push((sender, receiver));
            tallies.push(tally);
        }
        let mut sum = Tally::sum(&tallies);
        self.ever += sum.ever;
        sum.ever = self.ever;
        Ok(sum)
    }
}

/// When the messages of one connection are due.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    first: Instant,
    interval: Duration,
    window: Window,
}

impl Schedule {
    fn due(self, number: u64) -> Instant {
        self.first + Duration::from_secs_f64(self.interval.as_secs_f64() * number as f64)
    }

    /// How many are due before the window is over.
    fn messages(self) -> u64 {
        let room = self.window.to.saturating_duration_since(self.first);
        (room.as_secs_f64() / self.interval.as_secs_f64()) as u64
    }
}

async fn send(
    mut sender: Sender,
    topic: String,
    schedule: Schedule,
    messages: u64,
) -> Result<Sender, WorkerError> {
    let mut supply = Supply::small();
    let mut number = 0;
    while number < messages {
        tokio::time::sleep_until(schedule.due(number).into()).await;
        let now = Instant::now();
        // Everything that is due by now: a late wake-up sends more than one, each with the moment that it was due.
        while number < messages && schedule.due(number) <= now {
            let late = now - schedule.due(number);
            let (payload, key) = supply.draw();
            let payload = stamped(&payload, now_us() - late.as_micros() as i64);
            let message = NewMessage {
                key: Some(key),
                payload,
                trace_id: Some(Uuid::now_v7()),
                ..NewMessage::default()
            };
            sender.feed(single(number, &topic, message)).await?;
            number += 1;
        }
        sender.flush().await?;
    }
    Ok(sender)
}

async fn hear(
    mut receiver: Receiver,
    schedule: Schedule,
    messages: u64,
) -> Result<(Receiver, Tally), WorkerError> {
    let (mut counted, mut latencies) = (0, Latencies::new());
    for _ in 0..messages {
        let frame = receiver.until(|frame| matches!(frame, BrokerFrame::Published(_))).await?;
        let BrokerFrame::Published(published) = frame else { continue };
        let due = schedule.due(published.id);
        if schedule.window.contains(due) {
            counted += 1;
            latencies.record(Instant::now().saturating_duration_since(due));
        }
    }
    let seconds = (schedule.window.to - schedule.window.from).as_secs_f64();
    Ok((receiver, Tally { messages: counted, seconds, ever: messages, latencies: latencies.counted() }))
}
