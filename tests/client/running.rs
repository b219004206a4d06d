//! `run`: partitions in parallel, each in order, also when messages fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_client::Stop;

use crate::bus::{Bus, committed, text};
use crate::harness::socket::quick_retries;

const PARTITIONS: u32 = 4;
const EACH: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_keeps_the_order_of_each_partition_while_messages_fail() {
    let bus = Bus::new(PARTITIONS).await;
    for partition in 0..PARTITIONS {
        bus.fill(partition, 0..EACH).await;
    }
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").settings(quick_retries(10)).await.unwrap();
    let (stop, done) = (Stop::new(), Mutex::new(BTreeMap::<u32, Vec<String>>::new()));
    let (in_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let total = AtomicUsize::new(0);
    let handler = async |delivery: Arc<laneway_client::Delivery>| {
        most.fetch_max(in_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        in_work.fetch_sub(1, Ordering::SeqCst);
        if delivery.offset % 20 == 7 && delivery.attempts == 0 {
            return Err("the first attempt fails");
        }
        done.lock().unwrap().entry(delivery.partition).or_default().push(text(&delivery));
        if total.fetch_add(1, Ordering::SeqCst) + 1 == PARTITIONS as usize * EACH {
            stop.stop();
        }
        Ok(())
    };
    let handled = subscription.run(3, &stop, handler).await.unwrap();
    assert_eq!(
        (handled.acked, handled.failed),
        (u64::from(PARTITIONS) * EACH as u64, u64::from(PARTITIONS) * 3)
    );
    assert!((2..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    let numbers: Vec<String> = (0..EACH).map(|number| number.to_string()).collect();
    for partition in 0..PARTITIONS {
        assert_eq!(done.lock().unwrap()[&partition], numbers);
    }
    client.close().await;
    for partition in 0..PARTITIONS {
        assert_eq!(committed(&bus, partition).await, EACH as i64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_stopped_finishes_what_is_in_work_and_no_more() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..10).await;
    let client = bus.client().await;
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    let stop = Stop::new();
    let handler = async |delivery: Arc<laneway_client::Delivery>| {
        if delivery.offset == 3 {
            stop.stop();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok::<(), &str>(())
    };
    assert_eq!(subscription.run(8, &stop, handler).await.unwrap().acked, 4);
    client.close().await;
    assert_eq!(committed(&bus, 0).await, 4);
}
