//! A standby of a test's own PostgreSQL: follows it, can be cut off from it, and takes its place. It ends with the test.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use laneway::store::Target;
use nix::unistd::{Gid, Uid, chown};
use tempfile::TempDir;

use super::own::{OwnServer, leave_watchdog};
use super::{process, wait};

/// A server that streams from another one.
pub struct Standby {
    bin_dir: PathBuf,
    /// Holds its socket, too.
    home: PathBuf,
    owner: (u32, u32),
    names: (&'static str, &'static str),
    _directory: TempDir,
}

impl Standby {
    /// Copies a server that runs, and follows it from then on, asynchronously.
    pub async fn of(primary: &OwnServer) -> Self {
        let cluster = &primary.cluster;
        let pid = cluster.pid().unwrap().expect("the primary runs");
        let postgres = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        let data = std::fs::metadata(cluster.pgdata()).unwrap();
        let directory = process::directory();
        leave_watchdog(directory.path());
        let home = directory.path().join("d");
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(Uid::from_raw(data.uid())), Some(Gid::from_raw(data.gid()))).unwrap();
        let standby = Self {
            bin_dir: postgres.parent().unwrap().to_owned(),
            home,
            owner: (data.uid(), data.gid()),
            names: cluster.names(),
            _directory: directory,
        };
        admit_replication(primary).await;
        let source = cluster.socket_dir().display().to_string();
        wait::until("a copy of the primary", async || {
            let _left_by_a_try_before = std::fs::remove_dir_all(standby.pgdata());
            let args =
                ["-h", &source, "-U", standby.names.0, "-R", "-X", "stream", "-c", "fast", "--no-sync"];
            standby
                .command("pg_basebackup")
                .args(args)
                .arg("-D")
                .arg(standby.pgdata())
                .status()
                .unwrap()
                .success()
        })
        .await;
        let home = standby.home.display();
        let options =
            format!("-c unix_socket_directories={home} -c listen_addresses='' -c logging_collector=off");
        standby.control(&["-w", "-t", "60", "-o", &options, "-l", &format!("{home}/log"), "start"]);
        standby
    }

    pub fn pgdata(&self) -> PathBuf {
        self.home.join("pgdata")
    }

    /// Where it is reached, as the host of a URL.
    pub fn host(&self) -> &Path {
        &self.home
    }

    /// A URL that leads to whichever of the two takes writes.
    pub fn url_with(&self, primary: &OwnServer) -> String {
        let (user, database) = self.names;
        let hosts = format!("{},{}", primary.cluster.socket_dir().display(), self.home.display());
        let hosts = hosts.replace('/', "%2F");
        format!("postgresql://{user}@{hosts}/{database}?target_session_attrs=read-write")
    }

    /// A plain connection, for looking behind the scenes.
    pub async fn raw(&self) -> tokio_postgres::Client {
        let (user, database) = self.names;
        let host = self.home.display().to_string().replace('/', "%2F");
        let url = format!("postgresql://{user}@/{database}?host={host}");
        Target::parse(&url).unwrap().connect().await.unwrap()
    }

    /// Waits until it has everything that the primary has now.
    pub async fn caught_up(&self, primary: &OwnServer) {
        let written: String =
            primary.raw().await.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap().get(0);
        let standby = self.raw().await;
        let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn");
        wait::until("the standby to catch up", async || {
            standby.query_one(&sql, &[]).await.unwrap().get::<_, Option<bool>>(0) == Some(true)
        })
        .await;
    }

    /// From now on it hears nothing of its primary.
    pub async fn cut_off(&self) {
        let standby = self.raw().await;
        standby.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.unwrap();
        standby.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        wait::until("the standby to be alone", async || {
            standby.query("SELECT FROM pg_stat_wal_receiver", &[]).await.unwrap().is_empty()
        })
        .await;
    }

    /// Makes it a primary, on a timeline of its own.
    pub fn promote(&self) {
        self.control(&["-w", "-t", "60", "promote"]);
    }

    fn control(&self, args: &[&str]) {
        let status = self.command("pg_ctl").arg("-D").arg(self.pgdata()).args(args).status().unwrap();
        assert!(status.success(), "pg_ctl {args:?}");
    }

    /// A program of this PostgreSQL, as the user that it runs as.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin_dir.join(program));
        command.uid(self.owner.0).gid(self.owner.1).current_dir(&self.home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _gone_already =
            self.command("pg_ctl").arg("-D").arg(self.pgdata()).args(["-m", "immediate", "stop"]).status();
    }
}

/// A private server lets nobody replicate it, until a test says so.
async fn admit_replication(primary: &OwnServer) {
    let path = primary.cluster.pgdata().join("pg_hba.conf");
    let rules = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{rules}local replication all trust\n")).unwrap();
    primary.raw().await.batch_execute("SELECT pg_reload_conf()").await.unwrap();
}
