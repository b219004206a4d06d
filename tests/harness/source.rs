//! Which PostgreSQL the tests use: the one they are told, binaries they are told, a container, or this machine's binaries.

use std::path::PathBuf;

/// Where the tests' PostgreSQL comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `LANEWAY_TEST_DATABASE_URL`: a server that somebody runs; the tests may make databases there.
    Given { url: String },
    /// `LANEWAY_TEST_POSTGRES_BIN`, or the machine's own.
    Binaries { bin_dir: Option<PathBuf> },
    /// A Docker engine answers.
    Container,
}

/// Whether a Docker engine answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Docker {
    Answers,
    Silent,
}

/// The choice, as a pure function of what there is. Binaries that were named win over a container: they were named to be tested.
pub fn choose(url: Option<String>, bin_dir: Option<PathBuf>, docker: impl FnOnce() -> Docker) -> Source {
    if let Some(url) = url {
        return Source::Given { url };
    }
    if bin_dir.is_some() {
        return Source::Binaries { bin_dir };
    }
    match docker() {
        Docker::Answers => Source::Container,
        Docker::Silent => Source::Binaries { bin_dir: None },
    }
}

/// The choice on this machine.
pub fn of_this_run() -> Source {
    choose(std::env::var("LANEWAY_TEST_DATABASE_URL").ok().filter(|url| !url.is_empty()), bin_dir(), docker)
}

/// The binaries that the tests were told to use.
pub fn bin_dir() -> Option<PathBuf> {
    std::env::var_os("LANEWAY_TEST_POSTGRES_BIN").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

fn docker() -> Docker {
    let info = std::process::Command::new("docker")
        .args(["info", "--format", "{{.ServerVersion}}"])
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .output();
    match info {
        Ok(output) if output.status.success() && !output.stdout.trim_ascii().is_empty() => Docker::Answers,
        Ok(_) | Err(_) => Docker::Silent,
    }
}
