//! What every command that speaks with a broker shares: where it is, how answers are printed, and whether to ask first.

use std::io::{BufRead, IsTerminal as _};
use std::path::PathBuf;

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use laneway_client::Admin;
use laneway_client::admin::{AdminError, DEFAULT_URL};

use super::{Failure, print_json};
use crate::cli::output::println;

/// The broker.
#[derive(Debug, Args)]
pub(super) struct Address {
    /// The broker
    #[arg(long, global = true, env = "LANEWAY_URL", default_value = DEFAULT_URL, value_name = "URL")]
    pub(super) url: String,
    /// With wss: a PEM file of authorities to believe beside those of this machine
    #[arg(long, global = true, env = "LANEWAY_CA_FILE", value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
}

impl Address {
    /// The HTTP API of the broker; no connection is made yet.
    pub(super) fn admin(&self) -> Result<Admin, AdminError> {
        match &self.ca_file {
            Some(file) => Admin::with_ca_file(&self.url, file),
            None => Admin::new(&self.url),
        }
    }
}

/// The broker, and the form of the answer.
#[derive(Debug, Args)]
pub(super) struct Access {
    #[command(flatten)]
    pub(super) address: Address,
    /// One JSON document on standard output
    #[arg(long, global = true)]
    json: bool,
}

impl Access {
    /// The HTTP API of the broker; no connection is made yet.
    pub(super) fn admin(&self) -> Result<Admin, AdminError> {
        self.address.admin()
    }

    /// Where the broker is.
    pub(super) fn url(&self) -> &str {
        &self.address.url
    }

    /// Whether a program reads the answer.
    pub(super) fn json(&self) -> bool {
        self.json
    }

    /// Prints an answer: as a document, or as people read it.
    pub(super) fn print<T: serde::Serialize>(
        &self,
        answer: &T,
        people: impl FnOnce(&T),
    ) -> Result<(), Failure> {
        match self.json {
            true => print_json(answer)?,
            false => people(answer),
        }
        Ok(())
    }
}

/// Prints columns under their names, without spaces at the ends of lines.
pub(super) fn print_table<const N: usize>(names: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(names).add_rows(rows);
    for line in table.to_string().lines() {
        println!("{}", line.trim_end());
    }
}

/// Asks on the terminal before something is gone for good; without one there is nobody to ask.
pub(super) fn ask(question: &str, warning: &str) -> Result<(), Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(format!("{warning}: say --yes, or use a terminal to be asked").into());
    }
    eprint!("{question} [y/N] ");
    match agrees(input.lock())? {
        true => Ok(()),
        false => Err("nothing was deleted".into()),
    }
}

/// Only a clear yes is one.
fn agrees(mut input: impl BufRead) -> std::io::Result<bool> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_deletes() {
        for (line, expected) in [
            ("y\n", true),
            ("YES\n", true),
            (" y \r\n", true),
            ("", false),
            ("\n", false),
            ("n\n", false),
            ("yep", false),
        ] {
            assert_eq!(agrees(line.as_bytes()).unwrap(), expected, "{line:?}");
        }
    }
}
