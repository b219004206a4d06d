//! Parked keys for operators: which there are, and how they are let go.
//!
//! Nothing here speaks with the holder of a lane: a key is released in its row, and whoever holds the lane delivers its copies.

use laneway_client::{GroupName, TopicName};

use super::Broker;
use super::reader::ReadError;
use super::topics::TopicError;
use crate::ids::ParkedId;
use crate::store::Error;
use crate::store::parked::{LetGo, ParkedKey};

/// Why nothing was done about a parked key.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParkedError {
    #[error("there is no parked key {id}")]
    Unknown { id: ParkedId },
    #[error("key {id} is released already: its messages are being delivered")]
    Released { id: ParkedId },
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Broker {
    /// Parked keys after an id, oldest first, of one topic or group or of all.
    pub async fn list_parked(
        &self,
        topic: Option<&TopicName>,
        group: Option<&GroupName>,
        after: ParkedId,
        limit: u32,
    ) -> Result<Vec<ParkedKey>, ParkedError> {
        let topic_id = match topic {
            Some(name) => Some(self.topics.find(name).await?.topic_id),
            None => None,
        };
        let group = group.map(GroupName::as_str);
        let mut keys = self.store.parked_keys_list(topic_id, group, after, limit).await?;
        for key in &mut keys {
            self.name_cause(key).await?;
        }
        Ok(keys)
    }

    /// One parked key, with the message that it failed at, which has to open.
    pub async fn find_parked(&self, id: ParkedId) -> Result<ParkedKey, ParkedError> {
        let mut key = self.look_at_parked(id).await?;
        match key.first.as_mut().and_then(|first| first.unopened.take()) {
            Some(error) => Err(error.into()),
            None => Ok(key),
        }
    }

    async fn look_at_parked(&self, id: ParkedId) -> Result<ParkedKey, ParkedError> {
        let mut key = self.store.parked_keys_find(id).await?.ok_or(ParkedError::Unknown { id })?;
        self.name_cause(&mut key).await?;
        Ok(key)
    }

    /// Lets a parked key go: everything is delivered again, or everything but the message that it failed at, which is dropped for
    /// good. Also if that one does not open here: to drop it is what helps then.
    pub async fn release_parked(&self, id: ParkedId, how: LetGo) -> Result<ParkedKey, ParkedError> {
        let before = self.look_at_parked(id).await?;
        if !self.store.parked_keys_release(id, how).await? {
            return Err(match before.released || self.store.parked_keys_find(id).await?.is_some() {
                true => ParkedError::Released { id },
                false => ParkedError::Unknown { id },
            });
        }
        tracing::info!(parked = %id, group.name = before.group, ?how, "parked key released");
        Ok(before)
    }

    async fn name_cause(&self, key: &mut ParkedKey) -> Result<(), ParkedError> {
        if let Some(first) = &mut key.first {
            self.reader.name_causes(std::slice::from_mut(&mut first.message)).await?;
        }
        Ok(())
    }
}
