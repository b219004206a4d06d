//! Is the process of this pid the postmaster of this data directory? And: signals to it.
//!
//! Called by `cluster` and `postmaster`. Pids are reused, so a pid alone proves nothing.
//! Why several sources: the working directory is proof (a postmaster lives in its data directory), but root
//! without CAP_SYS_PTRACE, as in most containers, may not read that of another user; the command line is open
//! to all. Where there is no /proc, only postmaster.pid itself speaks.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::error::Error;
use super::postmaster_pid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// No such process, or a zombie.
    Absent,
    /// The postmaster of the data directory.
    Postmaster,
    /// Certainly something else: the pid was reused.
    Stranger,
    /// A PostgreSQL process of which we cannot see the data directory: PostgreSQL has to judge.
    Unclear,
}

/// A server owns its data directory; whoever runs as another user is not it.
pub fn presence(pid: Pid, pgdata: &Path) -> Presence {
    if signal::kill(pid, None) == Err(Errno::ESRCH) {
        return Presence::Absent;
    }
    if !Path::new("/proc/self/cwd").exists() {
        return by_pid_file(pid, pgdata);
    }
    let entry = Path::new("/proc").join(pid.to_string());
    match (fs::metadata(&entry), fs::metadata(pgdata)) {
        (Ok(process), Ok(data)) if process.uid() != data.uid() => Presence::Stranger,
        (Ok(_), Ok(data)) => by_entry(&entry, pgdata, &data),
        (Err(_), _) => Presence::Absent,
        (Ok(_), Err(_)) => Presence::Unclear,
    }
}

fn by_entry(entry: &Path, pgdata: &Path, data: &fs::Metadata) -> Presence {
    match fs::metadata(entry.join("cwd")) {
        Ok(cwd) if (cwd.dev(), cwd.ino()) == (data.dev(), data.ino()) => Presence::Postmaster,
        Ok(_) => Presence::Stranger,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => by_command_line(entry, pgdata),
        Err(_) => Presence::Absent, // exited, or a zombie
    }
}

fn by_command_line(entry: &Path, pgdata: &Path) -> Presence {
    match fs::read(entry.join("cmdline")) {
        Ok(line) => judge_command_line(&line, pgdata),
        Err(_) => Presence::Absent,
    }
}

/// `/usr/lib/postgresql/15/bin/postgres\0-D\0/data/pgdata\0`; empty for a zombie.
fn judge_command_line(line: &[u8], pgdata: &Path) -> Presence {
    let line = String::from_utf8_lossy(line);
    let mut arguments = line.split('\0').filter(|argument| !argument.is_empty());
    let Some(program) = arguments.next() else {
        return Presence::Absent;
    };
    let name = program.rsplit('/').next().unwrap_or(program);
    if !name.starts_with("postgres") && name != "postmaster" {
        return Presence::Stranger;
    }
    let ours = arguments.any(|argument| Path::new(argument.trim_start_matches("-D")) == pgdata);
    if ours { Presence::Postmaster } else { Presence::Unclear }
}

fn by_pid_file(pid: Pid, pgdata: &Path) -> Presence {
    let named = postmaster_pid::read(pgdata).ok().flatten().is_some_and(|file| file.pid == pid);
    if named { Presence::Postmaster } else { Presence::Stranger }
}

/// A process that is gone meanwhile is no error: whoever waits for it will notice.
pub fn send(pid: Pid, signal: Signal) -> Result<(), Error> {
    match signal::kill(pid, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(source) => Err(Error::SignalDenied { pid, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PGDATA: &str = "/d/pgdata";

    fn judged(line: &str) -> Presence {
        judge_command_line(line.as_bytes(), Path::new(PGDATA))
    }

    #[test]
    fn a_postmaster_is_known_by_the_data_directory_in_its_command_line() {
        assert_eq!(judged("/usr/lib/postgresql/15/bin/postgres\0-D\0/d/pgdata\0"), Presence::Postmaster);
        assert_eq!(judged("postgres\0-D/d/pgdata\0"), Presence::Postmaster);
    }

    #[test]
    fn another_cluster_is_left_for_postgres_to_judge() {
        assert_eq!(judged("postgres\0-D\0/other\0"), Presence::Unclear);
        assert_eq!(judged("postgres: checkpointer \0"), Presence::Unclear);
    }

    #[test]
    fn another_program_is_a_stranger_even_when_it_names_the_directory() {
        assert_eq!(judged("vim\0/d/pgdata\0"), Presence::Stranger);
    }

    #[test]
    fn a_zombie_is_absent() {
        assert_eq!(judged(""), Presence::Absent);
    }

    #[test]
    fn this_test_is_a_stranger_to_any_data_directory_but_its_own_working_directory() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(presence(nix::unistd::getpid(), temp.path()), Presence::Stranger);
    }
}
