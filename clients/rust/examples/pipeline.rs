//! From one topic to the next: `cargo run --example pipeline -- orders invoices`. Each partition in order, eight at once.
//!
//! What is made of a message is published in the transaction that acknowledges it: one result per message, whatever becomes of
//! connections and brokers. A message that cannot be handled is refused with the reason, and comes again.

use std::sync::Arc;

use laneway_client::admin::DEFAULT_URL;
use laneway_client::{Client, Delivery, Error, NewMessage, Options, Outputs, Stop};

/// Trace id and cause are inherited from the order.
fn invoice(order: &Delivery) -> Result<NewMessage, std::str::Utf8Error> {
    let text = std::str::from_utf8(&order.payload)?.to_uppercase();
    Ok(NewMessage { payload: text.into(), key: order.key.clone(), ..NewMessage::default() })
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
    let handler = async |order: Arc<Delivery>| invoice(&order).map(|invoice| Outputs::to(&to, invoice));
    let handled = orders.run_pipeline(8, &stop, handler).await?;
    println!("{} handled, {} failed", handled.acked, handled.failed);
    client.close().await;
    Ok(())
}
