//! Sealing what is published to encrypted topics, on its way in: before it counts for anything, and before anybody may write it.
//!
//! Topics that are not encrypted pass with one comparison. What is sealed here is written as it is, however often its flush is tried.
//! The open payload stays with it for the hot tail.

use std::collections::BTreeMap;

use super::{PublishError, Publisher, Share, Timing};
use crate::broker::lease::Lease;
use crate::broker::topics::TopicError;
use crate::ids::BrokerId;
use crate::limits::DATA_KEY_PATIENCE;
use crate::store::topics::Topic;
use crate::store::vault::Sealing;
use crate::store::{Error, Store};

/// What is needed to seal: the keys, and the life under which data keys are made.
#[derive(Debug, Clone)]
pub struct Sealer {
    pub store: Store,
    pub lease: Lease,
}

impl Sealer {
    /// A broker that has just started is registered in a moment.
    async fn broker_id(&self) -> Result<BrokerId, Error> {
        let mut lease = self.lease.clone();
        let held = tokio::time::timeout(DATA_KEY_PATIENCE, lease.held());
        held.await.map_err(|_| Error::Unavailable { reason: "the broker is not registered".into() })
    }
}

impl Publisher {
    /// Seals every payload, if the topic is encrypted; if one cannot be sealed, nothing of the publish is written.
    pub(super) async fn seal(
        &self,
        topic: &Topic,
        shares: &mut BTreeMap<(u32, Timing), Share>,
    ) -> Result<(), PublishError> {
        if topic.settings.encryption.is_none() {
            return Ok(());
        }
        let store = &self.sealer.store;
        let broker_id = self.sealer.broker_id().await.map_err(TopicError::Store)?;
        for ((partition, _), share) in shares {
            let partition_id = topic.partitions[*partition as usize];
            let key = store.writing_key(partition_id, broker_id, share.messages.len()).await;
            let gone = || TopicError::Unknown { name: topic.name.clone() };
            let key = key.map_err(TopicError::Store)?.ok_or_else(gone)?;
            for message in &mut share.messages {
                let sealing = Sealing {
                    trace_id: message.trace_id,
                    key: message.key.as_deref(),
                    payload: &message.payload,
                };
                message.sealed = Some(store.vault().seal(&key, sealing).map_err(TopicError::Store)?);
            }
        }
        Ok(())
    }
}
