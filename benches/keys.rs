//! What order by key costs, end to end: `cargo bench --bench keys [-- --rounds N --messages N --keys N --ack-each]`.
//!
//! A group that keeps the order of partitions and one that keeps the order of keys take turns; the messages are alike.

#![allow(clippy::unwrap_used)]

mod turns;

use laneway_client::wire::{GroupOrdering, WantedSettings};
use serde_json::json;
use turns::{Way, argument, compare, subscribe};

const KEYS: usize = 1_000_000;

fn way(name: &'static str, ordering: GroupOrdering) -> Way {
    let mut subscribe = subscribe("billing", name);
    subscribe.settings = Some(WantedSettings { ordering: Some(ordering), ..WantedSettings::default() });
    Way { name, settings: json!({}), subscribe, keys: argument("--keys").unwrap_or(KEYS) }
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let ways = [way("partition", GroupOrdering::Partition), way("key", GroupOrdering::Key)];
    compare(ways, 400_000).await;
}
