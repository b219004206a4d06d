//! Publishing: checks all messages, routes each to its partition, and hands the appender one unit per partition.
//!
//! Nothing is written unless every message keeps every rule. After that, units stand or fall one by one.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use laneway_client::TopicName;
use laneway_client::routing;
use rand::Rng as _;

use super::appender::{AppendError, AppendResult, AppenderHandle, Unit};
use super::message::{Draft, InvalidMessage, NewMessage};
use super::topics::{TopicError, Topics};
use crate::ids::Offset;
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
    #[error(transparent)]
    Topic(#[from] TopicError),
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

/// The way in for whole publishes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Publisher {
    topics: Topics,
    appender: AppenderHandle,
}

/// The messages of one partition, with their places in the publish.
#[derive(Default)]
struct Share {
    indexes: Vec<usize>,
    messages: Vec<NewMessage>,
}

impl Publisher {
    pub fn new(topics: Topics, appender: AppenderHandle) -> Self {
        Self { topics, appender }
    }

    /// Publishes messages, each to the partition given or the one its key or transaction id decides.
    pub async fn publish(
        &self,
        topic: &TopicName,
        drafts: Vec<(Option<u32>, Draft)>,
    ) -> Result<Vec<Published>, PublishError> {
        if drafts.is_empty() {
            return Err(PublishError::Empty);
        }
        let messages = drafts.len();
        let topic = self.topics.find(topic).await?;
        let shares = share_out(&topic, drafts)?;
        let submitted: Vec<_> =
            shares.into_iter().map(|(partition, share)| self.submit(&topic, partition, share)).collect();
        let mut published: Vec<Option<Published>> = vec![None; messages];
        for (partition, indexes, result) in join_all(submitted).await {
            place(&mut published, partition, &indexes, result);
        }
        Ok(published.into_iter().flatten().collect())
    }

    /// Submits at once, in order; the future is only the answer.
    fn submit(
        &self,
        topic: &Topic,
        partition: u32,
        share: Share,
    ) -> impl Future<Output = (u32, Vec<usize>, AppendResult)> + use<> {
        let unit = Unit {
            partition_id: topic.partitions[partition as usize],
            messages: share.messages,
            run: None,
            dedup_window: topic.settings.dedup_window,
        };
        let submitted = self.appender.submit(unit);
        async move {
            let stopping = |_| AppendError::OutcomeUnknown { reason: "the broker is stopping".into() };
            let result = match submitted {
                Ok(answer) => answer.await.map_err(stopping).flatten(),
                Err(error) => Err(error),
            };
            (partition, share.indexes, result)
        }
    }
}

/// Checks and routes every message. Those without a home of their own stay together in one partition.
fn share_out(topic: &Topic, drafts: Vec<(Option<u32>, Draft)>) -> Result<BTreeMap<u32, Share>, PublishError> {
    let partitions = topic.partitions.len() as u32;
    let homeless = rand::rng().random_range(0..partitions);
    let mut shares: BTreeMap<u32, Share> = BTreeMap::new();
    for (index, (explicit, draft)) in drafts.into_iter().enumerate() {
        if let Some(partition) = explicit.filter(|partition| *partition >= partitions) {
            let topic = topic.name.clone();
            return Err(PublishError::PartitionOutOfRange { index, topic, partition, partitions });
        }
        let message = draft
            .check(topic.settings.payload_bytes_max)
            .map_err(|rule| PublishError::Invalid { index, rule })?;
        let home = routing::route(explicit, message.key(), message.transaction_id(), partitions);
        let share = shares.entry(home.unwrap_or(homeless)).or_default();
        share.indexes.push(index);
        share.messages.push(message);
    }
    Ok(shares)
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
