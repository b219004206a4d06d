//! Writes the configuration into `pgdata`: laneway.conf (ours, rewritten on every start), its include in
//! postgresql.conf (once), and pg_hba.conf (ours).
//!
//! Called by `cluster` before every start. What a person changes in postgresql.conf after the include, or by
//! ALTER SYSTEM, wins and stays.
//! Invariant: each file is replaced as a whole, so that a kill leaves the old or the new one.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::account::Account;
use super::error::Error;
use super::fit::Setting;
use super::foreign;

const FILE: &str = "laneway.conf";
const INCLUDE: &str = "include 'laneway.conf'";

const HEADER: &str = "# Written by laneway on every start: changes made here are lost.\n\
    # Your own settings belong below the include in postgresql.conf, or into ALTER SYSTEM; both win.\n";

/// No host lines: even a server that is made to listen on TCP answers nobody there.
const HBA: &str = "# Written by laneway on every start. The socket directory decides who gets in.\n\
    local all all trust\n";

pub fn write(
    pgdata: &Path,
    account: &Account,
    fitted: &[Setting],
    extra: &[(String, String)],
) -> Result<(), Error> {
    replace(&pgdata.join(FILE), &text(fitted, extra)?, account)?;
    replace(&pgdata.join("pg_hba.conf"), HBA, account)?;
    include(&pgdata.join("postgresql.conf"), account)
}

fn include(path: &Path, account: &Account) -> Result<(), Error> {
    let text = foreign::read_to_string(path)?;
    if text.lines().any(|line| line.trim() == INCLUDE) {
        return Ok(());
    }
    replace(path, &format!("{}\n\n{INCLUDE}\n", text.trim_end()), account)
}

fn replace(path: &Path, text: &str, account: &Account) -> Result<(), Error> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(Error::io("write into", dir))?;
    file.write_all(text.as_bytes()).map_err(Error::io("write", path))?;
    file.as_file().sync_all().map_err(Error::io("write", path))?;
    account.give_file(file.as_file(), path)?;
    file.persist(path).map_err(|error| Error::io("replace", path)(error.error))?;
    Ok(())
}

/// The extra settings come last, because the last one of a name wins.
fn text(fitted: &[Setting], extra: &[(String, String)]) -> Result<String, Error> {
    let mut text = String::from(HEADER);
    for Setting { name, value, why } in fitted {
        let _ = write!(text, "\n# {why}\n{name} = {}\n", quoted(value)); // writing to a String cannot fail
    }
    for (name, value) in extra {
        check_name(name)?;
        let _ = write!(text, "\n# asked for by the caller\n{name} = {}\n", quoted(value));
    }
    Ok(text)
}

fn check_name(name: &str) -> Result<(), Error> {
    let valid = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    if valid { Ok(()) } else { Err(Error::SettingName { name: name.into() }) }
}

/// PostgreSQL's configuration files know backslash escapes inside quotes, and no line breaks.
fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n").replace('\r', "\\r");
    format!("'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_include_is_added_once_and_what_stood_there_stays() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("postgresql.conf");
        std::fs::write(&path, "work_mem = 5MB").unwrap();
        let account = Account::resolve(None, temp.path()).unwrap();
        include(&path, &account).unwrap();
        include(&path, &account).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "work_mem = 5MB\n\ninclude 'laneway.conf'\n");
    }

    #[test]
    fn extra_settings_come_after_the_fitted_ones() {
        let fitted = [Setting { name: "jit", value: "off".into(), why: "short statements" }];
        let text = text(&fitted, &[("jit".into(), "on".into())]).unwrap();
        assert!(
            text.ends_with("# short statements\njit = 'off'\n\n# asked for by the caller\njit = 'on'\n"),
            "{text}"
        );
    }

    #[test]
    fn a_value_cannot_break_out_of_its_quotes() {
        assert_eq!(quoted("it's\n\\"), "'it''s\\n\\\\'");
    }

    #[test]
    fn a_name_that_could_smuggle_in_another_setting_is_refused() {
        assert!(text(&[], &[("jit = on\nfsync".into(), "off".into())]).is_err());
    }
}
