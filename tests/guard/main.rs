//! What a fixed amount of work costs, in counts that do not depend on how fast the machine is: commits, round trips, bytes of log,
//! allocations. Whoever makes the bus dearer by mistake is told here, and not by a benchmark that nobody has run.
//!
//! | file | owns |
//! |---|---|
//! | `main` | the work, the counts and their bounds |
//! | `wire` | a wire to PostgreSQL that counts who speaks when |
//!
//! The broker runs in this process, on a PostgreSQL of the test's own without full-page images; frames go in as a session decodes them.

#![allow(clippy::unwrap_used)]

mod wire;

use std::sync::Arc;

use bytes::Bytes;
use laneway::bench::database::Database;
use laneway::broker::publish::Addressed;
use laneway::broker::{Broker, BrokerSettings};
use laneway::ids::ProducerId;
use laneway::store::{DatabaseSettings, Store, Target};
use laneway_client::TopicName;
use laneway_client::routing::partition_of;
use laneway_client::topic::CreateTopic;
use laneway_client::wire::{ClientFrame, NewMessage, Publish, Subprotocol};
use uuid::Uuid;
use wire::Wire;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const TOPIC: &str = "guarded";
const PARTITIONS: u32 = 8;
const FRAMES: usize = 40;
const FRAME_MESSAGES: usize = 100;
const PAYLOAD_BYTES: usize = 200;
const SINGLES: u64 = 50;

/// Transactions that write, per message: a frame at a time has 8 units, which two appenders write in a flush or two each.
const COMMITS_PER_MESSAGE_MAX: f64 = 0.06;
/// Log per message of 200 bytes with a key of 8: row, index entry, its part of head, block, run and trace index.
const WAL_BYTES_PER_MESSAGE_MAX: f64 = 700.0;
/// Allocations per message, from the frame to the parameters of the flush and back to the answer.
const ALLOCATIONS_PER_MESSAGE_MAX: f64 = 12.0;
/// Of one flush: everything is sent at once, and then everything is answered.
const ROUND_TRIPS_PER_FLUSH_MAX: f64 = 1.1;
/// What work cannot be done without; less was not counted. A frame is a transaction or more, and a message is in the log.
const COMMITS_PER_MESSAGE_MIN: f64 = 1.0 / FRAME_MESSAGES as f64;
const WAL_BYTES_PER_MESSAGE_MIN: f64 = PAYLOAD_BYTES as f64;
/// A frame of a hundred is not decoded, written and answered without ten.
const ALLOCATIONS_PER_MESSAGE_MIN: f64 = 0.1;
const ROUND_TRIPS_PER_FLUSH_MIN: f64 = 1.0;

/// A producer that numbers what it sends.
struct Producer {
    id: Uuid,
    sequences: [i64; PARTITIONS as usize],
    next_key: u64,
}

impl Producer {
    fn new() -> Self {
        Self { id: Uuid::new_v4(), sequences: [0; PARTITIONS as usize], next_key: 0 }
    }

    fn frame(&mut self, messages: usize) -> Bytes {
        let messages = (0..messages).map(|_| self.message()).collect();
        let publish =
            Publish { id: 1, topic: TOPIC.into(), producer_id: Some(self.id), wait_ms: None, messages };
        Subprotocol::MessagePack.encode_client(&ClientFrame::Publish(publish)).into()
    }

    fn message(&mut self) -> NewMessage {
        self.next_key += 1;
        let key = self.next_key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let home = partition_of(&key, PARTITIONS) as usize;
        self.sequences[home] += 1;
        NewMessage {
            key: Some(Bytes::copy_from_slice(&key)),
            payload: Bytes::from(vec![7; PAYLOAD_BYTES]),
            trace_id: Some(Uuid::now_v7()),
            sequence: Some(self.sequences[home] - 1),
            ..NewMessage::default()
        }
    }
}

/// As a session does: decode, submit, wait for the answer.
async fn publish(broker: &Broker, frame: &Bytes) {
    let ClientFrame::Publish(publish) = Subprotocol::MessagePack.decode_client(frame).unwrap() else {
        panic!("it is a publish")
    };
    let topic = TopicName::new(publish.topic).unwrap();
    let messages = publish.messages.into_iter().map(Addressed::from).collect();
    let submitted =
        broker.publisher.submit(&topic, publish.producer_id.map(ProducerId), messages).await.unwrap();
    for unit in submitted.units().await {
        unit.result.unwrap();
    }
}

/// Counts of the database.
struct Counter(tokio_postgres::Client);

impl Counter {
    async fn number(&self, sql: &str) -> i64 {
        self.0.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Transactions that have written.
    async fn commits(&self) -> i64 {
        self.number("SELECT pg_current_xact_id()::text::bigint").await
    }

    async fn wal_bytes(&self) -> i64 {
        self.number("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").await
    }
}

fn assert_between(what: &str, found: f64, least: f64, most: f64) {
    println!("{what}: {found:.3}, at least {least} and at most {most}");
    assert!(found <= most, "{what}: {found:.3} is more than {most}");
    assert!(found >= least, "{what}: {found:.3} is less than {least}: it was not counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_a_message_costs_no_more_commits_round_trips_log_and_allocations_than_it_did() {
    let database = Database::open(None).await.unwrap();
    let counter = Counter(Target::parse(&database.url()).unwrap().connect().await.unwrap());
    counter.0.batch_execute("ALTER SYSTEM SET full_page_writes = off").await.unwrap();
    counter.0.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let wire = Arc::new(Wire::to(&database.url()).await);
    let store = Store::new(DatabaseSettings::new(wire.url())).unwrap();
    store.migrate().await.unwrap();
    let (broker, running) = Broker::start(store, BrokerSettings::default());
    broker.topics.create(&CreateTopic::new(TOPIC, PARTITIONS)).await.unwrap();
    let mut producer = Producer::new();
    for _ in 0..5 {
        publish(&broker, &producer.frame(FRAME_MESSAGES)).await; // tables, plans, caches
    }

    let frames: Vec<Bytes> = (0..FRAMES).map(|_| producer.frame(FRAME_MESSAGES)).collect();
    let (commits, wal_bytes) = (counter.commits().await, counter.wal_bytes().await);
    let profiler = dhat::Profiler::builder().testing().build();
    for frame in &frames {
        publish(&broker, frame).await;
    }
    let allocations = dhat::HeapStats::get().total_blocks;
    drop(profiler);
    let messages = (FRAMES * FRAME_MESSAGES) as f64;
    let commits = (counter.commits().await - commits) as f64 / messages;
    let wal_bytes = (counter.wal_bytes().await - wal_bytes) as f64 / messages;

    let before = wire.round_trips();
    for _ in 0..SINGLES {
        publish(&broker, &producer.frame(1)).await; // one flush each
    }
    let round_trips = (wire.round_trips() - before) as f64 / SINGLES as f64;

    drop(broker);
    running.stop(std::time::Duration::from_secs(10)).await;
    drop(counter);
    database.close().await.unwrap();
    let allocations = allocations as f64 / messages;
    assert_between("commits per message", commits, COMMITS_PER_MESSAGE_MIN, COMMITS_PER_MESSAGE_MAX);
    assert_between(
        "bytes of log per message",
        wal_bytes,
        WAL_BYTES_PER_MESSAGE_MIN,
        WAL_BYTES_PER_MESSAGE_MAX,
    );
    assert_between(
        "allocations per message",
        allocations,
        ALLOCATIONS_PER_MESSAGE_MIN,
        ALLOCATIONS_PER_MESSAGE_MAX,
    );
    assert_between(
        "round trips per flush",
        round_trips,
        ROUND_TRIPS_PER_FLUSH_MIN,
        ROUND_TRIPS_PER_FLUSH_MAX,
    );
}
