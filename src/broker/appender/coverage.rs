//! Tables ahead of need: asks the store for segments beside the flushes and reports what exists.
//!
//! One short-lived task per question; the appender keeps flushing other partitions meanwhile. The store's upkeep
//! connections bound how many run at once.

use std::time::Duration;

use super::task::{Event, Events};
use crate::ids::{Offset, PartitionId};
use crate::store::segments::Extended;
use crate::store::{Error, Store};

/// Pause while another broker makes the same tables.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// After this many looks the other broker is taken to be stuck.
const BUSY_LOOKS_MAX: usize = 500;

/// What is known about the tables of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::broker) enum Coverage {
    /// Nobody has asked yet, or what we knew proved wrong.
    Unknown,
    /// Asked; units wait for the answer.
    Asked,
    /// Tables exist for `[next, end)`; the last segment begins at `ahead_from`.
    Known { next: Offset, ahead_from: Offset, end: Offset, growth: Growth },
}

/// Whether the next segment is being made beside the flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::broker) enum Growth {
    Idle,
    UnderWay,
}

/// Asks for tables for some messages; the answer comes as an event.
pub(super) fn ask(store: Store, events: Events, partition_id: PartitionId, messages: usize) {
    tokio::spawn(async move {
        let answer = extend(&store, partition_id, messages).await;
        events.send(Event::Covered { partition_id, answer }).await;
    });
}

/// Makes tables for some messages more; `None`: the partition is gone.
pub(in crate::broker) async fn extend(
    store: &Store,
    partition_id: PartitionId,
    messages: usize,
) -> Result<Option<Coverage>, Error> {
    for _ in 0..BUSY_LOOKS_MAX {
        let extended = store.tables_extend(partition_id, messages).await?;
        match extended {
            Extended::Covered { next_offset, ahead_from, end_offset } => {
                let (next, end) = (next_offset, end_offset);
                return Ok(Some(Coverage::Known { next, ahead_from, end, growth: Growth::Idle }));
            }
            Extended::Gone => return Ok(None),
            Extended::Busy => tokio::time::sleep(BUSY_PAUSE).await,
        }
    }
    Err(Error::Unavailable { reason: "another broker has been making the tables for too long".into() })
}
