//! Where a group starts, what credit and batch limits do, and that no lane waits for another.

use std::time::{Duration, Instant};

use laneway_client::ErrorCode;
use laneway_client::wire::{BatchOptions, CreditGrant, Start, Subprotocol, Subscribe, WantedSettings};

use crate::Bus;
use crate::harness::socket::{BOTH, batches_of, offsets, payloads, subscribe};

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_gets_everything_in_order_and_its_acks_are_committed() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 2).await;
        bus.publish("orders", 0, 0..30).await;
        let mut consumer = bus.connect(subprotocol).await;
        let subscribed = consumer.subscribe("billing", "orders").await;
        assert_eq!((subscribed.partitions, subscribed.settings.max_attempts), (2, 5));
        let granted = [consumer.granted().await, consumer.granted().await];
        assert!(granted.iter().all(|lane| (lane.epoch, lane.round, lane.committed_offset) == (1, 1, 0)));
        bus.publish("orders", 0, 30..60).await;
        bus.publish("orders", 1, 0..5).await;
        let batches = consumer.batches(65).await;
        for (partition, count) in [(0, 60), (1, 5)] {
            let mine: Vec<_> = batches.iter().filter(|batch| batch.partition == partition).collect();
            let payloads: Vec<String> = mine.iter().flat_map(|batch| payloads(batch)).collect();
            assert_eq!(payloads, (0..count).map(|number| format!("m{number}")).collect::<Vec<_>>());
            let last = mine.last().unwrap();
            assert_eq!(consumer.ack_below(last, count).await.unwrap(), count);
        }
        consumer.close().await;
        let mut next = bus.connect(subprotocol).await;
        next.subscribe("billing", "orders").await;
        let committed = [next.granted().await, next.granted().await];
        let mut committed: Vec<_> =
            committed.iter().map(|lane| (lane.partition, lane.committed_offset)).collect();
        committed.sort_unstable();
        assert_eq!(committed, [(0, 60), (1, 5)]);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_starts_where_its_first_subscriber_says() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..3).await;
    let raw = bus.database.raw().await;
    let middle: jiff::Timestamp = raw.query_one("SELECT clock_timestamp()", &[]).await.unwrap().get(0);
    bus.publish("orders", 0, 3..6).await;
    let starts = [
        (Start::Earliest, 0),
        (Start::Offset(2), 2),
        (Start::At(middle.to_string()), 3),
        (Start::At("2100-01-01T00:00:00Z".into()), 6),
        (Start::Latest, 6),
        (Start::Offset(9), 9),
    ];
    for (number, (start, expected)) in starts.into_iter().enumerate() {
        let mut consumer = bus.connect(Subprotocol::Json).await;
        let wish = Subscribe { start: Some(start.clone()), ..subscribe(&format!("group{number}"), "orders") };
        consumer.subscribe_with(wish).await.unwrap();
        assert_eq!(consumer.granted().await.committed_offset, expected, "{start:?}");
        consumer.close().await;
    }
    // The start is the group's: a second subscriber cannot move it.
    let mut late = bus.connect(Subprotocol::Json).await;
    let wish = Subscribe { start: Some(Start::Latest), ..subscribe("group0", "orders") };
    late.subscribe_with(wish).await.unwrap();
    assert_eq!(late.granted().await.committed_offset, 0);
    // A partition that is born later starts at 0, whatever the start was.
    let mut latest = bus.connect(Subprotocol::Json).await;
    latest.subscribe("group4", "orders").await;
    assert_eq!(latest.granted().await.committed_offset, 6);
    let topic = bus.database.number("SELECT topic_id FROM laneway.topic").await;
    bus.database.store().topics_grow(laneway::ids::TopicId(topic), 2).await.unwrap();
    let born = latest.granted().await;
    assert_eq!((born.partition, born.committed_offset), (1, 0));
    for bad in [Start::Offset(-1), Start::At("yesterday".into())] {
        let wish = Subscribe { start: Some(bad), ..subscribe("bad", "orders") };
        let error = latest.subscribe_with(wish).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Malformed);
        assert!(error.field.as_deref().unwrap().starts_with("start"), "{error:?}");
    }
    assert_eq!(
        bus.database.number("SELECT count(*) FROM laneway.consumer_group WHERE name = 'bad'").await,
        0
    );
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_sent_than_the_credit_allows_and_more_credit_brings_more() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 2).await;
        bus.publish("orders", 0, 0..20).await;
        bus.publish("orders", 1, 0..20).await;
        let mut consumer = bus.connect(subprotocol).await;
        let wish = Subscribe {
            credit: CreditGrant { messages: 7, bytes: 1 << 20 },
            batch: Some(batches_of(3)),
            ..subscribe("billing", "orders")
        };
        let subscription = consumer.subscribe_with(wish).await.unwrap().subscription;
        let batches = consumer.batches(7).await;
        assert!(batches.iter().all(|batch| batch.messages.len() <= 3));
        assert_eq!(batches.iter().map(|batch| batch.messages.len()).sum::<usize>(), 7);
        let quiet = Duration::from_millis(200);
        while let Some(frame) = consumer.frame_within(quiet).await {
            assert_eq!(frame.kind(), "lane_granted", "nothing comes without credit: {frame:?}");
        }
        consumer.credit(subscription, 5, 0).await;
        let more = consumer.batches(5).await;
        assert_eq!(more.iter().map(|batch| batch.messages.len()).sum::<usize>(), 5);
        for partition in 0..2 {
            let mut all = batches.iter().chain(&more);
            assert!(all.any(|batch| batch.partition == partition), "no lane starves another of credit");
        }
        // Bytes: two per message ("m1"), and the last may overdraw.
        let mut other = bus.connect(subprotocol).await;
        let wish =
            Subscribe { credit: CreditGrant { messages: 100, bytes: 5 }, ..subscribe("other", "orders") };
        let subscription = other.subscribe_with(wish).await.unwrap().subscription;
        assert_eq!(other.batches(3).await.iter().map(|batch| batch.messages.len()).sum::<usize>(), 3);
        while let Some(frame) = other.frame_within(quiet).await {
            assert_eq!(frame.kind(), "lane_granted", "{frame:?}");
        }
        other.credit(subscription, 0, 2).await;
        assert_eq!(other.batch().await.messages.len(), 1);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_waits_for_company_as_long_as_its_subscriber_says() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let batch = BatchOptions { min_messages: Some(10), max_wait_ms: Some(400), ..BatchOptions::default() };
    let wish = Subscribe { batch: Some(batch), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    consumer.granted().await;
    let started = Instant::now();
    bus.publish("orders", 0, 0..3).await;
    assert_eq!(offsets(&consumer.batch().await), [0, 1, 2]);
    assert!(started.elapsed() >= Duration::from_millis(350), "{:?}", started.elapsed());
    let started = Instant::now();
    bus.publish("orders", 0, 3..13).await;
    assert_eq!(consumer.batch().await.messages.len(), 10);
    assert!(started.elapsed() < Duration::from_millis(350), "ten are company enough");
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_paused_or_retrying_delays_no_other() {
    let bus = Bus::with_topic("orders", 3).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    let settings =
        WantedSettings { backoff_base_ms: Some(60_000), backoff_cap_ms: Some(60_000), ..Default::default() };
    consumer
        .subscribe_with(Subscribe { settings: Some(settings), ..subscribe("billing", "orders") })
        .await
        .unwrap();
    for partition in 0..3 {
        bus.publish("orders", partition, 0..1).await;
    }
    let batches = consumer.batches(3).await;
    let first = batches.iter().find(|batch| batch.partition == 0).unwrap();
    consumer.nack(first, 0, "later").await.unwrap(); // held for a minute; partition 1 is simply never acknowledged
    for number in 1..20 {
        bus.publish("orders", 2, number..number + 1).await;
        let batch = consumer.batch().await;
        assert_eq!((batch.partition, offsets(&batch)), (2, vec![number as i64]));
        consumer.ack_below(&batch, number as i64 + 1).await.unwrap();
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_a_group_are_those_of_its_first_subscriber() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let settings =
        WantedSettings { max_attempts: Some(3), ack_deadline_ms: Some(5_000), ..Default::default() };
    let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
    let subscribed = consumer.subscribe_with(wish.clone()).await.unwrap();
    assert_eq!((subscribed.settings.max_attempts, subscribed.settings.ack_deadline_ms), (3, 5_000));
    let mut other = bus.connect(Subprotocol::MessagePack).await;
    let differs = WantedSettings { max_attempts: Some(4), ..Default::default() };
    let differs = Subscribe { settings: Some(differs), ..subscribe("billing", "orders") };
    let error = other.subscribe_with(differs).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::GroupMismatch);
    assert!(error.detail.contains("max_attempts 3"), "{}", error.detail);
    assert_eq!(other.subscribe_with(wish).await.unwrap().settings.max_attempts, 3);
    let mut third = bus.connect(Subprotocol::Json).await;
    assert_eq!(
        third.subscribe("billing", "orders").await.settings.max_attempts,
        3,
        "what is left out is agreed"
    );
    bus.stop().await;
}
