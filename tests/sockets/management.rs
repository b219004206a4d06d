//! Topics and groups that are paused and resumed while messages flow, and partitions in numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use laneway_client::admin::AdminError;
use laneway_client::management::Purge;
use laneway_client::pull_api::{PopAck, PopRequest};
use laneway_client::topic::AlterTopic;
use laneway_client::wire::{BrokerFrame, CreditGrant, NewMessage, Subprotocol, Subscribe, WantedSettings};
use laneway_client::{Admin, Client, ErrorCode, Options};
use tokio::task::JoinSet;

use crate::Bus;
use crate::harness::socket::{Socket, ack, make_topic, offsets, subscribe};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::keys::parking;
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
async fn any_broker_tells_what_was_popped_and_is_not_done_and_that_nothing_is_in_flight_where_nobody_is() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let (here, there) = (admin(&bus.server), admin(&other));
    let in_flight = async || {
        let mut told = Vec::new();
        for asked in [&here, &there] {
            let list = asked.list_partitions("orders", None).await.unwrap();
            told.push(list.partitions[0].groups[0].in_flight);
        }
        assert_eq!(told[0], told[1], "both say the same");
        told[0]
    };
    bus.publish("orders", 0, 0..8).await;
    let wish = PopRequest { max_messages: Some(6), wait_ms: Some(20_000), ..PopRequest::default() };
    let popped = here.pop("orders", "billing", &wish).await.unwrap().unwrap();
    assert_eq!(in_flight().await, Some(6));
    let some = PopAck { epoch: popped.epoch, next: Some(1), offsets: vec![2, 4], ..PopAck::default() };
    assert_eq!(there.ack("orders", "billing", &some).await.unwrap().remaining, 3);
    assert_eq!(in_flight().await, Some(3));
    here.purge_topic("orders", &Purge::BeforeOffset { partition: 0, before_offset: 4 }).await.unwrap();
    assert_eq!(in_flight().await, Some(1));
    here.ack("orders", "billing", &PopAck::all(&popped)).await.unwrap();
    assert_eq!(in_flight().await, Some(0), "nobody has the lane");
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

/// Asserts that nothing is delivered for longer than a look at the tables takes.
async fn assert_quiet(consumer: &mut Socket) {
    while let Some(frame) = consumer.frame_within(std::time::Duration::from_millis(500)).await {
        assert!(!matches!(frame, BrokerFrame::Batch(_)), "delivered while paused: {frame:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_topic_or_group_holds_what_is_due_what_is_replayed_and_what_is_released() {
    let bus = Bus::with_topic("orders", 1).await;
    let admin = admin(&bus.server);
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let wish = Subscribe { settings: Some(parking(1)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let mut careless = bus.connect(Subprotocol::Json).await;
    let wish = Subscribe {
        settings: Some(WantedSettings { max_attempts: Some(1), ..Default::default() }),
        ..subscribe("audit", "orders")
    };
    careless.subscribe_with(wish).await.unwrap();
    crate::keys::publish(&bus, &["a:0"]).await;
    let batch = consumer.batch().await;
    consumer.nack(&batch, 0, "it is poison").await.unwrap();
    let batch = careless.batch().await;
    careless.nack(&batch, 0, "it is poison").await.unwrap();
    let parked = || async { crate::keys::parked(&admin).await };
    until("the key is parked", async || parked().await.len() == 1).await;
    // The topic is paused: nothing comes in, whoever brings it.
    let soon = NewMessage { delay_ms: Some(3_000), ..crate::to_partition(0, "due") };
    let mut producer = bus.connect(Subprotocol::Json).await;
    producer.publish("orders", vec![soon]).await;
    admin.pause_topic("orders").await.unwrap();
    becomes(&bus.server, "lanes{state=\"paused\"}", 2.0).await;
    let dead = admin.list_dead_letters(&Default::default()).await.unwrap().dead_letters[0].id;
    match admin.replay_dead_letter(dead).await {
        Err(AdminError::Refused(problem)) => assert_eq!(problem.code, ErrorCode::TopicPaused),
        other => panic!("{other:?}"),
    }
    let due = "SELECT count(*) FROM laneway.schedule WHERE due_at < clock_timestamp() - interval '1 second'";
    until("it is due for a while", async || bus.database.number(due).await == 1).await;
    assert_eq!(bus.database.number(NEXT).await, 1, "nothing was stored");
    // Of a key that is released meanwhile nothing is delivered, either.
    admin.replay_parked(parked().await[0].id).await.unwrap();
    assert_quiet(&mut consumer).await;
    assert_quiet(&mut careless).await;
    admin.resume_topic("orders").await.unwrap();
    let mut seen = Vec::new();
    for batch in consumer.batches(2).await {
        seen.extend(crate::harness::socket::payloads(&batch));
        consumer.ack(ack(&batch, None, &offsets(&batch))).await.unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, ["a:0", "due"]);
    let batch = careless.batch().await;
    assert_eq!(offsets(&batch), [1]);
    // The group is paused: what is due or replayed comes in, and waits for it.
    admin.pause_group("orders", "audit").await.unwrap();
    becomes(&bus.server, "lanes{state=\"paused\"}", 1.0).await;
    admin.replay_dead_letter(dead).await.unwrap();
    assert_eq!(bus.database.number(NEXT).await, 3);
    assert_eq!(offsets(&consumer.batch().await), [2]);
    assert_quiet(&mut careless).await;
    admin.resume_group("orders", "audit").await.unwrap();
    assert_eq!(offsets(&careless.batch().await), [2]);
    consumer.close().await;
    careless.close().await;
    bus.stop().await;
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
    // What waits for its time is counted beside, and is no lag.
    let later = NewMessage { delay_ms: Some(3_600_000), ..crate::to_partition(1, "later") };
    let mut producer = bus.connect(Subprotocol::Json).await;
    producer.publish("orders", vec![later.clone(), later]).await;
    for server in [&bus.server, &other] {
        let told = admin(server).list_partitions("orders", None).await.unwrap().partitions;
        let waiting: Vec<i64> = told.iter().map(|partition| partition.scheduled_messages).collect();
        assert_eq!((waiting, told[1].lag_messages, told[1].stored_messages), (vec![0, 2, 0], Some(1), 1));
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_group_at_once_never_leave_settings_that_contradict_each_other() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let (here, there) = (admin(&bus.server), admin(&other));
    let settings = |delay_ms, max_age_ms| WantedSettings { delay_ms, max_age_ms, ..Default::default() };
    let (late, young) = (settings(Some(3_600_000), None), settings(None, Some(60_000)));
    for round in 0..15 {
        here.alter_group("orders", "billing", &settings(Some(0), Some(0))).await.unwrap();
        let (one, two) = tokio::join!(
            here.alter_group("orders", "billing", &late),
            there.alter_group("orders", "billing", &young)
        );
        let (done, refused): (Vec<_>, Vec<_>) = [one, two].into_iter().partition(Result::is_ok);
        assert_eq!(
            (done.len(), refused.len()),
            (1, 1),
            "round {round}: each of them alone is fine, and not both"
        );
        match refused.into_iter().next().unwrap() {
            Err(AdminError::Refused(problem)) => assert_eq!(problem.code, ErrorCode::InvalidSetting),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}
