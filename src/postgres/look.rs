//! Where the private PostgreSQL of a directory would be reached, and whether it runs. Makes and changes nothing.
//!
//! For `laneway doctor`, which must not start what it looks at.

use std::io;
use std::path::Path;

use super::account::Account;
use super::error::Error;
use super::layout::{self, Layout};
use super::probe::{DATABASE, USER};
use super::process::{self, Presence};
use super::{postmaster_pid, version};

/// What there is in a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// No server was ever made here.
    NeverMade,
    /// One was made, and it does not run.
    Stopped,
    /// It runs, and this is its URL.
    Running { url: String },
}

/// Looks at a data directory with the eyes of the next broker.
pub fn look(data_dir: &Path) -> Result<Look, Error> {
    let data_dir = match data_dir.canonicalize() {
        Ok(data_dir) => data_dir,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::NeverMade),
        Err(error) => return Err(Error::io("resolve", data_dir)(error)),
    };
    let pgdata = layout::pgdata(&data_dir);
    if version::of_pgdata(&pgdata)?.is_none() {
        return Ok(Look::NeverMade);
    }
    let account = Account::resolve(None, &pgdata)?;
    let layout = Layout::new(&data_dir, &std::env::temp_dir(), account.uid)?;
    let Some(file) = postmaster_pid::read(&pgdata)? else { return Ok(Look::Stopped) };
    match process::presence(file.pid, &pgdata) {
        Presence::Postmaster => Ok(Look::Running { url: layout::url(&layout.socket_dir, USER, DATABASE) }),
        Presence::Absent | Presence::Stranger | Presence::Unclear => Ok(Look::Stopped),
    }
}
