//! Starts a `postgres` process: as the right user, in a process group of its own, without stdin, its first
//! words going to startup.log.
//!
//! Called by `cluster`, after the configuration is written. Does not wait for it to be ready.
//! Invariant: nothing ties it to our life. Its output goes to files, so that a killed broker breaks no pipe,
//! and Ctrl-C at our terminal does not reach it.

use std::path::Path;
use std::process::Stdio;

use nix::unistd::Pid;

use super::account::Account;
use super::binaries::Binaries;
use super::error::Error;
use super::layout::Layout;
use super::postmaster::Postmaster;
use super::postmaster_pid;
use super::process::{self, Presence};
use super::server_log::{self, LogMark};

/// PostgreSQL takes a postmaster.pid for stale if it names this process (pg_ctl's own parent uses it so).
const NOT_A_POSTMASTER: &str = "PG_GRANDPARENT_PID";

pub fn spawn(layout: &Layout, account: &Account, binaries: &Binaries) -> Result<Postmaster, Error> {
    let mark = LogMark::now(&layout.log_dir);
    let output = server_log::create_startup_log(&layout.log_dir, account)?;
    let also_output = output.try_clone().map_err(Error::io("open", &layout.log_dir))?;
    let program = binaries.postgres();
    let mut command = account.command(&program);
    command.arg("-D").arg(&layout.pgdata).process_group(0);
    command.stdout(Stdio::from(output)).stderr(Stdio::from(also_output));
    if let Some(pid) = reused_pid(&layout.pgdata)? {
        command.env(NOT_A_POSTMASTER, pid.to_string());
    }
    let failed = |source| Error::SpawnFailed { program, account: account.name.clone(), source };
    let child = command.spawn().map_err(failed)?;
    let pid = child.id().expect("a child that nobody waited for has its pid");
    let pid = Pid::from_raw(i32::try_from(pid).expect("the kernel's pids are positive i32"));
    Ok(Postmaster::of_child(child, pid, &layout.pgdata, mark))
}

/// The pid in a stale postmaster.pid when another process bears it now. Why: after a reboot, and in
/// containers, pids are soon reused, and PostgreSQL alone cannot tell such a process of its user from a live
/// server.
fn reused_pid(pgdata: &Path) -> Result<Option<Pid>, Error> {
    let Some(file) = postmaster_pid::read(pgdata)? else {
        return Ok(None);
    };
    Ok(match process::presence(file.pid, pgdata) {
        Presence::Stranger => Some(file.pid),
        Presence::Absent | Presence::Postmaster | Presence::Unclear => None,
    })
}
