//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::server::Programs;
use crate::system::{Peer, Publishing, System};
use crate::work::{Load, SINGLES, Work};

/// The work of Laneway's benchmarks on Redis Streams and NATS JetStream, in the same run.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Each work on each system, taking turns, and a table.
    Compare(Compare),
    /// Latency and the rate that is reached, against the rate that is offered.
    Sweep(Sweep),
    /// A process that produces; `compare` and `sweep` start it.
    #[command(hide = true)]
    Produce { post: String },
    /// A process that consumes; `compare` and `sweep` start it.
    #[command(hide = true)]
    Consume { post: String },
}

#[derive(Debug, Args)]
pub struct Compare {
    /// Every system takes its turn in each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Length of a window, after 2 s of warm-up.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    #[arg(long, value_delimiter = ',', default_value = "publish,e2e,fanout,singles,latency")]
    pub work: Vec<Work>,
    /// Messages per second that are offered where latency is measured.
    #[arg(long, default_value_t = 2_400, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// Connections over which the 64 single producers of a peer publish. Laneway's have one each.
    #[arg(long, default_value_t = SINGLES as u32, value_parser = clap::value_parser!(u32).range(1..))]
    pub singles_connections: u32,
    /// Where to write every figure.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub setup: Setup,
}

#[derive(Debug, Args)]
pub struct Sweep {
    /// Messages per second that are offered, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1000,2500,5000,10000,20000,40000,80000")]
    pub rates: Vec<u32>,
    /// Length of a window, after 2 s of warm-up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Where to write every figure, for plot.py.
    #[arg(long, value_name = "FILE")]
    pub json: PathBuf,
    #[command(flatten)]
    pub setup: Setup,
}

/// What is compared, and where it is.
#[derive(Debug, Args)]
pub struct Setup {
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "laneway,redis-always,redis-everysec,nats-default,nats-always"
    )]
    pub systems: Vec<System>,
    /// How batches get into JetStream, instead of the way that is fastest for each of its settings.
    #[arg(long)]
    pub nats_publishing: Option<Publishing>,
    /// Laneway's program, which measures itself.
    #[arg(long, env = "LANEWAY")]
    pub laneway: Option<PathBuf>,
    #[command(flatten)]
    pub programs: Programs,
}

impl Compare {
    pub fn load(&self, work: Work) -> Load {
        Load { work, rate: self.rate, singles_connections: self.singles_connections as usize }
    }
}

impl Sweep {
    pub fn load(&self, rate: u32) -> Load {
        Load { work: Work::Latency, rate, singles_connections: SINGLES }
    }
}

impl Setup {
    /// The peer with what was asked for.
    pub fn asked(&self, peer: Peer) -> Peer {
        match (peer, self.nats_publishing) {
            (Peer::Nats(interval, _), Some(publishing)) => Peer::Nats(interval, publishing),
            (Peer::Nats(..) | Peer::Redis(_), _) => peer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
        let cli =
            Cli::try_parse_from(["peers", "compare", "--work", "e2e,latency", "--systems", "nats-always"]);
        let Command::Compare(compare) = cli.unwrap().command else { panic!("another command") };
        assert_eq!((compare.work, compare.rounds), (vec![Work::E2e, Work::Latency], 3));
        assert_eq!(compare.setup.systems, [System::NatsAlways]);
    }
}
