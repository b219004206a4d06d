//! Brokers and backends that die in the midst of steps: what was acknowledged was published, once, and nothing else was.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_client::wire::{
    BrokerFrame, ClientFrame, Credit, Hello, NewMessage, Resume, StepPublish, Subprotocol, Transact, Welcome,
};
use laneway_client::{Class, ErrorCode};
use rand::Rng as _;
use uuid::Uuid;

use crate::harness::socket::{Seen, Socket, ack, batches_of, hello, make_topic, offsets, subscribe, text};
use crate::harness::{Server, TestDatabase};

const MESSAGES: i64 = 1_500;
const PARTITIONS: u32 = 2;
const BROKER_CRASHES: usize = 6;
const BACKEND_CRASHES: usize = 60;

/// Committed offset and single acks of every lane, as messages that are not done.
const OPEN: &str = "SELECT count(*) FROM laneway.lag WHERE lag_messages > 0";

#[tokio::test(flavor = "multi_thread")]
async fn heavy_brokers_and_backends_that_die_in_the_midst_of_steps_leave_each_done_whole_and_once() {
    let database = TestDatabase::new().await;
    let mut server = serve(&database).await;
    make_topic(&server.address, "orders", PARTITIONS).await;
    make_topic(&server.address, "results", 3).await;
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    for partition in 0..PARTITIONS {
        let message = |number| NewMessage { partition: Some(partition), ..text(format!("{number}")) };
        producer.publish("orders", (0..MESSAGES).map(message).collect()).await;
    }
    producer.close().await;
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
    let wanted = (0..PARTITIONS)
        .flat_map(|partition| (0..MESSAGES).map(move |offset| format!("{partition}:{offset}")));
    assert_eq!(results.keys().cloned().collect::<std::collections::BTreeSet<_>>(), wanted.collect());
    let twice: Vec<_> = results.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(server.stop().await, 0);
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
