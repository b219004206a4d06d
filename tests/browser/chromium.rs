//! The distribution's Chromium without a window, in a home and a process group of its own, ended with the test.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

/// As distributions name it; script/setup.sh looks for the same names.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A host that exists for this browser only; it resolves to this machine.
pub const FOREIGN_HOST: &str = "evil.example";

/// A browser with one page.
pub struct Chromium {
    child: Child,
    home: TempDir,
}

impl Chromium {
    /// Opens a page.
    pub fn open(url: &str) -> Self {
        let home = tempfile::Builder::new().prefix("laneway-browser-").tempdir().unwrap();
        let log = File::create(home.path().join("log")).unwrap();
        let mut command = Command::new(executable());
        command.args(["--headless=new", "--disable-gpu", "--no-first-run", "--no-proxy-server"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.arg("--disable-dev-shm-usage"); // it may be tiny in a container
        command.arg("--no-sandbox"); // the sandbox refuses root; the only page is our own
        command.arg(format!("--host-resolver-rules=MAP {FOREIGN_HOST} 127.0.0.1"));
        command.arg(format!("--user-data-dir={}", home.path().join("profile").display())).arg(url);
        command
            .env("HOME", home.path())
            .env("XDG_CONFIG_HOME", home.path())
            .env("XDG_CACHE_HOME", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        Self { child: command.spawn().unwrap(), home }
    }

    /// What it has said so far, for a test that has failed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its renderers and helpers are in the group that it leads, and its id is its own until it is waited for.
        let _gone_already = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        let _nothing_to_learn = self.child.wait();
    }
}

fn executable() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let found = places.into_iter().find(|place| place.is_file());
    found.unwrap_or_else(|| {
        panic!("no Chromium on PATH ({}): run script/test, it installs one", NAMES.join(", "))
    })
}
