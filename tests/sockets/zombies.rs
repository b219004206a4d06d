//! Brokers that freeze or die: their lanes move after the ttl, and nothing they do afterwards counts.

use laneway_client::wire::{Ack, BrokerFrame, ClientFrame, Hello, Resume, Subprotocol};
use nix::sys::signal::Signal;

use crate::Bus;
use crate::harness::socket::{BOTH, Socket, ack, hello, make_topic, offsets};
use crate::harness::{Server, TestDatabase};

async fn quick_broker(database: &TestDatabase) -> Server {
    Server::start(&["--database-url", &database.url, "--lease-ttl", "2s"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_broker_is_buried_and_what_its_sessions_acknowledge_afterwards_moves_nothing() {
    let database = TestDatabase::new().await;
    let mut frozen = quick_broker(&database).await;
    let mut living = quick_broker(&database).await;
    make_topic(&living.address, "orders", 1).await;
    let mut producer = Socket::connect(&living.address, Subprotocol::Json).await;
    producer.publish("orders", (0..4).map(|n| crate::to_partition(0, format!("m{n}"))).collect()).await;
    let mut victim = Socket::connect(&frozen.address, Subprotocol::Json).await;
    victim.subscribe("billing", "orders").await;
    assert_eq!(victim.granted().await.epoch, 1);
    let batch = victim.batch().await;
    assert_eq!(victim.ack_below(&batch, 1).await.unwrap(), 1);
    let mut heir = Socket::connect(&living.address, Subprotocol::Json).await;
    heir.subscribe("billing", "orders").await;
    frozen.signal(Signal::SIGSTOP);
    let granted = heir.granted().await;
    assert_eq!((granted.epoch, granted.committed_offset), (2, 1));
    assert_eq!(offsets(&heir.batch().await), [1, 2, 3], "the death of a broker makes nothing suspect");
    // The zombie wakes with an ack in its socket.
    let id = victim.id();
    victim.send(ClientFrame::Ack(Ack { id: Some(id), ..ack(&batch, Some(4), &[]) })).await;
    frozen.signal(Signal::SIGCONT);
    let refused = victim.confirmed(id).await.unwrap_err();
    assert_eq!(refused.code, laneway_client::ErrorCode::LeaseLost);
    let newest = "SELECT committed_offset FROM laneway.lane_commit ORDER BY epoch DESC, number DESC LIMIT 1";
    assert_eq!(database.number(newest).await, 1);
    victim
        .wait_for(|frame| match frame {
            BrokerFrame::LaneRevoked(revoked) => Some(revoked.clone()),
            _ => None,
        })
        .await;
    // It has begun a new life and is a member again.
    heir.cut();
    assert_eq!(victim.granted().await.epoch, 3);
    assert_eq!(living.stop().await, 0);
    assert_eq!(frozen.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_broker_is_buried_and_its_lanes_run_again() {
    let database = TestDatabase::new().await;
    let mut killed = quick_broker(&database).await;
    let mut living = quick_broker(&database).await;
    make_topic(&living.address, "orders", 3).await;
    let mut victim = Socket::connect(&killed.address, Subprotocol::MessagePack).await;
    victim.subscribe("billing", "orders").await;
    for _ in 0..3 {
        victim.granted().await;
    }
    let mut heir = Socket::connect(&living.address, Subprotocol::MessagePack).await;
    killed.kill().await;
    heir.subscribe("billing", "orders").await;
    let mut epochs = Vec::new();
    for _ in 0..3 {
        epochs.push(heir.granted().await.epoch);
    }
    assert_eq!(epochs, [2, 2, 2]);
    assert_eq!(database.number("SELECT count(*) FROM laneway.broker WHERE dead_at IS NOT NULL").await, 1);
    assert_eq!(living.stop().await, 0);
    let left = "SELECT (SELECT count(*) FROM laneway.session) + (SELECT count(*) FROM laneway.member)
        + (SELECT count(*) FROM laneway.lane WHERE session_id IS NOT NULL)";
    assert_eq!(database.number(left).await, 0, "a broker that stops in order leaves nothing behind");
}

/// A client that is stopped reads nothing, sends nothing, and does not know how long it has slept.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_stopped_past_its_heartbeats_finds_its_acks_refused_wherever_it_says_them() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        bus.publish("orders", 0, 0..4).await;
        let quick = Hello { heartbeat_ms: Some(1_000), resume_grace_ms: Some(500), ..hello() };
        let (mut stopped, welcome) =
            Socket::connect_with(&bus.server.address, subprotocol, quick.clone()).await;
        stopped.subscribe("billing", "orders").await;
        let batch = stopped.batch().await;
        assert_eq!(stopped.ack_below(&batch, 1).await.unwrap(), 1);
        let mut heir = bus.connect(subprotocol).await;
        heir.subscribe("billing", "orders").await;
        let granted = heir.granted().await;
        assert_eq!((granted.epoch, granted.committed_offset), (batch.epoch + 1, 1));
        // It wakes: into its old socket, as its old session, and as a new one.
        let late = ClientFrame::Ack(Ack { id: Some(7), ..ack(&batch, Some(4), &[]) });
        let _closed_meanwhile = stopped.try_send(late.clone()).await;
        let resume = Some(Resume { session: welcome.session, token: welcome.resume_token });
        for hello in [Hello { resume, ..quick.clone() }, quick] {
            let (mut awake, _) = Socket::connect_with(&bus.server.address, subprotocol, hello).await;
            awake.subscribe("billing", "orders").await;
            let refused = awake.ack(ack(&batch, Some(4), &[])).await.unwrap_err();
            assert_eq!(refused.code, laneway_client::ErrorCode::LeaseLost);
            awake.close().await;
        }
        let newest =
            "SELECT committed_offset FROM laneway.lane_commit ORDER BY epoch DESC, number DESC LIMIT 1";
        assert_eq!(bus.database.number(newest).await, 1, "nothing has moved");
        let next = heir.batch().await;
        assert_eq!(heir.ack_below(&next, offsets(&next)[0] + 1).await.unwrap(), 2);
        bus.stop().await;
    }
}
