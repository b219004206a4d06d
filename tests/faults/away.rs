//! PostgreSQL is away: at the start, and while messages come. Everything resumes by itself.

use std::time::{Duration, Instant};

use laneway::broker::appender::AppendError;
use laneway::broker::reader::ReadError;
use laneway::ids::Offset;
use laneway::postgres::StopMode;
use laneway::store::Error;

use crate::harness::database::TestBroker;
use crate::harness::own::OwnServer;
use crate::harness::produce::{ALL, all, texts, topic, unit};
use crate::harness::wait;

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_waits_for_a_database_that_comes_later_and_resumes_when_it_goes_and_returns() {
    let server = OwnServer::prepare(&[]).await;
    let store = server.store();
    // At the start.
    let reason = store.dedicated(laneway::store::Role::Pool).await.unwrap_err();
    assert!(matches!(reason, Error::Unavailable { .. }), "{reason:?}");
    let brief = tokio::time::timeout(Duration::from_millis(500), store.wait_until_reachable()).await;
    assert!(brief.is_err(), "nobody answers yet");
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_until_reachable().await }
    });
    server.cluster.start().await.unwrap();
    waiting.await.unwrap().unwrap();
    store.migrate().await.unwrap();
    let broker = TestBroker::start(store);
    let topic = topic(&broker, "orders", 2).await;
    let partition_id = topic.partitions[0];
    broker.appender.append(unit(partition_id, ["before".into()])).await.unwrap();
    for round in 0..2 {
        server.cluster.stop(StopMode::Fast).await.unwrap();
        for _ in 0..3 {
            let since = Instant::now();
            let away = broker.appender.append(unit(partition_id, ["away".into()])).await;
            assert!(matches!(away, Err(AppendError::Unavailable { .. })), "{away:?}");
            assert!(since.elapsed() < Duration::from_secs(2), "it took {:?}", since.elapsed());
        }
        let read = broker.reader.read(partition_id, Offset::ZERO, ALL).await;
        assert!(matches!(read, Err(ReadError::Store(Error::Unavailable { .. }))), "{read:?}");
        server.cluster.start().await.unwrap();
        // The first read works: no connection of the time before is handed out.
        assert_eq!(all(&broker, partition_id).await.len(), round + 1);
        wait::until("publishing to resume", async || {
            broker.appender.append(unit(partition_id, ["after".into()])).await.is_ok()
        })
        .await;
        // So do partitions that have no tables yet.
        broker.appender.append(unit(topic.partitions[1], ["first".into()])).await.unwrap();
    }
    assert_eq!(texts(&all(&broker, partition_id).await), ["before", "after", "after"]);
    broker.stop().await;
}
