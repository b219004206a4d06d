//! Messages that wait for their time: order, copies, bad times, cancelling, killed brokers, lanes that hold until a moment.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use laneway_client::schedule::{MoveSchedule, ScheduleQuery};
use laneway_client::wire::{
    ClientFrame, Nack, NewMessage, Publish, Published, Scheduled, Start, StepPublish, Subprotocol, Subscribe,
    Transact,
};
use laneway_client::{Admin, Cause, Client, ErrorCode, Options};
use uuid::Uuid;

use crate::harness::socket::{
    BOTH, Socket, ack, make_topic, nack, offsets, payloads, quick_retries, subscribe, text,
};
use crate::harness::{Server, TestDatabase, wait};
use crate::{Bus, to_partition};

fn after(delay_ms: u64, payload: &str) -> NewMessage {
    NewMessage { delay_ms: Some(delay_ms), ..to_partition(0, payload) }
}

fn at(deliver_at: Timestamp, payload: &str) -> NewMessage {
    NewMessage { deliver_at: Some(deliver_at.to_string()), ..to_partition(0, payload) }
}

fn scheduled(published: &Published) -> Vec<Scheduled> {
    published.units.iter().flat_map(|unit| unit.scheduled.clone()).collect()
}

async fn waiting(database: &TestDatabase) -> i64 {
    database.number("SELECT count(*) FROM laneway.schedule").await
}

async fn nothing_waits(database: &TestDatabase) {
    wait::until("everything to be appended", async || waiting(database).await == 0).await;
}

/// Publishes, whatever becomes of it.
async fn try_publish(
    socket: &mut Socket,
    producer_id: Option<Uuid>,
    messages: Vec<NewMessage>,
) -> Result<Published, laneway_client::wire::ErrorFrame> {
    use laneway_client::wire::BrokerFrame;
    let id = socket.id();
    socket
        .send(ClientFrame::Publish(Publish {
            id,
            topic: "orders".into(),
            producer_id,
            messages,
            wait_ms: None,
        }))
        .await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => Some(Ok(published.clone())),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((**error).clone())),
            _ => None,
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_when_they_are_due_in_the_order_of_times_and_then_of_publishing() {
    let bus = Bus::with_topic("orders", 2).await;
    for (number, subprotocol) in BOTH.into_iter().enumerate() {
        let mut socket = bus.connect(subprotocol).await;
        let group = format!("group{number}");
        let wish = Subscribe { start: Some(Start::Latest), ..subscribe(&group, "orders") };
        socket.subscribe_with(wish).await.unwrap();
        let trace_id = Uuid::new_v4();
        let root = NewMessage { trace_id: Some(trace_id), ..to_partition(0, format!("root{number}")) };
        let root = socket.publish("orders", vec![root]).await.units[0].first_offset.unwrap();
        let due = Timestamp::now() + Duration::from_millis(500);
        let started = Instant::now();
        let cause = Some(Cause { topic: "orders".into(), partition: 0, offset: root });
        let messages = vec![
            after(900, "last"),
            at(due, "second"),
            to_partition(0, "now"),
            at(due, "third"),
            NewMessage { cause, ..after(100, "first") },
        ];
        let published = socket.publish("orders", messages).await;
        let ids = scheduled(&published);
        assert_eq!(ids.iter().map(|one| one.position).collect::<Vec<_>>(), [0, 1, 3, 4]);
        let plain: Vec<_> = published.units.iter().filter(|unit| unit.first_offset.is_some()).collect();
        assert_eq!((plain.len(), plain[0].positions.as_slice()), (1, [2].as_slice()));
        socket.publish("orders", vec![at(due, "fourth")]).await;
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "last") {
            let batch = socket.batch().await;
            if payloads(&batch).contains(&"first".to_owned()) {
                let first = batch.messages.iter().find(|message| *message.payload == *b"first").unwrap();
                assert_eq!(first.trace_id, trace_id, "it belongs to the trace of its cause");
                assert_eq!(first.cause.as_ref().map(|cause| cause.offset), Some(root));
                assert!(started.elapsed() >= Duration::from_millis(100));
            }
            seen.extend(payloads(&batch));
        }
        assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
        assert_eq!(seen[1..], ["now", "first", "second", "third", "fourth", "last"]);
        let url = bus.server.url(&format!("/v1/traces/{trace_id}"));
        let tree: serde_json::Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        assert_eq!(tree["hops"].as_array().unwrap().len(), 2, "{tree}");
        socket.close().await;
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_is_published_again_is_one_by_its_number_and_by_its_transaction_id() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    let producer = Some(Uuid::new_v4());
    let numbered = |sequence| NewMessage { sequence: Some(sequence), ..after(400, "numbered") };
    let first = try_publish(&mut socket, producer, vec![numbered(0), numbered(1)]).await.unwrap();
    let again = try_publish(&mut socket, producer, vec![numbered(0), numbered(1)]).await.unwrap();
    assert_eq!(scheduled(&first), scheduled(&again));
    assert_eq!((first.units[0].duplicates.len(), again.units[0].duplicates.len()), (0, 2));
    // What is appended at once is numbered apart.
    let plain = NewMessage { sequence: Some(0), ..to_partition(0, "plain") };
    let plain = try_publish(&mut socket, producer, vec![plain]).await.unwrap();
    assert_eq!((plain.units[0].first_offset, plain.units[0].error.clone()), (Some(0), None));
    let named = || NewMessage { transaction_id: Some("invoice-7".into()), ..after(400, "named") };
    let (first, second) = (
        socket.publish("orders", vec![named(), named()]).await,
        socket.publish("orders", vec![named()]).await,
    );
    let ids = scheduled(&first);
    assert_eq!((ids.len(), ids[0].schedule), (2, ids[1].schedule), "one message, named twice");
    assert_eq!(scheduled(&second)[0].schedule, ids[0].schedule);
    let at_once = NewMessage { delay_ms: None, ..named() };
    let copy = socket.publish("orders", vec![at_once.clone()]).await;
    assert_eq!((copy.units[0].first_offset, copy.units[0].duplicates[0].offset), (None, None));
    assert_eq!(scheduled(&copy)[0].schedule, ids[0].schedule, "it is known while it waits");
    assert_eq!(waiting(&bus.database).await, 3);
    nothing_waits(&bus.database).await;
    let copy = socket.publish("orders", vec![at_once, named()]).await;
    let known: Vec<_> =
        copy.units.iter().flat_map(|unit| unit.duplicates.clone()).map(|one| one.offset).collect();
    assert_eq!(known, [Some(3), Some(3)], "and stands somewhere once it is appended");
    let again = try_publish(&mut socket, producer, vec![numbered(0), numbered(1)]).await.unwrap();
    assert_eq!(again.units[0].duplicates.len(), 2, "a number is remembered after it was appended");
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.message").await, 4);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_time_is_said_and_nothing_happens() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut socket = bus.connect(Subprotocol::Json).await;
    let now = Timestamp::now();
    let both = NewMessage { delay_ms: Some(1), ..at(now, "x") };
    let unreadable = NewMessage { deliver_at: Some("tomorrow".into()), ..to_partition(0, "x") };
    let too_long = after(u64::MAX, "x");
    let ancient = ["1969-12-31T23:59:59Z", "-004714-01-01T00:00:00Z"]
        .map(|past| NewMessage { deliver_at: Some(past.into()), ..to_partition(0, "x") });
    let wrong = [(both, "deliver_at"), (unreadable, "deliver_at"), (too_long, "delay_ms")];
    for (message, field) in wrong.into_iter().chain(ancient.map(|message| (message, "deliver_at"))) {
        let error = try_publish(&mut socket, None, vec![after(60_000, "good"), message]).await.unwrap_err();
        assert_eq!((error.code, error.field), (ErrorCode::InvalidTime, Some(format!("messages[1].{field}"))));
    }
    let hour = Duration::from_secs(3_600);
    for wrong in [now - hour, now + hour * 24 * 365 * 11] {
        let published = socket.publish("orders", vec![after(60_000, "good"), at(wrong, "wrong")]).await;
        let fault = published.units[0].error.clone().unwrap();
        let field = Some("messages[1].deliver_at".to_owned());
        assert_eq!((fault.code, fault.field), (ErrorCode::InvalidTime, field), "{wrong}");
    }
    let both = NewMessage { delay_ms: Some(1), ..at(now, "x") };
    let publishes = vec![StepPublish { topic: "orders".into(), messages: vec![both] }];
    let published = socket.publish("orders", vec![text("plain")]).await;
    assert!(published.units[0].first_offset.is_some());
    socket.subscribe("billing", "orders").await;
    let batch = socket.batch().await;
    let step = Transact { id: 0, step_id: Uuid::new_v4(), acks: vec![ack(&batch, Some(1), &[])], publishes };
    let error = socket.transact(step).await.unwrap_err();
    let field = "publishes[0].messages[0].deliver_at";
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidTime, Some(field)));
    assert_eq!(waiting(&bus.database).await, 0);
    let just_past =
        socket.publish("orders", vec![at(Timestamp::now() - Duration::from_secs(5), "late")]).await;
    assert_eq!(scheduled(&just_past).len(), 1, "what is just past is due at once");
    assert_eq!(payloads(&socket.batch().await), ["late"]);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_listed_shown_moved_and_cancelled() {
    let bus = Bus::with_topic("orders", 1).await;
    make_topic(&bus.server.address, "others", 1).await;
    let admin = Admin::new(&bus.server.url("")).unwrap();
    let client =
        Client::connect(&format!("ws://{}/v1/ws", bus.server.address), Options::default()).await.unwrap();
    let later = |payload: &'static str| NewMessage {
        delay_ms: Some(3_600_000),
        transaction_id: Some(payload.into()),
        ..text(payload)
    };
    let mut ids = Vec::new();
    for payload in ["a", "b", "c"] {
        let receipt = client.publish("orders", later(payload)).await.unwrap();
        assert_eq!((receipt.offset, receipt.duplicate), (None, false));
        ids.push(receipt.schedule.unwrap());
    }
    client.publish("others", later("d")).await.unwrap();
    let query = ScheduleQuery { topic: Some("orders".into()), limit: Some(2), after: None };
    let page = admin.list_schedules(&query).await.unwrap();
    assert_eq!(page.schedules.iter().map(|one| one.id).collect::<Vec<_>>(), ids[..2]);
    let rest = admin.list_schedules(&ScheduleQuery { after: page.next, ..query }).await.unwrap();
    assert_eq!((rest.schedules.len(), rest.schedules[0].id, rest.next), (1, ids[2], None));
    assert_eq!(admin.list_schedules(&ScheduleQuery::default()).await.unwrap().schedules.len(), 4);
    let shown = admin.show_schedule(ids[1]).await.unwrap();
    assert_eq!((shown.topic.as_str(), shown.payload.get()), ("orders", "\"b\""));
    admin.cancel_schedule(ids[0]).await.unwrap();
    for gone in
        [admin.cancel_schedule(ids[0]).await.unwrap_err(), admin.show_schedule(ids[0]).await.unwrap_err()]
    {
        assert!(gone.to_string().contains("unknown_schedule"), "{gone}");
    }
    let again = client.publish("orders", later("a")).await.unwrap();
    assert_eq!((again.duplicate, again.schedule), (true, Some(ids[0])), "it was cancelled, and stays so");
    for wrong in [
        MoveSchedule::default(),
        MoveSchedule { deliver_at: Some("1999-01-01T00:00:00Z".into()), delay_ms: None },
        MoveSchedule { deliver_at: Some("-004714-01-01T00:00:00Z".into()), delay_ms: None },
    ] {
        let error = admin.move_schedule(ids[2], &wrong).await.unwrap_err();
        assert!(error.to_string().contains("invalid_time"), "{error}");
    }
    let mut tail = bus.connect(Subprotocol::Json).await;
    tail.subscribe("billing", "orders").await;
    tail.granted().await;
    let moved = MoveSchedule { deliver_at: None, delay_ms: Some(100) };
    let moved = admin.move_schedule(ids[2], &moved).await.unwrap();
    assert!(moved.due_at < shown.due_at);
    assert_eq!(payloads(&tail.batch().await), ["c"], "it comes at its new time");
    assert_eq!(waiting(&bus.database).await, 2);
    client.close().await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_cancelled_or_appended_and_never_both() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    // The last is far off: whatever the machine is busy with, one is appended and one is cancelled.
    let delay = |number: u64| if number == 60 { 3_600_000 } else { 150 + number * 10 };
    let messages = (0..=60_u64).map(|number| after(delay(number), &number.to_string())).collect();
    let ids: Vec<i64> =
        scheduled(&socket.publish("orders", messages).await).iter().map(|one| one.schedule).collect();
    let admin = Admin::new(&bus.server.url("")).unwrap();
    wait::until("the first to be appended", async || waiting(&bus.database).await <= 60).await;
    let mut cancelled = BTreeSet::new();
    for (number, id) in ids.iter().enumerate().rev() {
        if admin.cancel_schedule(*id).await.is_ok() {
            cancelled.insert(number.to_string());
        }
    }
    nothing_waits(&bus.database).await;
    let raw = bus.database.raw().await;
    let rows = raw.query("SELECT payload FROM laneway.message ORDER BY \"offset\"", &[]).await.unwrap();
    let appended: Vec<String> =
        rows.iter().map(|row| String::from_utf8(row.get::<_, Vec<u8>>(0)).unwrap()).collect();
    let distinct: BTreeSet<String> = appended.iter().cloned().collect();
    assert_eq!(distinct.len(), appended.len(), "none twice");
    assert!(distinct.is_disjoint(&cancelled), "{distinct:?} {cancelled:?}");
    assert_eq!(distinct.len() + cancelled.len(), 61);
    assert!(!distinct.is_empty() && !cancelled.is_empty(), "both have happened");
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_schedule_is_appended_once_though_brokers_race_and_die_and_all_are_away() {
    const MESSAGES: u64 = 400;
    let mut bus = Bus::with_topic("orders", 4).await;
    let mut second = Server::on_database(&bus.database.url).await;
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    let message = |number: u64| NewMessage {
        partition: Some((number % 4) as u32),
        ..after(300 + number * 3, &format!("m{number}"))
    };
    let published = socket.publish("orders", (0..MESSAGES).map(message).collect()).await;
    assert_eq!(scheduled(&published).len(), MESSAGES as usize);
    wait::until("some to be appended", async || waiting(&bus.database).await < 300).await;
    bus.server.kill().await;
    wait::until("the other broker to go on", async || waiting(&bus.database).await < 150).await;
    let mut socket = Socket::connect(&second.address, Subprotocol::Json).await;
    socket.publish("orders", vec![after(1_500, "away")]).await;
    socket.close().await;
    second.stop().await;
    assert!(waiting(&bus.database).await > 0, "it waits for a broker");
    let mut third = Server::on_database(&bus.database.url).await;
    nothing_waits(&bus.database).await;
    let count = "SELECT count(*) FROM laneway.message";
    assert_eq!(bus.database.number(count).await, MESSAGES as i64 + 1);
    assert_eq!(
        bus.database.number("SELECT count(DISTINCT payload) FROM laneway.message").await,
        MESSAGES as i64 + 1
    );
    let unordered = "SELECT count(*) FROM (SELECT substr(convert_from(payload, 'UTF8'), 2)::int AS number, \
        lag(substr(convert_from(payload, 'UTF8'), 2)::int) OVER (PARTITION BY partition_id ORDER BY \"offset\") AS before \
        FROM laneway.message WHERE payload <> 'away') AS m WHERE before > number";
    assert_eq!(bus.database.number(unordered).await, 0, "each partition is in the order of due times");
    assert_eq!(third.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_may_give_a_moment_until_which_the_lane_holds() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..2).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    let wish = Subscribe { settings: Some(quick_retries(5)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    let hour = Duration::from_secs(3_600);
    let wrong = [Timestamp::now() - hour, Timestamp::now() + hour * 25].map(|at| at.to_string());
    let soon = Timestamp::now() + Duration::from_millis(500);
    let (time, form) = (ErrorCode::InvalidTime, ErrorCode::Malformed);
    let wrong = wrong.into_iter().chain(["soon".to_owned()]).map(|until| (None, Some(until), time, "until"));
    let wrong = wrong.chain([
        (Some(1), Some(soon.to_string()), form, "until"), // which of both?
        (Some(86_400_001), None, time, "delay_ms"),
        (Some(u64::MAX), None, time, "delay_ms"),
    ]);
    for (id, (delay_ms, until, code, field)) in wrong.enumerate() {
        let id = id as u64 + 1;
        let nack = Nack { id: Some(id), delay_ms, until, ..nack(&batch, 0, "busy") };
        consumer.send(ClientFrame::Nack(nack)).await;
        let error = consumer.confirmed(id).await.unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (code, Some(field)));
    }
    let until = Timestamp::now() + Duration::from_millis(700);
    let nack = Nack { until: Some(until.to_string()), ..nack(&batch, 0, "busy") };
    consumer.send(ClientFrame::Nack(nack)).await;
    let again = consumer.batch().await;
    assert_eq!((offsets(&again), again.attempts), (vec![0, 1], vec![(0, 1)]));
    assert!(Timestamp::now() >= until);
    bus.stop().await;
}
