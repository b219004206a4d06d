//! How soon lanes run again: within 100 ms after a broker was stopped, within a ttl and a second after it died.

use std::time::{Duration, Instant};

use laneway_client::wire::{BrokerFrame, NewMessage, Start, Subprotocol, Subscribe};
use nix::sys::signal::Signal;

use crate::harness::socket::{Socket, make_topic, subscribe, text};
use crate::harness::{Server, TestDatabase, wait};
use crate::{median, restart};

const LANES: u32 = 4;
const TTL: Duration = Duration::from_secs(2);

/// Stops a broker that holds every lane, several times; returns how long the last of them took to come to another broker.
async fn takeovers(signal: Signal, times: usize) -> Vec<Duration> {
    let database = TestDatabase::new().await;
    let ttl = ["--lease-ttl", "2s"];
    let mut living = Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    let mut victim = Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    make_topic(&living.address, "orders", LANES).await;
    let mut took = Vec::new();
    for round in 0..times {
        // Everything is the victim's, and the heir is there already.
        let group = format!("billing{round}");
        let mut holder = Socket::connect(&victim.address, Subprotocol::MessagePack).await;
        holder.subscribe_with(newest(&group)).await.unwrap();
        for _ in 0..LANES {
            holder.granted().await;
        }
        let mut heir = Socket::connect(&living.address, Subprotocol::MessagePack).await;
        heir.subscribe_with(newest(&group)).await.unwrap();
        let mut moved = 0;
        while moved < LANES / 2 {
            moved += u32::from(matches!(heir.frame().await, BrokerFrame::LaneGranted(_)));
        }
        let since = Instant::now();
        victim.signal(signal);
        while moved < LANES {
            moved += u32::from(matches!(heir.frame().await, BrokerFrame::LaneGranted(_)));
        }
        took.push(since.elapsed());
        // They run: what is published now is delivered.
        heir.publish("orders", (0..LANES).map(|lane| to(lane, round)).collect()).await;
        let delivered: usize =
            heir.batches(LANES as usize).await.iter().map(|batch| batch.messages.len()).sum();
        assert!(delivered >= LANES as usize);
        heir.cut();
        holder.cut();
        victim.ended().await;
        victim = restart(&database, &victim.address.clone(), &ttl).await;
    }
    for server in [&mut living, &mut victim] {
        assert_eq!(server.stop().await, 0);
    }
    took
}

/// Nothing of the rounds before is in flight: a lane with messages that nobody acknowledges is drained first.
fn newest(group: &str) -> Subscribe {
    Subscribe { start: Some(Start::Latest), ..subscribe(group, "orders") }
}

fn to(partition: u32, round: usize) -> NewMessage {
    NewMessage { partition: Some(partition), ..text(format!("m{round}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_the_lanes_of_a_broker_that_is_stopped_run_again_within_100_ms() {
    let took = takeovers(Signal::SIGTERM, 7).await;
    eprintln!("clean stop: {took:?}");
    assert!(median(took.clone()) <= Duration::from_millis(100), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_the_lanes_of_a_broker_that_dies_run_again_within_a_ttl_and_a_second() {
    let took = takeovers(Signal::SIGKILL, 3).await;
    eprintln!("crash: {took:?}");
    assert!(median(took.clone()) <= TTL + Duration::from_secs(1), "{took:?}");
}

/// A client that comes back elsewhere while its broker is buried: whoever is second waits, and they never wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_burial_takes_sessions_before_lanes_as_a_resume_does() {
    let database = TestDatabase::new().await;
    let mut living = Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    let mut victim = Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    make_topic(&living.address, "orders", 1).await;
    let mut holder = Socket::connect(&victim.address, Subprotocol::MessagePack).await;
    holder.subscribe_with(newest("billing")).await.unwrap();
    holder.granted().await;
    // As a resume begins: its session first.
    let resuming = database.raw().await;
    resuming.batch_execute("BEGIN; SELECT FROM laneway.session FOR UPDATE").await.unwrap();
    victim.signal(Signal::SIGKILL);
    victim.ended().await;
    let burying = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'laneway heartbeat' AND wait_event_type = 'Lock'";
    wait::until("the burial to wait for the session", async || database.number(burying).await == 1).await;
    // Its lanes next.
    let lanes = "SET LOCAL lock_timeout = '100ms'; SELECT FROM laneway.lane FOR NO KEY UPDATE; COMMIT";
    resuming.batch_execute(lanes).await.unwrap();
    let held = "SELECT count(*) FROM laneway.lane WHERE session_id IS NOT NULL";
    wait::until("the burial", async || database.number(held).await == 0).await;
    assert_eq!(living.stop().await, 0);
}
