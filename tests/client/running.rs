//! `run`: partitions in parallel, each in order, also when messages fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_client::wire::{GroupOrdering, WantedSettings};
use laneway_client::{NewMessage, Stop};

use crate::bus::{Bus, committed, publish_all, text};
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

#[tokio::test(flavor = "multi_thread")]
async fn a_run_by_key_works_on_several_keys_of_one_partition_and_a_failing_one_waits_alone_in_its_order() {
    const KEYS: usize = 6;
    let bus = Bus::new(1).await;
    let client = bus.client().await;
    let message = |number: usize| NewMessage {
        key: Some(format!("k{}", number % KEYS).into_bytes().into()),
        partition: Some(0),
        payload: (number / KEYS).to_string().into(),
        ..NewMessage::default()
    };
    publish_all(&client, "orders", (0..KEYS * EACH).map(message)).await;
    let settings = WantedSettings { ordering: Some(GroupOrdering::Key), ..quick_retries(10) };
    let mut subscription = client.subscribe("orders", "billing").settings(settings).await.unwrap();
    let (stop, done) = (Stop::new(), Mutex::new(BTreeMap::<String, Vec<String>>::new()));
    let (in_work, most) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0));
    let (total, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // The first message of this key is in work until the others are through.
    let (others_done, slow) = (tokio::sync::Notify::new(), "k5");
    let handler = async |delivery: Arc<laneway_client::Delivery>| {
        let key = String::from_utf8(delivery.key.as_ref().unwrap().to_vec()).unwrap();
        let many = {
            let mut in_work = in_work.lock().unwrap();
            assert!(in_work.insert(key.clone()), "two messages of {key} at once");
            in_work.len()
        };
        most.fetch_max(many, Ordering::SeqCst);
        if key == slow && text(&delivery) == "0" {
            others_done.notified().await;
        }
        tokio::task::yield_now().await;
        in_work.lock().unwrap().remove(&key);
        if key == "k0" && delivery.attempts < 2 && text(&delivery).ends_with('7') {
            failed.fetch_add(1, Ordering::SeqCst);
            return Err("the first two attempts fail");
        }
        done.lock().unwrap().entry(key).or_default().push(text(&delivery));
        match total.fetch_add(1, Ordering::SeqCst) + 1 {
            all if all == KEYS * EACH => stop.stop(),
            without if without == (KEYS - 1) * EACH => others_done.notify_one(),
            _ => {}
        }
        Ok(())
    };
    let handled = subscription.run(4, &stop, handler).await.unwrap();
    let failures = failed.load(Ordering::SeqCst) as u64;
    assert_eq!((handled.acked, handled.failed, failures), ((KEYS * EACH) as u64, failures, 2 * 6));
    assert!((2..=4).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    let numbers: Vec<String> = (0..EACH).map(|number| number.to_string()).collect();
    for (key, handled) in done.into_inner().unwrap() {
        assert_eq!(handled, numbers, "{key}");
    }
    client.close().await;
    assert_eq!(committed(&bus, 0).await, (KEYS * EACH) as i64);
}
