//! A rolling restart of all brokers under load: nothing is lost, nothing that was acknowledged comes again, no lane rests long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use laneway_client::{Client, NewMessage};
use tokio_util::sync::CancellationToken;

use crate::harness::socket::make_topic;
use crate::harness::{Server, TestDatabase, wait};
use crate::restart;

const BROKERS: usize = 3;
const PARTITIONS: u32 = 6;
/// A message for every partition this often: what a pause of a lane is measured by.
const BEAT: Duration = Duration::from_millis(20);
/// No lane may rest for longer.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Partition and offset.
type Place = (u32, i64);

/// What happened, as the clients saw it.
#[derive(Debug, Default)]
struct History {
    published: BTreeSet<String>,
    /// Every delivery with its payload and the epoch of its lane.
    delivered: Vec<(Place, String, i64)>,
    confirmed: BTreeMap<Place, i64>,
    /// Of each partition, when something was delivered.
    moments: BTreeMap<u32, Vec<Instant>>,
}

type Shared = Arc<Mutex<History>>;

/// A client that knows all brokers, and begins at one of them.
async fn client(addresses: &[String], first: usize) -> Client {
    let url = |place: usize| format!("ws://{}/v1/ws", addresses[place % addresses.len()]);
    let mut builder = Client::builder(url(first));
    for further in 1..addresses.len() {
        builder = builder.also(url(first + further));
    }
    builder.options(|options| options.backoff_max = Duration::from_secs(1)).connect().await.unwrap()
}

/// Publishes to every partition, again and again; every message must be stored in the end.
async fn produce(client: Client, name: usize, history: Shared, stop: CancellationToken) {
    let mut waiting = tokio::task::JoinSet::new();
    let mut number = 0;
    while !stop.is_cancelled() {
        for partition in 0..PARTITIONS {
            let payload = format!("{name}-{partition}-{number}");
            let message = NewMessage {
                partition: Some(partition),
                payload: payload.clone().into(),
                ..NewMessage::default()
            };
            let pending = client.publish_later("orders", message).await.unwrap();
            waiting.spawn(async move {
                pending.receipt().await.unwrap();
                payload
            });
        }
        number += 1;
        tokio::time::sleep(BEAT).await;
    }
    while let Some(stored) = waiting.join_next().await {
        assert!(history.lock().unwrap().published.insert(stored.unwrap()), "every message has one receipt");
    }
    client.close().await;
}

async fn consume(client: Client, history: Shared, stop: CancellationToken) {
    let mut subscription = client.subscribe("orders", "billing").await.unwrap();
    loop {
        let delivery = tokio::select! {
            delivery = subscription.next() => delivery.unwrap_or_else(|| panic!("{:?}", subscription.error())),
            () = stop.cancelled() => break,
        };
        let place = (delivery.partition, delivery.offset);
        let lanes = subscription.lanes();
        let Some((_, epoch)) = lanes.into_iter().find(|(partition, _)| *partition == place.0) else {
            continue;
        };
        {
            let mut history = history.lock().unwrap();
            let payload = String::from_utf8(delivery.payload.to_vec()).unwrap();
            history.delivered.push((place, payload, epoch));
            history.moments.entry(place.0).or_default().push(Instant::now());
        }
        let history = history.clone();
        tokio::spawn(async move {
            if delivery.ack_confirmed().await.is_ok() {
                history.lock().unwrap().confirmed.insert(place, epoch);
            }
        });
    }
    client.close().await;
}

impl History {
    fn check(&self) {
        let delivered: BTreeSet<&String> = self.delivered.iter().map(|(_, payload, _)| payload).collect();
        let lost: Vec<_> = self.published.iter().filter(|payload| !delivered.contains(payload)).collect();
        assert!(
            lost.is_empty(),
            "{} of {} were lost: {:?}",
            lost.len(),
            self.published.len(),
            &lost[..lost.len().min(5)]
        );
        let is_again = |(place, _, epoch): &&(Place, String, i64)| {
            self.confirmed.get(place).is_some_and(|acked| epoch > acked)
        };
        let again: Vec<_> = self.delivered.iter().filter(is_again).collect();
        assert!(
            again.is_empty(),
            "acknowledged for certain, and delivered again: {:?}",
            &again[..again.len().min(5)]
        );
    }

    /// The longest rest of each lane.
    fn pauses(&self) -> BTreeMap<u32, Duration> {
        let longest = |moments: &Vec<Instant>| {
            moments.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
        };
        self.moments.iter().map(|(partition, moments)| (*partition, longest(moments))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_rolling_restart_under_load_loses_nothing_repeats_nothing_and_rests_no_lane_for_two_seconds()
{
    let database = TestDatabase::new().await;
    let mut servers = Vec::new();
    for _ in 0..BROKERS {
        servers.push(Server::on_database(&database.url).await);
    }
    make_topic(&servers[0].address, "orders", PARTITIONS).await;
    let addresses: Vec<String> = servers.iter().map(|server| server.address.clone()).collect();
    let (history, enough, over) = (Shared::default(), CancellationToken::new(), CancellationToken::new());
    let mut consumers = tokio::task::JoinSet::new();
    let mut producers = tokio::task::JoinSet::new();
    for place in 0..BROKERS {
        consumers.spawn(consume(client(&addresses, place).await, history.clone(), over.clone()));
    }
    for name in 0..2 {
        producers.spawn(produce(client(&addresses, name).await, name, history.clone(), enough.clone()));
    }
    let flows = async |history: &Shared, more: usize| {
        let goal = history.lock().unwrap().delivered.len() + more;
        wait::until("messages to flow", async || history.lock().unwrap().delivered.len() >= goal).await;
    };
    flows(&history, 500).await;
    for server in &mut servers {
        assert_eq!(server.stop().await, 0, "{}", server.log().join("\n"));
        *server = restart(&database, &server.address.clone(), &[]).await;
        flows(&history, 500).await;
    }
    enough.cancel();
    while let Some(ended) = producers.join_next().await {
        ended.unwrap();
    }
    let pauses = history.lock().unwrap().pauses();
    wait::until("everything to be done", async || {
        let history = history.lock().unwrap();
        let confirmed =
            history.delivered.iter().filter(|(place, _, _)| history.confirmed.contains_key(place));
        let done: BTreeSet<&String> = confirmed.map(|(_, payload, _)| payload).collect();
        history.published.iter().all(|payload| done.contains(payload))
    })
    .await;
    over.cancel();
    while let Some(ended) = consumers.join_next().await {
        ended.unwrap();
    }
    for server in &mut servers {
        assert_eq!(server.stop().await, 0);
    }
    let history = history.lock().unwrap();
    eprintln!(
        "{} published, {} delivered, longest rests {pauses:?}",
        history.published.len(),
        history.delivered.len()
    );
    history.check();
    assert_eq!(pauses.len(), PARTITIONS as usize);
    assert!(pauses.values().all(|pause| *pause <= PAUSE_MAX), "{pauses:?}");
}
