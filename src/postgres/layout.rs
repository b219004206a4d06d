//! Where everything of one private server lies below its data directory.
//!
//! Called by `cluster`; pure, touches no file. `directories` makes what is named here.
//! Invariant: the socket's path fits into a socket address, else it moves to a short directory below
//! `temp_dir` whose name follows from the user and the data directory, so that the next broker finds it
//! again.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use sha2::{Digest, Sha256};

use super::error::Error;

/// The socket's name carries it; no TCP port is opened.
pub const PORT: u16 = 5432;

/// `sockaddr_un.sun_path` holds 108 bytes on Linux and 104 elsewhere, with the final NUL.
const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// 48 bits: two data directories of one user do not collide by accident, and the path stays short.
const HASH_BYTES: usize = 6;

/// Used when `temp_dir` itself is too long.
const SHORTEST_TEMP_DIR: &str = "/tmp";

#[derive(Debug, Clone)]
pub struct Layout {
    pub data_dir: PathBuf,
    pub pgdata: PathBuf,
    pub log_dir: PathBuf,
    pub lock: PathBuf,
    /// Below the data directory if its path is short enough, else below the temp directory.
    pub socket_dir: PathBuf,
}

impl Layout {
    /// `data_dir` must be canonical: two spellings of it would lead to two sockets.
    pub fn new(data_dir: &Path, temp_dir: &Path, user: Uid) -> Result<Self, Error> {
        Ok(Self {
            data_dir: data_dir.into(),
            pgdata: pgdata(data_dir),
            log_dir: data_dir.join("log"),
            lock: data_dir.join("broker.lock"),
            socket_dir: socket_dir(data_dir, temp_dir, user)?,
        })
    }
}

pub fn pgdata(data_dir: &Path) -> PathBuf {
    data_dir.join("pgdata")
}

pub fn socket(socket_dir: &Path) -> PathBuf {
    socket_dir.join(format!(".s.PGSQL.{PORT}"))
}

fn socket_dir(data_dir: &Path, temp_dir: &Path, user: Uid) -> Result<PathBuf, Error> {
    let own = data_dir.join("run");
    let short = format!("laneway-{user}-{}", hash(data_dir));
    let candidates = [own.clone(), temp_dir.join(&short), Path::new(SHORTEST_TEMP_DIR).join(&short)];
    candidates.into_iter().find(|dir| is_usable(dir)).ok_or(Error::SocketPathTooLong { path: socket(&own) })
}

/// Besides its length: libpq reads a comma as a separator of hosts, and PostgreSQL's settings are text.
fn is_usable(dir: &Path) -> bool {
    let text = dir.to_str();
    let fits = socket(dir).as_os_str().len() <= SOCKET_PATH_BYTES_MAX;
    fits && text.is_some_and(|text| !text.contains([',', '\n']))
}

fn hash(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_bytes());
    hex(&digest[..HASH_BYTES])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// A URL that libpq and tokio-postgres read. No password: the socket directory's mode protects it.
pub fn url(socket_dir: &Path, user: &str, database: &str) -> String {
    format!("postgresql://{user}@/{database}?host={}", percent_encoded(socket_dir))
}

fn percent_encoded(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte))
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, prop_assert_eq, proptest};
    use tokio_postgres::config::Host;

    use super::*;

    fn at(data_dir: &str) -> PathBuf {
        socket_dir(Path::new(data_dir), Path::new("/tmp"), Uid::from_raw(7)).unwrap()
    }

    #[test]
    fn a_short_data_directory_holds_its_own_socket() {
        assert_eq!(at("/var/lib/laneway"), Path::new("/var/lib/laneway/run"));
    }

    #[test]
    fn a_path_of_exactly_the_limit_is_still_used() {
        let tail = "/run/.s.PGSQL.5432".len();
        let longest = format!("/{}", "d".repeat(SOCKET_PATH_BYTES_MAX - tail - 1));
        assert_eq!(at(&longest), Path::new(&longest).join("run"));
        assert!(at(&format!("{longest}d")).starts_with("/tmp"));
    }

    #[test]
    fn a_long_temp_directory_is_passed_over() {
        let long = PathBuf::from(format!("/{}", "t".repeat(200)));
        let dir = socket_dir(&long, &long, Uid::from_raw(7)).unwrap();
        assert!(dir.starts_with("/tmp/"), "{dir:?}");
    }

    proptest! {
        #[test]
        fn every_data_directory_gets_a_socket_path_that_fits(name in "[^/\0]{1,250}") {
            let dir = at(&format!("/{name}"));
            prop_assert!(socket(&dir).as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
        }

        #[test]
        fn the_url_leads_back_to_the_same_directory(name in "[^\0]{1,80}") {
            let dir = PathBuf::from(format!("/{name}"));
            let config: tokio_postgres::Config = url(&dir, "laneway", "laneway").parse().unwrap();
            prop_assert_eq!(config.get_hosts(), &[Host::Unix(dir)]);
            prop_assert_eq!((config.get_user(), config.get_dbname()), (Some("laneway"), Some("laneway")));
        }
    }
}
