//! Deliveries, acks in any order, rounds, credit, tails.

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use laneway_client::wire::OnFailure;
use laneway_client::{Client, Error, ErrorCode, NewMessage, Start};

use crate::bus::{Bus, PATIENCE, both, committed, next, offsets, take, text, to};
use crate::harness::socket::quick_retries;
use crate::harness::wait;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_is_delivered_bit_for_bit_in_both_encodings() {
    for options in both() {
        let bus = Bus::new(1).await;
        let client = Client::connect(&bus.url(), options).await.unwrap();
        let message = NewMessage {
            key: Some(vec![0, 255, 7].into()),
            payload: (0..=255).collect::<Vec<u8>>().into(),
            headers: [("who".to_owned(), "ä\"\n".to_owned())].into(),
            trace_id: Some(uuid::Uuid::from_u128(7)),
            content_type: Some("application/octet-stream".to_owned()),
            transaction_id: Some("t1".to_owned()),
            ..NewMessage::default()
        };
        let receipt = client.publish("orders", message.clone()).await.unwrap();
        let again = client.publish("orders", message.clone()).await.unwrap();
        assert_eq!((again.offset, again.duplicate), (receipt.offset, true));
        let mut subscription = client.subscribe("orders", "billing").await.unwrap();
        let delivery = next(&mut subscription).await;
        assert_eq!(
            (&*delivery.topic, delivery.partition, Some(delivery.offset)),
            ("orders", 0, receipt.offset)
        );
        assert_eq!((&delivery.payload, &delivery.key), (&message.payload, &message.key));
        assert_eq!((&delivery.headers, delivery.trace_id), (&message.headers, uuid::Uuid::from_u128(7)));
        assert_eq!(
            (&delivery.content_type, &delivery.transaction_id),
            (&message.content_type, &message.transaction_id)
        );
        assert_eq!(delivery.attempts, 0);
        delivery.progress();
        delivery.ack_confirmed().await.unwrap();
        assert_eq!(committed(&bus, 0).await, 1);
        client.close().await;
        assert!(subscription.next().await.is_none());
        assert_eq!(subscription.error(), Some(Error::Closed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_count_in_any_order() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..100).await;
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    let mut deliveries = take(&mut subscription, 100).await;
    deliveries.reverse();
    let last = deliveries.pop().unwrap();
    for delivery in deliveries {
        delivery.ack();
    }
    last.ack_confirmed().await.unwrap();
    assert_eq!(committed(&bus, 0).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_nack_the_old_round_is_dropped_and_the_new_one_comes_in_order() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..10).await;
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").settings(quick_retries(5)).await.unwrap();
    let mut first = take(&mut subscription, 6).await;
    let five = first.remove(5);
    let four = first.remove(4);
    let three = first.remove(3);
    first.into_iter().for_each(laneway_client::Delivery::ack);
    four.ack();
    three.nack("not today");
    assert!(subscription.queued() == 0, "what is behind it is void");
    assert_eq!(five.ack_confirmed().await, Err(Error::LaneLost));
    assert_eq!(subscription.ignored_acks(), 1);
    let second = take(&mut subscription, 6).await;
    assert_eq!(offsets(&second), [3, 5, 6, 7, 8, 9]);
    assert_eq!((second[0].attempts, second[1].attempts), (1, 0));
    for delivery in second {
        delivery.ack_confirmed().await.unwrap();
    }
    assert_eq!(committed(&bus, 0).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_holds_no_more_than_its_credit() {
    let bus = Bus::new(2).await;
    bus.fill(0, 0..500).await;
    bus.fill(1, 0..500).await;
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").credit(50, 1 << 20).await.unwrap();
    wait::until("the queue to be full", async || subscription.queued() == 50).await;
    let mut seen = 0;
    while seen < 1_000 {
        let delivery = next(&mut subscription).await;
        assert!(subscription.queued() < 50, "with the one in hand it is the credit");
        seen += 1;
        delivery.ack();
    }
    client.close().await;
    assert_eq!((committed(&bus, 0).await, committed(&bus, 1).await), (500, 500));
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_that_are_dropped_give_their_credit_back() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..200).await;
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").credit(10, 1 << 20).await.unwrap();
    for number in 0..200 {
        assert_eq!(next(&mut subscription).await.offset, number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_subscribed_is_refused_with_its_code() {
    let bus = Bus::new(1).await;
    let client = bus.client().await;
    let error = client.subscribe("nowhere", "billing").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopic));
    let _first = client.subscribe("orders", "billing").settings(quick_retries(3)).await.unwrap();
    let other = bus.client().await;
    let error = other.subscribe("orders", "billing").settings(quick_retries(4)).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::GroupMismatch));
    let error = client.subscribe("orders", "billing").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::AlreadySubscribed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_deleted_under_its_members_ends_their_streams_with_the_reason() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..1).await;
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    next(&mut subscription).await.ack();
    let admin = laneway_client::Admin::new(&bus.url()).unwrap();
    admin.delete_group_with_members("orders", "billing").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, subscription.next()).await.expect("the stream ends");
    assert!(ended.is_none());
    assert_eq!(subscription.error().and_then(|error| error.code()), Some(ErrorCode::UnknownGroup));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_fails_for_good_is_skipped_if_the_group_says_so() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..3).await;
    let client = bus.client().await;
    let settings =
        laneway_client::wire::WantedSettings { on_failure: Some(OnFailure::Skip), ..quick_retries(2) };
    let mut subscription = client.subscribe("orders", "billing").settings(settings).await.unwrap();
    next(&mut subscription).await.nack_after("poison", Duration::from_millis(1));
    let again = next(&mut subscription).await;
    assert_eq!((again.offset, again.attempts), (0, 1));
    again.nack("poison");
    assert_eq!(next(&mut subscription).await.offset, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_again_at_the_moment_that_its_nack_names_and_at_once_if_that_has_passed() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..1).await;
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").settings(quick_retries(5)).await.unwrap();
    let long_ago = Timestamp::UNIX_EPOCH;
    next(&mut subscription).await.nack_until("busy", long_ago);
    let again = next(&mut subscription).await;
    assert_eq!((again.offset, again.attempts), (0, 1));
    let moment = Timestamp::now() + Duration::from_millis(400);
    again.nack_until("busy", moment);
    let last = next(&mut subscription).await;
    assert_eq!((last.offset, last.attempts), (0, 2));
    assert!(Timestamp::now() >= moment);
    last.ack();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_goes_on_where_it_was_after_its_broker_was_killed() {
    let mut bus = Bus::new(2).await;
    bus.fill(0, 0..20).await;
    bus.fill(1, 0..5).await;
    let client = bus.client().await;
    let mut tail = client.tail("orders", Start::Earliest).credit(8, 1 << 20).await.unwrap();
    let mut seen = [Vec::new(), Vec::new()];
    let mut read = async |many: usize| {
        for _ in 0..many {
            let delivery = tokio::time::timeout(PATIENCE, tail.next()).await.unwrap().unwrap();
            seen[delivery.partition as usize].push(text(&delivery));
        }
    };
    read(12).await;
    let address = bus.server.address.clone();
    bus.server.kill().await;
    bus.server = bus.at(&address).await;
    read(13).await;
    client.publish("orders", to(1, 5)).await.unwrap();
    read(1).await;
    let numbers = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
    assert_eq!(seen, [numbers(20), numbers(6)]);
}
