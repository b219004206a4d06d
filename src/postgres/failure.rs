//! Reads from what PostgreSQL said why it does not start.
//!
//! Called by `cluster` after a start that failed, and by `initdb`. Pure.
//! Invariant: only causes that stay until a person acts are listed. What passes by itself (orphaned backends
//! still in the old shared memory, a postmaster.pid of a server that is just leaving) is not, so that it is
//! tried again.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    DiskFull,
    IncompatibleFiles,
    DamagedFiles,
    SharedMemory,
    Permission,
    SocketInUse,
    Configuration,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::DiskFull => "the disk is full; free some space and start Laneway again",
            Cause::IncompatibleFiles => {
                "the data directory was made by another version or build; install that version, or use \
                 pg_upgrade"
            }
            Cause::DamagedFiles => "the data directory is damaged; restore it from a backup",
            Cause::SharedMemory => {
                "the system gives it too little shared memory or too few semaphores; raise the limits of \
                 the kernel or the container, or give the machine more memory"
            }
            Cause::Permission => {
                "its user may not use a file or directory it needs; give the data directory back to that \
                 user"
            }
            Cause::SocketInUse => {
                "another server uses its socket; stop that server, or choose another --data-dir"
            }
            Cause::Configuration => {
                "its configuration has an error; correct postgresql.conf or what ALTER SYSTEM wrote to \
                 postgresql.auto.conf"
            }
        })
    }
}

/// Passes by itself within moments, although it contains words of a permanent cause.
const PASSING: [&str; 2] =
    ["pre-existing shared memory block", "lock file \"postmaster.pid\" already exists"];

/// The first cause whose words appear in a line wins.
/// Order: shared memory before the disk, because the kernel reports its lack as "No space left on device"
/// too.
const PERMANENT: [(Cause, &[&str]); 7] = [
    (
        Cause::SharedMemory,
        &[
            "could not create shared memory segment",
            "could not map anonymous shared memory",
            "could not resize shared memory segment",
            "could not open shared memory segment",
            "could not create semaphores",
        ],
    ),
    (Cause::DiskFull, &["No space left on device", "Disk quota exceeded"]),
    (
        Cause::IncompatibleFiles,
        &[
            "database files are incompatible with server",
            "was initialized by PostgreSQL version",
            "is not compatible with this version",
        ],
    ),
    (
        Cause::DamagedFiles,
        &[
            "could not locate a valid checkpoint record",
            "could not locate required checkpoint record",
            "incorrect checksum in control file",
            "is not a valid data directory",
            "could not find the database system",
            "invalid data in file",
        ],
    ),
    (
        Cause::SocketInUse,
        &[
            "could not bind Unix address",
            ".s.PGSQL.5432.lock\" already exists",
            "could not create any Unix-domain sockets",
        ],
    ),
    (
        Cause::Configuration,
        &[
            "unrecognized configuration parameter",
            "invalid value for parameter",
            "is outside the valid range for parameter",
            "syntax error in file",
            "contains errors",
            "could not load library",
            "could not access file",
            "could not load pg_hba.conf",
            "must be less than \"max_connections\"",
        ],
    ),
    (
        Cause::Permission,
        &[
            "Permission denied",
            "Operation not permitted",
            "Read-only file system",
            "has wrong ownership",
            "has invalid permissions",
            "must be started by the user",
            "execution of the PostgreSQL server is not permitted",
        ],
    ),
];

/// The first line that names a permanent cause, with the cause. `None` = nothing known: try again.
pub fn classify(lines: &[String]) -> Option<(Cause, &str)> {
    lines.iter().find_map(|line| Some((cause_of(line)?, line.as_str())))
}

fn cause_of(line: &str) -> Option<Cause> {
    let says_any = |phrases: &[&str]| phrases.iter().any(|phrase| line.contains(phrase));
    if says_any(&PASSING) {
        return None;
    }
    PERMANENT.iter().find(|(_, phrases)| says_any(phrases)).map(|(cause, _)| *cause)
}

/// For a failure without a known cause: the line that tells most.
pub fn telling_line(lines: &[String]) -> Option<String> {
    let serious = |line: &&String| is_serious(line);
    lines.iter().rev().find(serious).or(lines.last()).cloned()
}

/// Lines by which a server ends. "The database system is starting up" is what it answers to our own probes.
pub fn is_serious(line: &str) -> bool {
    (line.contains("FATAL:") || line.contains("PANIC:")) && !line.contains("the database system is")
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    fn cause(line: &str) -> Option<Cause> {
        cause_of(line)
    }

    #[test]
    fn the_words_of_real_servers_are_understood() {
        let real = [
            (
                Cause::DiskFull,
                "PANIC:  could not write to file \"pg_wal/xlogtemp.31\": No space left on device",
            ),
            (
                Cause::DiskFull,
                "FATAL:  could not write lock file \"postmaster.pid\": No space left on device",
            ),
            (Cause::IncompatibleFiles, "FATAL:  database files are incompatible with server"),
            (Cause::DamagedFiles, "PANIC:  could not locate a valid checkpoint record"),
            (Cause::SharedMemory, "FATAL:  could not create shared memory segment: No space left on device"),
            (Cause::SharedMemory, "FATAL:  could not map anonymous shared memory: Cannot allocate memory"),
            (Cause::Permission, "FATAL:  data directory \"/d/pgdata\" has invalid permissions"),
            (Cause::Permission, "FATAL:  could not open file \"global/pg_control\": Permission denied"),
            (Cause::SocketInUse, "FATAL:  lock file \"/d/run/.s.PGSQL.5432.lock\" already exists"),
            (
                Cause::Configuration,
                "LOG:  unrecognized configuration parameter \"sharde_buffers\" in file \"x\" line 3",
            ),
            (Cause::Configuration, "FATAL:  configuration file \"/d/pgdata/laneway.conf\" contains errors"),
        ];
        for (expected, line) in real {
            assert_eq!(cause(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn what_passes_by_itself_is_not_permanent() {
        let passing = [
            "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use",
            "FATAL:  lock file \"postmaster.pid\" already exists",
            "FATAL:  the database system is starting up",
            "FATAL:  sorry, too many clients already",
            "LOG:  database system was interrupted; last known up at 2026-01-01 00:00:00 UTC",
        ];
        for line in passing {
            assert_eq!(cause(line), None, "{line}");
        }
    }

    #[test]
    fn the_first_line_with_a_cause_is_the_one_shown() {
        let lines = [
            "LOG:  starting",
            "LOG:  invalid value for parameter \"jit\": \"maybe\"",
            "FATAL:  file contains errors",
        ];
        let lines = lines.map(str::to_owned);
        assert_eq!(classify(&lines), Some((Cause::Configuration, lines[1].as_str())));
    }

    #[test]
    fn the_telling_line_is_the_last_serious_one_not_an_answer_to_a_probe() {
        let lines =
            ["FATAL:  a bolt broke", "FATAL:  the database system is starting up", "LOG:  shutting down"];
        assert_eq!(telling_line(&lines.map(str::to_owned)).as_deref(), Some("FATAL:  a bolt broke"));
        assert_eq!(telling_line(&[]), None);
    }

    proptest! {
        #[test]
        fn a_cause_is_found_wherever_its_line_stands(before in 0usize..5, after in 0usize..5) {
            let mut lines = vec!["LOG:  all is well".to_owned(); before + after];
            lines.insert(before, "FATAL:  could not write: No space left on device".to_owned());
            prop_assert_eq!(classify(&lines).map(|(cause, _)| cause), Some(Cause::DiskFull));
        }
    }
}
