//! Receipts, limits, one copy each and in order, whatever happens to the broker.

use std::collections::BTreeMap;
use std::time::Duration;

use laneway_client::{Class, Client, Error, ErrorCode, NewMessage, Options};
use nix::sys::signal::Signal;

use crate::bus::{Bus, both, quick, to, url};

const EACH: usize = 400;

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Publishes numbered messages to each partition, one after the other let in; returns when all have receipts.
async fn stream(client: Client, partitions: u32, each: usize, on_admitted: impl Fn(usize)) {
    let mut pending = Vec::new();
    for number in 0..each {
        for partition in 0..partitions {
            pending.push(client.publish_later("orders", to(partition, number)).await.unwrap());
            tokio::task::yield_now().await;
        }
        on_admitted(number);
    }
    for one in pending {
        let receipt = one.receipt().await.unwrap();
        assert!(receipt.offset.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_say_where_messages_went_in_both_encodings() {
    let bus = Bus::new(4).await;
    for options in both() {
        let client = Client::connect(&bus.url(), options).await.unwrap();
        let messages = (0..1_000).map(|number| NewMessage {
            key: Some(format!("k{}", number % 10).into()),
            payload: number.to_string().into(),
            ..NewMessage::default()
        });
        let receipts = client.publish_many("orders", messages).await;
        let mut last: BTreeMap<u32, i64> = BTreeMap::new();
        for (number, receipt) in receipts.into_iter().enumerate() {
            let receipt = receipt.unwrap();
            let key = format!("k{}", number % 10);
            assert_eq!(receipt.partition, laneway_client::routing::partition_of(key.as_bytes(), 4));
            assert!(!receipt.duplicate);
            let offset = receipt.offset.unwrap();
            assert!(last.insert(receipt.partition, offset).is_none_or(|before| before + 1 == offset));
        }
        client.close().await;
        let late = client.publish("orders", to(0, 1)).await;
        assert_eq!(late, Err(Error::Closed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_breaks_a_rule_is_refused_at_once_and_hurts_no_other() {
    let bus = Bus::new(1).await;
    let client = bus.client().await;
    let large = NewMessage { payload: vec![0; (1 << 20) + 1].into(), ..NewMessage::default() };
    let nul = NewMessage { trace_id: Some(uuid::Uuid::nil()), ..to(0, 7) };
    let (good, large, lost, nul, good_too) = tokio::join!(
        client.publish("orders", to(0, 1)),
        client.publish("orders", large),
        client.publish("nowhere", to(0, 1)),
        client.publish("orders", nul), // a rule that only the broker knows
        client.publish("orders", to(0, 2)),
    );
    assert_eq!(good.unwrap().partition, 0);
    assert_eq!(large.unwrap_err().code(), Some(ErrorCode::PayloadTooLarge));
    let lost = lost.unwrap_err();
    assert_eq!((lost.code(), lost.class()), (Some(ErrorCode::UnknownTopic), Class::Refused));
    assert_eq!(nul.unwrap_err().class(), Class::Refused);
    good_too.unwrap();
    assert_eq!(bus.stored(0).await, ["1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_wait_is_bounded() {
    let mut bus = Bus::new(1).await;
    let options = Options { publish_messages_max: 5, publish_timeout: Duration::from_secs(1), ..quick() };
    let client = Client::connect(&bus.url(), options).await.unwrap();
    client.publish("orders", to(0, 0)).await.unwrap();
    bus.server.kill().await;
    let mut pending = Vec::new();
    let full = loop {
        match client.try_publish("orders", to(0, 1)).await {
            Ok(one) => pending.push(one),
            Err(error) => break error,
        }
    };
    assert_eq!((full, pending.len()), (Error::Full, 5));
    for one in pending {
        assert!(matches!(one.receipt().await, Err(Error::TimedOut { .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_restarts_in_the_middle_leaves_one_copy_each_in_order() {
    let mut bus = Bus::new(2).await;
    let client = bus.client().await;
    let (halfway, mut reached) = tokio::sync::mpsc::channel(1);
    let tell = move |number| {
        if number == EACH / 2 {
            halfway.try_send(()).unwrap();
        }
    };
    let publishing = tokio::spawn(stream(client.clone(), 2, EACH, tell));
    reached.recv().await.unwrap();
    let address = bus.server.address.clone();
    assert_eq!(bus.server.stop().await, 0);
    bus.server = bus.at(&address).await;
    publishing.await.unwrap();
    for partition in 0..2 {
        assert_eq!(bus.stored(partition).await, numbers(0..EACH));
    }
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_broker_is_killed_another_takes_over_with_one_copy_each_in_order() {
    let mut bus = Bus::new(2).await;
    let other = bus.another().await;
    let client = Client::builder(bus.url()).also(url(&other)).options(|options| {
        options.backoff_min = quick().backoff_min;
        options.batch_messages_max = 10; // many frames under way when it happens
    });
    let client = client.connect().await.unwrap();
    let server = bus.server.pid();
    let kill = move |number| {
        if number == EACH / 2 {
            nix::sys::signal::kill(server, Signal::SIGKILL).unwrap();
        }
    };
    stream(client.clone(), 2, EACH, kill).await;
    bus.server.ended().await;
    for partition in 0..2 {
        assert_eq!(bus.stored(partition).await, numbers(0..EACH));
    }
    client.close().await;
}
