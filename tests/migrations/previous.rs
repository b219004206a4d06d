//! The statements of the release before, against the schema of today: its brokers go on while a newer one migrates.
//!
//! They are kept in `tests/fixtures/previous` by `script/freeze-queries`, at every release.

use std::collections::BTreeMap;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use crate::harness::TestDatabase;
use crate::harness::produce::{topic, unit};
use crate::queries::{declared, filled, root, statements};

/// What the release before would send.
struct Previous {
    queries: BTreeMap<String, String>,
    templates: BTreeMap<String, String>,
    declared: String,
}

impl Previous {
    fn read() -> Self {
        let home = root().join("tests/fixtures/previous");
        Self {
            queries: statements(&home.join("queries")),
            templates: statements(&home.join("templates")),
            declared: std::fs::read_to_string(home.join("declared.txt")).unwrap(),
        }
    }

    fn types(&self, name: &str) -> Vec<Type> {
        declared(&self.declared, name)
    }

    async fn prepare(&self, client: &Client, name: &str) -> Statement {
        let types = self.types(name);
        let prepared = client.prepare_typed(&self.queries[name], &types).await;
        let statement = prepared.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(statement.params(), types, "{name}");
        statement
    }

    async fn run(&self, client: &Client, name: &str, params: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        let statement = self.prepare(client, name).await;
        client.query(&statement, params).await.unwrap_or_else(|error| panic!("{name}: {error:?}"))
    }
}

#[tokio::test]
async fn every_query_of_the_previous_release_prepares_on_todays_schema() {
    let (database, previous) = (TestDatabase::new().await, Previous::read());
    let raw = database.raw().await;
    assert!(previous.queries.len() > 100);
    for name in previous.queries.keys() {
        previous.prepare(&raw, name).await;
    }
}

/// Names and types of what each query returns.
async fn results(client: &Client, previous: &Previous) -> Vec<String> {
    let mut lines = Vec::new();
    for name in previous.queries.keys() {
        let statement = previous.prepare(client, name).await;
        let columns =
            statement.columns().iter().map(|column| format!("{} {}", column.name(), column.type_()));
        lines.push(format!("{name}: {}", columns.collect::<Vec<_>>().join(", ")));
    }
    lines
}

/// A prepared statement whose result changes is an error for whoever has prepared it: `SELECT *` must not be.
#[tokio::test]
async fn a_new_column_in_every_table_changes_the_result_of_no_query() {
    let (database, previous) = (TestDatabase::new().await, Previous::read());
    let before = results(&database.raw().await, &previous).await;
    let raw = database.raw().await;
    let tables = "SELECT c.relname::text FROM pg_class c
        WHERE c.relnamespace = 'laneway'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition";
    for row in raw.query(tables, &[]).await.unwrap() {
        let table: String = row.get(0);
        raw.batch_execute(&format!("ALTER TABLE laneway.{table} ADD COLUMN tomorrow text")).await.unwrap();
    }
    assert_eq!(results(&database.raw().await, &previous).await, before);
}

fn none<T>() -> Vec<T> {
    Vec::new()
}

/// One flush of a message, as the release before sends it. Returns the offset.
async fn flush(previous: &Previous, client: &Client, partition_id: i64, payload: &str) -> i64 {
    client.batch_execute("BEGIN").await.unwrap();
    previous.run(client, "partitions_lock", &[&vec![partition_id]]).await;
    let (int4, int8, uuid, text) = (none::<i32>(), none::<i64>(), none::<Uuid>(), none::<String>());
    let (bytes, keys, traces) = (vec![payload.len() as i64], none::<Vec<u8>>(), vec![7_i64]);
    let (one, first, payloads) = (vec![1_i32], vec![0_i32], vec![payload.as_bytes().to_vec()]);
    let (partitions, trace_ids) = (vec![partition_id], vec![Uuid::from_u128(7)]);
    let params: [&(dyn ToSql + Sync); 30] = [
        &partitions,
        &one,
        &bytes,
        &int4,
        &uuid,
        &int8,
        &int4,
        &uuid,
        &int8,
        &int8,
        &int8,
        &text,
        &int4,
        &int4,
        &text,
        &int8,
        &one,
        &first,
        &trace_ids,
        &int8,
        &int8,
        &keys,
        &text,
        &text,
        &text,
        &payloads,
        &text,
        &one,
        &one,
        &traces,
    ];
    let rows = previous.run(client, "messages_append", &params).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!((rows.len(), rows[0].get::<_, &str>("kind")), (1, "stored"));
    rows[0].get("place")
}

/// Makes the tables of a partition as the release before does.
async fn make_tables(previous: &Previous, client: &Client, partition_id: i64) {
    client.batch_execute("BEGIN").await.unwrap();
    let partition = [("partition_id", partition_id)];
    client.batch_execute(&filled(&previous.templates["partition_create"], partition)).await.unwrap();
    let (first, end) = (0_i64, 1_000_i64);
    let rows = previous.run(client, "segments_insert", &[&partition_id, &first, &end]).await;
    let integers = [("segment_id", rows[0].get("segment_id")), ("first_offset", first), ("end_offset", end)];
    let sql = filled(&previous.templates["segment_create"], integers.into_iter().chain(partition));
    client.batch_execute(&sql).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_broker_of_the_previous_release_lives_publishes_delivers_and_commits_on_todays_schema() {
    let (database, previous) = (TestDatabase::new().await, Previous::read());
    let today = database.broker();
    let topic = topic(&today, "orders", 2).await;
    let [shared, own] = [topic.partitions[0].0, topic.partitions[1].0];
    today.appender.append(unit(topic.partitions[0], ["of today".into()])).await.unwrap();
    let raw = database.raw().await;
    let (broker, session, ttl_ms) = (Uuid::new_v4(), Uuid::new_v4(), 10_000_i64);
    // It lives.
    assert!(
        previous.run(&raw, "brokers_register", &[&broker, &ttl_ms]).await[0].get::<_, i64>("others") <= 1
    );
    assert_eq!(previous.run(&raw, "brokers_renew", &[&broker, &ttl_ms]).await.len(), 1);
    // It publishes, to tables of today's and to its own; both read it.
    make_tables(&previous, &raw, own).await;
    assert_eq!(flush(&previous, &raw, own, "first").await, 0);
    assert_eq!(flush(&previous, &raw, shared, "of before").await, 1);
    let found = previous.run(&raw, "topics_find", &[&"orders"]).await;
    assert_eq!(found[0].get::<_, Vec<i64>>("partition_ids"), [shared, own]);
    let segments = previous.run(&raw, "segments_list", &[&shared]).await;
    let segment = [("segment_id", segments[0].get::<_, i64>("segment_id"))];
    let read = filled(&previous.templates["segment_read"], segment);
    let messages =
        raw.query_typed(&read, &[(&0_i64, Type::INT8), (&10_i64, Type::INT8), (&1000_i64, Type::INT8)]);
    assert_eq!(messages.await.unwrap().len(), 2);
    let both = crate::harness::produce::all(&today, topic.partitions[0]).await;
    assert_eq!(crate::harness::produce::texts(&both), ["of today", "of before"]);
    // It makes a group, joins it, and gets a lane.
    let (topic_id, partitions) = (topic.topic_id.0, vec![shared, own]);
    let settings: [&(dyn ToSql + Sync); 10] = [
        &topic_id,
        &"billing",
        &60_000_i64,
        &5_i32,
        &500_i64,
        &2.0_f64,
        &60_000_i64,
        &"dead_letter",
        &partitions,
        &vec![Some(0_i64), Some(0)],
    ];
    let group: i64 = previous.run(&raw, "groups_create", &settings).await[0].get("group_id");
    raw.batch_execute("BEGIN").await.unwrap();
    assert_eq!(previous.run(&raw, "brokers_hold", &[&broker]).await.len(), 1);
    previous.run(&raw, "sessions_open", &[&session, &broker, &vec![1_u8; 32]]).await;
    previous.run(&raw, "members_join", &[&group, &session, &"{}"]).await;
    raw.batch_execute("COMMIT").await.unwrap();
    raw.batch_execute("BEGIN").await.unwrap();
    previous.run(&raw, "groups_lock", &[&group]).await;
    assert_eq!(previous.run(&raw, "members_list", &[&group]).await.len(), 1);
    previous.run(&raw, "lanes_want", &[&group, &partitions, &vec![session; 2], &5_000_i64]).await;
    raw.batch_execute("COMMIT").await.unwrap();
    let lanes = previous.run(&raw, "lanes_list", &[&group]).await;
    assert!(lanes.iter().all(|lane| lane.get::<_, bool>("wanted_lives")));
    let (epochs, sessions) = (vec![0_i64; 2], vec![session; 2]);
    let wanted: [&(dyn ToSql + Sync); 5] = [&group, &partitions, &epochs, &sessions, &broker];
    assert_eq!(previous.run(&raw, "lanes_acquire", &wanted).await.len(), 2);
    // It commits under its fence, in the transaction of a flush.
    let fence: [&(dyn ToSql + Sync); 7] = [
        &vec![group],
        &vec![shared],
        &vec![1_i64],
        &vec![session],
        &vec![1_i64],
        &vec![2_i64],
        &vec!["{}".to_owned()],
    ];
    raw.batch_execute("BEGIN").await.unwrap();
    previous.run(&raw, "lanes_lock", &fence[..4]).await;
    let committed = previous.run(&raw, "lane_commits_insert", &fence).await;
    raw.batch_execute("COMMIT").await.unwrap();
    assert_eq!(committed[0].get::<_, &str>("kind"), "stored");
    let at = previous.run(&raw, "lanes_resume_at", &[&group, &partitions, &broker]).await;
    let committed_offset =
        |row: &Row| (row.get::<_, i64>("partition_id"), row.get::<_, i64>("committed_offset"));
    let mut at: Vec<(i64, i64)> = at.iter().map(committed_offset).collect();
    at.sort_unstable();
    assert_eq!(at, [(shared, 2), (own, 0)]);
    // It goes in order.
    raw.batch_execute("BEGIN").await.unwrap();
    previous.run(&raw, "lanes_release", &[&group, &own, &0_i64, &None::<Uuid>]).await;
    raw.batch_execute("COMMIT").await.unwrap();
    previous.run(&raw, "members_leave", &[&group, &session, &broker]).await;
    previous.run(&raw, "sessions_close", &[&session, &broker]).await;
    previous.run(&raw, "brokers_resign", &[&broker]).await;
    assert!(previous.run(&raw, "brokers_renew", &[&broker, &ttl_ms]).await.is_empty(), "its life is over");
    let held = "SELECT count(*) FROM laneway.lane WHERE session_id IS NOT NULL";
    assert_eq!(database.number(held).await, 0);
    today.stop().await;
}
