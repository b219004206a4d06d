//! Servers of peers: a process of its own on a free port of the loopback, with its files in a temporary directory.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | starting, waiting until it answers, the end of its log |
//! | `redis` | settings of Redis, its streams and groups |
//! | `nats` | settings of NATS, its streams and consumers |

mod nats;
mod redis;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::Command;

use crate::error::Error;
use crate::process::{Ending, Process};
use crate::system::Peer;
use crate::work::Work;

/// How long a server may take until it answers. An empty one takes less than a second.
const START: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// What is shown of a log when a server does not start.
const LOG_LINES: usize = 20;

/// Where the programs are.
#[derive(Debug, Clone, clap::Args)]
pub struct Programs {
    /// Redis' server.
    #[arg(long, env = "LANEWAY_REDIS_SERVER", default_value = "redis-server")]
    pub redis_server: PathBuf,
    /// NATS' server.
    #[arg(long, env = "LANEWAY_NATS_SERVER", default_value = "nats-server")]
    pub nats_server: PathBuf,
}

/// A running server. Order: the process is ended before its directory is removed.
#[derive(Debug)]
pub struct Server {
    process: Process,
    directory: TempDir,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server with nothing in it, and makes what the work needs.
    pub async fn start(peer: Peer, work: Work, programs: &Programs) -> Result<Self, Error> {
        let directory = tempfile::Builder::new()
            .prefix("laneway-peers-")
            .tempdir()
            .map_err(Error::io("making a temporary directory"))?;
        let address = free_address()?;
        let command = match peer {
            Peer::Redis(appendfsync) => {
                redis::command(&programs.redis_server, address, directory.path(), appendfsync)
            }
            Peer::Nats(interval, _) => {
                nats::command(&programs.nats_server, address, directory.path(), interval)?
            }
        };
        let process = Process::start(logged(command, &log(directory.path()))?, Ending::Kill)?;
        let mut server = Self { process, directory, address };
        server.wait_until_it_answers(peer).await?;
        match peer {
            Peer::Redis(_) => redis::prepare(address, work).await?,
            Peer::Nats(..) => nats::prepare(address, work).await?,
        }
        Ok(server)
    }

    async fn wait_until_it_answers(&mut self, peer: Peer) -> Result<(), Error> {
        let deadline = Instant::now() + START;
        while !self.answers(peer).await {
            let ended = self.process.child.try_wait().map_err(Error::io("waiting for a server"))?;
            if let Some(status) = ended {
                return Err(Error::EndedEarly { name: peer_name(peer), status, log: self.log_tail() });
            }
            if Instant::now() > deadline {
                let seconds = START.as_secs();
                return Err(Error::NotReady { name: peer_name(peer), seconds, log: self.log_tail() });
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn answers(&self, peer: Peer) -> bool {
        match peer {
            Peer::Redis(_) => redis::answers(self.address).await,
            Peer::Nats(..) => nats::answers(self.address).await,
        }
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read(log(self.directory.path())).unwrap_or_default();
        tail(&String::from_utf8_lossy(&text))
    }
}

fn peer_name(peer: Peer) -> &'static str {
    match peer {
        Peer::Redis(_) => "redis-server",
        Peer::Nats(..) => "nats-server",
    }
}

/// A port that is free now. Another process could take it before the server does, which then says so and ends.
fn free_address() -> Result<SocketAddr, Error> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    address.map_err(Error::io("finding a free port"))
}

fn log(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

/// The command with nothing to read, and everything that it says in a file.
fn logged(mut command: Command, log: &Path) -> Result<Command, Error> {
    let file = std::fs::File::create(log).map_err(Error::io("making the log of a server"))?;
    let again = file.try_clone().map_err(Error::io("making the log of a server"))?;
    command.stdin(Stdio::null()).stdout(file).stderr(again);
    Ok(command)
}

/// The last lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// What a program says about its version, in one line.
pub async fn version(program: &Path) -> Result<String, Error> {
    let output = Command::new(program).arg("--version").kill_on_drop(true).output().await;
    let output = output.map_err(|source| Error::Spawn { program: program.into(), source })?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Appendfsync;

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let long: String = (0..50).map(|line| format!("line {line}\n")).collect();
        assert_eq!(tail(&long).lines().count(), LOG_LINES);
        assert!(tail(&long).ends_with("line 49"));
        assert_eq!(tail("one"), "one");
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_named_with_its_log() {
        // Like a server whose settings are wrong: it says something and ends.
        let programs = Programs { redis_server: "ls".into(), nats_server: "ls".into() };
        let started = Server::start(Peer::Redis(Appendfsync::Always), Work::Publish, &programs).await;
        let error = started.unwrap_err().to_string();
        assert!(error.starts_with("redis-server ended right after its start"), "{error}");
        assert!(error.contains("ls: "), "{error}");
    }
}
