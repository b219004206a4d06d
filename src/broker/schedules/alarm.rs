//! Tells the task that fires what is due that something was scheduled or moved here. Shared by whoever does either.
//!
//! Only the earliest time is kept: the task looks for itself.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A bell with the earliest time that was told since it was last heard. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Alarm(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    earliest: Mutex<Option<Timestamp>>,
    notify: Notify,
}

impl Alarm {
    /// Something is committed that is due at this time, on the database clock.
    pub fn ring(&self, due_at: Timestamp) {
        let mut earliest = self.0.earliest.lock();
        *earliest = Some(earliest.map_or(due_at, |earliest| earliest.min(due_at)));
        drop(earliest);
        self.0.notify.notify_one();
    }

    /// Waits for the bell. Cancel safety: safe; a ring that nobody heard is kept.
    pub async fn rung(&self) {
        self.0.notify.notified().await;
    }

    /// The earliest time that was told, once.
    pub fn take(&self) -> Option<Timestamp> {
        self.0.earliest.lock().take()
    }
}
