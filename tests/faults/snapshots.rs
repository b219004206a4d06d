//! Promise 6: a foreign transaction that holds an old snapshot is harmless.

use std::time::{Duration, Instant};

use laneway::broker::Broker;
use laneway::ids::PartitionId;
use tokio_postgres::SimpleQueryMessage;

use crate::harness::database::TestBroker;
use crate::harness::member::{TestMember, offsets};
use crate::harness::own::OwnServer;
use crate::harness::produce::{topic, unit};
use crate::harness::wait;

/// How long the foreign transaction lives.
const HELD: Duration = Duration::from_secs(30);
/// One measurement.
const SLICE: Duration = Duration::from_secs(10);
/// Of the rate without it.
const KEPT_MIN: f64 = 0.9;
/// A noisy neighbour can spoil a measurement, a defect spoils all of them.
const TRIES: usize = 3;

/// Single-message flushes, one after the other, for some time. Returns how many per second.
async fn flushes_per_second(broker: &Broker, partition_id: PartitionId, time: Duration) -> f64 {
    let started = Instant::now();
    let mut flushes = 0_u32;
    while started.elapsed() < time {
        broker.appender.append(unit(partition_id, ["m".into()])).await.unwrap();
        flushes += 1;
    }
    f64::from(flushes) / started.elapsed().as_secs_f64()
}

/// The rate at the end of a long foreign snapshot, relative to the rate without one before and after it.
async fn rate_kept(server: &OwnServer, broker: &Broker, partition_id: PartitionId) -> f64 {
    let before = flushes_per_second(broker, partition_id, SLICE).await;
    let mut holder = server.raw().await;
    let hold = holder.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let hold = hold.start().await.unwrap();
    hold.query("SELECT count(*) FROM laneway.head", &[]).await.unwrap();
    flushes_per_second(broker, partition_id, HELD - SLICE).await;
    let during = flushes_per_second(broker, partition_id, SLICE).await;
    let touched = newest_head_buffers(server, partition_id).await;
    assert!(touched <= 16, "the newest head is {touched} buffers away while the snapshot is held");
    hold.rollback().await.unwrap();
    let after = flushes_per_second(broker, partition_id, SLICE).await;
    eprintln!("flushes/s: {before:.0} before, {during:.0} during, {after:.0} after");
    during / ((before + after) / 2.0)
}

/// Buffers that finding the newest head touches; asserts that it is an index scan.
async fn newest_head_buffers(server: &OwnServer, partition_id: PartitionId) -> i64 {
    let sql = format!(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT next_offset, bytes_total, published_at FROM laneway.head
         WHERE partition_id = {partition_id} ORDER BY published_at DESC, next_offset DESC LIMIT 1"
    );
    let plan = explained(server, &sql).await;
    assert_eq!(plan["Plans"][0]["Node Type"], "Index Scan", "{plan}");
    buffers(&plan)
}

/// The plan of a query that was run.
async fn explained(server: &OwnServer, sql: &str) -> serde_json::Value {
    let answer = server.raw().await.simple_query(sql).await.unwrap();
    let text = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let mut plan: serde_json::Value = serde_json::from_str(text.unwrap()).unwrap();
    plan[0]["Plan"].take()
}

fn buffers(plan: &serde_json::Value) -> i64 {
    plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
}

/// Vacuums a table once, when nobody has a snapshot any more, and asserts that nothing dead is left in it.
async fn assert_clean_after_one_vacuum(server: &OwnServer, table: &str) {
    let raw = server.raw().await;
    let snapshots = "SELECT FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()";
    wait::until("the snapshots to go", async || raw.query(snapshots, &[]).await.unwrap().is_empty()).await;
    raw.batch_execute(&format!("VACUUM laneway.{table}")).await.unwrap();
    let dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'laneway' AND relname = $1";
    wait::until("the statistics to say so", async || {
        raw.query_one(dead, &[&table]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_foreign_snapshot_of_half_a_minute_costs_no_throughput_and_leaves_nothing_behind() {
    let server = OwnServer::start(&[]).await;
    let broker = TestBroker::start(server.migrated().await);
    let topic = topic(&broker, "orders", 1).await;
    let partition_id = topic.partitions[0];
    flushes_per_second(&broker, partition_id, Duration::from_secs(1)).await;
    let mut kept = 0.0;
    for _ in 0..TRIES {
        kept = rate_kept(&server, &broker, partition_id).await;
        if kept >= KEPT_MIN {
            break;
        }
    }
    assert!(kept >= KEPT_MIN, "with a foreign snapshot {:.0} % of the flushes are left", kept * 100.0);
    broker.stop().await;
    for table in ["head", "partition"] {
        assert_clean_after_one_vacuum(&server, table).await;
    }
    let buffers = newest_head_buffers(&server, partition_id).await;
    assert!(buffers <= 8, "the newest head is {buffers} buffers away");
}

/// Buffers that finding the newest commit of a lane touches.
async fn newest_commit_buffers(server: &OwnServer) -> i64 {
    let sql =
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT committed_offset, acked FROM laneway.lane_commit
        WHERE (group_id, partition_id) = (SELECT group_id, partition_id FROM laneway.lane)
        ORDER BY epoch DESC, number DESC LIMIT 1";
    buffers(&explained(server, sql).await)
}

/// Both kinds of holders at once: one that has written and does nothing more, one that looks at an old snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn idle_writers_and_old_snapshots_leave_lookups_short_and_one_vacuum_cleans_up() {
    const FLUSHES: i64 = 800;
    let server = OwnServer::start(&[("fsync", "off")]).await;
    let broker = TestBroker::start(server.migrated().await);
    let topic = topic(&broker, "orders", 1).await;
    let partition_id = topic.partitions[0];
    let mut member = TestMember::join(&broker, "billing", "orders").await;
    member.granted().await;
    let (mut writer, mut reader) = (server.raw().await, server.raw().await);
    let idle = writer.transaction().await.unwrap();
    idle.batch_execute("CREATE TABLE foreign_work AS SELECT 1").await.unwrap();
    let old = reader.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let old = old.start().await.unwrap();
    old.query("SELECT count(*) FROM laneway.lane_commit", &[]).await.unwrap();
    for number in 0..FLUSHES {
        broker.appender.append(unit(partition_id, ["m".into()])).await.unwrap();
        let batch = member.batch().await;
        assert_eq!(offsets(&batch), [number]);
        member.ack(&batch, Some(number + 1), &[], Some(number as u64 + 1)).await;
        assert_eq!(member.confirmed(number as u64 + 1).await, number + 1);
    }
    let (head, commit) =
        (newest_head_buffers(&server, partition_id).await, newest_commit_buffers(&server).await);
    assert!(head <= 16 && commit <= 16, "the newest head is {head} buffers away, the newest commit {commit}");
    idle.rollback().await.unwrap();
    old.rollback().await.unwrap();
    drop(member);
    broker.stop().await;
    for table in ["head", "partition", "lane", "lane_commit", "broker", "session"] {
        assert_clean_after_one_vacuum(&server, table).await;
    }
}
