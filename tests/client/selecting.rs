//! One subscription to many topics: what matches, also later, also in another session; acks, steps and credit as ever.

use std::collections::BTreeSet;
use std::time::Duration;

use laneway_client::selection::Selection;
use laneway_client::{Client, Error, ErrorCode, NewMessage, Options, Start, Subscription};

use crate::bus::{Bus, both, next, quick, text};
use crate::harness::socket::make_topic;
use crate::harness::wait;
use crate::wire::Wire;

fn pattern(pattern: &str) -> Selection {
    Selection { pattern: Some(pattern.to_owned()), ..Selection::default() }
}

async fn publish(client: &Client, topic: &str, payload: &str) {
    let message = NewMessage { payload: payload.to_owned().into(), ..NewMessage::default() };
    client.publish(topic, message).await.unwrap();
}

/// So many messages, as topic and payload, each acknowledged for certain.
async fn done(subscription: &mut Subscription, count: usize) -> BTreeSet<(String, String)> {
    let mut done = BTreeSet::new();
    while done.len() < count {
        let delivery = next(subscription).await;
        done.insert((delivery.topic.to_string(), text(&delivery)));
        match delivery.ack_confirmed().await {
            Ok(()) | Err(Error::LaneLost) => {}
            Err(error) => panic!("{error}"),
        }
    }
    done
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    pairs.iter().map(|(topic, payload)| ((*topic).to_owned(), (*payload).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_yields_what_all_its_topics_hold_also_those_that_come_later() {
    for options in both() {
        let bus = Bus::new(1).await;
        for topic in ["jobs.a", "jobs.b", "out"] {
            make_topic(&bus.server.address, topic, 2).await;
        }
        let client = Client::connect(&bus.url(), options).await.unwrap();
        publish(&client, "jobs.a", "1").await;
        publish(&client, "jobs.b", "1").await;
        let mut jobs = client.select(pattern("jobs.*"), "workers").credit(4, 1 << 20).await.unwrap();
        assert_eq!(done(&mut jobs, 2).await, pairs(&[("jobs.a", "1"), ("jobs.b", "1")]));
        for n in 0..20 {
            let topic = format!("jobs.new{n}");
            make_topic(&bus.server.address, &topic, 1).await;
            publish(&client, &topic, "first").await;
        }
        assert_eq!(done(&mut jobs, 20).await.len(), 20, "far more than the credit");
        wait::until("all to have joined", async || jobs.topics().len() == 22).await;
        // A step over two of its topics.
        publish(&client, "jobs.a", "2").await;
        publish(&client, "jobs.b", "2").await;
        let (first, second) = (next(&mut jobs).await, next(&mut jobs).await);
        assert_ne!(first.topic, second.topic);
        let step = first.transact().ack(&second).publish("out", NewMessage::default());
        assert_eq!(step.commit().await.unwrap().placed.len(), 1);
        let refused = client.select(Selection::default(), "others").await.unwrap_err();
        assert!(
            matches!(&refused, Error::Refused(refusal) if refusal.code == ErrorCode::InvalidSelection),
            "{refused}"
        );
        drop((first, second));
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_goes_on_over_lost_connections_and_skips_nothing_that_came_meanwhile() {
    for grace in [Duration::from_secs(30), Duration::ZERO] {
        let bus = Bus::new(1).await;
        make_topic(&bus.server.address, "jobs.a", 1).await;
        let wire = Wire::to(&bus.server.address).await;
        let options = Options { resume_grace: grace, ..quick() };
        let client = Client::connect(&wire.url(), options).await.unwrap();
        let producer = bus.client().await;
        let mut jobs = client.select(pattern("jobs.*"), "workers").start(Start::Latest).await.unwrap();
        wait::until("the first to have joined", async || jobs.lanes().len() == 1).await;
        publish(&producer, "jobs.a", "1").await;
        assert_eq!(done(&mut jobs, 1).await, pairs(&[("jobs.a", "1")]));
        wire.cut();
        make_topic(&bus.server.address, "jobs.b", 1).await;
        publish(&producer, "jobs.b", "1").await;
        publish(&producer, "jobs.a", "2").await;
        assert_eq!(done(&mut jobs, 2).await, pairs(&[("jobs.a", "2"), ("jobs.b", "1")]));
        client.close().await;
    }
}
