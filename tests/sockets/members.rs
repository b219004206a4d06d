//! Members: sharing lanes, draining, waiting for a place, taking over at once; on one broker and on two.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use laneway_client::wire::{
    BrokerFrame, ClientFrame, CreditGrant, Hello, LaneReset, Resume, ResumeOutcome, Subprotocol, Subscribe,
    Unsubscribe,
};

use crate::Bus;
use crate::harness::Server;
use crate::harness::quiet::seal;
use crate::harness::socket::{BOTH, Socket, hello, offsets, quick_retries, subscribe};
use crate::harness::wait::until;

async fn lanes(socket: &mut Socket, count: usize) -> BTreeSet<u32> {
    let mut lanes = BTreeSet::new();
    for _ in 0..count {
        lanes.insert(socket.granted().await.partition);
    }
    lanes
}

#[tokio::test(flavor = "multi_thread")]
async fn members_share_evenly_and_those_beyond_the_partitions_wait_and_take_over_at_once() {
    let bus = Bus::with_topic("orders", 2).await;
    let mut first = bus.connect(Subprotocol::Json).await;
    first.subscribe("billing", "orders").await;
    assert_eq!(lanes(&mut first, 2).await.len(), 2);
    let mut second = bus.connect(Subprotocol::MessagePack).await;
    second.subscribe("billing", "orders").await;
    let taken = second.granted().await;
    assert_eq!(taken.epoch, 2);
    let mut third = bus.connect(Subprotocol::Json).await;
    third.subscribe("billing", "orders").await;
    assert!(third.frame_within(Duration::from_millis(300)).await.is_none(), "there is no place for it");
    let started = Instant::now();
    second.cut();
    let granted = third.granted().await;
    assert_eq!((granted.partition, granted.epoch), (taken.partition, 3));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebalance_drains_what_moves_and_leaves_the_rest_alone() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 2).await;
        bus.publish("orders", 0, 0..5).await;
        bus.publish("orders", 1, 0..5).await;
        let mut first = bus.connect(subprotocol).await;
        first.subscribe("billing", "orders").await;
        lanes(&mut first, 2).await;
        let batches = first.batches(10).await;
        let mut second = bus.connect(subprotocol).await;
        second.subscribe("billing", "orders").await;
        let draining = first
            .wait_for(|frame| match frame {
                BrokerFrame::LaneDraining(draining) => Some(draining.clone()),
                _ => None,
            })
            .await;
        // No more batches of the lane that moves; the other goes on.
        bus.publish("orders", draining.partition, 5..6).await;
        bus.publish("orders", 1 - draining.partition, 5..6).await;
        let stays = first.batch().await;
        assert_eq!((stays.partition, offsets(&stays)), (1 - draining.partition, vec![5]));
        assert!(first.frame_within(Duration::from_millis(200)).await.is_none());
        assert!(second.frame_within(Duration::from_millis(10)).await.is_none(), "it is still held");
        let batch = batches.iter().find(|batch| batch.partition == draining.partition).unwrap();
        first.ack_below(batch, 5).await.unwrap();
        let granted = second.granted().await;
        assert_eq!((granted.partition, granted.epoch, granted.committed_offset), (draining.partition, 2, 5));
        assert_eq!(offsets(&second.batch().await), [5]);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_does_not_finish_loses_the_lane_when_its_time_is_over() {
    let database = crate::harness::TestDatabase::new().await;
    let mut server = Server::start(&["--database-url", &database.url, "--lane-drain", "500ms"]).await;
    crate::harness::socket::make_topic(&server.address, "orders", 1).await;
    let mut first = Socket::connect(&server.address, Subprotocol::Json).await;
    first.publish("orders", vec![crate::to_partition(0, "m0")]).await;
    let subscription = first.subscribe("billing", "orders").await.subscription;
    let batch = first.batch().await;
    let mut second = Socket::connect(&server.address, Subprotocol::Json).await;
    second.subscribe("billing", "orders").await;
    let id = first.id();
    first.send(ClientFrame::Unsubscribe(Unsubscribe { id, subscription })).await;
    let granted = second.granted().await;
    assert_eq!((granted.epoch, granted.committed_offset), (2, 0));
    assert_eq!(offsets(&second.batch().await), [0], "a drain that ran out is no crash: nothing is suspect");
    let late = first.ack_below(&batch, 1).await.unwrap_err();
    let codes = [laneway_client::ErrorCode::LeaseLost, laneway_client::ErrorCode::UnknownSubscription];
    assert!(codes.contains(&late.code), "{late:?}");
    assert_eq!(server.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_share_a_group_and_deliver_what_either_of_them_takes() {
    let bus = Bus::with_topic("orders", 4).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let mut here = bus.connect(Subprotocol::Json).await;
    here.subscribe("billing", "orders").await;
    let mut there = Socket::connect(&other.address, Subprotocol::MessagePack).await;
    there.subscribe("billing", "orders").await;
    let theirs = lanes(&mut there, 2).await;
    for partition in 0..4 {
        bus.publish("orders", partition, 0..3).await;
        let holder = if theirs.contains(&partition) { &mut there } else { &mut here };
        let batches = holder.batches(3).await;
        assert!(batches.iter().all(|batch| batch.partition == partition));
        assert_eq!(batches.iter().flat_map(offsets).collect::<Vec<_>>(), [0, 1, 2]);
        holder.ack_below(batches.last().unwrap(), 3).await.unwrap();
    }
    let mut producer = Socket::connect(&other.address, Subprotocol::Json).await;
    for partition in 0..4 {
        producer.publish("orders", vec![crate::to_partition(partition, "m3")]).await;
        let holder = if theirs.contains(&partition) { &mut there } else { &mut here };
        let batch = holder.batch().await;
        assert_eq!(offsets(&batch), [3]);
        holder.ack_below(&batch, 4).await.unwrap();
    }
    // A broker that stops in order hands its lanes over.
    assert_eq!(other.stop().await, 0);
    let mut back = lanes(&mut here, 2).await;
    while !theirs.is_subset(&back) {
        back.insert(here.granted().await.partition); // some may have been its own before the others came
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_moved_to_another_broker_stays_a_member_when_its_grace_at_the_old_one_is_over() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let grace = Hello { resume_grace_ms: Some(1_000), ..hello() };
    let (mut consumer, welcome) =
        Socket::connect_with(&bus.server.address, Subprotocol::Json, grace.clone()).await;
    consumer.subscribe("billing", "orders").await;
    assert_eq!(consumer.granted().await.epoch, 1);
    consumer.cut();
    let resume = Some(Resume { session: welcome.session, token: welcome.resume_token });
    let (mut moved, _) =
        Socket::connect_with(&other.address, Subprotocol::Json, Hello { resume, ..grace }).await;
    assert_eq!(moved.granted().await.epoch, 2);
    bus.server.logged("lane revoked").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await; // the grace at the old broker
    let members = "SELECT count(*) FROM laneway.member m JOIN laneway.session USING (session_id)";
    assert_eq!(bus.database.number(members).await, 1);
    bus.publish("orders", 0, 0..1).await;
    assert_eq!(offsets(&moved.batch().await), [0]);
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_whose_message_waits_for_a_retry_does_not_stop_its_group() {
    let bus = Bus::with_topic("orders", 2).await;
    bus.publish("orders", 0, 0..1).await;
    let grace = Hello { resume_grace_ms: Some(60_000), ..hello() };
    let (mut consumer, welcome) =
        Socket::connect_with(&bus.server.address, Subprotocol::Json, grace.clone()).await;
    let wish = Subscribe { settings: Some(quick_retries(9)), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let batch = consumer.batch().await;
    consumer.nack(&batch, 0, "later").await.unwrap();
    consumer.cut();
    let due = "SELECT count(*) FROM laneway.attempt WHERE retry_at < clock_timestamp() - interval '100 ms'";
    until("the retry is due while nobody is there", async || bus.database.number(due).await == 1).await;
    let mut other = bus.connect(Subprotocol::Json).await;
    other.subscribe("billing", "orders").await;
    let resume = Some(Resume { session: welcome.session, token: welcome.resume_token });
    let (mut back, welcome) =
        Socket::connect_with(&bus.server.address, Subprotocol::Json, Hello { resume, ..grace }).await;
    assert_eq!(welcome.resume.unwrap().outcome, ResumeOutcome::Resumed);
    let again = back.batch().await;
    assert_eq!((offsets(&again), again.attempts.clone()), (vec![0], vec![(0, 1)]));
    back.ack_below(&again, 1).await.unwrap();
    bus.stop().await;
}

/// Lets retention drop all full segments of a topic of small ones. Returns where it starts now.
async fn retain_little(bus: &Bus) -> i64 {
    let start = "SELECT start_offset FROM laneway.partition";
    let store = bus.database.store();
    until("retention has dropped segments", async || {
        seal(&store).await;
        store.retention_pass().await.unwrap();
        bus.database.number(start).await > 5
    })
    .await;
    bus.database.number(start).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_retention_has_overtaken_is_granted_anew_with_the_range_that_is_lost() {
    for subprotocol in BOTH {
        let bus = Bus::start().await;
        let topic = serde_json::json!({
            "name": "orders", "partitions": 1, "segment_messages": 16, "retention_bytes": 1,
        });
        let answer =
            reqwest::Client::new().post(bus.server.url("/v1/topics")).json(&topic).send().await.unwrap();
        assert!(answer.status().is_success());
        for first in [0, 10, 20, 30] {
            bus.publish("orders", 0, first..first + 10).await;
        }
        // One holds the lane with little credit while it happens, another group has nobody there.
        let few = CreditGrant { messages: 5, bytes: 1 << 20 };
        let mut absent = bus.connect(subprotocol).await;
        absent.subscribe_with(Subscribe { credit: few, ..subscribe("absent", "orders") }).await.unwrap();
        let batch = absent.batch().await;
        absent.ack_below(&batch, 3).await.unwrap();
        absent.close().await;
        let mut holder = bus.connect(subprotocol).await;
        let wish = Subscribe { credit: few, ..subscribe("present", "orders") };
        let subscription = holder.subscribe_with(wish).await.unwrap().subscription;
        assert_eq!(holder.granted().await.reset, None);
        let batch = holder.batch().await;
        holder.ack_below(&batch, 5).await.unwrap();
        let start = retain_little(&bus).await;
        holder.credit(subscription, 100, 0).await;
        let granted = holder.granted().await;
        let lost = |from| Some(LaneReset { from, to: start, reason: "retention".into() });
        assert_eq!((granted.epoch, granted.committed_offset, granted.reset), (2, start, lost(5)));
        assert_eq!(offsets(&holder.batch().await), (start..40).collect::<Vec<_>>());
        let mut back = bus.connect(subprotocol).await;
        back.subscribe("absent", "orders").await;
        let granted = back.granted().await;
        assert_eq!((granted.committed_offset, granted.reset), (start, lost(3)));
        bus.stop().await;
    }
}
