//! Who runs PostgreSQL, and the commands run as that user.
//!
//! Called by `cluster`, which resolves the account once; `binaries`, `initdb` and `spawn` build their
//! commands here.
//! Invariant: no program of PostgreSQL ever runs as root, not even `postgres --version`.
//! Why an emptied environment: PG* variables would change the server behind our back, and the broker's
//! secrets have no business in its /proc entry.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

use nix::unistd::{Gid, Uid, User, geteuid};
use tokio::process::Command;

use super::error::Error;

/// Tried in this order when root names nobody: the user of the distribution's packages, then the one
/// everybody has.
const USERS_WHEN_ROOT: [&str; 2] = ["postgres", "nobody"];

/// Needed to find shared libraries of binaries that were not installed by a package manager.
const ENVIRONMENT_KEPT: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"];

#[derive(Debug, Clone)]
pub struct Account {
    pub name: String,
    pub uid: Uid,
    pub gid: Gid,
    switch: Switch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    /// We are this user already.
    Stay,
    /// We are root and become this user in the child.
    Become,
}

impl Account {
    /// The wish of the caller, else (as root) the owner of an existing cluster, else the usual users.
    pub fn resolve(run_as: Option<&str>, pgdata: &Path) -> Result<Self, Error> {
        if geteuid().is_root() { Self::for_root(run_as, pgdata) } else { Self::for_user(run_as) }
    }

    fn for_root(run_as: Option<&str>, pgdata: &Path) -> Result<Self, Error> {
        if let Some(name) = run_as {
            return Self::become_named(name);
        }
        if let Some(owner) = owner_of(pgdata)? {
            return Ok(Self::from_user(owner, Switch::Become));
        }
        let mut tried = USERS_WHEN_ROOT.into_iter().map(Self::become_named);
        tried
            .find(Result::is_ok)
            .unwrap_or_else(|| Err(Error::AccountUnknown { name: USERS_WHEN_ROOT[0].into() }))
    }

    fn become_named(name: &str) -> Result<Self, Error> {
        let user = User::from_name(name).ok().flatten();
        let user = user.ok_or_else(|| Error::AccountUnknown { name: name.into() })?;
        if user.uid.is_root() {
            return Err(Error::AccountIsRoot { name: name.into() });
        }
        Ok(Self::from_user(user, Switch::Become))
    }

    fn for_user(run_as: Option<&str>) -> Result<Self, Error> {
        let uid = geteuid();
        let user = User::from_uid(uid).ok().flatten();
        let name = user.map_or_else(|| format!("uid {uid}"), |user| user.name);
        match run_as {
            Some(wanted) if wanted != name => Err(Error::AccountNotOurs { name: wanted.into() }),
            Some(_) | None => Ok(Self { name, uid, gid: nix::unistd::getegid(), switch: Switch::Stay }),
        }
    }

    fn from_user(user: User, switch: Switch) -> Self {
        Self { name: user.name, uid: user.uid, gid: user.gid, switch }
    }

    /// A command that runs as this user, without stdin, outside any directory that the user might not reach.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
        for name in ENVIRONMENT_KEPT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        match self.switch {
            Switch::Stay => {}
            Switch::Become => {
                command.uid(self.uid.as_raw()).gid(self.gid.as_raw()); // std drops root's further groups too
            }
        }
        command
    }

    /// Gives away a path that we just made in a directory of our own. Does not follow symbolic links.
    pub fn give(&self, path: &Path) -> Result<(), Error> {
        let given = self.change_owner(|uid, gid| std::os::unix::fs::lchown(path, uid, gid));
        given.map_err(Error::io("change the owner of", path))
    }

    /// Gives away a file that we just made, whatever bears its name by now.
    pub fn give_file(&self, file: &File, path: &Path) -> Result<(), Error> {
        let given = self.change_owner(|uid, gid| std::os::unix::fs::fchown(file, uid, gid));
        given.map_err(Error::io("change the owner of", path))
    }

    fn change_owner(
        &self,
        change: impl FnOnce(Option<u32>, Option<u32>) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.switch {
            Switch::Stay => Ok(()),
            Switch::Become => change(Some(self.uid.as_raw()), Some(self.gid.as_raw())),
        }
    }

    pub fn owns(&self, metadata: &std::fs::Metadata) -> bool {
        metadata.uid() == self.uid.as_raw()
    }

    /// May this user pass through a directory with these mode bits? Access lists are not seen here.
    pub fn may_enter(&self, metadata: &std::fs::Metadata) -> bool {
        let shift = if self.owns(metadata) {
            6
        } else if metadata.gid() == self.gid.as_raw() {
            3
        } else {
            0
        };
        metadata.mode() >> shift & 1 == 1
    }
}

/// The user of an existing cluster. Why: it stays the right one when `postgres` is created after the first
/// start.
fn owner_of(pgdata: &Path) -> Result<Option<User>, Error> {
    let uid = match std::fs::metadata(pgdata) {
        Ok(metadata) => Uid::from_raw(metadata.uid()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("look at", pgdata)(error)),
    };
    Ok(if uid.is_root() { None } else { User::from_uid(uid).ok().flatten() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: &str = "/nonexistent/pgdata";

    #[test]
    fn an_unknown_user_is_named_in_the_sentence() {
        let error = Account::become_named("no-such-user-here").unwrap_err();
        assert!(error.to_string().contains("`no-such-user-here`"), "{error}");
    }

    #[test]
    fn root_is_refused_as_the_user_of_the_server() {
        assert!(matches!(Account::become_named("root"), Err(Error::AccountIsRoot { .. })));
    }

    #[test]
    fn a_normal_user_cannot_become_another() {
        assert!(matches!(Account::for_user(Some("somebody-else")), Err(Error::AccountNotOurs { .. })));
    }

    #[test]
    fn root_gets_an_unprivileged_user_by_default() {
        let account = Account::for_root(None, Path::new(NOWHERE)).unwrap();
        assert!(USERS_WHEN_ROOT.contains(&account.name.as_str()) && !account.uid.is_root());
    }
}
