//! What it costs to publish on one broker and to consume on another: little while hints flow, a poll when they are lost.

use std::time::{Duration, Instant};

use laneway::limits::HEADS_POLL_INTERVAL;
use laneway_client::wire::Subprotocol;

use crate::harness::socket::{Socket, make_topic, text};
use crate::harness::wire::Wire;
use crate::harness::{Server, TestDatabase};
use crate::median;

/// What a stolen moment on a busy machine may cost beside the poll.
const SLACK: Duration = Duration::from_millis(500);

/// Publishes one message and returns how long it takes to be delivered.
async fn delivery(producer: &mut Socket, consumer: &mut Socket, number: usize) -> Duration {
    let since = Instant::now();
    let (_, batch) =
        tokio::join!(producer.publish("orders", vec![text(format!("m{number}"))]), consumer.batch());
    assert_eq!(batch.messages[0].payload, format!("m{number}"));
    let took = since.elapsed();
    let next = batch.messages[0].offset + 1;
    consumer.ack_below(&batch, next).await.unwrap();
    took
}

fn p99(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[(all.len() * 99).div_ceil(100) - 1]
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_publish_on_another_broker_is_delivered_within_20_ms_more() {
    let database = TestDatabase::new().await;
    let args = ["--database-url", &database.url, "--lease-ttl", "2s"];
    let (mut near, mut far) = (Server::start(&args).await, Server::start(&args).await);
    make_topic(&near.address, "orders", 1).await;
    let mut consumer = Socket::connect(&near.address, Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    consumer.granted().await;
    let mut here = Socket::connect(&near.address, Subprotocol::MessagePack).await;
    let mut there = Socket::connect(&far.address, Subprotocol::MessagePack).await;
    // Until each knows of the other.
    for number in 0..20 {
        delivery(&mut there, &mut consumer, number).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Three series, interleaved: what disturbs one, disturbs the other as well.
    let mut added = Vec::new();
    for series in 0..3 {
        let (mut same, mut other) = (Vec::new(), Vec::new());
        for number in 0..100 {
            same.push(delivery(&mut here, &mut consumer, number).await);
            other.push(delivery(&mut there, &mut consumer, number).await);
        }
        eprintln!(
            "series {series}: p50 {:?} here, {:?} there; p99 {:?} here, {:?} there",
            median(same.clone()),
            median(other.clone()),
            p99(same.clone()),
            p99(other.clone())
        );
        added.push(p99(other).saturating_sub(p99(same)));
    }
    assert!(median(added.clone()) <= Duration::from_millis(20), "{added:?}");
    assert_eq!(near.stop().await, 0);
    assert_eq!(far.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_on_another_broker_is_delivered_within_the_poll_when_hints_are_lost() {
    let database = TestDatabase::new().await;
    let wire = Wire::before(&database.url).await;
    wire.let_no_listen_through();
    let mut deaf = Server::start(&["--database-url", &wire.url(&database.url)]).await;
    let mut far = Server::start(&["--database-url", &database.url]).await;
    make_topic(&deaf.address, "orders", 1).await;
    let mut consumer = Socket::connect(&deaf.address, Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    consumer.granted().await;
    let mut there = Socket::connect(&far.address, Subprotocol::MessagePack).await;
    let mut took = Vec::new();
    for number in 0..8 {
        took.push(delivery(&mut there, &mut consumer, number).await);
    }
    let listens = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'laneway listen'";
    assert_eq!(database.number(listens).await, 1, "only the other one hears anything");
    let slowest = took.iter().max().unwrap();
    assert!(*slowest <= HEADS_POLL_INTERVAL.mul_f64(1.25) + SLACK, "{took:?}");
    assert!(median(took.clone()) > Duration::from_millis(100), "no hint has come: {took:?}");
    assert_eq!(deaf.stop().await, 0);
    assert_eq!(far.stop().await, 0);
}
