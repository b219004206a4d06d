//! Frames of many messages, several in flight, as fast as they are answered.

use std::collections::VecDeque;
use std::time::Instant;

use futures_util::SinkExt as _;
use laneway_client::wire::{BrokerFrame, NewMessage};

use super::numbered::Numbered;
use super::session::{self, Receiver, Sender, Traffic};
use super::{Post, Round, Window, WorkerError};
use crate::bench::messages::{Supply, now_us, stamped};
use crate::bench::tally::{Latencies, Tally};

/// See the module.
pub(super) struct Producer {
    frame_messages: usize,
    frames_in_flight: usize,
    sender: Sender,
    receiver: Receiver,
    numbered: Numbered,
    /// Unanswered frames, oldest first: answers may come in any order, so by id.
    in_flight: VecDeque<(u64, Instant)>,
    ever: u64,
}

impl Producer {
    pub async fn open(
        post: &Post,
        partitions: u32,
        frame_messages: usize,
        frames_in_flight: usize,
    ) -> Result<Self, WorkerError> {
        let (sender, receiver) = session::open(post.broker(0), Traffic::Heavy).await?;
        Ok(Self {
            frame_messages,
            frames_in_flight,
            sender,
            receiver,
            numbered: Numbered::new(&post.topic, partitions, Supply::new()),
            in_flight: VecDeque::new(),
            ever: 0,
        })
    }

    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Publishes until the window is over, and waits for every answer.
    pub async fn work(&mut self, round: Round) -> Result<Tally, WorkerError> {
        let window = Window::of(round);
        let most = round.messages_max.unwrap_or(u64::MAX);
        let (mut counted, mut latencies, mut sent) = (0, Latencies::new(), 0);
        loop {
            let mut fed = false;
            while self.in_flight.len() < self.frames_in_flight && sent < most && Instant::now() < window.to {
                let frame = self.frame();
                self.sender.feed(frame).await?;
                sent += self.frame_messages as u64;
                fed = true;
            }
            if fed {
                self.sender.flush().await?;
            }
            if self.in_flight.is_empty() {
                break;
            }
            let mut frame = Some(self.receiver.next().await?);
            while let Some(BrokerFrame::Published(published)) = frame {
                let now = Instant::now();
                let place = self.in_flight.iter().position(|(id, _)| *id == published.id);
                let (_, since) =
                    place.and_then(|place| self.in_flight.remove(place)).ok_or("an answer to nothing")?;
                self.ever += self.frame_messages as u64;
                if window.contains(now) {
                    counted += self.frame_messages as u64;
                    latencies.record(now - since);
                }
                frame = self.receiver.ready()?;
            }
        }
        let over = Instant::now().min(window.to);
        let seconds = over.saturating_duration_since(window.from).as_secs_f64();
        Ok(Tally { messages: counted, seconds, ever: self.ever, missing: 0, latencies: latencies.counted() })
    }

    fn frame(&mut self) -> tokio_tungstenite::tungstenite::Message {
        let mut messages: Vec<NewMessage> =
            (0..self.frame_messages).map(|_| self.numbered.message()).collect();
        if let Some(first) = messages.first_mut() {
            first.payload = stamped(&first.payload, now_us()); // one is enough: all of a frame are sent at once
        }
        let frame = self.numbered.publish(messages);
        self.in_flight.push_back((self.numbered.id, Instant::now()));
        frame
    }
}
