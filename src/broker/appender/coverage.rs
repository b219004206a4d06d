//! Tables ahead of need: asks the store for segments beside the flushes and reports what exists.
//!
//! One short-lived task per question; the appender keeps flushing other partitions meanwhile. The store's upkeep
//! connections bound how many run at once.

use std::time::Duration;

use super::queue::{Coverage, Growth};
use super::task::{Event, Events};
use crate::ids::PartitionId;
use crate::store::segments::Extended;
use crate::store::{Error, Store};

/// Pause while another broker makes the same tables.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// After this many looks the other broker is taken to be stuck.
const BUSY_LOOKS_MAX: usize = 500;

/// Asks for tables for some messages; the answer comes as an event.
pub(super) fn ask(store: Store, events: Events, partition_id: PartitionId, messages: usize) {
    tokio::spawn(async move {
        let answer = extend(&store, partition_id, messages).await;
        events.send(Event::Covered { partition_id, answer }).await;
    });
}

async fn extend(
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
