//! The distribution's PgBouncer in transaction mode, in front of the tests' PostgreSQL: started by a test, ended by it.
//!
//! It has fewer connections to the server than its clients have to it, so that consecutive transactions of one client
//! really run on different ones.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use crate::harness::source::{Source, of_this_run};
use crate::harness::{TestDatabase, process, wait};

/// Connections to the server; everybody has to share them.
pub const SERVER_CONNECTIONS: i64 = 3;
const PORT: u16 = 6432;

pub struct Bouncer {
    child: Child,
    directory: TempDir,
    user: String,
}

impl Bouncer {
    /// Starts one in front of the server of a test database. `None`, with the reason printed, where it cannot be.
    pub async fn before(database: &TestDatabase) -> Option<Self> {
        let source = of_this_run();
        if !matches!(source, Source::Binaries { .. }) {
            println!(
                "not tried: PgBouncer is only put before a PostgreSQL of this machine, and this is {source:?}"
            );
            return None;
        }
        let Some(program) = program() else {
            println!("not tried: there is no pgbouncer on PATH or in /usr/sbin (script/test installs it)");
            return None;
        };
        let config: Config = database.url.parse().unwrap();
        let [Host::Unix(socket_dir)] = config.get_hosts() else { panic!("a local server has one socket") };
        let user = config.get_user().unwrap().to_owned();
        let directory = process::directory();
        let file = directory.path().join("pgbouncer.ini");
        std::fs::write(&file, ini(directory.path(), socket_dir, &user)).unwrap();
        let mut command = Command::new(program);
        command
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if nix::unistd::geteuid().is_root() {
            // It refuses to run as root; the server's own user may enter the server's socket directory.
            let owner = std::fs::metadata(socket_dir).unwrap();
            std::os::unix::fs::chown(directory.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
            command.uid(owner.uid()).gid(owner.gid()).current_dir("/");
        }
        let bouncer = Self { child: command.spawn().unwrap(), directory, user };
        wait::until("PgBouncer to listen", async || bouncer.socket().exists()).await;
        Some(bouncer)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join(format!(".s.PGSQL.{PORT}"))
    }

    /// The way to a database through it.
    pub fn url(&self, database: &str) -> String {
        let (user, directory) = (&self.user, self.directory.path().display());
        format!("postgresql://{user}@/{database}?host={directory}&port={PORT}")
    }

    /// Rows of its own console.
    pub async fn show(&self, what: &str) -> Vec<BTreeMap<String, String>> {
        let config: Config = self.url("pgbouncer").parse().unwrap();
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let messages = client.simple_query(&format!("SHOW {what}")).await.unwrap();
        let row = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let column = |place: usize| {
                    let value = row.get(place).unwrap_or_default().to_owned();
                    (row.columns()[place].name().to_owned(), value)
                };
                Some((0..row.len()).map(column).collect())
            }
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    }

    /// Transactions of a database that went through it.
    pub async fn transactions(&self, database: &str) -> i64 {
        let stats = self.show("STATS").await;
        let of_database = stats.iter().find(|row| row["database"] == database);
        of_database.map_or(0, |row| row["total_xact_count"].parse().unwrap())
    }

    pub async fn stop(mut self) {
        kill(Pid::from_raw(self.child.id().unwrap() as i32), Signal::SIGTERM).unwrap();
        self.child.wait().await.unwrap();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    directories.map(|directory| directory.join("pgbouncer")).find(|program| program.is_file())
}

fn ini(directory: &Path, socket_dir: &Path, user: &str) -> String {
    format!(
        "[databases]\n* = host={server} port=5432 user={user}\n\
         [pgbouncer]\nlisten_port = {PORT}\nunix_socket_dir = {own}\nauth_type = any\n\
         pool_mode = transaction\ndefault_pool_size = {SERVER_CONNECTIONS}\nmax_client_conn = 200\n",
        server = socket_dir.display(),
        own = directory.display(),
    )
}
