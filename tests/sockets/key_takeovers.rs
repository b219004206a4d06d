//! Order by key over two brokers, one of which dies: what is parked stays parked, what is done stays done, and order is kept.

use laneway_client::Admin;
use laneway_client::parked::ParkedState;
use laneway_client::wire::{Subprotocol, Subscribe, WantedSettings};

use crate::harness::socket::{Socket, ack, make_topic, offsets, subscribe};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::keys::{keyed, parked, parking};

/// Two brokers that are buried soon, and a consumer at each; the first of them has the lane.
struct Two {
    database: TestDatabase,
    victim: Server,
    heir: Server,
    first: Socket,
    second: Socket,
    producer: Socket,
}

async fn two(settings: WantedSettings) -> Two {
    let database = TestDatabase::new().await;
    let start = async || Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await;
    let (victim, heir) = (start().await, start().await);
    make_topic(&heir.address, "orders", 1).await;
    let producer = Socket::connect(&heir.address, Subprotocol::Json).await;
    let join = async |server: &Server| {
        let mut consumer = Socket::connect(&server.address, Subprotocol::Json).await;
        let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
        consumer.subscribe_with(wish).await.unwrap();
        consumer
    };
    let mut first = join(&victim).await;
    first.granted().await;
    let second = join(&heir).await;
    Two { database, victim, heir, first, second, producer }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_key_and_single_acks_of_others_outlive_the_broker_that_held_the_lane() {
    let Two { database, mut victim, mut heir, mut first, mut second, mut producer } = two(parking(1)).await;
    producer.publish("orders", keyed(["a:0", "b:1", "slow:2", "b:3", "a:4"])).await;
    let batch = first.batch().await;
    assert_eq!(offsets(&batch), [0, 1, 2, 3, 4]);
    first.nack(&batch, 0, "it is poison").await.unwrap();
    first.ack(ack(&batch, None, &[1, 3])).await.unwrap();
    let admin = Admin::new(&heir.url("")).unwrap();
    until("a is parked", async || parked(&admin).await.first().is_some_and(|key| key.messages == 2)).await;
    victim.kill().await;
    // Only what was neither done nor parked comes again.
    let batch = second.batch().await;
    assert_eq!((offsets(&batch), batch.epoch), (vec![2], 2));
    producer.publish("orders", keyed(["a:5", "c:6"])).await;
    second.ack(ack(&batch, None, &[2])).await.unwrap();
    let batch = second.batch().await;
    assert_eq!(offsets(&batch), [6], "the heir knows that a is parked");
    second.ack(ack(&batch, None, &[6])).await.unwrap();
    until("5 stands behind", async || parked(&admin).await.first().is_some_and(|key| key.messages == 3))
        .await;
    admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
    let batch = second.batch().await;
    assert_eq!(offsets(&batch), [0, 4, 5]);
    second.ack(ack(&batch, None, &[0, 4, 5])).await.unwrap();
    until("the key goes on", async || parked(&admin).await.is_empty()).await;
    assert_eq!(database.number("SELECT count(*) FROM laneway.parked_message").await, 0);
    assert_eq!(heir.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_released_at_another_broker_is_delivered_by_the_holder_and_by_its_heir() {
    let Two { database, mut victim, mut heir, mut first, mut second, mut producer } = two(parking(1)).await;
    producer.publish("orders", keyed(["a:0", "a:1", "a:2"])).await;
    let batch = first.batch().await;
    first.nack(&batch, 0, "it is poison").await.unwrap();
    let admin = Admin::new(&heir.url("")).unwrap();
    until("a is parked", async || parked(&admin).await.first().is_some_and(|key| key.messages == 3)).await;
    admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
    let batch = first.batch().await;
    assert_eq!(offsets(&batch), [0, 1, 2], "the other broker was told");
    first.ack(ack(&batch, None, &[0])).await.unwrap();
    victim.kill().await;
    let mut back = Vec::new();
    while back.len() < 2 {
        let batch = second.batch().await;
        let sent = offsets(&batch);
        second.ack(ack(&batch, None, &sent)).await.unwrap();
        back.extend(sent);
    }
    assert_eq!(back, [1, 2], "what was done is done");
    until("the key goes on", async || parked(&admin).await.is_empty()).await;
    producer.publish("orders", keyed(["a:3"])).await;
    let batch = second.batch().await;
    assert_eq!(offsets(&batch), [3]);
    assert_eq!(second.ack_below(&batch, 4).await.unwrap(), 4);
    assert_eq!(database.number("SELECT count(*) FROM laneway.parked_key").await, 0);
    assert_eq!(heir.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_heir_sends_what_is_undone_below_a_released_copy_and_that_first() {
    let Two { database, mut victim, mut heir, mut first, mut second, mut producer } = two(parking(1)).await;
    producer.publish("orders", keyed(["x:0", "k:1", "k:2", "y:3"])).await;
    let batch = first.batch().await;
    assert_eq!(offsets(&batch), [0, 1, 2, 3]);
    first.nack(&batch, 2, "it is poison").await.unwrap();
    first.ack(ack(&batch, None, &[3])).await.unwrap();
    let admin = Admin::new(&heir.url("")).unwrap();
    admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
    assert_eq!(offsets(&first.batch().await), [2], "its copy, while 0 and 1 are in flight");
    victim.kill().await;
    let mut back = Vec::new();
    while back.len() < 3 {
        let batch = second.batch().await;
        let sent = offsets(&batch);
        second.ack(ack(&batch, None, &sent)).await.unwrap();
        back.extend(sent);
    }
    assert_eq!(back, [0, 1, 2], "nothing is left out, and the key keeps its order");
    until("the key goes on", async || parked(&admin).await.is_empty()).await;
    assert_eq!(database.number("SELECT max(committed_offset) FROM laneway.lane_commit").await, 4);
    assert_eq!(heir.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_of_a_released_copy_outlive_its_holder_and_park_it_again() {
    let settings = WantedSettings { backoff_base_ms: Some(3_000), backoff_cap_ms: Some(3_000), ..parking(2) };
    let Two { database, mut victim, mut heir, mut first, mut second, mut producer } = two(settings).await;
    producer.publish("orders", keyed(["k:0", "k:1"])).await;
    for _ in 0..2 {
        let batch = first.batch().await;
        first.nack(&batch, 0, "it is poison").await.unwrap();
    }
    let admin = Admin::new(&heir.url("")).unwrap();
    until("both are parked", async || parked(&admin).await.first().is_some_and(|key| key.messages == 2))
        .await;
    admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
    let batch = first.batch().await;
    assert_eq!((offsets(&batch), batch.attempts.clone()), (vec![0, 1], vec![]));
    first.nack(&batch, 0, "again").await.unwrap();
    let retry_at = "SELECT (extract(epoch FROM retry_at) * 1000)::bigint FROM laneway.parked_message WHERE \"offset\" = 0";
    let due = database.number(retry_at).await;
    victim.kill().await;
    let batch = second.batch().await;
    assert_eq!((offsets(&batch)[0], batch.attempts.clone()), (0, vec![(0, 1)]));
    let now = database.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").await;
    assert!(now >= due, "{now}: its pause goes on at the heir, until {due}");
    second.nack(&batch, 0, "for good").await.unwrap();
    until("it is parked again", async || {
        parked(&admin).await.first().is_some_and(|key| key.state == ParkedState::Parked && key.messages == 2)
    })
    .await;
    let again = parked(&admin).await.remove(0).first.unwrap();
    assert_eq!((again.message.offset, again.attempts, again.reason.as_str()), (0, 2, "for good"));
    assert_eq!(heir.stop().await, 0);
}
