//! Tables ahead of need for partitions whose messages come from schedules alone: made when something is written down for them, and
//! when a fire has reached the last one. Beside both: a table that is missing all the same is found by the fire.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::appender::coverage::{self, Coverage};
use crate::ids::{Offset, PartitionId};
use crate::limits::SCHEDULES_PER_FIRE_MAX;
use crate::store::Store;

/// What is known about a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The answer is on its way.
    Asked,
    /// The last table begins there.
    AheadFrom(Offset),
}

/// What is known about tables. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tables {
    store: Store,
    partitions: Arc<Mutex<HashMap<PartitionId, Known>>>,
}

impl Tables {
    pub(super) fn new(store: Store) -> Self {
        Self { store, partitions: Arc::default() }
    }

    /// Something waits for a partition: it has tables when it is due.
    pub(super) fn on_scheduled(&self, partition_id: PartitionId) {
        if !self.partitions.lock().contains_key(&partition_id) {
            self.ask(partition_id);
        }
    }

    /// A partition has grown up to this end; if its last table has begun, the next one is made.
    pub fn on_fired(&self, partition_id: PartitionId, next: Offset) {
        let known = self.partitions.lock().get(&partition_id).copied();
        match known {
            Some(Known::Asked) => {}
            Some(Known::AheadFrom(from)) if next < from => {}
            Some(Known::AheadFrom(_)) | None => self.ask(partition_id),
        }
    }

    fn ask(&self, partition_id: PartitionId) {
        self.partitions.lock().insert(partition_id, Known::Asked);
        let tables = self.clone();
        tokio::spawn(async move {
            let answer = coverage::extend(&tables.store, partition_id, SCHEDULES_PER_FIRE_MAX as usize).await;
            let mut partitions = tables.partitions.lock();
            match answer {
                Ok(Some(Coverage::Known { ahead_from, .. })) => {
                    partitions.insert(partition_id, Known::AheadFrom(ahead_from));
                }
                Ok(Some(Coverage::Unknown | Coverage::Asked) | None) | Err(_) => {
                    partitions.remove(&partition_id); // asked again when it matters
                }
            }
        });
    }
}
