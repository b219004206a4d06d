//! Makes the directories of a private server, each with the owner and mode that PostgreSQL and we need.
//!
//! Called by `cluster` before anything runs. Never changes a directory that was there before: if its owner
//! does not fit, the error says so.
//! Invariant: as root we keep the data directory itself, so that PostgreSQL's user cannot replace the
//! broker's lock.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::account::Account;
use super::error::Error;
use super::layout::Layout;

/// PostgreSQL demands it for its data, and for the socket it is the only protection: connections are trusted.
pub const PRIVATE_MODE: u32 = 0o700;

/// As root: PostgreSQL's user must pass through, but may not write.
const DATA_DIR_MODE_OF_ROOT: u32 = 0o755;

/// Makes the data directory if needed and answers its canonical path.
pub fn make_data_dir(data_dir: &Path) -> Result<PathBuf, Error> {
    let mode = if geteuid().is_root() { DATA_DIR_MODE_OF_ROOT } else { PRIVATE_MODE };
    if let Some(parent) = data_dir.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create the directory", parent))?;
    }
    match DirBuilder::new().mode(mode).create(data_dir) {
        Ok(()) => {
            fs::set_permissions(data_dir, Permissions::from_mode(mode)) // the umask may have taken bits away
                .map_err(Error::io("set the mode of", data_dir))?
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create the directory", data_dir)(error)),
    }
    data_dir.canonicalize().map_err(Error::io("resolve", data_dir))
}

/// Everything below the data directory except `pgdata`, which only a finished initdb brings into being.
pub fn make_below(layout: &Layout, account: &Account) -> Result<(), Error> {
    check_owner(&layout.pgdata, account)?;
    make_private(&layout.log_dir, account)?;
    check_owner(&layout.log_dir, account)?;
    make_private(&layout.socket_dir, account)?;
    check_private(&layout.socket_dir, account)
}

/// A directory that is there already stays as it is; the caller checks it.
fn make_private(dir: &Path, account: &Account) -> Result<(), Error> {
    match DirBuilder::new().mode(PRIVATE_MODE).create(dir) {
        Ok(()) => account.give(dir),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::io("create the directory", dir)(error)),
    }
}

fn check_owner(path: &Path, account: &Account) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(metadata) if account.owns(&metadata) => Ok(()),
        Ok(metadata) => {
            Err(Error::NotOwned { path: path.into(), owner: metadata.uid(), account: account.name.clone() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("look at", path)(error)),
    }
}

/// In a directory that everybody may write to, its name may have been taken, or be a link to somewhere else.
fn check_private(dir: &Path, account: &Account) -> Result<(), Error> {
    let metadata = fs::symlink_metadata(dir).map_err(Error::io("look at", dir))?;
    if metadata.is_dir() && account.owns(&metadata) && is_private(&metadata) {
        return Ok(());
    }
    Err(Error::SocketDirUnsafe { dir: dir.into(), account: account.name.clone() })
}

fn is_private(metadata: &Metadata) -> bool {
    metadata.mode() & 0o077 == 0
}

/// Can the account get to `dir`? A program started there tells the truth, access lists included; the mode
/// bits then say which directory is at fault.
pub async fn check_reachable(dir: &Path, account: &Account, program: &Path) -> Result<(), Error> {
    let tried = account.command(program).arg("--version").current_dir(dir).output().await;
    match tried {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Error::Unreachable { dir: first_closed(dir, account), account: account.name.clone() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(Error::io("enter", dir)(error)),
        Err(source) => {
            Err(Error::SpawnFailed { program: program.into(), account: account.name.clone(), source })
        }
        Ok(_) => Ok(()),
    }
}

fn first_closed(dir: &Path, account: &Account) -> PathBuf {
    let mut from_root: Vec<&Path> = dir.ancestors().collect();
    from_root.reverse();
    let closed = |path: &&Path| fs::metadata(path).is_ok_and(|metadata| !account.may_enter(&metadata));
    from_root.into_iter().find(closed).unwrap_or(dir).into()
}

/// Where the account can be checked before anything is made.
pub fn nearest_existing(path: &Path) -> &Path {
    path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(dir: &Path) -> Account {
        Account::resolve(None, dir).unwrap()
    }

    #[test]
    fn a_socket_directory_that_others_may_enter_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("laneway-1-abc");
        fs::create_dir(&dir).unwrap();
        let account = account(temp.path());
        account.give(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(check_private(&dir, &account), Err(Error::SocketDirUnsafe { .. })));
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        check_private(&dir, &account).unwrap();
    }

    #[test]
    fn a_link_is_not_taken_for_a_socket_directory() {
        let temp = tempfile::tempdir().unwrap();
        let account = account(temp.path());
        let (real, link) = (temp.path().join("real"), temp.path().join("link"));
        make_private(&real, &account).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(matches!(check_private(&link, &account), Err(Error::SocketDirUnsafe { .. })));
    }

    #[test]
    fn the_nearest_existing_directory_of_a_path_is_found() {
        assert_eq!(nearest_existing(Path::new("/usr/no/such/dir")), Path::new("/usr"));
    }
}
