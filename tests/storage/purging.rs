//! Purges: what can be read, found and counted afterwards, and which tables go.

use laneway::broker::Broker;
use laneway::broker::management::PurgeError;
use laneway::broker::reader::ReadError;
use laneway::ids::{Offset, PartitionId};
use laneway::store::messages::ReadLimit;
use laneway::store::traces::Payloads;
use laneway_client::TopicName;
use laneway_client::management::Purge;

use crate::harness::TestDatabase;
use crate::harness::produce::{ALL, all_from, topic_of_segments, unit};
use crate::harness::quiet::{QuietBroker, seal};

const SEGMENT: u32 = 64;

async fn publish(broker: &Broker, partition_id: PartitionId, messages: usize) {
    for _ in 0..messages / 10 {
        let texts = (0..10).map(|number| format!("{number:0>100}"));
        broker.appender.append(unit(partition_id, texts)).await.unwrap();
    }
}

/// Asserts that nothing is left of segments that end here or before, in the catalogue and as tables.
async fn assert_dropped(database: &TestDatabase, end: i64) {
    let below = format!("SELECT count(*) FROM laneway.segment WHERE end_offset <= {end}");
    let strays = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '^message_s[0-9]+$'
        AND relnamespace = 'laneway'::regnamespace
        AND relname NOT IN (SELECT 'message_s' || segment_id FROM laneway.segment)";
    assert_eq!((database.number(&below).await, database.number(strays).await), (0, 0));
}

/// Asserts that a partition holds exactly what lies between its start and its end, whoever asks and how.
async fn assert_holds(broker: &Broker, partition_id: PartitionId, start: i64, next: i64) {
    let (start, next) = (Offset(start), Offset(next));
    let read = all_from(broker, partition_id, start).await;
    let expected: Vec<Offset> = (start.0..next.0).map(Offset).collect();
    assert_eq!(read.iter().map(|message| message.offset).collect::<Vec<_>>(), expected);
    let below = broker.reader.read(partition_id, Offset(start.0 - 1), ALL).await;
    assert_eq!(below, Err(ReadError::OutOfRange { start }));
    let back = ReadLimit { messages: 10_000, ..ALL };
    let back = broker.reader.read_back(partition_id, next, back).await.unwrap();
    assert_eq!(back.len() as i64, next.0 - start.0, "read backwards");
    let name = TopicName::new("orders").unwrap();
    let shown = &broker.count_partitions(&name, None, 1).await.unwrap()[0].count;
    assert_eq!((shown.start_offset, shown.next_offset), (start, next));
    assert_eq!(shown.stored_bytes, (next.0 - start.0) * 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_cuts_at_an_offset_a_time_or_the_end_and_drops_the_tables_that_lie_below() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let orders = TopicName::new("orders").unwrap();
    let partition_id = topic_of_segments(&broker, "orders", 1, SEGMENT).await.partitions[0];
    publish(&broker, partition_id, 200).await;
    let trace_id = broker.reader.read(partition_id, Offset(99), ALL).await.unwrap()[0].trace_id;
    let at = broker.reader.read(partition_id, Offset(130), ALL).await.unwrap()[0].published_at;
    seal(&database.store()).await;
    assert_ne!(database.number("SELECT count(*) FROM laneway.segment WHERE end_offset <= 105").await, 0);
    let purge = async |purge: Purge| broker.purge_topic(&orders, &purge).await.map(|purged| purged[0].to.0);
    // Inside a sealed segment and inside a flush.
    assert_eq!(purge(Purge::BeforeOffset { partition: 0, before_offset: 105 }).await, Ok(105));
    assert_holds(&broker, partition_id, 105, 200).await;
    assert!(
        broker.reader.trace(trace_id, Payloads::Read).await.unwrap().hops.is_empty(),
        "found by its trace"
    );
    database.store().retention_pass().await.unwrap();
    assert_dropped(&database, 105).await;
    assert_holds(&broker, partition_id, 105, 200).await;
    // A start never moves back; a time is the first message at or after it.
    assert_eq!(purge(Purge::BeforeOffset { partition: 0, before_offset: 3 }).await, Ok(105));
    assert_eq!(purge(Purge::BeforeAt(at.to_string())).await, Ok(130));
    assert_holds(&broker, partition_id, 130, 200).await;
    // What is wrong is refused, and nothing happens.
    let beyond = purge(Purge::BeforeOffset { partition: 0, before_offset: 201 }).await;
    assert!(matches!(beyond, Err(PurgeError::BeyondEnd { .. })), "{beyond:?}");
    for text in ["2999-01-01T00:00:00Z", "yesterday"] {
        let refused = purge(Purge::BeforeAt(text.into())).await;
        assert!(matches!(refused, Err(PurgeError::At { .. })), "{refused:?}");
    }
    let nowhere = purge(Purge::BeforeOffset { partition: 1, before_offset: 0 }).await;
    assert!(matches!(nowhere, Err(PurgeError::PartitionOutOfRange { .. })), "{nowhere:?}");
    assert_holds(&broker, partition_id, 130, 200).await;
    // Everything: the table that takes messages goes, too, and the next message gets the next offset.
    assert_eq!(purge(Purge::All).await, Ok(200));
    assert_holds(&broker, partition_id, 200, 200).await;
    database.store().retention_pass().await.unwrap();
    let filled = "SELECT count(*) FROM laneway.segment WHERE first_offset < 200";
    assert_eq!(database.number(filled).await, 0);
    publish(&broker, partition_id, 100).await;
    assert_holds(&broker, partition_id, 200, 300).await;
    // And again, with a message that comes before the table can go.
    assert_eq!(purge(Purge::All).await, Ok(300));
    publish(&broker, partition_id, 10).await;
    database.store().retention_pass().await.unwrap();
    assert_holds(&broker, partition_id, 300, 310).await;
}
