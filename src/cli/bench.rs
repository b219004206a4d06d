//! `laneway bench`: measures this machine.

use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::access::print_table;
use super::signals::Signals;
use super::{Failure, print_json};
use crate::bench::database::Database;
use crate::bench::measures::{Course, delivery, publishing, raw, retention, room, singles};
use crate::bench::report::{Bar as Threshold, Environment, Figures, Report, Verdict};
use crate::bench::{BenchError, Progress, Schedule, worker};
use crate::cli::output::println;

#[derive(Debug, Args)]
pub(super) struct Bench {
    /// A database to measure; absent: a private PostgreSQL in a temporary directory, removed afterwards
    #[arg(long, global = true, value_name = "URL", alias = "database-url")]
    url: Option<String>,
    /// Rounds; each measures everything once, in turn
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each measurement in a round
    #[arg(long, global = true, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// One JSON document on standard output
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
#[command(
    after_help = "Examples:\n  laneway bench e2e\n  laneway bench all --json > bench.json\n  laneway bench limit --rounds 5\n\n\
    Producers, broker, PostgreSQL and consumers are processes of their own on this machine, with everything at its defaults.\n\
    Figures are ratios to what the same run measured in between; absolute numbers do not travel."
)]
enum What {
    /// The raw insert: two connections, 500 rows a statement, one plain table each
    #[command(after_help = "Example:\n  laneway bench limit --rounds 5 --json")]
    Limit,
    /// The same messages through the appender, in process, against the raw insert
    #[command(after_help = "Example:\n  laneway bench append --url postgresql://laneway@db.internal/scratch")]
    Append,
    /// Publishes at full rate: 2 producers, frames of 100 messages, up to 32 in flight
    #[command(after_help = "Example:\n  laneway bench publish --rounds 5")]
    Publish,
    /// Published, delivered to one group of two consumers, ack committed
    #[command(after_help = "Example:\n  laneway bench e2e --json")]
    E2e,
    /// The same with ten groups: deliveries whose acks are committed
    #[command(after_help = "Example:\n  laneway bench fanout")]
    Fanout,
    /// 64 producers, one message at a time, each waiting for its answer
    #[command(after_help = "Example:\n  laneway bench singles")]
    Singles,
    /// Publish to delivery at an offered rate of single messages
    #[command(after_help = "Example:\n  laneway bench latency --rate 10000 --json")]
    Latency {
        /// Messages per second that are offered
        #[arg(long, default_value_t = singles::RATE_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        rate: u32,
    },
    /// A new group a million messages behind
    #[command(after_help = "Example:\n  laneway bench catchup")]
    Catchup {
        /// Messages that it is behind
        #[arg(long, default_value_t = delivery::BACKLOG_DEFAULT, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
        messages: u64,
    },
    /// Sessions that do nothing: memory, processor, commits
    #[command(after_help = "Example:\n  laneway bench idle --sessions 10000 --rest 60")]
    Idle {
        /// Sessions, in 100 groups of one topic
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=15_000))]
        sessions: u32,
        /// Seconds to rest before memory is looked at
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
        rest: u32,
    },
    /// A topic that stores many messages against one that stores none
    #[command(after_help = "Example:\n  laneway bench growth --messages 10000000")]
    Growth {
        /// Messages to store first; the bar is for ten million, as `all` has them
        #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
        messages: u64,
    },
    /// Publishes over 1,000 partitions against 8
    #[command(after_help = "Example:\n  laneway bench partitions")]
    Partitions,
    /// Publishes by three brokers to the same 8 partitions against one
    #[command(after_help = "Example:\n  laneway bench brokers")]
    Brokers,
    /// Publishes while retention and vacuum run, against neither
    #[command(after_help = "Example:\n  laneway bench retention")]
    Retention,
    /// Broker memory at full rate with one consumer ten times slower than the rest
    #[command(after_help = "Example:\n  laneway bench memory --length 10m")]
    Memory {
        /// Time at full rate
        #[arg(long, default_value = "2m")]
        length: humantime::Duration,
    },
    /// Everything, and a table of what is met; a measurement that fails is named, and the others go on
    #[command(
        after_help = "Examples:\n  laneway bench all --json > bench.json\n  laneway bench all --only publish,latency,idle"
    )]
    All {
        /// Only these measurements, in the order of `all`
        #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(What::NAMES))]
        only: Vec<String>,
    },
    /// A process of a measurement
    #[command(hide = true)]
    Worker { post: String },
}

impl What {
    /// Of everything that has a bar.
    const NAMES: [&str; 13] = [
        "append",
        "publish",
        "e2e",
        "fanout",
        "singles",
        "latency",
        "catchup",
        "partitions",
        "brokers",
        "growth",
        "idle",
        "memory",
        "retention",
    ];

    /// Everything that has a bar, in the order of the names.
    fn all() -> [Self; Self::NAMES.len()] {
        let (rate, sessions, rest) = (singles::RATE_DEFAULT, 10_000, 60);
        [
            Self::Append,
            Self::Publish,
            Self::E2e,
            Self::Fanout,
            Self::Singles,
            Self::Latency { rate },
            Self::Catchup { messages: delivery::BACKLOG_DEFAULT },
            Self::Partitions,
            Self::Brokers,
            Self::Growth { messages: room::GROWTH_MESSAGES },
            Self::Idle { sessions, rest },
            Self::Memory { length: room::MEMORY_LENGTH.into() },
            Self::Retention,
        ]
    }

    async fn measure(&self, database: &Database, course: Course<'_>) -> Result<Report, BenchError> {
        match self {
            Self::Limit => raw::limit_only(database, course).await,
            Self::Append => raw::append(database, course).await,
            Self::Publish => publishing::publish(database, course).await,
            Self::E2e => delivery::end_to_end(database, course).await,
            Self::Fanout => delivery::fan_out(database, course).await,
            Self::Singles => singles::singles(database, course).await,
            Self::Latency { rate } => singles::latency(database, *rate, course).await,
            Self::Catchup { messages } => delivery::catch_up(database, *messages, course).await,
            Self::Idle { sessions, rest } => {
                let rest = Duration::from_secs(u64::from(*rest));
                room::idle(database, *sessions as usize, rest, course).await
            }
            Self::Growth { messages } => room::growth(database, *messages, course).await,
            Self::Partitions => publishing::partitions(database, course).await,
            Self::Brokers => publishing::brokers(database, course).await,
            Self::Retention => retention::retention(database, course).await,
            Self::Memory { length } => room::memory(database, **length, course).await,
            Self::All { .. } | Self::Worker { .. } => Err(BenchError::Unreadable { what: "measurement" }),
        }
    }
}

/// What `bench all` prints as JSON.
#[derive(Debug, Serialize)]
struct Everything {
    benches: Vec<Report>,
    /// The table: those of all measurements.
    verdicts: Vec<Verdict>,
    failures: Vec<Failed>,
}

/// A measurement that could not be taken.
#[derive(Debug, Serialize)]
struct Failed {
    bench: &'static str,
    error: String,
}

impl Bench {
    pub(super) async fn run(self) -> Result<(), Failure> {
        if let What::Worker { post } = &self.what {
            return worker::run(serde_json::from_str(post)?).await;
        }
        let signals = Signals::watch()?;
        match &self.what {
            What::All { only } => self.run_all(only, &signals).await,
            one => {
                let report = self.take(one, &signals).await?;
                if self.json {
                    return print_json(&report);
                }
                print(&report);
                Ok(())
            }
        }
    }

    /// Takes one after the other. What fails does not keep the others from being taken, nor what was measured from being told.
    async fn run_all(&self, only: &[String], signals: &Signals) -> Result<(), Failure> {
        let wanted = What::NAMES.into_iter().zip(What::all());
        let wanted = wanted.filter(|(name, _)| only.is_empty() || only.iter().any(|one| one == name));
        let mut everything = Everything { benches: Vec::new(), verdicts: Vec::new(), failures: Vec::new() };
        for (bench, what) in wanted {
            if signals.are_stopped() {
                everything.failures.push(Failed { bench, error: "interrupted".into() });
                continue;
            }
            match self.take(&what, signals).await {
                Ok(report) => {
                    if !self.json {
                        print(&report);
                    }
                    everything.verdicts.extend(report.verdicts.iter().cloned());
                    everything.benches.push(report);
                }
                Err(error) => {
                    eprintln!("laneway: {bench} could not be measured: {error}");
                    everything.failures.push(Failed { bench, error: error.to_string() });
                }
            }
        }
        everything.conclude(self.json)
    }

    /// One measurement, from an empty database to its end, whatever happens in between.
    async fn take(&self, what: &What, signals: &Signals) -> Result<Report, Failure> {
        let database = Database::open(self.url.clone()).await?;
        let result = signals.unless(self.measure(what, &database)).await;
        let closed = database.close().await; // also after a failure or Ctrl-C: no server of ours stays behind
        let report = result.unwrap_or_else(|| Err("interrupted".into()))?;
        closed?;
        Ok(report)
    }

    async fn measure(&self, what: &What, database: &Database) -> Result<Report, Failure> {
        let schedule = Schedule { rounds: self.rounds, seconds: self.seconds };
        let mut bar = Bar::new(self.seconds);
        let report = what.measure(database, Course::new(schedule, &mut bar)).await;
        bar.0.finish_and_clear();
        Ok(report?)
    }
}

impl Everything {
    fn conclude(self, json: bool) -> Result<(), Failure> {
        if json {
            print_json(&self)?;
        } else {
            println!();
            print_verdicts(self.verdicts.iter());
        }
        if self.failures.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.failures.iter().map(|failed| failed.bench).collect();
        Err(format!("not measured: {}", names.join(", ")).into())
    }
}

fn print(report: &Report) {
    print_environment(report.bench, &report.environment);
    line("against", report.limits.as_ref(), report.against);
    line("measured", report.rates.as_ref(), "per second");
    line("ratio", report.ratios.as_ref(), "");
    if let (Some(of), Some(p50), Some(p99), Some(p999)) =
        (report.latency_of, report.p50_us, report.p99_us, report.p999_us)
    {
        println!("{:>9}  p50 {p50} µs, p99 {p99} µs, p99.9 {p999} µs: {of}", "latency");
    }
    if let Some(missing) = report.missing.filter(|missing| *missing > 0) {
        println!(
            "{:>9}  {missing} messages came too late to be waited for; they count as late as that",
            "late"
        );
    }
    if let Some(commits) = report.commits_per_message {
        println!("{:>9}  {commits:.4} per message", "commits");
    }
    if let Some(mb) = report.rss_mb {
        println!("{:>9}  {mb:.0} MB in the largest broker at most", "memory");
    }
    for note in &report.notes {
        println!("{:>9}  {note}", "note");
    }
    print_verdicts(report.verdicts.iter());
}

fn print_environment(bench: &str, environment: &Environment) {
    let Environment { cpu, cores, memory_mb, kernel, postgres, fsync, synchronous_commit, .. } = environment;
    println!(
        "{bench}: laneway {} ({}), PostgreSQL {postgres} (fsync {fsync}, synchronous_commit {synchronous_commit}), {} rounds of {} s",
        environment.laneway,
        environment.build.as_str(),
        environment.rounds,
        environment.seconds
    );
    let unknown = "unknown".to_owned();
    let memory = memory_mb.map_or(unknown.clone(), |mb| format!("{mb} MB"));
    let (cpu, kernel) = (cpu.as_ref().unwrap_or(&unknown), kernel.as_ref().unwrap_or(&unknown));
    let load = environment.load.map_or(unknown.clone(), |load| format!("{load:.1}"));
    println!("{:>9}  {cores} cores ({cpu}), {memory} of memory, kernel {kernel}, load {load}", "machine");
}

fn line(name: &str, figures: Option<&Figures>, unit: &str) {
    let Some(figures) = figures else { return };
    let (median, min, max) = (show(figures.median), show(figures.min), show(figures.max));
    println!("{name:>9}  {median:>10} (from {min} to {max}) {unit}");
}

fn show(value: f64) -> String {
    match value.abs() {
        ..0.1 => format!("{value:.4}"),
        0.1..100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn print_verdicts<'a>(verdicts: impl Iterator<Item = &'a Verdict>) {
    let rows: Vec<[String; 4]> = verdicts.map(row).collect();
    if !rows.is_empty() {
        print_table(["WHAT", "MEASURED", "BAR", "MET"], rows);
    }
}

fn row(verdict: &Verdict) -> [String; 4] {
    let bar = match verdict.bar {
        Threshold::AtLeast(bar) => format!("at least {bar}"),
        Threshold::AtMost(bar) => format!("at most {bar}"),
    };
    let met = if verdict.met { "yes" } else { "NO" };
    [verdict.what.to_owned(), format!("{} {}", show(verdict.figure), verdict.unit), bar, met.to_owned()]
}

/// How often the bar shows that it lives.
const TICK: Duration = Duration::from_millis(200);

/// A bar on a terminal, nothing elsewhere.
#[derive(Debug)]
struct Bar(ProgressBar);

impl Bar {
    fn new(seconds: u32) -> Self {
        let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {bar:30} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(1).with_style(style);
        bar.set_message(format!("warming up, then {seconds} s each"));
        bar.enable_steady_tick(TICK); // some steps take minutes
        Self(bar)
    }
}

impl Progress for Bar {
    fn step(&mut self, name: &str, done: u32, of: u32) {
        self.0.set_length(u64::from(of));
        self.0.set_position(u64::from(done));
        self.0.set_message(name.to_owned());
    }
}
