//! The cluster under test: a PostgreSQL of our own, broker processes, and a wire on both sides of each broker.

use std::net::SocketAddr;
use std::sync::Arc;

use laneway_client::Admin;
use laneway_client::topic::CreateTopic;
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::VerifyError;
use super::process::{BrokerProcess, Clock};
use super::proxy::{Proxy, Target};
use super::settings::{
    KEYED, KEYED_PARTITIONS, LATER, LATER_PARTITIONS, LIMIT, LIMITED, PARTITIONS, RESULT_PARTITIONS, RESULTS,
    TOPIC, VerifySettings,
};
use crate::postgres::{Cluster, Settings, StopMode};
use crate::store::{DatabaseSettings, Store};

/// A broker and its wires.
#[derive(Debug)]
pub(super) struct Broker {
    pub process: Mutex<BrokerProcess>,
    /// Where it listens itself.
    pub address: SocketAddr,
    /// Between it and its clients.
    pub clients: Proxy,
    /// Between it and the database.
    pub database: Proxy,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stage {
    pub cluster: Cluster,
    pub brokers: Vec<Broker>,
    /// A way to the database that no fault touches.
    pub store: Store,
    directory: TempDir,
}

impl Stage {
    pub async fn build(settings: &VerifySettings) -> Result<Self, VerifyError> {
        let directory = directory().map_err(VerifyError::io("no temporary directory can be made"))?;
        let mut postgres = Settings::new(directory.path().join("data"));
        postgres.bin_dir = settings.postgres_bin_dir.clone();
        let cluster = Cluster::prepare(postgres).await?;
        cluster.start().await?;
        let store = Store::new(DatabaseSettings::new(cluster.url()))?;
        let mut stage = Self { cluster, brokers: Vec::new(), store, directory };
        match stage.furnish(settings.brokers).await {
            Ok(()) => Ok(stage),
            Err(error) => {
                stage.close().await?; // nothing of ours stays behind
                Err(error)
            }
        }
    }

    async fn furnish(&mut self, brokers: usize) -> Result<(), VerifyError> {
        for number in 0..brokers {
            let broker = self.broker(number).await?;
            self.brokers.push(broker);
        }
        self.make_topics().await
    }

    async fn broker(&self, number: usize) -> Result<Broker, VerifyError> {
        let failed = || VerifyError::io("no port can be had");
        let database = Proxy::start(Target::Unix(self.cluster.socket())).await.map_err(failed())?;
        let address = free_address().await.map_err(failed())?;
        let clients = Proxy::start(Target::Tcp(address)).await.map_err(failed())?;
        let url = self.url_through(database.address);
        let mut process = BrokerProcess::new(number, address, url, self.directory.path());
        process.start(Clock::Right).await?;
        Ok(Broker { process: Mutex::new(process), address, clients, database })
    }

    /// The database, by way of a proxy.
    fn url_through(&self, proxy: SocketAddr) -> String {
        let (user, database) = self.cluster.names();
        format!("postgresql://{user}@{proxy}/{database}?sslmode=disable")
    }

    async fn make_topics(&self) -> Result<(), VerifyError> {
        let failed = |error: laneway_client::admin::AdminError| VerifyError::Topic(error.to_string());
        let plain = [
            (TOPIC, PARTITIONS),
            (RESULTS, RESULT_PARTITIONS),
            (LATER, LATER_PARTITIONS),
            (KEYED, KEYED_PARTITIONS),
        ];
        let plain = plain.map(|(name, partitions)| CreateTopic::new(name, partitions));
        let limited = CreateTopic { max_backlog_messages: Some(LIMIT), ..CreateTopic::new(LIMITED, 2) };
        for topic in plain.into_iter().chain([limited]) {
            self.admin(0).map_err(failed)?.create_topic(&topic).await.map_err(failed)?;
        }
        Ok(())
    }

    /// The HTTP API of a broker, by the way that no fault touches.
    pub fn admin(&self, broker: usize) -> Result<Admin, laneway_client::admin::AdminError> {
        Admin::new(&format!("ws://{}/v1/ws", self.brokers[broker].address))
    }

    /// Where clients go: through the wires.
    pub fn addresses(&self) -> Arc<[SocketAddr]> {
        self.brokers.iter().map(|broker| broker.clients.address).collect()
    }

    /// Ends everything and removes its files.
    pub async fn close(self) -> Result<(), VerifyError> {
        for broker in &self.brokers {
            broker.process.lock().await.stop().await;
        }
        self.cluster.stop(StopMode::Fast).await?;
        self.directory.close().map_err(VerifyError::io("the temporary directory stays behind"))
    }
}

/// Root's PostgreSQL runs as another user, who has to get through.
fn directory() -> std::io::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::Builder::new().prefix("laneway-verify-").tempdir()?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(directory)
}

/// An address that nobody listens on just now. A broker keeps it over all its lives.
async fn free_address() -> std::io::Result<SocketAddr> {
    tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()
}
