//! What `/metrics` tells of the database: commits by kind, errors by class, time per query, how the pool is used.

use laneway_client::wire::Subprotocol;

use crate::Bus;
use crate::harness::socket::make_topic;
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::metrics::{becomes, sample};

#[tokio::test(flavor = "multi_thread")]
async fn commits_are_counted_by_kind_so_that_they_can_be_set_against_deliveries() {
    let bus = Bus::with_topic("orders", 1).await;
    let server = &bus.server;
    bus.publish("orders", 0, 0..1).await; // makes the tables
    let flushes = sample(server, "commits_total{kind=\"flush\"}").await;
    bus.publish("orders", 0, 1..5).await;
    becomes(server, "commits_total{kind=\"flush\"}", flushes + 1.0).await;
    assert_eq!(
        sample(server, "flushes_total").await,
        flushes + 1.0,
        "each flush is a commit, and the other way round"
    );
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let shared = sample(server, "commits_total{kind=\"shared\"}").await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    becomes(server, "delivered_messages_total", 5.0).await;
    let entered = sample(server, "commits_total{kind=\"shared\"}").await;
    assert!(entered > shared, "the group, its member and its lane are commits of the shared pool");
    assert_eq!(
        sample(server, "commits_total{kind=\"flush\"}").await,
        flushes + 1.0,
        "a delivery commits nothing"
    );
    consumer.ack_below(&batch, 5).await.unwrap();
    becomes(server, "commits_total{kind=\"flush\"}", flushes + 2.0).await;
    until("heartbeats are commits", async || {
        sample(server, "commits_total{kind=\"heartbeat\"}").await >= 1.0
    })
    .await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_database_is_counted_by_class_and_by_query() {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let raw = database.raw().await;
    raw.batch_execute("ALTER TABLE laneway.dead_letter RENAME TO elsewhere").await.unwrap();
    let list = async || reqwest::get(server.url("/v1/dead-letters")).await.unwrap().status().as_u16();
    assert_eq!(list().await, 500);
    assert_eq!(list().await, 500);
    assert_eq!(sample(&server, "database_errors_total{class=\"table_gone\"}").await, 2.0);
    assert_eq!(sample(&server, "query_errors_total{query=\"dead_letters_list\"}").await, 2.0);
    let asked = sample(&server, "query_seconds_count{query=\"dead_letters_list\"}").await;
    raw.batch_execute("ALTER TABLE laneway.elsewhere RENAME TO dead_letter").await.unwrap();
    assert_eq!(list().await, 200);
    assert_eq!(sample(&server, "query_seconds_count{query=\"dead_letters_list\"}").await, asked + 1.0);
    assert_eq!(sample(&server, "database_errors_total{class=\"table_gone\"}").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_tells_who_uses_it_and_who_waits() {
    const POOL: &str = "pool=\"shared\"";
    let database = TestDatabase::new().await;
    let server = Server::start(&["--database-url", &database.url, "--pool-size", "2"]).await;
    make_topic(&server.address, "orders", 1).await;
    assert_eq!(sample(&server, &format!("pool_connections_max{{{POOL}}}")).await, 2.0);
    let mut raw = database.raw().await;
    let lock = raw.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE laneway.dead_letter IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let url = server.url("/v1/dead-letters");
    let blocked: Vec<_> = (0..3).map(|_| tokio::spawn(reqwest::get(url.clone()))).collect();
    becomes(&server, &format!("pool_connections{{{POOL},state=\"in_use\"}}"), 2.0).await;
    becomes(&server, &format!("pool_connections{{{POOL},state=\"idle\"}}"), 0.0).await;
    let waits = sample(&server, &format!("pool_waits_total{{{POOL}}}")).await;
    lock.rollback().await.unwrap();
    for request in blocked {
        assert_eq!(request.await.unwrap().unwrap().status(), 200);
    }
    let waited = async || sample(&server, &format!("pool_waits_total{{{POOL}}}")).await > waits;
    until("the third request has waited for a connection", waited).await;
    assert!(sample(&server, &format!("pool_wait_seconds_total{{{POOL}}}")).await > 0.0);
    becomes(&server, &format!("pool_connections{{{POOL},state=\"in_use\"}}"), 0.0).await;
    becomes(&server, &format!("pool_timeouts_total{{{POOL}}}"), 0.0).await;
}
