//! The `laneway` binary, run as people run it: a process with a port, signals, and an end.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::wait;

/// A running `laneway serve`.
pub struct Server {
    pub child: Child,
    pub address: String,
    /// What it has logged so far.
    pub log: Arc<Mutex<Vec<String>>>,
}

/// The binary under test, with none of the surroundings' settings.
pub fn laneway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LANEWAY_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// What a command that ends has said.
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
pub async fn run(args: &[&str]) -> Said {
    run_command(laneway().args(args)).await
}

/// As [`run`], for a command that needs more than arguments. One that does not end has failed.
pub async fn run_command(command: &mut Command) -> Said {
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    said(output.unwrap_or_else(|_| panic!("it does not end: {command:?}")).unwrap())
}

pub fn said(output: std::process::Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Server {
    /// Serves on the database of a test.
    pub async fn on_database(url: &str) -> Self {
        Self::start(&["--database-url", url]).await
    }

    /// Serves on a private PostgreSQL in a directory.
    pub async fn on_directory(data_dir: &Path) -> Self {
        let args = private_arguments(data_dir);
        Self::start(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// Serves with some arguments, on a port of the system's choice, and waits until it listens.
    pub async fn start(args: &[&str]) -> Self {
        Self::spawn(args).listening().await
    }

    /// Waits until it listens.
    pub async fn listening(mut self) -> Self {
        wait::until("the broker to listen", async || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("laneway serve ended with {status}:\n{}", self.log().join("\n"));
            }
            listening(&self.log()).is_some()
        })
        .await;
        self.address = listening(&self.log()).unwrap();
        self
    }

    /// Serves with some arguments, without waiting for anything.
    pub fn spawn(args: &[&str]) -> Self {
        Self::spawn_command(laneway().args(["serve", "--listen", "127.0.0.1:0"]).args(args))
    }

    /// As [`Server::spawn`], in a process group of its own, as a shell with job control starts it.
    pub fn spawn_in_group(args: &[&str]) -> Self {
        Self::spawn_command(laneway().args(["serve", "--listen", "127.0.0.1:0"]).args(args).process_group(0))
    }

    /// Runs a command that serves, and collects what it logs.
    pub fn spawn_command(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let sink = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                sink.lock().unwrap().push(line);
            }
        });
        Self { child, address: String::new(), log }
    }

    /// Waits until it has logged something.
    pub async fn logged(&self, words: &str) {
        wait::until(words, async || self.log().iter().any(|line| line.contains(words))).await;
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().expect("still running") as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Asks it to end and waits. Returns its exit code.
    pub async fn stop(&mut self) -> i32 {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }

    /// Ends it without asking.
    pub async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.ended().await;
    }

    /// Waits for its end. Returns its exit code, or -1 after a signal.
    pub async fn ended(&mut self) -> i32 {
        let status =
            tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await.expect("it ends").unwrap();
        status.code().unwrap_or(-1)
    }
}

/// What makes `serve` keep a private PostgreSQL in a directory, made by the binaries under test.
pub fn private_arguments(data_dir: &Path) -> Vec<String> {
    let mut args = vec!["--data-dir".to_owned(), data_dir.display().to_string()];
    if let Some(bin_dir) = super::source::bin_dir() {
        args.extend(["--postgres-bin-dir".to_owned(), bin_dir.display().to_string()]);
    }
    args
}

fn listening(log: &[String]) -> Option<String> {
    let line = log.iter().find(|line| line.contains("\"listening\""))?;
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    Some(event["address"].as_str()?.to_owned())
}

/// A directory that root's PostgreSQL user can reach too.
pub fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::Builder::new().prefix("laneway-test-").tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}
