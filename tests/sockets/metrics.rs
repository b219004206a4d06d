//! `/metrics`: every number moves by the right amount when what it counts happens.

use std::collections::BTreeMap;

use laneway_client::wire::{CreditGrant, Hello, OnFailure, Resume, Subprotocol, Subscribe, WantedSettings};

use crate::Bus;
use crate::harness::socket::{Socket, batches_of, hello, quick_retries, subscribe};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};

/// All samples by name and labels.
pub async fn samples(server: &Server) -> BTreeMap<String, f64> {
    let text = reqwest::get(server.url("/metrics")).await.unwrap().text().await.unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

pub async fn sample(server: &Server, name: &str) -> f64 {
    samples(server).await.get(&format!("laneway_{name}")).copied().unwrap_or(0.0)
}

/// Waits until a number is what it should be.
pub async fn becomes(server: &Server, name: &str, expected: f64) {
    let patience = async || sample(server, name).await == expected;
    until(&format!("{name} becomes {expected}"), patience).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_deliveries_acks_and_failures_are_counted() {
    let bus = Bus::with_topic("orders", 1).await;
    let server = &bus.server;
    bus.publish("orders", 0, 0..4).await;
    becomes(server, "published_messages_total", 4.0).await;
    becomes(server, "published_bytes_total", 8.0).await;
    assert!(sample(server, "flushes_total").await >= 1.0);
    assert_eq!(sample(server, "flush_messages_sum").await, 4.0);
    let mut consumer = bus.connect(Subprotocol::Json).await;
    becomes(server, "sessions", 1.0).await;
    let wish = Subscribe { settings: Some(quick_retries(2)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    becomes(server, "delivered_messages_total", 4.0).await;
    becomes(server, "delivered_bytes_total", 8.0).await;
    becomes(server, "delivered_batches_total", 1.0).await;
    becomes(server, "end_to_end_seconds_count", 1.0).await;
    assert!(sample(server, "catch_up_reads_total").await >= 1.0);
    consumer.ack_below(&batch, 1).await.unwrap();
    becomes(server, "acked_messages_total", 1.0).await;
    assert!(sample(server, "lane_commits_total").await >= 1.0);
    consumer.nack(&batch, 1, "no").await.unwrap();
    becomes(server, "nacks_total", 1.0).await;
    becomes(server, "retries_total", 1.0).await;
    let again = consumer.batch().await;
    consumer.nack(&again, 1, "no").await.unwrap();
    becomes(server, "dead_letters_total", 1.0).await;
    becomes(server, "given_up_total{reason=\"dead_letter\"}", 1.0).await;
    becomes(server, "nacks_total", 2.0).await;
    let hits = sample(server, "hot_tail_hits_total").await;
    bus.publish("orders", 0, 4..5).await;
    consumer.batches(3).await;
    becomes(server, "hot_tail_hits_total", hits + 1.0).await;
    consumer.close().await;
    becomes(server, "sessions", 0.0).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalls_deadlines_and_refusals_are_counted() {
    let bus = Bus::with_topic("orders", 1).await;
    let server = &bus.server;
    bus.publish("orders", 0, 0..10).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let settings =
        WantedSettings { ack_deadline_ms: Some(200), on_failure: Some(OnFailure::Block), ..quick_retries(1) };
    let wish = Subscribe {
        credit: CreditGrant { messages: 2, bytes: 1_000 },
        settings: Some(settings),
        batch: Some(batches_of(1)),
        ..subscribe("billing", "orders")
    };
    consumer.subscribe_with(wish).await.unwrap();
    consumer.batches(2).await;
    until("a lane waits for credit", async || sample(server, "credit_stalls_total").await >= 1.0).await;
    becomes(server, "deadlines_missed_total", 1.0).await;
    becomes(server, "lanes_revoked_total{reason=\"ack_deadline\"}", 1.0).await;
    let id = consumer.id();
    let numbered = laneway_client::wire::NewMessage { sequence: Some(7), ..crate::to_partition(0, "x") };
    let publish = laneway_client::wire::Publish {
        id,
        topic: "orders".into(),
        producer_id: Some(uuid::Uuid::new_v4()),
        wait_ms: None,
        messages: vec![numbered],
    };
    consumer.send(laneway_client::wire::ClientFrame::Publish(publish)).await;
    becomes(server, "publish_failures_total{reason=\"sequence_gap\"}", 1.0).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_takeovers_rebalances_resumes_and_burials_are_counted() {
    let database = TestDatabase::new().await;
    let mut living = Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    let mut killed = Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    crate::harness::socket::make_topic(&living.address, "orders", 2).await;
    let grace = Hello { resume_grace_ms: Some(60_000), ..hello() };
    let (mut first, welcome) = Socket::connect_with(&living.address, Subprotocol::Json, grace.clone()).await;
    first.subscribe("billing", "orders").await;
    becomes(&living, "lanes_granted_total", 2.0).await;
    becomes(&living, "lanes{state=\"held\"}", 2.0).await;
    assert_eq!(sample(&living, "takeovers_total").await, 0.0);
    assert!(sample(&living, "rebalances_total").await >= 1.0);
    let mut second = Socket::connect(&killed.address, Subprotocol::Json).await;
    second.subscribe("billing", "orders").await;
    second.granted().await;
    becomes(&living, "lanes{state=\"held\"}", 1.0).await;
    becomes(&killed, "takeovers_total", 1.0).await;
    becomes(&living, "lanes_revoked_total{reason=\"moved\"}", 1.0).await;
    killed.kill().await;
    becomes(&living, "burials_total", 1.0).await;
    becomes(&living, "takeovers_total", 1.0).await;
    becomes(&living, "lanes{state=\"held\"}", 2.0).await;
    first.cut();
    let resume = Some(Resume { session: welcome.session, token: welcome.resume_token });
    let back = Socket::connect_with(&living.address, Subprotocol::Json, Hello { resume, ..grace }).await;
    becomes(&living, "sessions_resumed_total", 1.0).await;
    back.0.close().await;
    assert_eq!(living.stop().await, 0);
}
