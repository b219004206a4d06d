//! Lanes on their way from one member to another: the target dies, the owner dies, everybody is late once, one of many comes and goes.

use std::collections::BTreeMap;
use std::time::Duration;

use laneway_client::wire::{BrokerFrame, ClientFrame, LaneDraining, Subprotocol, Subscribe, WantedSettings};

use crate::Bus;
use crate::harness::socket::{BOTH, Seen, Socket, ack, make_topic, offsets, quick_retries, subscribe};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};

/// Long enough that nobody is put out before the test has done what it wants to.
async fn broker(database: &TestDatabase) -> Server {
    Server::start(&["--database-url", &database.url, "--lease-ttl", "2s", "--lane-drain", "60s"]).await
}

async fn draining(socket: &mut Socket) -> LaneDraining {
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::LaneDraining(draining) => Some(draining.clone()),
            _ => None,
        })
        .await
}

async fn publish(address: &str, partitions: u32, numbers: std::ops::Range<usize>) {
    let mut producer = Socket::connect(address, Subprotocol::MessagePack).await;
    for partition in 0..partitions {
        let messages = numbers.clone().map(|number| crate::to_partition(partition, format!("m{number}")));
        producer.publish("orders", messages.collect()).await;
    }
    producer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_dies_before_it_acquires_leaves_no_lane_stuck() {
    let database = TestDatabase::new().await;
    let mut living = broker(&database).await;
    let mut dying = broker(&database).await;
    make_topic(&living.address, "orders", 2).await;
    publish(&living.address, 2, 0..3).await;
    let mut owner = Socket::connect(&living.address, Subprotocol::Json).await;
    owner.subscribe("billing", "orders").await;
    owner.granted().await;
    owner.granted().await;
    let batches = owner.batches(6).await;
    let mut target = Socket::connect(&dying.address, Subprotocol::Json).await;
    target.subscribe("billing", "orders").await;
    let moving = draining(&mut owner).await.partition;
    dying.kill().await;
    // The owner lets go for somebody who is not there any more.
    let last = batches.iter().rfind(|batch| batch.partition == moving).unwrap();
    assert_eq!(owner.ack_below(last, 3).await.unwrap(), 3);
    let granted = owner.granted().await;
    assert_eq!((granted.partition, granted.epoch, granted.committed_offset), (moving, 2, 3));
    publish(&living.address, 2, 3..4).await;
    let mut next: Vec<_> =
        owner.batches(2).await.iter().map(|batch| (batch.partition, offsets(batch))).collect();
    next.sort_unstable();
    assert_eq!(next, [(0, vec![3]), (1, vec![3])]);
    let epochs = "SELECT sum(epoch)::bigint FROM laneway.lane";
    assert_eq!(database.number(epochs).await, 3, "the lane that stayed has its first epoch");
    drop(owner);
    assert_eq!(living.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_dies_in_mid_drain_leaves_the_exact_rest_to_the_target() {
    let database = TestDatabase::new().await;
    let mut dying = broker(&database).await;
    let mut living = broker(&database).await;
    make_topic(&living.address, "orders", 2).await;
    publish(&living.address, 2, 0..3).await;
    let mut owner = Socket::connect(&dying.address, Subprotocol::MessagePack).await;
    owner.subscribe("billing", "orders").await;
    owner.granted().await;
    owner.granted().await;
    let batches = owner.batches(6).await;
    let mut target = Socket::connect(&living.address, Subprotocol::MessagePack).await;
    target.subscribe("billing", "orders").await;
    let moving = draining(&mut owner).await.partition;
    let batch = batches.iter().find(|batch| batch.partition == moving).unwrap();
    assert_eq!(owner.ack_below(batch, 1).await.unwrap(), 1);
    dying.kill().await;
    let mut granted = [target.granted().await, target.granted().await]
        .map(|lane| (lane.partition == moving, lane.epoch, lane.committed_offset));
    granted.sort_unstable();
    assert_eq!(granted, [(false, 2, 0), (true, 2, 1)]);
    let mut rest: BTreeMap<bool, Vec<i64>> = BTreeMap::new();
    for batch in target.batches(5).await {
        rest.entry(batch.partition == moving).or_default().extend(offsets(&batch));
    }
    assert_eq!(rest, BTreeMap::from([(false, vec![0, 1, 2]), (true, vec![1, 2])]));
    drop(target);
    assert_eq!(living.stop().await, 0);
}

/// Epoch of each lane, once the lanes are spread over the members like this and nothing is on its way.
async fn epochs(bus: &Bus, shares: &[i64]) -> Vec<i64> {
    let raw = bus.database.raw().await;
    let unsettled = "SELECT count(*) FROM laneway.lane WHERE session_id IS DISTINCT FROM wanted_session";
    let spread =
        "SELECT count(*) FROM laneway.lane GROUP BY session_id HAVING session_id IS NOT NULL ORDER BY 1";
    until("the lanes to be spread", async || {
        let rows = raw.query(spread, &[]).await.unwrap();
        let found: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        found == shares && bus.database.number(unsettled).await == 0
    })
    .await;
    let rows = raw.query("SELECT epoch FROM laneway.lane ORDER BY partition_id", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_that_comes_and_goes_moves_only_what_must_move() {
    let bus = Bus::with_topic("orders", 6).await;
    let mut members = Vec::new();
    for place in 0..3 {
        let mut member = bus.connect(BOTH[place % 2]).await;
        member.subscribe("billing", "orders").await;
        members.push(member);
    }
    let mut before = epochs(&bus, &[2, 2, 2]).await;
    for round in 0..4 {
        let mut guest = bus.connect(BOTH[round % 2]).await;
        guest.subscribe("billing", "orders").await;
        let joined = epochs(&bus, &[1, 1, 2, 2]).await;
        let taken = guest.granted().await.partition as usize;
        let mut expected = before.clone();
        expected[taken] += 1;
        assert_eq!(joined, expected, "one lane has moved, and only once");
        guest.close().await;
        let left = epochs(&bus, &[2, 2, 2]).await;
        expected[taken] += 1;
        assert_eq!(left, expected, "that lane has moved on, and no other");
        before = left;
    }
    drop(members);
    bus.stop().await;
}

/// Lets its first lane time out, and does its work from then on. Returns when it is told to.
async fn late_once(mut socket: Socket, mut stop: tokio::sync::watch::Receiver<bool>) -> bool {
    let mut was_late = false;
    while !*stop.borrow_and_update() {
        let Some(seen) = socket.seen_within(Duration::from_millis(50)).await else { continue };
        match seen {
            Seen::Frame(BrokerFrame::Batch(batch)) if was_late => {
                let next = offsets(&batch).last().unwrap() + 1;
                socket.send(ClientFrame::Ack(ack(&batch, Some(next), &[]))).await;
            }
            Seen::Frame(BrokerFrame::LaneRevoked(revoked)) => was_late |= revoked.reason == "ack_deadline",
            Seen::Frame(_) => {}
            Seen::Closed(code) => panic!("closed with {code:?}"),
        }
    }
    was_late
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_members_all_time_out_once_drains_in_the_end() {
    let bus = Bus::with_topic("orders", 3).await;
    let settings = WantedSettings { ack_deadline_ms: Some(1_000), ..quick_retries(1_000) };
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut members = Vec::new();
    for place in 0..3 {
        let mut member = bus.connect(BOTH[place % 2]).await;
        let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
        member.subscribe_with(wish).await.unwrap();
        members.push(tokio::spawn(late_once(member, stopped.clone())));
    }
    epochs(&bus, &[1, 1, 1]).await;
    for partition in 0..3 {
        bus.publish("orders", partition, 0..10).await;
    }
    let committed = "SELECT coalesce(sum(committed_offset), 0)::bigint FROM (
        SELECT DISTINCT ON (partition_id) committed_offset FROM laneway.lane_commit
        ORDER BY partition_id, epoch DESC, number DESC) newest";
    until("everything to be done", async || bus.database.number(committed).await == 30).await;
    stop.send(true).unwrap();
    for member in members {
        assert!(member.await.unwrap(), "each of them was late");
    }
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.dead_letter").await, 0);
    bus.stop().await;
}
