//! Waiting for an event, with a deadline that only a failure reaches.

use std::time::{Duration, Instant};

/// Long enough for a busy machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks again and again until the answer is yes.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    until_within(PATIENCE, what, &mut condition).await;
}

/// As [`until`], with a deadline of its own.
pub async fn until_within(patience: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < patience, "waited {patience:?} in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
