//! PostgreSQL is killed and recovers while messages are being published.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use laneway::broker::Broker;
use laneway::ids::{Offset, PartitionId, ProducerId};
use uuid::Uuid;

use crate::harness::database::TestBroker;
use crate::harness::own::OwnServer;
use crate::harness::produce::{all, numbered, texts, topic, topic_of_segments, unit};
use crate::harness::wait;
use crate::witness::{assert_in_order, assert_kept, publish_numbered, publish_plainly};

/// Waits until a partition has grown by some messages: the database works again.
async fn progress(broker: &Broker, partition_id: PartitionId, messages: i64) {
    let next = async || {
        let read =
            broker.reader.read_back(partition_id, Offset(i64::MAX), crate::harness::produce::ALL).await;
        read.ok().map(|messages| messages.first().map_or(0, |newest| newest.offset.0 + 1))
    };
    let mut goal = None;
    wait::until("publishing to go on", async || match (next().await, goal) {
        (Some(now), None) => {
            goal = Some(now + messages);
            false
        }
        (Some(now), Some(goal)) => now >= goal,
        (None, _) => false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_killed_again_and_again_loses_nothing_that_was_confirmed() {
    let server = OwnServer::start(&[]).await;
    let broker = TestBroker::start(server.migrated().await);
    // Short segments: tables are being made when it dies, too.
    let topic = topic_of_segments(&broker, "orders", 3, 500).await;
    let enough = Arc::new(AtomicBool::new(false));
    let mut numbered = Vec::new();
    for (place, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let partition_id = topic.partitions[place % 2];
        let task = publish_numbered(broker.broker.clone(), partition_id, name.to_owned(), enough.clone());
        numbered.push((partition_id, name, tokio::spawn(task)));
    }
    let mut plain = Vec::new();
    for name in ["x", "y"] {
        let task =
            publish_plainly(broker.broker.clone(), topic.partitions[2], name.to_owned(), enough.clone());
        plain.push(tokio::spawn(task));
    }
    for _ in 0..3 {
        progress(&broker, topic.partitions[0], 100).await;
        server.crash().await;
    }
    progress(&broker, topic.partitions[0], 100).await;
    enough.store(true, Ordering::Relaxed);
    for (partition_id, name, task) in numbered {
        let counts = task.await.unwrap();
        assert_eq!(counts.unknown, 0, "the broker itself repeats what is in doubt");
        assert_in_order(&broker, partition_id, name, counts.confirmed).await;
    }
    let mut told = Vec::new();
    for task in plain {
        told.extend(task.await.unwrap());
    }
    assert_kept(&broker, topic.partitions[2], &told).await;
    broker.stop().await;
}

/// The one flush that is certainly under way when the server dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_numbered_unit_that_is_in_mid_flush_when_the_database_dies_is_stored_once_by_the_broker_itself() {
    let server = OwnServer::start(&[]).await;
    let broker = TestBroker::start(server.migrated().await);
    let topic = topic(&broker, "orders", 1).await;
    let partition_id = topic.partitions[0];
    let producer = ProducerId(Uuid::new_v4());
    let unit = |number: usize| numbered(partition_id, producer, number as i64, [format!("m{number}")]);
    broker.appender.append(unit(0)).await.unwrap();
    let mut raw = server.raw().await;
    let hold = raw.transaction().await.unwrap();
    hold.execute("SELECT FROM laneway.partition FOR NO KEY UPDATE", &[]).await.unwrap();
    let answers = [broker.appender.submit(unit(1)).unwrap(), broker.appender.submit(unit(2)).unwrap()];
    let observer = server.raw().await;
    let waiting = "SELECT FROM pg_stat_activity
        WHERE application_name = 'laneway appender' AND wait_event_type = 'Lock'";
    wait::until("the flush to wait", async || observer.query(waiting, &[]).await.unwrap().len() == 1).await;
    server.crash().await;
    for (number, answer) in answers.into_iter().enumerate() {
        let receipt = answer.await.unwrap().unwrap();
        assert_eq!(receipt.offsets(1), [Some(Offset(number as i64 + 1))]);
    }
    assert_eq!(texts(&all(&broker, partition_id).await), ["m0", "m1", "m2"]);
    broker.stop().await;
}

/// What was confirmed must not depend on anything that was still in memory.
#[tokio::test]
async fn what_was_confirmed_a_moment_before_the_crash_is_there_after_it() {
    let server = OwnServer::start(&[]).await;
    let store = server.migrated().await;
    let broker = TestBroker::start(store);
    let topic = topic(&broker, "orders", 1).await;
    for round in 0..2 {
        for number in 0..20 {
            let text = format!("{round}-{number}");
            wait::until("the database to be back", async || {
                broker.appender.append(unit(topic.partitions[0], [text.clone()])).await.is_ok()
            })
            .await;
        }
        server.crash().await;
        let expected: Vec<String> =
            (0..=round).flat_map(|round| (0..20).map(move |number| format!("{round}-{number}"))).collect();
        assert_eq!(texts(&all(&broker, topic.partitions[0]).await), expected);
    }
    broker.stop().await;
}

/// Notes what commits that change a partition wait for.
const NOTE_COMMITS: &str = "
    CREATE TABLE public.noted (waits_for text);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO public.noted VALUES (current_setting('synchronous_commit')); RETURN NULL; END
    $$;
    CREATE CONSTRAINT TRIGGER noted AFTER UPDATE ON laneway.partition DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.note();";

/// What was purged must not come back: whoever has asked for it was told that it is for good.
#[tokio::test]
async fn what_was_purged_a_moment_before_the_crash_stays_purged() {
    // Nobody else writes the log out.
    let server = OwnServer::start(&[("wal_writer_delay", "10s")]).await;
    let store = server.migrated().await;
    let broker = TestBroker::start(store.clone());
    let topic = topic(&broker, "orders", 1).await;
    let partition_id = topic.partitions[0];
    broker.appender.append(unit(partition_id, (0..3).map(|number| format!("m{number}")))).await.unwrap();
    broker.stop().await;
    let raw = server.raw().await;
    raw.batch_execute(NOTE_COMMITS).await.unwrap();
    // Not even where somebody has told the database not to wait.
    raw.batch_execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$",
    )
    .await
    .unwrap();
    drop(store);
    let store = server.store();
    let purged = store.partitions_purge(&[(partition_id, None)]).await.unwrap();
    assert_eq!((purged[0].from, purged[0].to), (Offset(0), Offset(3)));
    server.crash().await;
    let noted = server.raw().await.query("SELECT waits_for FROM public.noted", &[]).await.unwrap();
    assert_eq!(noted.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["on"]);
    let store = server.store();
    let counted = store.partitions_count(topic.topic_id, -1, 1).await.unwrap();
    assert_eq!((counted[0].start_offset, counted[0].next_offset), (Offset(3), Offset(3)));
}
