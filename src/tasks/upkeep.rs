//! Upkeep of what flushes leave behind: full segments are sealed and frozen, heads thinned, the trace index merged.
//!
//! Why beside the publish path: each of these would cost a flush milliseconds. Publishes work without them for long.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ids::PartitionId;
use crate::limits::UPKEEP_INTERVAL;
use crate::store::{Connection, Error, Role, Store};

/// Rounds between two looks for full segments: they wait without harm.
const SEAL_EVERY: u32 = 5;
/// Partitions that one statement thins: together they have some 30,000 heads.
const THINNED_AT_ONCE: usize = 64;

struct Upkeep {
    store: Store,
    /// Vacuum and merges take seconds at times; they must not hold up table-making on the shared connections.
    connection: Option<Connection>,
    to_thin: HashSet<PartitionId>,
    /// Up to when the heads of a partition are thin.
    thinned: HashMap<PartitionId, Timestamp>,
    round: u32,
}

/// Runs until stopped.
pub async fn run(store: Store, mut to_thin: mpsc::Receiver<PartitionId>, stop: CancellationToken) {
    let mut upkeep =
        Upkeep { store, connection: None, to_thin: HashSet::new(), thinned: HashMap::new(), round: 0 };
    let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        while let Ok(partition_id) = to_thin.try_recv() {
            upkeep.to_thin.insert(partition_id);
        }
        if let Some(Err(error)) = stop.run_until_cancelled(upkeep.round()).await {
            tracing::warn!(%error, "upkeep failed; the next round goes on");
            upkeep.connection = None;
        }
    }
}

impl Upkeep {
    async fn round(&mut self) -> Result<(), Error> {
        self.thin().await?;
        if self.round.is_multiple_of(SEAL_EVERY) {
            for partition_id in self.store.segments_full().await? {
                let sealed = self.store.segments_seal(partition_id).await?;
                tracing::debug!(partition = %partition_id, sealed = sealed.len(), "segments sealed");
            }
        }
        self.round = self.round.wrapping_add(1);
        let mut connection = match self.connection.take().filter(Connection::is_usable) {
            Some(connection) => connection,
            None => self.store.dedicated(Role::Upkeep).await?,
        };
        connection.trace_cuts_extend().await?;
        connection.trace_cuts_tidy().await?;
        connection.trace_cuts_shrink().await?;
        connection.segments_freeze().await?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Thins what is wanted, some partitions with each statement: those that are written to together want it together.
    async fn thin(&mut self) -> Result<(), Error> {
        let since = |id: &PartitionId| self.thinned.get(id).copied().unwrap_or(Timestamp::UNIX_EPOCH);
        let wanted: Vec<(PartitionId, Timestamp)> =
            self.to_thin.drain().map(|partition_id| (partition_id, since(&partition_id))).collect();
        for some in wanted.chunks(THINNED_AT_ONCE) {
            self.thinned.extend(self.store.heads_thin(some).await?);
        }
        Ok(())
    }
}
