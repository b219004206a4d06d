//! Database backends are killed in the middle of what they do; the server itself stays up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::database::TestBroker;
use crate::harness::own::OwnServer;
use crate::harness::produce::{topic, topic_of_segments, unit};
use crate::harness::{TestDatabase, wait};
use crate::witness::{Told, assert_in_order, assert_kept, publish_numbered, publish_plainly};

/// Ends the sessions of some part of every broker. Returns how many there were.
async fn terminate(raw: &tokio_postgres::Client, application_name: &str) -> usize {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name LIKE $1 AND pid <> pg_backend_pid()";
    raw.query(sql, &[&application_name]).await.unwrap().len()
}

/// Messages published so far.
async fn published(raw: &tokio_postgres::Client) -> i64 {
    let sql = "SELECT coalesce(sum(next_offset), 0)::bigint
        FROM (SELECT max(next_offset) AS next_offset FROM laneway.head GROUP BY partition_id) AS newest";
    raw.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_goes_on_while_backends_are_killed_and_nothing_confirmed_is_lost() {
    let server = OwnServer::start(&[]).await;
    let broker = TestBroker::start(server.migrated().await);
    let topic = topic_of_segments(&broker, "orders", 4, 1_000).await;
    let enough = Arc::new(AtomicBool::new(false));
    let mut plain = Vec::new();
    let mut numbered = Vec::new();
    for (place, partition_id) in topic.partitions.iter().enumerate() {
        let (broker, enough) = (broker.broker.clone(), enough.clone());
        match place {
            0 | 1 => {
                let task = publish_plainly(broker, *partition_id, format!("p{place}"), enough);
                plain.push((*partition_id, tokio::spawn(task)));
            }
            _ => {
                let task = publish_numbered(broker, *partition_id, format!("n{place}"), enough);
                numbered.push((*partition_id, format!("n{place}"), tokio::spawn(task)));
            }
        }
    }
    let raw = server.raw().await;
    let mut killed = 0;
    // Appenders again and again; everything of the broker once in a while.
    for round in 0..60 {
        let name = if round % 10 == 9 { "laneway%" } else { "laneway appender" };
        let before = published(&raw).await;
        wait::until("a calm moment", async || published(&raw).await > before).await;
        wait::until("somebody to kill", async || {
            let some = terminate(&raw, name).await;
            killed += some;
            some > 0
        })
        .await;
    }
    assert!(killed >= 60);
    enough.store(true, Ordering::Relaxed);
    let mut doubts = 0;
    for (partition_id, task) in plain {
        let told = task.await.unwrap();
        doubts += told.iter().filter(|(_, told)| *told == Told::Unknown).count();
        assert!(told.iter().any(|(_, told)| matches!(told, Told::Stored(_))));
        assert_kept(&broker, partition_id, &told).await;
    }
    assert!(doubts > 0, "no flush was hit: the test proves nothing");
    for (partition_id, name, task) in numbered {
        let counts = task.await.unwrap();
        assert_eq!(counts.unknown, 0, "the broker itself repeats what is in doubt");
        assert_in_order(&broker, partition_id, &name, counts.confirmed).await;
    }
    broker.stop().await;
}

/// Promise 5: an aborted flush stalls nobody.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_publish_after_a_killed_flush_succeeds_within_a_second() {
    let server = OwnServer::start(&[]).await;
    let broker = TestBroker::start(server.migrated().await);
    let topic = topic(&broker, "orders", 1).await;
    let partition_id = topic.partitions[0];
    broker.appender.append(unit(partition_id, ["warm".into()])).await.unwrap();
    let mut raw = server.raw().await;
    let killer = server.raw().await;
    for _ in 0..5 {
        let hold = raw.transaction().await.unwrap();
        hold.execute("SELECT FROM laneway.partition FOR NO KEY UPDATE", &[]).await.unwrap();
        let killed = broker.appender.submit(unit(partition_id, ["killed".into()])).unwrap();
        let waiting = "SELECT FROM pg_stat_activity
            WHERE application_name = 'laneway appender' AND wait_event_type = 'Lock'";
        wait::until("the flush to wait", async || killer.query(waiting, &[]).await.unwrap().len() == 1).await;
        terminate(&killer, "laneway appender").await;
        hold.commit().await.unwrap();
        let died = Instant::now();
        // Whatever was in doubt is said to be, and does not keep the next one waiting.
        assert_eq!(Told::of(&killed.await.unwrap()), Told::Unknown);
        broker.appender.append(unit(partition_id, ["next".into()])).await.unwrap();
        assert!(died.elapsed() < Duration::from_secs(1), "it took {:?}", died.elapsed());
    }
    broker.stop().await;
}

/// Connections that wait in the pool die unnoticed; whoever gets one next must not be told that the database is away.
#[tokio::test]
async fn reads_and_first_publishes_do_not_meet_dead_connections() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 20).await;
    let raw = database.raw().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'laneway%' AND state = 'idle'";
    for partition_id in &topic.partitions {
        // A first publish needs a connection that makes tables, a read one of the pool.
        broker.appender.append(unit(*partition_id, ["m".into()])).await.unwrap();
        assert_eq!(crate::harness::produce::all(&broker, *partition_id).await.len(), 1);
        wait::until("the sessions to be gone", async || {
            raw.query(kill, &[]).await.unwrap(); // again: a chore may have connected meanwhile
            let left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND application_name IN ('laneway', 'laneway upkeep', 'laneway appender') AND state = 'idle'";
            raw.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
    }
}
