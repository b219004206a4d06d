//! The views that tell who does how much: brokers, members, topics.

use laneway_client::wire::Subprotocol;

use crate::harness::socket::{Socket, make_topic};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::{Bus, to_partition};

/// Rows of a view, as text, in order.
async fn rows(database: &TestDatabase, columns: &str, view: &str) -> Vec<String> {
    let sql = format!("SELECT concat_ws(' ', {columns}) FROM laneway.{view} ORDER BY 1");
    let rows = database.raw().await.query(&sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_and_members_show_their_share_of_the_lanes() {
    let database = TestDatabase::new().await;
    let mut busy = Server::on_database(&database.url).await;
    let mut idle = Server::on_database(&database.url).await;
    make_topic(&busy.address, "orders", 3).await;
    let mut first = Socket::connect(&busy.address, Subprotocol::Json).await;
    first.subscribe("billing", "orders").await;
    for _ in 0..3 {
        first.granted().await;
    }
    let brokers = "sessions, groups, lanes, lane_share, is_alive";
    assert_eq!(rows(&database, brokers, "broker_utilisation").await, ["0 0 0 0.000 t", "1 1 3 1.000 t"]);
    let members = "topic, group_name, lanes, lane_share";
    assert_eq!(rows(&database, members, "session_utilisation").await, ["orders billing 3 1.000"]);
    let mut second = Socket::connect(&idle.address, Subprotocol::Json).await;
    second.subscribe("billing", "orders").await;
    let shared = ["orders billing 1 0.333", "orders billing 2 0.667"];
    until("both hold their part", async || rows(&database, members, "session_utilisation").await == shared)
        .await;
    let shares = ["1 1 1 0.333 t", "1 1 2 0.667 t"];
    assert_eq!(rows(&database, brokers, "broker_utilisation").await, shares);
    first.close().await;
    second.close().await;
    assert_eq!((busy.stop().await, idle.stop().await), (0, 0));
    assert!(
        rows(&database, brokers, "broker_utilisation").await.is_empty(),
        "a broker that resigned does nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_shows_what_it_stores_and_how_it_grows() {
    let bus = Bus::with_topic("orders", 2).await;
    let columns = "topic, partitions, messages, bytes, segments, messages_last_hour, bytes_last_hour, \
        coalesce(largest_partition_share, -1), coalesce(retention_used, -1)";
    assert_eq!(rows(&bus.database, columns, "topic_utilisation").await, ["orders 2 0 0 0 0 0 -1 -1"]);
    let mut producer = bus.connect(Subprotocol::Json).await;
    let messages = (0..4).map(|number| to_partition(u32::from(number == 3), "twelve bytes"));
    producer.publish("orders", messages.collect()).await;
    producer.close().await;
    let raw = bus.database.raw().await;
    raw.batch_execute("UPDATE laneway.topic SET retention_bytes = 96").await.unwrap();
    let segments = bus.database.number("SELECT count(*) FROM laneway.segment").await;
    let now = format!("orders 2 4 48 {segments} 4 48 0.750 0.500");
    assert_eq!(rows(&bus.database, columns, "topic_utilisation").await, [now]);
    // As if the flush of partition 0 had been two hours ago.
    raw.batch_execute(
        "UPDATE laneway.head h SET published_at = published_at - interval '2 hours'
         FROM laneway.partition p WHERE p.partition_id = h.partition_id AND p.number = 0",
    )
    .await
    .unwrap();
    let later = format!("orders 2 4 48 {segments} 1 12 0.750 0.500");
    assert_eq!(rows(&bus.database, columns, "topic_utilisation").await, [later]);
    bus.stop().await;
}
