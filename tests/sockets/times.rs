//! Delivery times and failures, as traces are to read them: ranges, on the database clock, once per message.

use std::time::Duration;

use laneway_client::topic::TopicDetail;
use laneway_client::wire::{
    BrokerFrame, ClientFrame, NewMessage, OnFailure, StepPublish, Subprotocol, Subscribe, Transact,
    WantedSettings,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::Bus;
use crate::harness::Server;
use crate::harness::process::run;
use crate::harness::socket::{
    Socket, ack, batches_of, make_topic, nack, offsets, quick_retries, subscribe, text,
};
use crate::harness::wait::{until, until_within};

/// How many ranges there are, and of how many messages, counted once and as often as they are told.
const RANGES: &str = "SELECT count(*) FROM laneway.lane_time";
pub const TOLD: &str = "SELECT sum(end_offset - first_offset)::bigint FROM laneway.lane_time";
pub const TOLD_ONCE: &str = "SELECT count(DISTINCT (group_id, partition_id, o)) FROM laneway.lane_time,
    generate_series(first_offset, end_offset - 1) o";
/// Messages that were delivered after they were published, and acknowledged after that.
const IN_ORDER: &str = "SELECT count(*) FROM laneway.lane_time t JOIN laneway.message m
    ON m.partition_id = t.partition_id AND m.\"offset\" >= t.first_offset AND m.\"offset\" < t.end_offset
    WHERE m.published_at <= t.delivered_at AND t.delivered_at <= t.acked_at AND t.acked_at <= clock_timestamp()";

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%lanes_lock_waiting%'";

/// The ranges of all lanes, by offset.
async fn ranges(bus: &Bus) -> Vec<(i64, i64)> {
    let sql = "SELECT first_offset, end_offset FROM laneway.lane_time ORDER BY first_offset";
    let rows = bus.database.raw().await.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Every message is told, once, in an order that can be true.
async fn assert_told_once(bus: &Bus, messages: i64) {
    assert_eq!(bus.database.number(TOLD).await, messages, "{:?}", ranges(bus).await);
    assert_eq!(bus.database.number(TOLD_ONCE).await, messages, "{:?}", ranges(bus).await);
    assert_eq!(bus.database.number(IN_ORDER).await, messages);
}

/// Offset, attempt, outcome and reason of all failures, in the order in which they came.
async fn failures(bus: &Bus) -> Vec<(i64, i32, String, String)> {
    let sql = "SELECT \"offset\", attempt, outcome, reason FROM laneway.failure ORDER BY failed_at";
    let rows = bus.database.raw().await.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

async fn alter(server: &Server, topic: &str, changes: Value) -> TopicDetail {
    let url = server.url(&format!("/v1/topics/{topic}"));
    let answer = reqwest::Client::new().patch(url).json(&changes).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    answer.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_acknowledged_is_one_range_with_the_moments_of_the_database_clock() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..50).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    assert_eq!(batch.messages.len(), 50);
    tokio::time::sleep(Duration::from_millis(300)).await; // as if it worked on them: this is what is measured
    consumer.ack_below(&batch, 50).await.unwrap();
    assert_eq!(ranges(&bus).await, [(0, 50)]);
    assert_told_once(&bus, 50).await;
    let worked = "SELECT (extract(epoch FROM acked_at - delivered_at) * 1000)::bigint FROM laneway.lane_time";
    let worked = bus.database.number(worked).await;
    assert!((300..30_000).contains(&worked), "it took {worked} ms");
    let age =
        "SELECT (extract(epoch FROM clock_timestamp() - acked_at) * 1000)::bigint FROM laneway.lane_time";
    let age = bus.database.number(age).await;
    assert!((0..30_000).contains(&age), "that was {age} ms ago");
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_is_a_newer_delivery_and_every_failed_attempt_is_kept_with_its_reason_and_outcome() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..4).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let wish = Subscribe { settings: Some(quick_retries(2)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    consumer.nack(&batch, 1, "it does not fit").await.unwrap();
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [0, 1, 2, 3]);
    consumer.nack(&batch, 1, "it still does not fit").await.unwrap();
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [0, 2, 3]);
    consumer.ack_below(&batch, 4).await.unwrap();
    let told = |attempt, outcome: &str, reason: &str| (1, attempt, outcome.to_owned(), reason.to_owned());
    let expected = [told(1, "retry", "it does not fit"), told(2, "dead_letter", "it still does not fit")];
    assert_eq!(failures(&bus).await, expected);
    assert_eq!(ranges(&bus).await, [(0, 1), (2, 4)], "what was given up was not acknowledged");
    let sound = "SELECT count(*) FROM laneway.failure f JOIN laneway.failure g ON f.attempt = 1 AND g.attempt = 2
        WHERE f.delivered_at <= f.failed_at AND f.failed_at <= g.delivered_at AND g.delivered_at <= g.failed_at";
    assert_eq!(bus.database.number(sound).await, 1);
    let newer = "SELECT count(*) FROM laneway.lane_time WHERE delivered_at > (SELECT max(failed_at) FROM laneway.failure)";
    assert_eq!(bus.database.number(newer).await, 2, "the last delivery counts");
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_skipped_what_blocks_and_what_kills_its_consumer_is_kept_as_a_failure_too() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..1).await;
    for (policy, outcome) in [(OnFailure::Skip, "skip"), (OnFailure::Block, "retry")] {
        let mut consumer = bus.connect(Subprotocol::Json).await;
        let settings = WantedSettings { on_failure: Some(policy), ..quick_retries(1) };
        let wish = Subscribe { settings: Some(settings), ..subscribe(outcome, "orders") };
        consumer.subscribe_with(wish).await.unwrap();
        let batch = consumer.batch().await;
        consumer.nack(&batch, 0, "no").await.unwrap();
        assert_eq!(failures(&bus).await.last().unwrap(), &(0, 1, outcome.to_owned(), "no".to_owned()));
        consumer.close().await;
    }
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let wish = Subscribe { settings: Some(quick_retries(1)), ..subscribe("mortals", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    consumer.batch().await;
    consumer.cut();
    until("the crash to be written down", async || failures(&bus).await.len() == 3).await;
    let lost = (0, 1, "dead_letter".to_owned(), "the consumer was lost".to_owned());
    assert_eq!(failures(&bus).await[2], lost);
    assert_eq!(bus.database.number(RANGES).await, 0, "nothing was acknowledged");
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_acks_out_of_order_are_told_when_they_are_committed_and_never_again() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..6).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    consumer.ack(ack(&batch, None, &[4])).await.unwrap();
    assert_eq!(ranges(&bus).await, [(4, 5)]);
    consumer.ack(ack(&batch, None, &[1, 4])).await.unwrap();
    assert_eq!(ranges(&bus).await, [(1, 2), (4, 5)]);
    consumer.ack_below(&batch, 6).await.unwrap();
    assert_eq!(ranges(&bus).await, [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6)]);
    assert_told_once(&bus, 6).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_step_acknowledges_is_told_by_the_step_and_once() {
    let bus = Bus::with_topic("orders", 1).await;
    make_topic(&bus.server.address, "payments", 1).await;
    bus.publish("orders", 0, 0..5).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    let messages = vec![NewMessage { partition: Some(0), ..text("paid") }];
    let publishes = vec![StepPublish { topic: "payments".into(), messages }];
    let acks = vec![ack(&batch, None, &[0, 1])];
    let step = Transact { id: 0, step_id: Uuid::now_v7(), acks, publishes };
    consumer.transact(step.clone()).await.unwrap();
    assert_eq!(ranges(&bus).await, [(0, 2)]);
    assert!(consumer.transact(step).await.unwrap().repeated);
    // One that is not done leaves what it would have acknowledged to others.
    let mut lost = vec![ack(&batch, None, &[2])];
    lost[0].ranges[0].to = 4;
    let publish = StepPublish { topic: "nowhere".into(), messages: vec![text("lost")] };
    let refused = Transact { id: 0, step_id: Uuid::now_v7(), acks: lost, publishes: vec![publish] };
    consumer.transact(refused).await.unwrap_err();
    consumer.ack_below(&batch, 5).await.unwrap();
    assert_told_once(&bus, 5).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_overtakes_a_commit_loses_no_times_and_doubles_none() {
    let bus = Bus::with_topic("orders", 1).await;
    for round in 0..6 {
        bus.publish("orders", 0, round * 5..round * 5 + 5).await;
        let mut consumer = bus.connect(Subprotocol::MessagePack).await;
        consumer.subscribe("billing", "orders").await;
        let batches = consumer.batches(5).await;
        // Whoever has the lane's row: the release waits for it, and the commit comes back later.
        let other = bus.database.raw().await;
        if round % 2 == 0 {
            other.batch_execute("BEGIN; SELECT FROM laneway.lane FOR UPDATE").await.unwrap();
        }
        for batch in batches {
            let next = offsets(&batch).last().unwrap() + 1;
            consumer.send(ClientFrame::Ack(ack(&batch, Some(next), &[]))).await;
        }
        let closed = tokio::spawn(consumer.close());
        if round % 2 == 0 {
            until("the release to wait", async || bus.database.number(WAITING).await == 1).await;
            other.batch_execute("ROLLBACK").await.unwrap();
        }
        closed.await.unwrap();
    }
    until("every ack to be told", async || bus.database.number(TOLD).await >= 30).await;
    assert_told_once(&bus, 30).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_outlive_takeovers_and_brokers_and_what_was_not_committed_is_told_by_the_next_delivery() {
    let mut bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..9).await;
    let mut first = bus.connect(Subprotocol::Json).await;
    first.subscribe("billing", "orders").await;
    let batch = first.batch().await;
    first.ack_below(&batch, 3).await.unwrap();
    first.cut();
    let mut second = bus.connect(Subprotocol::Json).await;
    second.subscribe("billing", "orders").await;
    while ranges(&bus).await.last() != Some(&(5, 6)) {
        let batch = second.batch().await; // a suspect lane: one by one
        second.ack_below(&batch, offsets(&batch).last().unwrap() + 1).await.unwrap();
    }
    bus.server.kill().await;
    bus.server = Server::start(&["--database-url", &bus.database.url, "--lease-ttl", "1s"]).await;
    let mut third = bus.connect(Subprotocol::Json).await;
    third.subscribe("billing", "orders").await;
    let mut done = 6;
    while done < 9 {
        let batch = third.batch().await;
        done = third.ack_below(&batch, offsets(&batch).last().unwrap() + 1).await.unwrap();
    }
    assert_told_once(&bus, 9).await;
    let later = "SELECT count(*) FROM laneway.lane_time one JOIN laneway.lane_time other
        ON other.first_offset >= 3 AND one.end_offset = 3 WHERE one.acked_at > other.delivered_at";
    assert_eq!(bus.database.number(later).await, 0, "the rest was delivered again after the takeover");
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_backends_that_die_in_mid_commit_lose_no_times_and_double_nothing() {
    const MESSAGES: i64 = 1_500;
    const OPEN: &str = "SELECT count(*) FROM laneway.lag WHERE lag_messages > 0";
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..MESSAGES as usize).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    let (settings, batch) = (Some(quick_retries(1_000)), Some(batches_of(7)));
    consumer.subscribe_with(Subscribe { settings, batch, ..subscribe("billing", "orders") }).await.unwrap();
    let consuming = async {
        let mut seen = 0;
        loop {
            match consumer.frame_within(Duration::from_millis(500)).await {
                Some(BrokerFrame::Batch(batch)) => {
                    seen += 1;
                    let (first, next) = (batch.messages[0].offset, batch.messages.last().unwrap().offset + 1);
                    consumer.send(ClientFrame::Ack(ack(&batch, None, &[first]))).await;
                    let last = match seen % 40 == 0 && next > first + 1 {
                        true => ClientFrame::Nack(nack(&batch, next - 1, "not now")),
                        false => ClientFrame::Ack(ack(&batch, Some(next), &[])),
                    };
                    consumer.send(last).await;
                    tokio::time::sleep(Duration::from_millis(3)).await; // so that there are commits while backends end
                }
                Some(_) => {}
                None if bus.database.number(OPEN).await == 0 => break,
                None => {}
            }
        }
    };
    let terminating = async {
        let raw = bus.database.raw().await;
        let terminate =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
            AND application_name IN ('laneway appender', 'laneway') AND pid <> pg_backend_pid()";
        let mut terminated = 0;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(rand::random_range(1..60))).await;
            terminated += raw.execute(terminate, &[]).await.unwrap();
        }
        assert!(terminated > 30, "only {terminated} backends were ended");
    };
    let both = async { tokio::join!(consuming, terminating) };
    tokio::time::timeout(Duration::from_secs(120), both).await.expect("everything gets done");
    assert_told_once(&bus, MESSAGES).await;
    let failed = "SELECT count(*) FROM laneway.failure";
    let failed_once = "SELECT count(DISTINCT (\"offset\", attempt)) FROM laneway.failure";
    assert_eq!(bus.database.number(failed).await, bus.database.number(failed_once).await);
    assert!(bus.database.number(failed).await > 0);
    bus.stop().await;
}

/// Publishes one message, and acknowledges all that have come.
async fn one_more(bus: &Bus, consumer: &mut Socket, number: usize) {
    bus.publish("orders", 0, number..number + 1).await;
    let batch = consumer.batch().await;
    consumer.ack_below(&batch, number as i64 + 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_may_keep_no_times_and_lanes_follow_when_it_is_altered() {
    let bus = Bus::start().await;
    let body = json!({ "name": "orders", "partitions": 1, "delivery_times": false });
    let made = reqwest::Client::new().post(bus.server.url("/v1/topics")).json(&body).send().await.unwrap();
    assert!(!made.json::<TopicDetail>().await.unwrap().topic.delivery_times);
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    let wish = Subscribe { settings: Some(quick_retries(5)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    consumer.granted().await;
    let mut number = 0;
    while number < 20 {
        one_more(&bus, &mut consumer, number).await;
        number += 1;
    }
    assert_eq!(bus.database.number(RANGES).await, 0);
    bus.publish("orders", 0, number..number + 1).await;
    let batch = consumer.batch().await;
    consumer.nack(&batch, number as i64, "not now").await.unwrap();
    let again = consumer.batch().await;
    consumer.ack_below(&again, number as i64 + 1).await.unwrap();
    let failed = (number as i64, 1, "retry".to_owned(), "not now".to_owned());
    assert_eq!(failures(&bus).await, [failed], "failures are rare: they are always kept");
    assert_eq!(bus.database.number("SELECT count(delivered_at) FROM laneway.failure").await, 0);
    number += 1;
    assert!(alter(&bus.server, "orders", json!({ "delivery_times": true })).await.topic.delivery_times);
    until("times to be kept", async || {
        one_more(&bus, &mut consumer, number).await;
        number += 1;
        bus.database.number(RANGES).await > 0
    })
    .await;
    assert!(!alter(&bus.server, "orders", json!({ "delivery_times": false })).await.topic.delivery_times);
    until("times not to be kept", async || {
        let before = bus.database.number(RANGES).await;
        one_more(&bus, &mut consumer, number).await;
        number += 1;
        bus.database.number(RANGES).await == before
    })
    .await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_and_failures_go_after_their_retention_and_with_their_group() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..4).await;
    for group in ["billing", "audit"] {
        let mut consumer = bus.connect(Subprotocol::MessagePack).await;
        let wish = Subscribe { settings: Some(quick_retries(5)), ..subscribe(group, "orders") };
        consumer.subscribe_with(wish).await.unwrap();
        let batch = consumer.batch().await;
        consumer.ack_below(&batch, 2).await.unwrap();
        consumer.nack(&batch, 2, "once").await.unwrap();
        let batch = consumer.batch().await;
        consumer.ack_below(&batch, 4).await.unwrap();
        consumer.close().await;
    }
    assert_eq!((bus.database.number(RANGES).await, failures(&bus).await.len()), (4, 2));
    let raw = bus.database.raw().await;
    raw.batch_execute(
        "UPDATE laneway.lane_time SET acked_at = acked_at - interval '7 days 1 minute' WHERE first_offset = 0;
         UPDATE laneway.failure SET failed_at = failed_at - interval '6 days 23 hours'",
    )
    .await
    .unwrap();
    // Two passes of the chore at most, and the time that a broker takes to become the eldest.
    let patience = Duration::from_secs(60);
    until_within(patience, "old times to go", async || bus.database.number(RANGES).await == 2).await;
    assert_eq!(bus.database.number("SELECT min(first_offset) FROM laneway.lane_time").await, 2);
    assert_eq!(failures(&bus).await.len(), 2, "they are young enough");
    let url = bus.server.url("/v1/topics/orders/groups/audit");
    let gone = reqwest::Client::new().delete(url).send().await.unwrap();
    assert!(gone.status().is_success(), "{gone:?}");
    until_within(patience, "what belongs to no group to go", async || {
        bus.database.number(RANGES).await == 1 && failures(&bus).await.len() == 1
    })
    .await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_times_and_failures_are_kept_is_told_to_the_broker() {
    let mut bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..4).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    let wish = Subscribe { settings: Some(quick_retries(5)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    consumer.ack_below(&batch, 2).await.unwrap();
    consumer.nack(&batch, 2, "once").await.unwrap();
    let batch = consumer.batch().await;
    consumer.ack_below(&batch, 4).await.unwrap();
    consumer.close().await;
    bus.database
        .raw()
        .await
        .batch_execute(
            "UPDATE laneway.lane_time SET acked_at = acked_at - interval '61 minutes' WHERE first_offset = 0;
             UPDATE laneway.failure SET failed_at = failed_at - interval '61 minutes'",
        )
        .await
        .unwrap();
    assert_eq!(bus.server.stop().await, 0);
    let flag = ["--database-url", &bus.database.url, "--delivery-times-retention"];
    bus.server = Server::start(&[&flag[..], &["1h"]].concat()).await;
    until_within(Duration::from_secs(60), "what is older than an hour to go", async || {
        ranges(&bus).await == [(2, 4)] && failures(&bus).await.is_empty()
    })
    .await;
    let said = run(&[&["serve"][..], &flag[..], &["59s"]].concat()).await;
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(said.stderr.contains("it must be between 1m and 100 years"), "{}", said.stderr);
    bus.stop().await;
}
