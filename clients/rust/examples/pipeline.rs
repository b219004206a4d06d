//! From one topic to the next: `cargo run --example pipeline -- orders invoices`. Each partition in order, eight at once.
//!
//! What it makes of a message is published under the name of that message, so that a message that is delivered twice leads
//! to one result. A message that cannot be handled is refused with the reason, and comes again.

use std::sync::Arc;

use laneway_client::admin::DEFAULT_URL;
use laneway_client::{Client, Delivery, Error, NewMessage, Options, Stop};

async fn invoice(client: &Client, to: &str, order: Arc<Delivery>) -> Result<(), Error> {
    let text = String::from_utf8_lossy(&order.payload).to_uppercase();
    let message = NewMessage {
        payload: text.into(),
        key: order.key.clone(),
        trace_id: Some(order.trace_id),
        transaction_id: Some(format!("{}/{}/{}", order.topic, order.partition, order.offset)),
        ..NewMessage::default()
    };
    client.publish(to, message).await.map(drop)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let from = args.next().unwrap_or_else(|| "orders".to_owned());
    let to = args.next().unwrap_or_else(|| "invoices".to_owned());
    let url = std::env::var("LANEWAY_URL").unwrap_or_else(|_| DEFAULT_URL.to_owned());
    let client = Client::connect(&url, Options::default()).await?;
    let mut orders = client.subscribe(from, "invoicing").await?;
    let stop = Stop::new();
    let on_interrupt = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.stop();
        }
    });
    let handled = orders.run(8, &stop, |order| invoice(&client, &to, order)).await?;
    println!("{} handled, {} failed", handled.acked, handled.failed);
    client.close().await;
    Ok(())
}
