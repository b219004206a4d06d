//! The command line: one file per command. Exit codes: 0 done, 1 failed, 2 wrong usage.
//!
//! A setting comes from its flag, else from its `LANEWAY_*` variable, else from the file of `--config`, else it has its
//! default; `config_file` sees to it.

mod access;
mod bench;
mod config_file;
mod dead;
mod dead_each;
mod doctor;
mod group;
mod group_settings;
mod key_ring;
mod keys;
mod labels;
mod lane;
mod management;
mod news;
mod output;
mod parked;
mod place;
mod pop;
mod popped;
mod publish;
mod reading;
mod reference;
mod schedule;
mod serve;
mod signals;
mod subscribe;
mod tail;
mod top;
mod topic;
mod topic_capacity;
mod trace;
mod verify;
mod windows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use config_file::ParseError;
use output::println;

/// A partitioned message bus on the PostgreSQL you already run.
#[derive(Debug, Parser)]
#[command(
    name = "laneway",
    version,
    about,
    arg_required_else_help = true,
    after_help = "Examples:\n  laneway serve\n  laneway topic create orders --partitions 8\n  laneway top\n  laneway doctor"
)]
pub struct Cli {
    /// A TOML file with settings, for what neither a flag nor a variable says
    #[arg(long, global = true, env = "LANEWAY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a broker, on a private PostgreSQL unless a database is given
    Serve(serve::Serve),
    /// Publish the lines of a file or of standard input, or all of it as one message
    Publish(publish::Publish),
    /// Print what a group is delivered, and acknowledge what was printed
    Subscribe(subscribe::Subscribe),
    /// Take messages of a group without a connection, print and acknowledge them
    Pop(pop::Pop),
    /// Acknowledge, refuse or prolong what was popped and kept
    Popped(popped::Popped),
    /// Print messages as they come, without a group
    Tail(tail::Tail),
    /// Make, list, show, alter and delete topics
    Topic(topic::Topic),
    /// List, show, alter, move and delete groups
    Group(group::Group),
    /// See who holds which partition for which group
    Lane(lane::Lane),
    /// Make and list keys of encrypted topics
    Keys(keys::Keys),
    /// List, show, replay and drop dead letters
    Dead(dead::Dead),
    /// List, show, replay and drop parked keys
    Parked(parked::Parked),
    /// List, show, move and cancel messages that wait for their time
    Schedule(schedule::Schedules),
    /// Draw a trace: every message of it as a tree, with what became of it and when
    Trace(trace::Trace),
    /// Watch topics, groups, lanes and brokers, refreshed
    Top(top::Top),
    /// See what is wrong with a database and a broker, and what to do about it
    Doctor(doctor::Doctor),
    /// Measure this machine: ratios to the raw insert of the same run
    Bench(bench::Bench),
    /// Try the promises on a cluster of its own, with faults
    Verify(verify::Verify),
    /// Print what a shell needs to complete commands
    Completions(reference::Completions),
    /// Print or write manual pages
    Man(reference::Man),
}

/// Why a command failed, as one sentence for standard error.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let cli: Cli = match config_file::parse(&args) {
        Ok(cli) => cli,
        Err(ParseError::Arguments(error)) => error.exit(),
        Err(ParseError::File(error)) => return wrong(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let result = runtime.block_on(async {
        match cli.command {
            Command::Serve(command) => command.run().await,
            Command::Publish(command) => command.run().await,
            Command::Subscribe(command) => command.run().await,
            Command::Pop(command) => command.run().await,
            Command::Popped(command) => command.run().await,
            Command::Tail(command) => command.run().await,
            Command::Topic(command) => command.run().await,
            Command::Group(command) => command.run().await,
            Command::Lane(command) => command.run().await,
            Command::Keys(command) => command.run().await,
            Command::Dead(command) => command.run().await,
            Command::Parked(parked) => parked.run().await,
            Command::Schedule(command) => command.run().await,
            Command::Trace(command) => command.run().await,
            Command::Top(command) => command.run().await,
            Command::Doctor(command) => command.run().await,
            Command::Bench(command) => command.run().await,
            Command::Verify(command) => command.run().await,
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(usage) => usage.exit(), // with 2, as for what clap finds itself
            Err(error) => failed(error.as_ref()),
        },
    }
}

/// What was asked cannot be done as it was asked.
fn wrong(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("laneway: {error}");
    ExitCode::from(2)
}

/// The arguments do not go together.
fn wrong_usage(command: &str, sentence: impl std::fmt::Display) -> Failure {
    let mut cli = Cli::command();
    let command = cli.find_subcommand_mut(command).expect("it is one of ours");
    Box::new(command.error(clap::error::ErrorKind::ValueValidation, sentence))
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("laneway: {error}");
    ExitCode::FAILURE
}

/// Prints one JSON document on standard output.
fn print_json(document: &impl serde::Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(document)?);
    Ok(())
}
