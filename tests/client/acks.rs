//! Acks that were lost with a connection, that a broker could not commit yet, and that a client closes with.

use std::time::{Duration, Instant};

use laneway::postgres::StopMode;
use laneway_client::wire::{Ack, Acked, BrokerFrame, ClientFrame, ErrorFrame};
use laneway_client::{Client, Error, ErrorCode, Leftover, Options};

use crate::bus::{Bus, committed, next, offsets, quick, take, to, url};
use crate::fake::{EPOCH, Fake, Peer};
use crate::harness::own::OwnServer;
use crate::harness::socket::make_topic;
use crate::harness::{Server, wait};
use crate::wire::Wire;

const LONG: Duration = Duration::from_secs(60);

fn ack(frame: ClientFrame) -> Option<Ack> {
    match frame {
        ClientFrame::Ack(ack) => Some(ack),
        _ => None,
    }
}

async fn confirm(peer: &mut Peer, ack: &Ack) {
    let (id, committed_offset) = (ack.id.unwrap(), ack.next.unwrap());
    let acked = Acked { id, subscription: 1, partition: 0, epoch: EPOCH, committed_offset };
    peer.send(BrokerFrame::Acked(acked)).await;
}

async fn refuse(peer: &mut Peer, ack: &Ack, code: ErrorCode) {
    let mut error = ErrorFrame::new(code, "not now");
    (error.id, error.retry_after_ms) = (ack.id, Some(10));
    peer.send(BrokerFrame::Error(Box::new(error))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_that_were_lost_with_a_connection_are_told_again_and_nothing_comes_twice() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..10).await;
    let wire = Wire::to(&bus.server.address).await;
    let client = Client::connect(&wire.url(), quick()).await.unwrap();
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    let held = take(&mut subscription, 10).await;
    wire.mute();
    for (number, delivery) in held.into_iter().enumerate() {
        if number != 4 {
            delivery.ack(); // all but one, so that there are ranges, too
        }
    }
    wait::until("the acks to be swallowed", async || wire.swallowed() > 0).await;
    wire.cut();
    let again = next(&mut subscription).await;
    assert_eq!(again.offset, 4, "the only one that is not done");
    again.ack();
    wait::until("all acks to arrive", async || committed(&bus, 0).await == 10).await;
    client.publish("orders", to(0, 10)).await.unwrap();
    assert_eq!(next(&mut subscription).await.offset, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_is_repeated_after_a_resume_and_its_message_is_not_shown_again() {
    let fake = Fake::start().await;
    let (client, mut peer) = fake.connected(LONG).await;
    let subscribing = tokio::spawn(client.subscribe("orders", "billing").into_future());
    peer.grant().await;
    let mut subscription = subscribing.await.unwrap().unwrap();
    peer.deliver(1, 0..3).await;
    let mut held = take(&mut subscription, 3).await;
    held.remove(0).ack();
    let first = peer.wait_for(ack).await;
    assert_eq!((first.id, first.round, first.next), (None, 1, Some(1)), "nobody waits for it");
    drop(peer);

    let mut peer = fake.accept().await;
    peer.resume(2).await;
    peer.deliver(2, 0..3).await;
    let repeated = peer.wait_for(ack).await;
    assert_eq!((repeated.epoch, repeated.round, repeated.next), (EPOCH, 1, Some(1)));
    confirm(&mut peer, &repeated).await;
    assert_eq!(offsets(&take(&mut subscription, 2).await), [1, 2], "0 is done");
    let in_new_round = peer.wait_for(ack).await;
    assert_eq!((in_new_round.round, in_new_round.next), (2, Some(1)), "and is settled in the new round, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_that_cannot_be_committed_yet_is_sent_again_until_it_is() {
    let fake = Fake::start().await;
    let (client, mut peer) = fake.connected(LONG).await;
    let subscribing = tokio::spawn(client.subscribe("orders", "billing").into_future());
    peer.grant().await;
    let mut subscription = subscribing.await.unwrap().unwrap();
    peer.deliver(1, 0..2).await;
    let mut held = take(&mut subscription, 2).await;
    let confirmed = tokio::spawn(held.remove(0).ack_confirmed());
    let mut ids = std::collections::BTreeSet::new();
    for code in [ErrorCode::Unavailable, ErrorCode::OutcomeUnknown, ErrorCode::Overloaded] {
        let asked = peer.wait_for(ack).await;
        assert_eq!((asked.round, asked.next), (1, Some(1)));
        assert!(ids.insert(asked.id.unwrap()), "each time under a number of its own");
        refuse(&mut peer, &asked, code).await;
    }
    let asked = peer.wait_for(ack).await;
    confirm(&mut peer, &asked).await;
    assert_eq!(confirmed.await.unwrap(), Ok(()));
    let confirmed = tokio::spawn(held.remove(0).ack_confirmed());
    let asked = peer.wait_for(ack).await;
    refuse(&mut peer, &asked, ErrorCode::LeaseLost).await;
    assert_eq!(confirmed.await.unwrap(), Err(Error::LaneLost), "what is refused is not tried again");
}

/// A client on a PostgreSQL of its own, with an ack that nothing has confirmed.
async fn with_an_ack(close_timeout: Duration) -> (OwnServer, Server, Client) {
    let postgres = OwnServer::start(&[]).await;
    postgres.migrated().await;
    let server = Server::on_database(&postgres.cluster.url()).await;
    make_topic(&server.address, "orders", 1).await;
    let client = Client::connect(&url(&server), Options { close_timeout, ..quick() }).await.unwrap();
    client.publish("orders", to(0, 0)).await.unwrap();
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    let delivery = next(&mut subscription).await;
    postgres.cluster.stop(StopMode::Immediate).await.unwrap();
    delivery.ack();
    std::mem::forget(subscription); // it stays a member until the connection is closed
    (postgres, server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_closed_in_an_outage_waits_and_says_what_is_not_confirmed() {
    let (_postgres, _server, client) = with_an_ack(Duration::from_secs(1)).await;
    let since = Instant::now();
    assert_eq!(client.close().await, Leftover { lanes: 1, ..Leftover::default() });
    assert!(since.elapsed() >= Duration::from_secs(1), "it has waited: {:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_closed_in_an_outage_that_ends_loses_no_ack() {
    let (postgres, _server, client) = with_an_ack(Duration::from_secs(30)).await;
    let closing = tokio::spawn(async move { client.close().await });
    postgres.cluster.start().await.unwrap();
    assert_eq!(closing.await.unwrap(), Leftover::default());
    let sql = "SELECT max(committed_offset) FROM laneway.lane_commit";
    let row = postgres.raw().await.query_one(sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_closed_while_its_broker_is_away_says_what_is_not_confirmed() {
    let mut bus = Bus::new(1).await;
    bus.fill(0, 0..1).await;
    let options = Options { close_timeout: Duration::from_millis(500), ..quick() };
    let client = Client::connect(&bus.url(), options).await.unwrap();
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    let delivery = next(&mut subscription).await;
    bus.server.kill().await;
    let mut connection = client.connection();
    connection.wait_for(|connection| !connection.is_up()).await.unwrap();
    delivery.ack();
    assert_eq!(client.close().await, Leftover { lanes: 1, ..Leftover::default() });
}
