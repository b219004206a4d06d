//! Notices that the `postgres` file changed under a running server.
//!
//! Called by `supervisor` at a slow interval. Pure apart from one stat.
//! Why: a running server loads libraries late, and those of a new package do not fit the old process. It must
//! be restarted, but only when the package manager is done: a change counts once it was seen twice in a row.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file as it is now; any replacement changes at least one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Fingerprint {
    pub fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        Some(Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

#[derive(Debug)]
pub struct Watch {
    /// `None` = the file is gone.
    accepted: Option<Fingerprint>,
    candidate: Option<Fingerprint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Unchanged,
    /// Changed a moment ago; look again before acting.
    Settling,
    Changed,
    /// The file was removed; said once.
    Gone,
}

impl Watch {
    pub fn new(started_with: Option<Fingerprint>) -> Self {
        Self { accepted: started_with, candidate: None }
    }

    pub fn look(&mut self, now: Option<Fingerprint>) -> Verdict {
        let before = std::mem::replace(&mut self.candidate, now);
        match now {
            _ if now == self.accepted => Verdict::Unchanged,
            Some(_) if now == before => Verdict::Changed,
            Some(_) => Verdict::Settling,
            None => {
                self.accepted = None;
                Verdict::Gone
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> Option<Fingerprint> {
        Some(Fingerprint { device: 1, inode, bytes: 9, modified: (0, 0) })
    }

    #[test]
    fn a_change_counts_when_it_was_seen_twice() {
        let mut watch = Watch::new(file(1));
        assert_eq!(watch.look(file(1)), Verdict::Unchanged);
        assert_eq!(watch.look(file(2)), Verdict::Settling);
        assert_eq!(watch.look(file(3)), Verdict::Settling);
        assert_eq!(watch.look(file(3)), Verdict::Changed);
    }

    #[test]
    fn a_removed_file_is_mentioned_once_and_its_return_is_a_change() {
        let mut watch = Watch::new(file(1));
        assert_eq!(watch.look(None), Verdict::Gone);
        assert_eq!(watch.look(None), Verdict::Unchanged);
        assert_eq!(watch.look(file(2)), Verdict::Settling);
        assert_eq!(watch.look(file(2)), Verdict::Changed);
    }

    #[test]
    fn a_file_that_was_replaced_has_another_fingerprint() {
        let temp = tempfile::tempdir().unwrap();
        let (path, new) = (temp.path().join("postgres"), temp.path().join("postgres.new"));
        std::fs::write(&path, "old").unwrap();
        let before = Fingerprint::of(&path);
        std::fs::write(&new, "new").unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_ne!(Fingerprint::of(&path), before);
        assert_eq!(Fingerprint::of(&new), None);
    }
}
