//! Groups: who consumes what, in which order, and how far they are.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the way in: subscribing, and the requests of sessions |
//! | `task` | one group on this broker: its members and lanes, the loop |
//! | `reconcile` | table state against memory: who gets, drains and loses lanes |
//! | `deliver` | feeding lanes from the hot tail or the segments, within credit |
//! | `purse` | the credit of a subscription, and whose turn it is |
//! | `answer` | acks, nacks, progress, credit, and what follows from failures |
//! | `failing` | what follows from a failure, as a settlement |
//! | `stepping` | what steps of pipelines reserve and acknowledge |
//! | `keyed` | lanes whose order is kept by key, and their parked keys |
//! | `copies` | reading what is released of parked keys |
//! | `evict` | windows of lanes, and what has expired |
//! | `selected` | members that came by a selection of topics |
//! | `effects` | what is done beside the loop, in the database |
//! | `pausing` | what an operator has paused; what is in flight |
//! | `flights` | spans of deliveries and acks, if anybody wants them |
//! | `lane`, `ranges`, `times`, `credit`, `assignment`, `backoff`, `pause`, `verdict`, `settings`, `windows` | the rules; pure |
//! | `model` | the rules in every order of events; in tests only |
//!
//! One task per group and broker owns everything about the lanes that this broker's sessions hold. It never waits for the
//! database: what has to be read or written is done beside it and comes back as an event.

mod answer;
pub(super) mod assignment;
pub(super) mod backoff;
mod copies;
mod credit;
mod deliver;
mod effects;
pub(super) mod evict;
mod failing;
mod flights;
mod held;
mod keyed;
pub mod lane;
#[cfg(test)]
mod model;
pub(super) mod pause;
mod pausing;
mod places;
mod purse;
pub(super) mod ranges;
mod reconcile;
mod selected;
pub mod settings;
pub(super) mod start;
mod stepping;
mod task;
mod times;
pub(super) mod verdict;
pub(super) mod windows;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use laneway_client::wire::{
    Ack, BatchOptions, CreditGrant, Nack, Progress, ResumedLane, Start, WantedSettings,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use credit::{Credit, InvalidCredit};
pub use purse::{Purse, Reach};
pub use selected::Selected;
use settings::{InvalidSetting, Mismatch};
pub use start::{Terms, batch_limits};
pub use stepping::{Refused as StepRefused, Reserved, Unreserved};
use task::GroupTask;

use super::appender::AppenderHandle;
use super::hot_tail::HotTails;
use super::lease::Lease;
use super::metrics::Metrics;
use super::outbox::Outbox;
use super::reader::{ReadError, Reader};
use super::topics::{TopicError, Topics};
use crate::ids::{GroupId, Offset, PartitionId, SessionId, StepId};
use crate::limits::{CATCH_UP_READS_MAX, GROUP_REQUESTS_MAX, LEASE_PATIENCE, SETTLEMENTS_MAX};
use crate::store::groups::{Group, GroupSettings};
use crate::store::lanes::Fence;
use crate::store::listen::Hints;
use crate::store::topics::Topic;
use crate::store::{Error, Store};
use crate::telemetry::spans::Spans;

/// Why a session does not become a member.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SubscribeError {
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    #[error("{0}; the settings of a group are the same for all its members")]
    Mismatch(#[from] Mismatch),
    #[error("start: {reason}")]
    Start { reason: String },
    #[error("batch.{field}: {rule}")]
    Batch { field: &'static str, rule: &'static str },
    #[error(transparent)]
    Credit(#[from] InvalidCredit),
    #[error("this session is a member of the group already")]
    AlreadySubscribed,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] Error),
    #[error("the broker has no lease at the moment; try again")]
    NoLease,
}

/// What batches of a subscription look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    pub max_messages: usize,
    pub max_bytes: u64,
    pub min_messages: usize,
    pub max_wait: Duration,
}

/// What a session subscribes with.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// Of the `subscribe` that is answered before the first lane can come; absent when a session comes back.
    pub id: Option<u64>,
    pub session_id: SessionId,
    /// SHA-256 of its resume token.
    pub resume_hash: Vec<u8>,
    /// Its number within the session.
    pub number: u32,
    pub group: String,
    pub topic: String,
    /// Present if the topic was selected.
    pub selected: Option<Box<Selected>>,
    pub start: Option<Start>,
    pub credit: CreditGrant,
    pub batch: BatchOptions,
    pub settings: WantedSettings,
    pub outbox: Outbox,
}

/// A session has become a member.
#[derive(Debug, Clone)]
pub struct Subscribed {
    pub group: GroupHandle,
    pub partitions: u32,
    pub settings: GroupSettings,
}

/// How a session leaves a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// It has asked to: what is in flight may still be acknowledged for a while.
    Drain,
    /// Its client has closed the connection in order: at once.
    Closed,
    /// Its connection was lost or fell silent: what was in flight is suspect.
    Crashed,
}

/// What a session asks of a group.
#[derive(Debug)]
enum Request {
    Join {
        member: Box<task::Member>,
    },
    /// The connection is lost, but may come back: nothing is sent meanwhile.
    Detach {
        session_id: SessionId,
    },
    /// A member is away, or is back: who gets what is decided anew.
    Reassign,
    /// It came back: delivery restarts at the first message that is not done.
    Attach {
        session_id: SessionId,
        outbox: Outbox,
        reply: oneshot::Sender<Vec<ResumedLane>>,
    },
    /// Answered when the session holds no lane any more.
    Leave {
        session_id: SessionId,
        leaving: Leaving,
        reply: oneshot::Sender<()>,
    },
    Ack {
        session_id: SessionId,
        ack: Ack,
    },
    /// A step is to acknowledge this: nobody else may meanwhile.
    Reserve {
        session_id: SessionId,
        step_id: StepId,
        ack: Ack,
        reply: oneshot::Sender<Result<Reserved, Unreserved>>,
    },
    /// A step has acknowledged this, durably.
    StepDone {
        fence: Fence,
        step_id: StepId,
        ranges: Vec<(Offset, Offset)>,
    },
    /// A step was not done.
    StepUndone {
        fence: Fence,
        step_id: StepId,
    },
    Nack {
        session_id: SessionId,
        nack: Box<Nack>,
    },
    Progress {
        session_id: SessionId,
        progress: Progress,
    },
    Credit {
        session_id: SessionId,
        messages: u32,
        bytes: u64,
    },
    /// How much is in flight, lane by lane.
    Count {
        reply: oneshot::Sender<HashMap<PartitionId, u64>>,
    },
}

/// The way to one group. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GroupHandle {
    pub group_id: GroupId,
    requests: mpsc::Sender<Request>,
}

impl GroupHandle {
    async fn send(&self, request: Request) {
        // A group ends only when it has no member; then nobody can be asking.
        let _group_is_gone = self.requests.send(request).await;
    }

    pub async fn ack(&self, session_id: SessionId, ack: Ack) {
        self.send(Request::Ack { session_id, ack }).await;
    }

    /// Asks for what a step is to acknowledge; the answer comes in the order of acks and steps.
    pub async fn reserve(
        &self,
        session_id: SessionId,
        step_id: StepId,
        ack: Ack,
    ) -> oneshot::Receiver<Result<Reserved, Unreserved>> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Reserve { session_id, step_id, ack, reply }).await;
        answer
    }

    /// A step has acknowledged this, durably.
    pub fn step_done(&self, fence: Fence, step_id: StepId, ranges: Vec<(Offset, Offset)>) {
        self.tell(Request::StepDone { fence, step_id, ranges });
    }

    /// A step was not done; what it has reserved is free.
    pub fn step_undone(&self, fence: Fence, step_id: StepId) {
        self.tell(Request::StepUndone { fence, step_id });
    }

    /// As [`GroupHandle::send`], without waiting: if the inbox is full, somebody else waits.
    fn tell(&self, request: Request) {
        if let Err(mpsc::error::TrySendError::Full(request)) = self.requests.try_send(request) {
            let handle = self.clone();
            tokio::spawn(async move { handle.send(request).await });
        }
    }

    pub async fn nack(&self, session_id: SessionId, nack: Nack) {
        self.send(Request::Nack { session_id, nack: Box::new(nack) }).await;
    }

    pub async fn progress(&self, session_id: SessionId, progress: Progress) {
        self.send(Request::Progress { session_id, progress }).await;
    }

    pub async fn credit(&self, session_id: SessionId, messages: u32, bytes: u64) {
        self.send(Request::Credit { session_id, messages, bytes }).await;
    }

    /// The connection is lost; its lanes wait for it.
    pub async fn detach(&self, session_id: SessionId) {
        self.send(Request::Detach { session_id }).await;
    }

    /// Who gets what is decided anew, soon.
    pub async fn reassign(&self) {
        self.send(Request::Reassign).await;
    }

    /// The session came back on this broker. Returns its lanes: epochs kept, in the next round.
    pub async fn attach(&self, session_id: SessionId, outbox: Outbox) -> Vec<ResumedLane> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Attach { session_id, outbox, reply }).await;
        answer.await.unwrap_or_default()
    }

    /// Leaves; resolves when the session holds no lane of the group any more.
    pub async fn leave(&self, session_id: SessionId, leaving: Leaving) {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Leave { session_id, leaving, reply }).await;
        let _group_is_gone = answer.await;
    }
}

/// What every group needs.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub store: Store,
    pub appender: AppenderHandle,
    pub tails: HotTails,
    pub reader: Reader,
    pub topics: Topics,
    pub lease: Lease,
    pub hints: Hints,
    /// Reads of lanes that are behind: a budget of their own.
    pub catch_up: Arc<Semaphore>,
    /// Settlements and moves of members: a budget of their own, too.
    pub settling: Arc<Semaphore>,
    /// How long a holder may finish when another session is to have its lane.
    pub drain: Duration,
    pub metrics: Arc<Metrics>,
    pub spans: Spans,
}

/// All groups of a broker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Groups {
    surroundings: Surroundings,
    running: Arc<Mutex<HashMap<GroupId, GroupHandle>>>,
}

impl Groups {
    pub(super) fn new(surroundings: Surroundings) -> Self {
        Self { surroundings, running: Arc::default() }
    }

    /// A budget for settlements.
    pub(super) fn settling_budget() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(SETTLEMENTS_MAX))
    }

    /// A budget for reads of lanes that are behind.
    pub(super) fn catch_up_budget() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(CATCH_UP_READS_MAX))
    }

    /// Makes a session a member of a group, and the group if it is the first. Lanes come as they become free.
    pub async fn subscribe(&self, subscription: Subscription) -> Result<Subscribed, SubscribeError> {
        let name = laneway_client::TopicName::new(subscription.topic.clone()).map_err(TopicError::from)?;
        let topic = self.surroundings.topics.find(&name).await?;
        let batch = start::batch_limits(&subscription.batch)?;
        let purse = match &subscription.selected {
            Some(selected) => selected.purse.clone(),
            None => Purse::new(subscription.credit, Reach::Topic)?,
        };
        let (wanted, start) = (&subscription.settings, subscription.start.as_ref());
        let group = self.find_or_make(&topic, &subscription.group, wanted, start).await?;
        let terms = start::terms(&subscription);
        let mut lease = self.surroundings.lease.clone();
        let held = tokio::time::timeout(LEASE_PATIENCE, lease.held()).await;
        let broker_id = held.map_err(|_| SubscribeError::NoLease)?;
        let (session_id, hash) = (subscription.session_id, &subscription.resume_hash);
        let store = &self.surroundings.store;
        match store.members_join(group.group_id, session_id, broker_id, hash, &terms).await {
            Ok(true) => {}
            Ok(false) => return Err(SubscribeError::NoLease),
            Err(error) => {
                // It may have been entered; if it stays, its share of the lanes waits for nobody until the session ends.
                let _best_effort = store.members_leave(group.group_id, session_id, broker_id).await;
                return Err(error.into());
            }
        }
        let partitions = topic.partitions.len() as u32;
        let member = task::Member::new(&subscription, purse, batch, terms, broker_id);
        selected::announce(&subscription, &topic, &group);
        let handle = self.join(&subscription.group, &topic, &group, member).await;
        Ok(Subscribed { group: handle, partitions, settings: group.settings })
    }

    /// As [`Groups::find_or_make`], by the name of the topic.
    pub(super) async fn make(
        &self,
        topic: &str,
        name: &str,
        wanted: &WantedSettings,
        start: Option<&Start>,
    ) -> Result<Group, SubscribeError> {
        let topic = laneway_client::TopicName::new(topic.to_owned()).map_err(TopicError::from)?;
        let topic = self.surroundings.topics.find(&topic).await?;
        self.find_or_make(&topic, name, wanted, start).await
    }

    /// A group as it is, or as its first consumer wants it.
    pub(super) async fn find_or_make(
        &self,
        topic: &Topic,
        name: &str,
        wanted: &WantedSettings,
        start: Option<&Start>,
    ) -> Result<Group, SubscribeError> {
        let (store, earliest) = (&self.surroundings.store, Start::Earliest);
        for _ in 0..2 {
            if let Some(group) = store.groups_find(topic.topic_id, name).await? {
                settings::agree(&group.settings, wanted)?;
                return Ok(group);
            }
            let settings = settings::checked(wanted)?;
            let start = match start {
                Some(_) if selected::is_awaited(store, topic, name).await? => Some(&earliest),
                start => start,
            };
            let first = start::first_offsets(&self.surroundings.reader, topic, start).await?;
            let made = store.groups_create(topic.topic_id, name, &settings, &first).await?;
            if let Some(group_id) = made {
                tracing::info!(group.name = name, topic.name = topic.name, "group made");
                return Ok(Group { group_id, settings });
            } // somebody was faster: look again
        }
        // Neither found nor made: the topic was deleted since it was remembered.
        if let Ok(name) = laneway_client::TopicName::new(topic.name.clone()) {
            self.surroundings.topics.forget(&name);
        }
        Err(TopicError::Unknown { name: topic.name.clone() }.into())
    }

    /// Hands a member to the task of its group, which is started if it is not running.
    async fn join(&self, name: &str, topic: &Arc<Topic>, group: &Group, member: task::Member) -> GroupHandle {
        let mut request = Request::Join { member: Box::new(member) };
        loop {
            match self.hand_in(name, topic, group, request) {
                Ok(handle) => return handle,
                Err(back) => request = back,
            }
            tokio::time::sleep(INBOX_FULL_PAUSE).await;
        }
    }

    /// Under the lock of the list: a group ends only after it has seen, under the same lock, that nothing waits for it.
    fn hand_in(
        &self,
        name: &str,
        topic: &Arc<Topic>,
        group: &Group,
        request: Request,
    ) -> Result<GroupHandle, Request> {
        let mut running = self.running.lock();
        let handle = self.handle(&mut running, name, topic, group);
        match handle.requests.try_send(request) {
            Ok(()) => Ok(handle),
            Err(mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) => Err(back),
        }
    }

    fn handle(
        &self,
        running: &mut HashMap<GroupId, GroupHandle>,
        name: &str,
        topic: &Arc<Topic>,
        group: &Group,
    ) -> GroupHandle {
        if let Some(handle) = running.get(&group.group_id).filter(|handle| !handle.requests.is_closed()) {
            return handle.clone();
        }
        let (requests, inbox) = mpsc::channel(GROUP_REQUESTS_MAX);
        let handle = GroupHandle { group_id: group.group_id, requests };
        running.insert(group.group_id, handle.clone());
        let task = GroupTask::new(self.surroundings.clone(), name.to_owned(), topic.clone(), *group, inbox);
        let registry = Arc::downgrade(&self.running);
        tokio::spawn(async move { task.run(registry).await });
        handle
    }
}

/// Before a member is handed in again to a group that has too much to do.
const INBOX_FULL_PAUSE: Duration = Duration::from_millis(5);
