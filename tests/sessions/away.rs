//! PostgreSQL goes away and comes back: sockets stay, publishes are refused for now, deliveries pause, nothing is lost.

use std::time::Duration;

use laneway::postgres::StopMode;
use laneway_client::wire::{BrokerFrame, ClientFrame, Hello, NewMessage, Publish, Subprotocol};
use laneway_client::{Class, ErrorCode};

use crate::harness::own::OwnServer;
use crate::harness::socket::{BOTH, Socket, ack, hello, make_topic, offsets, payloads, subscribe, text};
use crate::harness::{Server, wait};

fn message(word: &str) -> NewMessage {
    NewMessage { partition: Some(0), ..text(word) }
}

/// Publishes one message; the code and class if it was refused.
async fn publish(socket: &mut Socket, word: &str) -> Result<i64, (ErrorCode, Class)> {
    let id = socket.id();
    let messages = vec![message(word)];
    socket
        .send(ClientFrame::Publish(Publish {
            id,
            topic: "orders".into(),
            producer_id: None,
            wait_ms: None,
            messages,
        }))
        .await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => {
                let unit = &published.units[0];
                Some(match &unit.error {
                    Some(fault) => Err((fault.code, fault.class)),
                    None => Ok(unit.first_offset.unwrap()),
                })
            }
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((error.code, error.class))),
            _ => None,
        })
        .await
}

async fn ready(server: &Server) -> u16 {
    reqwest::get(server.url("/readyz")).await.unwrap().status().as_u16()
}

/// A session that stays however slow the machine is.
async fn connect(server: &Server, subprotocol: Subprotocol) -> Socket {
    let hello = Hello { heartbeat_ms: Some(60_000), ..hello() };
    Socket::connect_with(&server.address, subprotocol, hello).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn while_postgres_is_away_sockets_stay_and_everything_goes_on_by_itself_when_it_returns() {
    let postgres = OwnServer::start(&[]).await;
    postgres.migrated().await;
    let server = Server::on_database(&postgres.cluster.url()).await;
    make_topic(&server.address, "orders", 1).await;
    let mut producers = Vec::new();
    let mut consumers = Vec::new();
    for subprotocol in BOTH {
        producers.push(connect(&server, subprotocol).await);
        let mut consumer = connect(&server, subprotocol).await;
        consumer.subscribe(subprotocol.name(), "orders").await;
        consumer.granted().await;
        consumers.push(consumer);
    }
    let mut acknowledged = Vec::new();
    for number in 0..10 {
        let word = format!("before {number}");
        assert_eq!(publish(&mut producers[number % 2], &word).await, Ok(number as i64));
        acknowledged.push(word);
    }
    let mut received = [Vec::new(), Vec::new()];
    let mut last = Vec::new();
    for (consumer, received) in consumers.iter_mut().zip(&mut received) {
        let mut batches = consumer.batches(10).await;
        received.extend(batches.iter().flat_map(payloads));
        last.push(batches.pop().unwrap());
        assert_eq!(consumer.ack_below(last.last().unwrap(), 4).await, Ok(4));
    }

    for round in 0..2 {
        postgres.cluster.stop(StopMode::Fast).await.unwrap();
        for producer in &mut producers {
            for _ in 0..2 {
                let refused = publish(producer, "refused").await.unwrap_err();
                assert_eq!(refused, (ErrorCode::Unavailable, Class::Retry));
            }
        }
        assert_eq!(ready(&server).await, 503);
        assert_eq!(reqwest::get(server.url("/healthz")).await.unwrap().status(), 200, "the process lives");
        // What needs the database is refused for now, and an ack waits for it.
        let error = consumers[0].subscribe_with(subscribe("late", "orders")).await.unwrap_err();
        assert_eq!((error.code, error.class), (ErrorCode::Unavailable, Class::Retry), "{error:?}");
        let mut waiting = Vec::new();
        for (consumer, batch) in consumers.iter_mut().zip(&last) {
            let (id, next) = (consumer.id(), 5 + round);
            let mut wanted = ack(batch, Some(next), &[]);
            wanted.id = Some(id);
            consumer.send(ClientFrame::Ack(wanted)).await;
            waiting.push((id, next));
        }
        postgres.cluster.start().await.unwrap();
        wait::until("the broker to be ready", async || ready(&server).await == 200).await;
        for (consumer, (id, next)) in consumers.iter_mut().zip(waiting) {
            assert_eq!(consumer.confirmed(id).await, Ok(next), "on the same socket, without asking again");
        }
        for (number, producer) in producers.iter_mut().enumerate() {
            let word = format!("after {round} {number}");
            wait::until("publishing to go on", async || publish(producer, &word).await.is_ok()).await;
            acknowledged.push(word);
        }
        for (consumer, received) in consumers.iter_mut().zip(&mut received) {
            for batch in consumer.batches(2).await {
                assert!(offsets(&batch)[0] >= 10 + 2 * round, "deliveries go on where they were");
                received.extend(payloads(&batch));
            }
        }
    }
    assert_eq!(
        received,
        [acknowledged.clone(), acknowledged],
        "nothing lost, nothing twice, nothing refused"
    );
    for mut consumer in consumers {
        assert!(consumer.frame_within(Duration::from_millis(300)).await.is_none());
    }
}
