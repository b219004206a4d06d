//! A broker process: started, struck, and started again at the same address.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::VerifyError;
use super::settings::{LANE_DRAIN, TTL};

/// How long a broker may take to listen: it waits for a database that may be recovering.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a broker may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two looks whether it listens.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// How far a broker's clock is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    Right,
    /// By so many seconds, with libfaketime.
    Off(i64),
}

/// See the module.
#[derive(Debug)]
pub(super) struct BrokerProcess {
    number: usize,
    address: SocketAddr,
    database_url: String,
    log: PathBuf,
    child: Option<Child>,
}

impl BrokerProcess {
    pub fn new(number: usize, address: SocketAddr, database_url: String, directory: &Path) -> Self {
        let log = directory.join(format!("broker-{number}.log"));
        Self { number, address, database_url, log, child: None }
    }

    /// Starts it and waits until it listens.
    pub async fn start(&mut self, clock: Clock) -> Result<(), VerifyError> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(VerifyError::io(format!("cannot write {}", self.log.display())))?;
        let program = std::env::current_exe().map_err(VerifyError::io("cannot find this program"))?;
        let mut command = Command::new(program);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LANEWAY_"))
        {
            command.env_remove(name);
        }
        if let (Clock::Off(seconds), Some(library)) = (clock, faketime_library()) {
            command.env("LD_PRELOAD", library).env("FAKETIME", format!("{seconds:+}s"));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let (ttl, drain) = (format!("{}s", TTL.as_secs()), format!("{}s", LANE_DRAIN.as_secs()));
        command
            .args(["serve", "--listen", &self.address.to_string(), "--database-url", &self.database_url])
            .args(["--lease-ttl", &ttl, "--lane-drain", &drain])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0) // Ctrl-C is for us: we stop them in order
            .kill_on_drop(true);
        let child = command.spawn().map_err(VerifyError::io("cannot start a broker"))?;
        self.child = Some(child);
        self.listening().await
    }

    async fn listening(&mut self) -> Result<(), VerifyError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if TcpStream::connect(self.address).await.is_ok() {
                return Ok(());
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            let reason = match ended {
                Some(status) => format!("it ended with {status}"),
                None if Instant::now() > deadline => "it does not listen".to_owned(),
                None => {
                    tokio::time::sleep(LOOK_PAUSE).await;
                    continue;
                }
            };
            let log = self.last_words();
            return Err(VerifyError::Broker { broker: self.number, reason: format!("{reason}; {log}") });
        }
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_else(|error| error.to_string());
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    pub fn pid(&self) -> Option<Pid> {
        let id = self.child.as_ref()?.id()?;
        i32::try_from(id).ok().map(Pid::from_raw)
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            kill(pid, signal).ok(); // it may have ended just now
        }
    }

    /// SIGKILL, and waits for its end.
    pub async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.ended(STOP_TIMEOUT).await;
    }

    /// SIGTERM, and waits for its end. False: it had to be killed.
    pub async fn stop(&mut self) -> bool {
        self.signal(Signal::SIGTERM);
        let in_order = self.ended(STOP_TIMEOUT).await;
        if !in_order {
            self.kill().await;
        }
        in_order
    }

    async fn ended(&mut self, patience: Duration) -> bool {
        let Some(child) = &mut self.child else { return true };
        let ended = tokio::time::timeout(patience, child.wait()).await.is_ok();
        if ended {
            self.child = None;
        }
        ended
    }
}

/// Where the distribution keeps libfaketime, if it is installed.
pub(super) fn faketime_library() -> Option<PathBuf> {
    let places = [
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib64/faketime/libfaketimeMT.so.1",
        "/usr/lib/faketime/libfaketimeMT.so.1",
    ];
    places.iter().map(PathBuf::from).find(|path| path.exists())
}
