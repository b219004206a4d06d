//! Segments: tables made at the first publish and ahead of need, by any broker, holding exactly what the catalogue says.

use laneway::broker::Broker;
use laneway::ids::{Offset, PartitionId};

use crate::harness::produce::{self, all, texts, topic, topic_of_segments, unit};
use crate::harness::{TestDatabase, wait};

/// A row of the catalogue, beside what its table really holds.
#[derive(Debug)]
struct Held {
    first_offset: i64,
    end_offset: i64,
    messages: i64,
    min: Option<i64>,
    max: Option<i64>,
}

async fn held(database: &TestDatabase, partition_id: PartitionId) -> Vec<Held> {
    let raw = database.raw().await;
    let catalogue = "SELECT segment_id, first_offset, end_offset FROM laneway.segment
        WHERE partition_id = $1 ORDER BY first_offset";
    let mut held = Vec::new();
    for row in raw.query(catalogue, &[&partition_id.0]).await.unwrap() {
        let (segment_id, first_offset, end_offset): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let contents =
            format!(r#"SELECT count(*), min("offset"), max("offset") FROM laneway.message_s{segment_id}"#);
        let row = raw.query_one(&contents, &[]).await.unwrap();
        held.push(Held { first_offset, end_offset, messages: row.get(0), min: row.get(1), max: row.get(2) });
    }
    held
}

/// Asserts that the tables of a partition cover its offsets without gap or overlap, and hold what they cover.
fn assert_exact(held: &[Held], next_offset: i64) {
    let mut expected_first = 0;
    for segment in held {
        assert_eq!(segment.first_offset, expected_first, "segments touch: {held:?}");
        expected_first = segment.end_offset;
        let end = segment.end_offset.min(next_offset).max(segment.first_offset);
        assert_eq!(segment.messages, end - segment.first_offset, "{segment:?}");
        if segment.messages > 0 {
            assert_eq!(
                (segment.min, segment.max),
                (Some(segment.first_offset), Some(end - 1)),
                "{segment:?}"
            );
        }
    }
    assert!(expected_first > next_offset, "the next message has a table");
}

/// Publishes numbered texts of one writer, a few per unit.
async fn write(broker: &Broker, partition_id: PartitionId, writer: &str, messages: usize) {
    let numbers: Vec<usize> = (0..messages).collect();
    for few in numbers.chunks(7) {
        let texts = few.iter().map(|number| format!("{writer}:{number}"));
        broker.appender.append(unit(partition_id, texts)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_roll_through_twenty_segments_of_each_partition_and_all_is_read_in_order() {
    const SEGMENT: i64 = 32;
    const EACH: usize = 180;
    let database = TestDatabase::new().await;
    let brokers = [database.broker(), database.broker()];
    let topic = topic_of_segments(&brokers[0], "orders", 2, SEGMENT as u32).await;
    let mut writers = tokio::task::JoinSet::new();
    for (number, broker) in brokers.iter().enumerate() {
        for partition_id in topic.partitions.clone() {
            for writer in 0..2 {
                let broker = broker.broker.clone();
                let name = format!("{number}.{writer}");
                writers.spawn(async move { write(&broker, partition_id, &name, EACH).await });
            }
        }
    }
    writers.join_all().await;
    for partition_id in &topic.partitions {
        let stored = all(&brokers[1], *partition_id).await;
        assert_eq!(stored.len(), 4 * EACH);
        assert!(stored.iter().enumerate().all(|(place, message)| message.offset == Offset(place as i64)));
        let texts = texts(&stored);
        for writer in ["0.0", "0.1", "1.0", "1.1"] {
            let theirs: Vec<_> =
                texts.iter().filter(|text| text.starts_with(&format!("{writer}:"))).collect();
            let expected: Vec<_> = (0..EACH).map(|number| format!("{writer}:{number}")).collect();
            assert!(theirs.into_iter().eq(&expected), "writer {writer} is out of order");
        }
        wait::until("a whole segment to be ahead", async || {
            held(&database, *partition_id).await.last().unwrap().first_offset >= stored.len() as i64
        })
        .await;
        let held = held(&database, *partition_id).await;
        assert!(held.len() > 20, "only {} segments", held.len());
        assert!(held.iter().all(|segment| segment.end_offset - segment.first_offset == SEGMENT));
        assert_exact(&held, stored.len() as i64);
    }
}

#[tokio::test]
async fn a_unit_longer_than_several_segments_is_stored_whole() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic_of_segments(&broker, "orders", 1, 16).await;
    let partition_id = topic.partitions[0];
    broker.appender.append(unit(partition_id, ["first".into()])).await.unwrap();
    let long: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    let receipt = broker.appender.append(unit(partition_id, long.clone())).await.unwrap();
    assert_eq!(receipt.first_offset, Some(Offset(1)));
    broker.appender.append(unit(partition_id, ["last".into()])).await.unwrap();
    let stored = all(&broker, partition_id).await;
    assert_eq!(texts(&stored[1..101]), long);
    assert!(stored[1..101].iter().all(|message| message.published_at == stored[1].published_at));
    assert_eq!(texts(&stored[101..]), ["last"]);
    let held = held(&database, partition_id).await;
    assert!(held.len() >= 7);
    assert_exact(&held, 102);
}

/// Tables of messages: per partition, and per segment.
async fn tables(database: &TestDatabase) -> (i64, i64) {
    let count = |name: &str| {
        format!(
            "SELECT count(*) FROM pg_class WHERE relname ~ '^message_{name}[0-9]+$' AND relkind IN ('r', 'p')"
        )
    };
    (database.number(&count("p")).await, database.number(&count("s")).await)
}

#[tokio::test]
async fn tables_come_with_the_first_publish_and_only_where_it_goes() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "wide", 1_000).await;
    assert_eq!(topic.partitions.len(), 1_000);
    assert_eq!(tables(&database).await, (0, 0));
    // Reading makes none either.
    assert!(all(&broker, topic.partitions[7]).await.is_empty());
    assert_eq!(tables(&database).await, (0, 0));
    broker.appender.append(unit(topic.partitions[500], ["m".into()])).await.unwrap();
    assert_eq!(tables(&database).await, (1, 2));
    broker.appender.append(unit(topic.partitions[500], ["m".into()])).await.unwrap();
    assert_eq!(tables(&database).await, (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_publish_first_at_the_same_moment_share_the_tables() {
    let database = TestDatabase::new().await;
    let brokers = [database.broker(), database.broker(), database.broker()];
    let topic = topic(&brokers[0], "orders", 12).await;
    let mut answers = Vec::new();
    for partition_id in &topic.partitions {
        for (number, broker) in brokers.iter().enumerate() {
            answers.push(broker.appender.submit(unit(*partition_id, [format!("b{number}")])).unwrap());
        }
    }
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    for partition_id in &topic.partitions {
        let mut stored = texts(&all(&brokers[0], *partition_id).await);
        stored.sort();
        assert_eq!(stored, ["b0", "b1", "b2"]);
        assert_exact(&held(&database, *partition_id).await, 3);
    }
    assert_eq!(tables(&database).await, (12, 24));
}

#[tokio::test]
async fn a_broker_goes_on_where_another_one_has_rolled_past_its_tables() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.broker(), database.broker());
    let topic = topic_of_segments(&one, "orders", 1, 16).await;
    let partition_id = topic.partitions[0];
    one.appender.append(unit(partition_id, ["0".into()])).await.unwrap();
    for number in 1..100 {
        other.appender.append(unit(partition_id, [number.to_string()])).await.unwrap();
    }
    // What `one` remembers ends at 32.
    let receipt = one.appender.append(unit(partition_id, ["100".into()])).await.unwrap();
    assert_eq!(receipt.first_offset, Some(Offset(100)));
    let expected: Vec<String> = (0..=100).map(|number| number.to_string()).collect();
    assert_eq!(texts(&all(&one, partition_id).await), expected);
    assert_eq!(produce::texts(&all(&other, partition_id).await), expected);
}

/// A session of PostgreSQL can miss a table that is attached while it lists the others, and then for as long as nothing
/// else is attached. Waves of first publishes make that likely.
#[tokio::test(flavor = "multi_thread")]
async fn waves_of_first_publishes_leave_no_partition_without_its_table() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 120).await;
    for wave in topic.partitions.chunks(6) {
        let answers = wave.iter().map(|id| broker.appender.submit(unit(*id, ["m".into()])).unwrap());
        for answer in answers.collect::<Vec<_>>() {
            answer.await.unwrap().unwrap();
        }
    }
}
