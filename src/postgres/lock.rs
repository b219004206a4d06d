//! The broker's own lock on its data directory.
//!
//! Called by `private` before anything is changed. Not PostgreSQL's postmaster.pid: a postmaster may outlive
//! its broker, and the next broker must be able to tell "my predecessor died" from "my predecessor works".
//! Invariant: the lock goes with the process, however it ends; the file stays and is never removed.
//! Invariant: PostgreSQL does not inherit it, because Rust opens every file close-on-exec.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use super::error::Error;
use super::layout::Layout;

/// Held for as long as this broker cares for the data directory.
#[derive(Debug)]
pub struct BrokerLock {
    _file: File,
}

impl BrokerLock {
    pub fn acquire(layout: &Layout) -> Result<Self, Error> {
        let path = &layout.lock;
        let mut file = open(path)?;
        match file.try_lock() {
            Ok(()) => {
                write_pid(&mut file).map_err(Error::io("write", path))?;
                Ok(Self { _file: file })
            }
            Err(TryLockError::WouldBlock) => {
                Err(Error::Locked { data_dir: layout.data_dir.clone(), holder: read_pid(&mut file) })
            }
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        }
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644);
    options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path).map_err(Error::io("open", path))
}

/// For the person who is refused; nothing decides by it.
fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn a_held_lock_refuses_and_names_directory_and_holder_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), dir.path(), geteuid()).unwrap();
        let held = BrokerLock::acquire(&layout).unwrap();
        let refused = BrokerLock::acquire(&layout).unwrap_err().to_string();
        assert!(refused.contains(dir.path().to_str().unwrap()), "{refused}");
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(held);
        BrokerLock::acquire(&layout).unwrap();
    }
}
