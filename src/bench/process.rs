//! The processes of a measurement: brokers and workers, all of this program, all ended with it.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use laneway_client::Admin;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::BenchError;
use super::tally::Tally;
use super::worker::{Post, Round};

/// How long a broker may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a broker may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// How long a worker may be silent beyond its round: it may have 10,000 sessions to open, or a backlog to be answered.
const WORKER_PATIENCE: Duration = Duration::from_secs(300);
/// Ticks of the kernel's clock per second, as `/proc` counts time.
const TICKS_PER_SECOND: f64 = 100.0;

/// This program, without what the environment tells it.
fn program() -> Result<Command, BenchError> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LANEWAY_")) {
        command.env_remove(name);
    }
    command.kill_on_drop(true).process_group(0); // Ctrl-C is for us: we stop them in order
    Ok(command)
}

/// A broker with everything at its defaults.
#[derive(Debug)]
pub struct BrokerProcess {
    pub address: SocketAddr,
    child: Child,
}

impl BrokerProcess {
    /// Starts one and waits until it is ready.
    pub async fn start(database_url: &str, directory: &Path, number: usize) -> Result<Self, BenchError> {
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log_path = directory.join(format!("broker-{number}.log"));
        let child = program()?
            .args(["serve", "--listen", &address.to_string(), "--database-url", database_url])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log_path)?)
            .spawn()?;
        let mut broker = Self { address, child };
        broker.ready(log_path).await?;
        Ok(broker)
    }

    async fn ready(&mut self, log_path: PathBuf) -> Result<(), BenchError> {
        let (admin, deadline) = (self.admin()?, Instant::now() + START_TIMEOUT);
        while let Err(error) = admin.ready().await {
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(log_path).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                return Err(BenchError::Broker { reason: format!("{error} ({last})") });
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }

    pub fn admin(&self) -> Result<Admin, BenchError> {
        Ok(Admin::new(&format!("ws://{}/v1/ws", self.address))?)
    }

    /// Its resident memory in bytes, now.
    pub fn rss_bytes(&self) -> Result<u64, BenchError> {
        self.memory_bytes("VmRSS:")
    }

    /// The most resident memory that it ever had, in bytes.
    pub fn rss_peak_bytes(&self) -> Result<u64, BenchError> {
        self.memory_bytes("VmHWM:")
    }

    fn memory_bytes(&self, name: &str) -> Result<u64, BenchError> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line
            .and_then(|line| line.split_whitespace().next())
            .and_then(|number| number.parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes << 10).ok_or(BenchError::Unreadable { what: "status" })
    }

    /// The time that it has worked, in seconds.
    pub fn cpu_seconds(&self) -> Result<f64, BenchError> {
        let stat = self.proc("stat")?;
        let (_, fields) = stat.rsplit_once(") ").ok_or(BenchError::Unreadable { what: "stat" })?;
        let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
        Ok(ticks.sum::<f64>() / TICKS_PER_SECOND)
    }

    fn proc(&self, what: &'static str) -> Result<String, BenchError> {
        let pid = self.child.id().ok_or(BenchError::Unreadable { what })?;
        Ok(std::fs::read_to_string(format!("/proc/{pid}/{what}"))?)
    }

    /// Ends it in order, or by force when it is late.
    pub async fn stop(mut self) -> Result<(), BenchError> {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            kill(Pid::from_raw(pid), Signal::SIGTERM).ok(); // it may have ended just now
        }
        if tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// A worker that is ready for rounds.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    rounds: ChildStdin,
    tallies: Lines<BufReader<ChildStdout>>,
}

impl WorkerProcess {
    /// Starts one and waits until it is connected.
    pub async fn start(post: &Post) -> Result<Self, BenchError> {
        let post = serde_json::to_string(post).expect("a post is always JSON");
        let mut child = program()?
            .args(["bench", "worker", &post])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let (Some(rounds), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::Panicked);
        };
        let mut worker = Self { child, rounds, tallies: BufReader::new(said).lines() };
        worker.tally(Duration::ZERO).await?;
        Ok(worker)
    }

    /// Begins a round; [`WorkerProcess::tally`] waits for its end.
    pub async fn begin(&mut self, round: Round) -> Result<(), BenchError> {
        let mut line = serde_json::to_string(&round).expect("a round is always JSON");
        line.push('\n');
        Ok(self.rounds.write_all(line.as_bytes()).await?)
    }

    /// What it has counted; `length` is how long it works.
    pub async fn tally(&mut self, length: Duration) -> Result<Tally, BenchError> {
        let line = tokio::time::timeout(length + WORKER_PATIENCE, self.tallies.next_line()).await;
        let line = line.map_err(|_| BenchError::Silent)??.ok_or(BenchError::Panicked)?;
        serde_json::from_str(&line).map_err(|_| BenchError::Unreadable { what: "tally" })
    }

    /// Ends it.
    pub async fn stop(self) -> Result<(), BenchError> {
        let Self { mut child, rounds, .. } = self;
        drop(rounds);
        if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
            child.kill().await?;
        }
        Ok(())
    }
}
