//! Topics and groups that are paused and resumed while messages flow, and partitions in numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use laneway_client::admin::AdminError;
use laneway_client::management::Purge;
use laneway_client::topic::AlterTopic;
use laneway_client::wire::{BrokerFrame, CreditGrant, Subprotocol, Subscribe, WantedSettings};
use laneway_client::{Admin, Client, ErrorCode, Options};
use tokio::task::JoinSet;

use crate::Bus;
use crate::harness::socket::{Socket, make_topic, offsets, subscribe};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::metrics::{becomes, sample};
use crate::transact::step;

/// Everything ever stored, by the heads.
const NEXT: &str = "SELECT coalesce(sum(next_offset), 0)::bigint FROM (SELECT max(next_offset) AS next_offset
    FROM laneway.head JOIN laneway.partition USING (partition_id) JOIN laneway.topic USING (topic_id)
    WHERE name = 'orders' GROUP BY partition_id) AS newest";

fn admin(server: &Server) -> Admin {
    Admin::new(&server.url("")).unwrap()
}

/// A subscriber that accepts so many messages and no more.
fn credit_of(messages: u32) -> Subscribe {
    Subscribe { credit: CreditGrant { messages, bytes: 1 << 20 }, ..subscribe("billing", "orders") }
}

/// What a publisher has been told.
#[derive(Default)]
struct Told {
    stored: AtomicU64,
    paused: AtomicU64,
    enough: AtomicBool,
}

/// Publishes one message after the other, whatever the answers are.
async fn publish_on(address: String, partition: u32, told: Arc<Told>) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{address}/v1/topics/orders/message");
    while !told.enough.load(Ordering::Relaxed) {
        let body = serde_json::json!({"payload": "m", "partition": partition});
        let answer = client.post(&url).json(&body).send().await.unwrap();
        match answer.status().as_u16() {
            200 => drop(told.stored.fetch_add(1, Ordering::SeqCst)),
            409 => {
                let problem: laneway_client::Problem = answer.json().await.unwrap();
                assert_eq!(problem.code, ErrorCode::TopicPaused);
                told.paused.fetch_add(1, Ordering::SeqCst);
            }
            other => panic!("{other}: {:?}", answer.text().await),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_by_any_broker_once_a_pause_is_answered_and_all_that_was_acknowledged_is_there() {
    let bus = Bus::with_topic("orders", 2).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let told = [Arc::new(Told::default()), Arc::new(Told::default())];
    let mut publishers = JoinSet::new();
    for (server, told) in [&bus.server, &other].into_iter().zip(&told) {
        for partition in 0..2 {
            publishers.spawn(publish_on(server.address.clone(), partition, told.clone()));
        }
    }
    let stored = || told.iter().map(|told| told.stored.load(Ordering::SeqCst)).collect::<Vec<_>>();
    for _ in 0..3 {
        let before = stored();
        let more = async || stored().iter().zip(&before).all(|(now, before)| *now > before + 5);
        until("both brokers store messages", more).await;
        let paused = admin(&bus.server).pause_topic("orders").await.unwrap();
        assert!(paused.topic.paused_at.is_some());
        let at_pause = bus.database.number(NEXT).await;
        let refused = told.iter().map(|told| told.paused.load(Ordering::SeqCst)).collect::<Vec<_>>();
        let refuse = async || {
            told.iter().zip(&refused).all(|(told, before)| told.paused.load(Ordering::SeqCst) > before + 5)
        };
        until("both brokers refuse messages", refuse).await;
        assert_eq!(bus.database.number(NEXT).await, at_pause, "something was stored after the pause");
        assert_eq!(stored().iter().sum::<u64>() as i64, at_pause, "acknowledged, and stored");
        assert!(admin(&other).resume_topic("orders").await.unwrap().topic.paused_at.is_none());
    }
    told.iter().for_each(|told| told.enough.store(true, Ordering::Relaxed));
    while let Some(ended) = publishers.join_next().await {
        ended.unwrap();
    }
    assert!(sample(&bus.server, "publish_failures_total{reason=\"topic_paused\"}").await > 5.0);
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_or_a_client_that_publishes_to_a_paused_topic_gets_its_turn_once_it_is_resumed() {
    let bus = Bus::with_topic("orders", 1).await;
    make_topic(&bus.server.address, "payments", 1).await;
    bus.publish("orders", 0, 0..2).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    let admin = admin(&bus.server);
    admin.pause_topic("payments").await.unwrap();
    // A partition that it gets meanwhile is paused, too.
    let grow = AlterTopic { partitions: Some(2), ..AlterTopic::default() };
    admin.alter_topic("payments", &grow).await.unwrap();
    let paused = "SELECT count(*) FROM laneway.partition WHERE paused_at IS NOT NULL";
    assert_eq!(bus.database.number(paused).await, 2);
    let work = step(&batch, &[0], "payments", &["a"]);
    let refused = consumer.transact(work.clone()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TopicPaused);
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.step_ack").await, 0);
    // The client waits with what it publishes.
    let client =
        Client::connect(&format!("ws://{}/v1/ws", bus.server.address), Options::default()).await.unwrap();
    let waiting = tokio::spawn(async move { client.publish("payments", crate::to_partition(1, "b")).await });
    let refused =
        async || sample(&bus.server, "publish_failures_total{reason=\"topic_paused\"}").await >= 1.0;
    until("the client is refused", refused).await;
    admin.resume_topic("payments").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().offset, Some(0));
    assert!(!consumer.transact(work).await.unwrap().repeated);
    consumer.close().await;
    bus.stop().await;
}

/// Asserts that nothing is delivered: what was asked for before the ack would have come before its answer.
async fn assert_silent(
    consumer: &mut Socket,
    subscription: u32,
    batch: &laneway_client::wire::Batch,
    next: i64,
) {
    consumer.credit(subscription, 10, 1 << 20).await;
    assert_eq!(consumer.ack_below(batch, next).await.unwrap(), next, "what is in flight may be acknowledged");
    let id = consumer.id();
    let mut ack = crate::harness::socket::ack(batch, Some(next), &[]);
    ack.id = Some(id);
    consumer.send(laneway_client::wire::ClientFrame::Ack(ack)).await;
    loop {
        match consumer.frame().await {
            BrokerFrame::Batch(batch) => panic!("delivered while paused: {:?}", offsets(&batch)),
            BrokerFrame::Acked(acked) if acked.id == id => return,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_group_or_topic_delivers_nothing_keeps_its_lanes_and_goes_on_where_it_stood() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..6).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let mut consumer = Socket::connect(&other.address, Subprotocol::Json).await;
    let subscription = consumer.subscribe_with(credit_of(2)).await.unwrap().subscription;
    let granted = consumer.granted().await;
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [0, 1]);
    // Paused through one broker, delivered by the other.
    let admin = admin(&bus.server);
    assert!(admin.pause_group("orders", "billing").await.unwrap().group.paused_at.is_some());
    becomes(&other, "lanes{state=\"paused\"}", 1.0).await;
    assert_silent(&mut consumer, subscription, &batch, 2).await;
    // Another group of the same topic is not concerned.
    let mut audit = bus.connect(Subprotocol::Json).await;
    audit.subscribe("audit", "orders").await;
    assert_eq!(offsets(&audit.batch().await), [0, 1, 2, 3, 4, 5]);
    assert!(admin.resume_group("orders", "billing").await.unwrap().group.paused_at.is_none());
    let batch = consumer.batch().await;
    assert_eq!((offsets(&batch), batch.epoch), (vec![2, 3, 4, 5], granted.epoch), "under the same lease");
    // The same by its topic: nothing comes in, and what is there does not go out.
    consumer.nack(&batch, 2, "not yet").await.unwrap();
    admin.pause_topic("orders").await.unwrap();
    becomes(&other, "lanes{state=\"paused\"}", 1.0).await;
    becomes(&bus.server, "lanes{state=\"paused\"}", 1.0).await;
    admin.resume_topic("orders").await.unwrap();
    becomes(&other, "lanes{state=\"paused\"}", 0.0).await;
    bus.publish("orders", 0, 6..7).await;
    assert_eq!(offsets(&audit.batch().await), [6]);
    consumer.close().await;
    audit.close().await;
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_are_altered_through_one_broker_hold_on_the_other_at_once_and_the_rest_stays() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    bus.publish("orders", 0, 0..2).await;
    let mut consumer = Socket::connect(&other.address, Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    let (here, there) = (admin(&bus.server), admin(&other));
    let attempts = |max_attempts| WantedSettings { max_attempts: Some(max_attempts), ..Default::default() };
    here.alter_group("orders", "billing", &attempts(7)).await.unwrap();
    let last = WantedSettings { backoff_base_ms: Some(1), ..attempts(1) };
    let altered = here.alter_group("orders", "billing", &last).await.unwrap().group.settings;
    assert_eq!((altered.max_attempts, altered.backoff_base_ms, altered.ack_deadline_ms), (1, 1, 60_000));
    let changes = AlterTopic { payload_bytes_max: Some(4), ..AlterTopic::default() };
    let altered = here.alter_topic("orders", &changes).await.unwrap().topic;
    assert_eq!((altered.payload_bytes_max, altered.dedup_window_ms), (4, 3_600_000));
    let body = serde_json::from_value(serde_json::json!({"payload": "too long"})).unwrap();
    until("the other broker refuses what is too large", async || {
        let refused = there.publish_message("orders", &body).await.err();
        matches!(refused, Some(AdminError::Refused(problem)) if problem.code == ErrorCode::PayloadTooLarge)
    })
    .await;
    // The first failure is the last one now.
    consumer.nack(&batch, 0, "it is poison").await.unwrap();
    assert_eq!(there.list_dead_letters(&Default::default()).await.unwrap().dead_letters.len(), 1);
    consumer.close().await;
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_survives_a_restart_and_a_lost_hint_only_delays_the_end_of_it() {
    let database = TestDatabase::new().await;
    let mut server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", 1).await;
    let mut consumer = Socket::connect(&server.address, Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    consumer.granted().await;
    admin(&server).pause_group("orders", "billing").await.unwrap();
    consumer.close().await;
    assert_eq!(server.stop().await, 0);
    let mut server = Server::on_database(&database.url).await;
    let mut consumer = Socket::connect(&server.address, Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    consumer.granted().await;
    becomes(&server, "lanes{state=\"paused\"}", 1.0).await;
    let mut producer = Socket::connect(&server.address, Subprotocol::Json).await;
    producer.publish("orders", vec![crate::to_partition(0, "m0")]).await;
    assert_eq!(sample(&server, "delivered_messages_total").await, 0.0);
    // Nobody is told: the next look finds it.
    let raw = database.raw().await;
    raw.execute("UPDATE laneway.consumer_group SET paused_at = NULL", &[]).await.unwrap();
    assert_eq!(offsets(&consumer.batch().await), [0]);
    consumer.close().await;
    assert_eq!(server.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_told_in_numbers_without_a_look_at_any_message() {
    let bus = Bus::with_topic("orders", 3).await;
    let mut other = Server::on_database(&bus.database.url).await;
    bus.publish("orders", 0, 0..5).await;
    bus.publish("orders", 1, 0..1).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let batches = consumer.batches(6).await;
    let batch = batches.iter().find(|batch| batch.partition == 0).unwrap();
    consumer.ack_below(batch, 2).await.unwrap();
    let raw = bus.database.raw().await;
    raw.batch_execute("BEGIN; LOCK TABLE laneway.message IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let list = admin(&bus.server).list_partitions("orders", None).await.unwrap();
    let elsewhere = admin(&other).list_partitions("orders", Some(0)).await.unwrap();
    raw.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!((list.partitions.len(), list.next, elsewhere.partitions.len()), (3, None, 2));
    let first = &list.partitions[0];
    assert_eq!(
        (first.start_offset, first.next_offset, first.stored_messages, first.stored_bytes),
        (0, 5, 5, 10)
    );
    assert_eq!(
        (first.lag_messages, &*first.groups[0].group, first.groups[0].lag_messages),
        (Some(3), "billing", 3)
    );
    assert_eq!(first.groups[0].in_flight, Some(3));
    assert!(first.oldest_seconds.unwrap() > 0.0 && first.groups[0].lag_seconds > 0.0);
    let empty = &list.partitions[2];
    assert_eq!((empty.stored_messages, empty.oldest_seconds, empty.lag_messages), (0, None, Some(0)));
    let second = &elsewhere.partitions[0];
    assert_eq!((second.partition, second.groups[0].lag_messages), (1, 1));
    assert_eq!(second.groups[0].in_flight, None, "only the broker of the holder knows");
    // A purge changes them, and the lag of those who are behind.
    let purged =
        admin(&other).purge_topic("orders", &Purge::BeforeOffset { partition: 0, before_offset: 3 }).await;
    assert_eq!(purged.unwrap().messages, 3);
    let first = &admin(&bus.server).list_partitions("orders", None).await.unwrap().partitions[0];
    assert_eq!((first.start_offset, first.stored_messages, first.stored_bytes), (3, 2, 4));
    assert_eq!(first.lag_messages, Some(2));
    consumer.close().await;
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}
