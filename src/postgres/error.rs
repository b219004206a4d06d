//! Everything that can go wrong with the private PostgreSQL, each with its facts as fields and a sentence
//! that names the fix. `serve` prints the sentence and ends; it never needs to look inside.
//!
//! `recovery()` is the one place that decides between trying again and giving up; the supervisor obeys it.
//! Invariant: an error that the next try cannot change is `Permanent`, so that there is no restart loop.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::failure::Cause;
use super::version::{MAJOR_MIN, Version};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "No PostgreSQL {MAJOR_MIN} or newer was found on PATH or in the usual places: install its server \
         binaries (Debian and Ubuntu: `apt-get install postgresql`; you need not create a cluster, \
         Laneway makes its own), or give --database-url to use a server that already runs."
    )]
    BinariesMissing,

    #[error(
        "The directory {} given for PostgreSQL's binaries has no working `{missing}`: name the directory \
         that holds both `postgres` and `initdb`.",
        bin_dir.display()
    )]
    BinDirIncomplete { bin_dir: PathBuf, missing: &'static str },

    #[error(
        "The newest PostgreSQL found is {newest} in {}, but Laneway needs {MAJOR_MIN} or newer: install \
         a newer one, or give --database-url to use a server that already runs.",
        bin_dir.display()
    )]
    BinariesTooOld { bin_dir: PathBuf, newest: Version },

    #[error(
        "The data directory {} was made by PostgreSQL {data_major}, but this machine only has {}: \
         install PostgreSQL {data_major} (Debian and Ubuntu: `apt-get install postgresql-{data_major}`), \
         or bring the directory to the installed version with pg_upgrade.",
        pgdata.display(), majors(found)
    )]
    MajorMismatch { pgdata: PathBuf, data_major: u32, found: Vec<u32> },

    #[error(
        "The data directory {} was made by PostgreSQL {data_major}, but Laneway needs {MAJOR_MIN} or newer: \
         bring it to a newer version with pg_upgrade, or choose another directory with --data-dir.",
        pgdata.display()
    )]
    DataTooOld { pgdata: PathBuf, data_major: u32 },

    #[error(
        "The file {} does not hold a PostgreSQL version: restore the data directory from a backup, or \
         choose another one with --data-dir.", path.display()
    )]
    VersionFileUnreadable { path: PathBuf },

    #[error("There is no user `{name}` to run PostgreSQL as: create it, or name another user.")]
    AccountUnknown { name: String },

    #[error("PostgreSQL refuses to run as root, and `{name}` is root: name an unprivileged user.")]
    AccountIsRoot { name: String },

    #[error(
        "Only root can run PostgreSQL as `{name}`: start Laneway as root or as `{name}`, or name no \
         user."
    )]
    AccountNotOurs { name: String },

    #[error(
        "Neither XDG_DATA_HOME nor HOME is an absolute path: say where to keep the database with \
         --data-dir."
    )]
    HomeUnknown,

    #[error(
        "PostgreSQL will run as `{account}`, who may not enter {}: run `chmod o+x {}`, or choose a data \
         directory that `{account}` can reach with --data-dir.", dir.display(), dir.display()
    )]
    Unreachable { dir: PathBuf, account: String },

    #[error(
        "{} belongs to user id {owner}, but PostgreSQL would run as `{account}`: run it as its owner, or \
         give it away with `chown -R {account} {}`.", path.display(), path.display()
    )]
    NotOwned { path: PathBuf, owner: u32, account: String },

    #[error(
        "{} is neither empty nor a PostgreSQL cluster (it has no PG_VERSION): move its contents away, or \
         choose another directory with --data-dir.", pgdata.display()
    )]
    NotACluster { pgdata: PathBuf },

    #[error(
        "The socket directory {} is not a private directory (mode 0700) of `{account}`, so others could \
         reach or impersonate the database: remove it and start again.", dir.display()
    )]
    SocketDirUnsafe { dir: PathBuf, account: String },

    #[error(
        "The path {} is too long for a Unix socket: choose a shorter --data-dir or TMPDIR.", path.display()
    )]
    SocketPathTooLong { path: PathBuf },

    #[error(
        "The data directory {} is in use by another Laneway process{}: stop that one, choose another \
         directory with --data-dir, or join its database with --database-url.",
        data_dir.display(), holder_clause(*holder)
    )]
    Locked { data_dir: PathBuf, holder: Option<u32> },

    #[error(
        "Only {} MiB are free where {} lies, and PostgreSQL needs at least {} MiB to start: free some \
         space, or choose a data directory on another disk with --data-dir.",
        free_bytes >> 20, dir.display(), needed_bytes >> 20
    )]
    DiskLow { dir: PathBuf, free_bytes: u64, needed_bytes: u64 },

    #[error("`{name}` is not the name of a PostgreSQL setting: use letters, digits, `_` and `.` only.")]
    SettingName { name: String },

    #[error(
        "initdb could not create a database cluster in {}: correct what it says and start again. It \
         said: {said}",
        dir.display()
    )]
    InitdbFailed { dir: PathBuf, said: String },

    #[error("PostgreSQL cannot start because {cause}. It said: {line} (full log in {}).", log_dir.display())]
    Refused { cause: Cause, line: String, log_dir: PathBuf },

    #[error("PostgreSQL ended with {status}{}; see the log in {}.", said(line), log_dir.display())]
    Exited { status: String, line: Option<String>, log_dir: PathBuf },

    #[error(
        "Another PostgreSQL, of the data directory {}, answers on the socket in {}: stop it, or choose \
         another --data-dir.", theirs.display(), socket_dir.display()
    )]
    OtherServer { socket_dir: PathBuf, theirs: PathBuf },

    #[error("The database `{name}` could not be created in the private PostgreSQL: {source}.")]
    DatabaseMissing { name: &'static str, source: tokio_postgres::Error },

    #[error("PostgreSQL (pid {pid}) still runs {} s after it was told to stop: look at it, then start again.",
        waited.as_secs())]
    StillRunning { pid: Pid, waited: Duration },

    #[error(
        "PostgreSQL (pid {pid}) could not be signalled ({source}): start Laneway as root or as its \
         owner."
    )]
    SignalDenied { pid: Pid, source: Errno },

    #[error("`{}` could not be run as `{account}` ({source}): check that this user may execute it.",
        program.display())]
    SpawnFailed { program: PathBuf, account: String, source: io::Error },

    #[error("Could not {action} {} ({source}): check the permissions and the disk.", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error(
        "The task that watches PostgreSQL is gone; the database may still run: start Laneway again to \
         adopt it."
    )]
    SupervisorGone,
}

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// May pass by itself: try again, with growing pauses.
    Transient,
    /// Stays until a person acts: say so and stop trying.
    Permanent,
}

impl Error {
    pub fn recovery(&self) -> Recovery {
        match self {
            Error::Exited { .. } | Error::DatabaseMissing { .. } | Error::StillRunning { .. } => {
                Recovery::Transient
            }
            Error::SpawnFailed { source, .. } | Error::Io { source, .. } => of_io(source),
            Error::BinariesMissing
            | Error::BinDirIncomplete { .. }
            | Error::BinariesTooOld { .. }
            | Error::MajorMismatch { .. }
            | Error::DataTooOld { .. }
            | Error::VersionFileUnreadable { .. }
            | Error::AccountUnknown { .. }
            | Error::AccountIsRoot { .. }
            | Error::AccountNotOurs { .. }
            | Error::HomeUnknown
            | Error::Unreachable { .. }
            | Error::NotOwned { .. }
            | Error::NotACluster { .. }
            | Error::SocketDirUnsafe { .. }
            | Error::SocketPathTooLong { .. }
            | Error::Locked { .. }
            | Error::DiskLow { .. }
            | Error::SettingName { .. }
            | Error::InitdbFailed { .. }
            | Error::Refused { .. }
            | Error::OtherServer { .. }
            | Error::SignalDenied { .. }
            | Error::SupervisorGone => Recovery::Permanent,
        }
    }

    /// For `map_err` beside a file operation: `Error::io("write", &path)`.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { action, path, source }
    }
}

/// Lack of processes, descriptors or memory passes; lack of permission, files or disk does not.
fn of_io(error: &io::Error) -> Recovery {
    use io::ErrorKind as K;
    match error.kind() {
        K::PermissionDenied | K::NotFound | K::StorageFull | K::QuotaExceeded | K::ReadOnlyFilesystem => {
            Recovery::Permanent
        }
        _ => Recovery::Transient,
    }
}

fn majors(found: &[u32]) -> String {
    let found: Vec<String> = found.iter().map(|major| format!("PostgreSQL {major}")).collect();
    found.join(" and ")
}

fn holder_clause(holder: Option<u32>) -> String {
    holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

fn said(line: &Option<String>) -> String {
    line.as_ref().map(|line| format!(", saying: {line}")).unwrap_or_default()
}
