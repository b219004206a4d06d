//! Drops what is too old of when messages were delivered and done, and of what has failed, if this broker is the eldest that lives.
//!
//! It walks the tables, some pages per pass, and begins anew at their end. Why not by an index over time: it would cost every commit,
//! and pages that are used again mix the times of a block index until it finds nothing (`docs/adr/0006-delivery-times.md`).

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::broker::lease::Lease;
use crate::limits::{RETENTION_INTERVAL, TIMES_PAGES_MAX, TIMES_PAGES_PER_PASS_MIN, TIMES_PASSES_PER_WALK};
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
    let mut walks = [Record::LaneTimes, Record::Failures].map(|record| Walk { record, next_page: 0 });
    let mut ticks = tokio::time::interval(RETENTION_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match stop.run_until_cancelled(pass(&store, &lease, retention, &mut walks)).await {
            Some(Ok(0)) | None => {}
            Some(Ok(rows)) => tracing::debug!(rows, "delivery times dropped"),
            Some(Err(error)) => tracing::warn!(%error, "delivery times stay for now"),
        }
    }
}

async fn pass(store: &Store, lease: &Lease, retention: Duration, walks: &mut [Walk]) -> Result<u64, Error> {
    let own = lease.broker_id();
    if own.is_none() || store.brokers_eldest().await? != own {
        return Ok(0);
    }
    let mut rows = 0;
    for walk in walks {
        rows += walk.pass(store, retention).await?;
    }
    Ok(rows)
}

impl Walk {
    /// Some pages further. Returns how many rows are gone.
    async fn pass(&mut self, store: &Store, retention: Duration) -> Result<u64, Error> {
        let (mut gone, mut walked) = (0, 0);
        loop {
            let Expired { rows, pages } = store.times_expire(self.record, self.next_page, retention).await?;
            gone += rows;
            walked += TIMES_PAGES_MAX;
            self.next_page += TIMES_PAGES_MAX;
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
    (pages / TIMES_PASSES_PER_WALK).max(TIMES_PAGES_PER_PASS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_any_size_is_walked_in_an_hour() {
        for pages in [0, 1, 1_000, 1_000_000, 100_000_000] {
            let passes = pages / share_of(pages) + 1;
            assert!(passes <= TIMES_PASSES_PER_WALK + 1, "{pages} pages take {passes} passes");
        }
    }
}
