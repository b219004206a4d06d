//! `run_pipeline`: each message and what follows from it happen once and in order, also when messages fail and brokers die.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use laneway_client::{Client, Delivery, Handled, NewMessage, Outputs, Stop, Subscription};
use rand::Rng as _;

use crate::bus::{Bus, committed, keyed, next, publish_all, quick, url};
use crate::harness::socket::{make_topic, quick_retries};
use crate::harness::wait;
use crate::wire::Wire;

/// What a key has in a topic, in order.
async fn by_key(bus: &Bus, topic: &str) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, payload) in bus.stored_in(topic).await {
        keys.entry(key).or_default().push(payload);
    }
    keys
}

async fn count(bus: &Bus, topic: &str) -> usize {
    bus.stored_in(topic).await.len()
}

/// Waits until a topic has so many messages, without keeping the database busy.
async fn all_of(bus: &Bus, topic: &str, many: usize) {
    wait::until(topic, async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        count(bus, topic).await >= many
    })
    .await;
}

/// The same payload and key.
fn forward(delivery: &Delivery) -> NewMessage {
    NewMessage { payload: delivery.payload.clone(), key: delivery.key.clone(), ..NewMessage::default() }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

type Handling = fn(&Delivery) -> Result<Outputs, String>;

/// A pipeline in a task of its own, and how to end it.
fn start(mut from: Subscription, handling: Handling) -> (Stop, tokio::task::JoinHandle<Handled>) {
    let stop = Stop::new();
    let stopped = stop.clone();
    let run = async move {
        let handler = async |delivery: Arc<Delivery>| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            handling(&delivery)
        };
        from.run_pipeline(4, &stop, handler).await.unwrap()
    };
    (stopped, tokio::spawn(run))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_topics_in_a_row_keep_the_order_of_each_key_while_messages_fail() {
    const KEYS: usize = 6;
    const EACH: usize = 25;
    let bus = Bus::new(4).await;
    for topic in ["charges", "parcels"] {
        make_topic(&bus.server.address, topic, 3).await;
    }
    let client = bus.client().await;
    for number in 0..EACH {
        publish_all(&client, "orders", (0..KEYS).map(|key| keyed(key, number))).await;
    }
    let orders = client.subscribe("orders", "charging").settings(quick_retries(10)).await.unwrap();
    let charges = client.subscribe("charges", "shipping").settings(quick_retries(10)).await.unwrap();
    // Every seventh message fails at first, others lead to two messages, or to a topic that does not exist at first.
    let charge: Handling = |order| match (order.offset % 7, order.attempts) {
        (3, 0) => Err("not at the first attempt".to_owned()),
        (5, 0) => Ok(Outputs::to("charges", forward(order)).and("nowhere", forward(order))),
        _ => Ok(Outputs::to("charges", forward(order)).and("charges", forward(order))),
    };
    let ship: Handling = |charge| match (charge.offset % 5, charge.attempts) {
        (4, 0) => Err("not at the first attempt".to_owned()),
        _ => Ok(Outputs::to("parcels", forward(charge))),
    };
    let (stop_charging, charging) = start(orders, charge);
    let (stop_shipping, shipping) = start(charges, ship);
    all_of(&bus, "parcels", 2 * KEYS * EACH).await;
    stop_charging.stop();
    stop_shipping.stop();
    let (charged, shipped) = (charging.await.unwrap(), shipping.await.unwrap());
    assert_eq!((charged.acked, shipped.acked), ((KEYS * EACH) as u64, (2 * KEYS * EACH) as u64));
    assert!(charged.failed >= 20 && shipped.failed >= 40, "{charged:?} {shipped:?}");
    client.close().await;
    let twice: Vec<String> = numbers(0..EACH).into_iter().flat_map(|one| [one.clone(), one]).collect();
    for topic in ["charges", "parcels"] {
        let keys = by_key(&bus, topic).await;
        assert_eq!(keys.len(), KEYS);
        keys.iter().for_each(|(key, payloads)| assert_eq!(*payloads, twice, "{topic} of {key}"));
    }
    let open =
        "SELECT count(*) FROM laneway.lag WHERE lag_messages > 0 AND group_name IN ('charging', 'shipping')";
    wait::until("all acks to be seen", async || bus.database.number(open).await == 0).await;
}

/// Brokers that are killed or stopped in turn while a pipeline is at work; each comes back at its address.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_brokers_that_are_killed_in_the_midst_of_steps_leave_each_result_once_and_in_order() {
    const EACH: usize = 300;
    let mut bus = Bus::brief(2).await;
    make_topic(&bus.server.address, "results", 2).await;
    let mut other = bus.brief_at("127.0.0.1:0").await;
    let options = |options: &mut laneway_client::Options| {
        (options.backoff_min, options.backoff_max) = (quick().backoff_min, quick().backoff_max);
    };
    let client = Client::builder(bus.url()).also(url(&other)).options(options);
    let client = client.connect().await.unwrap();
    for partition in 0..2 {
        let message = |number| NewMessage { partition: Some(partition), ..keyed(partition, number) };
        publish_all(&client, "orders", (0..EACH).map(message)).await;
    }
    let orders = client.subscribe("orders", "work").await.unwrap();
    let (stop, running) = start(orders, |order| Ok(Outputs::to("results", forward(order))));
    for number in 0..4 {
        pause(50..400).await;
        let broker = if number % 2 == 0 { &mut bus.server } else { &mut other };
        let address = broker.address.clone();
        match number {
            2 => assert_eq!(broker.stop().await, 0),
            _ => broker.kill().await,
        }
        let again = bus.brief_at(&address).await;
        *(if number % 2 == 0 { &mut bus.server } else { &mut other }) = again;
    }
    all_of(&bus, "results", 2 * EACH).await;
    stop.stop();
    assert_eq!(running.await.unwrap().failed, 0);
    assert!(client.connection().borrow().losses() >= 2, "{:?}", client.connection().borrow());
    let results = by_key(&bus, "results").await;
    let expected = ["0", "1"].map(|key| (key.to_owned(), numbers(0..EACH)));
    assert_eq!(results, BTreeMap::from(expected), "each once, in order");
    for partition in 0..2 {
        wait::until("all acks", async || committed(&bus, partition).await == EACH as i64).await;
    }
}

async fn pause(milliseconds: std::ops::Range<u64>) {
    let pause = rand::rng().random_range(milliseconds);
    tokio::time::sleep(Duration::from_millis(pause)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_again_and_again_leaves_each_result_once_and_in_order() {
    const EACH: usize = 80;
    const CUTS: u64 = 20;
    let bus = Bus::new(3).await;
    make_topic(&bus.server.address, "results", 2).await;
    let producer = bus.client().await;
    for partition in 0..3 {
        let message = |number| NewMessage { partition: Some(partition), ..keyed(partition, number) };
        publish_all(&producer, "orders", (0..EACH).map(message)).await;
    }
    let wire = Wire::to(&bus.server.address).await;
    let client = Client::connect(&wire.url(), quick()).await.unwrap();
    let orders = client.subscribe("orders", "work").await.unwrap();
    let (stop, running) = start(orders, |order| Ok(Outputs::to("results", forward(order))));
    for _ in 0..CUTS {
        pause(20..80).await;
        match rand::rng().random_range(0..3) {
            0 => wire.mute(),
            1 => wire.deafen(),
            _ => {}
        }
        pause(1..30).await;
        wire.cut();
    }
    all_of(&bus, "results", 3 * EACH).await;
    stop.stop();
    let handled = running.await.unwrap();
    assert_eq!(handled, Handled { acked: 3 * EACH as u64, failed: 0 });
    assert!(client.connection().borrow().losses() >= CUTS / 2, "{:?}", client.connection().borrow());
    let expected = ["0", "1", "2"].map(|key| (key.to_owned(), numbers(0..EACH)));
    assert_eq!(by_key(&bus, "results").await, BTreeMap::from(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_is_stopped_finishes_its_step_and_begins_no_other() {
    let bus = Bus::new(1).await;
    make_topic(&bus.server.address, "results", 1).await;
    bus.fill(0, 0..10).await;
    let client = bus.client().await;
    let mut orders = client.subscribe("orders", "billing").await.unwrap();
    let stop = Stop::new();
    let handler = async |order: Arc<Delivery>| {
        if order.offset == 3 {
            stop.stop();
        }
        Ok::<_, String>(Outputs::to("results", forward(&order)))
    };
    let handled = orders.run_pipeline(8, &stop, handler).await.unwrap();
    assert_eq!(handled, Handled { acked: 4, failed: 0 });
    assert_eq!(count(&bus, "results").await, 4);
    client.close().await;
    let heir = bus.client().await;
    let mut orders = heir.subscribe("orders", "billing").await.unwrap();
    assert_eq!(next(&mut orders).await.offset, 4);
}
