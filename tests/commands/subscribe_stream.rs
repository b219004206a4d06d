//! `laneway subscribe` while its broker restarts: everything is printed, in order, and nothing again that was committed.

use nix::sys::signal::Signal;

use crate::harness::wait;
use crate::running::{Bus, Running, numbers};

const PARTITIONS: usize = 2;
const EACH: usize = 3_000;

/// What was printed of each partition: offsets, in the order of lines.
type Printed = [Vec<i64>; PARTITIONS];

/// A command in the middle of many messages, of which some are printed and committed.
async fn in_the_middle(bus: &Bus) -> (Running, Printed) {
    for partition in 0..PARTITIONS {
        bus.publish(partition as u32, numbers(0..EACH)).await;
    }
    let args = ["subscribe", "orders", "--group", "billing", "--format", "json"];
    let mut running = Running::start(bus, &args);
    let mut printed = Printed::default();
    read(&mut running, 500, &mut printed).await;
    wait::until("a commit", async || bus.committed(0).await + bus.committed(1).await > 0).await;
    (running, printed)
}

async fn read(running: &mut Running, many: usize, printed: &mut Printed) {
    for object in running.objects(many).await {
        let partition = object["partition"].as_u64().unwrap() as usize;
        printed[partition].push(object["offset"].as_i64().unwrap());
    }
}

async fn read_the_rest(running: &mut Running, printed: &mut Printed) {
    let last = EACH as i64 - 1;
    while !printed.iter().all(|offsets| offsets.last() == Some(&last)) {
        read(running, 1, printed).await;
    }
}

/// Ends it, and looks at what it has printed; `committed` is what was durable when the broker was gone.
async fn conclude(bus: &Bus, mut running: Running, printed: &Printed, committed: [i64; PARTITIONS]) {
    running.says("laneway: connection lost, trying again: ").await;
    running.says("laneway: the connection is back").await;
    running.signal(Signal::SIGINT);
    assert_eq!((running.rest().await.len(), running.ended().await), (0, 0), "{}", running.said());
    for (partition, offsets) in printed.iter().enumerate() {
        let mut next = 0;
        for (place, offset) in offsets.iter().enumerate() {
            assert!(*offset <= next, "{offset} came before {next}");
            let is_repeated = *offset < next;
            assert!(!is_repeated || *offset >= committed[partition], "{offset} was committed before");
            assert!(place == 0 || *offset == offsets[place - 1] + 1 || is_repeated, "in order");
            next = next.max(offset + 1);
        }
        assert_eq!(next, EACH as i64);
        assert_eq!(bus.committed(partition as u32).await, EACH as i64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_costs_no_message_and_repeats_none_that_was_committed() {
    let mut bus = Bus::new(PARTITIONS as u32).await;
    let (mut running, mut printed) = in_the_middle(&bus).await;
    bus.server.kill().await;
    let committed = [bus.committed(0).await, bus.committed(1).await];
    bus.start_again().await;
    read_the_rest(&mut running, &mut printed).await;
    conclude(&bus, running, &printed, committed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_restarts_in_order_costs_no_message_and_repeats_none_that_was_committed() {
    let mut bus = Bus::new(PARTITIONS as u32).await;
    let (mut running, mut printed) = in_the_middle(&bus).await;
    bus.server.signal(Signal::SIGTERM);
    let reading = async {
        read_the_rest(&mut running, &mut printed).await;
    };
    let restarting = async {
        assert_eq!(bus.server.ended().await, 0);
        let committed = [bus.committed(0).await, bus.committed(1).await];
        bus.start_again().await;
        committed
    };
    let ((), committed) = tokio::join!(reading, restarting);
    conclude(&bus, running, &printed, committed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_while_the_broker_is_away_says_that_acks_are_not_confirmed() {
    let mut bus = Bus::new(1).await;
    bus.publish(0, numbers(0..1)).await;
    let mut running = Running::start(&bus, &["subscribe", "orders", "--group", "billing"]);
    running.objects(1).await;
    bus.server.kill().await;
    running.says("connection lost").await;
    running.signal(Signal::SIGINT);
    assert_eq!((running.rest().await.len(), running.ended().await), (0, 1));
    let said = running.said();
    assert!(
        said.ends_with("acks are not confirmed (lanes: 1): what was printed last may be delivered again\n"),
        "{said}"
    );
}
