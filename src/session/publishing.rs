//! The publishes of one session: handed to the appender in the order of their frames, answered as they are committed.
//!
//! Only looking a topic up may have to wait for the database; then the publishes behind it wait too, and nothing else does.
//! Invariant: at most one publish is being submitted at a time, and it is the oldest.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use laneway_client::TopicName;
use laneway_client::wire::{
    BrokerFrame, Duplicate, NewMessage, Publish, Published, PublishedUnit, Scheduled,
};

use super::fault::{Refusal, of_topic};
use crate::broker::appender::{self, Receipt};
use crate::broker::publish::{self, Addressed, PublishError, Publisher, Submitted};
use crate::broker::topics::TopicError;
use crate::ids::ProducerId;
use crate::limits::PUBLISHES_WAITING_BYTES_MAX;

type Submitting = Pin<Box<dyn Future<Output = (u64, Result<Submitted, Refusal>)> + Send>>;
type Answering = Pin<Box<dyn Future<Output = BrokerFrame> + Send>>;

/// What a message costs while it waits, beside its own bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 256;

/// The publishes of one session.
pub(super) struct Publishing {
    publisher: Arc<Publisher>,
    waiting: VecDeque<(Publish, usize)>,
    waiting_bytes: usize,
    submitting: Option<Submitting>,
    answering: FuturesUnordered<Answering>,
}

impl Publishing {
    pub fn new(publisher: Arc<Publisher>) -> Self {
        let (waiting, answering) = (VecDeque::new(), FuturesUnordered::new());
        Self { publisher, waiting, waiting_bytes: 0, submitting: None, answering }
    }

    pub fn push(&mut self, publish: Publish) {
        let bytes = publish.messages.iter().map(weight).sum();
        self.waiting_bytes += bytes;
        self.waiting.push_back((publish, bytes));
    }

    /// Whether so much waits that the session should read nothing more.
    pub fn is_full(&self) -> bool {
        self.waiting_bytes >= PUBLISHES_WAITING_BYTES_MAX
    }

    /// The next answer. Cancel safety: safe; everything is kept in `self`.
    pub async fn answer(&mut self) -> BrokerFrame {
        std::future::poll_fn(|context| self.poll_answer(context)).await
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<BrokerFrame> {
        while let Some(submitting) = self.next_submit() {
            match submitting.as_mut().poll(context) {
                Poll::Pending => break,
                Poll::Ready((id, result)) => {
                    self.submitting = None;
                    match result {
                        Ok(submitted) => self.answering.push(Box::pin(answered(id, submitted))),
                        Err(refusal) => {
                            let error = Box::new(refusal.into_frame(Some(id)));
                            return Poll::Ready(BrokerFrame::Error(error));
                        }
                    }
                }
            }
        }
        match self.answering.poll_next_unpin(context) {
            Poll::Ready(Some(answer)) => Poll::Ready(answer),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn next_submit(&mut self) -> Option<&mut Submitting> {
        if self.submitting.is_none()
            && let Some((publish, bytes)) = self.waiting.pop_front()
        {
            self.waiting_bytes -= bytes;
            self.submitting = Some(Box::pin(submit(self.publisher.clone(), publish)));
        }
        self.submitting.as_mut()
    }
}

fn weight(message: &NewMessage) -> usize {
    message.payload.len() + message.key.as_ref().map_or(0, bytes::Bytes::len) + MESSAGE_OVERHEAD_BYTES
}

async fn submit(publisher: Arc<Publisher>, publish: Publish) -> (u64, Result<Submitted, Refusal>) {
    let id = publish.id;
    let topic = match TopicName::new(publish.topic) {
        Ok(topic) => topic,
        Err(error) => return (id, Err(of_topic(TopicError::Name(error)))),
    };
    let drafts = publish.messages.into_iter().map(Addressed::from).collect();
    let result = publisher.submit(&topic, publish.producer_id.map(ProducerId), drafts).await;
    (id, result.map_err(refusal))
}

pub(super) fn refusal(error: PublishError) -> Refusal {
    match error {
        PublishError::Topic(error) => of_topic(error),
        error @ (PublishError::Empty
        | PublishError::Invalid { .. }
        | PublishError::PartitionOutOfRange { .. }
        | PublishError::Cause { .. }
        | PublishError::Due { .. }
        | PublishError::Sequence { .. }) => error.into(),
    }
}

async fn answered(id: u64, submitted: Submitted) -> BrokerFrame {
    let units = submitted.units().await.into_iter().map(unit).collect();
    BrokerFrame::Published(Published { id, units })
}

fn unit(unit: publish::PublishedUnit) -> PublishedUnit {
    let positions: Vec<u32> = unit.indexes.iter().map(|index| *index as u32).collect();
    let (receipt, error) = match unit.result {
        Ok(receipt) => (receipt, None),
        Err(error) => (Receipt::default(), Some(Refusal::from(error).into_fault())),
    };
    let first_offset = receipt.first_offset.map(|offset| offset.0);
    let duplicates = duplicates(&receipt, &positions);
    let scheduled = receipt
        .scheduled
        .iter()
        .map(|(index, id)| Scheduled { position: positions[*index], schedule: id.0 })
        .collect();
    PublishedUnit { partition: unit.partition, positions, first_offset, duplicates, scheduled, error }
}

fn duplicates(receipt: &Receipt, positions: &[u32]) -> Vec<Duplicate> {
    let duplicate = |duplicate: &appender::Duplicate| Duplicate {
        position: positions[duplicate.index],
        offset: duplicate.offset.map(|offset| offset.0),
    };
    receipt.duplicates.iter().map(duplicate).collect()
}

impl std::fmt::Debug for Publishing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (waiting, answering) = (self.waiting.len(), self.answering.len());
        f.debug_struct("Publishing")
            .field("waiting", &waiting)
            .field("answering", &answering)
            .finish_non_exhaustive()
    }
}
