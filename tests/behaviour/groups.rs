//! Groups on a real PostgreSQL, without sockets: grants, deliveries, commits, takeovers.

use std::time::Duration;

use laneway::broker::groups::Leaving;
use laneway_client::wire::BrokerFrame;

use crate::harness::TestDatabase;
use crate::harness::member::{TestMember, offsets};
use crate::harness::produce::{topic, unit};

async fn publish(broker: &laneway::broker::Broker, partition_id: laneway::ids::PartitionId, messages: usize) {
    let texts = (0..messages).map(|number| format!("m{number}"));
    broker.appender.append(unit(partition_id, texts)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_gets_what_was_published_before_and_after_and_commits_it() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    publish(&broker, topic.partitions[0], 3).await;
    let mut member = TestMember::join(&broker, "billing", "orders").await;
    let granted = member.granted().await;
    assert_eq!((granted.partition, granted.epoch, granted.committed_offset), (0, 1, 0));
    let batch = member.batch().await;
    assert_eq!(offsets(&batch), [0, 1, 2]);
    publish(&broker, topic.partitions[0], 2).await;
    let second = member.batch().await;
    assert_eq!(offsets(&second), [3, 4]);
    member.ack(&second, Some(5), &[], Some(7)).await;
    assert_eq!(member.confirmed(7).await, 5);
    let stored = "SELECT committed_offset FROM laneway.lane_commit ORDER BY epoch DESC, number DESC LIMIT 1";
    assert_eq!(database.number(stored).await, 5);
    member.leave(Leaving::Closed).await;
    assert_eq!(database.number("SELECT count(*) FROM laneway.lane WHERE session_id IS NOT NULL").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_has_not_done_goes_to_the_next_and_what_it_has_done_does_not() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    publish(&broker, topic.partitions[0], 10).await;
    let mut first = TestMember::join(&broker, "billing", "orders").await;
    first.granted().await;
    let batch = first.batch().await;
    first.ack(&batch, Some(2), &[4, 7], Some(1)).await;
    assert_eq!(first.confirmed(1).await, 2);
    first.leave(Leaving::Crashed).await;
    let mut second = TestMember::join(&broker, "billing", "orders").await;
    let granted = second.granted().await;
    assert_eq!((granted.epoch, granted.committed_offset), (2, 2));
    assert_eq!(
        granted.acked.iter().map(|range| (range.from, range.to)).collect::<Vec<_>>(),
        [(4, 5), (7, 8)]
    );
    // Suspect: one at a time.
    for expected in [2, 3, 5, 6, 8, 9] {
        let batch = second.batch().await;
        assert_eq!(offsets(&batch), [expected]);
        assert!(second.is_quiet(Duration::from_millis(50)).await);
        second.ack(&batch, None, &[expected], None).await;
    }
    second.leave(Leaving::Drain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_two_brokers_share_the_lanes_and_one_takes_over_from_the_other() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.broker(), database.broker());
    let topic = topic(&one, "orders", 4).await;
    let mut first = TestMember::join(&one, "billing", "orders").await;
    for _ in 0..4 {
        first.granted().await;
    }
    let mut second = TestMember::join(&other, "billing", "orders").await;
    let lanes = [second.granted().await.partition, second.granted().await.partition];
    for _ in 0..2 {
        let revoked = first
            .wait_for(|push| match push {
                laneway::broker::outbox::Push::Frame(frame) => match *frame {
                    BrokerFrame::LaneRevoked(revoked) => Ok(revoked),
                    other => Err(laneway::broker::outbox::Push::Frame(Box::new(other))),
                },
                other => Err(other),
            })
            .await;
        assert!(lanes.contains(&revoked.partition));
    }
    for partition_id in &topic.partitions {
        publish(&one, *partition_id, 1).await;
    }
    for _ in 0..2 {
        let batch = second.batch().await;
        assert!(lanes.contains(&batch.header.partition));
        second.ack(&batch, Some(1), &[], Some(3)).await;
        second.confirmed(3).await;
        assert!(!lanes.contains(&first.batch().await.header.partition));
    }
    second.leave(Leaving::Drain).await;
    assert!(lanes.contains(&first.granted().await.partition));
    assert!(lanes.contains(&first.granted().await.partition));
    first.leave(Leaving::Closed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_always_refused_becomes_a_dead_letter_and_the_lane_goes_on() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    publish(&broker, topic.partitions[0], 5).await;
    let mut member = TestMember::join_with(&broker, "billing", "orders", |subscription| {
        subscription.settings = crate::harness::socket::quick_retries(3);
    })
    .await
    .unwrap();
    member.granted().await;
    for attempt in 1..=3 {
        let batch = member.batch().await;
        assert_eq!(batch.header.round, attempt);
        let first = offsets(&batch)[0];
        assert_eq!(first, if attempt == 1 { 0 } else { 2 });
        member.ack(&batch, Some(2), &[], None).await;
        member.nack(&batch, 2, Some(u64::from(attempt))).await;
        member.confirmed(u64::from(attempt)).await;
    }
    let batch = member.batch().await;
    assert_eq!(offsets(&batch), [3, 4]);
    assert_eq!(database.number("SELECT \"offset\" FROM laneway.dead_letter").await, 2);
    assert_eq!(database.number("SELECT count(*) FROM laneway.attempt").await, 0);
    member.ack(&batch, Some(5), &[], Some(9)).await;
    assert_eq!(member.confirmed(9).await, 5);
    member.leave(Leaving::Closed).await;
}
