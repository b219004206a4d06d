//! Tries again what the database asks to try again: lost races, never lost connections, never refusals.
//!
//! Only errors that promise that nothing happened are repeated; how long is up to the caller's policy.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};

use super::error::Error;

/// How often, and with which pauses. Jitter is always on: those who met once must not meet again.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    pub tries: usize,
    pub pause_min: Duration,
    pub pause_max: Duration,
}

impl Policy {
    /// For small transactions.
    pub const CONTENDED: Policy =
        Policy { tries: 8, pause_min: Duration::from_millis(2), pause_max: Duration::from_millis(200) };

    /// For schema changes that can wait for the next round.
    pub const DDL_LATER: Policy =
        Policy { tries: 5, pause_min: Duration::from_millis(10), pause_max: Duration::from_millis(100) };

    /// For schema changes, which wait for a moment without a flush.
    pub const DDL: Policy = Policy {
        tries: crate::limits::DDL_TRIES,
        pause_min: Duration::from_millis(5),
        pause_max: Duration::from_millis(500),
    };
}

/// Runs an operation until it neither loses a race nor a lock any more.
pub async fn contended<T, F, Fut>(policy: Policy, operation: F) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    let backoff = ExponentialBuilder::new()
        .with_jitter()
        .with_min_delay(policy.pause_min)
        .with_max_delay(policy.pause_max)
        .with_max_times(policy.tries.saturating_sub(1));
    operation.retry(backoff).when(|error| matches!(error, Error::Contended { .. })).await
}
