//! Several brokers on one database, as real processes: who takes over from whom, how soon, and what it costs.
//!
//! | file | shows |
//! |---|---|
//! | `takeover` | how soon lanes run again after a broker has stopped or died |
//! | `silence` | a broker that cannot renew its lease stops delivering before it can be buried |
//! | `latency` | what it costs to publish on one broker and to consume on another, with hints and without |
//! | `idle` | what ten thousand idle lanes cost |
//! | `rolling` | every broker is restarted in turn, under load |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod idle;
mod latency;
mod rolling;
mod silence;
mod takeover;

use std::time::Duration;

use harness::process::laneway;
use harness::{Server, TestDatabase};

/// A broker at an address where one was before.
async fn restart(database: &TestDatabase, address: &str, args: &[&str]) -> Server {
    let mut command = laneway();
    command.args(["serve", "--listen", address, "--database-url", &database.url]).args(args);
    Server::spawn_command(&mut command).listening().await
}

/// The one in the middle.
fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
