//! Failures: nacks with backoff, attempts that survive, deadlines, poison, and the three policies.

use std::time::{Duration, Instant};

use laneway_client::wire::{
    BrokerFrame, ClientFrame, Nack, OnFailure, Progress, Subprotocol, Subscribe, WantedSettings,
};

use crate::Bus;
use crate::harness::Server;
use crate::harness::socket::{BOTH, Socket, ack, batches_of, nack, offsets, quick_retries, subscribe};

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_comes_again_after_its_delay_and_in_the_end_becomes_a_dead_letter() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        bus.publish("orders", 0, 0..4).await;
        let mut consumer = bus.connect(subprotocol).await;
        let settings = WantedSettings {
            backoff_base_ms: Some(100),
            backoff_factor: Some(2.0),
            backoff_cap_ms: Some(1_000),
            ..quick_retries(3)
        };
        consumer
            .subscribe_with(Subscribe { settings: Some(settings), ..subscribe("billing", "orders") })
            .await
            .unwrap();
        let mut batch = consumer.batch().await;
        consumer.ack_below(&batch, 1).await.unwrap();
        for attempt in 1..=2u32 {
            let started = Instant::now();
            consumer.nack(&batch, 1, "it does not fit").await.unwrap();
            batch = consumer.batch().await;
            let least = Duration::from_millis(100) * 2u32.pow(attempt - 1) / 2;
            assert!(started.elapsed() >= least, "attempt {attempt} came after {:?}", started.elapsed());
            assert_eq!((batch.round, offsets(&batch)), (attempt + 1, vec![1, 2, 3]));
            assert_eq!(batch.attempts, [(1, attempt)]);
        }
        consumer.nack(&batch, 1, "it still does not fit").await.unwrap();
        let rest = consumer.batch().await;
        assert_eq!((offsets(&rest), rest.attempts.clone()), (vec![2, 3], vec![]));
        assert_eq!(consumer.ack_below(&rest, 4).await.unwrap(), 4);
        let raw = bus.database.raw().await;
        let row = raw
            .query_one(
                "SELECT \"offset\", attempts, reason, group_name, payload FROM laneway.dead_letter",
                &[],
            )
            .await
            .unwrap();
        let (offset, attempts, reason, group): (i64, i32, &str, &str) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        assert_eq!((offset, attempts, reason, group), (1, 3, "it still does not fit", "billing"));
        assert_eq!(row.get::<_, Vec<u8>>(4), b"m1");
        assert_eq!(bus.database.number("SELECT count(*) FROM laneway.attempt").await, 0);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_may_ask_for_a_delay_of_its_own() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..2).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let wish = Subscribe { settings: Some(quick_retries(5)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    let started = Instant::now();
    consumer.send(ClientFrame::Nack(Nack { delay_ms: Some(700), ..nack(&batch, 0, "busy") })).await;
    assert_eq!(offsets(&consumer.batch().await), [0, 1]);
    assert!(started.elapsed() >= Duration::from_millis(700), "{:?}", started.elapsed());
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skip_goes_on_without_it_and_block_stops_at_it_until_the_lane_changes_hands() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..3).await;
    let settings = |policy| WantedSettings { on_failure: Some(policy), ..quick_retries(1) };
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let wish = Subscribe { settings: Some(settings(OnFailure::Skip)), ..subscribe("skips", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    consumer.nack(&batch, 0, "no").await.unwrap();
    assert_eq!(offsets(&consumer.batch().await), [1, 2]);
    let mut blocked = bus.connect(Subprotocol::MessagePack).await;
    let wish = Subscribe { settings: Some(settings(OnFailure::Block)), ..subscribe("blocks", "orders") };
    blocked.subscribe_with(wish).await.unwrap();
    blocked.granted().await;
    let batch = blocked.batch().await;
    blocked.nack(&batch, 0, "no").await.unwrap();
    bus.publish("orders", 0, 3..4).await;
    assert!(blocked.frame_within(Duration::from_millis(500)).await.is_none(), "the lane is blocked");
    blocked.close().await;
    let mut mended = bus.connect(Subprotocol::MessagePack).await;
    mended.subscribe("blocks", "orders").await;
    let batch = mended.batches(4).await.remove(0);
    assert_eq!((offsets(&batch)[0], batch.attempts[0]), (0, (0, 1)));
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.dead_letter").await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_survive_a_takeover_and_a_restart_of_the_broker() {
    let mut bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..2).await;
    let wish = || Subscribe { settings: Some(quick_retries(4)), ..subscribe("billing", "orders") };
    let mut first = bus.connect(Subprotocol::Json).await;
    first.subscribe_with(wish()).await.unwrap();
    let batch = first.batch().await;
    first.nack(&batch, 0, "one").await.unwrap();
    first.close().await;
    let mut second = bus.connect(Subprotocol::Json).await;
    second.subscribe_with(wish()).await.unwrap();
    let batch = second.batch().await;
    assert_eq!(batch.attempts, [(0, 1)]);
    second.nack(&batch, 0, "two").await.unwrap();
    assert_eq!(bus.server.stop().await, 0);
    bus.server = Server::on_database(&bus.database.url).await;
    let mut third = bus.connect(Subprotocol::Json).await;
    third.subscribe_with(wish()).await.unwrap();
    let batch = third.batch().await;
    assert_eq!(batch.attempts, [(0, 2)]);
    third.nack(&batch, 0, "three").await.unwrap();
    let batch = third.batch().await;
    assert_eq!(batch.attempts, [(0, 3)]);
    third.nack(&batch, 0, "four").await.unwrap();
    assert_eq!(offsets(&third.batch().await), [1]);
    assert_eq!(bus.database.number("SELECT attempts::bigint FROM laneway.dead_letter").await, 4);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_its_consumers_at_position_57_is_dead_lettered_and_no_neighbour_is() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        bus.publish("orders", 0, 0..100).await;
        let wish = || Subscribe { settings: Some(quick_retries(3)), ..subscribe("billing", "orders") };
        let mut delivered_57 = 0;
        let mut lives = 0;
        let committed = loop {
            lives += 1;
            assert!(lives < 20, "the poison leaves in the end");
            let mut consumer = bus.connect(subprotocol).await;
            consumer.subscribe_with(wish()).await.unwrap();
            let granted = consumer.granted().await;
            let mut next = granted.committed_offset;
            'life: while next < 100 {
                let batch = consumer.batch().await;
                for offset in offsets(&batch) {
                    if offset == 57 {
                        delivered_57 += 1;
                        break 'life; // it dies here, with everything else in its hands
                    }
                    consumer.send(ClientFrame::Ack(ack(&batch, None, &[offset]))).await;
                    next = offset + 1;
                }
                if next == 57 || next == 100 {
                    next = consumer.ack(ack(&batch, Some(next), &[])).await.unwrap();
                }
            }
            if next >= 100 {
                break next;
            }
            consumer.cut();
        };
        assert_eq!(committed, 100);
        assert_eq!(delivered_57, 4, "once among others, then alone as often as it is allowed");
        assert_eq!(bus.database.number("SELECT count(*) FROM laneway.dead_letter").await, 1);
        assert_eq!(bus.database.number("SELECT \"offset\" FROM laneway.dead_letter").await, 57);
        assert_eq!(
            bus.database.number("SELECT count(*) FROM laneway.attempt").await,
            0,
            "nobody else is charged"
        );
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missed_deadline_moves_the_lane_and_progress_prolongs_it() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        let settings = WantedSettings { ack_deadline_ms: Some(1_000), ..quick_retries(9) };
        let wish = || Subscribe {
            settings: Some(settings),
            batch: Some(batches_of(1)),
            ..subscribe("billing", "orders")
        };
        let mut slow = bus.connect(subprotocol).await;
        slow.subscribe_with(wish()).await.unwrap();
        slow.granted().await;
        bus.publish("orders", 0, 0..1).await;
        let batch = slow.batch().await;
        let mut waiting = bus.connect(subprotocol).await;
        waiting.subscribe_with(wish()).await.unwrap();
        for _ in 0..6 {
            assert!(slow.frame_within(Duration::from_millis(400)).await.is_none(), "progress keeps the lane");
            let id = slow.id();
            let progress = Progress {
                id: Some(id),
                subscription: batch.subscription,
                partition: batch.partition,
                epoch: batch.epoch,
                round: batch.round,
            };
            slow.send(ClientFrame::Progress(progress)).await;
            slow.confirmed(id).await.unwrap();
        }
        let revoked = slow.frame().await;
        let BrokerFrame::LaneRevoked(revoked) = revoked else { panic!("{revoked:?}") };
        assert_eq!((revoked.epoch, revoked.reason.as_str()), (1, "ack_deadline"));
        let granted = waiting.granted().await;
        assert_eq!((granted.epoch, granted.committed_offset), (2, 0));
        let again = waiting.batch().await;
        assert_eq!(offsets(&again), [0]);
        let late = slow.ack(ack(&batch, Some(1), &[])).await.unwrap_err();
        assert_eq!(late.code, laneway_client::ErrorCode::LeaseLost);
        waiting.ack_below(&again, 1).await.unwrap();
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_missed_a_deadline_gets_the_lane_back_if_nobody_else_can_take_it() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..3).await;
    let settings = WantedSettings { ack_deadline_ms: Some(300), ..quick_retries(2) };
    let mut only: Socket = bus.connect(Subprotocol::Json).await;
    only.subscribe_with(Subscribe { settings: Some(settings), ..subscribe("billing", "orders") })
        .await
        .unwrap();
    assert_eq!(only.granted().await.epoch, 1);
    assert_eq!(offsets(&only.batch().await), [0, 1, 2]);
    assert_eq!(only.granted().await.epoch, 2);
    assert_eq!(offsets(&only.batch().await), [0], "one by one from now on");
    assert_eq!(only.granted().await.epoch, 3, "and it was charged for that");
    let batch = only.batch().await;
    assert_eq!((offsets(&batch), batch.attempts.clone()), (vec![0], vec![(0, 1)]));
    assert_eq!(only.granted().await.epoch, 4);
    let batch = only.batch().await;
    assert_eq!(offsets(&batch), [1], "twice alone and never done: it is a dead letter");
    only.ack_below(&batch, 2).await.unwrap();
    assert_eq!(bus.database.number("SELECT \"offset\" FROM laneway.dead_letter").await, 0);
    bus.stop().await;
}
