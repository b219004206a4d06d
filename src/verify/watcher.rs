//! Looks at the tables all the time: who holds which lane since when, whatever consumers see of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::history::{Event, LaneId, Recorder};
use super::settings::{GROUPS, TOPIC};
use crate::store::Store;

/// Between two looks: how exact the times of takeovers are.
const LOOK_PAUSE: Duration = Duration::from_millis(25);

/// Watches until stopped. While the database is away there is nothing to see.
pub(super) async fn watch(store: Store, recorder: Arc<Recorder>, stop: CancellationToken) {
    let mut epochs: HashMap<LaneId, i64> = HashMap::new();
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_PAUSE)).await.is_some() {
        let looked = tokio::try_join!(store.witness_holders(TOPIC), store.witness_unmanned(TOPIC));
        let Ok((holders, unmanned)) = looked else { continue };
        for group in unmanned.iter().filter_map(|group| GROUPS.iter().position(|name| name == group)) {
            recorder.note(Event::Unmanned { group });
        }
        for (group, partition, epoch) in holders {
            let Some(group) = GROUPS.iter().position(|name| *name == group) else { continue };
            let lane = LaneId { group, partition };
            if epochs.insert(lane, epoch) != Some(epoch) {
                recorder.note(Event::Held { lane, epoch });
            }
        }
    }
}
