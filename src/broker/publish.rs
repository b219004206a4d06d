//! Publishing: checks all messages, routes each to its partition, and hands the appender one unit per partition.
//!
//! Nothing is written unless every message keeps every rule. After that, units stand or fall one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use laneway_client::TopicName;
use laneway_client::routing;
use rand::Rng as _;
use tokio::sync::oneshot;

use super::appender::{AppendError, AppendResult, AppenderHandle, ProducerRun, Unit};
use super::causes::{CauseFault, Causes};
use super::message::{Draft, InvalidMessage, NewMessage};
use super::metrics::Metrics;
use super::steps::StepUnit;
use super::topics::{TopicError, Topics};
use crate::ids::{Offset, ProducerId, Sequence};
use crate::limits::SEQUENCE_MAX;
use crate::store::topics::Topic;

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
    #[error(transparent)]
    Topic(#[from] TopicError),
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
    pub draft: Draft,
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
    topics: Topics,
    topic: TopicName,
    messages: usize,
    units: Vec<SubmittedUnit>,
}

#[derive(Debug)]
struct SubmittedUnit {
    partition: u32,
    indexes: Vec<usize>,
    answer: Result<oneshot::Receiver<AppendResult>, AppendError>,
}

impl Submitted {
    /// Waits until every unit is written or refused; one result per partition.
    pub async fn units(self) -> Vec<PublishedUnit> {
        let units = join_all(self.units.into_iter().map(SubmittedUnit::answered)).await;
        for error in units.iter().filter_map(|unit| unit.result.as_ref().err()) {
            self.metrics.on_publish_failure(error.kind());
        }
        if units.iter().any(|unit| unit.result == Err(AppendError::UnknownPartition)) {
            self.topics.forget(&self.topic); // it was deleted since it was remembered, and may have been made again
        }
        units
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

impl SubmittedUnit {
    async fn answered(self) -> PublishedUnit {
        let stopping = |_| AppendError::OutcomeUnknown { reason: "the broker is stopping".into() };
        let result = match self.answer {
            Ok(answer) => answer.await.map_err(stopping).flatten(),
            Err(error) => Err(error),
        };
        PublishedUnit { partition: self.partition, indexes: self.indexes, result }
    }
}

/// The way in for whole publishes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Publisher {
    topics: Topics,
    causes: Causes,
    appender: AppenderHandle,
}

/// The messages of one partition, with their places in the publish.
#[derive(Default)]
struct Share {
    indexes: Vec<usize>,
    messages: Vec<NewMessage>,
    first_sequence: Option<i64>,
}

impl Publisher {
    pub fn new(topics: Topics, causes: Causes, appender: AppenderHandle) -> Self {
        Self { topics, causes, appender }
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
        mut drafts: Vec<Addressed>,
    ) -> Result<Submitted, PublishError> {
        if drafts.is_empty() {
            return Err(PublishError::Empty);
        }
        let messages = drafts.len();
        let name = topic;
        let topic = self.topics.find(name).await?;
        self.causes.settle(&mut drafts).await?;
        let shares = share_out(&topic, producer_id, drafts)?;
        let submit = |(partition, share)| self.submit_unit(&topic, partition, producer_id, share);
        let units = shares.into_iter().map(submit).collect();
        let metrics = self.appender.metrics().clone();
        Ok(Submitted { metrics, topics: self.topics.clone(), topic: name.clone(), messages, units })
    }

    /// Checks and routes messages that somebody else writes, once their topic is known.
    pub async fn route(
        &self,
        topic: &TopicName,
        mut drafts: Vec<Addressed>,
    ) -> Result<Vec<StepUnit>, PublishError> {
        let topic = self.topics.find(topic).await?;
        self.causes.settle(&mut drafts).await?;
        let unit = |(partition, share): (u32, Share)| StepUnit {
            partition_id: topic.partitions[partition as usize],
            partition,
            messages: share.messages,
            indexes: share.indexes,
            dedup_window: topic.settings.dedup_window,
        };
        Ok(share_out(&topic, None, drafts)?.into_iter().map(unit).collect())
    }

    fn submit_unit(
        &self,
        topic: &Topic,
        partition: u32,
        producer_id: Option<ProducerId>,
        share: Share,
    ) -> SubmittedUnit {
        let run = producer_id
            .zip(share.first_sequence)
            .map(|(producer_id, first)| ProducerRun { producer_id, first_sequence: Sequence(first) });
        let unit = Unit {
            partition_id: topic.partitions[partition as usize],
            messages: share.messages,
            run,
            dedup_window: topic.settings.dedup_window,
        };
        SubmittedUnit { partition, indexes: share.indexes, answer: self.appender.submit(unit) }
    }
}

/// Checks and routes every message. Those without a home of their own stay together in one partition.
fn share_out(
    topic: &Topic,
    producer_id: Option<ProducerId>,
    drafts: Vec<Addressed>,
) -> Result<BTreeMap<u32, Share>, PublishError> {
    let partitions = topic.partitions.len() as u32;
    let homeless = rand::rng().random_range(0..partitions);
    let mut shares: BTreeMap<u32, Share> = BTreeMap::new();
    for (index, Addressed { partition, sequence, cause: _, draft }) in drafts.into_iter().enumerate() {
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
        let share = shares.entry(home.unwrap_or(homeless)).or_default();
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
                let placed = match (duplicate, offsets[place]) {
                    (false, Some(offset)) => Placed::New(offset),
                    (_, offset) => Placed::Duplicate(offset),
                };
                published[*index] = Some(Published { partition, result: Ok(placed) });
            }
        }
    }
}
