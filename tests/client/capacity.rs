//! What a client does with messages for a topic that is full: it keeps them, or gives them back.

use laneway_client::capacity::OnFull;
use laneway_client::topic::{AlterTopic, Retention};
use laneway_client::{Admin, Class, Client, Error, ErrorCode, Options};

use crate::bus::{Bus, next, quick, to};

#[tokio::test(flavor = "multi_thread")]
async fn messages_for_a_full_topic_wait_for_room_in_order_or_come_back_at_once() {
    let bus = Bus::new(1).await;
    let waiting = bus.client().await;
    let limit = AlterTopic { max_backlog_messages: Retention::Bound(10), ..AlterTopic::default() };
    Admin::new(&bus.url()).unwrap().alter_topic("orders", &limit).await.unwrap();
    let mut billing = waiting.subscribe("orders", "billing").await.unwrap();
    let receipts = waiting.publish_many("orders", (0..10).map(|number| to(0, number))).await;
    assert!(receipts.iter().all(Result::is_ok));
    // Given back at once, with the facts.
    let failing = Client::connect(&bus.url(), Options { on_full: OnFull::Fail, ..quick() }).await.unwrap();
    let refused = failing.publish("orders", to(0, 99)).await.unwrap_err();
    assert_eq!((refused.code(), refused.class()), (Some(ErrorCode::TopicFull), Class::Retry));
    let Error::Refused(refusal) = refused else { panic!("{refused}") };
    let fullness = refusal.fullness.unwrap();
    assert_eq!((fullness.depth, fullness.limit), (10, 10));
    // Kept until there is room.
    let kept = tokio::spawn({
        let waiting = waiting.clone();
        async move { waiting.publish_many("orders", (10..40).map(|number| to(0, number))).await }
    });
    let mut seen = Vec::new();
    while seen.len() < 40 {
        let message = next(&mut billing).await;
        seen.push(String::from_utf8(message.payload.to_vec()).unwrap());
        message.ack();
    }
    assert_eq!(seen, (0..40).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(kept.await.unwrap().iter().all(Result::is_ok));
    // What came back was never stored, and its client goes on.
    let mut receipt = failing.publish("orders", to(0, 40)).await;
    while receipt.as_ref().is_err_and(|error| error.code() == Some(ErrorCode::TopicFull)) {
        receipt = failing.publish("orders", to(0, 40)).await;
    }
    assert_eq!(receipt.unwrap().offset, Some(40));
    failing.close().await;
    waiting.close().await;
}
