//! The same work on Laneway and on peers, in the same run.
//!
//! | file | owns |
//! |---|---|
//! | `cli` | the command line |
//! | `work`, `system` | what is measured, and on what |
//! | `compare`, `sweep` | the order of the measurements |
//! | `measure` | one measurement, from an empty server to a figure |
//! | `laneway` | Laneway, which measures itself |
//! | `server` | servers of peers |
//! | `crew` | the processes that work, seen from here |
//! | `worker` | the same processes, seen from inside |
//! | `clock`, `schedule`, `messages` | when and what is sent |
//! | `process` | processes that never outlive us |
//! | `figures`, `report`, `table` | medians, JSON, and a table for people |

mod cli;
mod clock;
mod compare;
mod crew;
mod error;
mod figures;
mod laneway;
mod measure;
mod messages;
mod process;
mod report;
mod schedule;
mod server;
mod sweep;
mod system;
mod table;
mod work;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Cli, Command};
use crate::error::Error;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // One thread: the processor belongs to what is measured.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&Error::Io { what: "starting the runtime", source: error }),
    };
    let ended = runtime.block_on(run(cli.command));
    runtime.shutdown_background(); // a worker may still wait for its standard input
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

async fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Compare(compare) => unless_interrupted(compare::run(&compare)).await,
        Command::Sweep(sweep) => unless_interrupted(sweep::run(&sweep)).await,
        Command::Produce { post } | Command::Consume { post } => worker::run(worker::parsed(&post)?).await,
    }
}

/// Drops the work, and with it every process, when a signal comes.
async fn unless_interrupted(work: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::io("listening for signals"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::io("listening for signals"))?;
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err(Error::Interrupted),
        _ = terminate.recv() => Err(Error::Interrupted),
    }
}
