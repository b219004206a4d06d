//! Somebody who plays in the scene of a probe: a session that does what it is told, and waits for answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use laneway_client::wire::{
    Ack, Batch, BatchOptions, BrokerFrame, ClientFrame, CreditGrant, LaneGranted, NewMessage, OffsetRange,
    Publish, Published, Start, Subprotocol, Subscribe, WantedSettings,
};

use crate::verify::link::{Incoming, Link};
use crate::verify::settings::HEARTBEAT;
use crate::verify::value::Value;

/// Longest wait for anything in a scene: what takes longer has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// See the module. Errors are sentences for the report.
#[derive(Debug)]
pub(super) struct Actor {
    link: Link,
    next_id: u64,
    said_at: Instant,
    /// Heard while something else was waited for.
    put_aside: VecDeque<BrokerFrame>,
}

impl Actor {
    pub async fn enter(address: SocketAddr) -> Result<Self, String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some((link, _)) = Link::open(address, Subprotocol::MessagePack, None).await {
                return Ok(Self { link, next_id: 100, said_at: Instant::now(), put_aside: VecDeque::new() });
            }
        }
        Err(format!("no session at {address} within {PATIENCE:?}"))
    }

    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub async fn say(&mut self, frame: &ClientFrame) -> Result<(), String> {
        self.said_at = Instant::now();
        self.link.send(frame).await.ok_or_else(|| "the connection was lost".to_owned())
    }

    /// The next frame that is picked; others are put aside, in order. Shows signs of life meanwhile.
    pub async fn hear<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut pick: impl FnMut(&BrokerFrame) -> Option<T>,
    ) -> Result<T, String> {
        for index in 0..self.put_aside.len() {
            if let Some(picked) = pick(&self.put_aside[index]) {
                self.put_aside.remove(index);
                return Ok(picked);
            }
        }
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let pause = (HEARTBEAT / 2).min(deadline - Instant::now());
            match tokio::time::timeout(pause, self.link.next()).await {
                Ok(Incoming::Frame(frame)) => {
                    if let Some(picked) = pick(&frame) {
                        return Ok(picked);
                    }
                    self.put_aside.extend((*frame != BrokerFrame::Heartbeat).then_some(*frame));
                }
                Ok(Incoming::Ended(code)) => {
                    return Err(format!("{what}: the connection ended with {code:?}"));
                }
                Err(_) => {}
            }
            if self.said_at.elapsed() >= HEARTBEAT / 2 {
                self.say(&ClientFrame::Heartbeat).await?;
            }
        }
        Err(format!("{what}: nothing within {patience:?}"))
    }

    /// Publishes once. `None`: refused or failed for now.
    pub async fn publish_once(
        &mut self,
        topic: &str,
        messages: Vec<NewMessage>,
    ) -> Result<Option<Published>, String> {
        let id = self.id();
        self.say(&ClientFrame::Publish(Publish {
            id,
            topic: topic.into(),
            producer_id: None,
            wait_ms: None,
            messages,
        }))
        .await?;
        self.hear("an answer to a publish", PATIENCE, |frame| match frame {
            BrokerFrame::Published(published) if published.id == id => {
                let is_stored = published.units.iter().all(|unit| unit.error.is_none());
                Some(is_stored.then(|| published.clone()))
            }
            BrokerFrame::Error(error) if error.id == Some(id) => Some(None),
            _ => None,
        })
        .await
    }

    /// Publishes until it is stored.
    pub async fn publish(&mut self, topic: &str, messages: Vec<NewMessage>) -> Result<Published, String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(published) = self.publish_once(topic, messages.clone()).await? {
                return Ok(published);
            }
        }
        Err(format!("a publish to {topic} was not stored within {PATIENCE:?}"))
    }

    /// Becomes a member. What is asked for may differ from the defaults.
    pub async fn join(
        &mut self,
        topic: &str,
        group: &str,
        settings: Option<WantedSettings>,
        batch_messages: u32,
    ) -> Result<u32, String> {
        let id = self.id();
        let batch = Some(BatchOptions { max_messages: Some(batch_messages), ..BatchOptions::default() });
        let (group, topic, start) = (group.to_owned(), topic.to_owned(), Some(Start::Earliest));
        let credit = CreditGrant { messages: 100_000, bytes: 64 << 20 };
        self.say(&ClientFrame::Subscribe(Subscribe { id, group, topic, start, credit, batch, settings }))
            .await?;
        self.hear("an answer to a subscribe", PATIENCE, |frame| match frame {
            BrokerFrame::Subscribed(subscribed) if subscribed.id == id => Some(Ok(subscribed.subscription)),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err(error.detail.clone())),
            _ => None,
        })
        .await?
    }

    pub async fn granted(&mut self) -> Result<LaneGranted, String> {
        self.hear("a lane", PATIENCE, |frame| match frame {
            BrokerFrame::LaneGranted(granted) => Some(granted.clone()),
            _ => None,
        })
        .await
    }

    pub async fn batch(&mut self) -> Result<Batch, String> {
        self.hear("a batch", PATIENCE, |frame| match frame {
            BrokerFrame::Batch(batch) => Some(batch.clone()),
            _ => None,
        })
        .await
    }

    /// Acknowledges some messages of a batch one by one, and waits for the commit. False: the lane is somebody else's.
    pub async fn ack(
        &mut self,
        batch: &Batch,
        offsets: impl IntoIterator<Item = i64>,
    ) -> Result<bool, String> {
        let id = self.id();
        let ranges = offsets.into_iter().map(|offset| OffsetRange { from: offset, to: offset + 1 }).collect();
        self.say(&ClientFrame::Ack(Ack {
            id: Some(id),
            subscription: batch.subscription,
            partition: batch.partition,
            epoch: batch.epoch,
            round: batch.round,
            next: None,
            ranges,
        }))
        .await?;
        self.hear("an answer to an ack", PATIENCE, |frame| match frame {
            BrokerFrame::Acked(acked) if acked.id == id => Some(true),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(false),
            _ => None,
        })
        .await
    }

    pub async fn leave(self) {
        self.link.close().await;
    }
}

/// Numbered messages for a partition.
pub(super) fn numbered(partition: u32, numbers: std::ops::Range<i64>) -> Vec<NewMessage> {
    let message = |number| {
        let value = Value { producer: 0, partition, number, frame: 0, of: 1 };
        NewMessage {
            payload: value.payload(),
            partition: Some(partition),
            trace_id: Some(value.trace_id()),
            ..NewMessage::default()
        }
    };
    numbers.map(message).collect()
}
