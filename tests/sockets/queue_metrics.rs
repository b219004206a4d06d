//! What `/metrics` tells of what is let go, of keys that are blocked, and of messages that wait for their time.

use laneway_client::Admin;
use laneway_client::management::Purge;
use laneway_client::pull_api::PopRequest;
use laneway_client::schedule::MoveSchedule;
use laneway_client::topic::CreateTopic;
use laneway_client::wire::{GroupOrdering, NewMessage, OnFailure, Subprotocol, Subscribe, WantedSettings};

use crate::Bus;
use crate::harness::socket::{Socket, make_topic, offsets, quick_retries, subscribe, text};
use crate::keys::keyed;
use crate::metrics::{becomes, sample, samples};

/// Makes a topic with one partition and publishes messages of two bytes to it, flush by flush.
async fn fill(admin: &Admin, socket: &mut Socket, topic: CreateTopic, flushes: &[usize]) {
    admin.create_topic(&topic).await.unwrap();
    for messages in flushes {
        socket.publish(&topic.name, vec![text("ab"); *messages]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_lets_go_is_counted_by_reason_and_groups_that_nobody_uses_are() {
    let bus = Bus::start().await;
    let (server, admin) = (&bus.server, Admin::new(&bus.server.url("")).unwrap());
    let at_first = samples(server).await;
    for reason in ["age", "bytes", "completed", "purged"] {
        assert_eq!(at_first[&format!("laneway_retention_segments_total{{reason=\"{reason}\"}}")], 0.0);
    }
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let age = CreateTopic { retention_age_ms: Some(1), ..CreateTopic::new("aged", 1) };
    fill(&admin, &mut producer, age, &[3]).await;
    let (bytes, segment_messages) = (Some(1), Some(16));
    let bytes = CreateTopic { retention_bytes: bytes, segment_messages, ..CreateTopic::new("large", 1) };
    fill(&admin, &mut producer, bytes, &[16, 16, 8]).await;
    let completed = CreateTopic {
        retention_completed_ms: Some(0),
        group_expiry_ms: Some(1_000),
        ..CreateTopic::new("done", 1)
    };
    fill(&admin, &mut producer, completed, &[5]).await;
    let at_once = PopRequest { auto_ack: true, ..PopRequest::default() };
    let popped = admin.pop("done", "billing", &at_once).await.unwrap().unwrap();
    assert_eq!(popped.messages.len(), 5);
    fill(&admin, &mut producer, CreateTopic::new("purged", 1), &[4]).await;
    admin.purge_topic("purged", &Purge::All).await.unwrap();
    let told = async |what: &str, reason: &str, expected: f64| {
        becomes(server, &format!("retention_{what}_total{{reason=\"{reason}\"}}"), expected).await;
    };
    told("messages", "purged", 4.0).await;
    for (reason, segments, messages) in
        [("age", 1.0, 3.0), ("bytes", 2.0, 32.0), ("completed", 1.0, 5.0), ("purged", 1.0, 4.0)]
    {
        told("segments", reason, segments).await;
        told("messages", reason, messages).await;
        told("bytes", reason, messages * 2.0).await;
    }
    // The pullers have not come for a while.
    assert_eq!(sample(server, "groups_expired_total").await, 0.0);
    let raw = bus.database.raw().await;
    let earlier = async |column: &str| {
        let sql = format!("UPDATE laneway.consumer_group SET {column} = {column} - interval '1 hour'");
        raw.execute(sql.as_str(), &[]).await.unwrap();
    };
    earlier("pulled_at").await;
    bus.database.store().groups_expire().await.unwrap(); // notes it; the broker may do so, too
    earlier("idle_since_at").await;
    becomes(server, "groups_expired_total", 1.0).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_blocked_are_counted_until_they_go_on_or_their_lane_goes() {
    let bus = Bus::with_topic("orders", 1).await;
    let server = &bus.server;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let settings = WantedSettings {
        ordering: Some(GroupOrdering::Key),
        on_failure: Some(OnFailure::Block),
        ..quick_retries(1)
    };
    consumer.publish("orders", keyed(["a:0", "b:1", "c:2", "a:3"])).await;
    let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [0, 1, 2, 3]);
    consumer.nack(&batch, 0, "no").await.unwrap();
    becomes(server, "blocked_keys", 1.0).await;
    consumer.nack(&batch, 1, "no").await.unwrap();
    becomes(server, "blocked_keys", 2.0).await;
    assert_eq!(sample(server, "lanes{state=\"blocked\"}").await, 0.0, "the lane itself goes on");
    // They get another try when the group is altered.
    let admin = Admin::new(&bus.server.url("")).unwrap();
    admin.alter_group("orders", "billing", &quick_retries(2)).await.unwrap();
    let again = consumer.batch().await;
    assert_eq!(offsets(&again)[..2], [0, 1]);
    becomes(server, "blocked_keys", 0.0).await;
    consumer.nack(&again, 1, "no").await.unwrap();
    becomes(server, "blocked_keys", 1.0).await;
    consumer.close().await;
    becomes(server, "lanes{state=\"held\"}", 0.0).await;
    assert_eq!(sample(server, "blocked_keys").await, 0.0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_for_their_time_are_told_by_topic_and_moves_and_cancels_are_counted() {
    let bus = Bus::with_topic("orders", 3).await;
    make_topic(&bus.server.address, "refunds", 2).await;
    let (server, admin) = (&bus.server, Admin::new(&bus.server.url("")).unwrap());
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let later =
        |partition: u32| NewMessage { delay_ms: Some(3_600_000), ..crate::to_partition(partition, "later") };
    let published = producer.publish("orders", vec![later(0), later(0), later(2), later(2)]).await;
    let ids: Vec<i64> =
        published.units.iter().flat_map(|unit| &unit.scheduled).map(|one| one.schedule).collect();
    producer.publish("refunds", vec![later(1)]).await;
    becomes(server, "topic_scheduled_messages{topic=\"orders\"}", 4.0).await;
    becomes(server, "topic_scheduled_messages{topic=\"refunds\"}", 1.0).await;
    admin.cancel_schedule(ids[0]).await.unwrap();
    let hours = MoveSchedule { delay_ms: Some(7_200_000), deliver_at: None };
    admin.move_schedule(ids[1], &hours).await.unwrap();
    let now = MoveSchedule { delay_ms: Some(0), deliver_at: None };
    admin.move_schedule(ids[2], &now).await.unwrap();
    becomes(server, "schedules_fired_total", 1.0).await;
    becomes(server, "topic_scheduled_messages{topic=\"orders\"}", 2.0).await;
    assert_eq!(sample(server, "schedules_moved_total").await, 2.0);
    assert_eq!(sample(server, "schedules_cancelled_total").await, 1.0);
    assert_eq!(sample(server, "schedules_total").await, 5.0);
    // None is a number, too; what is gone is not told any more.
    admin.move_schedule(ids[1], &now).await.unwrap();
    admin.cancel_schedule(ids[3]).await.unwrap();
    becomes(server, "topic_scheduled_messages{topic=\"orders\"}", 0.0).await;
    assert!(samples(server).await.contains_key("laneway_topic_scheduled_messages{topic=\"orders\"}"));
    bus.stop().await;
}
