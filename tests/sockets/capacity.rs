//! Topics that are full, as clients meet them: refused, waiting, told; and steps that find no room.

use std::time::{Duration, Instant};

use laneway_client::topic::{AlterTopic, CreateTopic, Retention, TopicDetail};
use laneway_client::wire::{
    BrokerFrame, ClientFrame, ErrorFrame, GroupCapacity, NewMessage, Publish, Published, StepPublish,
    Subprotocol, Subscribe, Transact, WantedSettings,
};
use laneway_client::{Admin, Class, ErrorCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::Bus;
use crate::harness::Server;
use crate::harness::process::{laneway, run_command};
use crate::harness::socket::{BOTH, Socket, ack, subscribe, text};
use crate::harness::wait::until;
use crate::metrics::{becomes, sample, samples};

async fn limited(bus: &Bus, name: &str, messages: u64) {
    let admin = Admin::new(&format!("http://{}", bus.server.address)).unwrap();
    let request = CreateTopic { max_backlog_messages: Some(messages), ..CreateTopic::new(name, 1) };
    admin.create_topic(&request).await.unwrap();
}

/// Sends a publish; returns its id.
async fn send(socket: &mut Socket, topic: &str, messages: usize, wait_ms: Option<u64>) -> u64 {
    let id = socket.id();
    let messages = (0..messages).map(|number| text(format!("m{number}"))).collect();
    let publish = Publish { id, topic: topic.into(), producer_id: None, wait_ms, messages };
    socket.send(ClientFrame::Publish(publish)).await;
    id
}

async fn answer(socket: &mut Socket, id: u64) -> Result<Published, ErrorFrame> {
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => Some(Ok(published.clone())),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err(*error.clone())),
            _ => None,
        })
        .await
}

async fn publish(
    socket: &mut Socket,
    topic: &str,
    messages: usize,
    wait_ms: Option<u64>,
) -> Result<Published, ErrorFrame> {
    let id = send(socket, topic, messages, wait_ms).await;
    answer(socket, id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_topic_refuses_waits_and_lets_others_pass_in_both_encodings() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("others", 1).await;
        limited(&bus, "orders", 10).await;
        let mut consumer = bus.connect(subprotocol).await;
        consumer.subscribe("billing", "orders").await;
        let mut producer = bus.connect(subprotocol).await;
        publish(&mut producer, "orders", 10, None).await.unwrap();
        let refused = publish(&mut producer, "orders", 1, None).await.unwrap_err();
        assert_eq!((refused.code, refused.class), (ErrorCode::TopicFull, Class::Retry));
        assert_eq!(
            (refused.depth, refused.limit, refused.field.as_deref()),
            (Some(10), Some(10), Some("topic"))
        );
        assert!(refused.retry_after_ms.is_some_and(|ms| (100..=1_000).contains(&ms)), "{refused:?}");
        let late = publish(&mut producer, "orders", 1, Some(200)).await.unwrap_err();
        assert_eq!(late.code, ErrorCode::TopicFull);
        // What waits keeps its order, and publishes to other topics pass it.
        let first = send(&mut producer, "orders", 2, Some(20_000)).await;
        let second = send(&mut producer, "orders", 3, Some(20_000)).await;
        publish(&mut producer, "others", 1, None).await.unwrap();
        let batch = consumer.batches(10).await.remove(0);
        consumer.ack_below(&batch, 10).await.unwrap();
        let first = answer(&mut producer, first).await.unwrap().units[0].first_offset;
        let second = answer(&mut producer, second).await.unwrap().units[0].first_offset;
        assert_eq!((first, second), (Some(10), Some(12)), "what was refused has no offset");
        // A wait that is too long is no wait.
        let endless = publish(&mut producer, "orders", 1, Some(20_001)).await.unwrap_err();
        assert_eq!((endless.code, endless.field.as_deref()), (ErrorCode::Malformed, Some("wait_ms")));
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_behind_one_that_waits_waits_for_as_long_as_it_may_from_when_it_came() {
    let bus = Bus::with_topic("others", 1).await;
    limited(&bus, "orders", 10).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    publish(&mut producer, "orders", 10, None).await.unwrap();
    let started = Instant::now();
    let first = send(&mut producer, "orders", 2, Some(20_000)).await;
    let impatient = send(&mut producer, "orders", 1, None).await;
    let brief = send(&mut producer, "orders", 1, Some(400)).await;
    let last = send(&mut producer, "orders", 3, Some(20_000)).await;
    let refused = answer(&mut producer, impatient).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.depth, refused.limit, refused.field.as_deref()),
        (ErrorCode::TopicFull, Some(10), Some(10), Some("topic")),
        "at once, though another one waits before it"
    );
    // What waits for its time needs no room, and stands in no order with the others.
    let later = NewMessage { delay_ms: Some(3_600_000), ..text("later") };
    assert_eq!(producer.publish("orders", vec![later]).await.units[0].scheduled.len(), 1);
    let refused = answer(&mut producer, brief).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TopicFull);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(400) && waited < Duration::from_secs(15), "{waited:?}");
    let batch = consumer.batches(10).await.remove(0);
    consumer.ack_below(&batch, 10).await.unwrap();
    let first = answer(&mut producer, first).await.unwrap().units[0].first_offset;
    let last = answer(&mut producer, last).await.unwrap().units[0].first_offset;
    assert_eq!((first, last), (Some(10), Some(12)), "in their order, without what was refused");
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_waits_at_one_broker_goes_in_when_there_is_room_by_acks_at_another() {
    let bus = Bus::with_topic("others", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    limited(&bus, "orders", 10).await;
    let mut consumer = Socket::connect(&other.address, Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let mut producer = bus.connect(Subprotocol::Json).await;
    publish(&mut producer, "orders", 10, None).await.unwrap();
    let waits = send(&mut producer, "orders", 10, Some(20_000)).await;
    publish(&mut producer, "others", 1, None).await.unwrap(); // it stands aside by now
    let refused =
        publish(&mut Socket::connect(&other.address, Subprotocol::Json).await, "orders", 1, None).await;
    assert_eq!(refused.unwrap_err().code, ErrorCode::TopicFull);
    let batch = consumer.batches(10).await.remove(0);
    consumer.ack_below(&batch, 10).await.unwrap();
    assert_eq!(answer(&mut producer, waits).await.unwrap().units[0].first_offset, Some(10));
    let refused = publish(&mut producer, "orders", 1, None).await.unwrap_err();
    assert_eq!((refused.code, refused.depth), (ErrorCode::TopicFull, Some(10)), "it is full again");
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

async fn alter(server: &Server, limit: Retention) {
    let admin = Admin::new(&server.url("")).unwrap();
    let changes = AlterTopic { max_backlog_messages: limit, ..AlterTopic::default() };
    admin.alter_topic("orders", &changes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_raised_or_removed_anywhere_lets_in_what_waits_and_fights_with_nobody() {
    let bus = Bus::with_topic("others", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    limited(&bus, "orders", 10).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let mut producer = bus.connect(Subprotocol::Json).await;
    publish(&mut producer, "orders", 10, None).await.unwrap();
    for server in [&bus.server, &other] {
        let waits = send(&mut producer, "orders", 2, Some(20_000)).await;
        publish(&mut producer, "others", 1, None).await.unwrap(); // it stands aside by now
        let limit = if server.address == other.address { 14 } else { 12 };
        alter(server, Retention::Bound(limit)).await;
        answer(&mut producer, waits).await.unwrap();
    }
    // While something waits that knows an older limit, others go by the new one.
    let waits = send(&mut producer, "orders", 14, Some(20_000)).await;
    publish(&mut producer, "others", 1, None).await.unwrap();
    alter(&other, Retention::Bound(20)).await;
    let mut second = bus.connect(Subprotocol::MessagePack).await;
    for _ in 0..6 {
        publish(&mut second, "orders", 1, Some(15_000)).await.unwrap();
    }
    let full = publish(&mut second, "orders", 1, None).await.unwrap_err();
    assert_eq!((full.code, full.depth, full.limit), (ErrorCode::TopicFull, Some(20), Some(20)));
    // One that is lowered counts at once, too.
    alter(&bus.server, Retention::Bound(5)).await;
    let full = publish(&mut second, "orders", 1, None).await.unwrap_err();
    assert_eq!((full.code, full.depth, full.limit), (ErrorCode::TopicFull, Some(20), Some(5)));
    alter(&other, Retention::None).await;
    assert_eq!(answer(&mut producer, waits).await.unwrap().units[0].first_offset, Some(20));
    publish(&mut second, "orders", 100, None).await.unwrap();
    until("nothing is told of a topic without limits", async || {
        let told = samples(&bus.server).await;
        !told.keys().any(|name| name.contains("topic_limit{") || name.contains("topic_depth{"))
    })
    .await;
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_into_a_full_topic_does_nothing_and_goes_through_later_once() {
    let bus = Bus::with_topic("orders", 1).await;
    limited(&bus, "payments", 2).await;
    bus.publish("orders", 0, 0..5).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    let mut auditor = bus.connect(Subprotocol::MessagePack).await;
    auditor.subscribe("audit", "payments").await;
    let step = |offset: i64| Transact {
        id: 0,
        step_id: Uuid::now_v7(),
        acks: vec![ack(&batch, None, &[offset])],
        publishes: vec![
            StepPublish { topic: "orders".into(), messages: vec![text("again")] },
            StepPublish { topic: "payments".into(), messages: vec![text("paid")] },
        ],
    };
    let first = step(0);
    consumer.transact(first.clone()).await.unwrap();
    consumer.transact(step(1)).await.unwrap();
    let third = step(2);
    let refused = consumer.transact(third.clone()).await.unwrap_err();
    assert_eq!((refused.code, refused.class), (ErrorCode::TopicFull, Class::Retry));
    assert_eq!(refused.field.as_deref(), Some("publishes[1].topic"));
    assert_eq!((refused.depth, refused.limit), (Some(2), Some(2)));
    let stored =
        "SELECT sum(n)::bigint FROM (SELECT max(next_offset) AS n FROM laneway.head GROUP BY partition_id) h";
    assert_eq!(bus.database.number(stored).await, 5 + 2 + 2);
    // One that was done before needs no room.
    assert!(consumer.transact(first).await.unwrap().repeated);
    let paid = auditor.batches(2).await.remove(0);
    auditor.ack_below(&paid, 2).await.unwrap();
    until("there is room", async || consumer.transact(third.clone()).await.is_ok()).await;
    assert!(consumer.transact(third.clone()).await.unwrap().repeated);
    assert_eq!(bus.database.number(stored).await, 9 + 2);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_how_full_a_topic_is_and_hear_when_it_is_nearly_full_and_when_there_is_room() {
    let bus = Bus::with_topic("plain", 1).await;
    let (server, http) = (&bus.server, reqwest::Client::new());
    limited(&bus, "orders", 10).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let aside = WantedSettings { capacity: Some(GroupCapacity::Excluded), ..WantedSettings::default() };
    let aside = Subscribe { settings: Some(aside), ..subscribe("aside", "orders") };
    assert_eq!(consumer.subscribe_with(aside).await.unwrap().settings.capacity, GroupCapacity::Excluded);
    let mut producer = bus.connect(Subprotocol::Json).await;
    publish(&mut producer, "plain", 1, None).await.unwrap();
    publish(&mut producer, "orders", 9, None).await.unwrap();
    server.logged("topic nearly full").await;
    becomes(server, "topic_full_crossings_total{direction=\"nearly_full\"}", 1.0).await;
    let labels = "topic=\"orders\",limit=\"max_backlog_messages\"";
    becomes(server, &format!("topic_depth{{{labels}}}"), 9.0).await;
    assert_eq!(sample(server, &format!("topic_limit{{{labels}}}")).await, 10.0);
    assert!(
        !samples(server).await.keys().any(|name| name.contains("topic=\"plain\"") && name.contains("depth"))
    );
    // Over HTTP: refused with the same facts, and the wait is bounded.
    let one = |query: &str| {
        http.post(server.url(&format!("/v1/topics/orders/message{query}"))).json(&json!({"payload": "x"}))
    };
    assert_eq!(one("").send().await.unwrap().status(), 200);
    let full = one("?wait_ms=150").send().await.unwrap();
    assert_eq!((full.status().as_u16(), full.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    let problem: Value = full.json().await.unwrap();
    assert_eq!(
        (&problem["code"], &problem["depth"], &problem["limit"]),
        (&json!("topic_full"), &json!(10), &json!(10))
    );
    assert_eq!(sample(server, "topic_full_refusals_total").await, 1.0);
    assert_eq!(one("?wait_ms=20001").send().await.unwrap().status(), 400);
    let admin = Admin::new(&format!("http://{}", server.address)).unwrap();
    let TopicDetail { depth, topic, .. } = admin.show_topic("orders").await.unwrap();
    let depth = depth.unwrap();
    assert_eq!((depth.backlog_messages, topic.max_backlog_messages), (10, Some(10)));
    assert_eq!((depth.slowest_group.as_deref(), depth.retention_waits_for), (Some("billing"), None));
    assert_eq!(admin.show_topic("plain").await.unwrap().depth, None);
    assert_eq!(admin.show_retention("orders", None, None).await.unwrap().events, []);
    // The group that is excluded stays behind, and there is room all the same.
    let batches = consumer.batches(20).await;
    let billing = batches.iter().find(|batch| batch.subscription == 1).unwrap();
    consumer.ack_below(billing, 10).await.unwrap();
    server.logged("topic has room again").await;
    becomes(server, "topic_full_crossings_total{direction=\"room_again\"}", 1.0).await;
    let waited = tokio::time::timeout(Duration::from_secs(20), one("?wait_ms=15000").send()).await.unwrap();
    assert_eq!(waited.unwrap().status(), 200);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_told_what_retention_has_dropped_and_which_group_it_waits_for() {
    let bus = Bus::start().await;
    let admin = Admin::new(&bus.server.url("")).unwrap();
    let request = CreateTopic {
        segment_messages: Some(64),
        retention_completed_ms: Some(0),
        ..CreateTopic::new("orders", 1)
    };
    admin.create_topic(&request).await.unwrap();
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("fast", "orders").await;
    consumer.subscribe("slow", "orders").await;
    let messages = |count| (0..count).map(|number| text(format!("m{number:03}"))).collect();
    consumer.publish("orders", messages(60)).await;
    consumer.publish("orders", messages(60)).await;
    let mut seen = 0;
    while seen < 240 {
        let batch = consumer.batch().await;
        let next = batch.messages.last().unwrap().offset + 1;
        match batch.subscription {
            1 => assert_eq!(consumer.ack_below(&batch, next).await.unwrap(), next),
            _ => drop(consumer.ack_below(&batch, next.min(80)).await),
        }
        seen += batch.messages.len();
    }
    let store = bus.database.store();
    until("the first segment to go", async || {
        store.retention_pass().await.unwrap();
        !admin.show_retention("orders", None, None).await.unwrap().events.is_empty()
    })
    .await;
    let events = admin.show_retention("orders", None, None).await.unwrap().events;
    let told: Vec<_> =
        events.iter().map(|event| (event.partition, event.from_offset, event.to_offset)).collect();
    assert_eq!(told, [(Some(0), Some(0), Some(64))]);
    assert_eq!(
        (events[0].reason.as_str(), events[0].bytes.is_some_and(|bytes| bytes > 0)),
        ("completed", true)
    );
    let TopicDetail { depth, .. } = admin.show_topic("orders").await.unwrap();
    assert_eq!(depth.unwrap().retention_waits_for.as_deref(), Some("slow"));
    let url = format!("ws://{}/v1/ws", bus.server.address);
    let laneway = async |args: &[&str]| {
        let said = run_command(laneway().args(args).env("LANEWAY_URL", &url)).await;
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        said.stdout
    };
    let history = laneway(&["topic", "history", "orders"]).await;
    let row = history.lines().nth(1).unwrap();
    assert!(["partition 0", "completed", "0..64"].iter().all(|word| row.contains(word)), "{history}");
    let history: Value =
        serde_json::from_str(&laneway(&["topic", "history", "orders", "--json"]).await).unwrap();
    assert_eq!(history[0]["reason"], "completed", "{history}");
    let shown = laneway(&["topic", "show", "orders"]).await;
    assert!(shown.contains("retention waits for group slow"), "{shown}");
    bus.stop().await;
}
