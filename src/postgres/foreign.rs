//! Files in directories that belong to the server's user, handled by us, who may be root.
//!
//! Called by `conf`, `server_log` and `lock`. Why: that user could plant a link to a file of root and have us
//! read it out, overwrite it or give it away.
//! Invariant: links are never followed, new files are really new, and ownership is changed through the open
//! file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use super::account::Account;
use super::error::Error;

/// Only the server's user reads its configuration and its logs.
const FILE_MODE: u32 = 0o600;

pub fn open_to_read(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

pub fn read_to_string(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let read = open_to_read(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(Error::io("read", path))?;
    Ok(text)
}

/// An empty file for the account, in the place of whatever bore the name.
pub fn create_anew(path: &Path, account: &Account) -> Result<File, Error> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("remove", path)(error)),
    }
    let file = OpenOptions::new().append(true).create_new(true).mode(FILE_MODE).open(path);
    let file = file.map_err(Error::io("create", path))?;
    account.give_file(&file, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_link_is_neither_read_nor_written_through() {
        let temp = tempfile::tempdir().unwrap();
        let (secret, link) = (temp.path().join("secret"), temp.path().join("startup.log"));
        std::fs::write(&secret, "of root").unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        assert!(read_to_string(&link).is_err());
        create_anew(&link, &Account::resolve(None, temp.path()).unwrap()).unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "of root");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_file());
    }
}
