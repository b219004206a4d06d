//! A newer broker migrates while an older one runs: the older one goes on, and cannot be started again afterwards.

use std::time::Duration;

use laneway::store::migrate::{MIGRATIONS, Migration};
use laneway_client::wire::Subprotocol;

use crate::harness::process::{laneway, run_command};
use crate::harness::socket::{Socket, make_topic, offsets, text};
use crate::harness::{Server, TestDatabase};

/// What a later release may add: columns to the tables of every path, a table, an index, a view.
const TOMORROW: &str = "
    ALTER TABLE laneway.topic ADD COLUMN tomorrow text;
    ALTER TABLE laneway.partition ADD COLUMN tomorrow bigint NOT NULL DEFAULT 0;
    ALTER TABLE laneway.lane ADD COLUMN tomorrow uuid;
    ALTER TABLE laneway.lane_commit ADD COLUMN tomorrow bigint;
    ALTER TABLE laneway.head ADD COLUMN tomorrow bigint;
    ALTER TABLE laneway.broker ADD COLUMN tomorrow text;
    ALTER TABLE laneway.session ADD COLUMN tomorrow text;
    ALTER TABLE laneway.member ADD COLUMN tomorrow text;
    ALTER TABLE laneway.consumer_group ADD COLUMN tomorrow text;
    CREATE TABLE laneway.tomorrow (tomorrow_id bigint PRIMARY KEY);
    CREATE INDEX session_tomorrow ON laneway.session (tomorrow);
    CREATE VIEW laneway.tomorrows AS SELECT * FROM laneway.tomorrow";

fn with_tomorrow() -> Vec<Migration> {
    let mut migrations = MIGRATIONS.to_vec();
    let version = migrations.last().unwrap().version + 1;
    migrations.push(Migration { version, name: "9999_add_tomorrow", sql: TOMORROW });
    migrations
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_run_go_on_while_a_newer_one_migrates_and_nothing_is_refused() {
    let database = TestDatabase::new().await;
    let mut servers = [Server::on_database(&database.url).await, Server::on_database(&database.url).await];
    make_topic(&servers[0].address, "orders", 1).await;
    let mut producer = Socket::connect(&servers[0].address, Subprotocol::MessagePack).await;
    let mut consumer = Socket::connect(&servers[1].address, Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    consumer.granted().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let publishing = tokio::spawn(async move {
        let (mut count, mut stopped) = (0_usize, stopped);
        // `publish` panics at any error.
        while stopped.try_recv().is_err() {
            producer.publish("orders", vec![text(format!("m{count}"))]).await;
            count += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        count
    });
    let mut next = 0;
    let migrations = with_tomorrow();
    let store = database.store();
    let mut migrating = Some(tokio::spawn(async move { store.migrate_with(&migrations).await }));
    // Until a good deal was delivered and committed after the migration.
    let (mut migrated_at, mut stop) = (None, Some(stop));
    let mut published = None;
    let mut publishing = Some(publishing);
    while published.is_none_or(|count| next < count as i64) {
        let batch = consumer.batch().await;
        assert_eq!(offsets(&batch)[0], next, "nothing is lost, nothing comes twice");
        next += batch.messages.len() as i64;
        assert_eq!(consumer.ack_below(&batch, next).await.unwrap(), next);
        if let Some(done) = migrating.take_if(|migrating| migrating.is_finished()) {
            done.await.unwrap().unwrap();
            migrated_at = Some(next);
        }
        if migrated_at.is_some_and(|at| next > at + 100)
            && let (Some(stop), Some(publishing)) = (stop.take(), publishing.take())
        {
            stop.send(()).unwrap();
            published = Some(publishing.await.unwrap());
        }
    }
    // What begins now, on connections of before and on new ones.
    make_topic(&servers[0].address, "later", 2).await;
    let mut late = Socket::connect(&servers[1].address, Subprotocol::Json).await;
    late.subscribe("shipping", "orders").await;
    assert_eq!(late.granted().await.committed_offset, 0);
    late.close().await;
    consumer.close().await;
    for server in &mut servers {
        let unexpected = |line: &String| line.contains("does not expect") || line.contains("cached plan");
        assert_eq!(server.log().into_iter().find(unexpected), None);
        assert_eq!(server.stop().await, 0);
    }
}

/// Everybody else waits behind a migration that waits for a table, so it must not wait long.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_waits_for_somebody_elses_transaction_holds_up_no_publish() {
    let database = TestDatabase::new().await;
    let mut server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", 1).await;
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    producer.publish("orders", vec![text("first")]).await;
    let mut foreign = database.raw().await;
    let held = foreign.transaction().await.unwrap();
    held.query("SELECT FROM laneway.partition", &[]).await.unwrap();
    let (store, migrations) = (database.store(), with_tomorrow());
    let migrating = tokio::spawn(async move { store.migrate_with(&migrations).await });
    let since = std::time::Instant::now();
    let mut slowest = Duration::ZERO;
    while since.elapsed() < Duration::from_secs(2) {
        let began = std::time::Instant::now();
        producer.publish("orders", vec![text("meanwhile")]).await;
        slowest = slowest.max(began.elapsed());
    }
    assert!(!migrating.is_finished(), "the table is still in use");
    assert!(slowest < Duration::from_secs(1), "a publish took {slowest:?}");
    held.rollback().await.unwrap();
    migrating.await.unwrap().unwrap();
    producer.publish("orders", vec![text("last")]).await;
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn a_broker_that_is_too_old_for_the_schema_refuses_to_start_with_a_sentence() {
    let database = TestDatabase::new().await;
    database.store().migrate_with(&with_tomorrow()).await.unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--database-url", &database.url];
    let said = run_command(laneway().args(args)).await;
    let known = MIGRATIONS.last().unwrap().version;
    let sentence = format!(
        "laneway: the schema of this database is at version {}, and this laneway knows versions up to {known}: run a newer laneway",
        known + 1
    );
    assert_eq!((said.code, said.stderr.lines().last()), (1, Some(sentence.as_str())), "{}", said.stderr);
    assert_eq!(database.number("SELECT count(*) FROM laneway.broker").await, 0, "it never began to live");
}
