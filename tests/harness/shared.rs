//! One local server for all test processes of a run.
//!
//! nextest runs every test in a process of its own. The first one starts the server; each holds a shared file lock for as
//! long as it lives; a watchdog asks for the exclusive lock now and then, which it gets when no test is left, and then ends
//! the server and removes its files. Nothing is left behind, and nobody has to be last. Why not at once: a run goes through
//! tests that need no shared server, and those after them would have to start it anew.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use laneway::postgres::{Cluster, Settings};

use super::source;

/// Starts the server or finds it, and keeps it for the life of this process. Returns the address of its first database.
pub async fn server() -> String {
    let directory = directory();
    std::fs::create_dir_all(&directory).unwrap();
    open_to_all(&directory);
    let users = File::create(directory.join("users.lock")).unwrap();
    users.lock_shared().unwrap();
    std::mem::forget(users); // until this process ends
    let starting = File::create(directory.join("starting.lock")).unwrap();
    starting.lock().unwrap();
    clear_remains(&directory.join("data"));
    let cluster = Cluster::prepare(settings(&directory)).await.unwrap();
    if cluster.pid().unwrap().is_none() {
        let pid = cluster.start().await.unwrap();
        leave_watchdog(&directory, pid.as_raw());
    }
    cluster.url()
}

/// A server that was not made to its end, or not removed to its end, is removed now.
fn clear_remains(data: &Path) {
    if data.exists() && !data.join("pgdata/PG_VERSION").exists() {
        std::fs::remove_dir_all(data).unwrap();
    }
}

/// One per user and per set of binaries, in a place that root's PostgreSQL user can reach.
fn directory() -> PathBuf {
    let kind = match source::bin_dir() {
        Some(dir) => format!("{:x}", fnv(dir.as_os_str().as_encoded_bytes())),
        None => "default".into(),
    };
    std::env::temp_dir().join(format!("laneway-tests-{}-{kind}", nix::unistd::getuid()))
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn open_to_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn settings(directory: &Path) -> Settings {
    let mut settings = Settings::new(directory.join("data"));
    settings.bin_dir = source::bin_dir();
    // The shared server is never killed, so it need not wait for the disk; tests of durability start their own.
    settings.extra = [("fsync", "off"), ("shared_buffers", "256MB"), ("max_connections", "400")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    settings
}

#[allow(clippy::zombie_processes)] // it outlives us on purpose
fn leave_watchdog(directory: &Path, pid: i32) {
    let script = r#"
        exec 9>"$1/users.lock"
        while sleep 15; do
            flock -n -x 9 && break
        done
        [ "$(head -n 1 "$1/data/pgdata/postmaster.pid" 2>/dev/null)" = "$2" ] || exit 0 # not ours any more
        kill -INT "$2"
        while kill -0 "$2" 2>/dev/null; do sleep 0.1; done
        mv "$1/data" "$1/gone-$2"
        rm -rf "$1"/gone-*
    "#;
    Command::new("sh")
        .args(["-c", script, "laneway-test-watchdog"])
        .arg(directory)
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
}
