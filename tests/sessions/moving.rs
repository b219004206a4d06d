//! A session that goes on at another broker: its lanes are taken with the next epoch, nothing is lost, nothing that was
//! confirmed comes again. A broker that was killed leaves nothing to resume, and everything to take over.

use std::time::Duration;

use laneway_client::wire::{ResumeOutcome, Subprotocol};

use crate::harness::socket::{BOTH, Socket, ack, make_topic, offsets};
use crate::harness::{Server, TestDatabase};
use crate::resuming::{back, publish, ranges, with_grace};

const LONG: u32 = 60_000;

async fn brokers(args: &[&str]) -> (TestDatabase, Server, Server) {
    let database = TestDatabase::new().await;
    let mut all = vec!["--database-url", &database.url];
    all.extend(args);
    let (one, two) = tokio::join!(Server::start(&all), Server::start(&all));
    make_topic(&one.address, "orders", 1).await;
    publish(&one.address, 0, 10).await;
    (database, one, two)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_resumed_at_another_broker_takes_its_lanes_along_under_the_next_epoch() {
    let (_database, one, two) = brokers(&[]).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        let group = format!("group-{turn}");
        let (mut socket, welcome) = Socket::connect_with(&one.address, subprotocol, with_grace(LONG)).await;
        let number = socket.subscribe(&group, "orders").await.subscription;
        let batch = socket.batch().await;
        assert_eq!(socket.ack(ack(&batch, Some(2), &[4, 7])).await, Ok(2));
        socket.cut();

        let (mut socket, again) = Socket::connect_with(&two.address, subprotocol, back(&welcome)).await;
        assert_ne!(again.broker, welcome.broker);
        assert_eq!(again.session, welcome.session);
        let report = again.resume.as_ref().unwrap();
        assert_eq!(report.outcome, ResumeOutcome::Resumed, "{report:?}");
        let granted = socket.granted().await;
        assert_eq!((granted.subscription, granted.partition), (number, 0));
        assert_eq!((granted.epoch, granted.round, granted.committed_offset), (batch.epoch + 1, 1, 2));
        assert_eq!(granted.acked, ranges(&[(4, 5), (7, 8)]));
        let mut found = Vec::new();
        while found.len() < 6 {
            let remainder = socket.batch().await;
            assert_eq!((remainder.epoch, remainder.round), (batch.epoch + 1, 1));
            found.extend(offsets(&remainder));
            let next = found.last().unwrap() + 1;
            socket.ack_below(&remainder, next).await.unwrap();
        }
        assert_eq!(found, [2, 3, 5, 6, 8, 9], "nothing lost, nothing that was confirmed again");
        // The first broker knows that it is fenced: it has nothing to give back.
        let (_late, first) = Socket::connect_with(&one.address, subprotocol, back(&again)).await;
        assert!(first.resume.is_some());
        socket.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_broker_held_is_taken_over_and_its_sessions_are_reset_with_a_reason() {
    let (database, mut one, two) = brokers(&["--lease-ttl", "1s"]).await;
    let (mut socket, welcome) =
        Socket::connect_with(&one.address, Subprotocol::MessagePack, with_grace(LONG)).await;
    socket.subscribe("billing", "orders").await;
    let batch = socket.batch().await;
    assert_eq!(socket.ack(ack(&batch, Some(3), &[5])).await, Ok(3));
    one.kill().await;
    assert_eq!(socket.closed().await, None, "without a word");
    // Another member waits for the burial.
    let mut other = Socket::connect(&two.address, Subprotocol::Json).await;
    other.subscribe("billing", "orders").await;
    let granted = match tokio::time::timeout(Duration::from_secs(15), other.granted()).await {
        Ok(granted) => granted,
        Err(_) => panic!("{}", two.log().join("\n")),
    };
    assert!(granted.epoch > batch.epoch);
    assert_eq!((granted.committed_offset, granted.acked), (3, ranges(&[(5, 6)])));
    let rest = other.batch().await;
    assert_eq!(
        offsets(&rest),
        [3, 4, 6, 7, 8, 9],
        "the death of a broker is nobody's fault: nothing is suspect"
    );
    assert_eq!(other.ack_below(&rest, 10).await, Ok(10));
    // The session died with its broker, wherever its client comes back.
    let three = Server::on_database(&database.url).await;
    for address in [&two.address, &three.address] {
        let (mut late, again) = Socket::connect_with(address, Subprotocol::Json, back(&welcome)).await;
        let report = again.resume.unwrap();
        assert_eq!((report.outcome, report.lanes.len()), (ResumeOutcome::Reset, 0));
        assert!(report.reason.is_some_and(|reason| !reason.is_empty()));
        late.subscribe("billing", "orders").await; // and goes on as a new one
        late.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_may_leave_a_broker_that_was_just_killed_before_it_is_buried() {
    let (_database, mut one, two) = brokers(&["--lease-ttl", "30s"]).await;
    let (mut socket, welcome) = Socket::connect_with(&one.address, Subprotocol::Json, with_grace(LONG)).await;
    socket.subscribe("billing", "orders").await;
    let batch = socket.batch().await;
    assert_eq!(socket.ack_below(&batch, 3).await, Ok(3));
    one.kill().await;
    let resumed = tokio::time::timeout(
        Duration::from_secs(10),
        Socket::connect_with(&two.address, Subprotocol::Json, back(&welcome)),
    );
    let (mut socket, again) = resumed.await.expect("long before the burial");
    assert_eq!(again.resume.unwrap().outcome, ResumeOutcome::Resumed);
    let granted = socket.granted().await;
    assert_eq!((granted.epoch, granted.committed_offset), (batch.epoch + 1, 3));
    assert_eq!(offsets(&socket.batch().await)[0], 3);
}
