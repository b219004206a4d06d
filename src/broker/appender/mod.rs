//! The appender: turns what producers send at the same moment into one transaction.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the handle, admission by messages and bytes, the answers |
//! | `unit` | what is written all or none, and what is known about it so far |
//! | `queue` | units waiting per partition, and which of them the next flush takes |
//! | `answers` | what becomes of the units of one publish, told together |
//! | `commits` | commits of lanes waiting for a flush |
//! | `columns` | messages as columns of a flush |
//! | `plan` | the flush as columns; what its reports mean for each unit |
//! | `task` | the loop of one connection: accumulate, flush, settle |
//! | `outcome` | what becomes of units whose flush was not committed |
//! | `coverage` | tables ahead of need |
//! | `company` | whether other brokers are met at the locks, and what to do then |
//! | `memory` | how far producers had come when this appender wrote last |
//! | `errands` | what is done beside the loop: a partition flushed alone, offsets of duplicates |
//!
//! Each task owns a connection and a disjoint set of partitions, so that within a broker their locks never meet. While one
//! flush commits, the next accumulates in the inbox: batching without waiting.

mod answers;
pub(in crate::broker) mod columns;
mod commits;
mod company;
pub(in crate::broker) mod coverage;
mod errands;
mod gathering;
mod memory;
mod outcome;
mod plan;
mod queue;
mod task;
mod unit;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

pub use answers::Answers;
use answers::Reply;
use commits::PendingCommit;
pub use commits::{CommitError, Urgency};
use unit::Pending;
pub use unit::{Duplicate, ProducerRun, Receipt, Unit};

use crate::broker::announce::Announcer;
use crate::broker::capacity::Admission;
use crate::broker::metrics::Metrics;
use crate::broker::thinning::Thinning;
use crate::ids::{PartitionId, Sequence};
use crate::limits::{APPENDER_BYTES_MAX, APPENDER_MESSAGES_MAX, APPENDER_UNITS_MAX};
use crate::store::Store;
use crate::store::lanes::{Commit, Fence};
use crate::store::schedules::TimeFault;

/// Why a unit was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// More is waiting than the broker holds; nothing happened.
    #[error("the broker holds as much unwritten work as it may; try again in a moment")]
    Overloaded,
    /// The unit alone is larger than the broker holds; nothing happened.
    #[error("one publish to one partition has at most {max} bytes and {APPENDER_MESSAGES_MAX} messages", max = APPENDER_BYTES_MAX)]
    TooLarge,
    /// The database cannot be reached or cannot write; nothing happened.
    #[error("the database is unavailable: {reason}")]
    Unavailable { reason: String },
    /// It may have been written.
    #[error("the outcome is unknown: {reason}")]
    OutcomeUnknown { reason: String },
    /// The producer left a number out; nothing happened.
    #[error("the producer's next sequence for this partition is {expected}")]
    SequenceGap { expected: Sequence },
    /// The database refuses the data; nothing happened.
    #[error("the database refuses a message ({sqlstate}): {message}")]
    Refused { sqlstate: String, message: String },
    /// The partition is gone; nothing happened.
    #[error("the partition no longer exists")]
    UnknownPartition,
    /// An operator has paused the topic; nothing happened.
    #[error("the topic is paused: it takes messages again once it is resumed")]
    TopicPaused,
    /// The topic is encrypted since this was handed in as it is; nothing happened.
    #[error("the topic is encrypted since a moment ago: publish again")]
    Unsealed,
    /// The time of a message, by its place in the publish, is not taken; nothing happened.
    #[error("message {index}: {fault}")]
    Time { index: usize, fault: TimeFault },
    /// An answer that we do not expect; nothing happened.
    #[error("{reason}")]
    Internal { reason: String },
}

impl AppendError {
    /// A short, stable word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            AppendError::Overloaded => "overloaded",
            AppendError::TooLarge => "too_large",
            AppendError::Unavailable { .. } => "unavailable",
            AppendError::OutcomeUnknown { .. } => "outcome_unknown",
            AppendError::SequenceGap { .. } => "sequence_gap",
            AppendError::Refused { .. } => "refused",
            AppendError::UnknownPartition => "unknown_partition",
            AppendError::TopicPaused => "topic_paused",
            AppendError::Unsealed => "unsealed",
            AppendError::Time { .. } => "time",
            AppendError::Internal { .. } => "internal",
        }
    }
}

/// What becomes of a unit.
pub type AppendResult = Result<Receipt, AppendError>;

/// The room for units that have not been answered.
#[derive(Debug, Clone)]
struct Budget {
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

/// A unit's share of the budget; given back when the unit is answered.
#[derive(Debug)]
struct Share {
    _messages: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
    /// Its share of a topic with limits, together with the other units of its publish.
    _room: Option<Arc<Admission>>,
}

impl Budget {
    fn new() -> Self {
        Self {
            messages: Arc::new(Semaphore::new(APPENDER_MESSAGES_MAX)),
            bytes: Arc::new(Semaphore::new(APPENDER_BYTES_MAX)),
        }
    }

    fn take(&self, unit: &Unit, room: Option<Arc<Admission>>) -> Result<Share, AppendError> {
        let (messages, bytes) = (unit.messages.len(), unit.bytes());
        if messages > APPENDER_MESSAGES_MAX || bytes > APPENDER_BYTES_MAX {
            return Err(AppendError::TooLarge);
        }
        let take = |semaphore: &Arc<Semaphore>, amount: usize| {
            semaphore.clone().try_acquire_many_owned(amount as u32).map_err(|_| AppendError::Overloaded)
        };
        let (_messages, _bytes) = (take(&self.messages, messages)?, take(&self.bytes, bytes)?);
        Ok(Share { _messages, _bytes, _room: room })
    }
}

/// What reaches an appender task.
#[derive(Debug)]
enum Request {
    /// Of one publish, each of another partition.
    Units(Vec<Pending>),
    Commit(PendingCommit),
}

/// The way in. Cheap to clone; when the last one is dropped, the tasks write what they hold and end.
#[derive(Debug, Clone)]
pub struct AppenderHandle {
    inboxes: Arc<[mpsc::Sender<Request>]>,
    budget: Budget,
    metrics: Arc<Metrics>,
}

/// An appender that has been started.
#[derive(Debug)]
pub struct Appender {
    pub handle: AppenderHandle,
    pub tasks: Vec<JoinHandle<()>>,
}

impl Appender {
    /// Starts one task per connection that the store's settings allow.
    /// What is committed joins the hot tails and is announced to other brokers.
    pub fn start(store: &Store, announcer: &Announcer, metrics: &Arc<Metrics>, thinning: &Thinning) -> Self {
        let mut inboxes = Vec::new();
        let mut tasks = Vec::new();
        for number in 0..store.settings().appenders.max(1) {
            let (sender, inbox) = mpsc::channel(APPENDER_UNITS_MAX);
            let (thinning, announcer, metrics) = (thinning.clone(), announcer.clone(), metrics.clone());
            let after = task::After { thinning, announcer, metrics };
            tasks.push(tokio::spawn(task::run(number, store.clone(), inbox, after)));
            inboxes.push(sender);
        }
        let (inboxes, metrics) = (inboxes.into(), metrics.clone());
        let handle = AppenderHandle { inboxes, budget: Budget::new(), metrics };
        Self { handle, tasks }
    }
}

impl AppenderHandle {
    /// Hands a unit in and waits until it has been committed or refused.
    pub async fn append(&self, unit: Unit) -> AppendResult {
        let answer = self.submit(unit)?;
        let gone = |_| AppendError::OutcomeUnknown { reason: "the broker is stopping".into() };
        answer.await.map_err(gone)?
    }

    /// Hands a unit in. Units of one partition are written in the order in which they are submitted.
    pub fn submit(&self, unit: Unit) -> Result<oneshot::Receiver<AppendResult>, AppendError> {
        let share = self.budget.take(&unit, None)?;
        let inbox = self.inbox(self.task_of(unit.partition_id))?;
        let (reply, answer) = Reply::alone();
        inbox.send(Request::Units(vec![Pending::new(unit, reply, share)]));
        Ok(answer)
    }

    /// As [`submit`](Self::submit), the units of one publish: each task gets its own at once, and is woken once. What becomes of
    /// them, or why one was not taken, comes in their order. `room`: what was let into a topic with limits is counted until they
    /// are answered.
    pub fn submit_together(&self, units: Vec<Unit>, room: Option<&Arc<Admission>>) -> Answers {
        let answers = Answers::to(units.len());
        let mut of_tasks: Vec<Vec<Pending>> = Vec::new();
        of_tasks.resize_with(self.inboxes.len(), Vec::new);
        for (place, unit) in units.into_iter().enumerate() {
            let (task, reply) = (self.task_of(unit.partition_id), answers.reply(place));
            match self.budget.take(&unit, room.cloned()) {
                Ok(share) => of_tasks[task].push(Pending::new(unit, reply, share)),
                Err(error) => reply.send(Err(error)),
            }
        }
        for (task, units) in of_tasks.into_iter().enumerate().filter(|(_, units)| !units.is_empty()) {
            match self.inbox(task) {
                Ok(inbox) => inbox.send(Request::Units(units)),
                Err(error) => units.into_iter().for_each(|pending| pending.refuse(error.clone())),
            }
        }
        answers
    }

    /// A place in the inbox of a task.
    fn inbox(&self, task: usize) -> Result<mpsc::Permit<'_, Request>, AppendError> {
        self.inboxes[task].try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => AppendError::Overloaded,
            mpsc::error::TrySendError::Closed(()) => {
                AppendError::Unavailable { reason: "the appender has ended".into() }
            }
        })
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Hands in what is done of a lane. It goes with the next flush of its partition's task.
    pub fn commit(
        &self,
        fence: Fence,
        commit: Commit,
        urgency: Urgency,
    ) -> Result<oneshot::Receiver<Result<(), CommitError>>, CommitError> {
        let (reply, answer) = oneshot::channel();
        let inbox = &self.inboxes[self.task_of(fence.partition_id)];
        let pending = PendingCommit::new(fence, commit, urgency, reply);
        inbox.try_send(Request::Commit(pending)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CommitError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => CommitError::Stopping,
        })?;
        Ok(answer)
    }

    /// A partition always has the same task, so its units keep their order and its lock one taker.
    fn task_of(&self, partition_id: PartitionId) -> usize {
        partition_id.0.rem_euclid(self.inboxes.len() as i64) as usize
    }
}
