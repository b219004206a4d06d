//! A database with brokers on it, and clients of them.

use std::time::Duration;

use futures_util::StreamExt as _;
use laneway_client::wire::Subprotocol;
use laneway_client::{Client, Delivery, NewMessage, Options, Subscription};

use crate::harness::process::laneway;
use crate::harness::socket::make_topic;
use crate::harness::{Server, TestDatabase};

/// Long enough for a busy machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A broker with a topic named `orders`.
pub struct Bus {
    pub database: TestDatabase,
    pub server: Server,
}

/// What a broker leaves behind is free soon after it was killed.
const BRIEF: [&str; 4] = ["--lease-ttl", "2s", "--lane-drain", "1s"];

impl Bus {
    pub async fn new(partitions: u32) -> Self {
        Self::with(partitions, &[]).await
    }

    /// A broker whose leases are over soon when it is killed.
    pub async fn brief(partitions: u32) -> Self {
        Self::with(partitions, &BRIEF).await
    }

    async fn with(partitions: u32, args: &[&str]) -> Self {
        let database = TestDatabase::new().await;
        let server = Server::start(&[&["--database-url", &database.url][..], args].concat()).await;
        make_topic(&server.address, "orders", partitions).await;
        Self { database, server }
    }

    pub fn url(&self) -> String {
        url(&self.server)
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.url(), quick()).await.unwrap()
    }

    /// Another broker on the same database.
    pub async fn another(&self) -> Server {
        Server::on_database(&self.database.url).await
    }

    /// A broker at an address where one was before.
    pub async fn at(&self, address: &str) -> Server {
        self.serve_at(address, &[]).await
    }

    /// As [`Bus::at`], for a [`Bus::brief`] one.
    pub async fn brief_at(&self, address: &str) -> Server {
        self.serve_at(address, &BRIEF).await
    }

    async fn serve_at(&self, address: &str, args: &[&str]) -> Server {
        let mut command = laneway();
        command.args(["serve", "--listen", address, "--database-url", &self.database.url]).args(args);
        Server::spawn_command(&mut command).listening().await
    }

    /// Numbered messages in one partition.
    pub async fn fill(&self, partition: u32, numbers: std::ops::Range<usize>) {
        let client = self.client().await;
        publish_all(&client, "orders", numbers.map(|number| to(partition, number))).await;
        client.close().await;
    }

    /// Key and payload of all messages of a topic, partition by partition and in order, as the database has them.
    pub async fn stored_in(&self, topic: &str) -> Vec<(String, String)> {
        let raw = self.database.raw().await;
        let sql = r#"SELECT convert_from(coalesce(m.key, ''), 'UTF8'), convert_from(m.payload, 'UTF8')
                     FROM laneway.message m JOIN laneway.partition p USING (partition_id)
                     JOIN laneway.topic t USING (topic_id) WHERE t.name = $1 ORDER BY p.number, m."offset""#;
        raw.query(sql, &[&topic]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// All payloads of a partition in order, as the database has them.
    pub async fn stored(&self, partition: i32) -> Vec<String> {
        let raw = self.database.raw().await;
        let sql = r#"SELECT convert_from(payload, 'UTF8') FROM laneway.message JOIN laneway.partition USING (partition_id)
                     WHERE number = $1 ORDER BY "offset""#;
        raw.query(sql, &[&partition]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }
}

pub fn url(server: &Server) -> String {
    format!("ws://{}/v1/ws", server.address)
}

/// Options whose retries do not keep a test waiting.
pub fn quick() -> Options {
    Options {
        backoff_min: Duration::from_millis(20),
        backoff_max: Duration::from_millis(200),
        ..Options::default()
    }
}

/// Both encodings.
pub fn both() -> [Options; 2] {
    [Subprotocol::Json, Subprotocol::MessagePack].map(|subprotocol| Options { subprotocol, ..quick() })
}

/// Publishes messages, all of which are stored.
pub async fn publish_all(client: &Client, topic: &str, messages: impl IntoIterator<Item = NewMessage>) {
    for result in client.publish_many(topic, messages).await {
        result.unwrap();
    }
}

/// A numbered message of a key.
pub fn keyed(key: impl std::fmt::Display, number: usize) -> NewMessage {
    let key = Some(key.to_string().into());
    NewMessage { key, payload: number.to_string().into(), ..NewMessage::default() }
}

/// A numbered message for one partition.
pub fn to(partition: u32, number: usize) -> NewMessage {
    NewMessage { partition: Some(partition), payload: number.to_string().into(), ..NewMessage::default() }
}

pub fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload.to_vec()).unwrap()
}

/// The next delivery, in time.
pub async fn next(subscription: &mut Subscription) -> Delivery {
    let next = tokio::time::timeout(PATIENCE, subscription.next()).await;
    next.expect("a delivery in time").expect("the stream goes on")
}

/// So many deliveries.
pub async fn take(subscription: &mut Subscription, many: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < many {
        taken.push(next(subscription).await);
    }
    taken
}

pub fn offsets(deliveries: &[Delivery]) -> Vec<i64> {
    deliveries.iter().map(|delivery| delivery.offset).collect()
}

/// The committed offset of a group in a partition.
pub async fn committed(bus: &Bus, partition: u32) -> i64 {
    let sql = format!(
        "SELECT max(committed_offset) FROM laneway.lane_commit JOIN laneway.partition p USING (partition_id) \
         WHERE p.number = {partition}"
    );
    bus.database.number(&sql).await
}
