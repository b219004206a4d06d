//! A thousand partitions on a server with the settings that PostgreSQL comes with.

use laneway::broker::appender::Unit;
use laneway::broker::message::Draft;
use laneway::ids::{Offset, TraceId};
use laneway::store::traces::Payloads;
use laneway_client::topic::CreateTopic;

use crate::harness::own::OwnServer;
use crate::harness::produce::{ALL, draft, texts, unit};
use crate::harness::quiet::QuietBroker;

/// What an installation has if nobody has changed anything; durability is tested elsewhere.
const STOCK: &[(&str, &str)] =
    &[("max_locks_per_transaction", "64"), ("max_connections", "100"), ("fsync", "off")];

/// Tables that one transaction may make: a partition's, its segment and the one ahead.
const TABLES_PER_TRANSACTION_MAX: i64 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_topic_of_a_thousand_partitions_is_published_to_read_and_traced_with_stock_settings() {
    let server = OwnServer::start(STOCK).await;
    let broker = QuietBroker::start(server.migrated().await);
    let topic = broker.topics.create(&CreateTopic::new("wide", 1_000)).await.unwrap();
    let traces = [TraceId::generate(), TraceId::generate(), TraceId::generate()];
    // All at once, three times: first without any table, then in flushes that touch hundreds of partitions.
    for (round, trace_id) in traces.iter().enumerate() {
        let publish = |(number, partition_id): (usize, &laneway::ids::PartitionId)| {
            let text = format!("r{round} p{number}");
            // A trace that passes through every tenth partition.
            let trace_id = (number % 10 == round).then_some(*trace_id);
            let message = Draft { trace_id, ..draft(text) }.check(100).unwrap();
            broker.appender.submit(Unit { messages: vec![message], ..unit(*partition_id, []) }).unwrap()
        };
        let answers: Vec<_> = topic.partitions.iter().enumerate().map(publish).collect();
        for answer in answers {
            assert_eq!(answer.await.unwrap().unwrap().first_offset, Some(Offset(round as i64)));
        }
    }
    for (number, partition_id) in topic.partitions.iter().enumerate() {
        let read = broker.reader.read(*partition_id, Offset::ZERO, ALL).await.unwrap();
        assert_eq!(texts(&read), [0, 1, 2].map(|round| format!("r{round} p{number}")));
    }
    for trace_id in traces {
        assert_eq!(broker.reader.trace(trace_id, Payloads::Read).await.unwrap().hops.len(), 100);
    }
    assert_modest(&server).await;
    broker.stop().await;
}

/// Asserts that neither making tables nor dropping them needs more locks than the smallest server has.
async fn assert_modest(server: &OwnServer) {
    let raw = server.raw().await;
    let stock: String = raw.query_one("SHOW max_locks_per_transaction", &[]).await.unwrap().get(0);
    assert_eq!(stock, "64");
    let most = "SELECT count(*) FROM pg_inherits GROUP BY xmin::text ORDER BY 1 DESC LIMIT 1";
    let most: i64 = raw.query_one(most, &[]).await.unwrap().get(0);
    assert!(most <= TABLES_PER_TRANSACTION_MAX, "one transaction made {most} tables");
    let made =
        "SELECT count(*) FROM pg_class WHERE relname ~ '^message_[ps][0-9]+$' AND relkind IN ('r', 'p')";
    let made: i64 = raw.query_one(made, &[]).await.unwrap().get(0);
    assert_eq!(made, 3_000);
}
