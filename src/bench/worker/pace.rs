//! Single messages at an offered rate: each carries the moment at which it was due, so a stall is seen by every message that it holds up,
//! not by one.
//!
//! A session may have so many unanswered publishes; what is due beyond that is held back here and sent as answers come, with the moment
//! at which it was due. What could not be sent a while after the window is given up: consumers miss it, and it counts as late as that.

use std::collections::VecDeque;

use futures_util::SinkExt as _;
use laneway_client::wire::{BrokerFrame, NewMessage};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::numbered::Numbered;
use super::session::{self, Receiver, Sender, Traffic};
use super::{Post, Round, Window, WorkerError};
use crate::bench::messages::{Supply, now_us, stamped};
use crate::bench::pacing::{self, Due, Schedule};
use crate::bench::tally::{Latencies, Tally};
use crate::limits::PUBLISHES_IN_FLIGHT_MAX;

/// See the module.
pub(super) struct Pace {
    connections: Vec<Connection>,
    rate: u32,
    ever: u64,
}

struct Connection {
    sender: Sender,
    receiver: Receiver,
    numbered: Numbered,
    /// Unanswered messages with the moments at which they were due, oldest first: answers may come in any order, so by id.
    in_flight: VecDeque<(u64, i64)>,
}

/// What was answered in a round.
struct Answers {
    window: Window,
    all: u64,
    /// Of those that were due in the window.
    latencies: Latencies,
}

impl Pace {
    pub async fn open(
        post: &Post,
        partitions: u32,
        connections: usize,
        rate: u32,
    ) -> Result<Self, WorkerError> {
        let mut opened = Vec::new();
        for number in 0..connections {
            let (sender, receiver) = session::open(post.broker(number), Traffic::Heavy).await?;
            opened.push(Connection {
                sender,
                receiver,
                numbered: Numbered::new(&post.topic, partitions, Supply::small()),
                in_flight: VecDeque::new(),
            });
        }
        Ok(Self { connections: opened, rate, ever: 0 })
    }

    pub fn senders(&mut self) -> impl Iterator<Item = &mut Sender> {
        self.connections.iter_mut().map(|connection| &mut connection.sender)
    }

    /// Counts answers, and how long they took from the moment at which the message was due.
    pub async fn work(&mut self, round: Round) -> Result<Tally, WorkerError> {
        let (window, schedule) = (Window::of(round), Schedule::new(round, self.rate));
        let dues = pacing::begin(schedule, self.connections.len());
        let mut tasks = JoinSet::new();
        for (connection, due) in self.connections.drain(..).zip(dues) {
            tasks.spawn(connection.work(due, window));
        }
        let mut tallies = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (connection, tally) = done??;
            self.connections.push(connection);
            tallies.push(tally);
        }
        let mut sum = Tally::sum(&tallies);
        self.ever += sum.ever;
        (sum.ever, sum.missing) = (self.ever, schedule.in_window().saturating_sub(sum.messages));
        Ok(sum)
    }
}

impl Connection {
    async fn work(
        mut self,
        mut dues: mpsc::Receiver<Due>,
        window: Window,
    ) -> Result<(Self, Tally), WorkerError> {
        let mut answers = Answers { window, all: 0, latencies: Latencies::new() };
        let (mut waiting, mut more) = (VecDeque::new(), true);
        let too_late = tokio::time::sleep_until(window.too_late().into());
        tokio::pin!(too_late);
        while more || !waiting.is_empty() || !self.in_flight.is_empty() {
            tokio::select! {
                frame = self.receiver.next(), if !self.in_flight.is_empty() => {
                    let mut frame = Some(frame?);
                    while let Some(heard) = frame {
                        self.on_frame(&heard, &mut answers);
                        frame = self.receiver.ready()?;
                    }
                }
                due = dues.recv(), if more => match due {
                    Some(due) => waiting.extend(due),
                    None => more = false,
                },
                () = &mut too_late => break, // what is unanswered stays so, and is none of the next round
            }
            self.send(&mut waiting).await?;
        }
        let seconds = (window.to - window.from).as_secs_f64();
        let Answers { all, latencies, .. } = answers;
        let (messages, latencies) = (latencies.recorded(), latencies.counted());
        Ok((self, Tally { messages, seconds, ever: all, missing: 0, latencies }))
    }

    /// Sends what is due, as far as the session may have it unanswered.
    async fn send(&mut self, waiting: &mut VecDeque<i64>) -> Result<(), WorkerError> {
        let room = PUBLISHES_IN_FLIGHT_MAX.saturating_sub(self.in_flight.len()).min(waiting.len());
        for due_us in waiting.drain(..room) {
            let message = self.numbered.message();
            let message = NewMessage { payload: stamped(&message.payload, due_us), ..message };
            let publish = self.numbered.publish(vec![message]);
            self.in_flight.push_back((self.numbered.id, due_us));
            self.sender.feed(publish).await?;
        }
        Ok(self.sender.flush().await?)
    }

    fn on_frame(&mut self, frame: &BrokerFrame, answers: &mut Answers) {
        let BrokerFrame::Published(published) = frame else { return };
        let place = self.in_flight.iter().position(|(id, _)| *id == published.id);
        let Some((_, due_us)) = place.and_then(|place| self.in_flight.remove(place)) else { return };
        answers.all += 1;
        if answers.window.contains_us(due_us) {
            answers.latencies.record_us((now_us() - due_us).max(0) as u64);
        }
    }
}
