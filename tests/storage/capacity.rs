//! Limits of topics, from the inside: what is refused, what is counted, and by how much two brokers may miss.

use std::sync::Arc;
use std::time::Duration;

use laneway::broker::Broker;
use laneway::broker::capacity::TopicFull;
use laneway::broker::capacity::gauge::Limited;
use laneway::broker::groups::settings;
use laneway::broker::publish::{Addressed, PublishError};
use laneway::broker::topics::TopicError;
use laneway::ids::Offset;
use laneway::limits::{FLUSH_BYTES_MAX, FLUSH_MESSAGES_MAX};
use laneway::store::Store;
use laneway::store::groups::{GroupCapacity, GroupSettings};
use laneway::store::topics::Topic;
use laneway_client::TopicName;
use laneway_client::topic::{AlterTopic, CreateTopic, Retention};

use crate::harness::TestDatabase;
use crate::harness::produce::{all, draft};
use crate::harness::quiet::QuietBroker;

async fn topic_with(broker: &Broker, change: impl FnOnce(&mut CreateTopic)) -> Arc<Topic> {
    let mut request = CreateTopic::new("orders", 2);
    change(&mut request);
    broker.topics.create(&request).await.unwrap()
}

async fn group(broker: &Broker, topic: &Topic, name: &str, capacity: GroupCapacity) {
    let first: Vec<_> = topic.partitions.iter().map(|partition| (*partition, Some(Offset::ZERO))).collect();
    let settings = GroupSettings { capacity, ..settings::defaults() };
    broker.store.groups_create(topic.topic_id, name, &settings, &first).await.unwrap().unwrap();
}

/// What holders would commit, in each partition all that there is.
async fn commit_all(database: &TestDatabase) {
    let sql = "INSERT INTO laneway.lane_commit (group_id, partition_id, epoch, number, committed_offset)
        SELECT l.group_id, l.partition_id, 1,
            (SELECT count(*) FROM laneway.lane_commit c WHERE c.group_id = l.group_id AND c.partition_id = l.partition_id),
            (SELECT max(h.next_offset) FROM laneway.head h WHERE h.partition_id = l.partition_id)
        FROM laneway.lane l
        WHERE EXISTS (SELECT FROM laneway.head h WHERE h.partition_id = l.partition_id)";
    database.raw().await.execute(sql, &[]).await.unwrap();
}

/// Publishes messages of 100 bytes to one partition, at once.
async fn publish(
    broker: &Broker,
    partition: u32,
    messages: usize,
    wait: Duration,
) -> Result<(), PublishError> {
    publish_of(broker, partition, messages, 100, wait).await
}

async fn publish_of(
    broker: &Broker,
    partition: u32,
    messages: usize,
    payload_bytes: usize,
    wait: Duration,
) -> Result<(), PublishError> {
    let one = |number| Addressed {
        partition: Some(partition),
        draft: draft(format!("{number:0>10}{}", "x".repeat(payload_bytes - 10))),
        ..Addressed::default()
    };
    let drafts = (0..messages).map(one).collect();
    let name = TopicName::new("orders").unwrap();
    let published = broker.publisher.publish_patiently(&name, None, drafts, wait).await?;
    assert!(published.iter().all(|published| published.result.is_ok()));
    Ok(())
}

async fn publish_now(broker: &Broker, messages: usize) -> Result<(), PublishError> {
    publish(broker, 0, messages, Duration::ZERO).await
}

fn full(result: Result<(), PublishError>) -> (Limited, u64, u64) {
    match result {
        Err(PublishError::Full(TopicFull { limited, depth, limit, .. })) => (limited, depth, limit),
        other => panic!("{other:?}"),
    }
}

async fn stored(broker: &Broker, topic: &Topic) -> usize {
    let mut stored = 0;
    for partition_id in &topic.partitions {
        stored += all(broker, *partition_id).await.len();
    }
    stored
}

#[tokio::test]
async fn each_limit_refuses_what_it_bounds_and_only_counted_groups_fill_a_topic() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic_with(&broker, |request| request.max_backlog_messages = Some(10)).await;
    // An excluded group fills nothing, and neither does a topic without any.
    group(&broker, &topic, "audit", GroupCapacity::Excluded).await;
    publish_now(&broker, 40).await.unwrap();
    publish_now(&broker, 40).await.unwrap();
    broker.topics.delete(&TopicName::new("orders").unwrap()).await.unwrap();
    let topic = topic_with(&broker, |request| request.max_backlog_messages = Some(10)).await;
    group(&broker, &topic, "audit", GroupCapacity::Excluded).await;
    group(&broker, &topic, "billing", GroupCapacity::Counted).await;
    publish(&broker, 1, 9, Duration::from_secs(10)).await.unwrap();
    assert_eq!(full(publish_now(&broker, 2).await), (Limited::BacklogMessages, 9, 10));
    publish_now(&broker, 1).await.unwrap();
    assert_eq!(full(publish_now(&broker, 1).await), (Limited::BacklogMessages, 10, 10));
    assert_eq!(stored(&broker, &topic).await, 10, "what is refused is not stored");
    // Bytes of the backlog, and bytes that are stored.
    let name = TopicName::new("orders").unwrap();
    let change = async |changes: AlterTopic| broker.topics.alter(&name, &changes).await.unwrap();
    let changes = AlterTopic {
        max_backlog_messages: Retention::None,
        max_backlog_bytes: Retention::Bound(1_250),
        ..AlterTopic::default()
    };
    let altered = change(changes).await;
    assert_eq!(
        (altered.settings.limits.backlog_messages, altered.settings.limits.backlog_bytes),
        (None, Some(1_250))
    );
    publish(&broker, 0, 2, Duration::from_secs(10)).await.unwrap();
    assert_eq!(full(publish_now(&broker, 1).await), (Limited::BacklogBytes, 1_200, 1_250));
    let changes = AlterTopic {
        max_backlog_bytes: Retention::None,
        max_stored_bytes: Retention::Bound(1_300),
        ..AlterTopic::default()
    };
    change(changes).await;
    publish_now(&broker, 1).await.unwrap();
    commit_all(&database).await; // who stores too much is not helped by consumers
    assert_eq!(
        full(publish(&broker, 0, 1, Duration::from_millis(300)).await),
        (Limited::StoredBytes, 1_300, 1_300)
    );
    // A limit that is taken away refuses nothing.
    let changes = AlterTopic { max_stored_bytes: Retention::None, ..AlterTopic::default() };
    change(changes).await;
    publish_now(&broker, 100).await.unwrap();
}

#[tokio::test]
async fn a_publish_waits_for_room_and_is_refused_when_there_is_none_in_time() {
    let database = TestDatabase::new().await;
    let broker = Arc::new(QuietBroker::start(database.store()));
    let topic = topic_with(&broker, |request| request.max_backlog_messages = Some(10)).await;
    group(&broker, &topic, "billing", GroupCapacity::Counted).await;
    publish_now(&broker, 10).await.unwrap();
    assert_eq!(
        full(publish(&broker, 0, 1, Duration::from_millis(250)).await),
        (Limited::BacklogMessages, 10, 10)
    );
    let waiting = {
        let broker = broker.clone();
        tokio::spawn(async move { publish(&broker, 1, 5, Duration::from_secs(15)).await })
    };
    // Nothing that is refused meanwhile is stored, and nothing goes in before there is room.
    full(publish_now(&broker, 1).await);
    assert_eq!(stored(&broker, &topic).await, 10);
    commit_all(&database).await;
    waiting.await.unwrap().unwrap();
    assert_eq!(stored(&broker, &topic).await, 15);
    // More than the limit goes in when the topic is empty.
    full(publish(&broker, 0, 11, Duration::from_millis(150)).await);
    commit_all(&database).await;
    publish(&broker, 0, 11, Duration::from_secs(15)).await.unwrap();
}

/// What several writers of two brokers, with one appender connection each, have stored in a topic when it refuses them all.
async fn filled(
    database: &TestDatabase,
    messages: usize,
    payload_bytes: usize,
    change: impl FnOnce(&mut CreateTopic),
) -> i64 {
    let broker = || {
        let mut settings = database.settings();
        settings.appenders = 1;
        Arc::new(QuietBroker::start(Store::new(settings).unwrap()))
    };
    let brokers = [broker(), broker()];
    let topic = topic_with(&brokers[0], change).await;
    group(&brokers[0], &topic, "billing", GroupCapacity::Counted).await;
    let mut writers = tokio::task::JoinSet::new();
    for (number, broker) in brokers.iter().enumerate() {
        for _ in 0..4 {
            let broker = broker.clone();
            writers.spawn(async move {
                let mut stored = 0;
                loop {
                    match publish_of(&broker, number as u32, messages, payload_bytes, Duration::ZERO).await {
                        Ok(()) => stored += messages as i64,
                        Err(PublishError::Full(_)) => return stored,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    }
    let sum: i64 = writers.join_all().await.iter().sum();
    let next =
        "SELECT sum(n)::bigint FROM (SELECT max(next_offset) AS n FROM laneway.head GROUP BY partition_id) h";
    assert_eq!(database.number(next).await, sum, "what was refused is not stored");
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_together_pass_a_limit_by_no_more_than_a_flush_for_each_connection() {
    const LIMIT: i64 = 12_000;
    const AT_ONCE: i64 = 200;
    let database = TestDatabase::new().await;
    let limit = |request: &mut CreateTopic| request.max_backlog_messages = Some(LIMIT as u64);
    let sum = filled(&database, AT_ONCE as usize, 100, limit).await;
    assert!(sum > LIMIT - 8 * AT_ONCE, "{sum}: there was room");
    assert!(sum <= LIMIT + FLUSH_MESSAGES_MAX as i64, "{sum}: a flush of the other broker at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_that_are_larger_than_a_flush_pass_a_limit_by_no_more_than_one_of_the_other_broker() {
    const LIMIT: i64 = 25_000;
    const AT_ONCE: i64 = 9_000;
    assert!(AT_ONCE > FLUSH_MESSAGES_MAX as i64);
    let database = TestDatabase::new().await;
    let limit = |request: &mut CreateTopic| request.max_backlog_messages = Some(LIMIT as u64);
    let sum = filled(&database, AT_ONCE as usize, 10, limit).await;
    assert!(sum > LIMIT - AT_ONCE, "{sum}: there was room");
    assert!(sum <= LIMIT + AT_ONCE, "{sum}: one publish of the other broker at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bound_holds_in_bytes_too_for_small_publishes_and_for_those_that_are_larger_than_a_flush() {
    const LARGE: i64 = 1_000_000;
    for (limit, at_once, beyond) in [
        (24 * LARGE, 2, FLUSH_BYTES_MAX as i64), // a flush of the other broker
        (32 * LARGE, 12, 12 * LARGE),            // one publish, which is more than a flush
    ] {
        let database = TestDatabase::new().await;
        let change = |request: &mut CreateTopic| request.max_backlog_bytes = Some(limit as u64);
        let bytes = filled(&database, at_once as usize, LARGE as usize, change).await * LARGE;
        assert!(bytes > limit - at_once * LARGE, "{bytes}: there was room");
        assert!(bytes <= limit + beyond, "{bytes}, and the limit is {limit}");
    }
}

#[tokio::test]
async fn values_that_cannot_be_are_refused_by_name() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let field = |result: Result<Arc<Topic>, TopicError>| match result {
        Err(TopicError::Setting { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    type Change = fn(&mut CreateTopic);
    let bad: [(&str, Change); 5] = [
        ("max_backlog_messages", |request| request.max_backlog_messages = Some(0)),
        ("max_backlog_bytes", |request| request.max_backlog_bytes = Some(u64::MAX)),
        ("max_stored_bytes", |request| request.max_stored_bytes = Some(0)),
        ("retention_completed_ms", |request| request.retention_completed_ms = Some(u64::MAX)),
        ("group_expiry_ms", |request| request.group_expiry_ms = Some(999)),
    ];
    for (name, change) in bad {
        let mut request = CreateTopic::new("orders", 1);
        change(&mut request);
        assert_eq!(field(broker.topics.create(&request).await), name);
    }
    broker.topics.create(&CreateTopic::new("orders", 1)).await.unwrap();
    let name = TopicName::new("orders").unwrap();
    let expiry = AlterTopic { group_expiry_ms: Retention::Bound(0), ..AlterTopic::default() };
    assert_eq!(field(broker.topics.alter(&name, &expiry).await), "group_expiry_ms");
    let limit = AlterTopic { max_stored_bytes: Retention::Bound(0), ..AlterTopic::default() };
    assert_eq!(field(broker.topics.alter(&name, &limit).await), "max_stored_bytes");
}
