//! Leases live on the clock of the database: brokers whose own clocks are off by two ttl neither bury nor are buried.
//!
//! Needs libfaketime. Without it the test says so and returns.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use laneway_client::wire::{ClientFrame, Nack, Subprotocol};

use crate::harness::process::laneway;
use crate::harness::socket::{Socket, make_topic, nack, offsets};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};

const TTL: Duration = Duration::from_secs(2);

fn faketime() -> Option<&'static Path> {
    let places = [
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib64/faketime/libfaketimeMT.so.1",
        "/usr/lib/faketime/libfaketimeMT.so.1",
    ];
    places.into_iter().map(Path::new).find(|path| path.exists())
}

/// A broker whose clock is off by so many seconds.
async fn broker(database: &TestDatabase, library: &Path, seconds: i64) -> Server {
    let mut command = laneway();
    command.env("LD_PRELOAD", library).env("FAKETIME", format!("{seconds:+}s"));
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command.args(["serve", "--listen", "127.0.0.1:0", "--lease-ttl", "2s", "--lane-drain", "1s"]);
    Server::spawn_command(command.args(["--database-url", &database.url])).listening().await
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_whose_clocks_are_off_by_two_ttl_live_on_and_are_buried_only_when_they_die() {
    let Some(library) = faketime() else {
        return eprintln!("libfaketime is not installed: not tested");
    };
    let database = TestDatabase::new().await;
    let skew = 2 * TTL.as_secs() as i64;
    let (mut right, mut ahead, mut behind) = tokio::join!(
        broker(&database, library, 0),
        broker(&database, library, skew),
        broker(&database, library, -skew)
    );
    make_topic(&right.address, "orders", 3).await;
    let mut members = Vec::new();
    for address in [&right.address, &ahead.address, &behind.address] {
        let mut member = Socket::connect(address, Subprotocol::Json).await;
        member.subscribe("billing", "orders").await;
        members.push(member);
    }
    let served = "SELECT count(DISTINCT broker_id) FROM laneway.lane WHERE session_id = wanted_session";
    until("each broker to have a lane", async || database.number(served).await == 3).await;
    let epochs = "SELECT sum(epoch)::bigint FROM laneway.lane";
    let before = database.number(epochs).await;
    // Whoever went by its own clock would bury the others now, or think itself dead.
    tokio::time::sleep(3 * TTL).await;
    assert_eq!(database.number("SELECT count(*) FROM laneway.broker WHERE dead_at IS NOT NULL").await, 0);
    assert_eq!(database.number(epochs).await, before, "no lane has moved");
    let mut producer = Socket::connect(&right.address, Subprotocol::Json).await;
    producer.publish("orders", (0..3).map(|partition| crate::to_partition(partition, "m0")).collect()).await;
    for member in &mut members {
        let batch = member.batch().await;
        assert_eq!(offsets(&batch), [0]);
        assert_eq!(member.ack_below(&batch, 1).await.unwrap(), 1);
    }
    // One that dies is buried by those that are left, whatever their clocks say.
    ahead.kill().await;
    let dead = "SELECT count(*) FROM laneway.broker WHERE dead_at IS NOT NULL";
    until("it to be buried", async || database.number(dead).await == 1).await;
    let moved = "SELECT count(*) FROM laneway.lane WHERE session_id = wanted_session AND broker_id IN
        (SELECT broker_id FROM laneway.broker WHERE dead_at IS NULL)";
    until("the lane of the dead to be held again", async || database.number(moved).await == 3).await;
    assert_eq!(database.number(epochs).await, before + 1);
    drop(members);
    assert_eq!(right.stop().await, 0);
    assert_eq!(behind.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_holds_its_lane_until_a_moment_of_the_database_whatever_the_broker_takes_the_time_for() {
    let Some(library) = faketime() else {
        return eprintln!("libfaketime is not installed: not tested");
    };
    let database = TestDatabase::new().await;
    let mut ahead = broker(&database, library, 3_600).await;
    make_topic(&ahead.address, "orders", 1).await;
    let mut consumer = Socket::connect(&ahead.address, Subprotocol::Json).await;
    consumer.publish("orders", vec![crate::to_partition(0, "m0")]).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    let until = Timestamp::now() + Duration::from_millis(700);
    let nack = Nack { id: Some(1), until: Some(until.to_string()), ..nack(&batch, 0, "busy") };
    consumer.send(ClientFrame::Nack(nack)).await;
    consumer.confirmed(1).await.unwrap();
    assert_eq!(offsets(&consumer.batch().await), [0]);
    assert!(Timestamp::now() >= until);
    consumer.close().await;
    assert_eq!(ahead.stop().await, 0);
}
