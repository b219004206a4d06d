//! Messages that wait for their time: admitted here, written down together, and looked after by operators.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the handle, admission by messages and bytes; listing, moving and cancelling |
//! | `due` | times as producers write them |
//! | `columns` | messages as columns |
//! | `room` | room for what is due in topics with limits |
//! | `queueing` | partitions whose locks others have when something is due there |
//! | `writer` | the loop of the one connection that writes them down |
//! | `tables` | tables ahead of need |
//! | `alarm` | the bell that wakes who fires what is due (`tasks::schedules`) |
//!
//! A schedule is durable before it is answered. It is appended to its partition by whichever broker is first when it is due.

pub mod alarm;
pub(super) mod columns;
pub mod due;
pub mod queueing;
pub mod room;
pub mod tables;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use laneway_client::TopicName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use self::alarm::Alarm;
use self::due::{Due, DueFault};
use self::tables::Tables;
use self::writer::Pending;
pub use self::writer::{After, Wrote};
use super::Broker;
use super::appender::{AppendError, AppendResult, ProducerRun};
use super::message::NewMessage;
use super::metrics::Metrics;
use super::topics::TopicError;
use crate::ids::{PartitionId, ScheduleId, TopicId};
use crate::limits::{APPENDER_BYTES_MAX, APPENDER_MESSAGES_MAX, READ_BYTES_MAX, SCHEDULE_UNITS_MAX};
use crate::store::schedules::{Schedule, ScheduleFilter, SchedulePage};
use crate::store::{Error, Store};

/// The messages of one partition in one publish that wait for their time.
#[derive(Debug)]
pub struct ScheduleUnit {
    pub topic_id: TopicId,
    pub partition_id: PartitionId,
    /// In order; at least one.
    pub messages: Vec<NewMessage>,
    /// When each of them is due.
    pub dues: Vec<Due>,
    /// Present if the producer numbers what it schedules.
    pub run: Option<ProducerRun>,
    /// How long the topic remembers transaction ids.
    pub dedup_window: Duration,
}

impl ScheduleUnit {
    fn bytes(&self) -> usize {
        self.messages.iter().map(NewMessage::bytes).sum()
    }
}

/// A unit's share of what may wait; given back when it is answered.
#[derive(Debug)]
struct Share {
    _messages: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// The way in. Cheap to clone; when the last one is dropped, the task writes what it holds and ends.
#[derive(Debug, Clone)]
pub struct SchedulesHandle {
    inbox: mpsc::Sender<Pending>,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    after: After,
}

/// Starts the task that writes schedules down.
pub fn start(store: &Store, metrics: &Arc<Metrics>) -> (SchedulesHandle, JoinHandle<()>) {
    let (inbox, requests) = mpsc::channel(SCHEDULE_UNITS_MAX);
    let (alarm, tables) = (Alarm::default(), Tables::new(store.clone()));
    let after = After { alarm, tables, metrics: metrics.clone() };
    let handle = SchedulesHandle {
        inbox,
        messages: Arc::new(Semaphore::new(APPENDER_MESSAGES_MAX)),
        bytes: Arc::new(Semaphore::new(APPENDER_BYTES_MAX)),
        after: after.clone(),
    };
    let task = writer::run(store.clone(), requests, after);
    (handle, tokio::spawn(task))
}

impl SchedulesHandle {
    /// What who fires shares with who writes down.
    pub fn after(&self) -> &After {
        &self.after
    }

    /// Hands a unit in. Units are written down in the order in which they are submitted.
    pub fn submit(&self, unit: ScheduleUnit) -> Result<oneshot::Receiver<AppendResult>, AppendError> {
        let (messages, bytes) = (unit.messages.len(), unit.bytes());
        if messages > APPENDER_MESSAGES_MAX || bytes > APPENDER_BYTES_MAX {
            return Err(AppendError::TooLarge);
        }
        let take = |semaphore: &Arc<Semaphore>, amount: usize| {
            semaphore.clone().try_acquire_many_owned(amount as u32).map_err(|_| AppendError::Overloaded)
        };
        let share = Share { _messages: take(&self.messages, messages)?, _bytes: take(&self.bytes, bytes)? };
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Pending::new(unit, reply, share)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => AppendError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => {
                AppendError::Unavailable { reason: "the broker is stopping".into() }
            }
        })?;
        Ok(answer)
    }
}

/// Why nothing was done about a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error("no message waits under the schedule {id}: it was appended or cancelled, or there never was one")]
    Unknown { id: ScheduleId },
    #[error("{0}")]
    Due(#[from] DueFault),
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Broker {
    /// Schedules after an id, in the order in which they were published, of one topic or of all.
    pub async fn list_schedules(
        &self,
        topic: Option<&TopicName>,
        after: ScheduleId,
        limit: u32,
    ) -> Result<SchedulePage, ScheduleError> {
        let topic_id = match topic {
            Some(name) => Some(self.topics.find(name).await?.topic_id),
            None => None,
        };
        let filter = ScheduleFilter { topic_id, after, limit, bytes: READ_BYTES_MAX };
        let mut page = self.store.schedules_list(filter).await?;
        for schedule in &mut page.schedules {
            self.reader.name_causes(std::slice::from_mut(&mut schedule.message)).await?;
        }
        Ok(page)
    }

    /// One schedule.
    pub async fn find_schedule(&self, id: ScheduleId) -> Result<Schedule, ScheduleError> {
        let found = self.store.schedules_find(id).await?;
        let mut schedule = found.ok_or(ScheduleError::Unknown { id })?;
        self.reader.name_causes(std::slice::from_mut(&mut schedule.message)).await?;
        Ok(schedule)
    }

    /// Cancels a schedule: either it is never appended, or it was before and is not known any more.
    pub async fn cancel_schedule(&self, id: ScheduleId) -> Result<(), ScheduleError> {
        let unknown = ScheduleError::Unknown { id };
        let partition_id = self.store.schedules_home(id).await?.ok_or(unknown.clone())?;
        match self.store.schedules_cancel(id, partition_id).await? {
            None => Err(unknown),
            Some(()) => {
                self.metrics.schedules_cancelled.inc();
                tracing::info!(schedule = %id, partition = %partition_id, "schedule cancelled");
                Ok(())
            }
        }
    }

    /// Gives a schedule another time.
    pub async fn move_schedule(&self, id: ScheduleId, due: Due) -> Result<Schedule, ScheduleError> {
        let unknown = ScheduleError::Unknown { id };
        let mut schedule = self.find_schedule(id).await?;
        match self.store.schedules_move(id, schedule.partition_id, due).await? {
            None => Err(unknown),
            Some(Err(fault)) => Err(DueFault::Clock(fault).into()),
            Some(Ok(due_at)) => {
                self.schedules.after().alarm.ring(due_at);
                schedule.due_at = due_at;
                self.metrics.schedules_moved.inc();
                tracing::info!(schedule = %id, partition = %schedule.partition_id, %due_at, "schedule moved");
                Ok(schedule)
            }
        }
    }
}
