//! Alternating rounds, medians and spread, and the report of a measurement.

use std::time::Duration;

use serde::Serialize;

use super::database::Database;
use super::{BenchError, Schedule, append, limit};
use crate::broker::{Broker, BrokerSettings};
use crate::limits::SHUTDOWN_TIMEOUT;
use crate::store::{DatabaseSettings, Store};

/// Before the first round: connections, tables, plans, caches.
const WARM_UP: Duration = Duration::from_secs(2);

/// What is told about each step, for a progress display.
pub trait Progress {
    fn step(&mut self, name: &str, done: u32, of: u32);
}

/// Several figures of one thing.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub rounds: Vec<f64>,
}

impl Figures {
    fn of(rounds: Vec<f64>) -> Self {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Self { median, min: sorted[0], max: sorted[sorted.len() - 1], rounds }
    }
}

/// The machine and the database that the figures belong to.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    pub cores: usize,
    pub postgres: String,
    pub laneway: &'static str,
}

/// `bench limit`.
#[derive(Debug, Clone, Serialize)]
pub struct LimitReport {
    pub limit: f64,
    pub limits: Figures,
    pub environment: Environment,
}

/// `bench append`.
#[derive(Debug, Clone, Serialize)]
pub struct AppendReport {
    pub limit: f64,
    pub rate: f64,
    /// Median of the ratios of each round, not the ratio of the medians: the two of a round ran side by side in time.
    pub ratio: f64,
    pub limits: Figures,
    pub rates: Figures,
    pub ratios: Figures,
    pub environment: Environment,
}

/// Measures the raw insert alone.
pub async fn limit_only(
    database: &Database,
    schedule: Schedule,
    progress: &mut impl Progress,
) -> Result<LimitReport, BenchError> {
    let url = database.url();
    let environment = environment(&url).await?;
    limit::measure(&url, WARM_UP).await?;
    let mut rounds = Vec::new();
    for round in 0..schedule.rounds {
        progress.step("limit", round, schedule.rounds);
        rounds.push(limit::measure(&url, schedule.window()).await?);
    }
    let limits = Figures::of(rounds);
    Ok(LimitReport { limit: limits.median, limits, environment })
}

/// Measures the raw insert and the appender in turn.
pub async fn append(
    database: &Database,
    schedule: Schedule,
    progress: &mut impl Progress,
) -> Result<AppendReport, BenchError> {
    let url = database.url();
    let environment = environment(&url).await?;
    let store = Store::new(DatabaseSettings::new(&url))?;
    store.wait_until_reachable().await?;
    store.migrate().await?;
    let (broker, running) = Broker::start(store, BrokerSettings::default());
    limit::measure(&url, WARM_UP).await?;
    append::measure(&broker, WARM_UP).await?;
    let (mut limits, mut rates) = (Vec::new(), Vec::new());
    for round in 0..schedule.rounds {
        progress.step("limit", round * 2, schedule.rounds * 2);
        limits.push(limit::measure(&url, schedule.window()).await?);
        progress.step("append", round * 2 + 1, schedule.rounds * 2);
        rates.push(append::measure(&broker, schedule.window()).await?);
    }
    drop(broker);
    running.stop(SHUTDOWN_TIMEOUT).await;
    let ratios = Figures::of(rates.iter().zip(&limits).map(|(rate, limit)| rate / limit).collect());
    let (limits, rates) = (Figures::of(limits), Figures::of(rates));
    Ok(AppendReport {
        limit: limits.median,
        rate: rates.median,
        ratio: ratios.median,
        limits,
        rates,
        ratios,
        environment,
    })
}

async fn environment(url: &str) -> Result<Environment, BenchError> {
    let store = Store::new(DatabaseSettings::new(url))?;
    store.wait_until_reachable().await?;
    let (_, postgres) = store.connection().await?.server_version().await?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Environment { cores, postgres, laneway: env!("CARGO_PKG_VERSION") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_what_was_measured() {
        assert_eq!(Figures::of(vec![3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(Figures::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Figures::of(vec![7.0]).max, 7.0);
    }
}
