//! Quiet partitions: the open segment is cut when its messages are too old, and no message that comes meanwhile is lost.

use std::sync::Arc;

use laneway::broker::Broker;
use laneway::ids::{Offset, PartitionId};
use laneway::store::Store;
use laneway::store::retention::{Expired, ExpiredKind};
use laneway::store::retry::{Policy, contended};
use laneway_client::topic::CreateTopic;

use crate::harness::produce::{ALL, texts, unit};
use crate::harness::quiet::QuietBroker;
use crate::harness::{TestDatabase, wait};

/// A topic whose messages may be dropped after an hour.
async fn topic(broker: &Broker) -> PartitionId {
    let request = CreateTopic {
        segment_messages: Some(100),
        retention_age_ms: Some(3_600_000),
        ..CreateTopic::new("orders", 1)
    };
    broker.topics.create(&request).await.unwrap().partitions[0]
}

/// Makes everything published so far two hours old.
async fn grow_old(raw: &tokio_postgres::Client) {
    let heads = "UPDATE laneway.head SET published_at = published_at - interval '2 hours'";
    raw.execute(heads, &[]).await.unwrap();
}

async fn publish(broker: &Broker, partition_id: PartitionId, text: &str) -> i64 {
    let receipt = broker.appender.append(unit(partition_id, [text.to_owned()])).await.unwrap();
    receipt.first_offset.unwrap().0
}

async fn read(broker: &Broker, partition_id: PartitionId, from: i64) -> Vec<String> {
    texts(&broker.reader.read(partition_id, Offset(from), ALL).await.unwrap())
}

async fn start(database: &TestDatabase) -> i64 {
    database.number("SELECT start_offset FROM laneway.partition").await
}

#[tokio::test]
async fn a_quiet_partition_is_cut_at_its_newest_message_and_goes_on_at_the_next_offset() {
    let database = TestDatabase::new().await;
    let raw = database.raw().await;
    // Both remember the tables that they made or found.
    let brokers = [QuietBroker::start(database.store()), QuietBroker::start(database.store())];
    let partition_id = topic(&brokers[0]).await;
    let mut next = 0;
    for round in 0..6 {
        for number in 0..7 {
            let broker = &brokers[(round + number) % 2];
            assert_eq!(publish(broker, partition_id, &format!("r{round}-{number}")).await, next);
            next += 1;
        }
        assert_eq!(brokers[0].store.retention_pass().await.unwrap(), 0, "an hour has not passed");
        grow_old(&raw).await;
        assert_eq!(brokers[round % 2].store.retention_pass().await.unwrap(), 1);
        assert_eq!(start(&database).await, next);
        assert!(read(&brokers[0], partition_id, next).await.is_empty());
        let stored = brokers[0].store.partitions_describe(laneway::ids::TopicId(1)).await.unwrap();
        assert_eq!((stored[0].next_offset, stored[0].stored_bytes), (Offset(next), 0));
    }
    // What was ahead is still there, so the hole before it was filled exactly, every time.
    assert_eq!(publish(&brokers[1], partition_id, "last").await, next);
    assert_eq!(read(&brokers[0], partition_id, next).await, ["last"]);
    let overlapping = "SELECT count(*) FROM laneway.segment a JOIN laneway.segment b
        ON a.segment_id < b.segment_id AND a.first_offset < b.end_offset AND b.first_offset < a.end_offset";
    assert_eq!(database.number(overlapping).await, 0);
}

#[tokio::test]
async fn a_cut_whose_broker_dies_before_the_drop_is_finished_by_the_next() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let partition_id = topic(&broker).await;
    publish(&broker, partition_id, "old").await;
    grow_old(&database.raw().await).await;
    let dying = database.store();
    let expired = open_segment(&dying).await;
    let retired = dying.upkeep_connection().await.unwrap().segments_retire(expired).await.unwrap();
    assert_eq!(retired.map(|retired| retired.start), Some(Offset(1)));
    drop(dying);
    assert_eq!(publish(&broker, partition_id, "new").await, 1);
    assert_eq!(database.store().retention_pass().await.unwrap(), 0);
    assert_eq!(database.number("SELECT count(*) FROM laneway.segment WHERE state <> 'attached'").await, 0);
    assert_eq!(read(&broker, partition_id, 1).await, ["new"]);
}

async fn open_segment(store: &Store) -> Expired {
    let expired = store.upkeep_connection().await.unwrap().segments_expired().await.unwrap();
    assert_eq!(expired.len(), 1);
    assert_eq!(expired[0].kind, ExpiredKind::Open);
    expired[0]
}

async fn cut(store: Store, expired: Expired) -> Option<Offset> {
    let retire = || async { store.upkeep_connection().await?.segments_retire(expired).await };
    contended(Policy::DDL, retire).await.unwrap().map(|retired| retired.start)
}

/// Which of the two reaches the partition's lock first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Publish,
    Cut,
}

/// Holds the partition until both a publish and a cut wait for it, then lets go.
async fn race(first: First) {
    let database = TestDatabase::new().await;
    let broker = Arc::new(QuietBroker::start(database.store()));
    let partition_id = topic(&broker).await;
    let mut raw = database.raw().await;
    let observer = database.raw().await;
    let mut next = 0;
    for round in 0..4 {
        assert_eq!(publish(&broker, partition_id, "old").await, next);
        grow_old(&raw).await;
        let expired = open_segment(&broker.store).await;
        let hold = raw.transaction().await.unwrap();
        hold.execute("SELECT FROM laneway.partition FOR NO KEY UPDATE", &[]).await.unwrap();
        let waiting = async |name: &str| {
            let sql = "SELECT FROM pg_stat_activity WHERE datname = current_database()
                AND application_name = $1 AND wait_event_type = 'Lock'";
            wait::until(name, async || observer.query(sql, &[&name]).await.unwrap().len() == 1).await;
        };
        let text = format!("new{round}");
        let new = || broker.appender.submit(unit(partition_id, [text.clone()])).unwrap();
        let (answer, cutting) = match first {
            First::Publish => {
                let answer = new();
                waiting("laneway appender").await;
                let cutting = tokio::spawn(cut(broker.store.clone(), expired));
                waiting("laneway upkeep").await;
                (answer, cutting)
            }
            First::Cut => {
                let cutting = tokio::spawn(cut(broker.store.clone(), expired));
                waiting("laneway upkeep").await;
                let answer = new();
                waiting("laneway appender").await;
                (answer, cutting)
            }
        };
        hold.commit().await.unwrap();
        let receipt = answer.await.unwrap().unwrap();
        assert_eq!(receipt.first_offset, Some(Offset(next + 1)), "no offset is used twice");
        match cutting.await.unwrap() {
            // The message is young, so its segment stays, and with it the old one.
            None => assert_eq!(read(&broker, partition_id, next).await, ["old", &text]),
            Some(start) => assert_eq!((first, start), (First::Cut, Offset(next + 1))),
        }
        assert_eq!(read(&broker, partition_id, next + 1).await, [text]);
        // A clean slate for the next round.
        grow_old(&raw).await;
        broker.store.retention_pass().await.unwrap();
        next += 2;
        assert_eq!(start(&database).await, next);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_commits_while_a_cut_waits_is_not_cut_off() {
    race(First::Publish).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_waits_behind_a_cut_goes_into_a_new_table() {
    race(First::Cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_and_publishes_that_race_freely_lose_nothing() {
    let database = TestDatabase::new().await;
    let brokers = [QuietBroker::start(database.store()), QuietBroker::start(database.store())];
    let partition_id = topic(&brokers[0]).await;
    let raw = database.raw().await;
    publish(&brokers[0], partition_id, "first").await;
    let (mut kept, mut cuts) = (0, 0);
    for round in 1..60 {
        grow_old(&raw).await;
        let text = round.to_string();
        let (pass, offset) = tokio::join!(
            brokers[0].store.retention_pass(),
            publish(&brokers[round % 2], partition_id, &text)
        );
        match pass.unwrap() {
            0 => kept += 1,
            _ => cuts += 1,
        }
        assert_eq!(offset, round as i64);
        assert_eq!(read(&brokers[1], partition_id, offset).await, [text]);
    }
    assert!(cuts > 0, "{kept} kept, {cuts} cut");
}
