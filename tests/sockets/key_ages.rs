//! Order by key beside ages, blocks and deadlines: what expires, what does not, and that nothing which comes again and again hides what
//! hangs.

use laneway_client::Admin;
use laneway_client::wire::{
    Batch, ClientFrame, GroupOrdering, Nack, OnFailure, Subprotocol, Subscribe, WantedSettings,
};

use crate::Bus;
use crate::harness::socket::{BOTH, Socket, ack, nack, offsets, quick_retries, subscribe};
use crate::harness::wait::until;
use crate::keys::{keyed, parked, parking, publish};

async fn join(bus: &Bus, subprotocol: Subprotocol, settings: WantedSettings) -> Socket {
    let mut consumer = bus.connect(subprotocol).await;
    let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    consumer
}

fn blocking(max_attempts: u32) -> WantedSettings {
    WantedSettings {
        ordering: Some(GroupOrdering::Key),
        on_failure: Some(OnFailure::Block),
        ..quick_retries(max_attempts)
    }
}

async fn nack_after(consumer: &mut Socket, batch: &Batch, offset: i64, delay_ms: u64) {
    let later = Nack { delay_ms: Some(delay_ms), ..nack(batch, offset, "not now") };
    consumer.send(ClientFrame::Nack(later)).await;
}

/// Waits until everything that is stored is older than this.
async fn age(bus: &Bus, ms: i64) {
    let old = format!(
        "SELECT count(*) FROM laneway.message WHERE published_at > clock_timestamp() - interval '{ms} milliseconds'"
    );
    until("all messages are old", async || bus.database.number(&old).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_key_stops_alone_and_goes_on_when_the_group_is_altered() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        publish(&bus, &["a:0", "b:1", "a:2"]).await;
        let mut consumer = join(&bus, subprotocol, blocking(1)).await;
        let first = consumer.batch().await;
        assert_eq!(offsets(&first), [0, 1, 2]);
        consumer.nack(&first, 0, "it is poison").await.unwrap();
        assert_eq!(consumer.ack(ack(&first, None, &[1])).await.unwrap(), 0);
        publish(&bus, &["a:3", "b:4"]).await;
        let other = consumer.batch().await;
        assert_eq!(offsets(&other), [4], "a is blocked, b is not");
        consumer.ack(ack(&other, None, &[4])).await.unwrap();
        let more = WantedSettings { max_attempts: Some(5), ..WantedSettings::default() };
        Admin::new(&bus.server.url("")).unwrap().alter_group("orders", "billing", &more).await.unwrap();
        let again = consumer.batch().await;
        assert_eq!((offsets(&again), again.attempts.clone()), (vec![0, 2, 3], vec![(0, 1)]));
        assert_eq!(consumer.ack_below(&again, 4).await.unwrap(), 5);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_key_goes_on_once_what_it_is_blocked_by_has_expired() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["b:0", "a:1", "a:2"]).await;
    let settings = WantedSettings { max_age_ms: Some(4_000), ..blocking(2) };
    let mut consumer = join(&bus, Subprotocol::Json, settings).await;
    let first = consumer.batch().await;
    assert_eq!(offsets(&first), [0, 1, 2]);
    nack_after(&mut consumer, &first, 1, 0).await;
    let again = consumer.batch().await;
    assert_eq!((offsets(&again), again.attempts.clone()), (vec![1, 2], vec![(1, 1)]));
    consumer.nack(&again, 1, "it is poison").await.unwrap();
    // When b may come again, everything is too old.
    nack_after(&mut consumer, &first, 0, 5_000).await;
    let evicted = "SELECT coalesce(sum(end_offset - \"offset\"), 0)::bigint FROM laneway.failure WHERE outcome = 'evicted'";
    until("all of it has expired", async || bus.database.number(evicted).await == 3).await;
    publish(&bus, &["a:3", "b:4"]).await;
    let fresh = consumer.batch().await;
    assert_eq!(offsets(&fresh), [3, 4], "nothing is left that could block a");
    assert_eq!(consumer.ack_below(&fresh, 5).await.unwrap(), 5);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_key_expires_and_what_is_parked_does_not() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["late:0", "late:1"]).await;
    age(&bus, 3_000).await;
    publish(&bus, &["a:2", "a:3", "b:4"]).await;
    let settings = WantedSettings { max_age_ms: Some(3_000), ..parking(1) };
    let mut consumer = join(&bus, Subprotocol::MessagePack, settings).await;
    let first = consumer.batch().await;
    assert_eq!(offsets(&first), [2, 3, 4], "what is too old is passed over");
    consumer.nack(&first, 2, "it is poison").await.unwrap();
    consumer.ack(ack(&first, None, &[4])).await.unwrap();
    let admin = Admin::new(&bus.server.url("")).unwrap();
    until("a is parked", async || parked(&admin).await.first().is_some_and(|key| key.messages == 2)).await;
    age(&bus, 3_000).await;
    admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
    let back = consumer.batch().await;
    assert_eq!(offsets(&back), [2, 3], "however old it is");
    consumer.ack(ack(&back, None, &[2, 3])).await.unwrap();
    until("the key goes on", async || parked(&admin).await.is_empty()).await;
    let evicted = "SELECT coalesce(sum(end_offset - \"offset\"), 0)::bigint FROM laneway.failure WHERE outcome = 'evicted'";
    assert_eq!(bus.database.number(evicted).await, 2);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_fails_more_often_than_the_deadline_does_not_hide_a_message_that_hangs() {
    const TRIES: usize = 60;
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["low:0", "hung:1"]).await;
    let settings = WantedSettings {
        ack_deadline_ms: Some(1_000),
        backoff_base_ms: Some(200),
        backoff_cap_ms: Some(200),
        ..parking(1_000)
    };
    let mut consumer = join(&bus, Subprotocol::Json, settings).await;
    let mut producer = bus.connect(Subprotocol::Json).await;
    let mut tries = 0;
    let back = loop {
        let batch = consumer.batch().await;
        if batch.attempts.contains(&(1, 1)) {
            break batch;
        }
        for offset in offsets(&batch) {
            match offset {
                0 => {
                    tries += 1;
                    assert!(tries < TRIES, "nobody has noticed that 1 hangs");
                    consumer.send(ClientFrame::Nack(nack(&batch, 0, "not now"))).await;
                    producer.publish("orders", keyed(["other:x"])).await;
                }
                1 => {}
                _ => consumer.send(ClientFrame::Ack(ack(&batch, None, &[offset]))).await,
            }
        }
    };
    assert_eq!(back.epoch, 1, "it has failed alone, and the lane stays");
    let reason = "SELECT count(*) FROM laneway.failure WHERE \"offset\" = 1 AND reason = 'ack_deadline'";
    assert_eq!(bus.database.number(reason).await, 1);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_takes_before_it_is_parked_is_told_as_skipped() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["a:0", "b:1", "a:2", "a:3"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let first = consumer.batch().await;
    assert_eq!(offsets(&first), [0, 1, 2, 3]);
    let gone = "DELETE FROM laneway.message WHERE \"offset\" IN (2, 3)";
    assert_eq!(bus.database.raw().await.execute(gone, &[]).await.unwrap(), 2);
    consumer.nack(&first, 0, "it is poison").await.unwrap();
    consumer.ack(ack(&first, None, &[1])).await.unwrap();
    until("the lane moves on", async || {
        bus.database.number("SELECT max(committed_offset) FROM laneway.lane_commit").await == 4
    })
    .await;
    let told = "SELECT count(*) FROM laneway.failure
        WHERE \"offset\" = 2 AND end_offset = 4 AND outcome = 'skip' AND reason = 'retention'";
    assert_eq!(bus.database.number(told).await, 1, "nothing goes in silence");
    assert_eq!(parked(&Admin::new(&bus.server.url("")).unwrap()).await[0].messages, 1);
    bus.stop().await;
}
