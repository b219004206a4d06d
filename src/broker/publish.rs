//! Publishing: checks all messages, routes each to its partition, and hands the appender one unit per partition.
//!
//! Nothing is written unless every message keeps every rule. After that, units stand or fall one by one.

mod patient;
pub mod sealing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use laneway_client::TopicName;
use laneway_client::{routing, wire};
use rand::Rng as _;
use tokio::sync::oneshot;

use super::appender::{Answers, AppendError, AppendResult, AppenderHandle, ProducerRun, Unit};
use super::capacity::{Capacity, NoRoom, TopicFull};
use super::causes::{CauseFault, Causes};
use super::message::{Draft, InvalidMessage, NewMessage};
use super::metrics::Metrics;
use super::schedules::due::{self, Due, DueFault};
use super::schedules::{ScheduleUnit, SchedulesHandle};
use super::steps::StepUnit;
use super::topics::{TopicError, Topics};
use crate::ids::{Offset, PartitionId, ProducerId, ScheduleId, Sequence, TraceId};
use crate::limits::SEQUENCE_MAX;
use crate::store::topics::Topic;
use crate::telemetry::spans::{self, Seed, Span, SpanKind, Spans, publish_span};
use sealing::Sealer;

pub use patient::{Submission, Waiting};

/// Why nothing of a publish was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("a publish needs at least one message")]
    Empty,
    #[error("message {index}: {rule}")]
    Invalid { index: usize, rule: InvalidMessage },
    #[error(
        "message {index}: topic {topic} has {partitions} partitions, so there is no partition {partition}"
    )]
    PartitionOutOfRange { index: usize, topic: String, partition: u32, partitions: u32 },
    #[error("message {index}: {fault}")]
    Sequence { index: usize, fault: SequenceFault },
    #[error("message {index}: {fault}")]
    Cause { index: usize, fault: CauseFault },
    #[error("message {index}: {fault}")]
    Due { index: usize, fault: DueFault },
    #[error(transparent)]
    Full(#[from] TopicFull),
    #[error(transparent)]
    Topic(#[from] TopicError),
}

impl From<NoRoom> for PublishError {
    fn from(no_room: NoRoom) -> Self {
        match no_room {
            NoRoom::Full(full) => full.into(),
            NoRoom::Topic(error) => error.into(),
        }
    }
}

/// How the numbering of a publish breaks its rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SequenceFault {
    #[error("a producer that gives its id numbers every message: sequence is missing")]
    Missing,
    #[error("a sequence means nothing without a producer_id")]
    WithoutProducer,
    #[error("sequences start at 0 and end at {SEQUENCE_MAX}")]
    OutOfRange,
    #[error("within one publish, the sequences of a partition follow each other: expected {expected}")]
    Gap { expected: i64 },
    #[error(
        "a producer that numbers its messages decides their partition: give partition, key or transaction_id"
    )]
    Homeless,
}

/// A message with where it goes and its number, as the producer says.
#[derive(Debug, Clone, Default)]
pub struct Addressed {
    /// Explicit partition; wins over the key.
    pub partition: Option<u32>,
    /// Its number among those that the producer sends to its partition.
    pub sequence: Option<i64>,
    /// The message that led to this one, as the producer names it.
    pub cause: Option<laneway_client::Cause>,
    /// When it is to be appended, as the producer says; at most one of both.
    pub deliver_at: Option<String>,
    pub delay_ms: Option<u64>,
    pub draft: Draft,
}

impl From<wire::NewMessage> for Addressed {
    fn from(message: wire::NewMessage) -> Self {
        let draft = Draft {
            trace_id: message.trace_id.map(TraceId),
            cause: None,
            origin: None,
            links: message.links.into_iter().map(TraceId).collect(),
            key: message.key,
            transaction_id: message.transaction_id,
            headers: message.headers,
            content_type: message.content_type,
            payload: message.payload,
            producer: None,
            ttl: message.ttl_ms.map(Duration::from_millis),
        };
        Self {
            partition: message.partition,
            sequence: message.sequence,
            cause: message.cause,
            deliver_at: message.deliver_at,
            delay_ms: message.delay_ms,
            draft,
        }
    }
}

/// What became of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The number of its partition.
    pub partition: u32,
    pub result: Result<Placed, AppendError>,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    New(Offset),
    /// An earlier copy was found; unknown once it has left the window.
    Duplicate(Option<Offset>),
    /// It waits for its time.
    Scheduled(ScheduleId),
    /// It was scheduled before.
    ScheduledBefore(ScheduleId),
}

/// What became of the messages of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedUnit {
    /// The number of the partition.
    pub partition: u32,
    /// Their places in the publish, in order.
    pub indexes: Vec<usize>,
    pub result: AppendResult,
}

/// A publish whose units are with the appender. Only the answers are missing; who drops it just does not hear them.
#[derive(Debug)]
pub struct Submitted {
    metrics: Arc<Metrics>,
    spans: Spans,
    submitted_at: SystemTime,
    topics: Topics,
    topic: TopicName,
    messages: usize,
    units: Vec<SubmittedUnit>,
    /// Of the units that are with the appender.
    answers: Answers,
}

#[derive(Debug)]
struct SubmittedUnit {
    partition_id: PartitionId,
    /// Of its messages, if anybody wants spans.
    seeds: Vec<Seed>,
    partition: u32,
    indexes: Vec<usize>,
    answer: Answer,
}

/// Where the answer to a unit comes from.
#[derive(Debug)]
enum Answer {
    /// The appender, together with those of the other units there.
    Gathered,
    /// Whoever keeps messages that wait for their time.
    Alone(Result<oneshot::Receiver<AppendResult>, AppendError>),
}

impl Submitted {
    /// Waits until every unit is written or refused; one result per partition.
    pub async fn units(mut self) -> Vec<PublishedUnit> {
        let mut seeds = Vec::with_capacity(self.units.len());
        let mut units = Vec::with_capacity(self.units.len());
        let mut gathered = (&mut self.answers).await.into_iter();
        for mut unit in std::mem::take(&mut self.units) {
            seeds.push((unit.partition_id, std::mem::take(&mut unit.seeds)));
            units.push(unit.answered(&mut gathered).await);
        }
        for ((partition_id, seeds), unit) in seeds.iter().zip(&units) {
            self.span(*partition_id, seeds, unit);
        }
        for error in units.iter().filter_map(|unit| unit.result.as_ref().err()) {
            self.metrics.on_publish_failure(error.kind());
        }
        // It was deleted since it was remembered, and may have been made again; or it is encrypted since.
        let is_other = |result: &AppendResult| {
            matches!(result, Err(AppendError::UnknownPartition | AppendError::Unsealed))
        };
        if units.iter().any(|unit| is_other(&unit.result)) {
            self.topics.forget(&self.topic);
        }
        units
    }

    /// Tells of what is new.
    fn span(&self, partition_id: PartitionId, seeds: &[Seed], unit: &PublishedUnit) {
        let Ok(receipt) = &unit.result else { return };
        let offsets = receipt.offsets(unit.indexes.len());
        for (place, (seed, offset)) in seeds.iter().zip(offsets).enumerate() {
            let is_new = !receipt.duplicates.iter().any(|duplicate| duplicate.index == place);
            if let (Some(offset), true) = (offset, is_new) {
                let place = (partition_id, unit.partition, offset);
                self.spans.record(published_span(*seed, place, self.topic.as_str(), self.submitted_at));
            }
        }
    }

    /// The same, message by message.
    pub async fn messages(self) -> Vec<Published> {
        let mut published: Vec<Option<Published>> = vec![None; self.messages];
        for unit in self.units().await {
            place(&mut published, unit.partition, &unit.indexes, unit.result);
        }
        published.into_iter().flatten().collect()
    }
}

/// The span of a message that was stored just now.
pub fn published_span(
    seed: Seed,
    (partition_id, partition, offset): (PartitionId, u32, Offset),
    topic: &str,
    started_at: SystemTime,
) -> Span {
    Span {
        kind: SpanKind::Publish,
        trace_id: seed.trace_id,
        span_id: publish_span(seed.trace_id, partition_id, offset),
        parent_id: seed.parent_id,
        started_at,
        ended_at: spans::now(),
        topic: topic.to_owned(),
        partition,
        offset,
        group: None,
    }
}

impl SubmittedUnit {
    /// `gathered`: what the appender has answered of this unit and those behind it.
    async fn answered(self, gathered: &mut impl Iterator<Item = AppendResult>) -> PublishedUnit {
        let stopping = || AppendError::OutcomeUnknown { reason: "the broker is stopping".into() };
        let mut result = match self.answer {
            Answer::Gathered => gathered.next().unwrap_or_else(|| Err(stopping())),
            Answer::Alone(Ok(answer)) => answer.await.map_err(|_| stopping()).flatten(),
            Answer::Alone(Err(error)) => Err(error),
        };
        if let Err(AppendError::Time { index, .. }) = &mut result {
            *index = self.indexes.get(*index).copied().unwrap_or(*index); // of the unit, of the publish
        }
        PublishedUnit { partition: self.partition, indexes: self.indexes, result }
    }
}

/// The way in for whole publishes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Publisher {
    sealer: Sealer,
    topics: Topics,
    causes: Causes,
    capacity: Capacity,
    appender: AppenderHandle,
    schedules: SchedulesHandle,
    spans: Spans,
}

/// Whether messages are appended at once. What waits for its time is numbered apart by its producer, and a unit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timing {
    Now,
    Later,
}

/// The messages of one partition, with their places in the publish.
#[derive(Debug, Default)]
struct Share {
    indexes: Vec<usize>,
    messages: Vec<NewMessage>,
    /// Of messages that wait: when each of them is due.
    dues: Vec<Due>,
    first_sequence: Option<i64>,
}

impl Publisher {
    pub fn new(
        sealer: Sealer,
        topics: Topics,
        causes: Causes,
        capacity: Capacity,
        appender: AppenderHandle,
        schedules: SchedulesHandle,
        spans: Spans,
    ) -> Self {
        Self { sealer, topics, causes, capacity, appender, schedules, spans }
    }

    /// Publishes messages, each to the partition given or the one its key or transaction id decides.
    pub async fn publish(
        &self,
        topic: &TopicName,
        producer_id: Option<ProducerId>,
        drafts: Vec<Addressed>,
    ) -> Result<Vec<Published>, PublishError> {
        Ok(self.submit(topic, producer_id, drafts).await?.messages().await)
    }

    /// Hands the units of a publish to the appender, once its topic and its causes are known; only that may have to wait.
    /// Order: publishes whose `submit` returns one after the other are written in that order, partition by partition.
    pub async fn submit(
        &self,
        topic: &TopicName,
        producer_id: Option<ProducerId>,
        drafts: Vec<Addressed>,
    ) -> Result<Submitted, PublishError> {
        let prepared = self.prepare(topic, producer_id, drafts).await?;
        let room = self.capacity.admit(&prepared.topic, || prepared.load(), None).await;
        let room = room.map_err(|no_room| self.refused(no_room))?;
        Ok(self.hand_in(prepared, room))
    }

    /// Checks and routes messages that somebody else writes, once their topic is known.
    pub async fn route(
        &self,
        topic: &TopicName,
        mut drafts: Vec<Addressed>,
    ) -> Result<Vec<StepUnit>, PublishError> {
        let topic = self.topics.find(topic).await?;
        self.causes.settle(&mut drafts).await?;
        let unit = |((partition, _), share): ((u32, Timing), Share)| StepUnit {
            partition_id: topic.partitions[partition as usize],
            partition,
            topic_id: topic.topic_id,
            messages: share.messages,
            indexes: share.indexes,
            dues: share.dues,
            dedup_window: topic.settings.dedup_window,
        };
        let mut shares = share_out(&topic, None, drafts)?;
        self.seal(&topic, &mut shares).await?;
        Ok(shares.into_iter().map(unit).collect())
    }

    /// Hands in what waits for its time; what is appended at once goes together with the other units of its publish.
    fn submit_unit(
        &self,
        topic: &Topic,
        (partition, timing): (u32, Timing),
        producer_id: Option<ProducerId>,
        share: Share,
        appended: &mut Vec<Unit>,
    ) -> SubmittedUnit {
        let run = producer_id
            .zip(share.first_sequence)
            .map(|(producer_id, first)| ProducerRun { producer_id, first_sequence: Sequence(first) });
        let partition_id = topic.partitions[partition as usize];
        let seeds = match self.spans.is_on() {
            true => share.messages.iter().map(NewMessage::seed).collect(),
            false => Vec::new(),
        };
        let (topic_id, dedup_window) = (topic.topic_id, topic.settings.dedup_window);
        let Share { messages, dues, indexes, .. } = share;
        let answer = match timing {
            Timing::Now => {
                appended.push(Unit { partition_id, messages, run, dedup_window });
                Answer::Gathered
            }
            // It counts from when it is appended, and is let in then.
            Timing::Later => {
                let unit = ScheduleUnit { topic_id, partition_id, messages, dues, run, dedup_window };
                Answer::Alone(self.schedules.submit(unit))
            }
        };
        SubmittedUnit { partition_id, seeds, partition, indexes, answer }
    }
}

/// Checks and routes every message. Those without a home of their own stay together in one partition.
fn share_out(
    topic: &Topic,
    producer_id: Option<ProducerId>,
    drafts: Vec<Addressed>,
) -> Result<BTreeMap<(u32, Timing), Share>, PublishError> {
    let partitions = topic.partitions.len() as u32;
    let homeless = rand::rng().random_range(0..partitions);
    let mut shares: BTreeMap<(u32, Timing), Share> = BTreeMap::new();
    for (index, addressed) in drafts.into_iter().enumerate() {
        let Addressed { partition, sequence, cause: _, deliver_at, delay_ms, draft } = addressed;
        if let Some(partition) = partition.filter(|partition| *partition >= partitions) {
            let topic = topic.name.clone();
            return Err(PublishError::PartitionOutOfRange { index, topic, partition, partitions });
        }
        let message = draft
            .check(topic.settings.payload_bytes_max)
            .map_err(|rule| PublishError::Invalid { index, rule })?;
        let home = routing::route(partition, message.key(), message.transaction_id(), partitions);
        if producer_id.is_some() && home.is_none() {
            return Err(PublishError::Sequence { index, fault: SequenceFault::Homeless });
        }
        let due = due::due(deliver_at.as_deref(), delay_ms);
        let due = due.map_err(|fault| PublishError::Due { index, fault })?;
        let timing = due.map_or(Timing::Now, |_| Timing::Later);
        let share = shares.entry((home.unwrap_or(homeless), timing)).or_default();
        share.dues.extend(due);
        share.number(producer_id, sequence).map_err(|fault| PublishError::Sequence { index, fault })?;
        share.indexes.push(index);
        share.messages.push(message);
    }
    Ok(shares)
}

impl Share {
    /// Checks that the next message is numbered as the producer has promised.
    fn number(
        &mut self,
        producer_id: Option<ProducerId>,
        sequence: Option<i64>,
    ) -> Result<(), SequenceFault> {
        match (producer_id, sequence) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(SequenceFault::WithoutProducer),
            (Some(_), None) => Err(SequenceFault::Missing),
            (Some(_), Some(sequence)) if !(0..=SEQUENCE_MAX).contains(&sequence) => {
                Err(SequenceFault::OutOfRange)
            }
            (Some(_), Some(sequence)) => {
                let first = *self.first_sequence.get_or_insert(sequence);
                match first + self.messages.len() as i64 {
                    expected if expected != sequence => Err(SequenceFault::Gap { expected }),
                    _ => Ok(()),
                }
            }
        }
    }
}

fn place(published: &mut [Option<Published>], partition: u32, indexes: &[usize], result: AppendResult) {
    match result {
        Err(error) => {
            for index in indexes {
                published[*index] = Some(Published { partition, result: Err(error.clone()) });
            }
        }
        Ok(receipt) => {
            let offsets = receipt.offsets(indexes.len());
            for (place, index) in indexes.iter().enumerate() {
                let duplicate = receipt.duplicates.iter().any(|duplicate| duplicate.index == place);
                let schedule = receipt.scheduled.iter().find(|(index, _)| *index == place);
                let placed = match (duplicate, offsets[place], schedule) {
                    (false, _, Some((_, id))) => Placed::Scheduled(*id),
                    (true, _, Some((_, id))) => Placed::ScheduledBefore(*id),
                    (false, Some(offset), None) => Placed::New(offset),
                    (_, offset, None) => Placed::Duplicate(offset),
                };
                published[*index] = Some(Published { partition, result: Ok(placed) });
            }
        }
    }
}
