//! What delivery times cost, end to end: `cargo bench --bench times [-- --rounds N --messages N --ack-each]`.
//!
//! Topics that keep delivery times and topics that do not take turns.

#![allow(clippy::unwrap_used)]

mod turns;

use serde_json::json;
use turns::{Way, compare, subscribe};

fn way(name: &'static str) -> Way {
    let settings = json!({ "delivery_times": name == "on" });
    Way { name, settings, subscribe: subscribe("billing", name), keys: 0 }
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    compare([way("off"), way("on")], 200_000).await;
}
