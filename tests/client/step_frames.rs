//! What a client says about a step, frame by frame, to a broker that answers as a test wants.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use laneway_client::wire::{Ack, ClientFrame, StepPublish, Transact};
use laneway_client::{
    Client, Delivery, Error, ErrorCode, Handled, Leftover, NewMessage, Options, Outputs, Placed, Stop,
};
use uuid::Uuid;

use crate::bus::{PATIENCE, keyed, next, offsets, quick, take};
use crate::fake::{EPOCH, Fake, Peer};

/// Partitions, and what is acknowledged there.
type Acked = Vec<(u32, Vec<(i64, i64)>)>;

/// What is the same whenever a step is sent, wherever.
fn content(transact: &Transact) -> (Uuid, Acked, &[StepPublish]) {
    let ranges = |ack: &Ack| ack.ranges.iter().map(|range| (range.from, range.to)).collect();
    let acks = transact.acks.iter().map(|ack| {
        assert_eq!((ack.id, ack.next), (None, None), "a step names single messages");
        (ack.partition, ranges(ack))
    });
    (transact.step_id, acks.collect(), &transact.publishes)
}

async fn ack(peer: &mut Peer) -> Ack {
    peer.wait_for(|frame| match frame {
        ClientFrame::Ack(ack) => Some(ack),
        ClientFrame::Transact(transact) => panic!("{transact:?}"),
        _ => None,
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_ack_of_its_lane_passes_a_step_that_is_under_way() {
    let fake = Fake::start().await;
    let (_client, mut subscription, mut peer) = fake.subscribed().await;
    peer.deliver(1, 0..4).await;
    let mut held = take(&mut subscription, 4).await;
    let step = tokio::spawn(held.remove(1).transact().publish("results", keyed("k", 1)).commit());
    let transact = peer.transact().await;
    assert_eq!(content(&transact).1, [(0, vec![(1, 2)])]);
    held.drain(..2).for_each(Delivery::ack);
    let between = ack(&mut peer).await;
    assert_eq!((between.next, between.ranges[..].len()), (Some(1), 1), "0, and 2 by itself");
    assert_eq!((between.ranges[0].from, between.ranges[0].to), (2, 3));
    peer.transacted(&transact, false).await;
    let committed = step.await.unwrap().unwrap();
    assert_eq!(
        (committed.repeated, &committed.placed[..]),
        (false, &[Placed { partition: 0, offset: 100 }][..])
    );
    held.remove(0).ack();
    assert_eq!(ack(&mut peer).await.next, Some(4), "what the step has done holds nothing up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_without_an_answer_is_sent_again_unchanged_on_this_connection_and_the_next() {
    let fake = Fake::start().await;
    let (_client, mut subscription, mut peer) = fake.subscribed().await;
    peer.deliver(1, 0..5).await;
    let held = take(&mut subscription, 5).await;
    let step = held[3].transact().ack(&held[0]).ack(&held[1]).ack(&held[3]);
    let step = step.publish("results", keyed("k", 1)).publish("audit", keyed("k", 2));
    let step = tokio::spawn(step.publish("results", keyed("k", 3)).commit());
    let first = peer.transact().await;
    assert_eq!(content(&first).1, [(0, vec![(0, 2), (3, 4)])], "one ack for the lane");
    let topics: Vec<_> = first.publishes.iter().map(|one| (&one.topic[..], one.messages.len())).collect();
    assert_eq!(topics, [("results", 2), ("audit", 1)]);
    peer.refuse(first.id, ErrorCode::OutcomeUnknown).await;
    let mut ids = BTreeSet::from([first.id]);
    for code in [ErrorCode::Unavailable, ErrorCode::TooManyPublishes, ErrorCode::UnknownSubscription] {
        let again = peer.transact().await;
        assert_eq!(content(&again), content(&first));
        assert!(ids.insert(again.id), "each time under a number of its own");
        peer.refuse(again.id, code).await;
    }
    assert_eq!(content(&peer.transact().await), content(&first));
    drop(peer);

    let mut peer = fake.accept().await;
    peer.resume(2).await;
    let again = peer.transact().await;
    assert_eq!(content(&again), content(&first));
    assert_eq!(
        (again.acks[0].epoch, again.acks[0].round),
        (EPOCH, 1),
        "what was sent in the round before counts"
    );
    // What comes again meanwhile may be done: nobody is given it.
    peer.deliver(2, 0..5).await;
    assert!(tokio::time::timeout(Duration::from_millis(200), next(&mut subscription)).await.is_err());
    peer.transacted(&again, true).await;
    let committed = step.await.unwrap().unwrap();
    assert!(committed.repeated);
    let places: Vec<i64> = committed.placed.iter().map(|placed| placed.offset).collect();
    assert_eq!(places, [100, 102, 101], "in the order in which they were given");
    assert_eq!(offsets(&take(&mut subscription, 2).await), [2, 4], "0, 1 and 3 are done");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_session_is_lost_a_step_is_asked_for_under_the_number_of_the_new_one() {
    let fake = Fake::start().await;
    let (_client, mut subscription, mut peer) = fake.subscribed().await;
    peer.deliver(1, 0..1).await;
    let order = next(&mut subscription).await;
    let step = tokio::spawn(order.transact().publish("results", keyed("k", 1)).commit());
    let first = peer.transact().await;
    drop(peer);

    let mut peer = fake.accept().await;
    peer.welcome(PATIENCE, None).await; // nothing is left of the session
    peer.grant_as(5, EPOCH + 1).await;
    let again = peer.transact().await;
    assert_eq!(content(&again), content(&first));
    assert_eq!((again.acks[0].subscription, again.acks[0].epoch), (5, EPOCH), "under the epoch that it had");
    peer.refuse(again.id, ErrorCode::OutcomeUnknown).await; // a try may be under way elsewhere
    let again = peer.transact().await;
    peer.refuse(again.id, ErrorCode::LeaseLost).await;
    assert_eq!(step.await.unwrap(), Err(Error::LaneLost));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_refused_leaves_its_message_to_its_user() {
    let fake = Fake::start().await;
    let (_client, mut subscription, mut peer) = fake.subscribed().await;
    peer.deliver(1, 0..4).await;
    let mut held = take(&mut subscription, 4).await;
    for (offset, code) in
        [ErrorCode::AlreadyDone, ErrorCode::StaleRound, ErrorCode::UnknownTopic].iter().enumerate()
    {
        let step = tokio::spawn(held[offset].transact().publish("nowhere", keyed("k", 1)).commit());
        let transact = peer.transact().await;
        assert_eq!(content(&transact).1, [(0, vec![(offset as i64, offset as i64 + 1)])]);
        peer.refuse(transact.id, *code).await;
        match (code, step.await.unwrap().unwrap_err()) {
            (ErrorCode::StaleRound, error) => assert_eq!(error, Error::LaneLost),
            (code, error) => assert_eq!(error.code(), Some(*code)),
        }
    }
    // The first is done already, whoever did it; the last one was refused for good, and is nacked.
    held.remove(1).ack();
    assert_eq!(ack(&mut peer).await.next, Some(2));
    held.remove(1).nack("no such topic");
    let nacked = peer.wait_for(|frame| match frame {
        ClientFrame::Nack(nack) => Some((nack.offset, nack.reason)),
        _ => None,
    });
    assert_eq!(nacked.await, (2, Some("no such topic".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_a_rule_and_what_is_not_committed_is_never_sent() {
    let fake = Fake::start().await;
    let (_client, mut subscription, mut peer) = fake.subscribed().await;
    let (_other_client, mut other_subscription, mut other_peer) = fake.subscribed().await;
    peer.deliver(1, 0..3).await;
    other_peer.deliver(1, 0..1).await;
    let mut held = take(&mut subscription, 3).await;
    let order = &held[0];
    let foreign = next(&mut other_subscription).await;
    let many = |topics: usize, each: usize| {
        let messages = (0..topics * each).map(|number| (format!("t{}", number % topics), keyed("k", number)));
        messages.fold(order.transact(), |step, (topic, message)| step.publish(topic, message))
    };
    let numbered = NewMessage { sequence: Some(0), ..keyed("k", 1) };
    let huge = NewMessage { payload: vec![1; 1 << 20].into(), ..NewMessage::default() };
    let cases = [
        (order.transact().ack(&foreign), ErrorCode::Malformed, "acks"),
        (order.transact().publish("results", numbered), ErrorCode::Malformed, "publishes"),
        (order.transact().step_id(Uuid::nil()), ErrorCode::Malformed, "step_id"),
        (many(65, 1), ErrorCode::TooLarge, "publishes"),
        (many(1, 101), ErrorCode::TooLarge, "publishes"),
        (order.transact().publish("results", huge), ErrorCode::TooLarge, "publishes"),
    ];
    for (step, code, field) in cases {
        match step.commit().await {
            Err(Error::Refused(refusal)) => {
                assert_eq!((refusal.code, refusal.field.as_deref()), (code, Some(field)), "{refusal:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    drop(order.transact().publish("results", keyed("k", 1))); // neither this one
    drop(held[1].transact().publish("results", keyed("k", 1)).commit()); // nor one that was never begun
    let mut polled = held[2].transact().publish("results", keyed("k", 1)).commit().boxed();
    held.drain(..2).for_each(Delivery::ack);
    assert_eq!(ack(&mut peer).await.next, Some(2), "all of them are free, and no step was sent");
    assert!(polled.as_mut().now_or_never().is_none(), "it is under way");
    assert_eq!(content(&peer.transact().await).1, [(0, vec![(2, 3)])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_nacks_what_is_refused_and_nothing_else_and_waits_for_each_answer() {
    let fake = Fake::start().await;
    let (client, mut subscription, mut peer) = fake.subscribed().await;
    let pipeline = tokio::spawn(async move {
        let handler = async |order: Arc<Delivery>| match order.offset {
            4 => Err("it cannot be handled"),
            _ => Ok(Outputs::to("results", keyed("k", 1))),
        };
        subscription.run_pipeline(8, &Stop::new(), handler).await
    });
    peer.deliver(1, 0..5).await;
    // Done already by somebody, done now, and lost.
    for (offset, refused) in [(0, Some(ErrorCode::AlreadyDone)), (1, None), (2, Some(ErrorCode::StaleRound))]
    {
        let transact = peer.transact().await;
        assert_eq!(content(&transact).1, [(0, vec![(offset, offset + 1)])]);
        match refused {
            Some(code) => peer.refuse(transact.id, code).await,
            None => peer.transacted(&transact, false).await,
        }
    }
    let transact = peer.transact().await;
    assert_eq!(content(&transact).1, [(0, vec![(3, 4)])], "in order, one after the other");
    peer.refuse(transact.id, ErrorCode::UnknownTopic).await;
    let nack = |frame| match frame {
        ClientFrame::Nack(nack) => Some((nack.offset, nack.reason.unwrap())),
        ClientFrame::Transact(_) | ClientFrame::Ack(_) => panic!("{frame:?}"),
        _ => None,
    };
    assert_eq!(peer.wait_for(nack).await, (3, "no (unknown_topic)".to_owned()));
    peer.deliver(2, 4..5).await;
    assert_eq!(peer.wait_for(nack).await, (4, "it cannot be handled".to_owned()));
    let closing = tokio::spawn(async move { client.close().await });
    while peer.next().await.is_some() {}
    drop(peer);
    closing.await.unwrap();
    assert_eq!(pipeline.await.unwrap(), Ok(Handled { acked: 1, failed: 2 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_dropped_stays_until_its_steps_have_their_answers() {
    let fake = Fake::start().await;
    let (_client, mut subscription, mut peer) = fake.subscribed().await;
    peer.deliver(1, 0..1).await;
    let order = next(&mut subscription).await;
    let step = tokio::spawn(order.transact().commit());
    let transact = peer.transact().await;
    drop(subscription);
    drop(peer);
    let mut peer = fake.accept().await;
    peer.resume(2).await;
    let again = loop {
        match peer.next().await.unwrap() {
            ClientFrame::Transact(again) => break again,
            ClientFrame::Unsubscribe(_) => panic!("nobody could ask what became of the step"),
            _ => {}
        }
    };
    assert_eq!(content(&again), content(&transact));
    peer.transacted(&again, false).await;
    assert_eq!(step.await.unwrap().unwrap().placed, []);
    peer.wait_for(|frame| matches!(frame, ClientFrame::Unsubscribe(_)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_waits_for_steps_and_says_which_it_has_given_up() {
    let fake = Fake::start().await;
    let (url, close_timeout) = (fake.url.clone(), Duration::from_millis(300));
    let connecting =
        tokio::spawn(async move { Client::connect(&url, Options { close_timeout, ..quick() }).await });
    let mut peer = fake.accept().await;
    peer.welcome(PATIENCE, None).await;
    let client = connecting.await.unwrap().unwrap();
    let subscribing = tokio::spawn(client.subscribe("orders", "billing").into_future());
    peer.grant().await;
    let mut subscription = subscribing.await.unwrap().unwrap();
    peer.deliver(1, 0..1).await;
    let order = next(&mut subscription).await;
    let step = tokio::spawn(order.transact().publish("results", keyed("k", 1)).commit());
    peer.transact().await;
    let keeping = tokio::spawn(async move { while peer.next().await.is_some() {} });
    assert_eq!(client.close().await, Leftover { steps: 1, ..Leftover::default() });
    assert_eq!(step.await.unwrap(), Err(Error::TimedOut { doubtful: true }), "nobody knows");
    assert_eq!(order.transact().commit().await, Err(Error::LaneLost), "nothing is held any more");
    keeping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_outlives_its_client_leads_to_nothing_and_keeps_no_connection() {
    let fake = Fake::start().await;
    let (client, mut subscription, mut peer) = fake.subscribed().await;
    peer.deliver(1, 0..1).await;
    let order = next(&mut subscription).await;
    drop((client, subscription));
    let gone = async { while peer.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, gone).await.expect("the connection is closed");
    assert_eq!(order.transact().commit().await, Err(Error::Closed));
    assert_eq!(order.publish("results", keyed("k", 1)).await, Err(Error::Closed));
}
