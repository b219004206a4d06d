//! Brokers and backends that die in the midst of steps: what was acknowledged was published, once, and nothing else was.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_client::wire::{
    BrokerFrame, ClientFrame, Credit, Hello, NewMessage, Resume, StepPublish, Subprotocol, Transact, Welcome,
};
use laneway_client::{Class, ErrorCode};
use nix::sys::signal::Signal;
use rand::Rng as _;
use uuid::Uuid;

use crate::harness::socket::{Seen, Socket, ack, batches_of, hello, make_topic, offsets, subscribe, text};
use crate::harness::{Server, TestDatabase};
use crate::times::{TOLD, TOLD_ONCE};

const MESSAGES: i64 = 1_500;
const PARTITIONS: u32 = 2;
const BROKER_CRASHES: usize = 6;
const BACKEND_CRASHES: usize = 60;
const ORDERS_PER_KILL: i64 = 60;
const ORDERS_PER_RACE: i64 = 200;
const ZOMBIE_ROUNDS: i64 = 3;

/// Committed offset and single acks of every lane, as messages that are not done.
const OPEN: &str = "SELECT count(*) FROM laneway.lag WHERE lag_messages > 0";
const STEPS: &str = "SELECT count(*) FROM laneway.step";

#[tokio::test(flavor = "multi_thread")]
async fn heavy_brokers_and_backends_that_die_in_the_midst_of_steps_leave_each_done_whole_and_once() {
    let database = TestDatabase::new().await;
    let mut server = serve(&database).await;
    make_topics(&server, PARTITIONS).await;
    order(&server, PARTITIONS, 0..MESSAGES).await;
    let address = Arc::new(Mutex::new(server.address.clone()));
    let workers: Vec<_> = (0..PARTITIONS).map(|_| tokio::spawn(work(address.clone()))).collect();
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'laneway appender%'";
    for crash in 0..BROKER_CRASHES {
        for _ in 0..BACKEND_CRASHES / BROKER_CRASHES {
            pause(1..40).await;
            database.raw().await.execute(terminate, &[]).await.unwrap();
        }
        pause(1..200).await;
        server.kill().await;
        server = serve(&database).await;
        *address.lock().unwrap() = server.address.clone();
        assert!(!workers.iter().any(tokio::task::JoinHandle::is_finished), "crash {crash}");
    }
    finish(&database, workers, PARTITIONS, MESSAGES).await;
    assert_eq!(server.stop().await, 0);
}

/// `LANEWAY_STEP_KILLS=1000` tries it for long.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_broker_that_is_killed_again_and_again_among_steps_leaves_each_done_whole_and_once() {
    let kills: i64 = std::env::var("LANEWAY_STEP_KILLS").map_or(15, |kills| kills.parse().unwrap());
    let database = TestDatabase::new().await;
    let mut server = serve(&database).await;
    make_topics(&server, PARTITIONS).await;
    let address = Arc::new(Mutex::new(server.address.clone()));
    let workers: Vec<_> = (0..PARTITIONS).map(|_| tokio::spawn(work(address.clone()))).collect();
    let mut rounds_with_steps = 0;
    for kill in 0..kills {
        // A kill counts that comes while steps are being done.
        let done = database.number(STEPS).await; // before there is work: a quick machine does it all at once
        order(&server, PARTITIONS, kill * ORDERS_PER_KILL..(kill + 1) * ORDERS_PER_KILL).await;
        crate::harness::wait::until("a step", async || database.number(STEPS).await > done).await;
        pause(0..30).await;
        let open = database.number(OPEN).await;
        server.kill().await;
        rounds_with_steps += i64::from(open > 0);
        server = serve(&database).await;
        *address.lock().unwrap() = server.address.clone();
        if kill % 50 == 49 {
            let (kills, steps) = (kill + 1, database.number(STEPS).await);
            eprintln!("{kills} kills, {rounds_with_steps} of them among steps, {steps} steps done");
        }
    }
    eprintln!("{rounds_with_steps} of {kills} kills among {} steps", database.number(STEPS).await);
    assert!(rounds_with_steps * 2 > kills, "{rounds_with_steps} of {kills} kills came among steps");
    finish(&database, workers, PARTITIONS, kills * ORDERS_PER_KILL).await;
    assert_eq!(server.stop().await, 0);
}

/// Each of two brokers is frozen with steps on the way, the lane goes to the other, and both come back at once.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_of_two_zombies_that_race_for_one_lane_one_step_counts() {
    let database = TestDatabase::new().await;
    let mut servers = [serve(&database).await, serve(&database).await];
    make_topics(&servers[0], 1).await;
    let workers =
        servers.iter().map(|server| tokio::spawn(work(Arc::new(Mutex::new(server.address.clone())))));
    let workers: Vec<_> = workers.collect();
    for round in 0..ZOMBIE_ROUNDS {
        order(&servers[0], 1, round * ORDERS_PER_RACE..(round + 1) * ORDERS_PER_RACE).await;
        let first = holder(&database, &servers).await;
        servers[first].signal(Signal::SIGSTOP);
        // The lane goes to the other one, which begins on what the first has not answered for.
        let other = 1 - first;
        let moved = async || holder_now(&database, &servers).await == Some(other);
        crate::harness::wait::until("the lane to move", moved).await;
        pause(0..30).await;
        servers[other].signal(Signal::SIGSTOP);
        pause(0..2_000).await;
        let order = if round % 2 == 0 { [first, other] } else { [other, first] };
        order.iter().for_each(|zombie| servers[*zombie].signal(Signal::SIGCONT));
    }
    finish(&database, workers, 1, ZOMBIE_ROUNDS * ORDERS_PER_RACE).await;
    for server in &mut servers {
        assert_eq!(server.stop().await, 0);
    }
}

/// Which of two brokers holds the lane of a topic of one partition.
async fn holder_now(database: &TestDatabase, servers: &[Server; 2]) -> Option<usize> {
    let row = database.raw().await;
    let row =
        row.query_opt("SELECT broker_id FROM laneway.lane WHERE broker_id IS NOT NULL", &[]).await.unwrap();
    let id: Uuid = row?.get(0);
    let is_its = |line: &String| line.contains("broker registered") && line.contains(&id.to_string());
    servers.iter().position(|server| server.log().iter().any(is_its))
}

async fn holder(database: &TestDatabase, servers: &[Server; 2]) -> usize {
    let mut found = None;
    crate::harness::wait::until("the lane to be held", async || {
        found = holder_now(database, servers).await;
        found.is_some()
    })
    .await;
    found.unwrap()
}

async fn make_topics(server: &Server, partitions: u32) {
    make_topic(&server.address, "orders", partitions).await;
    make_topic(&server.address, "results", 3).await;
}

/// Publishes numbered orders to every partition.
async fn order(server: &Server, partitions: u32, numbers: std::ops::Range<i64>) {
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    for partition in 0..partitions {
        let message = |number| NewMessage { partition: Some(partition), ..text(format!("{number}")) };
        producer.publish("orders", numbers.clone().map(message).collect()).await;
    }
    producer.close().await;
}

/// Waits until everything is done, and sees that it was done once.
async fn finish(
    database: &TestDatabase,
    workers: Vec<tokio::task::JoinHandle<()>>,
    partitions: u32,
    messages: i64,
) {
    crate::harness::wait::until("every message to be done", async || database.number(OPEN).await == 0).await;
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    let rows = database.raw().await;
    let rows = rows.query(
        "SELECT convert_from(m.payload, 'UTF8') FROM laneway.message m JOIN laneway.partition p
        USING (partition_id) JOIN laneway.topic t USING (topic_id) WHERE t.name = 'results'",
        &[],
    );
    let mut results: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.await.unwrap() {
        *results.entry(row.get(0)).or_default() += 1;
    }
    let wanted = (0..partitions)
        .flat_map(|partition| (0..messages).map(move |offset| format!("{partition}:{offset}")));
    assert_eq!(results.keys().cloned().collect::<std::collections::BTreeSet<_>>(), wanted.collect());
    let twice: Vec<_> = results.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let told = (database.number(TOLD).await, database.number(TOLD_ONCE).await);
    let all = i64::from(partitions) * messages;
    assert_eq!(told, (all, all), "with their times");
}

async fn serve(database: &TestDatabase) -> Server {
    Server::start(&["--database-url", &database.url, "--lease-ttl", "1s", "--lane-drain", "1s"]).await
}

async fn pause(milliseconds: std::ops::Range<u64>) {
    let pause = rand::rng().random_range(milliseconds);
    tokio::time::sleep(Duration::from_millis(pause)).await;
}

/// Works on whatever it is given, over as many connections as it takes.
async fn work(address: Arc<Mutex<String>>) {
    let mut open: BTreeMap<u64, Transact> = BTreeMap::new();
    let mut last: Option<Welcome> = None;
    loop {
        let resume =
            last.as_ref().map(|last| Resume { session: last.session, token: last.resume_token.clone() });
        let is_new = resume.is_none();
        let hello = Hello { resume, resume_grace_ms: Some(10_000), ..hello() };
        let address = address.lock().unwrap().clone();
        let Some((mut socket, welcome)) =
            Socket::try_connect_with(&address, Subprotocol::MessagePack, hello).await
        else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let is_member = !is_new && welcome.resume.as_ref().is_some_and(|report| report.reason.is_none());
        last = Some(welcome);
        if converse(&mut socket, is_member, &mut open).await.is_none() && !is_member {
            last = last.filter(|_| !is_new); // it may not have become a member
        }
    }
}

/// Until the connection is lost.
async fn converse(socket: &mut Socket, is_member: bool, open: &mut BTreeMap<u64, Transact>) -> Option<()> {
    if !is_member {
        let wanted = subscribe("work", "orders");
        let id = socket.id();
        let batch = Some(batches_of(7));
        let frame = laneway_client::wire::Subscribe { id, batch, ..wanted };
        socket.try_send(ClientFrame::Subscribe(frame)).await?;
    }
    for transact in open.values() {
        socket.try_send(ClientFrame::Transact(transact.clone())).await?;
    }
    loop {
        match socket.seen().await {
            Seen::Closed(_) => return None,
            Seen::Frame(BrokerFrame::Batch(batch)) => {
                let offsets = offsets(&batch);
                let id = open.keys().next_back().map_or(1_000, |last| last + 1).max(socket.id());
                let result = |offset: &i64| text(format!("{}:{offset}", batch.partition));
                let publish =
                    StepPublish { topic: "results".into(), messages: offsets.iter().map(result).collect() };
                let acks = vec![ack(&batch, None, &offsets)];
                let transact = Transact { id, step_id: Uuid::now_v7(), acks, publishes: vec![publish] };
                open.insert(id, transact.clone());
                socket.try_send(ClientFrame::Transact(transact)).await?;
                let bytes = batch.messages.iter().map(|message| message.payload.len() as u64).sum();
                let messages = batch.messages.len() as u32;
                let credit = Credit { subscription: batch.subscription, messages, bytes };
                socket.try_send(ClientFrame::Credit(credit)).await?;
            }
            Seen::Frame(BrokerFrame::Transacted(done)) => drop(open.remove(&done.id)),
            Seen::Frame(BrokerFrame::Error(error)) => {
                let Some(id) = error.id.filter(|id| open.contains_key(id)) else { continue };
                match error.class == Class::Refused && error.code != ErrorCode::UnknownSubscription {
                    true => drop(open.remove(&id)), // nothing of it has happened, and it comes again
                    false => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        socket.try_send(ClientFrame::Transact(open[&id].clone())).await?;
                    }
                }
            }
            Seen::Frame(_) => {}
        }
    }
}
