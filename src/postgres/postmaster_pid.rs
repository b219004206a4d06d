//! Reads `postmaster.pid`, PostgreSQL's own note about who serves a data directory.
//!
//! Called by `cluster` and `process`. The file may be stale, or half written by a server that just starts:
//! only the pid is certain to be there, and it proves nothing until `process::presence` confirms it.

use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use super::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostmasterPid {
    pub pid: Pid,
    /// `None` until the server listens.
    pub endpoint: Option<Endpoint>,
}

/// Where a server says it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub port: u16,
    pub socket_dir: PathBuf,
}

/// `None` = there is no such file, or nothing in it that names a server.
pub fn read(pgdata: &Path) -> Result<Option<PostmasterPid>, Error> {
    let path = pgdata.join("postmaster.pid");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Lines: pid, data directory, start time, port, first socket directory, first TCP address, shared memory,
/// status. A negative pid is a single-user backend, which serves nobody.
fn parse(text: &str) -> Option<PostmasterPid> {
    let mut lines = text.lines().map(str::trim);
    let pid: i32 = lines.next()?.parse().ok().filter(|pid| *pid > 0)?;
    let port = lines.nth(2).and_then(|line| line.parse().ok());
    let socket_dir = lines.next().filter(|line| !line.is_empty()).map(PathBuf::from);
    let endpoint = port.zip(socket_dir).map(|(port, socket_dir)| Endpoint { port, socket_dir });
    Some(PostmasterPid { pid: Pid::from_raw(pid), endpoint })
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::*;

    const READY: &str = "4242\n/d/pgdata\n1754000000\n5432\n/d/run\n\n  5432001   65536\nready   \n";

    #[test]
    fn a_full_file_names_pid_and_endpoint() {
        let endpoint = Endpoint { port: 5432, socket_dir: "/d/run".into() };
        let expected = PostmasterPid { pid: Pid::from_raw(4242), endpoint: Some(endpoint) };
        assert_eq!(parse(READY), Some(expected));
    }

    #[test]
    fn a_server_that_does_not_listen_yet_has_no_endpoint() {
        let starting = parse("4242\n/d/pgdata\n1754000000\n5432\n\n").unwrap();
        assert_eq!(starting.endpoint, None);
        assert_eq!(parse("4242\n").unwrap().endpoint, None);
    }

    #[test]
    fn a_file_without_a_server_names_nobody() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("-77\n/d/pgdata\n"), None);
        assert_eq!(parse("garbage"), None);
    }

    proptest! {
        #[test]
        fn whatever_stands_in_the_file_a_pid_is_positive(text in "(?s).{0,200}") {
            prop_assert!(parse(&text).is_none_or(|file| file.pid.as_raw() > 0));
        }

        #[test]
        fn a_file_cut_off_anywhere_is_read_without_panic(end in 0usize..60) {
            let _ = parse(&READY[..end.min(READY.len())]);
        }
    }
}
