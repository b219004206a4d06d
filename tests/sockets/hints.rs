//! Without LISTEN, what one broker takes still reaches the consumers of another: the poll is the truth.

use std::time::{Duration, Instant};

use laneway::limits::HEADS_POLL_INTERVAL;
use laneway_client::wire::Subprotocol;

use crate::Bus;
use crate::harness::Server;
use crate::harness::socket::{Socket, offsets};

/// For a busy machine.
const SLACK: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_while_listen_is_lost_comes_within_the_bound_of_the_poll() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let mut consumer = Socket::connect(&other.address, Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    consumer.granted().await;
    let mut producer = bus.connect(Subprotocol::Json).await;
    let raw = bus.database.raw().await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'laneway listen'";
    let mut killed = 0;
    for number in 0..5 {
        killed += raw.query_one(kill, &[]).await.unwrap().get::<_, i64>(0);
        let since = Instant::now();
        producer.publish("orders", vec![crate::to_partition(0, format!("m{number}"))]).await;
        let batch = consumer.batch().await;
        assert_eq!(offsets(&batch), [number]);
        assert!(since.elapsed() < HEADS_POLL_INTERVAL + SLACK, "{:?}", since.elapsed());
        consumer.ack_below(&batch, number + 1).await.unwrap();
    }
    assert!(killed >= 2, "nobody was listening: the test proves nothing");
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}
