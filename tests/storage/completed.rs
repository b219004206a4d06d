//! Segments that go once every group is past them, groups that go when nobody uses them, and the history of both.

use std::sync::Arc;
use std::time::Duration;

use laneway::broker::Broker;
use laneway::broker::groups::settings;
use laneway::ids::{Offset, PartitionId};
use laneway::store::capacity::BacklogBytes;
use laneway::store::retention_history::{DropReason, Dropped, RetentionEvent};
use laneway::store::topics::Topic;
use laneway_client::TopicName;
use laneway_client::topic::{AlterTopic, CreateTopic, Retention};

use crate::harness::TestDatabase;
use crate::harness::member::TestMember;
use crate::harness::produce::unit;
use crate::harness::quiet::{QuietBroker, seal};

const SEGMENT: u32 = 64;

async fn topic(broker: &Broker, change: impl FnOnce(&mut CreateTopic)) -> Arc<Topic> {
    let mut request = CreateTopic { segment_messages: Some(SEGMENT), ..CreateTopic::new("orders", 1) };
    change(&mut request);
    broker.topics.create(&request).await.unwrap()
}

async fn publish(broker: &Broker, partition_id: PartitionId, messages: usize) {
    let texts: Vec<String> = (0..messages).map(|number| format!("{number:0>100}")).collect();
    for some in texts.chunks(8) {
        broker.appender.append(unit(partition_id, some.to_vec())).await.unwrap();
    }
}

/// A group that begins at the first message.
async fn group(broker: &Broker, topic: &Topic, name: &str) {
    let first = [(topic.partitions[0], Some(Offset::ZERO))];
    let made = broker.store.groups_create(topic.topic_id, name, &settings::defaults(), &first).await.unwrap();
    assert!(made.is_some());
}

/// What a holder of the only lane would commit.
async fn commit(database: &TestDatabase, group: &str, offset: i64) {
    let sql = "INSERT INTO laneway.lane_commit (group_id, partition_id, epoch, number, committed_offset)
        SELECT l.group_id, l.partition_id, 1,
            (SELECT count(*) FROM laneway.lane_commit c WHERE c.group_id = l.group_id), $2
        FROM laneway.lane l JOIN laneway.consumer_group g USING (group_id) WHERE g.name = $1";
    assert_eq!(database.raw().await.execute(sql, &[&group, &offset]).await.unwrap(), 1);
}

async fn alter(broker: &Broker, changes: AlterTopic) {
    broker.topics.alter(&TopicName::new("orders").unwrap(), &changes).await.unwrap();
}

async fn start(broker: &Broker, topic: &Topic) -> i64 {
    broker.store.partitions_describe(topic.topic_id).await.unwrap()[0].start_offset.0
}

async fn history(broker: &Broker, topic: &Topic) -> Vec<RetentionEvent> {
    broker.store.retention_events_list(topic.topic_id, None, 100).await.unwrap()
}

fn range(event: &RetentionEvent) -> (DropReason, i64, i64, i64) {
    match &event.dropped {
        Dropped::Segment { reason, partition: 0, from, to, bytes } => (*reason, from.0, to.0, *bytes),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_segment_goes_when_the_slowest_group_is_past_it_and_the_grace_is_over() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, |request| request.retention_completed_ms = Some(0)).await;
    publish(&broker, topic.partitions[0], 200).await;
    assert_eq!(seal(&broker.store).await, 3);
    // Without a group nothing is completed.
    assert_eq!(broker.store.retention_pass().await.unwrap(), 0);
    group(&broker, &topic, "fast").await;
    group(&broker, &topic, "slow").await;
    commit(&database, "fast", 200).await;
    commit(&database, "slow", 70).await;
    assert_eq!(broker.store.retention_pass().await.unwrap(), 1);
    assert_eq!(start(&broker, &topic).await, 64, "the slowest decides");
    assert_eq!(range(&history(&broker, &topic).await[0]), (DropReason::Completed, 0, 64, 64 * 100));
    let depth = broker.store.topics_depth(topic.topic_id, BacklogBytes::All).await.unwrap().unwrap();
    assert_eq!(
        depth.slowest(|_| true).map(|group| (group.name.as_str(), group.messages)),
        Some(("slow", 130))
    );
    // With a grace it is only noted; a group that comes in between keeps its messages.
    alter(
        &broker,
        AlterTopic { retention_completed_ms: Retention::Bound(3_600_000), ..AlterTopic::default() },
    )
    .await;
    commit(&database, "slow", 200).await;
    assert_eq!(broker.store.retention_pass().await.unwrap(), 0);
    let noted = "SELECT count(*) FROM laneway.segment WHERE completed_at IS NOT NULL AND state = 'attached'";
    assert_eq!(database.number(noted).await, 3, "two that are full, and the open one");
    let raw = database.raw().await;
    let earlier = "UPDATE laneway.segment SET completed_at = completed_at - interval '2 hours'";
    raw.execute(earlier, &[]).await.unwrap();
    group(&broker, &topic, "late").await;
    assert_eq!(broker.store.retention_pass().await.unwrap(), 0);
    assert_eq!(database.number(noted).await, 0, "what a group still needs is not completed");
    commit(&database, "late", 200).await;
    assert_eq!(broker.store.retention_pass().await.unwrap(), 0);
    raw.execute(earlier, &[]).await.unwrap();
    assert_eq!(
        broker.store.retention_pass().await.unwrap(),
        2,
        "the open one was published to within the grace"
    );
    alter(&broker, AlterTopic { retention_completed_ms: Retention::Bound(0), ..AlterTopic::default() }).await;
    assert_eq!(broker.store.retention_pass().await.unwrap(), 1);
    assert_eq!(start(&broker, &topic).await, 200);
    let ranges: Vec<_> =
        history(&broker, &topic).await.iter().map(range).map(|(_, from, to, _)| (from, to)).collect();
    assert_eq!(ranges, [(192, 200), (128, 192), (64, 128), (0, 64)], "newest first");
    let page = broker.store.retention_events_list(topic.topic_id, None, 2).await.unwrap();
    let rest = broker.store.retention_events_list(topic.topic_id, Some(page[1].event_id), 9).await.unwrap();
    assert_eq!(rest.iter().map(range).map(|(_, from, ..)| from).collect::<Vec<_>>(), [64, 0]);
    // What is new is not completed, and offsets go on.
    publish(&broker, topic.partitions[0], 1).await;
    assert_eq!(broker.store.retention_pass().await.unwrap(), 0);
    assert_eq!(broker.store.partitions_describe(topic.topic_id).await.unwrap()[0].next_offset, Offset(201));
    // Taken away, it drops nothing more.
    alter(&broker, AlterTopic { retention_completed_ms: Retention::None, ..AlterTopic::default() }).await;
    for name in ["fast", "slow", "late"] {
        commit(&database, name, 201).await;
    }
    assert_eq!(broker.store.retention_pass().await.unwrap(), 0);
}

#[tokio::test]
async fn what_age_and_bytes_drop_is_in_the_history_with_its_reason() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, |request| request.retention_bytes = Some(7_000)).await;
    publish(&broker, topic.partitions[0], 136).await;
    assert_eq!(seal(&broker.store).await, 2);
    assert_eq!(broker.store.retention_pass().await.unwrap(), 1);
    alter(&broker, AlterTopic { retention_age_ms: Retention::Bound(1), ..AlterTopic::default() }).await;
    assert_eq!(broker.store.retention_pass().await.unwrap(), 2);
    let told: Vec<_> = history(&broker, &topic).await.iter().map(range).collect();
    let (age, bytes) = (DropReason::Age, DropReason::Bytes);
    assert_eq!(told, [(age, 128, 136, 800), (age, 64, 128, 6_400), (bytes, 0, 64, 6_400)]);
}

#[tokio::test]
async fn a_group_that_nobody_uses_goes_after_its_time_and_one_with_members_stays() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker.broker, |request| request.group_expiry_ms = Some(1_000)).await;
    group(&broker.broker, &topic, "left").await;
    let member = TestMember::join(&broker.broker, "used", "orders").await;
    let store = &broker.broker.store;
    assert_eq!(store.groups_expire().await.unwrap(), 0);
    let noted = "SELECT count(*) FROM laneway.consumer_group WHERE idle_since_at IS NOT NULL";
    assert_eq!(database.number(noted).await, 1);
    let raw = database.raw().await;
    let earlier = "UPDATE laneway.consumer_group SET idle_since_at = idle_since_at - interval '1 hour'";
    raw.execute(earlier, &[]).await.unwrap();
    // Somebody came and went meanwhile: its time begins anew.
    raw.execute("UPDATE laneway.lane SET epoch = epoch + 1", &[]).await.unwrap();
    assert_eq!(store.groups_expire().await.unwrap(), 0);
    raw.execute(earlier, &[]).await.unwrap();
    assert_eq!(store.groups_expire().await.unwrap(), 1);
    let names = "SELECT count(*) FROM laneway.consumer_group WHERE name = 'used'";
    assert_eq!(database.number(names).await, 1);
    assert_eq!(database.number("SELECT count(*) FROM laneway.consumer_group").await, 1);
    let history = history(&broker.broker, &topic).await;
    let told: Vec<_> = history.iter().map(|event| event.dropped.clone()).collect();
    assert_eq!(told, [Dropped::Group { name: "left".into() }]);
    drop(member);
    broker.stop().await;
}

#[tokio::test]
async fn an_unused_group_stays_for_as_long_as_it_has_parked_keys_that_hold_something() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, |request| request.group_expiry_ms = Some(1_000)).await;
    group(&broker, &topic, "left").await;
    let (store, raw) = (&broker.store, database.raw().await);
    let park = "INSERT INTO laneway.parked_key (group_id, partition_id, parked_offset, key, state, messages)
        SELECT group_id, partition_id, 7, 'a', 'parked', 1 FROM laneway.lane";
    raw.execute(park, &[]).await.unwrap();
    assert_eq!(store.groups_expire().await.unwrap(), 0);
    let earlier = "UPDATE laneway.consumer_group SET idle_since_at = idle_since_at - interval '1 hour'";
    raw.execute(earlier, &[]).await.unwrap();
    assert_eq!(store.groups_expire().await.unwrap(), 0, "what is parked is not lost unseen");
    let released = "UPDATE laneway.parked_key SET state = 'released'";
    raw.execute(released, &[]).await.unwrap();
    assert_eq!(store.groups_expire().await.unwrap(), 0, "nor what is to be delivered again");
    raw.execute("UPDATE laneway.parked_key SET messages = 0", &[]).await.unwrap();
    assert_eq!(store.groups_expire().await.unwrap(), 1, "nothing is left of it");
}

#[tokio::test]
async fn a_group_that_is_only_pulled_from_stays_though_its_topic_is_quiet_and_goes_when_nobody_asks() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, |request| request.group_expiry_ms = Some(1_000)).await;
    group(&broker, &topic, "pulled").await;
    let (store, raw) = (&broker.store, database.raw().await);
    let group_id = store.groups_find(topic.topic_id, "pulled").await.unwrap().unwrap().group_id;
    let earlier = async |column: &str| {
        let sql = format!("UPDATE laneway.consumer_group SET {column} = {column} - interval '1 hour'");
        raw.execute(sql.as_str(), &[]).await.unwrap();
    };
    let noted = "SELECT count(*) FROM laneway.consumer_group WHERE idle_since_at IS NOT NULL";
    assert_eq!(store.groups_expire().await.unwrap(), 0);
    earlier("idle_since_at").await;
    // Somebody asks, and there is nothing for them.
    assert!(store.pullers_touch(group_id, Duration::ZERO).await.unwrap());
    assert_eq!((store.groups_expire().await.unwrap(), database.number(noted).await), (0, 0));
    // It was unused before and is again: its time begins anew.
    earlier("pulled_at").await;
    assert_eq!((store.groups_expire().await.unwrap(), database.number(noted).await), (0, 1));
    earlier("idle_since_at").await;
    let asked = "UPDATE laneway.consumer_group SET pulled_at = clock_timestamp() - interval '1 minute'";
    raw.execute(asked, &[]).await.unwrap();
    assert_eq!(store.groups_expire().await.unwrap(), 0, "somebody has asked in between");
    earlier("idle_since_at").await;
    earlier("pulled_at").await;
    let popped = "UPDATE laneway.lane SET popped_at = clock_timestamp(), popped_end_offset = 1,
        popped_until_at = clock_timestamp() + interval '1 minute'";
    raw.execute(popped, &[]).await.unwrap();
    assert_eq!(store.groups_expire().await.unwrap(), 0, "somebody has a lane");
    let freed = "UPDATE laneway.lane SET popped_at = NULL, popped_end_offset = NULL, popped_until_at = NULL";
    raw.execute(freed, &[]).await.unwrap();
    assert_eq!((store.groups_expire().await.unwrap(), database.number(noted).await), (0, 1));
    earlier("idle_since_at").await;
    earlier("pulled_at").await;
    assert_eq!(store.groups_expire().await.unwrap(), 1);
    assert_eq!(database.number("SELECT count(*) FROM laneway.consumer_group").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_passes_of_retention_at_once_drop_everything_once_and_tell_it_once() {
    let database = TestDatabase::new().await;
    let brokers = [QuietBroker::start(database.store()), QuietBroker::start(database.store())];
    let topic = topic(&brokers[0], |request| request.retention_completed_ms = Some(0)).await;
    let mut retired = 0;
    group(&brokers[0], &topic, "billing").await;
    for round in 1..=4 {
        publish(&brokers[0], topic.partitions[0], 200).await;
        seal(&brokers[0].store).await;
        commit(&database, "billing", round * 200).await;
        while start(&brokers[0], &topic).await < round * 200 {
            let (one, two) =
                tokio::join!(brokers[0].store.retention_pass(), brokers[1].store.retention_pass());
            retired += one.unwrap() + two.unwrap();
        }
    }
    let mut told: Vec<_> = history(&brokers[1], &topic).await.iter().map(range).collect();
    told.reverse();
    assert_eq!(told.len(), retired);
    let mut next = 0;
    for (reason, from, to, bytes) in told {
        assert_eq!((reason, from, bytes), (DropReason::Completed, next, (to - from) * 100));
        assert!(to > from, "something went");
        next = to;
    }
    assert_eq!(next, 800);
    let tables = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '^message_s[0-9]+$'";
    let catalogue = "SELECT count(*) FROM laneway.segment";
    assert_eq!(database.number(tables).await, database.number(catalogue).await);
}

#[tokio::test]
async fn a_segment_that_goes_after_a_purge_of_all_of_it_is_not_told_a_second_time() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, |request| request.retention_age_ms = Some(1)).await;
    publish(&broker, topic.partitions[0], 40).await;
    let moved = "UPDATE laneway.partition SET start_offset = 40, start_bytes_total = 4000";
    database.raw().await.execute(moved, &[]).await.unwrap();
    assert_eq!(broker.store.retention_pass().await.unwrap(), 1);
    assert_eq!(start(&broker, &topic).await, 40);
    assert!(history(&broker, &topic).await.is_empty(), "nothing went but what the purge has told");
}
