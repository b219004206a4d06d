//! Delays, windows, ages and ttls: what is delivered when, and what is not delivered any more.

use std::time::{Duration, Instant};

use laneway_client::ErrorCode;
use laneway_client::trace::{HopState, Trace};
use laneway_client::wire::{
    Batch, BrokerFrame, ClientFrame, CreditGrant, Nack, NewMessage, OnExpiry, Progress, Publish, Subprotocol,
    Subscribe, WantedSettings,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::socket::{BOTH, Socket, batches_of, nack, offsets, quick_retries, subscribe};
use crate::harness::wait::until;
use crate::metrics::{becomes, sample};
use crate::{Bus, to_partition};

async fn join(bus: &Bus, subprotocol: Subprotocol, group: &str, settings: WantedSettings) -> Socket {
    let mut consumer = bus.connect(subprotocol).await;
    let wish = Subscribe { settings: Some(settings), ..subscribe(group, "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    consumer
}

/// How old a message is, on the database clock.
pub async fn age_ms(bus: &Bus, offset: i64) -> i64 {
    let age = "SELECT floor(extract(epoch FROM clock_timestamp() - published_at) * 1000)::bigint FROM laneway.message";
    bus.database.number(&format!("{age} WHERE \"offset\" = {offset}")).await
}

/// Makes messages an hour older than they are.
pub async fn make_old(bus: &Bus, below: i64) {
    let raw = bus.database.raw().await;
    let older = "SET published_at = published_at - interval '1 hour'";
    raw.batch_execute(&format!(
        "UPDATE laneway.message {older} WHERE \"offset\" < {below}; UPDATE laneway.head {older} WHERE next_offset <= {below}"
    ))
    .await
    .unwrap();
}

async fn alter(bus: &Bus, group: &str, change: Value) -> reqwest::Response {
    let url = bus.server.url(&format!("/v1/topics/orders/groups/{group}"));
    reqwest::Client::new().patch(url).json(&change).send().await.unwrap()
}

fn last(batch: &Batch) -> i64 {
    batch.messages.last().unwrap().offset
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_comes_not_before_its_delay_and_soon_after_until_the_delay_is_lifted() {
    let bus = Bus::with_topic("orders", 1).await;
    for subprotocol in BOTH {
        let group = format!("{subprotocol:?}");
        let delay = WantedSettings { delay_ms: Some(400), ..WantedSettings::default() };
        let mut consumer = join(&bus, subprotocol, &group, delay).await;
        for _ in 0..2 {
            bus.publish("orders", 0, 0..2).await;
            let newest = bus.database.number("SELECT max(next_offset) - 1 FROM laneway.head").await;
            while last(&consumer.batch().await) < newest {}
            let age = age_ms(&bus, newest).await;
            assert!((400..4_000).contains(&age), "it came after {age} ms");
        }
        consumer.close().await;
    }
    let hour = WantedSettings { delay_ms: Some(3_600_000), ..WantedSettings::default() };
    let mut patient = join(&bus, Subprotocol::Json, "patient", hour).await;
    patient.granted().await;
    let young = alter(&bus, "patient", json!({"max_age_ms": 1_000})).await;
    assert_eq!(young.status(), 422);
    assert_eq!(young.json::<Value>().await.unwrap()["field"], json!("max_age_ms"));
    assert_eq!(sample(&bus.server, "expired_messages_total{reason=\"max_age\"}").await, 0.0);
    let shown = alter(&bus, "patient", json!({"delay_ms": 0})).await.json::<Value>().await.unwrap();
    assert_eq!(shown["settings"].get("delay_ms"), None);
    assert_eq!(offsets(&patient.batch().await)[0], 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_opens_when_its_partition_is_quiet_and_at_the_latest_after_its_longest_wait() {
    let bus = Bus::with_topic("orders", 1).await;
    let quiet =
        WantedSettings { window_ms: Some(400), window_max_ms: Some(60_000), ..WantedSettings::default() };
    let mut debounced = join(&bus, Subprotocol::Json, "debounced", quiet).await;
    let busy = WantedSettings { window_ms: Some(400), window_max_ms: Some(700), ..WantedSettings::default() };
    let mut hurried = join(&bus, Subprotocol::MessagePack, "hurried", busy).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let (mut published, mut early) = (0, None);
    // Busy for longer than the longest wait of one of the groups.
    while early.is_none() {
        producer.publish("orders", vec![to_partition(0, "tick")]).await;
        published += 1;
        early = match hurried.frame_within(Duration::from_millis(20)).await {
            Some(BrokerFrame::Batch(batch)) => Some((batch, age_ms(&bus, 0).await)),
            Some(_) | None => None,
        };
    }
    let (batch, waited) = early.unwrap();
    assert_eq!(batch.messages[0].offset, 0);
    assert!((700..4_000).contains(&waited), "its longest wait is 700 ms, and it was {waited} ms");
    assert!(published > 5 && last(&batch) >= 5, "everything that was there comes with it: {published}");
    // The other one gets all of it together, once it is quiet.
    let all = debounced.batch().await;
    assert_eq!(offsets(&all), (0..published).collect::<Vec<i64>>());
    let quiet = age_ms(&bus, published - 1).await;
    assert!((400..4_000).contains(&quiet), "it was quiet for {quiet} ms");
    // What comes back was let through before: it waits for its backoff only.
    let started = Instant::now();
    debounced.nack(&all, 0, "again").await.unwrap();
    assert_eq!(debounced.batch().await.messages[0].offset, 0);
    assert!(started.elapsed() < Duration::from_secs(30));
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_for_its_group_is_evicted_in_one_transaction_and_its_trace_says_so() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let trace_id = Uuid::now_v7();
    for round in 0..4 {
        let messages = (0..1_000).map(|number| NewMessage {
            trace_id: (round == 2 && number == 500).then_some(trace_id),
            ..to_partition(0, "old")
        });
        producer.publish("orders", messages.collect()).await;
    }
    make_old(&bus, 4_000).await;
    producer.publish("orders", vec![to_partition(0, "young"), to_partition(0, "young")]).await;
    // One message at a time: what is evicted needs no credit.
    let settings = WantedSettings { max_age_ms: Some(1_800_000), ..quick_retries(2) };
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let credit = CreditGrant { messages: 1, bytes: 1_000 };
    let wish = Subscribe { settings: Some(settings), credit, ..subscribe("billing", "orders") };
    let subscribed = consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [4_000]);
    assert_eq!(consumer.ack_below(&batch, 4_001).await.unwrap(), 4_001);
    becomes(&bus.server, "expired_messages_total{reason=\"max_age\"}", 4_000.0).await;
    let raw = bus.database.raw().await;
    let rows =
        raw.query("SELECT \"offset\", end_offset, outcome, reason FROM laneway.failure", &[]).await.unwrap();
    let told: Vec<(i64, i64, &str, &str)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    assert_eq!(told, [(0, 4_000, "evicted", "max_age")]);
    assert!(bus.database.number("SELECT count(*) FROM laneway.lane_commit").await <= 4);
    let answer = reqwest::get(bus.server.url(&format!("/v1/traces/{trace_id}"))).await.unwrap();
    let trace: Trace = answer.json().await.unwrap();
    let hop = &trace.hops[0].groups[0];
    assert_eq!((trace.hops[0].offset, hop.state, hop.attempts), (2_500, HopState::Evicted, 0));
    assert_eq!((hop.failures[0].attempt, hop.failures[0].reason.as_str()), (0, "max_age"));
    // What grows too old while it waits for its next try is not tried again.
    consumer.credit(subscribed.subscription, 1, 1_000).await;
    let batch = consumer.batch().await;
    assert_eq!(alter(&bus, "billing", json!({"max_age_ms": 1})).await.status(), 200);
    bus.server.logged("group settings changed").await;
    consumer.nack(&batch, 4_001, "not now").await.unwrap();
    consumer.credit(subscribed.subscription, 1, 1_000).await;
    becomes(&bus.server, "expired_messages_total{reason=\"max_age\"}", 4_001.0).await;
    until("it is committed", async || {
        bus.database.number("SELECT max(committed_offset) FROM laneway.lane_commit").await == 4_002
    })
    .await;
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.attempt").await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_outlived_its_ttl_becomes_a_dead_letter_where_the_group_says_so() {
    let bus = Bus::with_topic("orders", 1).await;
    let (json, packed) = (Subprotocol::Json, Subprotocol::MessagePack);
    for (subprotocol, ttl_ms, delay_ms) in [(json, 0, None), (packed, u64::MAX, None), (json, 0, Some(1))] {
        let mut producer = bus.connect(subprotocol).await;
        let message = NewMessage { ttl_ms: Some(ttl_ms), delay_ms, ..to_partition(0, "never") };
        let id = producer.id();
        let publish =
            Publish { id, topic: "orders".into(), producer_id: None, wait_ms: None, messages: vec![message] };
        producer.send(ClientFrame::Publish(publish)).await;
        let refused = producer.error().await;
        assert_eq!(
            (refused.code, refused.field.as_deref()),
            (ErrorCode::InvalidMessage, Some("messages[0].ttl_ms"))
        );
    }
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let ttl = |number: u32| (number % 3 == 1).then_some(1_800_000);
    let messages =
        (0..12).map(|number| NewMessage { ttl_ms: ttl(number), ..to_partition(0, format!("m{number}")) });
    producer.publish("orders", messages.collect()).await;
    make_old(&bus, 12).await;
    let settings = WantedSettings { on_expiry: Some(OnExpiry::DeadLetter), ..quick_retries(2) };
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    let wish =
        Subscribe { settings: Some(settings), batch: Some(batches_of(12)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let first = consumer.batch().await;
    assert_eq!(offsets(&first), [0]);
    let rest = consumer.batch().await;
    assert_eq!(offsets(&rest), [2, 3, 5, 6, 8, 9, 11], "those in between have expired, all found at once");
    assert_eq!(consumer.ack_below(&rest, 12).await.unwrap(), 12);
    becomes(&bus.server, "expired_messages_total{reason=\"ttl\"}", 4.0).await;
    becomes(&bus.server, "dead_letters_total", 4.0).await;
    let url = bus.server.url("/v1/dead-letters");
    let list: Value = reqwest::get(&url).await.unwrap().json().await.unwrap();
    let dead = list["dead_letters"].as_array().unwrap();
    let told: Vec<(i64, i64, &str, &str)> = dead
        .iter()
        .map(|dead| {
            let number = |name: &str| dead[name].as_i64().unwrap();
            (
                number("offset"),
                number("attempts"),
                dead["reason"].as_str().unwrap(),
                dead["payload"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [(1, 0, "ttl", "m1"), (4, 0, "ttl", "m4"), (7, 0, "ttl", "m7"), (10, 0, "ttl", "m10")]);
    let trace_id = dead[1]["trace_id"].as_str().unwrap();
    let trace: Trace =
        reqwest::get(bus.server.url(&format!("/v1/traces/{trace_id}"))).await.unwrap().json().await.unwrap();
    assert_eq!(trace.hops[0].groups[0].state, HopState::DeadLettered);
    // Whoever publishes it again wants it delivered.
    let replay = format!("{url}/{}/replay", dead[0]["id"]);
    assert!(reqwest::Client::new().post(replay).send().await.unwrap().status().is_success());
    let again = consumer.batch().await;
    assert_eq!((offsets(&again), &again.messages[0].payload[..]), (vec![12], &b"m1"[..]));
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.message WHERE ttl_ms IS NOT NULL").await, 4);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_that_comes_while_others_are_evicted_counts_when_that_is_written_down() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let ttls = [None, Some(1_800_000), None];
    let messages = ttls.map(|ttl_ms| NewMessage { ttl_ms, ..to_partition(0, "m") });
    producer.publish("orders", messages.to_vec()).await;
    make_old(&bus, 3).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let credit = CreditGrant { messages: 1, bytes: 1_000 };
    let wish = Subscribe { settings: Some(quick_retries(3)), credit, ..subscribe("billing", "orders") };
    let subscribed = consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [0]);
    // Nothing of the lane can be settled until this ends.
    let mut raw = bus.database.raw().await;
    let held = raw.transaction().await.unwrap();
    held.execute("SELECT FROM laneway.lane FOR UPDATE", &[]).await.unwrap();
    consumer.credit(subscribed.subscription, 10, 1_000).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("the eviction waits", async || bus.database.number(waits).await > 0).await;
    let (refusal, sign) = (consumer.id(), consumer.id());
    consumer.send(ClientFrame::Nack(Nack { id: Some(refusal), ..nack(&batch, 0, "not now") })).await;
    let Batch { subscription, partition, epoch, round, .. } = batch;
    let progress = Progress { id: Some(sign), subscription, partition, epoch, round };
    consumer.send(ClientFrame::Progress(progress)).await;
    consumer.confirmed(sign).await.unwrap(); // so the nack has arrived
    held.rollback().await.unwrap();
    consumer.confirmed(refusal).await.unwrap();
    let again = consumer.batch().await;
    assert_eq!((offsets(&again), again.round, again.attempts.clone()), (vec![0, 2], 2, vec![(0, 1)]));
    assert_eq!(consumer.ack_below(&again, 3).await.unwrap(), 3);
    becomes(&bus.server, "expired_messages_total{reason=\"ttl\"}", 1.0).await;
    bus.stop().await;
}
