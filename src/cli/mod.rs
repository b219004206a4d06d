//! The command line: one file per command. Exit codes: 0 done, 1 failed, 2 wrong usage.

mod access;
mod bench;
mod dead;
mod group;
mod lane;
mod serve;
mod signals;
mod topic;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A partitioned message bus on the PostgreSQL you already run.
#[derive(Debug, Parser)]
#[command(name = "laneway", version, about, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a broker, on a private PostgreSQL unless a database is given
    Serve(serve::Serve),
    /// Make, list, show, alter and delete topics
    Topic(topic::Topic),
    /// List, show, alter, move and delete groups
    Group(group::Group),
    /// See who holds which partition for which group
    Lane(lane::Lane),
    /// List, show, replay and drop dead letters
    Dead(dead::Dead),
    /// Measure this machine: ratios to the raw insert of the same run
    Bench(bench::Bench),
    /// Try the promises on a cluster of its own, with faults
    Verify(verify::Verify),
}

/// Why a command failed, as one sentence for standard error.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let result = runtime.block_on(async {
        match cli.command {
            Command::Serve(command) => command.run().await,
            Command::Topic(command) => command.run().await,
            Command::Group(command) => command.run().await,
            Command::Lane(command) => command.run().await,
            Command::Dead(command) => command.run().await,
            Command::Bench(command) => command.run().await,
            Command::Verify(command) => command.run().await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error.as_ref()),
    }
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
