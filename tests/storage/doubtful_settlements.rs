//! Settlements whose first answer was lost: what somebody has done with their effects meanwhile, stands.

use std::time::Duration;

use laneway::ids::{DeadLetterId, Offset, ParkedId};
use laneway::store::lanes::{Charge, Commit, DeadLetter, Fence, Settled, Settlement};
use laneway::store::messages::Message;
use laneway::store::parked::{LetGo, ParkKey, ParkMessage, Parking};

use crate::delivery_times::held_lane;
use crate::harness::TestDatabase;
use crate::harness::database::TestBroker;
use crate::harness::produce::{all, topic, unit};

fn commit(number: i64, committed: i64) -> Option<Commit> {
    Some(Commit { number, committed: Offset(committed), acked: "{}".into(), times: [].into() })
}

/// A lane that somebody holds, and the messages of its partition.
async fn lane(database: &TestDatabase, broker: &TestBroker) -> (Fence, Vec<Message>) {
    let topic = topic(broker, "orders", 1).await;
    let partition_id = topic.partitions[0];
    let texts = (0..4).map(|number| format!("m{number}"));
    broker.appender.submit(unit(partition_id, texts)).unwrap().await.unwrap().unwrap();
    (held_lane(database, partition_id).await, all(broker, partition_id).await)
}

fn copy(message: &Message, attempts: u32) -> ParkMessage {
    ParkMessage { message: message.clone(), parked_offset: Offset(0), attempts, reason: "no".into() }
}

/// A key is parked at the first message, with the next one behind it.
fn parks(messages: &[Message]) -> Settlement {
    let key = Some(ParkKey { parked_offset: Offset(0), key: Some("a".into()) });
    let copies = vec![copy(&messages[0], 1), copy(&messages[1], 0)];
    let parking = Parking { key, messages: copies, ..Parking::default() };
    Settlement { commit: commit(1, 2), parking: Some(Box::new(parking)), ..Settlement::default() }
}

#[tokio::test]
async fn a_key_that_was_replayed_or_dropped_meanwhile_is_not_parked_again() {
    for how in [LetGo::Replay, LetGo::DropFailed] {
        let database = TestDatabase::new().await;
        let (broker, store) = (database.broker(), database.store());
        let (fence, messages) = lane(&database, &broker).await;
        let settlement = parks(&messages);
        assert_eq!(store.lane_settle(&fence, &settlement).await.unwrap(), Settled::Done);
        let id = ParkedId(database.number("SELECT parked_id FROM laneway.parked_key").await);
        assert!(store.parked_keys_release(id, how).await.unwrap());
        let left = database.number("SELECT count(*) FROM laneway.parked_message").await;
        assert_eq!(store.lane_settle(&fence, &settlement).await.unwrap(), Settled::Done);
        let key = store.parked_keys_find(id).await.unwrap().unwrap();
        assert!(key.released, "{how:?} stands");
        assert_eq!(key.messages as i64, left);
        assert_eq!(database.number("SELECT count(*) FROM laneway.parked_message").await, left);
        assert_eq!(database.number("SELECT max(attempts)::bigint FROM laneway.parked_message").await, 0);
        broker.stop().await;
    }
}

#[tokio::test]
async fn a_dead_letter_that_was_deleted_meanwhile_does_not_come_back() {
    let database = TestDatabase::new().await;
    let (broker, store) = (database.broker(), database.store());
    let (fence, messages) = lane(&database, &broker).await;
    let dead_letter = DeadLetter { message: messages[0].clone(), attempts: 3, reason: "no".into() };
    let settlement =
        Settlement { commit: commit(1, 1), dead_letter: Some(dead_letter), ..Settlement::default() };
    store.lane_settle(&fence, &settlement).await.unwrap();
    let id = DeadLetterId(database.number("SELECT dead_letter_id FROM laneway.dead_letter").await);
    assert_eq!(store.dead_letters_delete(id).await.unwrap(), 1);
    assert_eq!(store.lane_settle(&fence, &settlement).await.unwrap(), Settled::Done);
    assert_eq!(database.number("SELECT count(*) FROM laneway.dead_letter").await, 0);
    broker.stop().await;
}

#[tokio::test]
async fn a_settlement_without_a_commit_takes_effect_whenever_it_comes() {
    let database = TestDatabase::new().await;
    let (broker, store) = (database.broker(), database.store());
    let (fence, _) = lane(&database, &broker).await;
    for attempts in [1, 2] {
        let charge = Charge { offset: Offset(2), attempts, reason: "no".into(), delay: Duration::ZERO };
        let settlement = Settlement { charge: Some(charge), ..Settlement::default() };
        assert_eq!(store.lane_settle(&fence, &settlement).await.unwrap(), Settled::Done);
        let stored = "SELECT attempts::bigint FROM laneway.attempt WHERE \"offset\" = 2";
        assert_eq!(database.number(stored).await, i64::from(attempts));
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_key_that_still_has_copies_does_not_go_on_and_its_holder_is_told() {
    let database = TestDatabase::new().await;
    let (broker, store) = (database.broker(), database.store());
    let (fence, messages) = lane(&database, &broker).await;
    store.lane_settle(&fence, &parks(&messages)).await.unwrap();
    let id = ParkedId(database.number("SELECT parked_id FROM laneway.parked_key").await);
    store.parked_keys_release(id, LetGo::Replay).await.unwrap();
    let free = |number: i64, done: Vec<Offset>| {
        let parking = Some(Box::new(Parking { done, freed: vec![Offset(0)], ..Parking::default() }));
        Settlement { commit: commit(number, 2), parking, ..Settlement::default() }
    };
    let too_early = free(2, vec![Offset(0)]);
    assert_eq!(store.lane_settle(&fence, &too_early).await.unwrap(), Settled::KeyKept);
    assert_eq!(store.parked_keys_find(id).await.unwrap().unwrap().messages, 1);
    assert_eq!(store.lane_settle(&fence, &free(3, vec![Offset(1)])).await.unwrap(), Settled::Done);
    assert_eq!(store.parked_keys_find(id).await.unwrap(), None);
    broker.stop().await;
}
