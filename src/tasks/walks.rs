//! Drops what is too old of when messages were delivered and done, of what has failed, and of what producers have sent, if this broker
//! is the eldest that lives.
//!
//! It walks the tables, some pages per pass, and begins anew at their end. Why not by an index over time: it would cost every flush,
//! and pages that are used again mix the times of a block index until it finds nothing (`docs/adr/0006-delivery-times.md`).

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::broker::lease::Lease;
use crate::limits::{RETENTION_INTERVAL, WALK_PAGES_MAX, WALK_PAGES_PER_PASS_MIN, WALK_PASSES};
use crate::store::times::{Expired, Record};
use crate::store::{Error, Store};

/// Where a walk through a table has come to.
#[derive(Debug)]
struct Walk {
    record: Record,
    next_page: i64,
}

/// Runs until stopped. An error is logged and the next round goes on where this one was.
pub async fn run(store: Store, lease: Lease, retention: Duration, stop: CancellationToken) {
    let records = [Record::LaneTimes(retention), Record::Failures(retention), Record::ProducerRuns];
    let mut walks = records.map(|record| Walk { record, next_page: 0 });
    let mut ticks = tokio::time::interval(RETENTION_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match stop.run_until_cancelled(pass(&store, &lease, &mut walks)).await {
            Some(Ok(0)) | None => {}
            Some(Ok(rows)) => tracing::debug!(rows, "old times, failures and runs dropped"),
            Some(Err(error)) => tracing::warn!(%error, "old times, failures and runs stay for now"),
        }
    }
}

async fn pass(store: &Store, lease: &Lease, walks: &mut [Walk]) -> Result<u64, Error> {
    let own = lease.broker_id();
    if own.is_none() || store.brokers_eldest().await? != own {
        return Ok(0);
    }
    let mut rows = 0;
    for walk in walks {
        rows += walk.pass(store).await?;
    }
    Ok(rows)
}

impl Walk {
    /// Some pages further. Returns how many rows are gone.
    async fn pass(&mut self, store: &Store) -> Result<u64, Error> {
        let (mut gone, mut walked) = (0, 0);
        loop {
            let Expired { rows, pages } = store.records_expire(self.record, self.next_page).await?;
            gone += rows;
            walked += WALK_PAGES_MAX;
            self.next_page += WALK_PAGES_MAX;
            if self.next_page >= pages {
                self.next_page = 0;
                return Ok(gone);
            }
            if walked >= share_of(pages) {
                return Ok(gone);
            }
        }
    }
}

/// How many pages one pass looks through.
fn share_of(pages: i64) -> i64 {
    (pages / WALK_PASSES).max(WALK_PAGES_PER_PASS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_any_size_is_walked_in_an_hour() {
        for pages in [0, 1, 1_000, 1_000_000, 100_000_000] {
            let passes = pages / share_of(pages) + 1;
            assert!(passes <= WALK_PASSES + 1, "{pages} pages take {passes} passes");
        }
    }
}
