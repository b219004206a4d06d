//! Silence is noticed: heartbeats both ways, clients that fall silent, connections that are dead without a word.

use std::time::{Duration, Instant};

use laneway_client::wire::{BrokerFrame, ClientFrame, Hello, Subprotocol};
use laneway_client::{Class, ErrorCode};

use crate::harness::socket::{BOTH, Seen, Socket, hello, make_topic, offsets, text};
use crate::harness::{Server, TestDatabase};
use crate::proxy::Proxy;

const BEAT: Duration = Duration::from_millis(1_000);

fn quick() -> Hello {
    Hello { heartbeat_ms: Some(BEAT.as_millis() as u32), ..hello() }
}

async fn server() -> (TestDatabase, Server) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    (database, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_heartbeats_stays_and_gets_them_too() {
    let (_database, server) = server().await;
    let stay = async |subprotocol: Subprotocol| {
        let (mut socket, _) = Socket::connect_with(&server.address, subprotocol, quick()).await;
        let (began, mut heard) = (Instant::now(), Vec::new());
        while began.elapsed() < 5 * BEAT {
            match socket.seen_within(BEAT * 3).await.expect("a heartbeat in time") {
                Seen::Frame(BrokerFrame::Heartbeat) => {
                    heard.push(began.elapsed());
                    socket.send(ClientFrame::Heartbeat).await;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!((4..=6).contains(&heard.len()), "about one per second: {heard:?}");
    };
    tokio::join!(stay(BOTH[0]), stay(BOTH[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_falls_silent_is_told_and_closed_after_two_heartbeats() {
    let (_database, server) = server().await;
    let fall_silent = async |subprotocol: Subprotocol| {
        let (mut socket, _) = Socket::connect_with(&server.address, subprotocol, quick()).await;
        let since = Instant::now();
        let error = socket.error().await;
        assert_eq!((error.code, error.class), (ErrorCode::HeartbeatMissed, Class::Fatal));
        assert_eq!(socket.closed().await, Some(4001));
        let waited = since.elapsed();
        assert!(waited > BEAT * 19 / 10 && waited < BEAT * 7 / 2, "{waited:?}");
    };
    tokio::join!(fall_silent(BOTH[0]), fall_silent(BOTH[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_is_noticed_and_its_lanes_move_to_another_session() {
    let (_database, server) = server().await;
    make_topic(&server.address, "orders", 2).await;
    let proxy = Proxy::to(&server.address).await;
    let (mut lost, _) = Socket::connect_with(&proxy.address, Subprotocol::MessagePack, quick()).await;
    lost.subscribe("billing", "orders").await;
    let mut epochs = [lost.granted().await, lost.granted().await].map(|lane| (lane.partition, lane.epoch));
    epochs.sort_unstable();
    let messages = (0..10).map(|number| laneway_client::wire::NewMessage {
        partition: Some(number % 2),
        ..text(number.to_string())
    });
    lost.publish("orders", messages.collect()).await;
    let batches = lost.batches(10).await;
    let acked = batches.iter().find(|batch| batch.partition == 0).unwrap();
    assert_eq!(lost.ack_below(acked, 2).await, Ok(2));
    proxy.freeze();
    let since = Instant::now();
    // The other one comes afterwards: it waits, and takes over once the silence is noticed.
    let mut other = Socket::connect(&server.address, Subprotocol::Json).await;
    other.subscribe("billing", "orders").await;
    let mut found = [Vec::new(), Vec::new()];
    while found[0].len() + found[1].len() < 8 {
        // One at a time: what was in flight is suspect.
        let batch = other.batch().await;
        let before = epochs[batch.partition as usize].1;
        assert!(batch.epoch > before, "{} after {before}", batch.epoch);
        found[batch.partition as usize].extend(offsets(&batch));
        let next = offsets(&batch).last().unwrap() + 1;
        assert_eq!(other.ack_below(&batch, next).await, Ok(next));
    }
    assert!(since.elapsed() < BEAT * 12, "{:?}", since.elapsed());
    assert_eq!(
        found,
        [vec![2, 3, 4], vec![0, 1, 2, 3, 4]],
        "nothing is lost, nothing that was confirmed comes again"
    );
}
