//! `laneway bench`: measures this machine.

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use super::signals::Signals;
use super::{Failure, print_json};
use crate::bench::Schedule;
use crate::bench::database::Database;
use crate::bench::rounds::{self, Figures, Progress};
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

#[derive(Debug, Clone, Copy, Subcommand)]
#[command(after_help = "Examples:\n  laneway bench append\n  laneway bench limit --rounds 5 --json")]
enum What {
    /// The raw insert: two connections, 500 rows a statement, one plain table each
    #[command(after_help = "Example:\n  laneway bench limit --rounds 5 --json")]
    Limit,
    /// The same messages through the appender, in process, against the raw insert
    #[command(after_help = "Example:\n  laneway bench append --url postgresql://laneway@db.internal/scratch")]
    Append,
}

impl Bench {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let signals = Signals::watch()?;
        let database = Database::open(self.url.clone()).await?;
        let result = signals.unless(self.measure(&database)).await;
        database.close().await?; // also after a failure or Ctrl-C: no server of ours stays behind
        result.unwrap_or_else(|| Err("interrupted".into()))
    }

    async fn measure(&self, database: &Database) -> Result<(), Failure> {
        let schedule = Schedule { rounds: self.rounds, seconds: self.seconds };
        let mut bar = Bar::new(self.seconds);
        let report = match self.what {
            What::Limit => limit(database, schedule, &mut bar, self.json).await,
            What::Append => append(database, schedule, &mut bar, self.json).await,
        };
        bar.0.finish_and_clear();
        report
    }
}

async fn limit(database: &Database, schedule: Schedule, bar: &mut Bar, json: bool) -> Result<(), Failure> {
    let report = rounds::limit_only(database, schedule, bar).await?;
    if json {
        return print_json(&report);
    }
    line("limit", &report.limits, "messages/s");
    Ok(())
}

async fn append(database: &Database, schedule: Schedule, bar: &mut Bar, json: bool) -> Result<(), Failure> {
    let report = rounds::append(database, schedule, bar).await?;
    if json {
        return print_json(&report);
    }
    let environment = &report.environment;
    println!(
        "PostgreSQL {}, {} cores, laneway {}",
        environment.postgres, environment.cores, environment.laneway
    );
    line("limit", &report.limits, "messages/s");
    line("append", &report.rates, "messages/s");
    line("ratio", &report.ratios, "× limit");
    Ok(())
}

fn line(name: &str, figures: &Figures, unit: &str) {
    let show = |value: f64| if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") };
    let (median, min, max) = (show(figures.median), show(figures.min), show(figures.max));
    println!("{name:>8}  {median:>10} {unit}  (from {min} to {max} in {} rounds)", figures.rounds.len());
}

/// A bar on a terminal, nothing elsewhere.
struct Bar(ProgressBar);

impl Bar {
    fn new(seconds: u32) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(1).with_style(style);
        bar.set_message(format!("warming up, then {seconds} s each"));
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
