//! Topics: made once, grown and swept by any number of brokers at once, without a gap in their partitions.

use std::sync::Arc;

use laneway::broker::appender::AppendError;
use laneway::broker::topics::TopicError;
use laneway::store::segments::Extended;
use laneway::store::topics::{Deleted, Topic};
use laneway_client::TopicName;
use laneway_client::topic::CreateTopic;

use crate::harness::produce::{texts, topic, topic_of_segments, unit};
use crate::harness::quiet::QuietBroker;
use crate::harness::{TestDatabase, produce, wait};

fn name() -> TopicName {
    TopicName::new("orders").unwrap()
}

/// The partition numbers of the only topic.
async fn numbers(database: &TestDatabase) -> Vec<i32> {
    let sql = "SELECT number FROM laneway.partition ORDER BY partition_id";
    let mut numbers: Vec<i32> =
        database.raw().await.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_grow_a_topic_to_different_counts_at_once_agree_on_the_largest() {
    let database = TestDatabase::new().await;
    let brokers = [database.broker(), database.broker(), database.broker()];
    topic(&brokers[0], "orders", 1).await;
    for round in 1..8 {
        let wanted = [round * 10, round * 10 + 3, round * 10 + 7];
        let name = name();
        let grow = |place: usize| brokers[place].topics.grow(&name, wanted[place]);
        let (one, two, three) = tokio::join!(grow(0), grow(1), grow(2));
        for (result, wanted) in [(one, wanted[0]), (two, wanted[1]), (three, wanted[2])] {
            assert_grown(result, wanted);
        }
        let expected: Vec<i32> = (0..(round * 10 + 7) as i32).collect();
        assert_eq!(numbers(&database).await, expected);
    }
}

/// It has at least what was asked for; whoever came late and asked for fewer is told.
fn assert_grown(result: Result<Arc<Topic>, TopicError>, wanted: u32) {
    match result {
        Ok(topic) => assert!(topic.partitions.len() as u32 >= wanted),
        Err(TopicError::Shrinks { partitions, .. }) => assert!(partitions > wanted),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_topic_that_has_grown_is_seen_by_the_others_and_keeps_what_it_had() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.broker(), database.broker());
    let before = topic(&one, "orders", 2).await;
    one.appender.append(unit(before.partitions[1], ["old".into()])).await.unwrap();
    assert_eq!(other.topics.find(&name()).await.unwrap().partitions.len(), 2);
    let after = one.topics.grow(&name(), 5).await.unwrap();
    assert_eq!(after.partitions[..2], before.partitions[..]);
    wait::until("the other broker to hear of it", async || {
        other.topics.find(&name()).await.unwrap().partitions == after.partitions
    })
    .await;
    other.appender.append(unit(after.partitions[4], ["new".into()])).await.unwrap();
    assert_eq!(texts(&produce::all(&one, after.partitions[4]).await), ["new"]);
    assert_eq!(texts(&produce::all(&one, before.partitions[1]).await), ["old"]);
    let fewer = one.topics.grow(&name(), 4).await;
    assert_eq!(fewer, Err(TopicError::Shrinks { name: "orders".into(), partitions: 5 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_two_brokers_make_at_once_is_made_by_one() {
    let database = TestDatabase::new().await;
    let brokers = [database.broker(), database.broker()];
    for round in 0..10 {
        let request = CreateTopic::new(format!("topic-{round}"), 3);
        let (one, other) =
            tokio::join!(brokers[0].topics.create(&request), brokers[1].topics.create(&request));
        let exists = TopicError::Exists { name: request.name.clone() };
        match (one, other) {
            (Ok(_), Err(error)) | (Err(error), Ok(_)) => assert_eq!(error, exists),
            both => panic!("{both:?}"),
        }
    }
    assert_eq!(database.number("SELECT count(*) FROM laneway.partition").await, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_sweep_the_same_topics_at_once_do_not_disturb_each_other() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    for number in 0..3 {
        let topic = topic_of_segments(&broker, &format!("topic-{number}"), 4, 16).await;
        for partition_id in &topic.partitions {
            let texts = (0..40).map(|n| format!("m{n}"));
            broker.appender.append(unit(*partition_id, texts)).await.unwrap();
        }
        assert_eq!(broker.store.topics_delete(topic.topic_id).await, Ok(Deleted::Marked));
        assert_eq!(broker.store.topics_delete(topic.topic_id).await, Ok(Deleted::Unknown));
        // Neither a table nor a message comes after that.
        let extended = broker.store.tables_extend(topic.partitions[0], 1_000).await;
        assert_eq!(extended, Ok(Extended::Gone));
        let late = broker.appender.append(unit(topic.partitions[0], ["late".into()])).await;
        assert_eq!(late, Err(AppendError::UnknownPartition));
    }
    let stores = [database.store(), database.store(), database.store()];
    let mut gone = 0;
    while gone < 3 {
        let sweeps =
            tokio::join!(stores[0].topics_sweep(), stores[1].topics_sweep(), stores[2].topics_sweep());
        gone += sweeps.0.unwrap() + sweeps.1.unwrap() + sweeps.2.unwrap();
    }
    assert_eq!(gone, 3, "each is counted by the one that took the last step");
    let rows = "SELECT (SELECT count(*) FROM laneway.topic) + (SELECT count(*) FROM laneway.partition)
        + (SELECT count(*) FROM laneway.segment) + (SELECT count(*) FROM laneway.head)
        + (SELECT count(*) FROM pg_class WHERE relname ~ '^message_[ps][0-9]+$')";
    assert_eq!(database.number(rows).await, 0);
}
