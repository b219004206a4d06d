//! Dead letters for operators: which there are, and what becomes of them.
//!
//! A replay goes beside the appender, because taking the dead letter out and publishing it must be one transaction. It asks
//! for tables first, as the appender does.

use std::time::Duration;

use laneway_client::{GroupName, TopicName};

use super::Broker;
use super::capacity::gauge::Load;
use super::publish::PublishError;
use super::topics::TopicError;
use crate::ids::{BrokerId, DeadLetterId, PartitionId};
use crate::limits::{READ_BYTES_MAX, REPLAY_TRIES_MAX};
use crate::store::Error;
use crate::store::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterPage, Replay, Replayed};
use crate::store::listen::Hint;
use crate::store::segments::Extended;

/// Pause while another broker makes the same tables.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// A hint of no broker in particular: none takes it for its own and leaves it aside.
const NOBODY: BrokerId = BrokerId(uuid::Uuid::nil());

/// Why nothing was done about a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeadLetterError {
    #[error("there is no dead letter {id}")]
    Unknown { id: DeadLetterId },
    #[error("the topic of dead letter {id} is paused: it takes messages again once it is resumed")]
    TopicPaused { id: DeadLetterId },
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Broker {
    /// Dead letters after an id, oldest first, of one topic or group or of all.
    pub async fn list_dead_letters(
        &self,
        topic: Option<&TopicName>,
        group: Option<&GroupName>,
        after: DeadLetterId,
        limit: u32,
    ) -> Result<DeadLetterPage, DeadLetterError> {
        let topic_id = match topic {
            Some(name) => Some(self.topics.find(name).await?.topic_id),
            None => None,
        };
        let group = group.map(GroupName::as_str);
        let filter = DeadLetterFilter { topic_id, group, after, limit, bytes: READ_BYTES_MAX };
        let mut page = self.store.dead_letters_list(filter).await?;
        for dead_letter in &mut page.dead_letters {
            self.reader.name_causes(std::slice::from_mut(&mut dead_letter.message)).await?;
        }
        Ok(page)
    }

    /// One dead letter.
    pub async fn find_dead_letter(&self, id: DeadLetterId) -> Result<DeadLetter, DeadLetterError> {
        let found = self.store.dead_letters_find(id).await?;
        let mut dead_letter = found.ok_or(DeadLetterError::Unknown { id })?;
        self.reader.name_causes(std::slice::from_mut(&mut dead_letter.message)).await?;
        Ok(dead_letter)
    }

    /// Drops a dead letter for good.
    pub async fn delete_dead_letter(&self, id: DeadLetterId) -> Result<(), DeadLetterError> {
        match self.store.dead_letters_delete(id).await? {
            0 => Err(DeadLetterError::Unknown { id }),
            _ => {
                tracing::info!(dead_letter = %id, "dead letter dropped");
                Ok(())
            }
        }
    }

    /// Publishes a dead letter to its partition again, as it was; it is no dead letter any more from then on.
    pub async fn replay_dead_letter(&self, id: DeadLetterId) -> Result<Replayed, DeadLetterError> {
        let unknown = DeadLetterError::Unknown { id };
        let DeadLetter { partition_id, message, .. } = self.find_dead_letter(id).await?;
        let load = Load { messages: 1, bytes: message.bytes() };
        let _room = self.publisher.admit_to(partition_id, load).await?;
        for _ in 0..REPLAY_TRIES_MAX {
            match self.store.tables_extend(partition_id, 1).await? {
                Extended::Covered { .. } => {}
                Extended::Gone => return Err(unknown), // its topic was deleted
                Extended::Busy => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                    continue;
                }
            }
            match self.store.dead_letters_replay(id).await {
                Ok(Some(Replay::Paused)) => return Err(DeadLetterError::TopicPaused { id }),
                Ok(Some(Replay::Done(replayed))) => {
                    tracing::info!(dead_letter = %id, partition = %partition_id, offset = %replayed.offset, "replayed");
                    self.tell_replayed(partition_id).await;
                    return Ok(replayed);
                }
                Ok(None) => return Err(unknown),
                Err(Error::NoSegment { .. }) => {} // publishes have filled the tables meanwhile
                Err(error) => return Err(error.into()),
            }
        }
        let reason = format!("tables for partition {partition_id} could not be made in time");
        Err(Error::Unavailable { reason }.into())
    }

    /// Tells every broker, this one too: it has not seen the message among its own flushes.
    async fn tell_replayed(&self, partition_id: PartitionId) {
        let hint = Hint::Heads { broker_id: NOBODY, partitions: vec![partition_id] };
        if let Err(error) = self.store.hint(&hint).await {
            tracing::debug!(%error, "those who follow will notice by themselves");
        }
    }
}
