//! SIGTERM: sessions are asked to go, lanes are handed over, answers are given, and the process ends in time.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use laneway_client::wire::{Acked, Batch, BrokerFrame, ClientFrame, NewMessage, Publish, Subprotocol};
use laneway_client::{Class, ErrorCode};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;

use crate::harness::socket::{BOTH, Seen, Socket, ack, batches_of, make_topic, offsets, subscribe, text};
use crate::harness::{Server, TestDatabase, wait};

/// Partition and offset.
type Place = (u32, i64);

/// What the clients of the draining broker may take to go, and the process after them.
const DEADLINE: Duration = Duration::from_secs(20);

async fn server(database: &TestDatabase, args: &[&str]) -> Server {
    let mut all = vec!["--database-url", database.url.as_str()];
    all.extend(args);
    Server::start(&all).await
}

async fn publish(address: &str, partitions: u32, each: usize) {
    let mut socket = Socket::connect(address, Subprotocol::MessagePack).await;
    for partition in 0..partitions {
        let message = |number: usize| NewMessage { partition: Some(partition), ..text(number.to_string()) };
        socket.publish("orders", (0..each).map(message).collect()).await;
    }
    socket.close().await;
}

fn places(batch: &Batch) -> Vec<Place> {
    batch.messages.iter().map(|message| (batch.partition, message.offset)).collect()
}

/// A consumer that keeps its window full, and acknowledges only when it is asked to let go.
struct Holder {
    socket: Socket,
    held: Vec<Batch>,
    asked: HashMap<u64, Vec<Place>>,
    confirmed: BTreeSet<Place>,
    delay_ms: Option<u64>,
}

impl Holder {
    async fn new(address: &str, subprotocol: Subprotocol, window: u32) -> Self {
        let mut socket = Socket::connect(address, subprotocol).await;
        let mut wanted = subscribe("billing", "orders");
        wanted.credit.messages = window;
        wanted.batch = Some(batches_of(5));
        socket.subscribe_with(wanted).await.unwrap();
        Self { socket, held: vec![], asked: HashMap::new(), confirmed: BTreeSet::new(), delay_ms: None }
    }

    async fn ack(&mut self, batch: &Batch) {
        let id = self.socket.id();
        let mut ack = ack(batch, Some(batch.messages.last().unwrap().offset + 1), &[]);
        ack.id = Some(id);
        self.socket.send(ClientFrame::Ack(ack)).await;
        self.asked.insert(id, places(batch));
    }

    /// Until the connection is closed; says when its window is full.
    async fn run(mut self, window: usize, full: mpsc::Sender<()>) -> Self {
        loop {
            match self.socket.seen().await {
                Seen::Frame(BrokerFrame::Batch(batch)) if self.delay_ms.is_some() => self.ack(&batch).await,
                Seen::Frame(BrokerFrame::Batch(batch)) => {
                    self.held.push(batch);
                    if self.held.iter().map(|batch| batch.messages.len()).sum::<usize>() == window {
                        full.send(()).await.unwrap();
                    }
                }
                Seen::Frame(BrokerFrame::GoAway(go_away)) => {
                    assert!(self.delay_ms.replace(go_away.delay_ms).is_none(), "it is said once");
                    for batch in std::mem::take(&mut self.held) {
                        self.ack(&batch).await;
                    }
                }
                Seen::Frame(BrokerFrame::LaneDraining(lane)) => {
                    let of_lane = |batch: &Batch| batch.partition == lane.partition;
                    let (going, staying) = std::mem::take(&mut self.held).into_iter().partition(of_lane);
                    self.held = staying;
                    let going: Vec<Batch> = going;
                    for batch in going {
                        self.ack(&batch).await;
                    }
                }
                Seen::Frame(BrokerFrame::Acked(Acked { id, .. })) => {
                    self.confirmed.extend(self.asked.remove(&id).unwrap());
                }
                Seen::Frame(
                    BrokerFrame::LaneGranted(_) | BrokerFrame::LaneRevoked(_) | BrokerFrame::Heartbeat,
                ) => {}
                Seen::Frame(other) => panic!("{other:?}"),
                Seen::Closed(code) => {
                    assert_eq!(code, Some(1012));
                    assert!(self.delay_ms.is_some(), "go_away comes before");
                    return self;
                }
            }
        }
    }
}

/// Consumes whatever it gets, and tells what was delivered, and what is confirmed.
async fn consume(mut socket: Socket, delivered: mpsc::Sender<Place>, confirmed: mpsc::Sender<Place>) {
    loop {
        let batch = socket.batch().await;
        for place in places(&batch) {
            delivered.send(place).await.unwrap();
        }
        let next = batch.messages.last().unwrap().offset + 1;
        socket.credit(batch.subscription, batch.messages.len() as u32, 1 << 20).await;
        if socket.ack_below(&batch, next).await.is_ok() {
            for place in places(&batch) {
                confirmed.send(place).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_with_full_windows_hands_every_lane_over_and_loses_and_repeats_nothing() {
    const PARTITIONS: u32 = 8;
    const EACH: usize = 200;
    const WINDOW: u32 = 25;
    const IDLE: usize = 996; // with those that hold lanes, a thousand sessions
    let database = TestDatabase::new().await;
    let (mut old, new) = tokio::join!(server(&database, &[]), server(&database, &[]));
    make_topic(&old.address, "orders", PARTITIONS).await;
    let (full, mut filled) = mpsc::channel(100);
    let mut holders = Vec::new();
    for number in 0..4 {
        holders.push(Holder::new(&old.address, BOTH[number % 2], WINDOW).await);
    }
    let mut survivor = Socket::connect(&new.address, Subprotocol::MessagePack).await;
    survivor.subscribe("billing", "orders").await;
    survivor.granted().await;
    let (delivered, mut deliveries) = mpsc::channel(100_000);
    let (done, mut confirmations) = mpsc::channel(100_000);
    let consuming = tokio::spawn(consume(survivor, delivered, done));
    publish(&new.address, PARTITIONS, EACH).await;
    let mut running = Vec::new();
    for holder in holders {
        running.push(tokio::spawn(holder.run(WINDOW as usize, full.clone())));
    }
    for _ in 0..4 {
        filled.recv().await.unwrap();
    }
    // Sessions that do nothing are asked to go as well, each at a moment of its own.
    let mut idle = Vec::new();
    for number in 0..IDLE {
        idle.push(Socket::connect(&old.address, BOTH[number % 2]).await);
    }
    let since = Instant::now();
    old.signal(Signal::SIGTERM);
    let mut delays = BTreeSet::new();
    for socket in &mut idle {
        match socket.frame().await {
            BrokerFrame::GoAway(go_away) => delays.insert(go_away.delay_ms),
            other => panic!("{other:?}"),
        };
        assert_eq!(socket.closed().await, Some(1012));
    }
    assert!(delays.len() > 100, "clients come back spread over time: {delays:?}");
    let mut acked = BTreeSet::new();
    for holder in running {
        let holder = holder.await.unwrap();
        assert!(holder.confirmed.len() >= WINDOW as usize, "{} were confirmed", holder.confirmed.len());
        assert!(holder.delay_ms.unwrap() <= 10_000);
        acked.extend(holder.confirmed);
    }
    assert_eq!(old.ended().await, 0);
    assert!(since.elapsed() < DEADLINE, "{:?}", since.elapsed());
    // The other broker gets the rest, all of it.
    let all: BTreeSet<Place> = (0..PARTITIONS)
        .flat_map(|partition| (0..EACH as i64).map(move |offset| (partition, offset)))
        .collect();
    let mut confirmed = BTreeSet::new();
    wait::until("everything to be done", async || {
        while let Ok(place) = confirmations.try_recv() {
            confirmed.insert(place);
        }
        confirmed.union(&acked).count() == all.len()
    })
    .await;
    assert_eq!(confirmed.union(&acked).copied().collect::<BTreeSet<_>>(), all);
    consuming.abort();
    deliveries.close();
    while let Some(place) = deliveries.recv().await {
        assert!(!acked.contains(&place), "{place:?} was confirmed before, and is delivered again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_broker_finishes_what_is_under_way_refuses_what_is_new_and_says_so() {
    for subprotocol in BOTH {
        let database = TestDatabase::new().await;
        let mut server = server(&database, &[]).await;
        make_topic(&server.address, "orders", 1).await;
        publish(&server.address, 1, 10).await;
        // One request has gone over this connection, which stays open while the broker drains.
        let http = reqwest::Client::builder().pool_max_idle_per_host(1).build().unwrap();
        let ready = http.get(server.url("/readyz")).send().await.unwrap();
        assert_eq!(ready.status(), 200);
        drop(ready.bytes().await.unwrap());
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        socket.subscribe("billing", "orders").await;
        let batch = socket.batch().await;
        // A publish that cannot be written yet.
        let mut client = database.raw().await;
        let hold = client.transaction().await.unwrap();
        hold.execute("SELECT FROM laneway.partition FOR NO KEY UPDATE", &[]).await.unwrap();
        let early = socket.id();
        let publish = |id, word: &str| {
            let messages = vec![text(word)];
            ClientFrame::Publish(Publish {
                id,
                topic: "orders".into(),
                producer_id: None,
                wait_ms: None,
                messages,
            })
        };
        socket.send(publish(early, "early")).await;
        wait::until("the publish to wait for its lock", async || {
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
            database.number(waiting).await > 0
        })
        .await;
        let since = Instant::now();
        server.signal(Signal::SIGTERM);
        socket.wait_for(|frame| matches!(frame, BrokerFrame::GoAway(_)).then_some(())).await;
        let answer = http.get(server.url("/readyz")).send().await.unwrap();
        assert_eq!(answer.status(), 503);
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "going_away");
        // Nobody new comes in, and nothing new is begun.
        assert!(tokio::net::TcpStream::connect(&server.address).await.is_err());
        let late = socket.id();
        socket.send(publish(late, "late")).await;
        let error = socket.error().await;
        assert_eq!((error.id, error.code, error.class), (Some(late), ErrorCode::GoingAway, Class::Retry));
        let error = socket.subscribe_with(subscribe("other", "orders")).await.unwrap_err();
        assert_eq!((error.code, error.class), (ErrorCode::GoingAway, Class::Retry));
        // What is under way is finished.
        hold.rollback().await.unwrap();
        let next = offsets(&batch).last().unwrap() + 1;
        assert_eq!(socket.ack_below(&batch, next).await, Ok(10));
        let published = socket.wait_for(|frame| match frame {
            BrokerFrame::Published(published) => Some(published.clone()),
            _ => None,
        });
        let published = published.await;
        assert_eq!((published.id, published.units[0].first_offset), (early, Some(10)));
        assert_eq!(socket.closed().await, Some(1012));
        assert_eq!(server.ended().await, 0);
        assert!(since.elapsed() < DEADLINE, "{:?}", since.elapsed());
        assert_eq!(
            database.number("SELECT count(*) FROM laneway.message").await,
            11,
            "nothing of what was late"
        );
        assert_eq!(
            database.number("SELECT count(*) FROM laneway.lane WHERE session_id IS NOT NULL").await,
            0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_let_go_is_left_behind_in_time_and_what_it_held_goes_to_others() {
    let database = TestDatabase::new().await;
    let (mut old, new) = tokio::join!(server(&database, &["--lane-drain", "1s"]), server(&database, &[]));
    make_topic(&old.address, "orders", 1).await;
    publish(&old.address, 1, 10).await;
    let mut stubborn = Socket::connect(&old.address, Subprotocol::Json).await;
    stubborn.subscribe("billing", "orders").await;
    let batch = stubborn.batch().await;
    assert_eq!(stubborn.ack_below(&batch, 4).await, Ok(4));
    let mut heir = Socket::connect(&new.address, Subprotocol::MessagePack).await;
    heir.subscribe("billing", "orders").await;
    let since = Instant::now();
    old.signal(Signal::SIGTERM);
    let granted = heir.granted().await;
    assert_eq!((granted.epoch, granted.committed_offset), (batch.epoch + 1, 4));
    assert_eq!(
        offsets(&heir.batch().await),
        [4, 5, 6, 7, 8, 9],
        "a drain is nobody's fault: nothing is suspect"
    );
    assert_eq!(stubborn.closed().await, Some(1012));
    assert_eq!(old.ended().await, 0);
    assert!(since.elapsed() < DEADLINE, "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigterm_ends_it_at_once() {
    let database = TestDatabase::new().await;
    let mut server = server(&database, &[]).await;
    make_topic(&server.address, "orders", 1).await;
    publish(&server.address, 1, 10).await;
    let mut stubborn = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    stubborn.subscribe("billing", "orders").await;
    stubborn.batch().await;
    server.signal(Signal::SIGTERM);
    stubborn.wait_for(|frame| matches!(frame, BrokerFrame::GoAway(_)).then_some(())).await;
    let since = Instant::now();
    server.signal(Signal::SIGTERM);
    assert_ne!(server.ended().await, 0);
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(stubborn.closed().await, None);
}
