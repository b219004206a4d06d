//! Looks for segments that age, bytes or completion let go, takes those on their way out a step further, deletes groups that
//! nobody uses, and sweeps deleted topics.

use tokio_util::sync::CancellationToken;

use crate::limits::RETENTION_INTERVAL;
use crate::store::Store;

/// Runs until stopped. An error is logged and the next round tries again: every step can be found in the catalogue.
pub async fn run(store: Store, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(RETENTION_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let pass = stop.run_until_cancelled(store.retention_pass()).await;
        match pass {
            Some(Ok(0)) | None => {}
            Some(Ok(retired)) => tracing::info!(retired, "retention pass"),
            Some(Err(error)) => tracing::warn!(%error, "retention pass failed; the next one goes on"),
        }
        if let Some(Err(error)) = stop.run_until_cancelled(store.groups_expire()).await {
            tracing::warn!(%error, "groups that nobody uses stay for now");
        }
        if let Some(Err(error)) = stop.run_until_cancelled(store.retention_history_expire()).await {
            tracing::warn!(%error, "old history of retention stays for now");
        }
        if let Some(Err(error)) = stop.run_until_cancelled(store.topics_sweep()).await {
            tracing::warn!(%error, "sweep of deleted topics failed; the next round goes on");
        }
        if let Some(Err(error)) = stop.run_until_cancelled(store.data_keys_tidy()).await {
            tracing::warn!(%error, "data keys that nothing refers to stay for now");
        }
        if let Some(Err(error)) = stop.run_until_cancelled(store.steps_expire()).await {
            tracing::warn!(%error, "steps stay for now");
        }
        if let Some(Err(error)) = stop.run_until_cancelled(store.deduplication_expire()).await {
            tracing::warn!(%error, "expiry of deduplication failed; the next round goes on");
        }
    }
}
