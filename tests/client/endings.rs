//! How connections end: in silence, or with a code that says whether to come back.

use std::time::Duration;

use futures_util::StreamExt as _;
use laneway_client::wire::{Advice, ClientFrame, CloseCode};
use laneway_client::{Class, Client, Connection, Error};

use crate::bus::{PATIENCE, quick, to};
use crate::fake::Fake;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_silent_for_two_heartbeats_is_left_for_a_new_connection() {
    let fake = Fake::start().await;
    let (client, mut silent) = fake.connected(Duration::from_millis(200)).await;
    let mut connection = client.connection();
    let first = silent.next().await;
    assert_eq!(first, Some(ClientFrame::Heartbeat), "the client is not silent itself");
    let lost = tokio::time::timeout(PATIENCE, connection.wait_for(|now| now.losses() == 1)).await;
    let lost = lost.expect("it notices").unwrap().clone();
    assert_eq!(lost, Connection::Down { losses: 1, reason: "nothing was heard from the broker".into() });
    let mut again = fake.accept().await;
    assert!(again.hello.resume.is_some(), "it wants its session back");
    again.welcome(LONG, None).await;
    connection.wait_for(Connection::is_up).await.unwrap();
    let rest = async { while silent.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, rest).await.expect("the silent connection is dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_speaks_in_time_is_kept() {
    let fake = Fake::start().await;
    let (client, mut peer) = fake.connected(Duration::from_millis(200)).await;
    for _ in 0..8 {
        peer.wait_for(|frame| (frame == ClientFrame::Heartbeat).then_some(())).await;
        peer.send(laneway_client::wire::BrokerFrame::Heartbeat).await;
    }
    assert_eq!(*client.connection().borrow(), Connection::Up { losses: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_code_that_says_stop_ends_the_client_and_it_does_not_come_back() {
    for code in CloseCode::ALL.iter().filter(|code| code.advice() == Advice::Stop) {
        let fake = Fake::start().await;
        let (client, mut peer) = fake.connected(LONG).await;
        let subscribing = tokio::spawn(client.subscribe("orders", "billing").into_future());
        peer.grant().await;
        let mut subscription = subscribing.await.unwrap().unwrap();
        peer.close(code.code(), "because").await;
        let end = tokio::time::timeout(PATIENCE, subscription.next()).await.expect("it ends");
        assert!(end.is_none(), "{code:?}");
        let expected = Error::Stopped { code: code.code(), reason: "because".into() };
        assert_eq!(subscription.error(), Some(expected.clone()), "{code:?}");
        assert_eq!(expected.class(), Class::Fatal);
        let later = client.subscribe("orders", "billing").await;
        assert_eq!(later.err(), Some(Error::Closed), "{code:?}");
        // Longer than any pause of these options.
        assert!(!fake.is_called_within(Duration::from_millis(300)).await, "{code:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_code_that_says_retry_and_one_that_is_not_known_lead_to_a_new_connection() {
    let known = CloseCode::ALL.iter().filter(|code| code.advice() == Advice::Retry).map(|code| code.code());
    for code in known.chain([4999]) {
        let fake = Fake::start().await;
        let (client, peer) = fake.connected(LONG).await;
        peer.close(code, "because").await;
        let mut again = fake.accept().await;
        assert!(again.hello.resume.is_some(), "{code}");
        again.welcome(LONG, None).await;
        client.connection().wait_for(|now| *now == Connection::Up { losses: 1 }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_that_is_refused_is_an_error_and_not_tried_again() {
    let fake = Fake::start().await;
    let url = fake.url.clone();
    let connecting = tokio::spawn(async move { Client::connect(&url, quick()).await });
    fake.accept().await.close(CloseCode::HelloRefused.code(), "no").await;
    let error = connecting.await.unwrap().unwrap_err();
    assert_eq!(error, Error::Stopped { code: 4005, reason: "no".into() });
    assert!(!fake.is_called_within(Duration::from_millis(300)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_to_a_client_that_has_stopped_fails_at_once() {
    let fake = Fake::start().await;
    let (client, peer) = fake.connected(LONG).await;
    let mut connection = client.connection();
    peer.close(CloseCode::Policy.code(), "no").await;
    while connection.changed().await.is_ok() {} // until the client has ended
    drop(fake);
    let error = client.publish("orders", to(0, 0)).await.unwrap_err();
    assert_eq!(error, Error::Closed);
}
