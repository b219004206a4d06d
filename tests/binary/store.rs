//! What the store owes its callers when connections are scarce, slow, ended by the server, or another broker's.

use std::time::{Duration, Instant};

use laneway::limits::APPENDER_STALL_TIMEOUT;
use laneway::store::listen::{Hint, Hints};
use laneway::store::topics::{Created, TopicSettings};
use laneway::store::{DatabaseSettings, Error, Role, Store};
use laneway_client::TopicName;
use laneway_client::topic::CreateTopic;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

use crate::harness::{TestDatabase, wait};

/// Sooner than a topic that is remembered is looked up anyway.
const BEFORE_ANY_POLL: Duration = Duration::from_secs(4);

fn name(name: &str) -> TopicName {
    TopicName::new(name).unwrap()
}

async fn create(store: &Store, topic: &str) -> Result<Created, Error> {
    store.topics_create(&name(topic), 1, &TopicSettings::default()).await
}

async fn hint(hints: &mut Receiver<Hint>) -> Hint {
    tokio::time::timeout(wait::PATIENCE, hints.recv()).await.expect("a hint comes").unwrap()
}

/// Ends the connections of this test's database that bear a name. Returns how many there were.
async fn terminate(database: &TestDatabase, application_name: &str) -> i64 {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = '{application_name}'"
    );
    database.number(&sql).await
}

#[tokio::test]
async fn a_pool_that_is_busy_is_unavailable_after_the_time_that_was_set() {
    let database = TestDatabase::new().await;
    let timeout = Duration::from_millis(300);
    let settings = DatabaseSettings { pool_size: 2, acquire_timeout: timeout, ..database.settings() };
    let store = Store::new(settings).unwrap();
    let held = (store.connection().await.unwrap(), store.connection().await.unwrap());
    let began = Instant::now();
    let error = store.ping().await.unwrap_err();
    assert!(began.elapsed() >= timeout && began.elapsed() < BEFORE_ANY_POLL, "{:?}", began.elapsed());
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the database is unavailable: every connection of the pool was busy for 300ms (see --pool-size)"
    );
    drop(held);
    store.ping().await.unwrap();
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_ended_and_nothing_happened() {
    let database = TestDatabase::new().await;
    let statement_timeout = Duration::from_millis(300);
    let slow = DatabaseSettings { statement_timeout, lock_timeout: wait::PATIENCE, ..database.settings() };
    let lock_timeout = Duration::from_millis(50);
    let impatient = DatabaseSettings { lock_timeout, ..database.settings() };
    let (slow, impatient) = (Store::new(slow).unwrap(), Store::new(impatient).unwrap());
    let mut raw = database.raw().await;
    let hold = raw.transaction().await.unwrap();
    // A name that somebody is about to take makes everybody else wait for him.
    let taken = "INSERT INTO laneway.topic (name, payload_bytes_max, segment_messages, dedup_window_ms)
        VALUES ('orders', 1, 16, 1)";
    hold.execute(taken, &[]).await.unwrap();
    let began = Instant::now();
    match create(&slow, "orders").await.unwrap_err() {
        Error::Unavailable { reason } => assert!(reason.contains("statement timeout (57014)"), "{reason}"),
        error => panic!("{error:?}"),
    }
    assert!(began.elapsed() >= statement_timeout);
    match create(&impatient, "orders").await.unwrap_err() {
        Error::Contended { sqlstate, .. } => assert_eq!(sqlstate, "55P03"),
        error => panic!("{error:?}"),
    }
    hold.rollback().await.unwrap();
    assert!(matches!(create(&slow, "orders").await, Ok(Created::Made(_))));
    assert_eq!(create(&impatient, "orders").await, Ok(Created::Exists));
}

#[tokio::test]
async fn whoever_freezes_in_a_transaction_is_ended_by_the_server_after_a_second_but_not_upkeep() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let mut appender = store.dedicated(Role::Appender).await.unwrap();
    let mut pool = store.dedicated(Role::Pool).await.unwrap();
    let mut upkeep = store.dedicated(Role::Upkeep).await.unwrap();
    let idle = async |application_name: &str| {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND application_name = '{application_name}' AND state = 'idle in transaction'"
        );
        database.number(&sql).await
    };
    let began = Instant::now();
    let vacuum = upkeep.begin().await.unwrap();
    let transactions = [appender.begin().await.unwrap(), pool.begin().await.unwrap()];
    assert_eq!((idle("laneway appender").await, idle("laneway").await), (1, 1));
    wait::until("the server to end both", async || {
        idle("laneway appender").await + idle("laneway").await == 0
    })
    .await;
    assert!(began.elapsed() >= APPENDER_STALL_TIMEOUT, "{:?}", began.elapsed());
    for transaction in transactions {
        let error = transaction.commit().await.unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. } | Error::Unavailable { .. }), "{error:?}");
    }
    vacuum.commit().await.unwrap();
}

#[tokio::test]
async fn connections_that_the_server_has_ended_are_not_handed_out_again() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(store.connection().await.unwrap());
    }
    drop(held);
    assert_eq!(terminate(&database, "laneway").await, 5);
    let left = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'laneway'";
    wait::until("the connections to be gone", async || database.number(left).await == 0).await;
    for number in 0..10 {
        store.ping().await.unwrap_or_else(|error| panic!("request {number}: {error}"));
    }
}

#[tokio::test]
async fn listen_comes_back_after_its_connection_and_says_that_anything_may_have_changed() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.store(), database.store());
    let stop = CancellationToken::new();
    let source = Hints::new();
    let mut hints = source.subscribe();
    let listening = tokio::spawn(source.listen(here, stop.clone()));
    assert_eq!(hint(&mut hints).await, Hint::Everything);
    create(&there, "first").await.unwrap();
    assert_eq!(hint(&mut hints).await, Hint::Topics);
    assert_eq!(terminate(&database, "laneway listen").await, 1);
    assert_eq!(hint(&mut hints).await, Hint::Everything);
    create(&there, "second").await.unwrap();
    assert_eq!(hint(&mut hints).await, Hint::Topics);
    stop.cancel();
    listening.await.unwrap();
}

#[tokio::test]
async fn a_topic_that_another_broker_makes_or_grows_is_seen_by_hint() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.broker(), database.broker());
    let orders = name("orders");
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'laneway listen' AND state = 'idle' AND query = 'LISTEN laneway'";
    wait::until("both brokers to listen", async || database.number(listening).await == 2).await;
    assert!(here.topics.find(&orders).await.is_err());
    there.topics.create(&CreateTopic::new("orders", 2)).await.unwrap();
    // What is not known is always looked up.
    assert_eq!(here.topics.find(&orders).await.unwrap().partitions.len(), 2);
    for partitions in [3, 4] {
        there.topics.grow(&orders, partitions).await.unwrap();
        wait::until_within(BEFORE_ANY_POLL, "the growth to be seen", async || {
            here.topics.find(&orders).await.unwrap().partitions.len() == partitions as usize
        })
        .await;
    }
    here.stop().await;
    there.stop().await;
}
