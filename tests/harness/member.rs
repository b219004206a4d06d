//! A member of a group without a socket: what a session does with its outbox, step by step.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use laneway::broker::Broker;
use laneway::broker::groups::{GroupHandle, Leaving, SubscribeError, Subscribed, Subscription};
use laneway::broker::outbox::{BatchPush, Outbox, OutboxReceiver, Push};
use laneway::ids::SessionId;
use laneway_client::wire::{
    Ack, BrokerFrame, CreditGrant, LaneGranted, Nack, OffsetRange, Start, WantedSettings,
};
use tokio_util::sync::CancellationToken;

use super::socket::PATIENCE;

/// A session that is a member of one group.
pub struct TestMember {
    pub session_id: SessionId,
    pub handle: GroupHandle,
    outbox: OutboxReceiver,
    put_aside: VecDeque<Push>,
}

pub fn subscription(group: &str, topic: &str) -> (Subscription, OutboxReceiver) {
    let (outbox, receiver) = Outbox::new(CancellationToken::new());
    let subscription = Subscription {
        id: None,
        session_id: SessionId(uuid::Uuid::new_v4()),
        resume_hash: vec![1; 32],
        number: 1,
        group: group.into(),
        topic: topic.into(),
        selected: None,
        start: Some(Start::Earliest),
        credit: CreditGrant { messages: 100_000, bytes: 64 << 20 },
        batch: Default::default(),
        settings: WantedSettings::default(),
        outbox,
    };
    (subscription, receiver)
}

impl TestMember {
    pub async fn join(broker: &Broker, group: &str, topic: &str) -> Self {
        Self::join_with(broker, group, topic, |_| {}).await.unwrap()
    }

    pub async fn join_with(
        broker: &Broker,
        group: &str,
        topic: &str,
        change: impl FnOnce(&mut Subscription),
    ) -> Result<Self, SubscribeError> {
        let (mut subscription, outbox) = subscription(group, topic);
        change(&mut subscription);
        let session_id = subscription.session_id;
        let Subscribed { group: handle, .. } = broker.groups.subscribe(subscription).await?;
        Ok(Self { session_id, handle, outbox, put_aside: VecDeque::new() })
    }

    async fn push(&mut self) -> Push {
        if let Some(push) = self.put_aside.pop_front() {
            return push;
        }
        let push = tokio::time::timeout(PATIENCE, self.outbox.recv()).await.expect("a push in time");
        let push = push.expect("the group lives");
        if let Push::Batch(batch) = &push {
            batch.on_written(Instant::now());
        }
        push
    }

    /// The next push that a test picks; the others are put aside, in order.
    pub async fn wait_for<T>(&mut self, mut pick: impl FnMut(Push) -> Result<T, Push>) -> T {
        let mut passed = VecDeque::new();
        loop {
            match pick(self.push().await) {
                Ok(picked) => {
                    passed.append(&mut self.put_aside);
                    self.put_aside = passed;
                    return picked;
                }
                Err(push) => passed.push_back(push),
            }
        }
    }

    pub async fn granted(&mut self) -> LaneGranted {
        self.wait_for(|push| match push {
            Push::Frame(frame) => match *frame {
                BrokerFrame::LaneGranted(granted) => Ok(granted),
                other => Err(Push::Frame(Box::new(other))),
            },
            other => Err(other),
        })
        .await
    }

    pub async fn frame(&mut self) -> BrokerFrame {
        self.wait_for(|push| match push {
            Push::Frame(frame) => Ok(*frame),
            other => Err(other),
        })
        .await
    }

    pub async fn batch(&mut self) -> Box<BatchPush> {
        self.wait_for(|push| match push {
            Push::Batch(batch) => Ok(batch),
            other => Err(other),
        })
        .await
    }

    /// Whether nothing comes for a while.
    pub async fn is_quiet(&mut self, patience: Duration) -> bool {
        self.put_aside.is_empty() && tokio::time::timeout(patience, self.outbox.recv()).await.is_err()
    }

    pub async fn ack(&mut self, batch: &BatchPush, next: Option<i64>, singles: &[i64], id: Option<u64>) {
        let ack = Ack {
            id,
            subscription: batch.header.subscription,
            partition: batch.header.partition,
            epoch: batch.header.epoch,
            round: batch.header.round,
            next,
            ranges: singles.iter().map(|offset| OffsetRange { from: *offset, to: offset + 1 }).collect(),
        };
        self.handle.ack(self.session_id, ack).await;
    }

    pub async fn nack(&mut self, batch: &BatchPush, offset: i64, id: Option<u64>) {
        let nack = Nack {
            id,
            subscription: batch.header.subscription,
            partition: batch.header.partition,
            epoch: batch.header.epoch,
            round: batch.header.round,
            offset,
            reason: Some("test".into()),
            delay_ms: None,
            until: None,
        };
        self.handle.nack(self.session_id, nack).await;
    }

    /// Waits for the answer to a request.
    pub async fn confirmed(&mut self, id: u64) -> i64 {
        self.wait_for(|push| match push {
            Push::Frame(frame) => match *frame {
                BrokerFrame::Acked(acked) if acked.id == id => Ok(acked.committed_offset),
                BrokerFrame::Error(error) if error.id == Some(id) => panic!("{error:?}"),
                other => Err(Push::Frame(Box::new(other))),
            },
            other => Err(other),
        })
        .await
    }

    pub async fn leave(self, leaving: Leaving) {
        self.handle.leave(self.session_id, leaving).await;
    }
}

/// The offsets of a batch.
pub fn offsets(batch: &BatchPush) -> Vec<i64> {
    batch.pieces.iter().flat_map(|piece| piece.messages()).map(|message| message.offset.0).collect()
}
