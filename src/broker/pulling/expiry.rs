//! Pops whose time is over: whoever notices frees the lane and charges the message that was alone in it.
//!
//! Nothing depends on who that is: a pop of the group at any broker, or a broker whose sessions share the group.

use rand::Rng as _;

use super::rules::{self, Blame, Poison, Refused};
use crate::broker::groups::backoff;
use crate::broker::groups::verdict::Verdict;
use crate::broker::keys::unopened;
use crate::broker::metrics::Metrics;
use crate::broker::reader::{ReadError, Reader};
use crate::ids::{GroupId, Offset, PartitionId};
use crate::store::groups::GroupSettings;
use crate::store::messages::ReadLimit;
use crate::store::pops::PopKey;
use crate::store::{Error, Store};

/// What is written down of a pop that nobody has acknowledged in time.
const REASON: &str = "the pop was not acknowledged in time";

/// Frees what pullers of a group had for longer than they might.
pub async fn expire(
    store: &Store,
    reader: &Reader,
    metrics: &Metrics,
    group_id: GroupId,
    settings: &GroupSettings,
) -> Result<(), Error> {
    for key in store.pops_expired(group_id).await? {
        match expire_one(store, reader, metrics, &key, settings).await {
            // Its lane stays as it is: a broker that can open the message frees it. The others do not wait for that.
            Err(error) if unopened(&error).is_some() => {
                tracing::warn!(partition = %key.partition_id, epoch = %key.epoch, %error, "a pop that is over stays");
            }
            expired => expired?,
        }
    }
    Ok(())
}

async fn expire_one(
    store: &Store,
    reader: &Reader,
    metrics: &Metrics,
    key: &PopKey,
    settings: &GroupSettings,
) -> Result<(), Error> {
    let blame = |attempts| Blame {
        reason: REASON.to_owned(),
        delay: backoff::delay(settings, attempts, rand::rng().random()),
    };
    let mut poison = Poison::NotRead;
    loop {
        let settled = store.pops_settle(key, |lane| rules::expire(lane, settings, &poison, blame)).await?;
        match settled {
            Some(Ok(verdict)) => {
                metrics.pops_expired.inc();
                metrics.deadlines_missed.inc();
                tracing::info!(partition = %key.partition_id, epoch = %key.epoch, ?verdict, "a pop has expired");
                verdict.into_iter().for_each(|verdict| count(metrics, verdict));
                return Ok(());
            }
            Some(Err(Refused::NeedsMessage { offset })) => {
                poison = read_poison(reader, key.partition_id, offset).await?;
            }
            // Somebody was faster, or it was extended.
            Some(Err(
                Refused::LeaseLost
                | Refused::BeyondSent { .. }
                | Refused::AlreadyDone { .. }
                | Refused::TooManyGaps,
            ))
            | None => return Ok(()),
        }
    }
}

/// A message that is kept aside.
pub(super) async fn read_poison(
    reader: &Reader,
    partition_id: PartitionId,
    offset: Offset,
) -> Result<Poison, Error> {
    let limit = ReadLimit { messages: 1, bytes: 1 };
    match reader.read(partition_id, offset, limit).await {
        Ok(messages) => {
            let found = messages.into_iter().find(|message| message.offset == offset);
            Ok(Poison::Read(found.map(Box::new)))
        }
        Err(ReadError::OutOfRange { .. } | ReadError::UnknownPartition) => Ok(Poison::Read(None)),
        Err(ReadError::Store(error)) => Err(error),
    }
}

/// What has become of a message that has failed.
pub(super) fn count(metrics: &Metrics, verdict: Verdict) {
    match verdict {
        Verdict::Retry => {
            metrics.retries.inc();
        }
        Verdict::Block | Verdict::Park => {}
        Verdict::DeadLetter => metrics.on_given_up("dead_letter"),
        Verdict::Skip => metrics.on_given_up("skip"),
    }
}
