//! `laneway completions` and `laneway man`: what shells and manuals know of the commands, made from the commands themselves.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, Failure};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    laneway completions bash > /etc/bash_completion.d/laneway\n  \
    laneway completions zsh > ~/.zfunc/_laneway\n  \
    laneway completions fish > ~/.config/fish/completions/laneway.fish")]
pub(super) struct Completions {
    /// Whose
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "laneway", &mut script);
        Ok(std::io::stdout().write_all(&script)?)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  laneway man | man -l -\n  laneway man topic create | man -l -\n  \
    laneway man --out /usr/local/share/man/man1")]
pub(super) struct Man {
    /// The page of this command; absent: of laneway itself
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut root = Cli::command().disable_help_subcommand(true);
        root.build();
        match &self.out {
            Some(directory) => write_all(root, directory),
            None => Ok(std::io::stdout().write_all(&page(find(&root, &self.command)?.clone())?)?),
        }
    }
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}

fn find<'a>(root: &'a Command, names: &[String]) -> Result<&'a Command, Failure> {
    names.iter().try_fold(root, |command, name| {
        let found = command.find_subcommand(name);
        found.ok_or_else(|| format!("there is no command {}", names.join(" ")).into())
    })
}

fn write_all(root: Command, directory: &Path) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| format!("cannot write pages into {}: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(cannot)?;
    Ok(clap_mangen::generate_to(root, directory).map_err(cannot)?)
}
