//! Publishes the lines of standard input to a topic: `cargo run --example publish -- orders < lines.txt`.
//!
//! Messages are let in one after the other and stored in that order; receipts are awaited behind them.

use std::io::BufRead as _;

use laneway_client::admin::DEFAULT_URL;
use laneway_client::{Client, Error, NewMessage, Options};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let topic = std::env::args().nth(1).unwrap_or_else(|| "orders".to_owned());
    let url = std::env::var("LANEWAY_URL").unwrap_or_else(|_| DEFAULT_URL.to_owned());
    let client = Client::connect(&url, Options::default()).await?;
    let mut pending = Vec::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let message = NewMessage { payload: line.into(), ..NewMessage::default() };
        pending.push(client.publish_later(&topic, message).await?);
    }
    for one in pending {
        println!("{}", one.receipt().await?);
    }
    client.close().await;
    Ok(())
}
