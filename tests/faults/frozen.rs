//! Somebody freezes in the middle of a flush, holding its locks: PostgreSQL ends them, and the others go on.

use std::time::{Duration, Instant};

use laneway::store::Role;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::produce::{all, texts, topic, unit};
use crate::harness::{Server, TestDatabase, wait};

/// What a frozen appender may cost the others, with room for a busy machine.
const STALL_MAX: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_client_that_freezes_with_the_lock_of_a_partition_loses_it_after_a_second() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    broker.appender.append(unit(topic.partitions[0], ["warm".into()])).await.unwrap();
    let frozen = database.raw().await;
    let lock = format!(
        "SET idle_in_transaction_session_timeout = '1s'; BEGIN;
         SELECT FROM laneway.partition WHERE partition_id = {} FOR NO KEY UPDATE",
        topic.partitions[0]
    );
    frozen.batch_execute(&lock).await.unwrap();
    let since = Instant::now();
    let stuck = broker.appender.submit(unit(topic.partitions[0], ["late".into()])).unwrap();
    stuck.await.unwrap().unwrap();
    let took = since.elapsed();
    assert!(took > Duration::from_millis(500) && took < STALL_MAX, "it took {took:?}");
    assert_eq!(texts(&all(&broker, topic.partitions[0]).await), ["warm", "late"]);
}

#[tokio::test]
async fn an_appender_that_freezes_in_a_transaction_is_ended_after_a_second() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let mut appender = store.dedicated(Role::Appender).await.unwrap();
    let transaction = appender.begin().await.unwrap();
    let since = Instant::now();
    let alive = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'laneway appender'";
    assert_eq!(database.number(alive).await, 1);
    wait::until("PostgreSQL to end it", async || database.number(alive).await == 0).await;
    let took = since.elapsed();
    assert!(took > Duration::from_millis(500) && took < STALL_MAX, "it took {took:?}");
    let _ended = transaction;
    assert!(!appender.is_usable());
}

/// Promise 4, with a real broker: it is stopped when its database session has the lock and half of the flush.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_freezes_in_mid_flush_holds_nobody_up_and_no_offset_is_skipped() {
    let database = TestDatabase::new().await;
    let frozen = Server::on_database(&database.url).await;
    let other = database.broker();
    let topic = topic(&other, "orders", 1).await;
    let partition_id = topic.partitions[0];
    let publish = |text: String| {
        let messages: Vec<_> = (0..8).map(|_| json!({ "payload": text, "partition": 0 })).collect();
        let url = frozen.url("/v1/topics/orders/messages");
        reqwest::Client::new().post(url).json(&json!({ "messages": messages })).send()
    };
    assert!(publish("warm".into()).await.unwrap().status().is_success());
    let mut raw = database.raw().await;
    let hold = raw.transaction().await.unwrap();
    hold.execute("SELECT FROM laneway.partition FOR NO KEY UPDATE", &[]).await.unwrap();
    // Six megabytes do not fit into the socket: the flush is sent as far as the lock, and no further.
    let publishing = tokio::spawn(publish("x".repeat(800_000)));
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'laneway appender' AND wait_event_type = 'Lock'";
    wait::until("its flush to wait for the lock", async || database.number(waiting).await == 1).await;
    frozen.signal(Signal::SIGSTOP);
    hold.commit().await.unwrap();
    let holding = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'laneway appender' AND wait_event = 'ClientRead' AND state <> 'idle'";
    wait::until("its session to have the lock", async || database.number(holding).await == 1).await;
    let since = Instant::now();
    let receipt = other.appender.append(unit(partition_id, ["next".into()])).await.unwrap();
    assert!(since.elapsed() < STALL_MAX, "it took {:?}", since.elapsed());
    assert_eq!(receipt.first_offset.unwrap().0, 8);
    assert_eq!(texts(&all(&other, partition_id).await)[8..], ["next"]);
    frozen.signal(Signal::SIGCONT);
    // Awake again, it learns that nothing happened, says so, and goes on.
    let answer = publishing.await.unwrap().unwrap();
    assert_eq!(answer.status().as_u16(), 503);
    let answer: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(answer["code"], "unavailable", "{answer}");
    assert!(publish("awake".into()).await.unwrap().status().is_success());
    assert_eq!(texts(&all(&other, partition_id).await)[8..10], ["next", "awake"]);
}
