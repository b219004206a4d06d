//! Messages that wait, beyond a plain publish: those of steps, those with a ttl, how many there are, and topics that are full.

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use laneway_client::schedule::{MoveSchedule, ScheduleQuery};
use laneway_client::topic::CreateTopic;
use laneway_client::wire::{NewMessage, Subprotocol, Subscribe, Transact, WantedSettings};
use laneway_client::{Admin, Client, ErrorCode, Options};
use uuid::Uuid;

use crate::harness::socket::{BOTH, Socket, make_topic, payloads, quick_retries, subscribe, text};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::metrics::{becomes, sample};
use crate::transact::step;
use crate::{Bus, to_partition};

const WAITING: &str = "SELECT count(*) FROM laneway.schedule";
const STORED: &str = "SELECT count(*) FROM laneway.message m JOIN laneway.partition p USING (partition_id)
    JOIN laneway.topic t USING (topic_id) WHERE t.name = 'payments'";

fn admin(server: &Server) -> Admin {
    Admin::new(&server.url("")).unwrap()
}

/// A step whose last message waits.
fn later(batch: &laneway_client::wire::Batch, single: i64, delay_ms: u64) -> Transact {
    let mut step = step(batch, &[single], "payments", &["now", "later"]);
    step.publishes[0].messages[1].delay_ms = Some(delay_ms);
    step
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_a_step_waits_for_its_time_and_fires_once_however_often_the_step_is_sent() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        make_topic(&bus.server.address, "payments", 1).await;
        let mut other = Server::on_database(&bus.database.url).await;
        bus.publish("orders", 0, 0..5).await;
        let mut consumer = bus.connect(subprotocol).await;
        consumer.subscribe("billing", "orders").await;
        let batch = consumer.batch().await;
        let first = later(&batch, 0, 700);
        let done = consumer.transact(first.clone()).await.unwrap();
        let again = consumer.transact(first.clone()).await.unwrap();
        let waits = done.placed[0][1].schedule_id().unwrap();
        assert_eq!((done.repeated, done.placed[0][0].offset), (false, 0));
        assert_eq!((again.repeated, &again.placed), (true, &done.placed));
        assert_eq!(admin(&other).show_schedule(waits).await.unwrap().payload.get(), "\"later\"");
        let mut another = first.clone();
        another.publishes[0].messages[1].delay_ms = Some(701);
        assert_eq!(consumer.transact(another).await.unwrap_err().code, ErrorCode::StepMismatch);
        // A time that is none refuses all of the step.
        let mut wrong = later(&batch, 1, 0);
        wrong.publishes[0].messages[1].delay_ms = None;
        wrong.publishes[0].messages[1].deliver_at = Some("1999-01-01T00:00:00Z".into());
        let refused = consumer.transact(wrong.clone()).await.unwrap_err();
        let field = "publishes[0].messages[1].deliver_at";
        assert_eq!((refused.code, refused.field.as_deref()), (ErrorCode::InvalidTime, Some(field)));
        wrong.publishes[0].messages[1].deliver_at = Some("9999-01-01T00:00:00Z".into());
        assert_eq!(consumer.transact(wrong).await.unwrap_err().code, ErrorCode::InvalidTime);
        assert_eq!((bus.database.number(WAITING).await, bus.database.number(STORED).await), (1, 1));
        // Two in one step, of one name: one of them. The name is known afterwards, whichever way it comes.
        let mut named = step(&batch, &[1], "payments", &["a", "a"]);
        for message in &mut named.publishes[0].messages {
            message.transaction_id = Some("invoice-7".into());
            message.deliver_at = Some((Timestamp::now() + Duration::from_secs(3_600)).to_string());
        }
        let done = consumer.transact(named.clone()).await.unwrap();
        assert_eq!(done.placed[0][0], done.placed[0][1]);
        let repeated = Transact { step_id: Uuid::now_v7(), ..named };
        let repeated = Transact { acks: step(&batch, &[2], "payments", &[]).acks, ..repeated };
        assert_eq!(consumer.transact(repeated).await.unwrap().placed, done.placed);
        until("the one that is due is appended", async || bus.database.number(STORED).await == 2).await;
        assert_eq!(bus.database.number(WAITING).await, 1, "the other one waits for an hour");
        // What a zombie sends waits nowhere.
        let mut fenced = later(&batch, 3, 0);
        fenced.acks[0].epoch += 1;
        assert_eq!(consumer.transact(fenced).await.unwrap_err().code, ErrorCode::LeaseLost);
        assert_eq!((bus.database.number(WAITING).await, bus.database.number(STORED).await), (1, 2));
        assert_eq!(other.stop().await, 0);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_the_client_publishes_messages_that_wait() {
    let bus = Bus::with_topic("orders", 1).await;
    make_topic(&bus.server.address, "payments", 1).await;
    bus.publish("orders", 0, 0..1).await;
    let url = format!("ws://{}/v1/ws", bus.server.address);
    let client = Client::connect(&url, Options::default()).await.unwrap();
    let mut reader = client.subscribe("orders", "billing").await.unwrap();
    let delivery = reader.next().await.unwrap();
    let reminder = NewMessage { delay_ms: Some(300), ..text("remind") };
    let done = delivery.transact().publish("payments", reminder).commit().await.unwrap();
    assert!(done.placed[0].schedule_id().is_some(), "{done:?}");
    let mut payments = bus.connect(Subprotocol::Json).await;
    payments.subscribe("reminders", "payments").await;
    let batch = payments.batch().await;
    assert_eq!(payloads(&batch), ["remind"]);
    let cause = batch.messages[0].cause.clone().unwrap();
    assert_eq!((cause.topic.as_str(), cause.offset), ("orders", 0), "it follows from what was acknowledged");
    client.close().await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ttl_of_a_message_that_waits_counts_from_when_it_is_appended() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let message = |payload: &str, ttl_ms| NewMessage {
        delay_ms: Some(600),
        ttl_ms: Some(ttl_ms),
        ..to_partition(0, payload)
    };
    // One lives for less time than it waits, and is delivered all the same: it is young when it comes.
    producer.publish("orders", vec![message("young", 500), message("short", 1)]).await;
    until("both are appended", async || {
        bus.database.number("SELECT count(*) FROM laneway.message WHERE ttl_ms IS NOT NULL").await == 2
    })
    .await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let long = "UPDATE laneway.message SET ttl_ms = 3600000 WHERE ttl_ms = 500";
    bus.database.raw().await.execute(long, &[]).await.unwrap(); // so that the machine may be slow
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    assert_eq!(payloads(&batch), ["young"]);
    becomes(&bus.server, "expired_messages_total{reason=\"ttl\"}", 1.0).await;
    bus.stop().await;
}

/// What the statistics say of a partition, and what there is.
async fn scheduled(server: &Server, database: &TestDatabase) -> (i64, i64) {
    let told = admin(server).list_partitions("orders", None).await.unwrap().partitions[0].scheduled_messages;
    (told, database.number(WAITING).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_tell_how_many_messages_wait_through_moves_cancels_fires_and_a_killed_broker() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let mut socket = Socket::connect(&other.address, Subprotocol::MessagePack).await;
    assert_eq!(scheduled(&bus.server, &bus.database).await, (0, 0));
    let wait = |delay_ms: u64, payload: &str| NewMessage {
        delay_ms: Some(delay_ms),
        transaction_id: Some(payload.to_owned()),
        ..to_partition(0, payload)
    };
    // More changes than rows are kept of them.
    for round in 0..70 {
        let messages = (0..3).map(|number| wait(3_600_000, &format!("{round}-{number}")));
        socket.publish("orders", messages.collect()).await;
    }
    socket.publish("orders", vec![wait(3_600_000, "0-0"), wait(3_600_000, "new")]).await; // one of them is known
    assert_eq!(scheduled(&bus.server, &bus.database).await, (211, 211));
    let listed = admin(&bus.server).list_schedules(&ScheduleQuery::default()).await.unwrap().schedules;
    for schedule in &listed[..5] {
        admin(&other).cancel_schedule(schedule.id).await.unwrap();
    }
    let soon = MoveSchedule { deliver_at: None, delay_ms: Some(0) };
    for schedule in &listed[5..15] {
        admin(&bus.server).move_schedule(schedule.id, &soon).await.unwrap();
    }
    until("the moved ones are appended", async || bus.database.number(WAITING).await == 196).await;
    assert_eq!(scheduled(&bus.server, &bus.database).await, (196, 196));
    // Publishes and fires are under way at a broker that is killed.
    for round in 0..20 {
        let messages = (0..5).map(|number| wait(20 * number, &format!("killed-{round}-{number}")));
        let (id, topic) = (socket.id(), "orders".to_owned());
        let publish = laneway_client::wire::Publish {
            id,
            topic,
            producer_id: None,
            wait_ms: None,
            messages: messages.collect(),
        };
        socket.send(laneway_client::wire::ClientFrame::Publish(publish)).await;
    }
    other.kill().await;
    until("nothing is due any more", async || {
        let (told, real) = scheduled(&bus.server, &bus.database).await;
        let due = bus
            .database
            .number("SELECT count(*) FROM laneway.schedule WHERE due_at < now() + interval '1 minute'");
        told == real && real == 196 && due.await == 0
    })
    .await;
    assert!(
        bus.database.number("SELECT count(*) FROM laneway.schedule_total").await <= 65,
        "old ones are thinned"
    );
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_in_a_full_topic_waits_for_room_and_never_takes_it_past_its_limit() {
    let bus = Bus::start().await;
    work_off_a_full_topic(&bus, &bus.server, 10).await;
    bus.stop().await;
}

/// What one broker lets in, the other learns of a moment later: each keeps to the limit by what it knows.
#[tokio::test(flavor = "multi_thread")]
async fn at_two_brokers_what_is_due_takes_a_topic_past_its_limit_by_what_the_other_learns_late_at_most() {
    let bus = Bus::start().await;
    let mut other = Server::on_database(&bus.database.url).await;
    work_off_a_full_topic(&bus, &other, 20).await;
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

/// `other`: another broker, or the same.
async fn work_off_a_full_topic(bus: &Bus, other: &Server, depth_max: i64) {
    let request = CreateTopic { max_backlog_messages: Some(10), ..CreateTopic::new("orders", 1) };
    admin(&bus.server).create_topic(&request).await.unwrap();
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let settings = WantedSettings { delay_ms: Some(0), ..quick_retries(9) };
    let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    producer.publish("orders", (0..8).map(|number| to_partition(0, format!("m{number}"))).collect()).await;
    let many =
        (0..40).map(|number| NewMessage { delay_ms: Some(0), ..to_partition(0, format!("s{number}")) });
    let published = producer.publish("orders", many.collect()).await;
    assert_eq!(
        published.units[0].scheduled.len(),
        40,
        "what waits is not refused: it counts when it is appended"
    );
    let stored = async || bus.database.number("SELECT max(next_offset) FROM laneway.head").await;
    until("it is full", async || stored().await == 10).await;
    until("the rest is held", async || {
        sample(&bus.server, "schedules_held").await + sample(other, "schedules_held").await >= 1.0
    })
    .await;
    let (mut done, mut seen) = (0, Vec::new());
    while done < 48 {
        let batch = consumer.batch().await;
        seen.extend(payloads(&batch));
        let depth = stored().await - done;
        assert!(depth <= depth_max, "{depth} messages, and at most {depth_max} may be there");
        done = batch.messages.last().unwrap().offset + 1;
        consumer.ack_below(&batch, done).await.unwrap();
    }
    let expected =
        (0..8).map(|number| format!("m{number}")).chain((0..40).map(|number| format!("s{number}")));
    assert_eq!(seen, expected.collect::<Vec<_>>(), "all of them, once, in order");
    assert_eq!(bus.database.number(WAITING).await, 0);
    becomes(&bus.server, "schedules_held", 0.0).await;
}
