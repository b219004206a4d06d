//! One measurement: one work on one system, from an empty server to a figure.

use std::time::Duration;

use serde::Serialize;

use crate::cli::Setup;
use crate::crew;
use crate::error::Error;
use crate::laneway;
use crate::server::Server;
use crate::system::{Peer, System};
use crate::work::Load;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Messages, or deliveries, per second.
    pub rate: f64,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
    /// Messages that were due in the window and had not come when nobody waited any longer.
    pub missing: u64,
}

/// Measures one window.
pub async fn measure(system: System, load: Load, seconds: u32, setup: &Setup) -> Result<Sample, Error> {
    match system.peer() {
        None => laneway::measure(setup.laneway.as_deref(), load, seconds).await,
        Some(peer) => measure_peer(setup.asked(peer), load, seconds, setup).await,
    }
}

async fn measure_peer(peer: Peer, load: Load, seconds: u32, setup: &Setup) -> Result<Sample, Error> {
    let server = Server::start(peer, load.work, &setup.programs).await?;
    let length = Duration::from_secs(u64::from(seconds));
    let (tally, window) = crew::work(peer, server.address, load, length).await?;
    let [p50_us, p99_us, p999_us] = match tally.percentiles([0.5, 0.99, 0.999]) {
        Some(times) => times.map(Some),
        None => [None; 3],
    };
    let rate = tally.messages as f64 / window.seconds();
    Ok(Sample { rate, p50_us, p99_us, p999_us, missing: tally.missing })
}
