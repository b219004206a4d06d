//! What was measured, as JSON for programs; `table` makes it readable for people.

use std::path::Path;

use serde::Serialize;

use crate::cli::Setup;
use crate::error::Error;
use crate::figures::Figures;
use crate::measure::Sample;
use crate::server::version;
use crate::system::{Peer, System};
use crate::work::Work;

/// `compare`.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub environment: Environment,
    pub rounds: u32,
    pub seconds: u32,
    /// Messages per second that were offered where latency was measured.
    pub offered: u32,
    pub results: Vec<Row>,
    pub failures: Vec<FailedRound>,
}

/// A system that could not be measured in a round.
#[derive(Debug, Serialize)]
pub struct FailedRound {
    pub work: Work,
    pub system: System,
    pub round: u32,
    pub error: String,
}

/// `sweep`.
#[derive(Debug, Serialize)]
pub struct Curves {
    pub environment: Environment,
    pub seconds: u32,
    pub points: Vec<Point>,
    pub failures: Vec<Failure>,
}

/// One system at one offered rate.
#[derive(Debug, Serialize)]
pub struct Point {
    pub system: System,
    pub offered: u32,
    #[serde(flatten)]
    pub sample: Sample,
}

/// A system that could not be measured at an offered rate.
#[derive(Debug, Serialize)]
pub struct Failure {
    pub system: System,
    pub offered: u32,
    pub error: String,
}

/// The machine and the programs that the figures belong to.
#[derive(Debug, Serialize)]
pub struct Environment {
    pub cores: usize,
    pub programs: Vec<Program>,
}

#[derive(Debug, Serialize)]
pub struct Program {
    pub system: System,
    pub version: String,
    pub durability: &'static str,
}

impl Environment {
    /// Asks every program for its version: one that is missing is told before anything is measured.
    pub async fn of(setup: &Setup) -> Result<Self, Error> {
        let mut programs = Vec::new();
        for system in setup.systems.iter().copied() {
            let program = match system.peer() {
                None => setup.laneway.as_deref().ok_or(Error::LanewayMissing)?,
                Some(Peer::Redis(_)) => &setup.programs.redis_server,
                Some(Peer::Nats(..)) => &setup.programs.nats_server,
            };
            let version = version(program).await?;
            programs.push(Program { system, version, durability: system.durability() });
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { cores, programs })
    }
}

/// One work on one system.
#[derive(Debug, Serialize)]
pub struct Row {
    pub work: Work,
    pub system: System,
    pub rate: Figures,
    pub p50_us: Option<Figures>,
    pub p99_us: Option<Figures>,
    pub p999_us: Option<Figures>,
    /// Of all rounds.
    pub missing: u64,
    /// Laneway's rate to this one's; where latency is measured, Laneway's p99 to this one's.
    pub laneway: Option<Figures>,
}

impl Row {
    /// `None`: it was not measured. `laneway` has the samples of the same rounds; a round in which one of the two failed has no ratio.
    pub fn of(
        work: Work,
        system: System,
        samples: &[Option<Sample>],
        laneway: &[Option<Sample>],
    ) -> Option<Self> {
        let all = |value: fn(&Sample) -> Option<f64>| {
            Figures::of(samples.iter().flatten().filter_map(value).collect())
        };
        let compared: fn(&Sample) -> Option<f64> = match work {
            Work::Latency => |sample| sample.p99_us,
            Work::Publish | Work::E2e | Work::Fanout | Work::Singles => |sample| Some(sample.rate),
        };
        let pairs = laneway.iter().zip(samples).filter_map(|(ours, theirs)| {
            Some((ours.as_ref().and_then(compared)?, theirs.as_ref().and_then(compared)?))
        });
        let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let ratio = Figures::ratio(&ours, &theirs);
        Some(Self {
            work,
            system,
            rate: all(|sample| Some(sample.rate))?,
            p50_us: all(|sample| sample.p50_us),
            p99_us: all(|sample| sample.p99_us),
            p999_us: all(|sample| sample.p999_us),
            missing: samples.iter().flatten().map(|sample| sample.missing).sum(),
            laneway: ratio.filter(|_| system != System::Laneway),
        })
    }
}

pub fn write(path: &Path, report: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::from);
    let written = text.and_then(|text| std::fs::write(path, text + "\n"));
    written.map_err(|source| Error::Write { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, p99_us: Option<f64>) -> Sample {
        Sample { rate, p50_us: None, p99_us, p999_us: None, missing: 1 }
    }

    #[test]
    fn laneway_is_compared_by_rate_and_where_it_matters_by_latency() {
        let (ours, theirs) = ([Some(sample(50.0, Some(300.0)))], [Some(sample(100.0, Some(100.0)))]);
        let row = |work| Row::of(work, System::NatsAlways, &theirs, &ours).unwrap();
        assert_eq!(row(Work::E2e).laneway.unwrap().median, 0.5);
        assert_eq!(row(Work::Latency).laneway.unwrap().median, 3.0);
        assert_eq!(row(Work::Latency).missing, 1);
        assert!(
            Row::of(Work::E2e, System::Laneway, &ours, &ours).unwrap().laneway.is_none(),
            "not to itself"
        );
        assert!(Row::of(Work::E2e, System::NatsAlways, &[], &ours).is_none());
    }

    #[test]
    fn a_round_that_failed_shifts_no_other() {
        let rates = |rates: [Option<f64>; 3]| rates.map(|rate| rate.map(|rate| sample(rate, None)));
        let ours = rates([Some(10.0), None, Some(90.0)]);
        let theirs = rates([None, Some(20.0), Some(30.0)]);
        let row = Row::of(Work::E2e, System::NatsAlways, &theirs, &ours).unwrap();
        assert_eq!((row.laneway.unwrap().rounds, row.rate.rounds), (vec![3.0], vec![20.0, 30.0]));
    }

    #[test]
    fn a_point_is_one_flat_object_for_the_plot() {
        let point = Point { system: System::RedisAlways, offered: 1_000, sample: sample(999.5, Some(812.0)) };
        let value = serde_json::to_value(&point).unwrap();
        assert_eq!(value["system"], "redis-always");
        assert_eq!((value["offered"].as_u64(), value["rate"].as_f64()), (Some(1_000), Some(999.5)));
        assert_eq!((value["p99_us"].as_f64(), value["p50_us"].is_null()), (Some(812.0), true));
    }
}
