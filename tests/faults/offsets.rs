//! Promise 3: a partition and an offset name one message, whoever reads it and whenever.

use crate::harness::database::TestBroker;
use crate::harness::own::OwnServer;
use crate::harness::produce::{all, topic_of_segments, unit};
use crate::harness::wait;

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_names_the_same_message_at_every_broker_after_every_crash() {
    const PER_LIFE: usize = 60;
    let server = OwnServer::start(&[]).await;
    let mut brokers = vec![TestBroker::start(server.migrated().await)];
    let partition_id = topic_of_segments(&brokers[0], "orders", 1, 25).await.partitions[0];
    brokers.push(TestBroker::start(server.store()));
    let mut named = Vec::new();
    for life in 0..2 {
        for number in 0..PER_LIFE {
            let broker = &brokers[number % brokers.len()];
            let text = format!("{life}-{number}");
            wait::until("the database to be back", async || {
                broker.appender.append(unit(partition_id, [text.clone()])).await.is_ok()
            })
            .await;
        }
        server.crash().await;
        // One that has seen nothing of it reads with the others.
        brokers.push(TestBroker::start(server.store()));
        let mut seen = Vec::new();
        for broker in &brokers {
            let messages = all(broker, partition_id).await;
            let told = |message: &laneway::store::messages::Message| {
                (message.offset, message.published_at, message.trace_id, message.payload.clone())
            };
            let found: Vec<_> = messages.iter().map(told).collect();
            assert!(found.len() >= PER_LIFE * (life + 1));
            assert!(found.iter().enumerate().all(|(place, message)| message.0.0 == place as i64));
            assert_eq!(found[..named.len()], named, "what had an offset has it for ever");
            seen.push(found);
        }
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "every broker sees the same");
        named = seen.pop().unwrap();
    }
    for broker in brokers {
        broker.stop().await;
    }
}
