//! PostgreSQL fails over to a standby that lacks the end: offsets are given again, to other messages. Nobody gets what is
//! lost any more, and nobody misses what is new.

use std::time::Duration;

use laneway::postgres::StopMode;
use laneway_client::wire::{
    Batch, BrokerFrame, ClientFrame, CreditGrant, NewMessage, Start, Subprotocol, Tail,
};
use laneway_client::{Class, ErrorCode};

use crate::harness::Server;
use crate::harness::own::OwnServer;
use crate::harness::socket::{Socket, ack, make_topic, payloads, text};
use crate::harness::standby::Standby;
use crate::harness::wait;

/// A primary with a standby, and a URL that leads to whichever takes writes.
struct Pair {
    primary: OwnServer,
    standby: Standby,
    url: String,
}

impl Pair {
    async fn start() -> Self {
        let primary = OwnServer::start(&[]).await;
        let standby = Standby::of(&primary).await;
        let url = standby.url_with(&primary);
        Self { primary, standby, url }
    }

    async fn broker(&self) -> Server {
        Server::start(&["--database-url", &self.url, "--lane-drain", "1s", "--acquire-timeout", "1s"]).await
    }

    /// From now on everything is lost when the primary is.
    async fn cut_off(&self) {
        self.standby.caught_up(&self.primary).await;
        self.standby.cut_off().await;
    }

    async fn fail_over(&self) {
        self.primary.cluster.stop(StopMode::Immediate).await.unwrap();
        self.standby.promote();
    }
}

fn named(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{prefix}{number}")).collect()
}

/// Publishes as one frame. What is refused tells its code and whether anything can have happened.
async fn try_publish(socket: &mut Socket, texts: &[String]) -> Result<Vec<i64>, (ErrorCode, Class)> {
    let messages = texts.iter().map(|one| NewMessage { partition: Some(0), ..text(one.as_str()) }).collect();
    let id = socket.id();
    let publish = laneway_client::wire::Publish {
        id,
        topic: "orders".into(),
        producer_id: None,
        wait_ms: None,
        messages,
    };
    socket.send(ClientFrame::Publish(publish)).await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => {
                let unit = &published.units[0];
                if let Some(fault) = &unit.error {
                    return Some(Err((fault.code, fault.class)));
                }
                let first = unit.first_offset.expect("no duplicates here");
                Some(Ok((first..first + unit.positions.len() as i64).collect()))
            }
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((error.code, error.class))),
            _ => None,
        })
        .await
}

/// Publishes one by one, each until it is stored; returns the offsets.
async fn publish(socket: &mut Socket, texts: &[String]) -> Vec<i64> {
    let mut offsets = Vec::new();
    for one in texts {
        loop {
            match try_publish(socket, std::slice::from_ref(one)).await {
                Ok(stored) => break offsets.extend(stored),
                // The database is away: nothing happened, or it happened on a timeline that is lost.
                Err((code, class)) => assert!(matches!(class, Class::Retry | Class::Unknown), "{code:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    offsets
}

async fn tail(socket: &mut Socket) {
    let (id, credit) = (socket.id(), CreditGrant { messages: 100_000, bytes: 64 << 20 });
    let start = Some(Start::Earliest);
    let tail = Tail { id, topic: "orders".into(), partitions: None, start, credit, batch: None };
    socket.send(ClientFrame::Tail(tail)).await;
}

/// Payloads in the order they come, until there are so many.
async fn receive(socket: &mut Socket, messages: usize) -> (Vec<String>, Batch) {
    let mut all = Vec::new();
    loop {
        let batch = socket.batch().await;
        all.extend(payloads(&batch));
        if all.len() >= messages {
            return (all, batch);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_that_loses_the_end_subscribers_and_tails_get_what_the_new_primary_holds() {
    let pair = Pair::start().await;
    let (mut one, mut two) = (pair.broker().await, pair.broker().await);
    make_topic(&one.address, "orders", 1).await;
    let mut producer = Socket::connect(&one.address, Subprotocol::Json).await;
    let mut other_producer = Socket::connect(&two.address, Subprotocol::Json).await;
    let mut subscriber = Socket::connect(&one.address, Subprotocol::Json).await;
    let mut tailer = Socket::connect(&two.address, Subprotocol::Json).await;
    subscriber.subscribe("billing", "orders").await;
    tail(&mut tailer).await;
    let granted = subscriber.granted().await;
    // What is kept: five messages, and the commit of three.
    publish(&mut producer, &named("kept", 0..5)).await;
    let (kept, batch) = receive(&mut subscriber, 5).await;
    assert_eq!(kept, named("kept", 0..5));
    assert_eq!(subscriber.ack_below(&batch, 3).await.unwrap(), 3);
    assert_eq!(receive(&mut tailer, 5).await.0, kept);
    // What is lost: five messages, and the commit of all ten.
    pair.cut_off().await;
    assert_eq!(publish(&mut producer, &named("lost", 5..10)).await, [5, 6, 7, 8, 9]);
    let (lost, batch) = receive(&mut subscriber, 5).await;
    assert_eq!(lost, named("lost", 5..10));
    assert_eq!(subscriber.ack_below(&batch, 10).await.unwrap(), 10);
    assert_eq!(receive(&mut tailer, 5).await.0, lost);
    pair.fail_over().await;
    // Offsets are given again, past where everybody had been, by the broker that has neither of them.
    let new = publish(&mut other_producer, &named("new", 5..17)).await;
    assert_eq!(new, (5..17).collect::<Vec<i64>>());
    let revoked = subscriber
        .wait_for(|frame| match frame {
            BrokerFrame::LaneRevoked(revoked) => Some(revoked.clone()),
            _ => None,
        })
        .await;
    assert_eq!((revoked.epoch, revoked.reason.as_str()), (granted.epoch, "broker_lease_lost"));
    let again = subscriber.granted().await;
    assert_eq!(again.committed_offset, 3, "as far as the new primary knows");
    assert!(
        again.epoch > granted.epoch + 1,
        "no epoch that the lost timeline may have given: {}",
        again.epoch
    );
    let expected: Vec<String> = named("kept", 3..5).into_iter().chain(named("new", 5..17)).collect();
    let (received, batch) = receive(&mut subscriber, expected.len()).await;
    assert_eq!(received, expected);
    // An ack of what is lost moves nothing.
    let late = ack(&Batch { epoch: granted.epoch, ..batch.clone() }, Some(10), &[]);
    assert_eq!(subscriber.ack(late).await.unwrap_err().code, ErrorCode::LeaseLost);
    assert_eq!(subscriber.ack_below(&batch, 4).await.unwrap(), 4);
    // The tail is told, and goes on where histories part.
    let told = tailer.error().await;
    assert_eq!((told.code, told.partition, told.start), (ErrorCode::OutOfRange, Some(0), Some(5)));
    assert_eq!(receive(&mut tailer, 12).await.0, named("new", 5..17));
    // Everything goes on, across brokers.
    assert_eq!(publish(&mut producer, &named("later", 17..20)).await, [17, 18, 19]);
    assert_eq!(receive(&mut subscriber, 3).await.0, named("later", 17..20));
    assert_eq!(receive(&mut tailer, 3).await.0, named("later", 17..20));
    assert_eq!(one.stop().await, 0);
    assert_eq!(two.stop().await, 0);
}

/// Copies the files of a server that does not run.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    let status = std::process::Command::new("cp").arg("-a").arg("--").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// The same database, the same timeline, only shorter.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_database_was_put_back_to_an_older_copy_subscribers_get_what_it_holds() {
    let server = OwnServer::start(&[]).await;
    let (pgdata, copied) = (server.cluster.pgdata(), server.cluster.pgdata().with_extension("copy"));
    let mut broker =
        Server::start(&["--database-url", &server.cluster.url(), "--lane-drain", "1s", "--lease-ttl", "1s"])
            .await;
    make_topic(&broker.address, "orders", 1).await;
    let mut producer = Socket::connect(&broker.address, Subprotocol::Json).await;
    let mut subscriber = Socket::connect(&broker.address, Subprotocol::Json).await;
    subscriber.subscribe("billing", "orders").await;
    let granted = subscriber.granted().await;
    publish(&mut producer, &named("kept", 0..3)).await;
    let (_, batch) = receive(&mut subscriber, 3).await;
    assert_eq!(subscriber.ack_below(&batch, 3).await.unwrap(), 3);
    server.cluster.stop(StopMode::Fast).await.unwrap();
    copy(pgdata, &copied);
    server.cluster.start().await.unwrap();
    publish(&mut producer, &named("lost", 3..6)).await;
    let (lost, batch) = receive(&mut subscriber, 3).await;
    assert_eq!(lost, named("lost", 3..6));
    assert_eq!(subscriber.ack_below(&batch, 6).await.unwrap(), 6);
    // Two heartbeats later the broker has seen how far the log has come.
    let raw = server.raw().await;
    for _ in 0..2 {
        let expiry = "SELECT max(expires_at) FROM laneway.broker";
        let before: std::time::SystemTime = raw.query_one(expiry, &[]).await.unwrap().get(0);
        wait::until("a heartbeat", async || {
            raw.query_one(expiry, &[]).await.unwrap().get::<_, std::time::SystemTime>(0) > before
        })
        .await;
    }
    drop(raw);
    server.cluster.stop(StopMode::Fast).await.unwrap();
    std::fs::remove_dir_all(pgdata).unwrap();
    std::fs::rename(&copied, pgdata).unwrap();
    server.cluster.start().await.unwrap();
    assert_eq!(publish(&mut producer, &named("new", 3..9)).await, (3..9).collect::<Vec<i64>>());
    let again = subscriber.granted().await;
    assert_eq!(again.committed_offset, 3);
    assert!(again.epoch > granted.epoch + 1, "{}", again.epoch);
    assert_eq!(receive(&mut subscriber, 6).await.0, named("new", 3..9));
    assert_eq!(broker.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_that_comes_back_gets_nothing_from_brokers_that_know_the_new_one() {
    let pair = Pair::start().await;
    let mut broker = pair.broker().await;
    make_topic(&broker.address, "orders", 1).await;
    let mut producer = Socket::connect(&broker.address, Subprotocol::Json).await;
    publish(&mut producer, &named("kept", 0..2)).await;
    pair.standby.caught_up(&pair.primary).await;
    pair.fail_over().await;
    assert_eq!(publish(&mut producer, &named("new", 2..4)).await, [2, 3]);
    // It takes writes again, comes first in the URL, and the connections to the new one are lost.
    pair.primary.cluster.start().await.unwrap();
    let successor = pair.standby.raw().await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'laneway%'";
    wait::until("the brokers to be cut off", async || successor.query(end, &[]).await.unwrap().is_empty())
        .await;
    for _ in 0..3 {
        let (code, class) = try_publish(&mut producer, &named("astray", 0..1)).await.unwrap_err();
        assert!(matches!(class, Class::Retry | Class::Unknown), "{code:?}");
    }
    let count = "SELECT count(*) FROM laneway.message";
    let on_former: i64 = pair.primary.raw().await.query_one(count, &[]).await.unwrap().get(0);
    assert_eq!(on_former, 2, "nothing was written beside the new timeline");
    pair.primary.cluster.stop(StopMode::Fast).await.unwrap();
    assert_eq!(publish(&mut producer, &named("new", 4..5)).await, [4]);
    assert_eq!(broker.stop().await, 0);
}
