//! The trace index is cut by time: cuts are made ahead, merged, closed, and dropped once nothing that old is stored.

use laneway::broker::Broker;
use laneway::broker::appender::Unit;
use laneway::broker::message::Draft;
use laneway::ids::{CutId, PartitionId, TraceId};
use laneway::store::traces::Payloads;
use laneway::store::{Role, Store};
use uuid::Uuid;

use crate::harness::TestDatabase;
use crate::harness::produce::{draft, topic, unit};
use crate::harness::quiet::QuietBroker;
use crate::harness::wait::until;

/// A cut from 1970 until some moment, made before any broker makes its own.
async fn first_cut_until(database: &TestDatabase, until: &str) {
    let sql = format!(
        "DO $$
        DECLARE until_at timestamptz := {until};
        BEGIN
            INSERT INTO laneway.trace_cut (from_at, to_at) VALUES ('epoch', until_at);
            CREATE TABLE laneway.trace_block_c1 (LIKE laneway.trace_block INCLUDING DEFAULTS INCLUDING STORAGE);
            CREATE INDEX trace_block_c1_traces ON laneway.trace_block_c1 USING gin (traces);
            EXECUTE format('ALTER TABLE laneway.trace_block ATTACH PARTITION laneway.trace_block_c1
                FOR VALUES FROM (%L) TO (%L)', 'epoch'::timestamptz, until_at);
        END $$"
    );
    database.raw().await.batch_execute(&sql).await.unwrap();
}

async fn extend(store: &Store) {
    store.dedicated(Role::Upkeep).await.unwrap().trace_cuts_extend().await.unwrap();
}

async fn tidy(store: &Store) {
    store.dedicated(Role::Upkeep).await.unwrap().trace_cuts_tidy().await.unwrap();
}

/// The cuts of the catalogue, asserting that each has its table and that there is no hole between them.
async fn cuts(database: &TestDatabase) -> Vec<i64> {
    let raw = database.raw().await;
    let rows = raw
        .query(
            "SELECT cut_id, from_at = lag(to_at, 1, from_at) OVER (ORDER BY from_at),
                to_regclass(format('laneway.trace_block_c%s', cut_id)) IS NOT NULL
             FROM laneway.trace_cut ORDER BY from_at",
            &[],
        )
        .await
        .unwrap();
    assert!(rows.iter().all(|row| row.get(1)), "cuts touch");
    assert!(rows.iter().all(|row| row.get(2)), "cuts have tables");
    let tables = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'laneway.trace_block'::regclass";
    assert_eq!(database.number(tables).await, rows.len() as i64);
    rows.iter().map(|row| row.get(0)).collect()
}

async fn publish(broker: &Broker, partition_id: PartitionId) -> TraceId {
    let trace_id = TraceId(Uuid::new_v4());
    let message = Draft { trace_id: Some(trace_id), ..draft("m") }.check(100).unwrap();
    broker.appender.append(Unit { messages: vec![message], ..unit(partition_id, []) }).await.unwrap();
    trace_id
}

async fn assert_found(broker: &Broker, traces: &[TraceId]) {
    for trace_id in traces {
        assert_eq!(broker.reader.trace(*trace_id, Payloads::Read).await.unwrap().hops.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_is_made_ahead_by_one_broker_of_many_and_only_when_it_is_time() {
    let database = TestDatabase::new().await;
    let store = database.store();
    extend(&store).await;
    assert_eq!(cuts(&database).await, [1]);
    let ahead = "SELECT (extract(epoch FROM max(to_at) - now()) / 60)::bigint FROM laneway.trace_cut";
    assert!((59..=61).contains(&database.number(ahead).await));
    extend(&store).await;
    assert_eq!(cuts(&database).await, [1], "it is long enough");
    // Half an hour before its end the next one is due.
    let database = TestDatabase::new().await;
    first_cut_until(&database, "now() + interval '29 minutes'").await;
    let stores: Vec<Store> = (0..4).map(|_| database.store()).collect();
    let mut makers = tokio::task::JoinSet::new();
    for store in stores {
        makers.spawn(async move { extend(&store).await });
    }
    makers.join_all().await;
    assert_eq!(cuts(&database).await.len(), 2);
    assert!(database.number(ahead).await >= 59);
}

#[tokio::test]
async fn a_database_that_slept_past_its_last_cut_publishes_again() {
    let database = TestDatabase::new().await;
    first_cut_until(&database, "now() - interval '3 days'").await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, "orders", 1).await;
    let trace_id = publish(&broker, topic.partitions[0]).await;
    assert_found(&broker, &[trace_id]).await;
    assert_eq!(cuts(&database).await.len(), 2);
}

#[tokio::test]
async fn publishing_goes_on_across_a_boundary_and_lookups_see_both_sides() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, "orders", 2).await;
    first_cut_until(&database, "clock_timestamp() + interval '1 second'").await;
    let mut traces = Vec::new();
    let beyond = "SELECT count(*) FROM laneway.trace_block b JOIN laneway.trace_cut c ON c.cut_id = 1
        WHERE b.published_at >= c.to_at";
    while database.number(beyond).await < 5 {
        traces.push(publish(&broker, topic.partitions[traces.len() % 2]).await);
    }
    let before = "SELECT count(*) FROM laneway.trace_block_c1";
    assert!(database.number(before).await > 0, "the first cut was used");
    assert_eq!(database.number("SELECT count(*) FROM laneway.trace_block").await, traces.len() as i64);
    assert_found(&broker, &traces).await;
}

#[tokio::test]
async fn tidying_merges_what_is_pending_and_loses_nothing() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, "orders", 1).await;
    // Returns the pages that were pending, and merges them.
    let pending = "SELECT gin_clean_pending_list('laneway.trace_block_c1_traces'::regclass)";
    let mut traces = Vec::new();
    for _ in 0..30 {
        traces.push(publish(&broker, topic.partitions[0]).await);
    }
    assert_found(&broker, &traces).await; // pending entries are found too
    tidy(&broker.store).await;
    assert_eq!(database.number(pending).await, 0);
    assert_found(&broker, &traces).await;
    traces.push(publish(&broker, topic.partitions[0]).await);
    assert!(database.number(pending).await > 0, "a flush leaves merging to the upkeep");
    assert_found(&broker, &traces).await;
}

#[tokio::test]
async fn a_cut_that_is_over_is_closed_and_dropped_only_when_nothing_that_old_is_stored() {
    let database = TestDatabase::new().await;
    first_cut_until(&database, "now() - interval '1 hour'").await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, "orders", 1).await;
    let raw = database.raw().await;
    let (old, young) =
        (publish(&broker, topic.partitions[0]).await, publish(&broker, topic.partitions[0]).await);
    // The first message and its segment become two hours old.
    raw.batch_execute(
        "UPDATE laneway.trace_block SET published_at = published_at - interval '2 hours' WHERE first_offset = 0;
         UPDATE laneway.segment SET created_at = created_at - interval '2 hours'",
    )
    .await
    .unwrap();
    assert_eq!(database.number("SELECT count(*) FROM laneway.trace_block_c1").await, 1);
    assert_eq!(cuts(&database).await.len(), 2);
    let closed = "SELECT count(*) FROM laneway.trace_cut WHERE closed_at IS NOT NULL";
    broker.store.retention_pass().await.unwrap();
    assert_eq!(cuts(&database).await.len(), 2, "it is not closed");
    tidy(&broker.store).await;
    assert_eq!(database.number(closed).await, 1);
    let frozen = "SELECT relallvisible::bigint FROM pg_class WHERE relname = 'trace_block_c1'";
    assert_eq!(database.number(frozen).await, 1, "its page is frozen once");
    broker.store.retention_pass().await.unwrap();
    assert_eq!(cuts(&database).await.len(), 2, "a message that old is stored");
    assert_found(&broker, &[old, young]).await;
    raw.execute("UPDATE laneway.segment SET created_at = now()", &[]).await.unwrap();
    // Two brokers at once.
    let (one, other) = (database.store(), database.store());
    let (first, second) = tokio::join!(one.retention_pass(), other.retention_pass());
    first.unwrap();
    second.unwrap();
    assert_eq!(cuts(&database).await.len(), 1);
    assert_found(&broker, &[young]).await;
    let dropped = one.upkeep_connection().await.unwrap().trace_cuts_drop().await.unwrap();
    assert_eq!(dropped, Vec::<CutId>::new(), "the one in use stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_cut_does_not_disturb_publishes() {
    let database = TestDatabase::new().await;
    first_cut_until(&database, "now() - interval '1 hour'").await;
    let broker = QuietBroker::start(database.store());
    let topic = topic(&broker, "orders", 2).await;
    let mut traces = vec![publish(&broker, topic.partitions[0]).await];
    tidy(&broker.store).await;
    // What a pass finds locked, it leaves to the next one; a busy machine may need several.
    let dropped = std::cell::Cell::new(false);
    let passes = async {
        let store = database.store();
        until("the cut is dropped", async || {
            store.retention_pass().await.unwrap();
            cuts(&database).await.len() == 1
        })
        .await;
        dropped.set(true);
    };
    let publishes = async {
        while !dropped.get() {
            traces.push(publish(&broker, topic.partitions[traces.len() % 2]).await);
        }
    };
    tokio::join!(passes, publishes);
    assert_found(&broker, &traces).await;
}
