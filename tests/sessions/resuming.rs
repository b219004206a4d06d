//! A lost connection is taken up again on the same broker: epochs kept, the exact remainder in the next round.

use std::time::{Duration, Instant};

use laneway_client::wire::{
    Batch, BrokerFrame, ClientFrame, Hello, NewMessage, OffsetRange, Progress, Resume, ResumeOutcome,
    ResumeReport, Subprotocol, Token, Welcome,
};

use crate::harness::socket::{BOTH, Socket, ack, hello, make_topic, offsets, subscribe, text};
use crate::harness::{Server, TestDatabase};
use crate::proxy::Proxy;

const LONG: u32 = 60_000;

async fn server() -> (TestDatabase, Server) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", 1).await;
    (database, server)
}

pub fn with_grace(resume_grace_ms: u32) -> Hello {
    Hello { resume_grace_ms: Some(resume_grace_ms), ..hello() }
}

/// A hello that wants a session back.
pub fn back(welcome: &Welcome) -> Hello {
    let resume = Resume { session: welcome.session, token: welcome.resume_token.clone() };
    Hello { resume: Some(resume), resume_grace_ms: Some(welcome.resume_grace_ms), ..hello() }
}

pub fn ranges(pairs: &[(i64, i64)]) -> Vec<OffsetRange> {
    pairs.iter().copied().map(OffsetRange::from).collect()
}

pub async fn publish(address: &str, from: i64, to: i64) {
    let mut socket = Socket::connect(address, Subprotocol::MessagePack).await;
    let messages =
        (from..to).map(|number| NewMessage { partition: Some(0), ..text(number.to_string()) }).collect();
    socket.publish("orders", messages).await;
    socket.close().await;
}

/// A member with ten messages in flight on partition 0, from offset 0 on.
async fn member(
    server: &Server,
    subprotocol: Subprotocol,
    hello: Hello,
    group: &str,
) -> (Socket, Welcome, Batch) {
    let (mut socket, welcome) = Socket::connect_with(&server.address, subprotocol, hello).await;
    socket.subscribe(group, "orders").await;
    let batch = socket.batch().await;
    assert_eq!((offsets(&batch), batch.round), ((0..10).collect(), 1));
    (socket, welcome, batch)
}

/// Says that a batch is being worked on, and waits for the answer.
async fn progress(socket: &mut Socket, batch: &Batch) {
    let id = socket.id();
    let Batch { subscription, partition, epoch, round, .. } = *batch;
    let progress = Progress { id: Some(id), subscription, partition, epoch, round };
    socket.send(ClientFrame::Progress(progress)).await;
    socket.confirmed(id).await.unwrap();
}

fn report(welcome: &Welcome) -> &ResumeReport {
    welcome.resume.as_ref().expect("a resume is always answered")
}

fn assert_reset(welcome: &Welcome) {
    let report = report(welcome);
    assert_eq!(report.outcome, ResumeOutcome::Reset);
    assert!(report.reason.as_ref().is_some_and(|reason| !reason.is_empty()), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_session_keeps_its_epochs_and_gets_the_exact_remainder_in_the_next_round() {
    let (_database, server) = server().await;
    publish(&server.address, 0, 10).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        let group = format!("group-{turn}");
        let (mut socket, welcome, batch) = member(&server, subprotocol, with_grace(LONG), &group).await;
        assert_eq!(welcome.resume_grace_ms, LONG);
        assert_eq!(socket.ack(ack(&batch, Some(2), &[4, 7])).await, Ok(2));
        // Not confirmed when the connection is lost, but on its way.
        socket.send(ClientFrame::Ack(ack(&batch, None, &[9]))).await;
        progress(&mut socket, &batch).await; // it has arrived
        socket.cut();

        let other = BOTH[1 - turn];
        let (mut socket, again) = Socket::connect_with(&server.address, other, back(&welcome)).await;
        assert_eq!(again.session, welcome.session);
        let report = report(&again);
        assert_eq!((report.outcome, report.lanes.len()), (ResumeOutcome::Resumed, 1), "{report:?}");
        let lane = &report.lanes[0];
        assert_eq!(
            (lane.outcome, lane.subscription, lane.partition),
            (ResumeOutcome::Resumed, batch.subscription, 0)
        );
        assert_eq!((lane.group.as_str(), lane.topic.as_str()), (group.as_str(), "orders"));
        assert_eq!((lane.epoch, lane.round, lane.committed_offset), (batch.epoch, 2, 2));
        assert_eq!(lane.acked, ranges(&[(4, 5), (7, 8), (9, 10)]));
        // No lane_granted comes before the remainder.
        let BrokerFrame::Batch(remainder) = socket.frame().await else { panic!("the remainder comes first") };
        assert_eq!(
            (remainder.epoch, remainder.round, remainder.subscription),
            (batch.epoch, 2, batch.subscription)
        );
        assert_eq!(offsets(&remainder), [2, 3, 5, 6, 8]);
        // Acks of the old round still count; single acks are kept.
        assert_eq!(socket.ack(ack(&batch, Some(4), &[6])).await, Ok(5));
        assert_eq!(socket.ack(ack(&remainder, Some(9), &[])).await, Ok(10));
        socket.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_session_has_the_credit_and_the_subscriptions_that_it_began_with() {
    let (_database, server) = server().await;
    publish(&server.address, 0, 20).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        let (mut socket, welcome) =
            Socket::connect_with(&server.address, subprotocol, with_grace(LONG)).await;
        let mut wanted = subscribe(&format!("small-{turn}"), "orders");
        wanted.credit.messages = 4;
        wanted.batch = Some(crate::harness::socket::batches_of(2));
        let small = socket.subscribe_with(wanted.clone()).await.unwrap().subscription;
        let large = socket.subscribe(&format!("large-{turn}"), "orders").await.subscription;
        let mut counts = std::collections::BTreeMap::<u32, usize>::new();
        let counted = async |socket: &mut Socket| {
            let mut counts = std::collections::BTreeMap::<u32, usize>::new();
            while counts.values().sum::<usize>() < 24 {
                let batch = socket.batch().await;
                assert!(batch.subscription != small || batch.messages.len() <= 2);
                *counts.entry(batch.subscription).or_default() += batch.messages.len();
            }
            counts
        };
        counts.extend(counted(&mut socket).await);
        assert_eq!(counts, [(small, 4), (large, 20)].into());
        socket.cut();
        let (mut socket, again) = Socket::connect_with(&server.address, subprotocol, back(&welcome)).await;
        assert_eq!(report(&again).lanes.len(), 2);
        assert_eq!(counted(&mut socket).await, counts, "the same credit again");
        // A number that was given is not given again.
        wanted.group = format!("third-{turn}");
        assert!(socket.subscribe_with(wanted).await.unwrap().subscription > small.max(large));
        socket.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_connection_is_closed_when_another_one_resumes_its_session() {
    let (_database, server) = server().await;
    publish(&server.address, 0, 10).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        // The grace does not matter: the old connection still stands.
        let grace = [0, LONG][turn];
        let (mut old, welcome, batch) =
            member(&server, subprotocol, with_grace(grace), &format!("group-{turn}")).await;
        assert_eq!(old.ack_below(&batch, 3).await, Ok(3));
        let (mut new, again) = Socket::connect_with(&server.address, subprotocol, back(&welcome)).await;
        assert_eq!(old.closed().await, Some(4003));
        assert_eq!(report(&again).outcome, ResumeOutcome::Resumed);
        let remainder = new.batch().await;
        assert_eq!((remainder.epoch, remainder.round), (batch.epoch, 2));
        assert_eq!(offsets(&remainder), [3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(new.ack_below(&remainder, 10).await, Ok(10));
        new.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_reset_and_disturbs_nobody() {
    let (_database, server) = server().await;
    publish(&server.address, 0, 10).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        let group = format!("group-{turn}");
        let (mut socket, mut welcome, batch) = member(&server, subprotocol, with_grace(LONG), &group).await;
        let right = std::mem::replace(&mut welcome.resume_token, Token::new("guess"));
        let (_thief, other) = Socket::connect_with(&server.address, subprotocol, back(&welcome)).await;
        assert_reset(&other);
        assert!(other.session != welcome.session && report(&other).lanes.is_empty());
        // A session that never was.
        let nobody = Welcome { session: uuid::Uuid::new_v4(), ..welcome.clone() };
        assert_reset(&Socket::connect_with(&server.address, subprotocol, back(&nobody)).await.1);
        // Its owner goes on, and may still come back.
        assert_eq!(socket.ack_below(&batch, 5).await, Ok(5));
        socket.cut();
        welcome.resume_token = right;
        let (_socket, again) = Socket::connect_with(&server.address, subprotocol, back(&welcome)).await;
        assert_eq!(report(&again).outcome, ResumeOutcome::Resumed);
        assert!(!server.log().iter().any(|line| line.contains(welcome.resume_token.as_str())), "a secret");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_wait_for_the_grace_and_move_when_it_is_over() {
    const GRACE: Duration = Duration::from_millis(1_500);
    let (_database, server) = server().await;
    publish(&server.address, 0, 10).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        let group = format!("group-{turn}");
        let hello = with_grace(GRACE.as_millis() as u32);
        let (mut socket, welcome, batch) = member(&server, subprotocol, hello, &group).await;
        assert_eq!(socket.ack(ack(&batch, Some(3), &[5])).await, Ok(3));
        let mut other = Socket::connect(&server.address, subprotocol).await;
        other.subscribe(&group, "orders").await;
        let since = Instant::now();
        socket.cut();
        let granted = other.granted().await;
        let waited = since.elapsed();
        assert!(waited > GRACE * 9 / 10 && waited < GRACE * 4, "{waited:?}");
        assert_eq!((granted.epoch, granted.committed_offset), (batch.epoch + 1, 3));
        assert_eq!(granted.acked, ranges(&[(5, 6)]));
        // Too late: a new session, which may subscribe again and wait its turn.
        let (mut late, again) = Socket::connect_with(&server.address, subprotocol, back(&welcome)).await;
        assert_reset(&again);
        assert_ne!(again.session, welcome.session);
        late.subscribe(&group, "orders").await;
        for expected in [3, 4, 6, 7, 8, 9] {
            let batch = other.batch().await; // one at a time: what was in flight is suspect
            assert_eq!(offsets(&batch), [expected]);
            other.ack_below(&batch, expected + 1).await.unwrap();
        }
        other.close().await;
        let granted = late.granted().await;
        assert_eq!((granted.epoch, granted.committed_offset), (batch.epoch + 2, 10));
        late.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_grace_lanes_move_at_once_and_after_a_close_nobody_is_waited_for() {
    let (_database, server) = server().await;
    publish(&server.address, 0, 10).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        for (grace, is_closed) in [(0, false), (LONG, true)] {
            let group = format!("group-{turn}-{grace}");
            let (mut socket, welcome, batch) = member(&server, subprotocol, with_grace(grace), &group).await;
            assert_eq!(socket.ack_below(&batch, 4).await, Ok(4));
            let mut other = Socket::connect(&server.address, subprotocol).await;
            other.subscribe(&group, "orders").await;
            let since = Instant::now();
            if is_closed {
                socket.close().await
            } else {
                socket.cut()
            }
            let granted = other.granted().await;
            assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
            assert_eq!((granted.epoch, granted.committed_offset), (batch.epoch + 1, 4));
            // After an orderly end nothing is suspect, and the rest comes at once.
            let rest = other.batch().await;
            assert_eq!(offsets(&rest), if is_closed { (4..10).collect() } else { vec![4] });
            let (_late, again) = Socket::connect_with(&server.address, subprotocol, back(&welcome)).await;
            assert_reset(&again);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_behind_a_dead_line_resumes_over_another_one_before_the_broker_has_noticed() {
    let (_database, server) = server().await;
    publish(&server.address, 0, 10).await;
    let proxy = Proxy::to(&server.address).await;
    let (mut socket, welcome) =
        Socket::connect_with(&proxy.address, Subprotocol::Json, with_grace(LONG)).await;
    socket.subscribe("billing", "orders").await;
    let batch = socket.batch().await;
    assert_eq!(socket.ack_below(&batch, 6).await, Ok(6));
    proxy.freeze();
    socket.send(ClientFrame::Ack(ack(&batch, Some(8), &[]))).await; // never arrives
    let since = Instant::now();
    let (mut again, report_of) =
        Socket::connect_with(&server.address, Subprotocol::MessagePack, back(&welcome)).await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(report(&report_of).outcome, ResumeOutcome::Resumed);
    let remainder = again.batch().await;
    assert_eq!((remainder.round, offsets(&remainder)), (2, vec![6, 7, 8, 9]));
    // What was done of the old round may still be told.
    assert_eq!(again.ack_below(&batch, 8).await, Ok(8));
}
