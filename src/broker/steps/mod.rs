//! Steps of pipelines: acks and publishes that happen together, many steps in one transaction.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the handle, what a step is, admission by messages and bytes, the answers |
//! | `pending` | a step that waits, and what is known about it so far |
//! | `plan` | which steps go together; the flush as columns; where everything stands after it |
//! | `task` | the loop of the one connection: accumulate, flush, settle |
//! | `tables` | tables ahead of need |
//!
//! While one flush commits, the next accumulates in the inbox, as with the appender. A step is idempotent by its id, so what
//! ended in doubt is simply sent again. Lanes stay with their groups: a group reserves what a step acknowledges, and is told
//! what became of it.

mod pending;
mod plan;
mod tables;
mod task;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use pending::{Pending, Share};

use super::announce::Announcer;
use super::capacity::Admission;
use super::groups::GroupHandle;
use super::message::NewMessage;
use super::schedules::After;
use super::thinning::Thinning;
use crate::ids::{Offset, PartitionId, StepId, TopicId};
use crate::limits::{APPENDER_BYTES_MAX, APPENDER_MESSAGES_MAX, STEPS_WAITING_MAX};
use crate::store::lanes::Fence;
use crate::store::schedules::{Due, TimeFault};
use crate::store::steps::{Digest, Placed};
use crate::store::times::LaneTime;
use crate::store::{Error, Store};

/// What a step acknowledges on one lane: reserved with its group.
#[derive(Debug, Clone)]
pub struct StepAck {
    pub group: GroupHandle,
    pub fence: Fence,
    /// Rising, separate, and not done before.
    pub ranges: Vec<(Offset, Offset)>,
    /// When they were delivered, and when the step came.
    pub times: Arc<[LaneTime]>,
    /// Those of them that are parked copies.
    pub copies: Vec<Offset>,
}

/// The messages of a step for one partition.
#[derive(Debug)]
pub struct StepUnit {
    pub partition_id: PartitionId,
    /// The number of the partition, which people see.
    pub partition: u32,
    pub topic_id: TopicId,
    pub messages: Vec<NewMessage>,
    /// Where each of them stands among all messages of the step.
    pub indexes: Vec<usize>,
    /// When each of them is due, if they wait; otherwise empty.
    pub dues: Vec<Due>,
    /// How long the topic remembers transaction ids.
    pub dedup_window: Duration,
}

impl StepUnit {
    /// Whether its messages wait for their time.
    pub fn is_scheduled(&self) -> bool {
        !self.dues.is_empty()
    }
}

/// Acks and publishes that happen together or not at all.
#[derive(Debug)]
pub struct Step {
    pub step_id: StepId,
    pub digest: Digest,
    /// At least one.
    pub acks: Vec<StepAck>,
    pub units: Vec<StepUnit>,
    /// What was let into topics with limits, counted until the step is answered.
    pub room: Vec<Arc<Admission>>,
}

impl Step {
    fn messages(&self) -> usize {
        self.units.iter().map(|unit| unit.messages.len()).sum()
    }

    fn bytes(&self) -> usize {
        self.units.iter().flat_map(|unit| &unit.messages).map(NewMessage::bytes).sum()
    }
}

/// A step that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Whether it had been done before: this is the result of that time.
    pub repeated: bool,
    /// Where its messages stand, in their order.
    pub placed: Vec<Placed>,
}

/// Why a step was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("the broker holds as much unwritten work as it may; try again in a moment")]
    Overloaded,
    #[error("the messages of one step have at most {max} bytes together", max = APPENDER_BYTES_MAX)]
    TooLarge,
    #[error("a lane of the step has another holder by now: nothing was acknowledged or published")]
    LeaseLost,
    #[error("this step id belongs to a step of other content: nothing was acknowledged or published")]
    Mismatch,
    #[error("a partition of the step no longer exists")]
    UnknownPartition,
    #[error("a topic of the step is paused: nothing was acknowledged or published")]
    TopicPaused,
    #[error(
        "a topic of the step is encrypted since a moment ago: nothing was acknowledged or published, send it again"
    )]
    Unsealed,
    #[error("{fault}: nothing was acknowledged or published")]
    Time { index: usize, fault: TimeFault },
    #[error("the database is unavailable: {reason}")]
    Unavailable { reason: String },
    #[error("the outcome is unknown, send the same step again: {reason}")]
    OutcomeUnknown { reason: String },
    #[error("the database refuses a message ({sqlstate}): {message}")]
    Refused { sqlstate: String, message: String },
    #[error("{reason}")]
    Internal { reason: String },
}

/// What becomes of a step.
pub type StepResult = Result<Done, StepError>;

/// The way in. Cheap to clone; when the last one is dropped, the task writes what it holds and ends.
#[derive(Debug, Clone)]
pub struct StepsHandle {
    inbox: mpsc::Sender<Pending>,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    coming: Arc<AtomicUsize>,
    under_way: Arc<Mutex<HashMap<StepId, usize>>>,
    tries: Arc<Mutex<HashMap<StepId, usize>>>,
    store: Store,
}

/// A copy of a step for as long as it is tried, or with the task: one that comes meanwhile knows that it is not alone.
#[derive(Debug)]
pub struct UnderWay {
    step_id: StepId,
    steps: Arc<Mutex<HashMap<StepId, usize>>>,
}

impl UnderWay {
    fn new(step_id: StepId, steps: &Arc<Mutex<HashMap<StepId, usize>>>) -> Self {
        *steps.lock().entry(step_id).or_default() += 1;
        Self { step_id, steps: steps.clone() }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut steps = self.steps.lock();
        match steps.get_mut(&self.step_id) {
            Some(copies) if *copies > 1 => *copies -= 1,
            Some(_) | None => drop(steps.remove(&self.step_id)),
        }
    }
}

/// A step that is on its way in: the task may wait a moment for it, so that it need not go alone.
#[derive(Debug)]
pub struct Coming(Arc<AtomicUsize>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts the task that writes steps.
pub fn start(
    store: &Store,
    announcer: &Announcer,
    after: &After,
    thinning: &Thinning,
) -> (StepsHandle, JoinHandle<()>) {
    let (inbox, requests) = mpsc::channel(STEPS_WAITING_MAX);
    let handle = StepsHandle {
        inbox,
        messages: Arc::new(Semaphore::new(APPENDER_MESSAGES_MAX)),
        bytes: Arc::new(Semaphore::new(APPENDER_BYTES_MAX)),
        coming: Arc::default(),
        under_way: Arc::default(),
        tries: Arc::default(),
        store: store.clone(),
    };
    let inbox = task::Inbox { requests, coming: handle.coming.clone() };
    let task = task::run(store.clone(), inbox, announcer.clone(), (after.clone(), thinning.clone()));
    (handle, tokio::spawn(task))
}

impl StepsHandle {
    /// Says that a step will be handed in, or not, as soon as its groups have answered.
    pub fn coming(&self) -> Coming {
        self.coming.fetch_add(1, Ordering::Relaxed);
        Coming(self.coming.clone())
    }

    /// Hands a step in that was said to come. Whatever becomes of it, its groups are told.
    pub fn submit(&self, step: Step, coming: Coming) -> Result<oneshot::Receiver<StepResult>, StepError> {
        let share = match self.share(&step) {
            Ok(share) => share,
            Err(error) => {
                pending::undo(step.step_id, &step.acks);
                return Err(error);
            }
        };
        drop(coming); // before it is there: nobody may wait for one that has come
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Pending::new(step, reply, share)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(pending) => {
                pending.undo();
                StepError::Overloaded
            }
            mpsc::error::TrySendError::Closed(pending) => {
                pending.undo();
                StepError::Unavailable { reason: "the broker is stopping".into() }
            }
        })?;
        Ok(answer)
    }

    fn share(&self, step: &Step) -> Result<Share, StepError> {
        let (messages, bytes) = (step.messages(), step.bytes());
        if messages > APPENDER_MESSAGES_MAX || bytes > APPENDER_BYTES_MAX {
            return Err(StepError::TooLarge);
        }
        let take = |semaphore: &Arc<Semaphore>, amount: usize| {
            semaphore.clone().try_acquire_many_owned(amount as u32).map_err(|_| StepError::Overloaded)
        };
        let (_messages, _bytes) = (take(&self.messages, messages)?, take(&self.bytes, bytes)?);
        Ok(Share { _messages, _bytes, _under_way: UnderWay::new(step.step_id, &self.under_way) })
    }

    /// Whether a copy of a step is with the task, and may still be written.
    pub fn is_under_way(&self, step_id: StepId) -> bool {
        self.under_way.lock().contains_key(&step_id)
    }

    /// One more try of a step, from when its groups are asked until it is answered.
    pub fn begin(&self, step_id: StepId) -> UnderWay {
        UnderWay::new(step_id, &self.tries)
    }

    /// Whether another try than the caller's own is with this broker: handed in, or about to be.
    pub fn has_other_try(&self, step_id: StepId) -> bool {
        self.is_under_way(step_id) || self.tries.lock().get(&step_id).is_some_and(|tries| *tries > 1)
    }

    /// How a step stands that cannot be tried here, because a lane that it names is not held here.
    pub async fn stand(
        &self,
        step_id: StepId,
        lanes: &[crate::store::steps::NamedLane],
    ) -> Result<crate::store::steps::Standing, Error> {
        self.store.steps_stand(step_id, lanes).await
    }
}
