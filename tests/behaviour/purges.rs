//! Purges under groups that are behind: they are told what is lost, and never get what was purged.

use laneway::ids::Offset;
use laneway_client::TopicName;
use laneway_client::management::Purge;
use laneway_client::wire::LaneReset;

use crate::harness::TestDatabase;
use crate::harness::member::{TestMember, offsets};
use crate::harness::produce::{topic, unit};
use crate::harness::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_behind_a_purge_is_told_by_a_reset_even_if_its_broker_has_the_messages_in_memory() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.broker(), database.broker());
    let partition_id = topic(&here, "orders", 1).await.partitions[0];
    let orders = TopicName::new("orders").unwrap();
    let mut member =
        TestMember::join_with(&there, "billing", "orders", |wish| wish.credit.messages = 2).await.unwrap();
    member.granted().await;
    let publish = async |range: std::ops::Range<usize>| {
        there.appender.append(unit(partition_id, range.map(|number| format!("m{number}")))).await.unwrap();
    };
    publish(0..10).await;
    let batch = member.batch().await;
    assert_eq!(offsets(&batch), [0, 1]);
    member.ack(&batch, Some(1), &[], Some(1)).await;
    assert_eq!(member.confirmed(1).await, 1);
    // Inside what the other broker has in memory, in the middle of a flush.
    let to = Purge::BeforeOffset { partition: 0, before_offset: 6 };
    let purged = here.purge_topic(&orders, &to).await.unwrap();
    assert_eq!((purged[0].from, purged[0].to), (Offset(0), Offset(6)));
    until("the other broker knows", async || there.tails.is_below_start(partition_id, Offset(5))).await;
    member.handle.credit(member.session_id, 2, 1 << 20).await;
    let granted = member.granted().await;
    let reset = |from, to| Some(LaneReset { from, to, reason: "retention".into() });
    assert_eq!((granted.committed_offset, granted.reset), (6, reset(1, 6)));
    let batch = member.batch().await;
    assert_eq!(offsets(&batch), [6, 7]);
    // Everything, with messages in flight: what comes next is what is published next.
    let purged = here.purge_topic(&orders, &Purge::All).await.unwrap();
    assert_eq!((purged[0].from, purged[0].to), (Offset(6), Offset(10)));
    until("the other broker knows", async || there.tails.is_below_start(partition_id, Offset(9))).await;
    publish(10..12).await;
    member.handle.credit(member.session_id, 9, 1 << 20).await;
    let granted = member.granted().await;
    assert_eq!((granted.committed_offset, granted.reset), (10, reset(6, 10)));
    let batch = member.batch().await;
    assert_eq!(offsets(&batch), [10, 11]);
}
