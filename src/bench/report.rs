//! What a measurement has found: figures of all rounds, and bars that are met or not.

use serde::Serialize;

use super::BenchError;
use super::rows::Witness;
use super::tally::{Latencies, Tally};
use crate::store::{DatabaseSettings, Store};

/// Several figures of one thing.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub rounds: Vec<f64>,
}

impl Figures {
    /// `None`: nothing was measured.
    pub fn of(rounds: Vec<f64>) -> Option<Self> {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max, middle) = (*sorted.first()?, *sorted.last()?, sorted.len() / 2);
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Some(Self { median, min, max, rounds })
    }
}

/// How this binary was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Build {
    Debug,
    Release,
}

impl Build {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
        }
    }
}

impl Environment {
    fn is_durable(&self) -> bool {
        self.fsync == "on" && matches!(self.synchronous_commit.as_str(), "on" | "remote_apply")
    }

    /// Why the figures are not what the bars are meant for, if so.
    fn reservation(&self) -> Option<&'static str> {
        match self.build {
            Build::Debug => Some("a debug build: these figures say nothing"),
            Build::Release if !self.is_durable() => {
                Some("commits are not durable here: the bars are meant for fsync and synchronous_commit on")
            }
            Build::Release if self.rounds < ROUNDS_MIN || self.seconds < SECONDS_MIN => {
                Some("shorter than the bars are meant for: at least 3 rounds of 8 s")
            }
            Build::Release => None,
        }
    }
}

/// What the bars are meant for, at least.
const ROUNDS_MIN: u32 = 3;
const SECONDS_MIN: u32 = 8;

/// The machine and the database that the figures belong to.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    pub cpu: Option<String>,
    pub cores: usize,
    pub memory_mb: Option<u64>,
    pub kernel: Option<String>,
    pub postgres: String,
    /// As the server says.
    pub fsync: String,
    pub synchronous_commit: String,
    pub laneway: &'static str,
    /// A build for debugging tells nothing of how fast it is.
    pub build: Build,
    /// What else the machine was doing when it began: its load average over a minute.
    pub load: Option<f64>,
    pub rounds: u32,
    pub seconds: u32,
}

impl Environment {
    pub async fn of(url: &str, schedule: super::Schedule) -> Result<Self, BenchError> {
        let store = Store::new(DatabaseSettings::new(url))?;
        store.wait_until_reachable().await?;
        let (_, postgres) = store.connection().await?.server_version().await?;
        let (fsync, synchronous_commit) = Witness::open(url).await?.durability().await?;
        Ok(Self {
            cpu: proc_line("cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mb: memory_mb(),
            kernel: proc_text("sys/kernel/osrelease").map(|release| release.trim().to_owned()),
            postgres,
            fsync,
            synchronous_commit,
            laneway: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { Build::Debug } else { Build::Release },
            load: proc_text("loadavg").and_then(|text| text.split_whitespace().next()?.parse().ok()),
            rounds: schedule.rounds,
            seconds: schedule.seconds,
        })
    }
}

fn memory_mb() -> Option<u64> {
    let line = proc_line("meminfo", "MemTotal")?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes >> 10)
}

/// What a file of the kernel says of something.
fn proc_line(file: &str, name: &str) -> Option<String> {
    let text = proc_text(file)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(of, _)| of.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn proc_text(file: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{file}")).ok()
}

/// On which side of its bar a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bar) => figure >= bar,
            Self::AtMost(bar) => figure <= bar,
        }
    }
}

/// A figure and its bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub what: &'static str,
    pub figure: f64,
    pub unit: &'static str,
    pub bar: Bar,
    pub met: bool,
}

impl Verdict {
    pub fn new(what: &'static str, figure: f64, unit: &'static str, bar: Bar) -> Self {
        Self { what, figure, unit, bar, met: bar.is_met(figure) }
    }
}

/// What was found. What makes no sense for a measurement is absent.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub bench: &'static str,
    /// What it is measured against, in the same run.
    pub against: &'static str,
    /// Median of that.
    pub limit: Option<f64>,
    /// Median of the measurement.
    pub rate: Option<f64>,
    /// Median of the ratios of each round, not the ratio of the medians: the two of a round ran side by side in time.
    pub ratio: Option<f64>,
    /// What the times are of.
    pub latency_of: Option<&'static str>,
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    pub p999_us: Option<u64>,
    /// Messages that were due and had not come when nobody waited any longer; among the times, as late as they were waited for.
    pub missing: Option<u64>,
    pub commits_per_message: Option<f64>,
    /// Most memory that the broker had, the largest where there are several.
    pub rss_mb: Option<f64>,
    pub verdicts: Vec<Verdict>,
    /// What one has to know of how it was measured.
    pub notes: Vec<String>,
    pub limits: Option<Figures>,
    pub rates: Option<Figures>,
    pub ratios: Option<Figures>,
    pub environment: Environment,
}

/// Collects the rounds of one measurement.
#[derive(Debug)]
pub struct Findings {
    pub bench: &'static str,
    pub against: &'static str,
    pub latency_of: Option<&'static str>,
    pub limits: Vec<f64>,
    pub rates: Vec<f64>,
    pub latencies: Latencies,
    /// Where messages are paced.
    pub missing: Option<u64>,
    /// Commits and messages, in the same windows.
    pub commits: Option<(i64, u64)>,
    pub rss_mb: Option<f64>,
    pub verdicts: Vec<Verdict>,
    pub notes: Vec<String>,
}

impl Findings {
    pub fn new(bench: &'static str, against: &'static str) -> Self {
        Self {
            bench,
            against,
            latency_of: None,
            limits: Vec::new(),
            rates: Vec::new(),
            latencies: Latencies::new(),
            missing: None,
            commits: None,
            rss_mb: None,
            verdicts: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn saw_rss(&mut self, mb: f64) {
        self.rss_mb = Some(self.rss_mb.map_or(mb, |most| most.max(mb)));
    }

    /// Times of messages that were due.
    pub fn saw_delivered(&mut self, delivered: &Tally) {
        self.latencies.add(&delivered.latencies);
        self.missing = Some(self.missing.unwrap_or(0) + delivered.missing);
    }

    pub fn saw_commits(&mut self, commits: i64, messages: u64) {
        let (all, of) = self.commits.unwrap_or_default();
        self.commits = Some((all + commits, of + messages));
    }

    pub fn commits_per_message(&self) -> Option<f64> {
        self.commits
            .filter(|(_, messages)| *messages > 0)
            .map(|(commits, messages)| commits as f64 / messages as f64)
    }

    pub fn ratios(&self) -> Option<Figures> {
        Figures::of(self.rates.iter().zip(&self.limits).map(|(rate, limit)| rate / limit).collect())
    }

    /// Holds a figure to its bar, if it was measured.
    pub fn judge(&mut self, what: &'static str, figure: Option<f64>, unit: &'static str, bar: Bar) {
        self.verdicts.extend(figure.map(|figure| Verdict::new(what, figure, unit, bar)));
    }

    pub fn report(mut self, environment: Environment) -> Report {
        self.notes.extend(environment.reservation().map(str::to_owned));
        let (ratios, commits_per_message) = (self.ratios(), self.commits_per_message());
        let (limits, rates) = (Figures::of(self.limits), Figures::of(self.rates));
        let median = |figures: &Option<Figures>| figures.as_ref().map(|figures| figures.median);
        Report {
            bench: self.bench,
            against: self.against,
            limit: median(&limits),
            rate: median(&rates),
            ratio: median(&ratios),
            latency_of: self.latency_of.filter(|_| self.latencies.at(0.5).is_some()),
            p50_us: self.latencies.at(0.5),
            p99_us: self.latencies.at(0.99),
            p999_us: self.latencies.at(0.999),
            missing: self.missing,
            commits_per_message,
            rss_mb: self.rss_mb,
            verdicts: self.verdicts,
            notes: self.notes,
            limits,
            rates,
            ratios,
            environment,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_what_was_measured() {
        let median = |rounds: &[f64]| Figures::of(rounds.to_vec()).map(|figures| figures.median);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_ratio_is_of_its_round_and_a_bar_has_a_side() {
        let mut findings = Findings::new("publish", "limit");
        findings.limits = vec![100.0, 200.0, 400.0];
        findings.rates = vec![50.0, 150.0, 100.0];
        assert_eq!(findings.ratios().map(|ratios| ratios.median), Some(0.5));
        findings.saw_commits(1, 100);
        findings.saw_commits(2, 200);
        assert_eq!(findings.commits_per_message(), Some(0.01));
        assert!(Bar::AtLeast(0.5).is_met(0.5) && !Bar::AtMost(0.4).is_met(0.5));
    }
}
