//! Heads and what deduplication remembers: thinned and forgotten in time, and never what is still needed.

use std::time::Duration;

use jiff::Timestamp;
use laneway::broker::appender::{AppendError, Unit};
use laneway::ids::{Offset, PartitionId, ProducerId, Sequence};
use laneway::limits::HEAD_SPACING;
use laneway::store::times::Record;
use laneway_client::topic::CreateTopic;
use uuid::Uuid;

use crate::harness::TestDatabase;
use crate::harness::produce::{all, named, numbered, texts, topic, unit};
use crate::harness::quiet::QuietBroker;

async fn heads(database: &TestDatabase, partition_id: PartitionId) -> Vec<i64> {
    let sql =
        "SELECT next_offset FROM laneway.head WHERE partition_id = $1 ORDER BY published_at, next_offset";
    let rows = database.raw().await.query(sql, &[&partition_id.0]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Flushes of some messages each.
async fn flush(broker: &QuietBroker, partition_id: PartitionId, flushes: usize, messages: usize) {
    for _ in 0..flushes {
        let texts = (0..messages).map(|_| "x".to_owned());
        broker.appender.append(unit(partition_id, texts)).await.unwrap();
    }
}

/// Thins one partition since a moment. Returns up to when it is thin now.
async fn thin(broker: &QuietBroker, partition_id: PartitionId, since: Timestamp) -> Option<Timestamp> {
    let thinned = broker.store.heads_thin(&[(partition_id, since)]).await.unwrap();
    thinned.first().map(|(thinned_id, thinned_to)| {
        assert_eq!((*thinned_id, thinned.len()), (partition_id, 1));
        *thinned_to
    })
}

/// What is kept, by the definition: the last head of each run of `HEAD_SPACING` offsets, and so the newest too.
fn thinned(heads: &[i64]) -> Vec<i64> {
    let last_of_run = |pair: &[i64]| (pair[0] / HEAD_SPACING != pair[1] / HEAD_SPACING).then_some(pair[0]);
    heads.windows(2).filter_map(last_of_run).chain(heads.last().copied()).collect()
}

#[tokio::test]
async fn thinning_keeps_the_newest_head_and_one_per_spacing() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, "orders", 2).await;
    let (partition_id, other) = (topic.partitions[0], topic.partitions[1]);
    flush(&broker, other, 5, 1).await;
    flush(&broker, partition_id, 120, 100).await;
    let before = heads(&database, partition_id).await;
    let thinned_to = thin(&broker, partition_id, Timestamp::UNIX_EPOCH).await.unwrap();
    let after = heads(&database, partition_id).await;
    assert_eq!(after, thinned(&before));
    assert_eq!(after, [4_000, 8_100, 12_000]);
    // Again, from where it ended, and while more come.
    flush(&broker, partition_id, 50, 100).await;
    let thinned_to = thin(&broker, partition_id, thinned_to).await.unwrap();
    assert_eq!(heads(&database, partition_id).await, [4_000, 8_100, 12_200, 16_300, 17_000]);
    thin(&broker, partition_id, thinned_to).await;
    assert_eq!(heads(&database, partition_id).await, [4_000, 8_100, 12_200, 16_300, 17_000]);
    assert_eq!(heads(&database, other).await.len(), 5, "only where it was asked for");
    // The next offset is where it was.
    let receipt = broker.appender.append(unit(partition_id, ["next".into()])).await.unwrap();
    assert_eq!(receipt.first_offset, Some(Offset(17_000)));
}

#[tokio::test]
async fn thinning_a_partition_without_heads_does_nothing() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, "orders", 1).await;
    let nothing = thin(&broker, topic.partitions[0], Timestamp::UNIX_EPOCH).await;
    assert_eq!(nothing, None);
    flush(&broker, topic.partitions[0], 1, 1).await;
    thin(&broker, topic.partitions[0], Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(heads(&database, topic.partitions[0]).await, [1]);
}

#[tokio::test]
async fn a_busy_broker_thins_its_heads_by_itself() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    let partition_id = topic.partitions[0];
    for _ in 0..600 {
        broker.appender.append(unit(partition_id, ["x".into()])).await.unwrap();
    }
    crate::harness::wait::until("the heads to be thinned", async || {
        heads(&database, partition_id).await.len() < 200
    })
    .await;
    assert_eq!(heads(&database, partition_id).await.last(), Some(&600));
    assert_eq!(all(&broker, partition_id).await.len(), 600);
}

/// Makes what deduplication remembers older.
async fn age(database: &TestDatabase, topic: &str, seconds: i32) {
    for table in ["producer_run", "transaction_seen"] {
        let sql = format!(
            "UPDATE laneway.{table} SET published_at = published_at - make_interval(secs => {seconds})
             FROM laneway.partition JOIN laneway.topic USING (topic_id)
             WHERE {table}.partition_id = partition.partition_id AND topic.name = '{topic}'"
        );
        database.raw().await.execute(&sql, &[]).await.unwrap();
    }
}

#[tokio::test]
async fn what_no_window_remembers_is_forgotten_and_nothing_else() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let short = CreateTopic { dedup_window_ms: Some(60_000), ..CreateTopic::new("short", 1) };
    let short = broker.topics.create(&short).await.unwrap();
    let long = CreateTopic { dedup_window_ms: Some(600_000), ..CreateTopic::new("long", 1) };
    let long = broker.topics.create(&long).await.unwrap();
    let producer = ProducerId(Uuid::new_v4());
    for topic in [&short, &long] {
        let partition_id = topic.partitions[0];
        let window = topic.settings.dedup_window;
        let unit = Unit { dedup_window: window, ..named(partition_id, "t-1", "named") };
        broker.appender.append(unit).await.unwrap();
        broker.appender.append(numbered(partition_id, producer, 0, ["0".into(), "1".into()])).await.unwrap();
    }
    let left = async || {
        let count = |table: &str| format!("SELECT count(*) FROM laneway.{table}");
        (database.number(&count("producer_run")).await, database.number(&count("transaction_seen")).await)
    };
    let expire = async || {
        let runs = broker.store.records_expire(Record::ProducerRuns, 0).await.unwrap();
        broker.store.deduplication_expire().await.unwrap() + runs.rows
    };
    assert_eq!(expire().await, 0);
    // Outside the short window, inside the long one: rows may stay, and must where the window is long.
    age(&database, "short", 120).await;
    age(&database, "long", 120).await;
    assert_eq!(expire().await, 0);
    assert_eq!(left().await, (2, 2));
    let again = broker.appender.append(named(long.partitions[0], "t-1", "again")).await.unwrap();
    assert_eq!(again.duplicates.len(), 1);
    // What stays longer than its own window does no harm there: the id is free again.
    let late = Unit { dedup_window: Duration::from_secs(60), ..named(short.partitions[0], "t-1", "late") };
    assert_eq!(broker.appender.append(late).await.unwrap().first_offset, Some(Offset(3)));
    // Outside every window.
    age(&database, "short", 600).await;
    assert_eq!(expire().await, 3);
    assert_eq!(left().await, (1, 1));
    age(&database, "long", 600).await;
    assert_eq!(expire().await, 2);
    assert_eq!(left().await, (0, 0));
    // A producer whose runs are forgotten starts anew, at any broker that has not written for it just now.
    let other = QuietBroker::start(database.store());
    let unit = numbered(long.partitions[0], producer, 2, ["2".into()]);
    let gap = Err(AppendError::SequenceGap { expected: Sequence(0) });
    assert_eq!(other.appender.append(unit).await, gap);
    assert_eq!(texts(&all(&broker, long.partitions[0]).await), ["named", "0", "1"]);
}

#[tokio::test]
async fn expiry_takes_more_rows_than_one_statement_does() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, "orders", 1).await;
    let raw = database.raw().await;
    let rows = "INSERT INTO laneway.transaction_seen
        SELECT $1, n::text, n, now() - interval '1 day' + n * interval '1 ms' FROM generate_series(1, 25000) AS n";
    raw.execute(rows, &[&topic.partitions[0].0]).await.unwrap();
    broker.appender.append(named(topic.partitions[0], "young", "m")).await.unwrap();
    assert_eq!(broker.store.deduplication_expire().await.unwrap(), 25_000);
    assert_eq!(database.number("SELECT count(*) FROM laneway.transaction_seen").await, 1);
}
