//! Finds PostgreSQL's binaries: the given directory, else PATH, else the distributions' usual places.
//!
//! Called by `cluster` at the start and by `supervisor` after a package upgrade.
//! Invariant: an initialised data directory only gets binaries of its own major; a new one gets the first of
//! PATH, else the newest. I run nothing but `postgres --version`, as the server's user.

use std::path::{Path, PathBuf};

use super::account::Account;
use super::error::Error;
use super::settings::{Places, Settings};
use super::version::{MAJOR_MIN, Version};

/// What we run; both must be there.
const PROGRAMS: [&str; 2] = ["postgres", "initdb"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    pub dir: PathBuf,
    pub version: Version,
}

impl Binaries {
    pub fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    pub fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }
}

/// `data_major` is the major of an initialised data directory.
pub async fn find(
    settings: &Settings,
    account: &Account,
    pgdata: &Path,
    data_major: Option<u32>,
) -> Result<Binaries, Error> {
    let found = match &settings.bin_dir {
        Some(dir) => vec![given(dir, account).await?],
        None => search(&settings.places, account).await,
    };
    choose(found, pgdata, data_major)
}

async fn given(dir: &Path, account: &Account) -> Result<Binaries, Error> {
    let incomplete = |missing| Error::BinDirIncomplete { bin_dir: dir.into(), missing };
    if let Some(missing) = missing_program(dir) {
        return Err(incomplete(missing));
    }
    let version = version_of(dir, account).await.ok_or_else(|| incomplete("postgres"))?;
    Ok(Binaries { dir: dir.into(), version })
}

/// In order of preference: PATH as it stands, then the usual places from the newest version to the oldest.
async fn search(places: &Places, account: &Account) -> Vec<Binaries> {
    let mut found = working(path_dirs(places), account).await;
    let mut usual =
        working(places.patterns.iter().flat_map(|pattern| expand(pattern)).collect(), account).await;
    usual.sort_by_key(|binaries| std::cmp::Reverse(binaries.version));
    found.append(&mut usual);
    found
}

/// Relative entries of PATH are skipped: they would mean another directory in the child.
fn path_dirs(places: &Places) -> Vec<PathBuf> {
    let path = places.path.clone().unwrap_or_default();
    std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect()
}

async fn working(dirs: Vec<PathBuf>, account: &Account) -> Vec<Binaries> {
    let mut working = Vec::new();
    for dir in dirs.into_iter().filter(|dir| missing_program(dir).is_none()) {
        match version_of(&dir, account).await {
            Some(version) => working.push(Binaries { dir, version }),
            None => tracing::debug!(dir = %dir.display(), "passing over binaries that do not run"),
        }
    }
    working
}

fn missing_program(dir: &Path) -> Option<&'static str> {
    PROGRAMS.into_iter().find(|program| !dir.join(program).is_file())
}

/// `None` = it does not run, or does not say that it is PostgreSQL.
pub async fn version_of(dir: &Path, account: &Account) -> Option<Version> {
    let output = account.command(&dir.join("postgres")).arg("--version").output().await.ok()?;
    Version::parse(&String::from_utf8_lossy(&output.stdout))
}

/// Directories that match a pattern with at most one `*`, which stands for a part of one name.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![PathBuf::from(pattern)];
    };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let (suffix, below) = after.split_once('/').unwrap_or((after, ""));
    let names = std::fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let matching = names
        .filter(|name| name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(suffix)));
    matching.map(|name| Path::new(parent).join(name).join(below)).collect()
}

fn choose(found: Vec<Binaries>, pgdata: &Path, data_major: Option<u32>) -> Result<Binaries, Error> {
    let Some(newest) = found.iter().max_by_key(|binaries| binaries.version).cloned() else {
        return Err(Error::BinariesMissing);
    };
    let supported: Vec<Binaries> = found.into_iter().filter(|b| b.version.major >= MAJOR_MIN).collect();
    if supported.is_empty() {
        return Err(Error::BinariesTooOld { bin_dir: newest.dir, newest: newest.version });
    }
    match data_major {
        None => supported.into_iter().next().ok_or(Error::BinariesMissing),
        Some(major) => of_major(supported, pgdata, major),
    }
}

fn of_major(supported: Vec<Binaries>, pgdata: &Path, data_major: u32) -> Result<Binaries, Error> {
    if data_major < MAJOR_MIN {
        return Err(Error::DataTooOld { pgdata: pgdata.into(), data_major });
    }
    let found = distinct_majors(&supported);
    let fitting = supported.into_iter().find(|binaries| binaries.version.major == data_major);
    fitting.ok_or(Error::MajorMismatch { pgdata: pgdata.into(), data_major, found })
}

fn distinct_majors(found: &[Binaries]) -> Vec<u32> {
    let mut majors: Vec<u32> = found.iter().map(|binaries| binaries.version.major).collect();
    majors.sort_unstable();
    majors.dedup();
    majors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(dir: &str, major: u32) -> Binaries {
        Binaries { dir: dir.into(), version: Version { major, minor: 1 } }
    }

    fn chosen(found: Vec<Binaries>, data_major: Option<u32>) -> Result<Binaries, Error> {
        choose(found, Path::new("/d/pgdata"), data_major)
    }

    #[test]
    fn a_new_data_directory_takes_the_first_that_is_new_enough() {
        assert_eq!(chosen(vec![at("/a", 13), at("/b", 15), at("/c", 16)], None).unwrap(), at("/b", 15));
    }

    #[test]
    fn an_initialised_data_directory_takes_its_own_major() {
        assert_eq!(chosen(vec![at("/c", 17), at("/b", 15)], Some(15)).unwrap(), at("/b", 15));
    }

    #[test]
    fn a_major_that_is_not_installed_is_named_with_those_that_are() {
        let sentence = chosen(vec![at("/c", 17), at("/b", 15)], Some(16)).unwrap_err().to_string();
        assert!(sentence.contains("made by PostgreSQL 16"), "{sentence}");
        assert!(sentence.contains("only has PostgreSQL 15 and PostgreSQL 17"), "{sentence}");
    }

    #[test]
    fn data_older_than_we_support_is_not_answered_with_the_advice_to_install_that_version() {
        let error = chosen(vec![at("/a", 13), at("/b", 15)], Some(13)).unwrap_err();
        assert!(matches!(error, Error::DataTooOld { data_major: 13, .. }), "{error}");
    }

    #[test]
    fn nothing_found_and_only_old_ones_found_are_different_sentences() {
        assert!(matches!(chosen(vec![], None), Err(Error::BinariesMissing)));
        assert!(matches!(chosen(vec![at("/a", 13)], None), Err(Error::BinariesTooOld { .. })));
    }

    #[test]
    fn a_pattern_stands_for_the_directories_that_match() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["pgsql-15", "pgsql-16", "other-16"] {
            std::fs::create_dir(temp.path().join(name)).unwrap();
        }
        let mut found = expand(&format!("{}/pgsql-*/bin", temp.path().display()));
        found.sort();
        assert_eq!(found, [temp.path().join("pgsql-15/bin"), temp.path().join("pgsql-16/bin")]);
        assert_eq!(expand("/usr/local/pgsql/bin"), [PathBuf::from("/usr/local/pgsql/bin")]);
    }
}
