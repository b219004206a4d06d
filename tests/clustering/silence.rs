//! A broker that cannot renew its lease stops delivering before it can be buried, however much it has in memory.

use std::time::{Duration, Instant};

use laneway_client::wire::{BrokerFrame, Subprotocol};

use crate::harness::socket::{Seen, Socket, make_topic, subscribe, text};
use crate::harness::wire::Wire;
use crate::harness::{Server, TestDatabase};

/// When the lease of the first broker ends, as the database says, on our own clock; never too early.
async fn expiry(database: &TestDatabase) -> Instant {
    let eldest = "SELECT ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint
        FROM laneway.broker WHERE dead_at IS NULL ORDER BY started_at LIMIT 1";
    let left = database.number(eldest).await;
    Instant::now() + Duration::from_millis(u64::try_from(left).expect("it lives"))
}

fn arguments(url: &str) -> [&str; 6] {
    ["--database-url", url, "--lease-ttl", "4s", "--lane-drain", "1s"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_whose_database_falls_silent_stops_delivering_before_it_can_be_buried() {
    let database = TestDatabase::new().await;
    let wire = Wire::before(&database.url).await;
    let mut silent = Server::start(&arguments(&wire.url(&database.url))).await;
    make_topic(&silent.address, "orders", 1).await;
    let mut victim = Socket::connect(&silent.address, Subprotocol::MessagePack).await;
    let mut wanted = subscribe("billing", "orders");
    wanted.credit.messages = 1;
    let subscription = victim.subscribe_with(wanted).await.unwrap().subscription;
    victim.granted().await;
    let mut living = Server::start(&arguments(&database.url)).await;
    let mut heir = Socket::connect(&living.address, Subprotocol::MessagePack).await;
    heir.subscribe("billing", "orders").await;
    // Published by the silent one itself, so that everything is in its memory, and delivered one by one.
    let mut producer = Socket::connect(&silent.address, Subprotocol::MessagePack).await;
    producer.publish("orders", (0..2_000).map(|number| text(format!("m{number}"))).collect()).await;
    victim.batch().await;
    wire.let_nothing_through();
    let (silent_since, expires_at) = (Instant::now(), expiry(&database).await);
    let mut deliveries = Vec::new();
    while Instant::now() < expires_at + Duration::from_secs(1) {
        victim.credit(subscription, 1, 100).await;
        tokio::time::sleep(Duration::from_millis(3)).await;
        match victim.seen_within(Duration::from_millis(5)).await {
            Some(Seen::Frame(BrokerFrame::Batch(batch))) => {
                deliveries.push(Instant::now());
                assert_eq!(batch.epoch, 1);
            }
            Some(Seen::Frame(BrokerFrame::Error(error))) => panic!("{error:?}"),
            Some(Seen::Frame(_)) | None => {}
            Some(Seen::Closed(code)) => panic!("closed: {code:?}"),
        }
    }
    // It went on for as long as it could trust its lease, and no longer.
    let last = *deliveries.last().expect("it delivers from memory at first");
    assert!(last > silent_since + Duration::from_millis(500), "{:?}", last - silent_since);
    assert!(last < expires_at, "delivered {:?} after the lease had ended", last - expires_at);
    assert!(deliveries.len() < 1_900, "it had more to deliver");
    let granted = heir.granted().await;
    assert!(granted.epoch > 1);
    assert_eq!(heir.batch().await.messages[0].offset, 0, "nothing was acknowledged");
    wire.heal();
    assert_eq!(living.stop().await, 0);
    assert_eq!(silent.stop().await, 0);
}
