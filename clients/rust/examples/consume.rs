//! Prints the messages of a topic as a member of a group: `cargo run --example consume -- orders billing`.
//!
//! Ctrl-C stops it in order: what was printed is acknowledged, and the acks are confirmed.

use futures_util::StreamExt as _;
use laneway_client::admin::DEFAULT_URL;
use laneway_client::{Client, Error, Options};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let topic = args.next().unwrap_or_else(|| "orders".to_owned());
    let group = args.next().unwrap_or_else(|| "billing".to_owned());
    let url = std::env::var("LANEWAY_URL").unwrap_or_else(|_| DEFAULT_URL.to_owned());
    let client = Client::connect(&url, Options::default()).await?;
    let mut subscription = client.subscribe(topic, group).await?;
    loop {
        let delivery = tokio::select! {
            delivery = subscription.next() => delivery,
            _ = tokio::signal::ctrl_c() => break,
        };
        let Some(delivery) = delivery else { break };
        let payload = String::from_utf8_lossy(&delivery.payload);
        println!("{}/{} {payload}", delivery.partition, delivery.offset);
        delivery.ack();
    }
    client.close().await;
    match subscription.error() {
        None | Some(Error::Closed) => Ok(()),
        Some(error) => Err(error),
    }
}
