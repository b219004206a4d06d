//! What a subscription begins with: where a new group starts, how its batches look, and its terms as they are stored.

use std::time::Duration;

use futures_util::future::try_join_all;
use laneway_client::wire::{BatchOptions, CreditGrant, Start};
use serde::{Deserialize, Serialize};

use super::{BatchLimits, SubscribeError, Subscription};
use crate::broker::reader::Reader;
use crate::ids::{Offset, PartitionId};
use crate::limits::{
    BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX, BATCH_MESSAGES_DEFAULT, BATCH_MESSAGES_MAX, BATCH_WAIT_MAX,
};
use crate::store::groups::FirstOffset;
use crate::store::topics::Topic;

/// What a broker that a session resumes on has to know of its subscription. Stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub number: u32,
    pub credit: CreditGrant,
    pub batch: BatchOptions,
    /// The number of the selection that it came by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<u32>,
}

/// The terms of a subscription as JSON.
pub fn terms(subscription: &Subscription) -> String {
    let Subscription { number, credit, batch, .. } = *subscription;
    let selection = subscription.selected.as_ref().map(|selected| selected.selection);
    serde_json::to_string(&Terms { number, credit, batch, selection }).expect("numbers are always JSON")
}

/// Checks what batches are to look like; what is left out gets its default.
pub fn batch_limits(options: &BatchOptions) -> Result<BatchLimits, SubscribeError> {
    let wrong = |field, rule| Err(SubscribeError::Batch { field, rule });
    let max_messages = options.max_messages.unwrap_or(BATCH_MESSAGES_DEFAULT);
    if !(1..=BATCH_MESSAGES_MAX).contains(&max_messages) {
        return wrong("max_messages", "between 1 and 10000");
    }
    let max_bytes = options.max_bytes.unwrap_or(BATCH_BYTES_DEFAULT);
    if !(1..=BATCH_BYTES_MAX).contains(&max_bytes) {
        return wrong("max_bytes", "between 1 and 16777216");
    }
    let min_messages = options.min_messages.unwrap_or(1);
    if !(1..=max_messages).contains(&min_messages) {
        return wrong("min_messages", "between 1 and max_messages");
    }
    let max_wait = Duration::from_millis(u64::from(options.max_wait_ms.unwrap_or(0)));
    if max_wait > BATCH_WAIT_MAX || (min_messages > 1 && max_wait.is_zero()) {
        return wrong("max_wait_ms", "between 1 and 60000 if min_messages is given");
    }
    Ok(BatchLimits {
        max_messages: max_messages as usize,
        max_bytes,
        min_messages: min_messages as usize,
        max_wait,
    })
}

/// Whether a start can be one, before anything is made.
pub fn check(start: Option<&Start>) -> Result<(), SubscribeError> {
    match start {
        Some(Start::At(text)) => moment(text).map(|_| ()),
        Some(Start::Earliest | Start::Latest | Start::Offset(_)) | None => Ok(()),
    }
}

fn moment(text: &str) -> Result<jiff::Timestamp, SubscribeError> {
    text.parse().map_err(|error: jiff::Error| SubscribeError::Start {
        reason: format!("{text:?} is not a time like 2026-01-31T12:00:00Z: {error}"),
    })
}

/// Where a group that is made now begins in each partition. Earliest, if the subscriber does not say.
pub async fn first_offsets(
    reader: &Reader,
    topic: &Topic,
    start: Option<&Start>,
) -> Result<Vec<FirstOffset>, SubscribeError> {
    let all = |offset: Option<Offset>| {
        topic.partitions.iter().map(|partition_id| (*partition_id, offset)).collect()
    };
    match start {
        None | Some(Start::Earliest) => Ok(all(Some(Offset::ZERO))),
        Some(Start::Latest) => Ok(all(None)),
        Some(Start::Offset(offset)) if *offset >= 0 => Ok(all(Some(Offset(*offset)))),
        Some(Start::Offset(offset)) => {
            Err(SubscribeError::Start { reason: format!("an offset must not be negative, as {offset} is") })
        }
        Some(Start::At(text)) => {
            let at = moment(text)?;
            let find = |partition_id: PartitionId| async move {
                reader.offset_at(partition_id, at).await.map(|offset| (partition_id, offset))
            };
            Ok(try_join_all(topic.partitions.iter().map(|partition_id| find(*partition_id))).await?)
        }
    }
}
