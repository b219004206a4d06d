//! One database cluster on disk and how to run it: prepare, launch or adopt, wait, stop. No lock, no
//! supervision.
//!
//! `PrivatePostgres` is built on it; the test harness and the bench use it alone for temporary clusters.
//! Invariant: a server is adopted only if it serves this very data directory on this very socket.

use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use super::account::Account;
use super::binaries::{self, Binaries};
use super::directories;
use super::error::Error;
use super::fit;
use super::layout::{self, Layout};
use super::machine::Machine;
use super::postmaster::{Postmaster, StopMode};
use super::probe::{DATABASE, USER};
use super::process::{self, Presence};
use super::readiness::Readiness;
use super::server_log::LogMark;
use super::settings::Settings;
use super::{conf, initdb, postmaster_pid, spawn, version};

#[derive(Debug, Clone)]
pub struct Cluster {
    pub(super) settings: Settings,
    pub(super) layout: Layout,
    account: Account,
    pub(super) binaries: Binaries,
}

impl Cluster {
    /// Makes the cluster ready to start: directories and, the first time, initdb.
    pub async fn prepare(settings: Settings) -> Result<Self, Error> {
        let cluster = Self::open(settings).await?;
        cluster.initialise().await?;
        Ok(cluster)
    }

    /// Finds user and binaries and makes the directories. Touches nothing if a person has to act first.
    pub(super) async fn open(mut settings: Settings) -> Result<Self, Error> {
        let given = settings.data_dir.clone();
        let wanted = std::path::absolute(&given).map_err(Error::io("resolve", given))?;
        let account = Account::resolve(settings.run_as.as_deref(), &layout::pgdata(&wanted))?;
        let binaries = find_binaries(&settings, &account, &wanted).await?;
        directories::check_reachable(directories::nearest_existing(&wanted), &account, &binaries.postgres())
            .await?;
        settings.data_dir = directories::make_data_dir(&wanted)?;
        directories::check_reachable(&settings.data_dir, &account, &binaries.postgres()).await?;
        let layout = Layout::new(&settings.data_dir, &settings.temp_dir, account.uid)?;
        directories::make_below(&layout, &account)?;
        Ok(Self { settings, layout, account, binaries })
    }

    /// initdb, unless it was done before.
    pub(super) async fn initialise(&self) -> Result<(), Error> {
        initdb::ensure(&self.layout, &self.account, &self.binaries, &self.machine()?).await
    }

    /// Starts it, or finds it running, and answers once it serves queries and has its database.
    /// The server does not end with us: `stop` it.
    pub async fn start(&self) -> Result<Pid, Error> {
        loop {
            let mut postmaster = self.launch()?;
            match self.ready(&mut postmaster).await? {
                Readiness::Ready => return Ok(postmaster.pid),
                Readiness::Unfit(_) => postmaster.stop(StopMode::Fast, &self.settings.pace).await?,
            }
        }
    }

    /// Stops it if it runs, whoever started it.
    pub async fn stop(&self, mode: StopMode) -> Result<(), Error> {
        match self.running()? {
            Some(mut postmaster) => postmaster.stop(mode, &self.settings.pace).await,
            None => Ok(()),
        }
    }

    /// The pid of its server, if one runs.
    pub fn pid(&self) -> Result<Option<Pid>, Error> {
        Ok(self.running()?.map(|postmaster| postmaster.pid))
    }

    pub fn url(&self) -> String {
        layout::url(self.socket_dir(), USER, DATABASE)
    }

    pub fn socket_dir(&self) -> &Path {
        &self.layout.socket_dir
    }

    /// The socket itself, for those who forward to it.
    pub fn socket(&self) -> PathBuf {
        self.socket_dir().join(format!(".s.PGSQL.{}", layout::PORT))
    }

    /// The user and the database of [`url`](Self::url).
    pub fn names(&self) -> (&'static str, &'static str) {
        (USER, DATABASE)
    }

    pub fn pgdata(&self) -> &Path {
        &self.layout.pgdata
    }

    pub fn log_dir(&self) -> &Path {
        &self.layout.log_dir
    }

    /// Adopts the server that runs, else starts one. Does not wait for it.
    pub(super) fn launch(&self) -> Result<Postmaster, Error> {
        if let Some(postmaster) = self.running()? {
            tracing::info!(pid = %postmaster.pid, "adopting the PostgreSQL that already runs");
            return Ok(postmaster);
        }
        let machine = self.machine()?;
        machine.check_disk(&self.layout.pgdata)?;
        let fitted = fit::fitted(&machine, &self.socket_dir().to_string_lossy());
        conf::write(&self.layout.pgdata, &self.account, &fitted, &self.settings.extra)?;
        let postmaster = spawn::spawn(&self.layout, &self.account, &self.binaries)?;
        tracing::info!(pid = %postmaster.pid, version = %self.binaries.version, "started PostgreSQL");
        Ok(postmaster)
    }

    fn running(&self) -> Result<Option<Postmaster>, Error> {
        let Some(file) = postmaster_pid::read(&self.layout.pgdata)? else {
            return Ok(None);
        };
        match process::presence(file.pid, &self.layout.pgdata) {
            Presence::Absent | Presence::Stranger | Presence::Unclear => return Ok(None),
            Presence::Postmaster => {}
        }
        let mark = LogMark::now(&self.layout.log_dir);
        let look_every = self.settings.pace.adopted_check;
        Ok(Some(Postmaster::adopted(file.pid, &self.layout.pgdata, mark, look_every)))
    }

    /// Looks again, for binaries that were upgraded.
    pub(super) async fn find_binaries(&self) -> Result<Binaries, Error> {
        find_binaries(&self.settings, &self.account, &self.layout.data_dir).await
    }

    fn machine(&self) -> Result<Machine, Error> {
        let pgdata = &self.layout.pgdata;
        Machine::around(if pgdata.exists() { pgdata } else { &self.layout.data_dir })
    }
}

async fn find_binaries(settings: &Settings, account: &Account, data_dir: &Path) -> Result<Binaries, Error> {
    let pgdata: PathBuf = layout::pgdata(data_dir);
    let data_major = version::of_pgdata(&pgdata)?;
    binaries::find(settings, account, &pgdata, data_major).await
}
