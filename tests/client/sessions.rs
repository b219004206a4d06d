//! Connections that are lost, brokers that leave, consumers that die, clients that close.

use std::time::{Duration, Instant};

use laneway_client::{Client, Error, Options};
use nix::sys::signal::Signal;

use crate::bus::{Bus, committed, next, offsets, quick, take, to, url};
use crate::harness::wait;
use crate::wire::Wire;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_resumed_keeps_its_lanes_and_its_late_acks_count() {
    let bus = Bus::new(2).await;
    bus.fill(0, 0..10).await;
    let wire = Wire::to(&bus.server.address).await;
    let client = Client::connect(&wire.url(), quick()).await.unwrap();
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    let mut held = take(&mut subscription, 10).await;
    let lanes = subscription.lanes();
    assert_eq!(lanes.len(), 2);
    let late = held.remove(0);
    wire.cut();
    let again = take(&mut subscription, 10).await;
    assert_eq!(offsets(&again), (0..10).collect::<Vec<_>>(), "nothing was acknowledged");
    assert_eq!(subscription.lanes(), lanes, "the same lanes under the same epochs");
    late.ack_confirmed().await.unwrap();
    assert_eq!(committed(&bus, 0).await, 1);
    drop(held);
    for delivery in again.into_iter().skip(1) {
        delivery.ack_confirmed().await.unwrap();
    }
    assert_eq!(committed(&bus, 0).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_grace_the_client_subscribes_again_and_old_acks_do_not_count() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..3).await;
    let wire = Wire::to(&bus.server.address).await;
    let options = Options { resume_grace: Duration::ZERO, ..quick() };
    let client = Client::connect(&wire.url(), options).await.unwrap();
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    let old = next(&mut subscription).await;
    let lanes = subscription.lanes();
    wire.cut();
    wait::until("the lane to come back", async || {
        let now = subscription.lanes();
        !now.is_empty() && now != lanes
    })
    .await;
    assert!(!old.is_current());
    assert_eq!(old.ack_confirmed().await, Err(Error::LaneLost));
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let delivery = next(&mut subscription).await;
        seen.push(delivery.offset);
        delivery.ack_confirmed().await.unwrap();
    }
    assert_eq!(seen, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_consumer_held_is_delivered_to_another() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..10).await;
    let wire = Wire::to(&bus.server.address).await;
    let options =
        Options { resume_grace: Duration::ZERO, backoff_min: Duration::from_secs(60), ..Options::default() };
    let options = Options { backoff_max: Duration::from_secs(60), ..options };
    let dying = Client::connect(&wire.url(), options).await.unwrap();
    let mut first = dying.subscribe("orders", "billing").await.unwrap();
    for delivery in take(&mut first, 4).await {
        delivery.ack_confirmed().await.unwrap();
    }
    let heir = bus.client().await;
    let mut second = heir.subscribe("orders", "billing").await.unwrap();
    wire.cut();
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let delivery = next(&mut second).await;
        seen.push(delivery.offset);
        delivery.ack_confirmed().await.unwrap();
    }
    assert_eq!(seen, [4, 5, 6, 7, 8, 9]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_says_go_away_is_left_in_order_and_another_one_goes_on() {
    let mut bus = Bus::new(2).await;
    let other = bus.another().await;
    bus.fill(0, 0..50).await;
    bus.fill(1, 0..50).await;
    let client = Client::builder(bus.url())
        .also(url(&other))
        .options(|options| *options = Options { more_urls: options.more_urls.clone(), ..quick() });
    let client = client.connect().await.unwrap();
    let mut subscription = client.subscribe("orders", "billing").credit(10, 1 << 20).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let since = Instant::now();
    for number in 0..100 {
        if number == 30 {
            bus.server.signal(Signal::SIGTERM);
        }
        let delivery = next(&mut subscription).await;
        let is_new = seen.insert((delivery.partition, delivery.offset));
        match delivery.ack_confirmed().await {
            Ok(()) => assert!(is_new, "it was confirmed before"),
            Err(error) => assert_eq!(error, Error::LaneLost),
        }
    }
    assert_eq!(bus.server.ended().await, 0);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    client.publish("orders", to(0, 50)).await.unwrap();
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_loses_no_ack_and_no_publish() {
    let bus = Bus::new(4).await;
    for partition in 0..4 {
        bus.fill(partition, 0..100).await;
    }
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    for delivery in take(&mut subscription, 400).await {
        delivery.ack();
    }
    let mut pending = Vec::new();
    for number in 0..100 {
        pending.push(client.publish_later("orders", to(0, 100 + number)).await.unwrap());
    }
    client.close().await;
    for partition in 0..4 {
        assert_eq!(committed(&bus, partition).await, 100);
    }
    for one in pending {
        one.receipt().await.unwrap();
    }
    let held = "SELECT count(*) FROM laneway.lane WHERE session_id IS NOT NULL";
    wait::until("its lanes to be free", async || bus.database.number(held).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_dropped_leaves_its_lanes_to_others() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..1).await;
    let (one, two) = tokio::join!(bus.client(), bus.client());
    let mut first = one.subscribe("orders", "billing").await.unwrap();
    next(&mut first).await.ack();
    drop(first);
    let mut second = two.subscribe("orders", "billing").await.unwrap();
    one.publish("orders", to(0, 1)).await.unwrap();
    assert_eq!(next(&mut second).await.offset, 1, "the ack was told before the goodbye");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_where_nobody_listens_is_an_error_that_says_so() {
    let error = Client::connect("ws://127.0.0.1:1/v1/ws", Options::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let error = Client::connect("nonsense", Options::default()).await.unwrap_err();
    assert!(matches!(error, Error::Address { .. }), "{error}");
}
