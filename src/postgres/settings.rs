//! What a caller may decide about the private PostgreSQL: where it lives, whose binaries, who runs it, how
//! fast the supervisor reacts.
//!
//! Called by `serve`, the bench and the tests. Reads the environment only in the named constructors
//! (`Settings::new`, `Places::of_this_machine`, `default_data_dir`); everything below takes paths as
//! arguments. I do not check anything here: `Cluster::open` does, and its errors name the fix.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, geteuid};

use super::error::Error;

/// Where a service that root starts keeps its state (Filesystem Hierarchy Standard); any user can reach it.
const DATA_DIR_OF_ROOT: &str = "/var/lib/laneway";

#[derive(Debug, Clone)]
pub struct Settings {
    /// Everything of the private server lies below it.
    pub data_dir: PathBuf,
    /// Use exactly these binaries and search nowhere else.
    pub bin_dir: Option<PathBuf>,
    /// The account of the server when root starts us.
    pub run_as: Option<String>,
    /// PostgreSQL settings that win over the fitted ones, for tests and bench.
    pub extra: Vec<(String, String)>,
    /// Where to search for binaries when `bin_dir` is not given.
    pub places: Places,
    /// Holds the socket when the data directory's own path is too long for one.
    pub temp_dir: PathBuf,
    pub pace: Pace,
}

impl Settings {
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            bin_dir: None,
            run_as: None,
            extra: Vec::new(),
            places: Places::of_this_machine(),
            temp_dir: std::env::temp_dir(),
            pace: Pace::default(),
        }
    }
}

/// Where binaries may be: first the directories of a PATH, then path patterns with at most one `*` in them.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub path: Option<OsString>,
    pub patterns: Vec<String>,
}

impl Places {
    pub fn of_this_machine() -> Self {
        let patterns = USUAL_PLACES.iter().map(ToString::to_string).collect();
        Self { path: std::env::var_os("PATH"), patterns }
    }
}

/// Why: distributions keep the server's binaries off PATH so that several majors can live side by side.
const USUAL_PLACES: [&str; 12] = [
    "/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
    "/usr/pgsql-*/bin",                                   // Fedora, RHEL: the project's own packages
    "/usr/lib/postgresql*/bin",                           // openSUSE
    "/usr/lib64/postgresql-*/bin",                        // Gentoo
    "/usr/libexec/postgresql*",                           // Alpine
    "/usr/local/pgsql/bin",                               // built from source
    "/usr/local/bin",                                     // FreeBSD
    "/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
    "/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
    "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    // Homebrew on Linux
    "/opt/local/lib/postgresql*/bin",                     // MacPorts
    "/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
];

/// How fast the supervisor reacts. The defaults are meant for production; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// First pause after a failure: long enough for orphaned backends to leave the shared memory.
    pub backoff_min: Duration,
    /// Longest pause: an operator who repaired the cause should not wait noticeably longer.
    pub backoff_max: Duration,
    /// A server that ran this long was healthy; its next failure counts as the first.
    pub healthy_after: Duration,
    /// How often the binary is compared with the one that was started. Upgrades are rare, a stat is cheap.
    pub upgrade_check: Duration,
    /// How often the socket is tried; it can vanish while the postmaster lives (a cleaner of the temp
    /// directory).
    pub listener_check: Duration,
    /// How often an adopted postmaster, whose exit nobody reports to us, is looked at.
    pub adopted_check: Duration,
    /// How long a fast shutdown may take: it writes a checkpoint.
    pub stop_timeout: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_millis(200),
            backoff_max: Duration::from_secs(30),
            healthy_after: Duration::from_secs(60),
            upgrade_check: Duration::from_secs(30),
            listener_check: Duration::from_secs(5),
            adopted_check: Duration::from_millis(250),
            stop_timeout: Duration::from_secs(60),
        }
    }
}

/// Where `serve` keeps its database when no `--data-dir` is given.
pub fn default_data_dir() -> Result<PathBuf, Error> {
    data_dir_of(geteuid(), std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))
}

/// The XDG specification says that a relative XDG_DATA_HOME must be ignored.
fn data_dir_of(user: Uid, xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, Error> {
    let absolute = |dir: &PathBuf| dir.is_absolute();
    if user.is_root() {
        return Ok(PathBuf::from(DATA_DIR_OF_ROOT));
    }
    if let Some(xdg) = xdg.map(PathBuf::from).filter(absolute) {
        return Ok(xdg.join("laneway"));
    }
    let home = home.map(PathBuf::from).filter(absolute).ok_or(Error::HomeUnknown)?;
    Ok(home.join(Path::new(".local/share/laneway")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uid: u32, xdg: Option<&str>, home: Option<&str>) -> Result<PathBuf, Error> {
        data_dir_of(Uid::from_raw(uid), xdg.map(OsString::from), home.map(OsString::from))
    }

    #[test]
    fn root_keeps_its_database_where_other_users_can_reach_it() {
        assert_eq!(of(0, Some("/x"), Some("/root")).unwrap(), Path::new("/var/lib/laneway"));
    }

    #[test]
    fn a_user_keeps_it_in_the_xdg_data_home_or_below_the_home_directory() {
        assert_eq!(of(7, Some("/x"), Some("/home/a")).unwrap(), Path::new("/x/laneway"));
        let below_home = Path::new("/home/a/.local/share/laneway");
        assert_eq!(of(7, None, Some("/home/a")).unwrap(), below_home);
        assert_eq!(of(7, Some("relative"), Some("/home/a")).unwrap(), below_home);
    }

    #[test]
    fn a_user_without_a_home_is_told_to_name_a_directory() {
        let error = of(7, None, None).unwrap_err();
        assert!(error.to_string().contains("--data-dir"), "{error}");
    }
}
