//! A process that we have started, and that never outlives us: dropping it ends it by its id and waits until it is gone.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::error::Error;

/// How long a process may take to end what it has started itself.
const TERMINATION: Duration = Duration::from_secs(15);
/// How long the kernel may take to end a process that is killed: it may be writing.
const KILL: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// How a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// At once: its files are thrown away.
    Kill,
    /// By asking, because it has processes of its own.
    Terminate,
}

#[derive(Debug)]
pub struct Process {
    pub child: Child,
    ending: Ending,
}

impl Process {
    pub fn start(mut command: Command, ending: Ending) -> Result<Self, Error> {
        let program = command.as_std().get_program().into();
        let child = command.kill_on_drop(true).spawn().map_err(|source| Error::Spawn { program, source })?;
        Ok(Self { child, ending })
    }

    /// Whether it has gone within a time. Blocks: only while everything is being ended.
    fn gone_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                Ok(gone) => return gone.is_some(),
                Err(_) => return false,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // No id: it is gone and has been waited for.
        let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) else { return };
        if self.ending == Ending::Terminate && kill(Pid::from_raw(id), Signal::SIGTERM).is_ok() {
            self.gone_within(TERMINATION);
        }
        if self.child.start_kill().is_ok() {
            self.gone_within(KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ended(ending: Ending) -> Duration {
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let process = Process::start(sleep, ending).unwrap();
        let id = Pid::from_raw(process.child.id().unwrap() as i32);
        assert!(kill(id, None).is_ok(), "it runs");
        let began = Instant::now();
        drop(process);
        assert!(kill(id, None).is_err(), "it is gone");
        began.elapsed()
    }

    #[tokio::test]
    async fn a_process_is_gone_when_its_handle_is() {
        assert!(ended(Ending::Kill).await < KILL);
        assert!(ended(Ending::Terminate).await < TERMINATION);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let error = Process::start(Command::new("no-such-program"), Ending::Kill).unwrap_err();
        assert!(error.to_string().starts_with("no-such-program cannot be started"), "{error}");
    }
}
