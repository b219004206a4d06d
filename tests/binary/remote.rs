//! A PostgreSQL that is reached over TCP, as one that somebody else runs: with rules who may come in, and with TLS.
//!
//! It listens on an address of the loopback network that is its own, because its port is always the same.

use std::path::PathBuf;

use laneway::postgres::{Cluster, Settings, StopMode};
use laneway::store::Target;
use rand::Rng as _;
use tempfile::TempDir;

use crate::harness::{process, source};
use crate::home::end_server;

pub struct Remote {
    directory: TempDir,
    cluster: Cluster,
    /// Where it listens, without the port, which is PostgreSQL's own.
    pub address: String,
}

impl Remote {
    /// Starts one with the given lines of `pg_hba.conf` for those who come over TCP. `None`: this PostgreSQL was built
    /// without what the settings ask for.
    pub async fn start(rules: &[&str], extra: &[(&str, &str)]) -> Option<Self> {
        Self::start_at(some_address(), process::directory(), rules, extra).await
    }

    /// As [`Remote::start`], where address and directory had to be known before.
    pub async fn start_at(
        address: String,
        directory: TempDir,
        rules: &[&str],
        extra: &[(&str, &str)],
    ) -> Option<Self> {
        let hba = directory.path().join("hba.conf");
        std::fs::write(&hba, format!("local all all trust\n{}\n", rules.join("\n"))).unwrap();
        let mut settings = Settings::new(directory.path().join("data"));
        settings.bin_dir = source::bin_dir();
        let hba = hba.display().to_string();
        let own = [
            ("listen_addresses", address.as_str()),
            ("hba_file", &hba),
            ("fsync", "off"),
            ("shared_buffers", "16MB"),
        ];
        settings.extra =
            own.iter().chain(extra).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let cluster = Cluster::prepare(settings).await.unwrap();
        let remote = Self { directory, cluster, address };
        give_to_the_server(&remote);
        match remote.cluster.start().await {
            Ok(_) => Some(remote),
            Err(_) if remote.startup_log().contains("not supported by this build") => {
                println!("not tried: this PostgreSQL was built without it:\n{}", remote.startup_log());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn startup_log(&self) -> String {
        std::fs::read_to_string(self.cluster.log_dir().join("startup.log")).unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A connection that no rule holds back.
    pub async fn local(&self) -> tokio_postgres::Client {
        Target::parse(&self.cluster.url()).unwrap().connect().await.unwrap()
    }

    pub async fn stop(self) {
        self.cluster.stop(StopMode::Immediate).await.unwrap();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        end_server(self.cluster.pgdata());
    }
}

/// An address of this machine that nobody else listens on.
pub fn some_address() -> String {
    let mut random = rand::rng();
    let mut byte = || random.random_range(1..255_u8);
    format!("127.{}.{}.{}", byte(), byte(), byte())
}

/// The files that we wrote for it, keys above all, must belong to the user that it runs as.
fn give_to_the_server(remote: &Remote) {
    use std::os::unix::fs::MetadataExt as _;
    let owner = std::fs::metadata(remote.cluster.pgdata()).unwrap();
    for entry in std::fs::read_dir(remote.directory.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::os::unix::fs::chown(entry.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
        }
    }
}
