//! What `/metrics` tells of lag, per lane and group, held or not, and which broker tells it.

use laneway_client::wire::{OnFailure, Subprotocol, Subscribe, WantedSettings};

use crate::Bus;
use crate::harness::socket::{Socket, make_topic, quick_retries, subscribe};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::metrics::{becomes, sample, samples};

const GROUP: &str = "topic=\"orders\",group=\"billing\"";

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_told_per_lane_and_group_and_an_unheld_lane_is_seen() {
    let bus = Bus::with_topic("orders", 2).await;
    let server = &bus.server;
    bus.publish("orders", 0, 0..5).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    consumer.ack_below(&batch, 2).await.unwrap();
    becomes(server, &format!("lane_lag_messages{{{GROUP},partition=\"0\"}}"), 3.0).await;
    assert!(sample(server, &format!("lane_lag_seconds{{{GROUP},partition=\"0\"}}")).await > 0.0);
    let at_one = samples(server).await;
    assert_eq!(at_one[&format!("laneway_lane_lag_messages{{{GROUP},partition=\"1\"}}")], 0.0);
    assert_eq!(at_one[&format!("laneway_lane_lag_seconds{{{GROUP},partition=\"1\"}}")], 0.0);
    assert_eq!(at_one[&format!("laneway_group_lag_messages{{{GROUP},held=\"true\"}}")], 3.0);
    assert!(at_one[&format!("laneway_group_lag_seconds{{{GROUP},held=\"true\"}}")] > 0.0);
    assert_eq!(at_one["laneway_group_lanes{state=\"held\"}"], 2.0);
    assert_eq!(at_one["laneway_lag_lanes_left_out"], 0.0);
    // Nobody is left, and more comes: this is what an alert must see.
    consumer.close().await;
    becomes(server, &format!("group_lag_messages{{{GROUP},held=\"false\"}}"), 3.0).await;
    bus.publish("orders", 0, 5..7).await;
    becomes(server, &format!("group_lag_messages{{{GROUP},held=\"false\"}}"), 5.0).await;
    becomes(server, "group_lanes{state=\"free\"}", 2.0).await;
    assert!(
        !samples(server).await.contains_key(&format!("laneway_group_lag_messages{{{GROUP},held=\"true\"}}"))
    );
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_are_counted_by_state_and_a_blocked_one_is_among_them() {
    let bus = Bus::with_topic("orders", 1).await;
    let server = &bus.server;
    bus.publish("orders", 0, 0..1).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let settings = WantedSettings { on_failure: Some(OnFailure::Block), ..quick_retries(1) };
    let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    consumer.nack(&batch, 0, "no").await.unwrap();
    becomes(server, "lanes{state=\"blocked\"}", 1.0).await;
    becomes(server, "group_lanes{state=\"blocked\"}", 1.0).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_broker_tells_the_lag_and_when_it_dies_the_next_one_does() {
    let database = TestDatabase::new().await;
    let mut eldest = Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    make_topic(&eldest.address, "orders", 1).await;
    let mut consumer = Socket::connect(&eldest.address, Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let lanes = "group_lanes{state=\"held\"}";
    becomes(&eldest, lanes, 1.0).await;
    let mut next = Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    let looks = "query_seconds_count{query=\"brokers_eldest\"}";
    until("the younger one has looked twice", async || sample(&next, looks).await >= 2.0).await;
    let told = |name: &String| name.contains("_lag_") || name.contains("group_lanes");
    assert_eq!(samples(&next).await.into_keys().find(told), None, "the younger one tells nothing");
    eldest.kill().await;
    becomes(&next, "group_lanes{state=\"free\"}", 1.0).await;
    assert_eq!(next.stop().await, 0);
}
