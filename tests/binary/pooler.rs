//! Behind a transaction pooler: unnamed statements, `SET LOCAL`, no LISTEN, and everything else as ever.

use std::time::Duration;

use laneway::broker::appender::Duplicate;
use laneway::ids::{Offset, ProducerId};
use laneway::store::{DatabaseSettings, StatementMode, Store};
use laneway_client::topic::CreateTopic;
use serde_json::json;
use tokio::task::JoinSet;

use crate::bouncer::{Bouncer, SERVER_CONNECTIONS};
use crate::dead_letters::give_up;
use crate::harness::database::TestBroker;
use crate::harness::produce::{all, named, numbered, texts, unit};
use crate::harness::{Server, TestDatabase, process, wait};
use crate::topic_delete::swept;
use crate::web::{Web, text};

fn through(bouncer: &Bouncer, database: &TestDatabase) -> DatabaseSettings {
    let url = bouncer.url(&database.name);
    DatabaseSettings { statements: StatementMode::Unnamed, appenders: 3, ..DatabaseSettings::new(url) }
}

/// Every connection that the server has belongs to the pooler: there are no more than it may open.
async fn assert_only_the_pooler_is_connected(database: &TestDatabase) {
    let others = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let connections = database.number(others).await;
    assert!((1..=SERVER_CONNECTIONS).contains(&connections), "{connections} connections");
}

#[tokio::test]
async fn a_broker_serves_through_a_transaction_pooler() {
    let database = TestDatabase::empty().await;
    let Some(bouncer) = Bouncer::before(&database).await else { return };
    let url = bouncer.url(&database.name);
    let args = ["--no-prepared-statements", "--database-url", &url];
    let mut server = Server::start(&args).await;
    let web = Web::new(&server);
    web.create(json!({"name": "orders", "partitions": 4, "segment_messages": 50})).await;
    let message =
        |n: usize| json!({"payload": format!("m{n}"), "partition": n % 4, "transaction_id": format!("t{n}")});
    for round in 0..10 {
        let results =
            web.publish("orders", (round * 40..(round + 1) * 40).map(message).collect()).await.results;
        assert!(results.iter().all(|result| result.offset.is_some() && !result.duplicate));
    }
    let again = web.publish("orders", (0..40).map(message).collect()).await.results;
    assert!(again.iter().all(|result| result.duplicate && result.offset.is_some()));
    assert_only_the_pooler_is_connected(&database).await;
    let doctor = process::run(&["doctor", "--json", "--database-url", &url, "--url", &server.url("")]).await;
    let found: serde_json::Value = serde_json::from_str(&doctor.stdout).unwrap();
    for check in ["database", "permissions", "schema", "tables", "ready"] {
        let one = found["findings"].as_array().unwrap().iter().find(|one| one["check"] == check);
        assert_eq!(one.unwrap()["verdict"], "ok", "{found:#}");
    }
    assert_eq!(server.stop().await, 0);

    let mut server = Server::start(&args).await;
    let web = Web::new(&server);
    assert_eq!(web.get("/readyz").await.body, "ready\n");
    for partition in 0..4 {
        let stored: Vec<_> = web.all("orders", partition).await.iter().map(text).collect();
        let expected = (0..400).filter(|n| n % 4 == partition as usize).map(|n| format!("m{n}"));
        assert_eq!(stored, expected.collect::<Vec<_>>());
    }
    assert_eq!(server.stop().await, 0);
    assert!(!server.log().iter().any(|line| line.contains("\"ERROR\"")), "{:#?}", server.log());
    assert!(bouncer.transactions(&database.name).await > 20);
    bouncer.stop().await;
}

#[tokio::test]
async fn without_the_flag_a_pooler_is_named_as_the_likely_cause() {
    let database = TestDatabase::new().await;
    let Some(bouncer) = Bouncer::before(&database).await else { return };
    let url = bouncer.url(&database.name);
    let said = process::run(&["serve", "--listen", "127.0.0.1:0", "--database-url", &url]).await;
    assert_eq!(said.code, 1, "{}", said.stderr);
    let sentence = said.stderr.lines().last().unwrap();
    assert!(sentence.contains("--no-prepared-statements"), "{sentence}");
    bouncer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_share_a_pooler_and_keep_order_units_and_duplicates_apart() {
    let database = TestDatabase::new().await;
    let Some(bouncer) = Bouncer::before(&database).await else { return };
    let start = || TestBroker::start(Store::new(through(&bouncer, &database)).unwrap());
    let (one, two) = (start(), start());
    let request = CreateTopic { segment_messages: Some(60), ..CreateTopic::new("orders", 6) };
    let topic = one.topics.create(&request).await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..12 {
        let appender = if writer % 2 == 0 { one.appender.clone() } else { two.appender.clone() };
        let partition = topic.partitions[writer % 6];
        writers.spawn(async move {
            let producer = ProducerId(uuid::Uuid::new_v4());
            for round in 0..20 {
                let values = (0..5).map(|place| format!("{writer}-{round}-{place}"));
                appender.append(numbered(partition, producer, round * 5, values)).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    for (number, partition) in topic.partitions.iter().enumerate() {
        let stored = texts(&all(&one, *partition).await);
        assert_eq!(stored.len(), 200); // more than three segments
        for writer in [number, number + 6] {
            let own = stored.iter().filter(|value| value.starts_with(&format!("{writer}-")));
            let sent = (0..20).flat_map(|round| (0..5).map(move |place| format!("{writer}-{round}-{place}")));
            assert!(own.eq(&sent.collect::<Vec<_>>()), "the order of writer {writer}");
        }
    }
    // The same message through either broker is one message.
    let first = one.appender.append(named(topic.partitions[0], "t-1", "a")).await.unwrap();
    let second = two.appender.append(named(topic.partitions[0], "t-1", "b")).await.unwrap();
    assert_eq!(first.first_offset, Some(Offset(200)));
    assert_eq!(second.duplicates, vec![Duplicate { index: 0, offset: Some(Offset(200)) }]);
    // A topic that grows on one broker is seen by the other without LISTEN, by looking again.
    let name = laneway_client::TopicName::new("orders").unwrap();
    two.topics.find(&name).await.unwrap();
    one.topics.grow(&name, 7).await.unwrap();
    wait::until("the other broker to see it", async || {
        two.topics.find(&name).await.unwrap().partitions.len() == 7
    })
    .await;
    assert_only_the_pooler_is_connected(&database).await;
    one.stop().await;
    two.stop().await;
    bouncer.stop().await;
}

#[tokio::test]
async fn retention_and_timeouts_work_through_a_pooler() {
    let database = TestDatabase::new().await;
    let Some(bouncer) = Bouncer::before(&database).await else { return };
    let settings = DatabaseSettings {
        statement_timeout: Duration::from_millis(300),
        lock_timeout: Duration::from_secs(20),
        ..through(&bouncer, &database)
    };
    let broker = TestBroker::start(Store::new(settings).unwrap());
    let request =
        CreateTopic { segment_messages: Some(16), retention_bytes: Some(1), ..CreateTopic::new("brief", 1) };
    let topic = broker.topics.create(&request).await.unwrap();
    let partition = topic.partitions[0];
    for number in 0..10 {
        broker.appender.append(unit(partition, (0..4).map(|n| format!("m{number}-{n}")))).await.unwrap();
    }
    broker.store.segments_seal(partition).await.unwrap();
    broker.store.retention_pass().await.unwrap();
    let stands = broker.store.partitions_describe(topic.topic_id).await.unwrap();
    assert_eq!((stands[0].start_offset, stands[0].next_offset), (Offset(32), Offset(40)));
    let tables = "SELECT count(*) FROM laneway.segment";
    wait::until("the dropped segments to be gone", async || database.number(tables).await <= 2).await;

    // A statement that waits too long is ended by the server, on whichever connection it runs.
    let mut raw = database.raw().await;
    let hold = raw.transaction().await.unwrap();
    let taken = "INSERT INTO laneway.topic (name, payload_bytes_max, segment_messages, dedup_window_ms)
        VALUES ('taken', 1, 16, 1)";
    hold.execute(taken, &[]).await.unwrap();
    let error = broker.topics.create(&CreateTopic::new("taken", 1)).await.unwrap_err();
    assert!(error.to_string().contains("statement timeout (57014)"), "{error}");
    hold.rollback().await.unwrap();
    broker.topics.create(&CreateTopic::new("taken", 1)).await.unwrap();
    // And nothing of it stays behind for the next user of the connection.
    let session = laneway::store::Target::parse(&bouncer.url(&database.name)).unwrap();
    let session = session.connect().await.unwrap();
    for _ in 0..SERVER_CONNECTIONS * 3 {
        let rows = session.simple_query("SHOW statement_timeout").await.unwrap();
        let value = rows.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        assert_eq!(value.as_deref(), Some("0"));
    }
    broker.stop().await;
    bouncer.stop().await;
}

#[tokio::test]
async fn a_dead_letter_is_replayed_and_a_topic_deleted_and_swept_through_a_pooler() {
    let database = TestDatabase::new().await;
    let Some(bouncer) = Bouncer::before(&database).await else { return };
    let url = bouncer.url(&database.name);
    let mut server = Server::start(&["--no-prepared-statements", "--database-url", &url]).await;
    let web = Web::new(&server);
    web.create(json!({"name": "orders", "segment_messages": 16})).await;
    web.publish("orders", (0..16).map(|n| json!({"payload": format!("m{n}")})).collect()).await;
    let id = give_up(&database, "orders", "mail", 0, 3).await;
    let replay = || web.send(web.http.post(web.url(&format!("/v1/dead-letters/{id}/replay"))));
    assert_eq!(replay().await.json::<serde_json::Value>(), json!({"partition": 0, "offset": 16}));
    assert_eq!(replay().await.status, 404);
    assert_eq!(text(&web.all("orders", 0).await[16]), "m3");
    assert_eq!(web.delete("/v1/topics/orders").await.status, 204);
    assert_eq!(web.get("/v1/topics/orders").await.status, 404);
    swept(&database).await;
    assert_eq!(database.number("SELECT count(*) FROM laneway.topic").await, 0);
    assert_only_the_pooler_is_connected(&database).await;
    assert_eq!(server.stop().await, 0);
    assert!(!server.log().iter().any(|line| line.contains("failed")), "{:#?}", server.log());
    bouncer.stop().await;
}
