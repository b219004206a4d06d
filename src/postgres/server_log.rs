//! What the server said since a given moment.
//!
//! Called by `cluster`: a mark before each start, the new lines after a failure or while it recovers. Two
//! sources: startup.log holds what postgres prints before its log collector runs, postgresql-<weekday>.log
//! the rest.
//! Bounded: only the last part of a file is read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::account::Account;
use super::error::Error;
use super::failure;
use super::foreign;

const STARTUP_LOG: &str = "startup.log";

/// A failed start says a few lines; a long recovery a few hundred.
const TAIL_BYTES_MAX: u64 = 64 * 1024;

/// How long each file was at some moment.
#[derive(Debug, Clone, Default)]
pub struct LogMark {
    lengths: BTreeMap<PathBuf, u64>,
}

impl LogMark {
    pub fn now(log_dir: &Path) -> Self {
        let with_length = |path: PathBuf| Some((path.clone(), fs::metadata(&path).ok()?.len()));
        Self { lengths: server_logs(log_dir).into_iter().filter_map(with_length).collect() }
    }

    fn start_of(&self, path: &Path, length: u64) -> u64 {
        let marked = self.lengths.get(path).copied().unwrap_or(0);
        let new = if marked <= length { marked } else { 0 }; // truncated since: all of it is new
        new.max(length.saturating_sub(TAIL_BYTES_MAX))
    }
}

/// A fresh startup.log for the output of a new server.
pub fn create_startup_log(log_dir: &Path, account: &Account) -> Result<File, Error> {
    foreign::create_anew(&log_dir.join(STARTUP_LOG), account)
}

/// All lines of startup.log, then those lines of the server's logs since the mark by which a server ends.
pub fn serious_since(log_dir: &Path, mark: &LogMark) -> Vec<String> {
    let mut lines = read_from(&log_dir.join(STARTUP_LOG), &LogMark::default());
    lines.retain(|line| !line.contains("HINT:") && !line.contains("redirecting log output"));
    let server = server_logs(log_dir).into_iter().flat_map(|path| read_from(&path, mark));
    lines.extend(server.filter(|line| failure::is_serious(line)));
    lines
}

/// What a server that is not ready yet works on, in its own words.
pub fn last_since(log_dir: &Path, mark: &LogMark) -> Option<String> {
    let lines = server_logs(log_dir).into_iter().flat_map(|path| read_from(&path, mark));
    let mut news: Vec<String> = lines.filter(|line| line.contains("LOG:")).collect();
    news.pop()
}

/// From the one written to least recently to the current one.
fn server_logs(log_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(log_dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut logs: Vec<PathBuf> = entries.filter(|path| is_server_log(path)).collect();
    logs.sort_by_key(|path| fs::symlink_metadata(path).and_then(|file| file.modified()).ok());
    logs
}

fn is_server_log(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("postgresql-") && name.ends_with(".log")
}

fn read_from(path: &Path, mark: &LogMark) -> Vec<String> {
    let text = read_tail(path, mark).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

fn read_tail(path: &Path, mark: &LogMark) -> io::Result<Vec<u8>> {
    let mut file = foreign::open_to_read(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(mark.start_of(path, length)))?;
    let mut text = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_said_since_the_mark_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("postgresql-Mon.log");
        fs::write(&log, "x FATAL:  old\n").unwrap();
        let mark = LogMark::now(temp.path());
        assert!(serious_since(temp.path(), &mark).is_empty());
        fs::write(&log, "x FATAL:  old\nx LOG:  chatter\nx FATAL:  new\n").unwrap();
        assert_eq!(serious_since(temp.path(), &mark), ["x FATAL:  new"]);
        assert_eq!(last_since(temp.path(), &mark).as_deref(), Some("x LOG:  chatter"));
    }

    #[test]
    fn a_truncated_log_is_read_from_its_beginning() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("postgresql-Mon.log");
        fs::write(&log, "x".repeat(1000)).unwrap();
        let mark = LogMark::now(temp.path());
        fs::write(&log, "x PANIC:  new week\n").unwrap();
        assert_eq!(serious_since(temp.path(), &mark), ["x PANIC:  new week"]);
    }

    #[test]
    fn a_link_in_the_log_directory_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let secret = temp.path().join("secret");
        fs::write(&secret, "FATAL:  secret\n").unwrap();
        std::os::unix::fs::symlink(&secret, temp.path().join("postgresql-Mon.log")).unwrap();
        assert!(serious_since(temp.path(), &LogMark::default()).is_empty());
    }

    #[test]
    fn a_huge_log_is_read_only_at_its_end() {
        let temp = tempfile::tempdir().unwrap();
        let chatter = "x LOG:  chatter\n".repeat(20_000);
        fs::write(temp.path().join("postgresql-Mon.log"), format!("{chatter}x FATAL:  end\n")).unwrap();
        assert_eq!(serious_since(temp.path(), &LogMark::default()), ["x FATAL:  end"]);
    }
}
