//! Creates the database cluster, all or nothing.
//!
//! Called by `cluster`, for a supervised server under the broker's lock.
//! Invariant: `pgdata` appears by one rename of a finished cluster; a kill in the middle leaves only a
//! `pgdata.new-*`, which the next start removes.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::account::Account;
use super::binaries::Binaries;
use super::directories::PRIVATE_MODE;
use super::error::Error;
use super::layout::Layout;
use super::machine::Machine;
use super::probe::USER;

/// Marks what is not finished.
const UNFINISHED: &str = "pgdata.new-";

/// The cluster's nature, fixed for its life. `trust`: the socket directory's mode decides. Locale C: text
/// compares bytewise and no upgrade of the system's collations can break an index.
const ARGUMENTS: [&str; 5] =
    ["--encoding=UTF8", "--locale=C", "--auth=trust", "--data-checksums", "--no-instructions"];

/// Answers at once when `pgdata` holds a cluster already.
pub async fn ensure(
    layout: &Layout,
    account: &Account,
    binaries: &Binaries,
    machine: &Machine,
) -> Result<(), Error> {
    remove_unfinished(&layout.data_dir)?;
    match state_of(&layout.pgdata)? {
        Pgdata::Cluster => Ok(()),
        Pgdata::Foreign => Err(Error::NotACluster { pgdata: layout.pgdata.clone() }),
        Pgdata::Empty => {
            machine.check_disk(&layout.data_dir)?;
            create(layout, account, binaries).await
        }
    }
}

enum Pgdata {
    /// Missing counts as empty.
    Empty,
    Cluster,
    /// Somebody else's files; not ours to touch.
    Foreign,
}

fn state_of(pgdata: &Path) -> Result<Pgdata, Error> {
    if pgdata.join("PG_VERSION").exists() {
        return Ok(Pgdata::Cluster);
    }
    match fs::read_dir(pgdata) {
        Ok(mut entries) => Ok(if entries.next().is_none() { Pgdata::Empty } else { Pgdata::Foreign }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Pgdata::Empty),
        Err(error) => Err(Error::io("read", pgdata)(error)),
    }
}

async fn create(layout: &Layout, account: &Account, binaries: &Binaries) -> Result<(), Error> {
    let unfinished = layout.data_dir.join(format!("{UNFINISHED}{}", std::process::id()));
    tracing::info!(pgdata = %layout.pgdata.display(), version = %binaries.version, "creating a cluster");
    DirBuilder::new().mode(PRIVATE_MODE).create(&unfinished).map_err(Error::io("create", &unfinished))?;
    account.give(&unfinished)?;
    let made = run(&unfinished, account, binaries).await;
    if made.is_err() {
        remove(&unfinished)?;
    }
    made?;
    fs::rename(&unfinished, &layout.pgdata).map_err(Error::io("move the new cluster to", &layout.pgdata))?;
    sync_dir(&layout.data_dir)
}

async fn run(dir: &Path, account: &Account, binaries: &Binaries) -> Result<(), Error> {
    let program = binaries.initdb();
    let mut command = account.command(&program);
    command.arg("-D").arg(dir).arg(format!("--username={USER}")).args(ARGUMENTS);
    let output = command.kill_on_drop(true).output().await;
    let output =
        output.map_err(|source| Error::SpawnFailed { program, account: account.name.clone(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Err(Error::InitdbFailed { dir: dir.into(), said })
}

fn remove_unfinished(data_dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(data_dir).map_err(Error::io("read", data_dir))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            tracing::warn!(dir = %entry.path().display(), "removing a cluster that was never finished");
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// An initdb that outlived its killed broker may still add files for a moment; it fails once its directory is
/// gone.
const REMOVALS_MAX: u32 = 20;

fn remove(dir: &PathBuf) -> Result<(), Error> {
    for _ in 1..REMOVALS_MAX {
        if fs::remove_dir_all(dir).is_ok() {
            return Ok(());
        }
    }
    fs::remove_dir_all(dir).map_err(Error::io("remove", dir))
}

fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::io("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_or_empty_directory_is_filled() {
        let temp = tempfile::tempdir().unwrap();
        let pgdata = temp.path().join("pgdata");
        assert!(matches!(state_of(&pgdata).unwrap(), Pgdata::Empty));
        fs::create_dir(&pgdata).unwrap();
        assert!(matches!(state_of(&pgdata).unwrap(), Pgdata::Empty));
        fs::write(pgdata.join("thesis.txt"), "precious").unwrap();
        assert!(matches!(state_of(&pgdata).unwrap(), Pgdata::Foreign));
        fs::write(pgdata.join("PG_VERSION"), "15\n").unwrap();
        assert!(matches!(state_of(&pgdata).unwrap(), Pgdata::Cluster));
    }

    #[test]
    fn what_was_never_finished_is_removed_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["pgdata.new-17", "pgdata", "pgdata.news"] {
            fs::create_dir(temp.path().join(name)).unwrap();
        }
        fs::write(temp.path().join("pgdata.new-17/PG_VERSION"), "15\n").unwrap();
        remove_unfinished(temp.path()).unwrap();
        assert!(!temp.path().join("pgdata.new-17").exists());
        assert!(temp.path().join("pgdata").exists() && temp.path().join("pgdata.news").exists());
    }
}
