//! What a reader holds: a [`Subscription`] or a [`Tail`] as a stream, and the [`Delivery`] that it yields.
//!
//! A delivery settles itself in the inbox of its subscription and wakes the owner if that is worth it. When it is dropped,
//! acknowledged or not, the credit that it has used is given back. It knows its client, so that what follows from it can be
//! published, but does not keep it: a delivery that outlives its client leads to nothing.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use super::cause::Origin;
use super::error::Error;
use super::inbox::{Charge, Inbox, Place, Queued, Urgency};
use super::parts::Parts;
use super::pause::Pause;
use super::publisher::Receipt;
use super::step::Step;
use super::{Client, Inner};
use crate::message::Cause;
use crate::wire::{GroupSettings, NewMessage};

/// Who waits for an ack to be committed.
pub(super) type Confirm = oneshot::Sender<Result<(), Error>>;

/// What the owner and the readers of one subscription share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Absent if it selects topics: then `parts` knows them.
    topic: Option<Arc<str>>,
    parts: Mutex<Parts>,
    state: Mutex<State>,
    /// Wakes the owner.
    owner: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    inbox: Inbox<Confirm>,
    waker: Option<Waker>,
    /// Why no more comes; `Closed` is a good end.
    ended: Option<Error>,
    /// Nobody reads any more.
    abandoned: bool,
}

impl Shared {
    pub fn new(topic: Option<Arc<str>>, owner: Arc<Notify>) -> Arc<Self> {
        let state = State { inbox: Inbox::new(), waker: None, ended: None, abandoned: false };
        Arc::new(Self { topic, parts: Mutex::default(), state: Mutex::new(state), owner })
    }

    /// Whether it selects topics.
    pub fn selects(&self) -> bool {
        self.topic.is_none()
    }

    pub fn with_parts<R>(&self, work: impl FnOnce(&mut Parts) -> R) -> R {
        work(&mut self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The lane that a broker speaks of.
    pub fn lane(&self, number: u32, partition: u32) -> Option<u32> {
        match &self.topic {
            Some(_) => Some(partition),
            None => self.with_parts(|parts| parts.lane(number, partition)),
        }
    }

    /// How a broker calls a lane of a subscription that has a number; `None`: it cannot now.
    pub fn wire(&self, number: Option<u32>, lane: u32) -> Option<(u32, u32)> {
        let number = number?;
        match &self.topic {
            Some(_) => Some((number, lane)),
            None => self.with_parts(|parts| parts.wire(lane)),
        }
    }

    /// The topic and the partition of a lane.
    fn place(&self, lane: u32) -> (Arc<str>, u32) {
        match &self.topic {
            Some(topic) => (topic.clone(), lane),
            None => self.with_parts(|parts| parts.place(lane).cloned()).unwrap_or_else(|| ("".into(), lane)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the inbox; wakes the reader if there is something to read, and the owner if there is something to send.
    pub fn with<R>(&self, work: impl FnOnce(&mut Inbox<Confirm>) -> R) -> R {
        let (result, waker, is_due) = {
            let mut state = self.lock();
            let before = state.inbox.urgency();
            let result = work(&mut state.inbox);
            let waker = if state.inbox.len() > 0 { state.waker.take() } else { None };
            (result, waker, state.inbox.urgency() > before)
        };
        waker.into_iter().for_each(Waker::wake);
        if is_due {
            self.owner.notify_one();
        }
        result
    }

    pub fn urgency(&self) -> Urgency {
        self.lock().inbox.urgency()
    }

    /// No more comes.
    pub fn end(&self, error: Error) {
        let (waker, waiting) = {
            let mut state = self.lock();
            state.ended.get_or_insert(error);
            (state.waker.take(), state.inbox.reset())
        };
        waker.into_iter().for_each(Waker::wake);
        refuse(waiting);
    }

    /// Whether nobody reads any more and no step needs the subscription to learn its fate.
    pub fn may_leave(&self) -> bool {
        let state = self.lock();
        state.abandoned && !state.inbox.is_stepping()
    }

    pub fn abandon(&self) {
        self.lock().abandoned = true;
        self.owner.notify_one();
    }

    fn ended(&self) -> Option<Error> {
        self.lock().ended.clone()
    }

    fn poll_take(&self, context: &mut Context<'_>) -> Poll<Option<Queued>> {
        let mut state = self.lock();
        if let Some(queued) = state.inbox.take() {
            return Poll::Ready(Some(queued));
        }
        if state.ended.is_some() {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Tells those who waited for acks of a lane that is gone.
pub(super) fn refuse(waiting: Vec<Confirm>) {
    for confirm in waiting {
        confirm.send(Err(Error::LaneLost)).ok(); // nobody may be waiting any more
    }
}

/// One message, delivered to a group or a tail.
#[derive(Debug)]
pub struct Delivery {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: u32,
    /// Its position there.
    pub offset: i64,
    /// On the database clock.
    pub published_at: Timestamp,
    /// The trace it belongs to.
    pub trace_id: Uuid,
    /// The message that led to this one, if it has one.
    pub cause: Option<Cause>,
    /// Its key, if it has one.
    pub key: Option<Bytes>,
    /// Its transaction id, if it has one.
    pub transaction_id: Option<String>,
    /// Free text by name.
    pub headers: BTreeMap<String, String>,
    /// What the payload is, if the producer said so.
    pub content_type: Option<String>,
    /// The body.
    pub payload: Bytes,
    /// How often it has failed before.
    pub attempts: u32,
    pub(super) place: Place,
    charge: Charge,
    pub(super) shared: Arc<Shared>,
    pub(super) client: Weak<Inner>,
}

impl Delivery {
    fn new(queued: Queued, shared: Arc<Shared>, client: &Client) -> Self {
        let Queued { place, record, attempts, charge } = queued;
        let (topic, partition) = shared.place(place.partition);
        Self {
            topic,
            partition,
            offset: place.offset,
            published_at: Timestamp::from_microsecond(record.published_at_us)
                .unwrap_or(Timestamp::UNIX_EPOCH),
            trace_id: record.trace_id,
            cause: record.cause,
            key: record.key,
            transaction_id: record.transaction_id,
            headers: record.headers.unwrap_or_default(),
            content_type: record.content_type,
            payload: record.payload,
            attempts,
            place,
            charge,
            shared,
            client: Arc::downgrade(&client.inner),
        }
    }

    /// Publishes what follows from it, and waits for the receipt: [`caused`](Self::caused) by this message. The ack is another
    /// matter: if it is lost, this message comes again and its follower is published again. [`transact`](Self::transact) does
    /// both or neither. [`Error::Closed`]: the client is gone.
    pub async fn publish(&self, topic: &str, message: NewMessage) -> Result<Receipt, Error> {
        let inner = self.client.upgrade().ok_or(Error::Closed)?;
        let message = self.caused(message);
        Client { inner }.publish(topic, message).await
    }

    /// Begins a step: acknowledges this message and publishes others, all of it or nothing, once.
    pub fn transact(&self) -> Step {
        Step::new(self)
    }

    /// The message as this one leads to it: with its trace id, and with this one as its cause. If the message has a cause or
    /// belongs to another trace already, it stays as it is.
    pub fn caused(&self, message: NewMessage) -> NewMessage {
        self.origin().of(message)
    }

    pub(super) fn origin(&self) -> Origin {
        let (topic, partition, offset) = (self.topic.to_string(), self.partition, self.offset);
        Origin { trace_id: self.trace_id, place: Cause { topic, partition, offset } }
    }

    /// It is done. Sent together with others after a moment; lost with its lane, and then the message comes again.
    pub fn ack(self) {
        self.settle_ack();
    }

    /// It is done, and that is durable when this returns. [`Error::LaneLost`]: it does not count, the message comes again.
    pub async fn ack_confirmed(self) -> Result<(), Error> {
        let (confirm, confirmed) = oneshot::channel();
        if self.shared.with(|inbox| inbox.ack(self.place, Some(confirm))).is_err() {
            return Err(Error::LaneLost);
        }
        drop(self); // its credit is free from here on
        confirmed.await.unwrap_or(Err(Error::Closed))
    }

    pub(super) fn settle_ack(&self) {
        drop(self.shared.with(|inbox| inbox.ack(self.place, None)));
    }

    pub(super) fn settle_nack(&self, reason: String) {
        self.shared.with(|inbox| inbox.nack(self.place, self.key.clone(), Some(reason), None));
    }

    /// Whether an ack of it would count: the lane is held, and its round has not made it void.
    pub(super) fn counts(&self) -> bool {
        self.shared.with(|inbox| inbox.counts(self.place))
    }

    /// It failed: it comes again after the pause of the group, and those behind it after it.
    pub fn nack(self, reason: impl Into<String>) {
        self.fail(Some(reason.into()), None);
    }

    /// As [`nack`](Self::nack), with a pause of one's own: a day at most, and what is longer is a day.
    pub fn nack_after(self, reason: impl Into<String>, pause: Duration) {
        self.fail(Some(reason.into()), Some(Pause::After(pause)));
    }

    /// As [`nack`](Self::nack), and the lane holds until a moment of one's own: a day ahead at most, and at once if it has passed.
    pub fn nack_until(self, reason: impl Into<String>, until: Timestamp) {
        self.fail(Some(reason.into()), Some(Pause::Until(until)));
    }

    fn fail(self, reason: Option<String>, pause: Option<Pause>) {
        self.shared.with(|inbox| inbox.nack(self.place, self.key.clone(), reason, pause));
    }

    /// Still at work: the ack deadline of its lane starts anew.
    pub fn progress(&self) {
        self.shared.with(|inbox| inbox.progress(self.place));
    }

    /// Whether an ack would still count: its lane is held under the same epoch.
    pub fn is_current(&self) -> bool {
        self.shared.lock().inbox.holds(self.place.partition, self.place.epoch)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.shared.with(|inbox| inbox.give_back(self.charge));
    }
}

/// A member of a group: a stream of deliveries. It ends when the client is closed, or when [`error`](Self::error) says why.
/// Dropping it leaves the group.
#[derive(Debug)]
pub struct Subscription {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: GroupSettings,
    pub(super) partitions: u32,
    /// Keeps the connection.
    pub(super) client: Client,
}

impl Subscription {
    /// How many messages wait to be read here: never more than the credit.
    pub fn queued(&self) -> usize {
        self.shared.lock().inbox.len()
    }

    /// Still at work on everything that was delivered, read or not: the ack deadlines of all lanes start anew.
    pub fn progress(&self) {
        self.shared.with(|inbox| inbox.progress_all());
    }

    /// Acks that did not count, because their lane had moved or their round was over.
    pub fn ignored_acks(&self) -> u64 {
        self.shared.lock().inbox.ignored()
    }

    /// The topics that take part now, by name, if it selects them.
    pub fn topics(&self) -> Vec<String> {
        self.shared.with_parts(|parts| parts.topics())
    }

    /// The lanes that are held, as partition and epoch. If it selects topics, partitions of different topics may look the same.
    pub fn lanes(&self) -> Vec<(u32, i64)> {
        let lanes = self.shared.lock().inbox.lanes();
        let mut lanes: Vec<(u32, i64)> =
            lanes.into_iter().map(|(lane, epoch)| (self.shared.place(lane).1, epoch)).collect();
        lanes.sort_unstable();
        lanes
    }

    /// The settings of the group.
    pub fn settings(&self) -> GroupSettings {
        self.settings
    }

    /// How many partitions the topic has; 0 if it selects topics.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Why the stream has ended, if it has.
    pub fn error(&self) -> Option<Error> {
        self.shared.ended()
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.shared
            .poll_take(context)
            .map(|queued| queued.map(|queued| Delivery::new(queued, self.shared.clone(), &self.client)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

/// A reader without a group: a stream of deliveries that need no ack. After a lost connection it goes on where it was.
/// Dropping it ends it.
#[derive(Debug)]
pub struct Tail {
    pub(super) shared: Arc<Shared>,
    /// Keeps the connection.
    pub(super) client: Client,
}

impl Tail {
    /// How many messages wait to be read here: never more than the credit.
    pub fn queued(&self) -> usize {
        self.shared.lock().inbox.len()
    }

    /// Why the stream has ended, if it has.
    pub fn error(&self) -> Option<Error> {
        self.shared.ended()
    }
}

impl Stream for Tail {
    type Item = Delivery;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.shared
            .poll_take(context)
            .map(|queued| queued.map(|queued| Delivery::new(queued, self.shared.clone(), &self.client)))
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}
