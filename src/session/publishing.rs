//! The publishes of one session: handed to the appender in the order of their frames, answered as they are committed.
//!
//! Only looking a topic up may have to wait for the database; then the publishes behind it wait too, and nothing else does.
//! A publish that waits for room in a full topic stands aside with those behind it for the same topic; the others pass. Each waits
//! for as long as it may, counted from when it came: whose time is over is refused, whoever stands before it.
//! Invariant: at most one publish per topic is being submitted at a time, and it is the oldest.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use laneway_client::TopicName;
use laneway_client::wire::{
    BrokerFrame, Duplicate, NewMessage, Publish, Published, PublishedUnit, Scheduled,
};
use tokio::time::Sleep;

use super::fault::{Refusal, of_topic};
use crate::broker::appender::{self, Receipt};
use crate::broker::capacity::{NoRoom, TopicFull};
use crate::broker::publish::{self, Addressed, PublishError, Publisher, Submission, Submitted, Waiting};
use crate::broker::topics::TopicError;
use crate::ids::ProducerId;
use crate::limits::PUBLISHES_WAITING_BYTES_MAX;

type Submitting = Pin<Box<dyn Future<Output = (u64, Result<Submission, Refusal>)> + Send>>;
type Resuming = Pin<Box<dyn Future<Output = (u64, Result<Submitted, Refusal>)> + Send>>;
type Answering = Pin<Box<dyn Future<Output = BrokerFrame> + Send>>;

/// What a message costs while it waits, beside its own bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 256;

/// The publishes of one session.
pub(super) struct Publishing {
    publisher: Arc<Publisher>,
    waiting: VecDeque<Came>,
    waiting_bytes: usize,
    /// With its topic and bytes.
    submitting: Option<(Submitting, String, usize)>,
    /// One per topic that is full.
    aside: Vec<Aside>,
    answering: FuturesUnordered<Answering>,
}

/// A publish as it came.
struct Came {
    publish: Publish,
    bytes: usize,
    /// How long it may wait for room.
    until: Instant,
}

impl Came {
    /// Whether something of it is appended at once, and so stands in an order and needs room.
    fn is_for_now(&self) -> bool {
        self.publish.messages.iter().any(|message| message.deliver_at.is_none() && message.delay_ms.is_none())
    }
}

/// Publishes for a topic that is full.
struct Aside {
    topic: String,
    /// How full, when that was seen first.
    full: TopicFull,
    /// The oldest, with its bytes.
    first: (Resuming, usize),
    /// Those behind it.
    behind: VecDeque<Came>,
    /// Rings when one of them may wait no longer.
    alarm: Pin<Box<Sleep>>,
}

impl Aside {
    fn new(topic: String, waiting: Box<Waiting>, id: u64, bytes: usize) -> Self {
        let full = waiting.full().clone();
        let resuming: Resuming = Box::pin(async move { (id, waiting.submitted().await.map_err(refusal)) });
        let alarm = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self { topic, full, first: (resuming, bytes), behind: VecDeque::new(), alarm }
    }

    /// The next of those behind that may wait no longer.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<Came> {
        while let Some(earliest) = self.behind.iter().map(|came| came.until).min() {
            if earliest > Instant::now() {
                self.alarm.as_mut().reset(earliest.into());
                if self.alarm.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                continue; // it has passed just now
            }
            let late = self.behind.iter().position(|came| came.until == earliest);
            if let Some(came) = late.and_then(|index| self.behind.remove(index)) {
                return Poll::Ready(came);
            }
        }
        Poll::Pending
    }
}

impl Publishing {
    pub fn new(publisher: Arc<Publisher>) -> Self {
        let (waiting, answering) = (VecDeque::new(), FuturesUnordered::new());
        Self { publisher, waiting, waiting_bytes: 0, submitting: None, aside: Vec::new(), answering }
    }

    pub fn push(&mut self, publish: Publish) {
        let bytes = publish.messages.iter().map(weight).sum();
        let until = Instant::now() + Duration::from_millis(publish.wait_ms.unwrap_or(0));
        self.waiting_bytes += bytes;
        self.waiting.push_back(Came { publish, bytes, until });
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
        while let Some((submitting, _, _)) = self.next_submit() {
            let Poll::Ready((id, result)) = submitting.as_mut().poll(context) else { break };
            let Some((_, topic, bytes)) = self.submitting.take() else { break };
            match result {
                Ok(Submission::Submitted(submitted)) => {
                    self.answering.push(Box::pin(answered(id, submitted)))
                }
                Ok(Submission::Waits(waiting)) => {
                    self.waiting_bytes += bytes;
                    self.aside.push(Aside::new(topic, waiting, id, bytes));
                }
                Err(refusal) => return Poll::Ready(refused(id, refusal)),
            }
        }
        // Order: after what came is sorted, so that all that waits is polled.
        if let Poll::Ready(refused) = self.poll_aside(context) {
            return Poll::Ready(refused);
        }
        match self.answering.poll_next_unpin(context) {
            Poll::Ready(Some(answer)) => Poll::Ready(answer),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Goes on with what waits for room; ready with the first that is refused.
    fn poll_aside(&mut self, context: &mut Context<'_>) -> Poll<BrokerFrame> {
        let mut index = 0;
        while let Some(aside) = self.aside.get_mut(index) {
            if let Poll::Ready(late) = aside.poll_late(context) {
                self.waiting_bytes -= late.bytes;
                let full = self.publisher.refused(NoRoom::Full(aside.full.clone()));
                return Poll::Ready(refused(late.publish.id, refusal(full)));
            }
            let (resuming, bytes) = &mut aside.first;
            let Poll::Ready((id, result)) = resuming.as_mut().poll(context) else {
                index += 1;
                continue;
            };
            self.waiting_bytes -= *bytes;
            match aside.behind.pop_front() {
                Some(came) => {
                    let bytes = came.bytes;
                    aside.first = (Box::pin(submit_at_last(self.publisher.clone(), came)), bytes);
                }
                None => drop(self.aside.swap_remove(index)),
            }
            match result {
                Ok(submitted) => self.answering.push(Box::pin(answered(id, submitted))),
                Err(refusal) => return Poll::Ready(refused(id, refusal)),
            }
        }
        Poll::Pending
    }

    /// The oldest publish whose topic nothing waits for.
    fn next_submit(&mut self) -> Option<&mut (Submitting, String, usize)> {
        while self.submitting.is_none() {
            let came = self.waiting.pop_front()?;
            let topic = came.publish.topic.clone();
            match self.aside.iter_mut().find(|aside| aside.topic == topic) {
                Some(aside) if came.is_for_now() => aside.behind.push_back(came),
                Some(_) | None => {
                    let bytes = came.bytes;
                    self.waiting_bytes -= bytes;
                    self.submitting = Some((Box::pin(submit(self.publisher.clone(), came)), topic, bytes));
                }
            }
        }
        self.submitting.as_mut()
    }
}

fn refused(id: u64, refusal: Refusal) -> BrokerFrame {
    BrokerFrame::Error(Box::new(refusal.into_frame(Some(id))))
}

fn weight(message: &NewMessage) -> usize {
    message.payload.len() + message.key.as_ref().map_or(0, bytes::Bytes::len) + MESSAGE_OVERHEAD_BYTES
}

async fn submit(publisher: Arc<Publisher>, came: Came) -> (u64, Result<Submission, Refusal>) {
    let Came { publish, until, .. } = came;
    let id = publish.id;
    let topic = match TopicName::new(publish.topic) {
        Ok(topic) => topic,
        Err(error) => return (id, Err(of_topic(TopicError::Name(error)))),
    };
    let drafts = publish.messages.into_iter().map(Addressed::from).collect();
    let result = publisher.submit_patiently(&topic, publish.producer_id.map(ProducerId), drafts, until).await;
    (id, result.map_err(refusal))
}

/// As `submit`, and waits for room if there is none.
async fn submit_at_last(publisher: Arc<Publisher>, came: Came) -> (u64, Result<Submitted, Refusal>) {
    match submit(publisher, came).await {
        (id, Ok(Submission::Submitted(submitted))) => (id, Ok(submitted)),
        (id, Ok(Submission::Waits(waiting))) => (id, waiting.submitted().await.map_err(refusal)),
        (id, Err(refusal)) => (id, Err(refusal)),
    }
}

pub(super) fn refusal(error: PublishError) -> Refusal {
    match error {
        PublishError::Topic(error) => of_topic(error),
        error @ (PublishError::Empty
        | PublishError::Invalid { .. }
        | PublishError::PartitionOutOfRange { .. }
        | PublishError::Cause { .. }
        | PublishError::Due { .. }
        | PublishError::Full(_)
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
