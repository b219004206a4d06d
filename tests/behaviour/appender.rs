//! Publishing: order, units, deduplication, and what happens when two want the same partition.

use std::collections::BTreeSet;
use std::time::Duration;

use laneway::broker::appender::{AppendError, Duplicate, Unit};
use laneway::broker::message::Draft;
use laneway::ids::{Offset, ProducerId, Sequence};
use uuid::Uuid;

use crate::harness::produce::{self, all, message, named, numbered, texts, topic, unit};
use crate::harness::{TestDatabase, wait};

fn strings(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|number| format!("m{number}"))
}

#[tokio::test]
async fn messages_of_a_partition_get_dense_offsets_in_the_order_they_were_submitted() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 3).await;
    let answers: Vec<_> = (0..100)
        .map(|number| broker.appender.submit(unit(topic.partitions[1], [format!("m{number}")])).unwrap())
        .collect();
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.await.unwrap().unwrap().first_offset, Some(Offset(number as i64)));
    }
    let stored = all(&broker, topic.partitions[1]).await;
    assert_eq!(texts(&stored), strings(0..100).collect::<Vec<_>>());
    assert!(stored.is_sorted_by_key(|message| message.published_at));
    assert!(all(&broker, topic.partitions[0]).await.is_empty());
}

#[tokio::test]
async fn many_waiting_producers_share_a_commit() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 4).await;
    broker.appender.append(unit(topic.partitions[0], ["first".into()])).await.unwrap();
    let commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let before = database.number(commits).await;
    let answers: Vec<_> = (0..4_000)
        .map(|number| {
            broker.appender.submit(unit(topic.partitions[number % 4], [format!("m{number}")])).unwrap()
        })
        .collect();
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    let spent = database.number(commits).await - before;
    assert!(spent < 400, "4,000 messages cost {spent} commits");
}

#[tokio::test]
async fn a_retried_sequence_is_stored_once_and_answered_with_its_first_offset() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    let (partition, producer) = (topic.partitions[0], ProducerId(Uuid::new_v4()));
    let first = broker.appender.append(numbered(partition, producer, 0, strings(0..5))).await.unwrap();
    let again = broker.appender.append(numbered(partition, producer, 0, strings(0..5))).await.unwrap();
    assert_eq!(again.first_offset, None);
    assert_eq!(again.offsets(5), first.offsets(5));
    // Cut differently the second time: two known, three new.
    let mixed = broker.appender.append(numbered(partition, producer, 3, strings(3..8))).await.unwrap();
    assert_eq!(mixed.first_offset, Some(Offset(5)));
    assert_eq!(
        mixed.duplicates,
        vec![
            Duplicate { index: 0, offset: Some(Offset(3)) },
            Duplicate { index: 1, offset: Some(Offset(4)) }
        ]
    );
    assert_eq!(texts(&all(&broker, partition).await), strings(0..8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_gap_in_the_sequence_is_refused_with_the_number_expected() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    let (partition, producer) = (topic.partitions[0], ProducerId(Uuid::new_v4()));
    let gap = |expected| Err(AppendError::SequenceGap { expected: Sequence(expected) });
    assert_eq!(broker.appender.append(numbered(partition, producer, 1, strings(1..2))).await, gap(0));
    broker.appender.append(numbered(partition, producer, 0, strings(0..3))).await.unwrap();
    assert_eq!(broker.appender.append(numbered(partition, producer, 4, strings(4..5))).await, gap(3));
    broker.appender.append(numbered(partition, producer, 3, strings(3..4))).await.unwrap();
    assert_eq!(texts(&all(&broker, partition).await), strings(0..4).collect::<Vec<_>>());
}

#[tokio::test]
async fn pipelined_units_of_one_producer_go_into_one_flush_and_a_hole_stops_only_them() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    let partition = topic.partitions[0];
    let (one, other) = (ProducerId(Uuid::new_v4()), ProducerId(Uuid::new_v4()));
    let submit = |unit: Unit| broker.appender.submit(unit).unwrap();
    let answers = vec![
        submit(numbered(partition, one, 0, strings(0..2))),
        submit(numbered(partition, one, 2, strings(2..4))),
        submit(numbered(partition, other, 0, ["o0".into()])),
        submit(numbered(partition, one, 9, strings(9..10))),
        submit(numbered(partition, other, 1, ["o1".into()])),
    ];
    let mut results = Vec::new();
    for answer in answers {
        results.push(answer.await.unwrap());
    }
    assert_eq!(results[3], Err(AppendError::SequenceGap { expected: Sequence(4) }));
    assert!([0, 1, 2, 4].iter().all(|place: &usize| results[*place].is_ok()));
    assert_eq!(texts(&all(&broker, partition).await), ["m0", "m1", "m2", "m3", "o0", "o1"]);
}

#[tokio::test]
async fn a_transaction_id_names_one_message_within_its_window() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 2).await;
    let (here, there) = (topic.partitions[0], topic.partitions[1]);
    let first = broker.appender.append(named(here, "t-1", "a")).await.unwrap();
    let again = broker.appender.append(named(here, "t-1", "b")).await.unwrap();
    assert_eq!(again.duplicates, vec![Duplicate { index: 0, offset: first.first_offset }]);
    assert_eq!(broker.appender.append(named(there, "t-1", "c")).await.unwrap().duplicates, vec![]);
    // A window that is over has forgotten.
    let brief = Unit { dedup_window: Duration::from_millis(1), ..named(here, "t-1", "d") };
    assert_eq!(broker.appender.append(brief).await.unwrap().first_offset, Some(Offset(1)));
    assert_eq!(texts(&all(&broker, here).await), ["a", "d"]);
}

#[tokio::test]
async fn a_transaction_id_twice_in_one_unit_is_one_message() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    let partition = topic.partitions[0];
    let with = |id: &str| Draft { transaction_id: Some(id.into()), ..produce::draft(id) }.check(100).unwrap();
    let producer = ProducerId(Uuid::new_v4());
    let mut twice = numbered(partition, producer, 0, []);
    twice.messages = vec![with("a"), with("b"), with("a"), message("plain"), with("b")];
    let receipt = broker.appender.append(twice.clone()).await.unwrap();
    let offsets = [0, 1, 0, 2, 1].map(|offset| Some(Offset(offset))).to_vec();
    assert_eq!(receipt.offsets(5), offsets);
    // The run remembers where each of the five stands.
    assert_eq!(broker.appender.append(twice).await.unwrap().offsets(5), offsets);
    // Another producer with the same ids, and one new message among them.
    let mut other = numbered(partition, ProducerId(Uuid::new_v4()), 0, []);
    other.messages = vec![with("b"), with("c"), with("a")];
    let receipt = broker.appender.append(other.clone()).await.unwrap();
    assert_eq!(receipt.offsets(3), [1, 3, 0].map(|offset| Some(Offset(offset))));
    assert_eq!(broker.appender.append(other).await.unwrap().offsets(3), receipt.offsets(3));
    assert_eq!(texts(&all(&broker, partition).await), ["a", "b", "plain", "c"]);
}

/// Two brokers, one partition, the same message; the first flush is held in the database until the second waits.
async fn race(unit: impl Fn(laneway::ids::PartitionId) -> Unit) {
    let database = TestDatabase::new().await;
    let (one, two) = (database.broker(), database.broker());
    let topic = topic(&one, "orders", 1).await;
    let partition = topic.partitions[0];
    one.appender.append(produce::unit(partition, ["warm".into()])).await.unwrap();
    two.appender.append(produce::unit(partition, ["warm".into()])).await.unwrap();
    let mut raw = database.raw().await;
    let hold = raw.transaction().await.unwrap();
    let lock = "SELECT FROM laneway.partition WHERE partition_id = $1 FOR NO KEY UPDATE";
    hold.execute(lock, &[&partition.0]).await.unwrap();
    let (first, second) =
        (one.appender.submit(unit(partition)).unwrap(), two.appender.submit(unit(partition)).unwrap());
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'laneway appender'";
    wait::until("both brokers to wait for the partition", async || database.number(waiting).await == 2).await;
    hold.commit().await.unwrap();
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert_eq!(first.offsets(1), second.offsets(1));
    assert_eq!(first.duplicates.len() + second.duplicates.len(), 1);
    assert_eq!(texts(&all(&one, partition).await), ["warm", "warm", "same"]);
}

#[tokio::test]
async fn the_same_sequence_racing_on_two_brokers_is_stored_once() {
    let producer = ProducerId(Uuid::new_v4());
    race(|partition| numbered(partition, producer, 0, ["same".into()])).await;
}

#[tokio::test]
async fn the_same_transaction_id_racing_on_two_brokers_is_stored_once() {
    race(|partition| named(partition, "t-1", "same")).await;
}

#[tokio::test]
async fn a_locked_partition_does_not_hold_up_its_neighbours() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 4).await;
    for partition in &topic.partitions {
        broker.appender.append(unit(*partition, ["warm".into()])).await.unwrap();
    }
    let mut raw = database.raw().await;
    let hold = raw.transaction().await.unwrap();
    let lock = "SELECT FROM laneway.partition WHERE partition_id = $1 FOR NO KEY UPDATE";
    hold.execute(lock, &[&topic.partitions[0].0]).await.unwrap();
    let mut stuck = broker.appender.submit(unit(topic.partitions[0], ["late".into()])).unwrap();
    for round in 0..20 {
        for partition in &topic.partitions[1..] {
            broker.appender.append(unit(*partition, [format!("m{round}")])).await.unwrap();
        }
    }
    assert!(stuck.try_recv().is_err());
    hold.commit().await.unwrap();
    assert_eq!(stuck.await.unwrap().unwrap().first_offset, Some(Offset(1)));
}

#[tokio::test]
async fn a_unit_that_the_database_refuses_takes_no_other_unit_with_it() {
    let database = TestDatabase::in_encoding("LATIN1").await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 2).await;
    broker.appender.append(unit(topic.partitions[0], ["warm".into()])).await.unwrap();
    let answers: Vec<_> = (0..40)
        .map(|number| {
            let id = if number == 17 { "日本".to_owned() } else { format!("t-{number}") };
            let unit = named(topic.partitions[number % 2], &id, &format!("m{number}"));
            broker.appender.submit(unit).unwrap()
        })
        .collect();
    let mut refused = Vec::new();
    for (number, answer) in answers.into_iter().enumerate() {
        match answer.await.unwrap() {
            Ok(_) => {}
            Err(AppendError::Refused { sqlstate, .. }) => refused.push((number, sqlstate)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, [(17, "22P05".to_owned())]);
    let stored = texts(&all(&broker, topic.partitions[1]).await);
    let expected: Vec<_> = (0..40).filter(|n| n % 2 == 1 && *n != 17).map(|n| format!("m{n}")).collect();
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn a_full_inbox_is_said_to_be_full_and_loses_nothing() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    let mut raw = database.raw().await;
    let hold = raw.transaction().await.unwrap();
    hold.execute("SELECT FROM laneway.partition FOR NO KEY UPDATE", &[]).await.unwrap();
    let megabyte = "x".repeat(1 << 20);
    let mut accepted = Vec::new();
    let overloaded = loop {
        match broker.appender.submit(unit(topic.partitions[0], [megabyte.clone()])) {
            Ok(answer) => accepted.push(answer),
            Err(error) => break error,
        }
    };
    assert_eq!(overloaded, AppendError::Overloaded);
    assert!(accepted.len() <= 128, "{} MiB were accepted", accepted.len());
    hold.commit().await.unwrap();
    let expected = accepted.len();
    for answer in accepted {
        answer.await.unwrap().unwrap();
    }
    let stored = "SELECT sum(next_offset)::bigint FROM (SELECT max(next_offset) AS next_offset FROM laneway.head) AS h";
    assert_eq!(database.number(stored).await, expected as i64);
}

/// Promise 4: readers that poll `offset > last` see every offset, in order, whoever writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_polls_never_skips_while_several_brokers_write() {
    let database = TestDatabase::new().await;
    let brokers = [database.broker(), database.broker(), database.broker()];
    let topic = produce::topic_of_segments(&brokers[0], "orders", 2, 200).await;
    let mut writers = Vec::new();
    for (number, broker) in brokers.iter().enumerate() {
        for writer in 0..4 {
            let appender = broker.appender.clone();
            let partitions = topic.partitions.clone();
            writers.push(tokio::spawn(async move {
                for round in 0..40 {
                    let partition = partitions[round % 2];
                    let values = (0..5).map(|place| format!("{number}-{writer}-{round}-{place}"));
                    appender.append(unit(partition, values)).await.unwrap();
                }
            }));
        }
    }
    let expected = 3 * 4 * 40 * 5 / 2;
    for partition in &topic.partitions {
        let reader = laneway::broker::reader::Reader::new(database.store());
        let mut seen: Vec<String> = Vec::new();
        wait::until("everything to be read", async || {
            let from = Offset(seen.len() as i64);
            for message in reader.read(*partition, from, produce::ALL).await.unwrap() {
                assert_eq!(message.offset, Offset(seen.len() as i64), "an offset was skipped");
                seen.push(String::from_utf8(message.payload.to_vec()).unwrap());
            }
            seen.len() == expected
        })
        .await;
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), expected);
    }
    for writer in writers {
        writer.await.unwrap();
    }
}
