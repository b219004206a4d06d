//! Delays, windows and ages over two brokers, one of which dies: nothing comes early, nothing twice, nothing is lost.

use std::time::Duration;

use laneway_client::wire::{BrokerFrame, NewMessage, OnExpiry, Subprotocol, Subscribe, WantedSettings};

use crate::harness::socket::{Socket, make_topic, offsets, quick_retries, subscribe};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::to_partition;

/// Two brokers that are buried soon, and a consumer at each; the first of them has the lane.
struct Two {
    database: TestDatabase,
    victim: Server,
    heir: Server,
    first: Socket,
    second: Socket,
}

async fn two(settings: WantedSettings, messages: Vec<NewMessage>) -> Two {
    let database = TestDatabase::new().await;
    let start = async || Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    let (victim, heir) = (start().await, start().await);
    make_topic(&heir.address, "orders", 1).await;
    let mut producer = Socket::connect(&heir.address, Subprotocol::Json).await;
    if !messages.is_empty() {
        producer.publish("orders", messages).await;
    }
    let join = async |server: &Server| {
        let mut consumer = Socket::connect(&server.address, Subprotocol::Json).await;
        let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
        consumer.subscribe_with(wish).await.unwrap();
        consumer
    };
    let mut first = join(&victim).await;
    first.granted().await;
    let second = join(&heir).await;
    Two { database, victim, heir, first, second }
}

/// How old the newest message is, on the database clock.
async fn age_ms(database: &TestDatabase) -> i64 {
    database
        .number("SELECT floor(extract(epoch FROM clock_timestamp() - max(published_at)) * 1000)::bigint FROM laneway.message")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_holds_at_the_heir_of_a_broker_that_was_killed_while_it_held() {
    let settings = WantedSettings { delay_ms: Some(6_000), ..WantedSettings::default() };
    let messages = vec![to_partition(0, "a"), to_partition(0, "b")];
    let Two { database, mut victim, mut heir, mut second, .. } = two(settings, messages).await;
    victim.kill().await;
    let batch = second.batch().await;
    let age = age_ms(&database).await;
    assert_eq!(offsets(&batch), [0, 1]);
    assert!((6_000..60_000).contains(&age), "it came after {age} ms");
    assert_eq!(heir.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_opens_at_the_heir_when_its_partition_is_quiet_whoever_publishes() {
    let settings =
        WantedSettings { window_ms: Some(1_500), window_max_ms: Some(600_000), ..WantedSettings::default() };
    let Two { database, mut victim, mut heir, mut second, .. } =
        two(settings, vec![to_partition(0, "a")]).await;
    victim.kill().await;
    // Another broker keeps it busy until the lane has moved.
    let mut third = Server::on_database(&database.url).await;
    let mut producer = Socket::connect(&third.address, Subprotocol::MessagePack).await;
    let mut published = 1;
    loop {
        producer.publish("orders", vec![to_partition(0, "tick")]).await;
        published += 1;
        match second.frame_within(Duration::from_millis(50)).await {
            Some(BrokerFrame::LaneGranted(_)) => break,
            Some(BrokerFrame::Batch(batch)) => {
                let age = age_ms(&database).await;
                panic!(
                    "the partition was never quiet, and {:?} came; the newest is {age} ms old",
                    offsets(&batch)
                )
            }
            Some(_) | None => {}
        }
    }
    let mut seen = Vec::new();
    while seen.len() < published {
        seen.extend(offsets(&second.batch().await));
        let age = age_ms(&database).await;
        assert!(age >= 1_500, "it was quiet for {age} ms");
    }
    assert_eq!(seen, (0..published as i64).collect::<Vec<_>>());
    assert_eq!(third.stop().await, 0);
    assert_eq!(heir.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_is_recorded_once_if_its_broker_dies_with_the_eviction_under_way() {
    for policy in [OnExpiry::Evict, OnExpiry::DeadLetter] {
        // Why a delay: a broker knows the database's time as a lower bound, so a ttl alone might not be over when it delivers.
        let settings = WantedSettings { on_expiry: Some(policy), delay_ms: Some(50), ..quick_retries(2) };
        let Two { database, mut victim, mut heir, first, mut second } = two(settings, Vec::new()).await;
        // Nothing of the lane can be settled until this ends: the eviction of the first broker is under way when it dies.
        let mut raw = database.raw().await;
        let held = raw.transaction().await.unwrap();
        held.execute("SELECT FROM laneway.lane FOR UPDATE", &[]).await.unwrap();
        let mut producer = Socket::connect(&heir.address, Subprotocol::Json).await;
        let ttl = |number: i64| (number % 2 == 0).then_some(1);
        let message = |number| NewMessage { ttl_ms: ttl(number), ..to_partition(0, format!("m{number}")) };
        producer.publish("orders", (0..20).map(message).collect()).await;
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until("the eviction waits", async || database.number(waits).await > 0).await;
        victim.kill().await;
        held.rollback().await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 10 {
            let batch = second.batch().await;
            seen.extend(offsets(&batch));
            second.ack_below(&batch, batch.messages.last().unwrap().offset + 1).await.unwrap();
        }
        let odd: Vec<i64> = (0..20).filter(|number| number % 2 == 1).collect();
        assert_eq!(seen, odd, "none of those that have expired, and each of the others once");
        let recorded =
            "SELECT sum(end_offset - \"offset\")::bigint FROM laneway.failure WHERE end_offset IS NOT NULL";
        let each = "SELECT count(DISTINCT \"offset\") FROM laneway.failure WHERE end_offset IS NOT NULL";
        until("all are recorded", async || database.number(each).await == 10).await;
        assert_eq!(database.number(recorded).await, 10, "once each");
        let kept = if policy == OnExpiry::DeadLetter { 10 } else { 0 };
        assert_eq!(database.number("SELECT count(*) FROM laneway.dead_letter").await, kept);
        first.cut();
        assert_eq!(heir.stop().await, 0);
    }
}
