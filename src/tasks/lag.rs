//! Looks how far groups are behind, for `/metrics`, if this broker is the eldest that lives.
//!
//! Bounds: so many lanes per look, page by page, and after a look a pause that is many times as long as it took. So the
//! database spends at most a small share of one connection on it, whatever the number of lanes.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::broker::lag::{Lag, Report};
use crate::broker::lease::Lease;
use crate::limits::{LAG_INTERVAL, LAG_LOOK_LANES_MAX, LAG_PAUSE_FACTOR, LANES_PAGE_MAX};
use crate::store::overview::{LaneFilter, LaneKey, LaneOverview};
use crate::store::{Error, Store};

/// Runs until stopped. What cannot be looked at is not told: an old number would look like a new one.
pub async fn run(store: Store, lease: Lease, lag: Lag, stop: CancellationToken) {
    loop {
        let started = Instant::now();
        let Some(looked) = stop.run_until_cancelled(look(&store, &lease)).await else { return };
        let report = looked.unwrap_or_else(|error| {
            tracing::warn!(%error, "the lag of groups could not be looked at; the next round goes on");
            None
        });
        lag.set(report);
        let pause = pause_after(started.elapsed());
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

fn pause_after(took: Duration) -> Duration {
    LAG_INTERVAL.max(took * LAG_PAUSE_FACTOR)
}

async fn look(store: &Store, lease: &Lease) -> Result<Option<Report>, Error> {
    let own = lease.broker_id();
    if own.is_none() || store.brokers_eldest().await? != own {
        return Ok(None);
    }
    let (mut lanes, mut page): (Vec<LaneOverview>, usize) = (Vec::new(), LANES_PAGE_MAX as usize);
    while page == LANES_PAGE_MAX as usize && lanes.len() < LAG_LOOK_LANES_MAX {
        let after = lanes.last().map_or(LaneKey::FIRST, key);
        let filter = LaneFilter { topic_id: None, group: None, after, limit: LANES_PAGE_MAX };
        let found = store.lanes_describe(filter).await?;
        page = found.len();
        lanes.extend(found);
    }
    let unseen = match page == LANES_PAGE_MAX as usize {
        true => (store.lanes_count().await? as usize).saturating_sub(lanes.len()),
        false => 0,
    };
    let (parked, scheduled) = (store.parked_keys_sum().await?, store.schedules_sum().await?);
    Ok(Some(Report::new(lanes, unseen).with_parked(parked).with_scheduled(scheduled)))
}

fn key(lane: &LaneOverview) -> LaneKey<'_> {
    LaneKey { topic: &lane.topic, group: &lane.group, partition: lane.partition as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_takes_a_small_share_of_the_time_however_long_it_is() {
        assert_eq!(pause_after(Duration::from_millis(10)), LAG_INTERVAL);
        assert_eq!(pause_after(Duration::from_secs(2)), Duration::from_secs(2) * LAG_PAUSE_FACTOR);
    }
}
