//! What counts as done: cumulative and single acks, durable across takeovers; and what never counts.

use laneway_client::ErrorCode;
use laneway_client::wire::{Ack, ClientFrame, Subprotocol, Subscribe};

use crate::Bus;
use crate::harness::socket::{BOTH, ack, batches_of, offsets, quick_retries, subscribe};

#[tokio::test(flavor = "multi_thread")]
async fn single_acks_with_gaps_survive_a_takeover_and_only_the_rest_is_delivered_again() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        bus.publish("orders", 0, 0..12).await;
        let mut first = bus.connect(subprotocol).await;
        first.subscribe("billing", "orders").await;
        let batch = first.batch().await;
        assert_eq!(batch.messages.len(), 12);
        assert_eq!(first.ack(ack(&batch, None, &[3, 4, 7, 11])).await.unwrap(), 0);
        assert_eq!(first.ack(ack(&batch, Some(2), &[9])).await.unwrap(), 2);
        first.close().await;
        let mut second = bus.connect(subprotocol).await;
        second.subscribe("billing", "orders").await;
        let granted = second.granted().await;
        assert_eq!((granted.epoch, granted.committed_offset), (2, 2));
        let acked: Vec<_> = granted.acked.iter().map(|range| (range.from, range.to)).collect();
        assert_eq!(acked, [(3, 5), (7, 8), (9, 10), (11, 12)]);
        let batches = second.batches(5).await;
        assert_eq!(batches.iter().flat_map(offsets).collect::<Vec<_>>(), [2, 5, 6, 8, 10]);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_sent_or_is_not_held_cannot_be_acknowledged_and_nothing_moves() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 2).await;
        bus.publish("orders", 0, 0..4).await;
        let mut consumer = bus.connect(subprotocol).await;
        consumer.subscribe("billing", "orders").await;
        let batch = consumer.batch().await;
        let refused = consumer.ack_below(&batch, 5).await.unwrap_err();
        assert_eq!((refused.code, refused.partition), (ErrorCode::BeyondSent, Some(0)));
        let single = consumer.ack(ack(&batch, None, &[4])).await.unwrap_err();
        assert_eq!(single.code, ErrorCode::BeyondSent);
        let old =
            consumer.ack(Ack { epoch: batch.epoch - 1, ..ack(&batch, Some(1), &[]) }).await.unwrap_err();
        assert_eq!(old.code, ErrorCode::LeaseLost);
        let elsewhere = consumer.ack(Ack { partition: 7, ..ack(&batch, Some(1), &[]) }).await.unwrap_err();
        assert_eq!(elsewhere.code, ErrorCode::LeaseLost);
        let round = consumer.ack(Ack { round: 2, ..ack(&batch, Some(1), &[]) }).await.unwrap_err();
        assert_eq!(round.code, ErrorCode::StaleRound);
        assert_eq!(consumer.nack(&batch, 4, "no").await.unwrap_err().code, ErrorCode::BeyondSent);
        assert_eq!(
            bus.database.number("SELECT coalesce(max(committed_offset), 0) FROM laneway.lane_commit").await,
            0
        );
        assert_eq!(consumer.ack_below(&batch, 2).await.unwrap(), 2);
        assert_eq!(consumer.ack_below(&batch, 1).await.unwrap(), 2, "committed offsets only rise");
        // Another session, which holds nothing.
        let mut other = bus.connect(subprotocol).await;
        other.subscribe("elsewhere", "orders").await;
        let foreign = other.ack(Ack { epoch: 9, ..ack(&batch, Some(3), &[]) }).await.unwrap_err();
        assert_eq!(foreign.code, ErrorCode::LeaseLost);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_with_five_later_batches_in_flight_voids_them_and_resumes_exactly() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        bus.publish("orders", 0, 0..60).await;
        let mut consumer = bus.connect(subprotocol).await;
        let wish = Subscribe {
            batch: Some(batches_of(10)),
            settings: Some(quick_retries(5)),
            ..subscribe("billing", "orders")
        };
        consumer.subscribe_with(wish).await.unwrap();
        let batches = consumer.batches(60).await;
        assert_eq!(batches.len(), 6);
        assert_eq!(consumer.ack(ack(&batches[0], Some(3), &[5, 30])).await.unwrap(), 3);
        consumer.nack(&batches[0], 7, "not now").await.unwrap();
        // Late acks of the old round: below the nack they count, above they are void.
        let late = consumer.ack(ack(&batches[2], None, &[4, 25])).await.unwrap_err();
        assert_eq!(late.code, ErrorCode::StaleRound);
        let mut again = vec![consumer.batch().await];
        while !offsets(again.last().unwrap()).contains(&59) {
            again.push(consumer.batch().await);
        }
        assert!(again.iter().all(|batch| batch.round == 2 && batch.epoch == 1));
        let delivered: Vec<i64> = again.iter().flat_map(offsets).collect();
        let expected: Vec<i64> = (3..60).filter(|offset| ![5, 30].contains(offset)).collect();
        let without_late: Vec<i64> = expected.iter().copied().filter(|offset| *offset != 4).collect();
        assert!(delivered == expected || delivered == without_late, "{delivered:?}");
        let attempts: Vec<(i64, u32)> = again.iter().flat_map(|batch| batch.attempts.clone()).collect();
        assert_eq!(attempts, [(7, 1)]);
        let last = again.last().unwrap();
        assert_eq!(consumer.ack_below(last, 60).await.unwrap(), 60);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_with_too_many_gaps_stops_and_says_so_until_they_are_filled() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..3_000).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer
        .subscribe_with(Subscribe { batch: Some(batches_of(3_000)), ..subscribe("billing", "orders") })
        .await
        .unwrap();
    let batch = consumer.batches(3_000).await.pop().unwrap();
    let odd: Vec<i64> = (0..1_000).map(|number| number * 2 + 1).collect();
    consumer.ack(ack(&batch, None, &odd)).await.unwrap();
    bus.publish("orders", 0, 3_000..3_001).await;
    let told = consumer.error().await;
    assert_eq!((told.code, told.partition), (ErrorCode::TooManyGaps, Some(0)));
    assert_eq!(consumer.ack_below(&batch, 2_000).await.unwrap(), 2_000);
    assert_eq!(offsets(&consumer.batch().await), [3_000]);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_with_too_many_gaps_that_changes_hands_goes_on_one_by_one() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..2_100).await;
    let wish = || Subscribe { batch: Some(batches_of(3_000)), ..subscribe("billing", "orders") };
    let mut first = bus.connect(Subprotocol::MessagePack).await;
    first.subscribe_with(wish()).await.unwrap();
    let batch = first.batches(2_100).await.pop().unwrap();
    let odd: Vec<i64> = (0..1_000).map(|number| number * 2 + 1).collect();
    first.ack(ack(&batch, None, &odd)).await.unwrap();
    first.close().await;
    let mut second = bus.connect(Subprotocol::MessagePack).await;
    second.subscribe_with(wish()).await.unwrap();
    let alone = second.batch().await;
    assert_eq!(offsets(&alone), [0], "the one that all the others wait for");
    assert_eq!(second.ack_below(&alone, 1).await.unwrap(), 2);
    assert_eq!(offsets(&second.batch().await)[0], 2);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_tells_what_is_stored_and_not_what_came_since() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..200).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batches(200).await.pop().unwrap();
    let stored = "SELECT max(committed_offset) FROM laneway.lane_commit";
    let mut ids = Vec::new();
    for next in 1..=200 {
        let id = consumer.id();
        ids.push(id);
        let frame = Ack { id: Some(id), ..ack(&batch, Some(next), &[]) };
        consumer.send(ClientFrame::Ack(frame)).await;
    }
    for id in ids {
        let told = consumer.confirmed(id).await.unwrap();
        assert!(told <= bus.database.number(stored).await, "told {told}");
    }
    bus.stop().await;
}
