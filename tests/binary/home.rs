//! The data directory of a private PostgreSQL, and what can be seen of it from outside.
//!
//! Whatever a failed test leaves running in it is ended when it is dropped: by the pid in `postmaster.pid`, and only if
//! that process really lives in this directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use laneway::store::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::harness::process::{directory, private_arguments};
use crate::harness::{Server, wait};

/// A directory for `laneway serve --data-dir`.
pub struct Home {
    directory: TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { directory: directory() }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn pgdata(&self) -> PathBuf {
        self.data_dir().join("pgdata")
    }

    /// The arguments of a `serve` that lives here.
    pub fn arguments(&self) -> Vec<String> {
        private_arguments(&self.data_dir())
    }

    pub async fn serve(&self) -> Server {
        Server::on_directory(&self.data_dir()).await
    }

    /// As a shell with job control starts it: in a process group of its own.
    pub async fn serve_in_group(&self) -> Server {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Server::spawn_in_group(&arguments).listening().await
    }

    /// The postmaster that this directory names, if it lives.
    pub fn postmaster(&self) -> Option<Pid> {
        recorded_pid(&self.pgdata()).filter(|pid| is_alive(*pid))
    }

    /// The processes that this postmaster has started, each a backend or a worker of the same server.
    pub fn children(&self, postmaster: Pid) -> Vec<Pid> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
        pids.filter(|pid| parent_of(*pid) == Some(postmaster)).collect()
    }

    /// Everything that its server has logged.
    pub fn postgres_log(&self) -> String {
        let entries = std::fs::read_dir(self.data_dir().join("log")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()).collect()
    }

    /// A connection beside the broker.
    pub async fn raw(&self) -> tokio_postgres::Client {
        let socket = self.data_dir().canonicalize().unwrap().join("run");
        let url = format!("postgresql://laneway@/laneway?host={}", socket.display());
        Target::parse(&url).unwrap().connect().await.unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        end_server(&self.pgdata());
    }
}

/// Ends the server of a data directory, if one is left.
pub fn end_server(pgdata: &Path) {
    let Some(pid) = recorded_pid(pgdata).filter(|pid| lives_in(*pid, pgdata)) else { return };
    let _gone = kill(pid, Signal::SIGQUIT);
    let deadline = Instant::now() + Duration::from_secs(20);
    while lives_in(pid, pgdata) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn recorded_pid(pgdata: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(pgdata.join("postmaster.pid")).ok()?;
    Some(Pid::from_raw(text.lines().next()?.parse().ok()?))
}

fn lives_in(pid: Pid, pgdata: &Path) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    pgdata.canonicalize().is_ok_and(|pgdata| line.contains(&*pgdata.to_string_lossy()))
}

/// A process that has ended but that nobody has asked about yet does not count.
pub fn is_alive(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = status.rsplit_once(')')?.1.split_whitespace();
    Some(Pid::from_raw(fields.nth(1)?.parse().ok()?))
}

/// Waits until a process has ended.
pub async fn gone(pid: Pid) {
    wait::until("a process to be gone", async || !is_alive(pid)).await;
}

/// The processes of this machine whose command line names a path.
pub fn processes_of(path: &Path) -> Vec<String> {
    let path = path.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&path)).collect()
}
