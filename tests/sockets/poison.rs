//! What is nobody's fault is charged to nobody, and what cannot be written down does not happen.

use std::time::Duration;

use laneway_client::wire::{ClientFrame, Subprotocol, Subscribe};

use crate::Bus;
use crate::harness::socket::{BOTH, Socket, make_topic, nack, offsets, quick_retries, subscribe};
use crate::harness::{Server, TestDatabase};

#[tokio::test(flavor = "multi_thread")]
async fn five_broker_crashes_charge_nobody_and_make_nothing_suspect() {
    let database = TestDatabase::new().await;
    let wish = || Subscribe { settings: Some(quick_retries(1)), ..subscribe("billing", "orders") };
    let start = async || Server::start(&["--database-url", &database.url, "--lease-ttl", "1s"]).await;
    for crash in 0..=5 {
        let mut server = start().await;
        if crash == 0 {
            make_topic(&server.address, "orders", 1).await;
            let mut producer = Socket::connect(&server.address, Subprotocol::Json).await;
            producer
                .publish("orders", (0..10).map(|n| crate::to_partition(0, format!("m{n}"))).collect())
                .await;
        }
        let mut consumer = Socket::connect(&server.address, BOTH[crash % 2]).await;
        consumer.subscribe_with(wish()).await.unwrap();
        let granted = consumer.granted().await;
        assert_eq!((granted.epoch, granted.committed_offset), (crash as i64 + 1, 0));
        let batches = consumer.batches(10).await;
        assert_eq!(batches.iter().flat_map(offsets).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert!(batches.iter().all(|batch| batch.attempts.is_empty()), "{batches:?}");
        if crash < 5 {
            server.kill().await;
        } else {
            assert_eq!(consumer.ack_below(batches.last().unwrap(), 10).await.unwrap(), 10);
            assert_eq!(server.stop().await, 0);
        }
    }
    let charged =
        "SELECT (SELECT count(*) FROM laneway.attempt) + (SELECT count(*) FROM laneway.dead_letter)";
    assert_eq!(database.number(charged).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_cannot_be_written_keeps_its_message_until_it_can() {
    let bus = Bus::with_topic("orders", 2).await;
    bus.publish("orders", 0, 0..3).await;
    let raw = bus.database.raw().await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION ''no room for the dead''; END';
        CREATE TRIGGER refuse BEFORE INSERT ON laneway.dead_letter FOR EACH ROW EXECUTE FUNCTION refuse()";
    raw.batch_execute(refuse).await.unwrap();
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let wish = Subscribe { settings: Some(quick_retries(1)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    consumer.granted().await;
    consumer.granted().await;
    let batch = consumer.batch().await;
    let id = consumer.id();
    let mut refused = nack(&batch, 0, "it does not fit");
    refused.id = Some(id);
    consumer.send(ClientFrame::Nack(refused)).await;
    bus.server.logged("a lane is settled later").await;
    let committed = "SELECT coalesce(max(committed_offset), 0) FROM laneway.lane_commit";
    assert_eq!(bus.database.number(committed).await, 0, "neither half has happened");
    // The other lane goes on meanwhile.
    bus.publish("orders", 1, 0..1).await;
    let other = consumer.batch().await;
    assert_eq!((other.partition, offsets(&other)), (1, vec![0]));
    assert!(consumer.frame_within(Duration::from_millis(200)).await.is_none(), "nothing passes the message");
    raw.batch_execute("DROP TRIGGER refuse ON laneway.dead_letter").await.unwrap();
    consumer.confirmed(id).await.unwrap();
    let rest = consumer.batch().await;
    assert_eq!((rest.partition, offsets(&rest)), (0, vec![1, 2]));
    assert_eq!(consumer.ack_below(&rest, 3).await.unwrap(), 3);
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.dead_letter").await, 1);
    assert_eq!(bus.database.number("SELECT \"offset\" FROM laneway.dead_letter").await, 0);
    bus.stop().await;
}
