//! The broker's own lease: its id, and until when it may trust that nobody has buried it.
//!
//! Renewed by the heartbeat task; read by whoever is about to deliver. Memory may stop us sooner than the table, never let
//! us go on longer: `trusted_until` counts from before the heartbeat was sent, and ends a margin before the row expires. A
//! lease of another era, on a timeline that is lost, is none.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

use super::clock::DatabaseClock;
use crate::ids::BrokerId;
use crate::store::timeline::{Era, Timelines};

/// What the broker knows about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Not registered yet, or buried and not registered again.
    None,
    /// Registered under this id.
    Held { broker_id: BrokerId, trusted_until: Instant, others: usize, era: Era },
}

impl Standing {
    /// The id to act under.
    pub fn broker_id(&self) -> Option<BrokerId> {
        match self {
            Standing::None => None,
            Standing::Held { broker_id, .. } => Some(*broker_id),
        }
    }

    /// Whether deliveries may go out at a moment, in an era of the database.
    pub fn is_trusted(&self, now: Instant, this_era: Era) -> bool {
        match self {
            Standing::None => false,
            Standing::Held { trusted_until, era, .. } => now < *trusted_until && *era == this_era,
        }
    }
}

/// Where the lease can be looked at. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Lease {
    standing: watch::Receiver<Standing>,
    timelines: Timelines,
    clock: DatabaseClock,
}

/// Where it is written: the heartbeat alone.
#[derive(Debug)]
pub struct LeaseKeeper {
    standing: watch::Sender<Standing>,
    clock: DatabaseClock,
}

/// A lease that nobody has yet.
pub fn lease(timelines: Timelines) -> (LeaseKeeper, Lease) {
    let (sender, standing) = watch::channel(Standing::None);
    let clock = DatabaseClock::new(timelines.clone());
    (LeaseKeeper { standing: sender, clock: clock.clone() }, Lease { standing, timelines, clock })
}

impl LeaseKeeper {
    /// A heartbeat that began at `started`, in an era, has prolonged the lease by `ttl`.
    pub fn renewed(&self, broker_id: BrokerId, (started, era): (Instant, Era), ttl: Duration, others: usize) {
        let trusted_until = started + ttl.mul_f64(TRUSTED_SHARE);
        self.standing.send_replace(Standing::Held { broker_id, trusted_until, others, era });
    }

    /// A heartbeat has just heard what time it is.
    pub fn heard_time(&self, at: Timestamp, era: Era) {
        self.clock.on_read(at, Instant::now(), era);
    }

    /// The broker was buried.
    pub fn lost(&self) {
        self.standing.send_replace(Standing::None);
    }
}

/// The rest of the ttl is the margin: for a write that was checked just before it, and for clocks that run unevenly.
const TRUSTED_SHARE: f64 = 0.8;

impl Lease {
    pub fn standing(&self) -> Standing {
        *self.standing.borrow()
    }

    /// The database clock, as the heartbeats have read it.
    pub fn clock(&self) -> &DatabaseClock {
        &self.clock
    }

    /// Whether deliveries may go out now.
    pub fn is_trusted(&self) -> bool {
        self.standing.borrow().is_trusted(Instant::now(), self.timelines.era())
    }

    /// The id under which the broker lives now.
    pub fn broker_id(&self) -> Option<BrokerId> {
        self.standing.borrow().broker_id()
    }

    /// Whether another broker lives, as far as the last heartbeat saw.
    pub fn has_others(&self) -> bool {
        match *self.standing.borrow() {
            Standing::None => true,
            Standing::Held { others, .. } => others > 0,
        }
    }

    /// Waits for the next heartbeat or loss. Cancel safety: safe.
    pub async fn changed(&mut self) {
        if self.standing.changed().await.is_err() {
            std::future::pending::<()>().await; // the heartbeat ends only with the broker
        }
    }

    /// Waits until the broker is registered.
    pub async fn held(&mut self) -> BrokerId {
        loop {
            if let Some(broker_id) = self.standing.borrow_and_update().broker_id() {
                return broker_id;
            }
            self.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_ends_before_the_row_expires_and_comes_back_with_a_renewal() {
        let timelines = Timelines::default();
        let (era, (keeper, lease)) = (timelines.era(), lease(timelines.clone()));
        assert!(!lease.is_trusted());
        let (broker_id, ttl) = (BrokerId(uuid::Uuid::new_v4()), Duration::from_secs(10));
        let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(9)) else { return };
        keeper.renewed(broker_id, (long_ago, era), ttl, 0);
        assert!(!lease.is_trusted(), "the row lives for another second, but we do not rely on it");
        assert_eq!(lease.broker_id(), Some(broker_id));
        keeper.renewed(broker_id, (Instant::now(), era), ttl, 0);
        assert!(lease.is_trusted());
        timelines.distrust();
        assert!(!lease.is_trusted(), "it was renewed on a timeline that is lost");
        keeper.renewed(broker_id, (Instant::now(), timelines.era()), ttl, 0);
        assert!(lease.is_trusted());
        keeper.lost();
        assert!(!lease.is_trusted());
    }
}
