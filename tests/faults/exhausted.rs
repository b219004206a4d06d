//! The connections of the database are used up by others: nothing happens, that is said, and with room everything goes on.

use laneway::broker::appender::AppendError;
use laneway::store::Target;

use crate::harness::database::TestBroker;
use crate::harness::own::OwnServer;
use crate::harness::produce::{all, texts, topic, unit};
use crate::harness::wait;

/// Takes every connection that is left. Returns what it has got.
async fn greedy(server: &OwnServer) -> Vec<tokio_postgres::Client> {
    let mut taken = Vec::new();
    while let Ok(client) = Target::parse(&server.cluster.url()).unwrap().connect().await {
        taken.push(client);
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_a_free_connection_is_unavailable_and_comes_back_by_itself() {
    let server =
        OwnServer::start(&[("max_connections", "20"), ("superuser_reserved_connections", "1")]).await;
    let broker = TestBroker::start(server.migrated().await);
    let partition_id = topic(&broker, "orders", 1).await.partitions[0];
    broker.appender.append(unit(partition_id, ["before".into()])).await.unwrap();
    let witness = server.raw().await;
    for round in 0..2 {
        let mut taken = greedy(&server).await;
        assert!(!taken.is_empty());
        // Every connection of the broker is ended, and whatever that frees is taken before it comes back.
        let kill =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'laneway%'";
        let mut refused = 0;
        wait::until("a publish to find no connection", async || {
            witness.query(kill, &[]).await.unwrap();
            taken.extend(greedy(&server).await);
            match broker.appender.append(unit(partition_id, ["without".into()])).await {
                Ok(_) | Err(AppendError::OutcomeUnknown { .. }) => {} // it was faster
                Err(AppendError::Unavailable { .. }) => refused += 1,
                Err(error) => panic!("{error:?} is no answer to that"),
            }
            refused > 3
        })
        .await;
        drop(taken);
        let text = format!("after {round}");
        wait::until("publishing to resume", async || {
            broker.appender.append(unit(partition_id, [text.clone()])).await.is_ok()
        })
        .await;
    }
    let stored = texts(&all(&broker, partition_id).await);
    let kept: Vec<&String> = stored.iter().filter(|text| !text.starts_with("without")).collect();
    assert_eq!(kept, ["before", "after 0", "after 1"]);
    broker.stop().await;
}
