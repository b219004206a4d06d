//! One running server: our child, or one that a broker before us left behind.
//!
//! Made by `spawn` and `cluster`, held by whoever watches it. Dropping it stops nothing: the server runs on
//! and can be adopted.
//! Invariant: a signal goes only to a process that is proven to be this postmaster: a child we have not
//! reaped (its pid cannot be reused), or a process that `process::presence` recognises.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::error::Error;
use super::postmaster_pid;
use super::process::{self, Presence};
use super::server_log::LogMark;
use super::settings::Pace;

/// How often a stop that takes long is mentioned.
const STILL_STOPPING_EVERY: Duration = Duration::from_secs(5);

/// After SIGQUIT the postmaster itself kills its children within 5 s; more than this means that it is stuck.
const QUIT_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Postmaster {
    pub(super) pid: Pid,
    /// What it said since it started, or since we adopted it.
    pub(super) mark: LogMark,
    pgdata: PathBuf,
    bond: Bond,
}

#[derive(Debug)]
enum Bond {
    Child(Child),
    /// Nobody reports its exit to us, so we look.
    Adopted {
        look_every: Duration,
    },
}

/// How a server ended, as far as we can know.
#[derive(Debug, Clone, Copy)]
pub enum Exit {
    Reported(ExitStatus),
    /// It was not our child, so its status went to somebody else.
    Unseen,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Reported(status) => status.fmt(f),
            Exit::Unseen => f.write_str("an unknown status"),
        }
    }
}

/// PostgreSQL's own names for the ways to stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Ends transactions, writes a checkpoint: the next start needs no recovery.
    Fast,
    /// Ends at once: the next start recovers.
    Immediate,
}

impl StopMode {
    fn signal(self) -> Signal {
        match self {
            StopMode::Fast => Signal::SIGINT,
            StopMode::Immediate => Signal::SIGQUIT,
        }
    }
}

impl Postmaster {
    pub(super) fn of_child(child: Child, pid: Pid, pgdata: &Path, mark: LogMark) -> Self {
        Self { pid, mark, pgdata: pgdata.into(), bond: Bond::Child(child) }
    }

    pub(super) fn adopted(pid: Pid, pgdata: &Path, mark: LogMark, look_every: Duration) -> Self {
        Self { pid, mark, pgdata: pgdata.into(), bond: Bond::Adopted { look_every } }
    }

    pub(super) fn is_adopted(&self) -> bool {
        match self.bond {
            Bond::Child(_) => false,
            Bond::Adopted { .. } => true,
        }
    }

    /// Waits for its end. Cancel safety: may be dropped and called again at any time, also after the end.
    pub(super) async fn exited(&mut self) -> Exit {
        match &mut self.bond {
            Bond::Child(child) => child.wait().await.map_or(Exit::Unseen, Exit::Reported),
            Bond::Adopted { look_every } => {
                let mut look = interval(*look_every);
                look.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while is_alive(self.pid, &self.pgdata) {
                    look.tick().await;
                }
                Exit::Unseen
            }
        }
    }

    /// Stops it and waits; what does not end in `Pace::stop_timeout` gets SIGQUIT.
    /// Cancel safety: may be dropped and called again; the server then gets the signal twice, which is
    /// harmless.
    pub(super) async fn stop(&mut self, mode: StopMode, pace: &Pace) -> Result<(), Error> {
        let began = Instant::now();
        self.signal(mode.signal())?;
        if self.ended_within(pace.stop_timeout, began).await {
            return Ok(());
        }
        tracing::warn!(pid = %self.pid, "PostgreSQL did not stop in time: SIGQUIT, the next start recovers");
        self.signal(Signal::SIGQUIT)?;
        if self.ended_within(QUIT_TIMEOUT, began).await {
            return Ok(());
        }
        Err(Error::StillRunning { pid: self.pid, waited: began.elapsed() })
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let is_it = match &self.bond {
            Bond::Child(child) => child.id().is_some(),
            Bond::Adopted { .. } => is_alive(self.pid, &self.pgdata),
        };
        if is_it { process::send(self.pid, signal) } else { Ok(()) }
    }

    async fn ended_within(&mut self, timeout: Duration, began: Instant) -> bool {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            let next_word = (Instant::now() + STILL_STOPPING_EVERY).min(deadline);
            if timeout_at(next_word, self.exited()).await.is_ok() {
                return true;
            }
            let seconds = began.elapsed().as_secs();
            tracing::info!(pid = %self.pid, seconds, "PostgreSQL is still stopping");
        }
        false
    }
}

/// A process we cannot see into counts only while postmaster.pid names it.
fn is_alive(pid: Pid, pgdata: &Path) -> bool {
    match process::presence(pid, pgdata) {
        Presence::Postmaster => true,
        Presence::Absent | Presence::Stranger => false,
        Presence::Unclear => postmaster_pid::read(pgdata).ok().flatten().is_some_and(|file| file.pid == pid),
    }
}
