//! The clock that all processes of this machine share, and the window that is counted.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Nanoseconds of the wall clock.
pub type Nanos = u64;

#[allow(clippy::disallowed_methods)] // Why: a message is timed in another process than it was sent from.
pub fn now_ns() -> Nanos {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as Nanos
}

/// How long it is until a moment; nothing once it has passed.
pub fn until(moment: Nanos) -> Duration {
    Duration::from_nanos(moment.saturating_sub(now_ns()))
}

/// When a measurement begins, and the half-open time in it that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub start_ns: Nanos,
    pub from_ns: Nanos,
    pub to_ns: Nanos,
}

impl Window {
    /// One that begins now.
    pub fn opening(warm_up: Duration, length: Duration) -> Self {
        let start_ns = now_ns();
        let from_ns = start_ns + warm_up.as_nanos() as Nanos;
        Self { start_ns, from_ns, to_ns: from_ns + length.as_nanos() as Nanos }
    }

    pub fn contains(self, moment: Nanos) -> bool {
        self.from_ns <= moment && moment < self.to_ns
    }

    pub fn seconds(self) -> f64 {
        (self.to_ns - self.from_ns) as f64 / 1e9
    }
}
