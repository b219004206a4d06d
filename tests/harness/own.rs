//! A PostgreSQL of a test's own, for tests that stop, kill or starve it. It ends with the test, passed or failed; should the
//! test itself be killed, a watchdog ends it.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use laneway::postgres::{Cluster, Pace, Settings, StopMode};
use laneway::store::{DatabaseSettings, Store, Target};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use super::{process, source};

/// How long a server may take to end after a test.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that belongs to one test.
pub struct OwnServer {
    pub cluster: Cluster,
    _directory: TempDir,
}

impl OwnServer {
    /// Made and started, with some settings of PostgreSQL.
    pub async fn start(extra: &[(&str, &str)]) -> Self {
        let server = Self::prepare(extra).await;
        server.cluster.start().await.unwrap();
        server
    }

    /// Made and not started.
    pub async fn prepare(extra: &[(&str, &str)]) -> Self {
        let directory = process::directory();
        leave_watchdog(directory.path());
        let cluster = Cluster::prepare(settings(directory.path().join("d"), extra)).await.unwrap();
        Self { cluster, _directory: directory }
    }

    /// Ends it at once and starts it again, which recovers.
    pub async fn crash(&self) {
        self.cluster.stop(StopMode::Immediate).await.unwrap();
        self.cluster.start().await.unwrap();
    }

    pub fn store(&self) -> Store {
        Store::new(DatabaseSettings::new(self.cluster.url())).unwrap()
    }

    /// With the schema of today.
    pub async fn migrated(&self) -> Store {
        let store = self.store();
        store.migrate().await.unwrap();
        store
    }

    /// A plain connection, for looking behind the scenes.
    pub async fn raw(&self) -> tokio_postgres::Client {
        Target::parse(&self.cluster.url()).unwrap().connect().await.unwrap()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        end(&self.cluster);
    }
}

/// Ends the server of a cluster, whatever state a test has left it in.
pub fn end(cluster: &Cluster) {
    let Ok(Some(pid)) = cluster.pid() else { return };
    let _gone_already = kill(pid, Signal::SIGQUIT);
    let deadline = Instant::now() + END_TIMEOUT;
    while cluster.pid().ok().flatten().is_some() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end of this process, and then ends the server that is left in a directory, and removes the directory.
#[allow(clippy::zombie_processes)] // it outlives us on purpose
pub(super) fn leave_watchdog(directory: &Path) {
    let alive = File::create(directory.join("alive.lock")).unwrap();
    alive.lock().unwrap();
    std::mem::forget(alive); // until this process ends
    let script = r#"
        exec 9<"$1/alive.lock" || exit 0
        flock -x 9
        pid=$(head -n 1 "$1/d/pgdata/postmaster.pid" 2>/dev/null)
        if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$1/d/pgdata" ]; then
            kill -QUIT "$pid"
            while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
        fi
        rm -rf "$1"
    "#;
    Command::new("sh")
        .args(["-c", script, "laneway-test-watchdog"])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
}

/// Settings of a small server that reacts quickly.
pub fn settings(data_dir: PathBuf, extra: &[(&str, &str)]) -> Settings {
    let pace = Pace {
        backoff_min: Duration::from_millis(50),
        backoff_max: Duration::from_millis(500),
        listener_check: Duration::from_millis(200),
        adopted_check: Duration::from_millis(20),
        ..Pace::default()
    };
    let extra = [("shared_buffers", "64MB")].iter().chain(extra);
    let extra = extra.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings { pace, extra, bin_dir: source::bin_dir(), ..Settings::new(data_dir) }
}
