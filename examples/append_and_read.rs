//! The log without a network: publishes a few messages through the appender and reads them back, by offset and by trace.
//!
//! Starts a private PostgreSQL in a temporary directory, or uses the one you name:
//! `cargo run --example append_and_read [postgresql://…]`

use bytes::Bytes;
use laneway::bench::database::Database;
use laneway::broker::message::Draft;
use laneway::broker::publish::Addressed;
use laneway::broker::{Broker, BrokerSettings};
use laneway::ids::{Offset, TraceId};
use laneway::limits::SHUTDOWN_TIMEOUT;
use laneway::store::messages::ReadLimit;
use laneway::store::{DatabaseSettings, Store};
use laneway_client::TopicName;
use laneway_client::topic::CreateTopic;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Database::open(std::env::args().nth(1)).await?;
    let store = Store::new(DatabaseSettings::new(database.url()))?;
    store.wait_until_reachable().await?;
    store.migrate().await?;
    let (broker, running) = Broker::start(store, BrokerSettings::default());

    let name = format!("orders.{}", uuid::Uuid::now_v7().simple());
    let topic = broker.topics.create(&CreateTopic::new(&name, 4)).await?;
    let trace = TraceId::generate();
    let order = |text: &'static str| Draft {
        key: Some(Bytes::from_static(b"customer-7")),
        trace_id: Some(trace),
        payload: Bytes::from_static(text.as_bytes()),
        ..Draft::default()
    };
    let drafts =
        ["placed", "paid", "shipped"].map(|text| Addressed { draft: order(text), ..Addressed::default() });
    let published = broker.publisher.publish(&TopicName::new(&name)?, None, drafts.to_vec()).await?;
    let partition = published[0].partition;
    println!("the key customer-7 lives in partition {partition} of {name}");

    let limit = ReadLimit { messages: 10, bytes: 1 << 20 };
    let partition_id = topic.partitions[partition as usize];
    for message in broker.reader.read(partition_id, Offset::ZERO, limit).await? {
        println!("  offset {}: {}", message.offset, String::from_utf8_lossy(&message.payload));
    }
    println!(
        "trace {trace} has {} hops",
        broker.reader.trace(trace, laneway::store::traces::Payloads::Read).await?.hops.len()
    );

    drop(broker); // the last handle: the appenders write what they hold and end
    running.stop(SHUTDOWN_TIMEOUT).await;
    database.close().await?;
    Ok(())
}
