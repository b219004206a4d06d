//! Retention: whole segments go, by age and by bytes, at a cost that does not depend on what they hold, and never silently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use laneway::broker::Broker;
use laneway::broker::reader::ReadError;
use laneway::ids::{Offset, PartitionId, SegmentId};
use laneway::store::Store;
use laneway::store::retention::{ExpiredKind, LeavingStep};
use laneway::store::topics::Topic;
use laneway_client::TopicName;
use laneway_client::topic::CreateTopic;
use prometheus_client::registry::Registry;

use crate::harness::TestDatabase;
use crate::harness::produce::{ALL, all_from, texts, unit};
use crate::harness::quiet::{QuietBroker, seal};

const SEGMENT: u32 = 64;

async fn topic(broker: &Broker, partitions: u32, change: impl FnOnce(&mut CreateTopic)) -> Arc<Topic> {
    let mut request =
        CreateTopic { segment_messages: Some(SEGMENT), ..CreateTopic::new("orders", partitions) };
    change(&mut request);
    broker.topics.create(&request).await.unwrap()
}

/// Publishes messages of 100 bytes that say their own offset.
async fn publish(broker: &Broker, partition_id: PartitionId, offsets: std::ops::Range<i64>, at_once: usize) {
    let texts: Vec<String> = offsets.map(|offset| format!("{offset:0>100}")).collect();
    for some in texts.chunks(at_once) {
        broker.appender.append(unit(partition_id, some.to_vec())).await.unwrap();
    }
}

/// Asserts that a partition holds exactly the offsets that `topic show` names, and about the bytes.
async fn assert_consistent(broker: &Broker, flush_bytes_max: i64) -> Vec<Offset> {
    let name = TopicName::new("orders").unwrap();
    let (_, partitions) = broker.topics.describe(&name).await.unwrap();
    for partition in &partitions {
        let messages = all_from(broker, partition.partition_id, partition.start_offset).await;
        let offsets: Vec<i64> = messages.iter().map(|message| message.offset.0).collect();
        let expected: Vec<i64> = (partition.start_offset.0..partition.next_offset.0).collect();
        assert_eq!(offsets, expected);
        let bytes: i64 = messages.iter().map(|message| message.bytes() as i64).sum();
        let hidden = bytes - partition.stored_bytes;
        assert!((0..=flush_bytes_max).contains(&hidden), "{partition:?} can be read as {bytes} bytes");
        assert_eq!(partition.last_published_at, messages.last().map(|message| message.published_at));
        if partition.start_offset > Offset::ZERO {
            let below = broker.reader.read(partition.partition_id, Offset::ZERO, ALL).await;
            assert_eq!(below, Err(ReadError::OutOfRange { start: partition.start_offset }));
        }
    }
    partitions.iter().map(|partition| partition.start_offset).collect()
}

/// The tables of segments, and the bytes of their files.
async fn tables(database: &TestDatabase) -> (i64, i64) {
    let of = |what: &str| {
        format!(
            "SELECT {what} FROM pg_class WHERE relkind = 'r' AND relname ~ '^message_s[0-9]+$'
             AND relnamespace = 'laneway'::regnamespace"
        )
    };
    let bytes = database.number(&of("sum(pg_total_relation_size(oid))::bigint")).await;
    (database.number(&of("count(*)")).await, bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_by_bytes_drops_whole_segments_while_two_brokers_publish() {
    const KEPT: i64 = 40_000;
    let database = TestDatabase::new().await;
    let brokers =
        [Arc::new(QuietBroker::start(database.store())), Arc::new(QuietBroker::start(database.store()))];
    let topic = topic(&brokers[0], 2, |request| request.retention_bytes = Some(KEPT as u64)).await;
    let enough = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for broker in &brokers {
        for partition_id in topic.partitions.clone() {
            let (broker, enough) = (broker.clone(), enough.clone());
            writers.spawn(async move {
                while !enough.load(Ordering::Relaxed) {
                    publish(&broker, partition_id, 0..10, 10).await; // 64 is no multiple: flushes cross boundaries
                }
            });
        }
    }
    let mut retired = 0;
    while retired < 24 {
        seal(&brokers[0].store).await;
        retired += brokers[1].store.retention_pass().await.unwrap();
    }
    enough.store(true, Ordering::Relaxed);
    writers.join_all().await;
    seal(&brokers[0].store).await;
    retired += brokers[0].store.retention_pass().await.unwrap();
    let starts = assert_consistent(&brokers[0], 4 * 10 * 100).await;
    assert_eq!(starts.iter().map(|start| start.0).sum::<i64>(), retired as i64 * i64::from(SEGMENT));
    // What is kept is what was asked for, to one segment, one flush and the open segment per partition.
    let name = TopicName::new("orders").unwrap();
    let (_, partitions) = brokers[0].topics.describe(&name).await.unwrap();
    let stored: i64 = partitions.iter().map(|partition| partition.stored_bytes).sum();
    assert!(stored >= KEPT, "{stored} is less than was to be kept");
    assert!(stored < KEPT + 2 * (2 * 64 + 80) * 100, "{stored} is much more than was to be kept");
    let catalogue = database.number("SELECT count(*) FROM laneway.segment").await;
    assert_eq!(
        tables(&database).await.0,
        catalogue,
        "every table is in the catalogue and every entry has one"
    );
}

#[tokio::test]
async fn retention_by_age_drops_what_is_old_and_its_files_go() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, 1, |request| request.retention_age_ms = Some(3_600_000)).await;
    let partition_id = topic.partitions[0];
    publish(&broker, partition_id, 0..1_000, 16).await;
    assert_eq!(seal(&broker.store).await, 15);
    assert_eq!(broker.store.retention_pass().await.unwrap(), 0);
    let raw = database.raw().await;
    let sealed = "SELECT pg_relation_filepath(format('laneway.message_s%s', segment_id)::regclass)
        FROM laneway.segment WHERE sealed_at IS NOT NULL ORDER BY first_offset LIMIT 10";
    let paths: Vec<String> =
        raw.query(sealed, &[]).await.unwrap().iter().map(|row| row.get::<_, String>(0)).collect();
    let before = tables(&database).await;
    // Ten segments grow old.
    raw.execute(
        "UPDATE laneway.segment SET last_published_at = last_published_at - interval '2 hours'
         WHERE first_offset < 640",
        &[],
    )
    .await
    .unwrap();
    assert_eq!(broker.store.retention_pass().await.unwrap(), 10);
    let after = tables(&database).await;
    assert_eq!(after.0, before.0 - 10);
    assert!(after.1 < before.1 * 2 / 3, "{before:?} became {after:?}");
    for path in paths {
        // PostgreSQL keeps an empty file until the next checkpoint, so that the name is not used again too early.
        let sql = "SELECT coalesce((pg_stat_file($1, true)).size, 0)";
        assert_eq!(raw.query_one(sql, &[&path]).await.unwrap().get::<_, i64>(0), 0);
    }
    assert_eq!(assert_consistent(&broker, 0).await, [Offset(640)]);
    let first = broker.reader.read(partition_id, Offset(640), ALL).await.unwrap();
    assert_eq!(texts(&first[..1]), [format!("{:0>100}", 640)]);
    publish(&broker, partition_id, 1_000..1_001, 1).await;
    assert_eq!(all_from(&broker, partition_id, Offset(640)).await.last().unwrap().offset, Offset(1_000));
}

/// A flush that covers whole segments leaves no head at their ends, and thinning takes heads away.
#[tokio::test]
async fn segments_without_a_head_of_their_own_are_sealed_and_dropped_all_the_same() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, 1, |request| request.retention_bytes = Some(10_000)).await;
    let partition_id = topic.partitions[0];
    publish(&broker, partition_id, 0..1_000, 1_000).await;
    publish(&broker, partition_id, 1_000..1_500, 5).await;
    broker.store.heads_thin(&[(partition_id, jiff::Timestamp::UNIX_EPOCH)]).await.unwrap();
    assert_eq!(seal(&broker.store).await, 23);
    broker.store.retention_pass().await.unwrap();
    let starts = assert_consistent(&broker, 4_096 * 100).await;
    publish(&broker, partition_id, 1_500..2_000, 5).await;
    seal(&broker.store).await;
    broker.store.retention_pass().await.unwrap();
    assert!(assert_consistent(&broker, 4_096 * 100).await > starts, "retention goes on");
    let remaining = "SELECT count(*) FROM laneway.segment WHERE first_offset < 1000";
    assert_eq!(database.number(remaining).await, 0);
}

/// How often each named statement has been sent by a store.
fn statements(store: &Store) -> Vec<String> {
    let mut registry = Registry::default();
    store.register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let mut counts: Vec<String> =
        text.lines().filter(|line| line.starts_with("query_seconds_count")).map(str::to_owned).collect();
    counts.sort();
    counts
}

#[tokio::test]
async fn dropping_many_messages_costs_the_same_statements_as_dropping_few_and_deletes_no_row() {
    let mut costs = Vec::new();
    for segment in [16_i64, 8_000] {
        let database = TestDatabase::new().await;
        let broker = QuietBroker::start(database.store());
        let topic = topic(&broker, 1, |request| {
            request.segment_messages = Some(segment as u32);
            request.retention_bytes = Some(1);
        })
        .await;
        publish(&broker, topic.partitions[0], 0..segment * 2 + 1, segment as usize).await;
        assert_eq!(seal(&broker.store).await, 2);
        let store = database.store();
        let mut connection = store.upkeep_connection().await.unwrap();
        for expired in connection.segments_expired().await.unwrap() {
            assert_eq!(expired.kind, ExpiredKind::Sealed);
            assert!(connection.segments_retire(expired).await.unwrap().is_some());
        }
        for leaving in connection.segments_leaving().await.unwrap() {
            assert_eq!(leaving.step, LeavingStep::Detach);
            connection.segments_leave(leaving).await.unwrap();
        }
        for leaving in connection.segments_leaving().await.unwrap() {
            // Right before the drop every row is there, and none was ever deleted, updated or locked.
            let SegmentId(segment_id) = leaving.segment_id;
            let rows = format!("SELECT count(*) FROM laneway.message_s{segment_id} WHERE xmax = 0");
            assert_eq!(database.number(&rows).await, segment);
            connection.segments_leave(leaving).await.unwrap();
        }
        drop(connection);
        assert_eq!(database.number("SELECT count(*) FROM laneway.segment").await, 2);
        costs.push(statements(&store));
    }
    assert!(costs[0].iter().any(|line| line.contains("segment_drop") && line.ends_with(" 2")), "{costs:?}");
    assert_eq!(costs[0], costs[1]);
}

/// Where a broker may die in the middle of retention.
#[derive(Debug, Clone, Copy)]
enum Crash {
    AfterRetire,
    AfterDetach,
}

async fn die_in_retention(crash: Crash) {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, 1, |request| request.retention_bytes = Some(30_000)).await;
    let partition_id = topic.partitions[0];
    publish(&broker, partition_id, 0..1_000, 16).await;
    seal(&broker.store).await;
    let dying = database.store();
    let mut connection = dying.upkeep_connection().await.unwrap();
    let expired = connection.segments_expired().await.unwrap();
    assert_eq!(expired.len(), 10);
    for one in &expired[..4] {
        connection.segments_retire(*one).await.unwrap().unwrap();
    }
    if let Crash::AfterDetach = crash {
        for leaving in &connection.segments_leaving().await.unwrap()[..2] {
            connection.segments_leave(*leaving).await.unwrap();
        }
    }
    drop(connection);
    drop(dying);
    // The start has moved, so nobody reads what is half gone, and publishing goes on.
    assert_eq!(assert_consistent(&broker, 0).await, [Offset(256)]);
    assert_eq!(tables(&database).await.0, 17);
    publish(&broker, partition_id, 1_000..1_001, 1).await;
    // Another broker finds the rest in the catalogue; two at once do not disturb each other.
    let (one, other) = (database.store(), database.store());
    let (first, second) = tokio::join!(one.retention_pass(), other.retention_pass());
    assert_eq!(first.unwrap() + second.unwrap(), 6);
    assert_eq!(assert_consistent(&broker, 0).await, [Offset(640)]);
    assert_eq!(tables(&database).await.0, 7);
    assert_eq!(database.number("SELECT count(*) FROM laneway.segment WHERE state <> 'attached'").await, 0);
}

#[tokio::test]
async fn a_broker_that_dies_after_moving_the_start_leaves_the_rest_to_the_next() {
    die_in_retention(Crash::AfterRetire).await;
}

#[tokio::test]
async fn a_broker_that_dies_after_detaching_leaves_the_rest_to_the_next() {
    die_in_retention(Crash::AfterDetach).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_falls_behind_is_told_where_to_go_on_and_misses_nothing_above() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, 1, |request| request.retention_bytes = Some(1)).await;
    let partition_id = topic.partitions[0];
    let mut next = Offset::ZERO;
    let mut resets = 0;
    for round in 0..20 {
        publish(&broker, partition_id, round * 100..(round + 1) * 100, 16).await;
        // A few messages only: the reader falls behind, remembering tables that are about to go.
        let few = laneway::store::messages::ReadLimit { messages: 40, bytes: 1 << 20 };
        match broker.reader.read(partition_id, next, few).await {
            Ok(messages) => {
                for message in messages {
                    assert_eq!(message.offset, next);
                    assert_eq!(texts(&[message]), [format!("{:0>100}", next.0)]);
                    next = next.plus(1);
                }
            }
            Err(ReadError::OutOfRange { start }) => {
                assert!(start > next);
                next = start;
                resets += 1;
            }
            Err(error) => panic!("{error}"),
        }
        seal(&broker.store).await;
        broker.store.retention_pass().await.unwrap();
    }
    assert!(resets > 0);
    assert!(assert_consistent(&broker, 16 * 100).await[0] > next, "and it would be told again");
}
