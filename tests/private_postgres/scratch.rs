//! What these tests need: a directory of their own that ends what is left running in it, and ways to look at a server.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use laneway::postgres::{Pace, PrivatePostgres, Settings, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// For whatever is awaited; generous, because the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// How often a condition is looked at that nobody reports.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Scratch {
    pub dir: TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        let dir = TempDir::with_prefix("lw-").unwrap();
        // The server's user must pass through.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("d")
    }

    pub fn pgdata(&self) -> PathBuf {
        self.data_dir().join("pgdata")
    }

    pub fn settings(&self) -> Settings {
        settings(&self.data_dir())
    }

    pub fn recorded_pid(&self) -> Option<Pid> {
        recorded_pid(&self.pgdata())
    }

    /// A directory of scripts that run the real binaries, for tests that exchange them.
    pub fn wrapped_binaries(&self, version_line: Option<&str>) -> PathBuf {
        let dir = self.dir.path().join("bin");
        fs::create_dir_all(&dir).unwrap();
        let real = real_binaries();
        let version = version_line.map(|line| format!("[ \"$1\" = --version ] && echo '{line}' && exit 0\n"));
        for program in ["postgres", "initdb"] {
            let version = version.clone().unwrap_or_default();
            let script = format!("#!/bin/sh\n{version}exec {}/{program} \"$@\"\n", real.display());
            replace_program(&dir.join(program), &script);
        }
        dir
    }

    /// The postmaster and all its children.
    pub fn processes(&self) -> Vec<Pid> {
        let postmaster = self.recorded_pid().unwrap();
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
        pids.filter(|pid| *pid == postmaster || parent_of(*pid) == Some(postmaster)).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let data_dirs = fs::read_dir(self.dir.path()).into_iter().flatten().flatten();
        data_dirs.for_each(|data_dir| end_server(&data_dir.path().join("pgdata")));
    }
}

pub fn end_server(pgdata: &Path) {
    let Some(pid) = recorded_pid(pgdata).filter(|pid| lives_in(*pid, pgdata)) else { return };
    let _ = kill(pid, Signal::SIGCONT);
    let _ = kill(pid, Signal::SIGQUIT);
    let deadline = Instant::now() + DEADLINE;
    while lives_in(pid, pgdata) && Instant::now() < deadline {
        std::thread::sleep(LOOK_EVERY);
    }
}

pub fn recorded_pid(pgdata: &Path) -> Option<Pid> {
    let text = fs::read_to_string(pgdata.join("postmaster.pid")).ok()?;
    Some(Pid::from_raw(text.lines().next()?.parse().ok()?))
}

pub fn settings(data_dir: &Path) -> Settings {
    let quick = Pace {
        backoff_min: Duration::from_millis(50),
        upgrade_check: Duration::from_millis(200),
        listener_check: Duration::from_millis(200),
        adopted_check: Duration::from_millis(20),
        ..Pace::default()
    };
    let extra = vec![("shared_buffers".to_owned(), "16MB".to_owned())];
    Settings { pace: quick, extra, bin_dir: chosen_binaries(), ..Settings::new(data_dir) }
}

pub fn replace_program(path: &Path, script: &str) {
    let new = path.with_extension("new");
    fs::write(&new, script).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, path).unwrap();
}

/// Another version than the installed one, for a matrix.
pub fn chosen_binaries() -> Option<PathBuf> {
    std::env::var_os("LANEWAY_TEST_POSTGRES_BIN").map(PathBuf::from)
}

pub fn real_binaries() -> PathBuf {
    let majors = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let installed = majors.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("initdb").exists());
    chosen_binaries()
        .or(installed.max())
        .expect("PostgreSQL is installed, or LANEWAY_TEST_POSTGRES_BIN is set")
}

/// The working directory is proof; root in a container may not read it, but the command line.
pub fn lives_in(pid: Pid, dir: &Path) -> bool {
    match (fs::metadata(format!("/proc/{pid}/cwd")), fs::metadata(dir)) {
        (Ok(cwd), Ok(dir)) => (cwd.dev(), cwd.ino()) == (dir.dev(), dir.ino()),
        (Err(error), Ok(_)) if error.kind() == ErrorKind::PermissionDenied => {
            let command_line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command_line.split('\0').any(|argument| Path::new(argument) == dir)
        }
        _ => false,
    }
}

pub fn parent_of(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Some(Pid::from_raw(parent.trim().parse().ok()?))
}

pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(DEADLINE, looking).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

pub async fn connect(url: &str) -> Option<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

pub async fn text(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

pub async fn wait_for(database: &PrivatePostgres, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let mut status = database.status();
    let seen = tokio::time::timeout(DEADLINE, status.wait_for(|status| wanted(status))).await;
    seen.unwrap_or_else(|_| panic!("never happened: {what}")).unwrap().clone()
}

pub async fn running_again(database: &PrivatePostgres) {
    wait_for(database, "restarting", |status| matches!(status, Status::Restarting { .. })).await;
    wait_for(database, "running", |status| matches!(status, Status::Running)).await;
}
