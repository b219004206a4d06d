//! Reading by offset, both ways, and by time: across segments, within limits, exact.

use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use laneway::broker::Broker;
use laneway::broker::appender::Unit;
use laneway::broker::message::Draft;
use laneway::broker::reader::ReadError;
use laneway::ids::{Offset, PartitionId};
use laneway::limits::HEAD_SPACING;
use laneway::store::messages::{Message, ReadLimit};
use laneway_client::topic::CreateTopic;

use crate::harness::TestDatabase;
use crate::harness::produce::{ALL, all, texts, topic_of_segments, unit};
use crate::harness::quiet::{QuietBroker, seal};

fn offsets(messages: &[Message]) -> Vec<i64> {
    messages.iter().map(|message| message.offset.0).collect()
}

fn at_most(messages: u32, bytes: u64) -> ReadLimit {
    ReadLimit { messages, bytes }
}

/// Messages whose offset, times ten, is their size.
async fn sized(broker: &Broker, partition_id: PartitionId, messages: usize) {
    let texts = (0..messages).map(|number| "x".repeat(number * 10));
    broker.appender.append(unit(partition_id, texts)).await.unwrap();
}

/// What a limit allows, by its definition: as many as fit, and the first whatever its size.
fn allowed(candidates: impl Iterator<Item = i64>, limit: ReadLimit) -> Vec<i64> {
    let mut left = limit.bytes as i64;
    let fits = |offset: &i64| {
        left -= offset * 10;
        left >= 0
    };
    let mut candidates = candidates.take(limit.messages as usize).peekable();
    let first = candidates.peek().copied();
    let fitting: Vec<i64> = candidates.take_while(fits).collect();
    if fitting.is_empty() { first.into_iter().collect() } else { fitting }
}

#[tokio::test]
async fn a_read_returns_what_fits_its_limits_wherever_segments_end() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic_of_segments(&broker, "orders", 1, 16).await;
    let partition_id = topic.partitions[0];
    sized(&broker, partition_id, 100).await;
    for from in [0, 1, 15, 16, 17, 50, 99, 100] {
        for limit in [1, 2, 5, 16, 17, 40, 1_000].map(|messages| at_most(messages, 1 << 20)) {
            let read = broker.reader.read(partition_id, Offset(from), limit).await.unwrap();
            assert_eq!(offsets(&read), allowed(from..100, limit), "from {from} {limit:?}");
        }
        for limit in
            [0, 1, 10, 159, 160, 161, 320, 500, 2_000, 5_000, 40_000].map(|bytes| at_most(1_000, bytes))
        {
            let read = broker.reader.read(partition_id, Offset(from), limit).await.unwrap();
            assert_eq!(offsets(&read), allowed(from..100, limit), "from {from} {limit:?}");
            let back = broker.reader.read_back(partition_id, Offset(from), limit).await.unwrap();
            assert_eq!(offsets(&back), allowed((0..from).rev(), limit), "back from {from} {limit:?}");
        }
    }
}

#[tokio::test]
async fn keys_and_headers_count_as_bytes_too() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let partition_id = topic_of_segments(&broker, "orders", 1, 16).await.partitions[0];
    let message = || {
        let headers = [("h".to_owned(), "x".repeat(92))].into(); // {"h":"…"} has 100 bytes
        let draft =
            Draft { key: Some(vec![7; 50].into()), headers, payload: vec![8; 50].into(), ..Draft::default() };
        draft.check(100).unwrap()
    };
    let messages = (0..40).map(|_| message()).collect();
    broker.appender.append(Unit { messages, ..unit(partition_id, []) }).await.unwrap();
    for (bytes, expected) in [(199, 1), (200, 1), (399, 1), (400, 2), (3_999, 19), (4_000, 20)] {
        let read = broker.reader.read(partition_id, Offset::ZERO, at_most(1_000, bytes)).await.unwrap();
        assert_eq!(read.len(), expected, "{bytes} bytes");
        assert!(read.iter().all(|message| message.bytes() == 200));
    }
}

#[tokio::test]
async fn a_message_larger_than_the_limit_still_comes() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let partition_id = topic_of_segments(&broker, "orders", 1, 16).await.partitions[0];
    let large = Bytes::from(vec![1; 1 << 20]);
    for number in 0..20 {
        let payload = if number % 4 == 3 { large.clone() } else { Bytes::from_static(b"small") };
        let message = Draft { payload, ..Draft::default() }.check(1 << 20).unwrap();
        broker.appender.append(Unit { messages: vec![message], ..unit(partition_id, []) }).await.unwrap();
    }
    let mut next = 0;
    let mut reads = Vec::new();
    while next < 20 {
        let read = broker.reader.read(partition_id, Offset(next), at_most(100, 100)).await.unwrap();
        assert_eq!(read[0].offset, Offset(next));
        next += read.len() as i64;
        reads.push(read.len());
    }
    assert_eq!(reads, [3, 1, 3, 1, 3, 1, 3, 1, 3, 1]);
}

#[tokio::test]
async fn pages_by_offset_meet_without_gap_or_overlap_in_both_directions() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let partition_id = topic_of_segments(&broker, "orders", 1, 16).await.partitions[0];
    for some in (0..200).collect::<Vec<_>>().chunks(9) {
        let texts = some.iter().map(|number: &i64| format!("m{number}"));
        broker.appender.append(unit(partition_id, texts)).await.unwrap();
    }
    for size in [1, 7, 16, 33] {
        let mut forward: Vec<Message> = Vec::new();
        loop {
            let from = forward.last().map_or(Offset::ZERO, |last| last.offset.plus(1));
            let page = broker.reader.read(partition_id, from, at_most(size, 1 << 20)).await.unwrap();
            assert!(page.len() <= size as usize);
            if page.is_empty() {
                break;
            }
            forward.extend(page);
        }
        let mut backward: Vec<Message> = Vec::new();
        loop {
            let before = backward.last().map_or(Offset(i64::MAX), |last| last.offset);
            let page = broker.reader.read_back(partition_id, before, at_most(size, 1 << 20)).await.unwrap();
            assert!(page.len() <= size as usize);
            if page.is_empty() {
                break;
            }
            backward.extend(page);
        }
        assert_eq!(offsets(&forward), (0..200).collect::<Vec<_>>());
        backward.reverse();
        assert_eq!(forward, backward);
        assert!(texts(&forward).into_iter().eq((0..200).map(|number| format!("m{number}"))));
    }
}

/// By the definition: the first message at or after the moment.
fn first_at(messages: &[Message], at: Timestamp) -> Option<Offset> {
    messages.iter().find(|message| message.published_at >= at).map(|message| message.offset)
}

#[tokio::test]
async fn a_moment_finds_the_first_message_at_or_after_it_however_thin_the_heads_are() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let partition_id = topic_of_segments(&broker, "orders", 1, 1_000).await.partitions[0];
    let flushes = 2 * HEAD_SPACING / 50 + 20;
    for _ in 0..flushes {
        let few = (0..50).map(|_| "x".to_owned());
        broker.appender.append(unit(partition_id, few)).await.unwrap();
    }
    let stored = all(&broker, partition_id).await;
    let (oldest, newest) = (stored[0].published_at, stored.last().unwrap().published_at);
    let tick = SignedDuration::from_micros(1);
    let check = async |messages: &[Message]| {
        for message in messages.iter().step_by(173) {
            let moment = message.published_at;
            for at in [moment - tick, moment, moment + tick] {
                let found = broker.reader.offset_at(partition_id, at).await.unwrap();
                assert_eq!(found, first_at(messages, at), "at {at}");
            }
        }
        let before = oldest - SignedDuration::from_hours(1);
        let found = broker.reader.offset_at(partition_id, before).await.unwrap();
        assert_eq!(found, Some(messages[0].offset));
        assert_eq!(broker.reader.offset_at(partition_id, newest + tick).await.unwrap(), None);
    };
    check(&stored).await;
    let heads = "SELECT count(*) FROM laneway.head";
    assert_eq!(database.number(heads).await, flushes);
    broker.store.heads_thin(&[(partition_id, Timestamp::UNIX_EPOCH)]).await.unwrap();
    assert_eq!(database.number(heads).await, 3);
    check(&stored).await;
    // And when retention has dropped the beginning, with its heads.
    database.raw().await.execute("UPDATE laneway.topic SET retention_bytes = 4000", &[]).await.unwrap();
    assert!(seal(&broker.store).await > 0);
    assert!(broker.store.retention_pass().await.unwrap() > 0);
    let start = database.number("SELECT start_offset FROM laneway.partition").await as usize;
    check(&stored[start..]).await;
}

#[tokio::test]
async fn an_empty_partition_and_an_unknown_one_say_so() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = broker.topics.create(&CreateTopic::new("orders", 1)).await.unwrap();
    let (empty, unknown) = (topic.partitions[0], PartitionId(4_711));
    assert_eq!(broker.reader.read(empty, Offset::ZERO, ALL).await, Ok(vec![]));
    assert_eq!(broker.reader.read(empty, Offset(99), ALL).await, Ok(vec![]));
    assert_eq!(broker.reader.read_back(empty, Offset(99), ALL).await, Ok(vec![]));
    assert_eq!(broker.reader.offset_at(empty, Timestamp::UNIX_EPOCH).await, Ok(None));
    assert_eq!(broker.reader.read(unknown, Offset::ZERO, ALL).await, Err(ReadError::UnknownPartition));
    assert_eq!(broker.reader.read_back(unknown, Offset(9), ALL).await, Err(ReadError::UnknownPartition));
    let at = broker.reader.offset_at(unknown, Timestamp::UNIX_EPOCH).await;
    assert_eq!(at, Err(ReadError::UnknownPartition));
}

/// A reader that remembers the catalogue of another time must not take it for today's.
#[tokio::test]
async fn a_reader_that_remembers_an_empty_partition_sees_the_first_message() {
    let database = TestDatabase::new().await;
    let (writer, reader) = (Arc::new(database.broker()), database.broker());
    let topic = topic_of_segments(&writer, "orders", 1, 16).await;
    let partition_id = topic.partitions[0];
    assert_eq!(reader.reader.read(partition_id, Offset::ZERO, ALL).await, Ok(vec![]));
    let mut next = Offset::ZERO;
    for number in 0..50 {
        writer.appender.append(unit(partition_id, [format!("m{number}")])).await.unwrap();
        let read = reader.reader.read(partition_id, next, ALL).await.unwrap();
        assert_eq!(texts(&read), [format!("m{number}")]);
        next = next.plus(1);
    }
}
