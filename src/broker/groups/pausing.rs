//! Groups that an operator has paused, and what of them is in flight.
//!
//! A paused group sends nothing. Its lanes stay with their holders, what is in flight may be acknowledged, and its deadlines go
//! on. Postgres decides: each look reads it anew, so that a hint that was lost only makes it later.

use std::collections::HashMap;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::task::GroupTask;
use super::{GroupHandle, Groups, Request};
use crate::ids::{GroupId, PartitionId};
use crate::store::management::Running;

impl GroupTask {
    /// The group or its topic may have been paused or resumed.
    pub(super) fn on_running(&mut self, running: Running) {
        if self.running == running {
            return;
        }
        tracing::info!(
            group.name = self.name,
            topic.name = self.topic.name,
            ?running,
            "group paused or resumed"
        );
        self.running = running;
        let (paused, lanes) = (self.surroundings.metrics.lanes_in("paused"), self.lanes.len() as i64);
        match running {
            Running::Paused => drop(paused.inc_by(lanes)),
            Running::Resumed => {
                paused.dec_by(lanes);
                self.pump_all();
            }
        }
    }

    /// How many messages each lane has in flight.
    pub(super) fn on_count(&self, reply: oneshot::Sender<HashMap<PartitionId, u64>>) {
        let count = |(partition_id, held): (&PartitionId, &super::held::Held)| {
            (*partition_id, held.lane.in_flight() as u64)
        };
        let _nobody_waits = reply.send(self.lanes.iter().map(count).collect());
    }
}

impl GroupHandle {
    async fn count(&self) -> HashMap<PartitionId, u64> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Count { reply }).await;
        answer.await.unwrap_or_default() // it has ended, and holds nothing
    }
}

impl Groups {
    /// What is in flight, of the lanes that sessions of this broker hold.
    pub async fn in_flight(&self, groups: &[GroupId]) -> HashMap<(GroupId, PartitionId), u64> {
        let handles: Vec<GroupHandle> = {
            let running = self.running.lock();
            groups.iter().filter_map(|group_id| running.get(group_id).cloned()).collect()
        };
        let counts = handles.iter().map(|handle| async { (handle.group_id, handle.count().await) });
        let counts = join_all(counts).await;
        let counts = counts.into_iter().flat_map(|(group_id, lanes)| {
            lanes.into_iter().map(move |(partition_id, count)| ((group_id, partition_id), count))
        });
        counts.collect()
    }
}
