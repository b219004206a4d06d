//! `laneway verify`: tries the promises on a cluster of its own.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::access::print_table;
use super::signals::Signals;
use super::{Failure, print_json};
use crate::cli::output::println;
use crate::verify::report::Report;
use crate::verify::settings::parse_faults;
use crate::verify::{FaultKind, Progress, VerifySettings};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  laneway verify\n  laneway verify --brokers 3 --seconds 90 --faults all --json\n  \
    laneway verify --faults kill_broker,restart_postgres --seed 7\n\n\
    Exit code 1 means that a promise was violated; what shows it is printed, and --seed repeats the schedule."
)]
pub(super) struct Verify {
    /// Broker processes to run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    brokers: u8,
    /// How long faults fall; starting, draining and judging come on top
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Faults: all, none, or names with commas between them
    #[arg(long, default_value = "all", value_name = "LIST", value_parser = FaultList::parse)]
    faults: FaultList,
    /// Repeats a schedule [default: a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// Where initdb and postgres are [default: looked for on PATH and in the usual places]
    #[arg(long, env = "LANEWAY_POSTGRES_BIN_DIR", value_name = "DIR")]
    postgres_bin_dir: Option<PathBuf>,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

/// clap makes a list of an option whose type is a list; this is one value.
#[derive(Debug, Clone)]
struct FaultList(Vec<FaultKind>);

impl FaultList {
    fn parse(text: &str) -> Result<Self, String> {
        parse_faults(text).map(Self)
    }
}

impl Verify {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let signals = Signals::watch()?;
        let settings = VerifySettings {
            brokers: usize::from(self.brokers),
            duration: Duration::from_secs(u64::from(self.seconds)),
            faults: self.faults.0.clone(),
            seed: self.seed.unwrap_or_else(rand::random),
            postgres_bin_dir: self.postgres_bin_dir.clone(),
        };
        eprintln!("seed {}", settings.seed);
        let mut bar = Bar::new(self.seconds);
        let report = crate::verify::run(&settings, &mut bar, signals.stopped()).await;
        bar.0.finish_and_clear();
        let report = report?;
        match self.json {
            true => print_json(&report)?,
            false => print(&report),
        }
        match report.is_clean() {
            true => Ok(()),
            false => Err(violated(&report).into()),
        }
    }
}

fn violated(report: &Report) -> String {
    let numbers = report.violations.keys().map(|number| format!("promise {number}"));
    let names = report.queue_violations.keys().map(|name| (*name).to_owned());
    let all: Vec<String> = numbers.chain(names).collect();
    format!("violated with seed {}: {}", report.seed, all.join(", "))
}

fn print(report: &Report) {
    let figures = [
        ("published", report.published),
        ("acknowledged", report.acknowledged),
        ("delivered", report.delivered),
        ("lost", report.lost),
        ("duplicated after ack", report.duplicated_after_ack),
        ("order violations", report.order_violations),
        ("overlaps", report.overlaps),
        ("fenced", report.fenced),
        ("takeovers", report.takeovers),
    ];
    print_table(["FIGURE", "COUNT"], figures.map(|(name, count)| [name.to_owned(), count.to_string()]));
    println!("takeover: p50 {} ms, max {} ms", report.takeover_ms.p50, report.takeover_ms.max);
    report.figures.iter().for_each(|(name, figure)| println!("{name}: {figure}"));
    println!();
    print_table(
        ["FAULT", "COUNT"],
        report.faults.iter().map(|(name, count)| [(*name).to_owned(), count.to_string()]),
    );
    println!();
    let row = |judged: &crate::verify::checks::Judged| {
        [judged.number.to_string(), judged.promise.to_owned(), judged.verdict.name().to_owned()]
    };
    print_table(["#", "PROMISE", "VERDICT"], report.judged.iter().map(row));
    println!();
    let queues = report.queues.iter().map(|(name, verdict)| [(*name).to_owned(), (*verdict).to_owned()]);
    print_table(["QUEUES", "VERDICT"], queues);
    for (name, violations) in &report.queue_violations {
        println!("\n{name}: violated:");
        violations.iter().for_each(|violation| println!("  {violation}"));
    }
    for (number, violations) in &report.violations {
        println!("\npromise {number} is violated:");
        violations.iter().for_each(|violation| println!("  {violation}"));
    }
}

/// A bar on a terminal, nothing elsewhere.
struct Bar(ProgressBar);

impl Bar {
    fn new(seconds: u32) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} s {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::new(u64::from(seconds)).with_style(style))
    }
}

impl Progress for Bar {
    fn step(&mut self, what: &str, elapsed: Duration, published: usize, delivered: usize) {
        self.0.set_position(elapsed.as_secs());
        self.0.set_message(format!("{what}: {published} published, {delivered} delivered"));
    }
}
