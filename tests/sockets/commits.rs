//! What deliveries and acks cost the database: they join the flushes, and pay for no commit of their own.

use laneway_client::wire::{ClientFrame, Subprotocol};

use crate::Bus;
use crate::harness::socket::ack;
use crate::harness::wait::until;

async fn commits(bus: &Bus) -> i64 {
    let raw = bus.database.raw().await;
    raw.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
    bus.database.number("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").await
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_acks_join_the_flushes_and_deliveries_cost_no_commit() {
    const MESSAGES: usize = 20_000;
    let bus = Bus::with_topic("orders", 4).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    for _ in 0..4 {
        consumer.granted().await;
    }
    let before = commits(&bus).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let publishing = async {
        for first in (0..MESSAGES).step_by(100) {
            let messages = (first..first + 100).map(|n| crate::to_partition(n as u32 % 4, "x".repeat(200)));
            producer.publish("orders", messages.collect()).await;
        }
    };
    let consuming = async {
        let mut left = MESSAGES;
        while left > 0 {
            let batch = consumer.batch().await;
            for message in &batch.messages {
                // The worst client: an ack per message.
                consumer.send(ClientFrame::Ack(ack(&batch, Some(message.offset + 1), &[]))).await;
            }
            left -= batch.messages.len();
        }
    };
    tokio::join!(publishing, consuming);
    let done = format!(
        "SELECT count(*) FROM (SELECT DISTINCT ON (partition_id) committed_offset FROM laneway.lane_commit
         ORDER BY partition_id, epoch DESC, number DESC) newest WHERE committed_offset = {}",
        MESSAGES / 4
    );
    until("every ack is committed", async || bus.database.number(&done).await == 4).await;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await; // statistics reach the server once a second
    let spent = commits(&bus).await - before;
    let per_message = spent as f64 / MESSAGES as f64;
    println!("{spent} commits for {MESSAGES} messages: {per_message:.4} each");
    assert!(
        per_message < 0.1,
        "{spent} commits for {MESSAGES} messages, published, delivered and acknowledged"
    );
    bus.stop().await;
}
