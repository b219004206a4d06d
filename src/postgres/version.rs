//! PostgreSQL versions: as a binary prints them, as a server reports them, as a data directory records them.
//!
//! Called by `binaries` (which binaries fit), `cluster` (does the running server match them). Pure apart from
//! `of_pgdata`, which reads one file.

use std::fmt;
use std::io;
use std::path::Path;

use super::error::Error;

/// Older majors are past their end of life, and the schema uses what 14 brought.
pub const MAJOR_MIN: u32 = 14;

/// Only the major decides whether files fit; only major and minor decide whether libraries fit a running
/// server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    /// Reads `postgres (PostgreSQL) 15.18 (Debian …)`, `15.18 (Debian …)` and `19beta1`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.split_once("(PostgreSQL)").map_or(text, |(_, version)| version);
        let number = text.split_whitespace().next()?;
        let (major, rest) = leading_number(number)?;
        let minor = rest.strip_prefix('.').and_then(leading_number).map_or(0, |(minor, _)| minor);
        Some(Self { major, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn leading_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

/// The major that made this data directory; `None` = nothing was made there yet.
pub fn of_pgdata(pgdata: &Path) -> Result<Option<u32>, Error> {
    let path = pgdata.join("PG_VERSION");
    match std::fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(major) => Ok(Some(major)),
            Err(_) => Err(Error::VersionFileUnreadable { path }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_binaries_and_servers_print_them() {
        let debian = Version { major: 15, minor: 18 };
        assert_eq!(Version::parse("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(debian));
        assert_eq!(Version::parse("15.18 (Debian 15.18-0+deb12u1)"), Some(debian));
        assert_eq!(Version::parse("postgres (PostgreSQL) 19beta1"), Some(Version { major: 19, minor: 0 }));
        assert_eq!(Version::parse("bash: command not found"), None);
        assert_eq!(Version::parse(""), None);
    }

    proptest::proptest! {
        #[test]
        fn what_is_displayed_is_read_back(major in 0u32..1000, minor in 0u32..1000) {
            let version = Version { major, minor };
            proptest::prop_assert_eq!(Version::parse(&version.to_string()), Some(version));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in ".*") {
            let _ = Version::parse(&text);
        }
    }
}
