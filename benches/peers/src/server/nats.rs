//! NATS with JetStream on files: a stream per partition, and a durable pull consumer for each group on each of them.

use std::net::SocketAddr;
use std::path::Path;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, StorageType};
use tokio::process::Command;

use crate::error::Error;
use crate::system::SyncInterval;
use crate::work::{PARTITIONS, Work, group};
use crate::worker::nats::{connect, context, stream, subject};

/// Delivered and not yet acknowledged, per consumer: more than a worker ever has, so that it holds nothing up.
const ACK_PENDING_MAX: i64 = 1 << 20;

pub fn command(
    program: &Path,
    address: SocketAddr,
    directory: &Path,
    interval: SyncInterval,
) -> Result<Command, Error> {
    let sync = match interval {
        SyncInterval::Default => "",
        SyncInterval::Always => "\n  sync_interval: always",
    };
    let store = directory.join("jetstream");
    let text = format!(
        "host: \"127.0.0.1\"\nport: {}\njetstream {{\n  store_dir: \"{}\"{sync}\n}}\n",
        address.port(),
        store.display()
    );
    let settings = directory.join("nats.conf");
    std::fs::write(&settings, text).map_err(Error::io("writing the settings of NATS"))?;
    let mut command = Command::new(program);
    command.arg("--config").arg(settings);
    Ok(command)
}

pub async fn answers(address: SocketAddr) -> bool {
    let Ok(client) = connect(address).await else { return false };
    context(client).query_account().await.is_ok()
}

/// Makes the streams and the consumers of the work.
pub async fn prepare(address: SocketAddr, work: Work) -> Result<(), Error> {
    let context = context(connect(address).await?);
    for partition in 0..PARTITIONS {
        let config = Config {
            name: stream(partition),
            subjects: vec![subject(partition)],
            storage: StorageType::File,
            allow_atomic_publish: true,
            allow_batch_publish: true,
            ..Config::default()
        };
        let stream = context.create_stream(config).await.map_err(Error::nats("making a stream"))?;
        for number in 0..work.groups() {
            let config = pull::Config {
                durable_name: Some(group(number)),
                deliver_policy: DeliverPolicy::All,
                ack_policy: AckPolicy::All,
                max_ack_pending: ACK_PENDING_MAX,
                ..pull::Config::default()
            };
            stream.create_consumer(config).await.map_err(Error::nats("making a consumer"))?;
        }
    }
    Ok(())
}
