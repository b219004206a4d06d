//! Watching traces: told as they happen, from every broker, within bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use laneway_client::trace::HopState;
use laneway_client::wire::{
    BrokerFrame, ClientFrame, NewMessage, Subprotocol, Subscribe, TraceChanged, Untail, Watch,
};
use laneway_client::{Cause, ErrorCode};
use uuid::Uuid;

use crate::Bus;
use crate::harness::Server;
use crate::harness::socket::{BOTH, Socket, make_topic, offsets, quick_retries, subscribe, text};
use crate::harness::wait::until;

async fn watch(socket: &mut Socket, mut watch: Watch) -> u32 {
    watch.id = socket.id();
    let id = watch.id;
    socket.send(ClientFrame::Watch(watch)).await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Watching(watching) if watching.id == id => Some(watching.subscription),
            BrokerFrame::Error(error) => panic!("{error:?}"),
            _ => None,
        })
        .await
}

fn one(trace_id: Uuid) -> Watch {
    Watch { id: 0, trace_id: Some(trace_id), topic: None, sample: None }
}

async fn changed(socket: &mut Socket) -> TraceChanged {
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::TraceChanged(changed) => Some(changed.clone()),
            _ => None,
        })
        .await
}

fn in_trace(trace: Uuid, cause: Option<i64>) -> NewMessage {
    let cause = cause.map(|offset| Cause { topic: "orders".into(), partition: 0, offset });
    NewMessage { trace_id: Some(trace), cause, partition: Some(0), ..text("hop") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_watched_live_over_two_brokers() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        make_topic(&bus.server.address, "charges", 1).await;
        let mut other = Server::on_database(&bus.database.url).await;
        let trace = Uuid::now_v7();
        let mut watcher = bus.connect(subprotocol).await;
        let number = watch(&mut watcher, one(trace)).await; // before there is anything to see
        let mut worker = Socket::connect(&other.address, Subprotocol::MessagePack).await;
        let since = Instant::now();
        worker.publish("orders", vec![in_trace(trace, None)]).await;
        let first = changed(&mut watcher).await;
        assert!(since.elapsed() < Duration::from_secs(5), "it took {:?}", since.elapsed());
        assert_eq!((first.subscription, first.trace_id, first.hops.len()), (number, trace, 1));
        // What another broker's group does with it, and what follows from it.
        worker.subscribe("billing", "orders").await;
        let batch = worker.batch().await;
        worker.publish("charges", vec![in_trace(trace, Some(0))]).await;
        worker.ack_below(&batch, 1).await.unwrap();
        let mut seen: BTreeMap<String, Option<HopState>> = BTreeMap::new();
        while seen.get("orders") != Some(&Some(HopState::Acked)) || !seen.contains_key("charges") {
            for hop in changed(&mut watcher).await.hops {
                assert_eq!(hop.parent, None);
                seen.insert(hop.topic, hop.groups.first().map(|group| group.state));
            }
        }
        // Ended, it tells nothing more.
        let id = watcher.id();
        watcher.send(ClientFrame::Untail(Untail { id, subscription: number })).await;
        watcher.wait_for(|frame| matches!(frame, BrokerFrame::Untailed(_)).then_some(())).await;
        worker.publish("charges", vec![in_trace(trace, Some(0))]).await;
        assert_eq!(watcher.frame_within(Duration::from_millis(700)).await, None);
        assert_eq!(other.stop().await, 0);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_traces_of_a_topic_are_watched_and_a_flood_is_summarised() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut watcher = bus.connect(Subprotocol::MessagePack).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    producer.publish("orders", vec![in_trace(Uuid::now_v7(), None)]).await; // before the watch: not its business
    watch(&mut watcher, Watch { id: 0, trace_id: None, topic: Some("orders".into()), sample: None }).await;
    let first = Uuid::now_v7();
    producer.publish("orders", vec![in_trace(first, None)]).await;
    let seen = changed(&mut watcher).await;
    assert_eq!((seen.trace_id, seen.left_out), (first, 0));
    // Far more than it follows: delivery goes on, and what is left out is counted.
    let flood = (0..500).map(|_| in_trace(Uuid::now_v7(), None)).collect();
    producer.publish("orders", flood).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    consumer.batches(502).await;
    let (mut traces, mut left_out) = (0, 0);
    while left_out == 0 || traces < 10 {
        let seen = changed(&mut watcher).await;
        traces += 1;
        left_out += seen.left_out;
    }
    assert!(left_out >= 400, "{left_out}");
    bus.stop().await;
}

/// Reads of watches that wait for a table that only readers of traces look at.
const STUCK: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%trace_links_find%'";

#[tokio::test(flavor = "multi_thread")]
async fn as_many_watches_as_a_broker_takes_leave_its_connections_to_delivery_even_while_none_gets_an_answer()
{
    const TRACES: usize = 16;
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let mut producer = Socket::connect(&other.address, Subprotocol::MessagePack).await;
    let traces: Vec<Uuid> = (0..TRACES).map(|_| Uuid::now_v7()).collect();
    producer.publish("orders", traces.iter().map(|trace| in_trace(*trace, None)).collect()).await;
    let mut watchers = Vec::new();
    for _ in 0..2 {
        let mut watcher = bus.connect(Subprotocol::MessagePack).await;
        for trace in &traces {
            watch(&mut watcher, one(*trace)).await;
        }
        watchers.push(watcher);
    }
    let raw = bus.database.raw().await;
    raw.batch_execute("BEGIN; LOCK TABLE laneway.trace_link IN ACCESS EXCLUSIVE MODE").await.unwrap();
    until("a watch to get stuck", async || bus.database.number(STUCK).await > 0).await;
    // What another broker has written is read from the tables, and every failure is a settlement.
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    let settings = Some(quick_retries(3));
    consumer.subscribe_with(Subscribe { settings, ..subscribe("billing", "orders") }).await.unwrap();
    let mut batch = consumer.batch().await;
    for first in 0..TRACES as i64 {
        consumer.nack(&batch, first, "not now").await.unwrap();
        batch = consumer.batch().await;
        assert_eq!(offsets(&batch)[0], first);
        consumer.ack_below(&batch, first + 1).await.unwrap();
        let stuck = bus.database.number(STUCK).await;
        assert!(stuck <= 1, "{stuck} connections are with watches");
    }
    raw.batch_execute("ROLLBACK").await.unwrap();
    for watcher in &mut watchers {
        let mut told = BTreeSet::new();
        while told.len() < TRACES {
            let seen = changed(watcher).await;
            let is_done =
                seen.hops.iter().any(|hop| hop.groups.iter().any(|group| group.state == HopState::Acked));
            told.extend(is_done.then_some(seen.trace_id));
        }
    }
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_never_reads_stops_nobody() {
    const MESSAGES: usize = 1_600;
    let bus = Bus::with_topic("orders", 1).await;
    let mut watcher = bus.connect(Subprotocol::Json).await;
    watch(&mut watcher, Watch { id: 0, trace_id: None, topic: Some("orders".into()), sample: None }).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let traces: Vec<Uuid> = (0..16).map(|_| Uuid::now_v7()).collect();
    // Hops with large keys, in the traces that it follows: megabytes that it would have to read.
    let hop = |number: usize| {
        let key = Some("k".repeat(1 << 10).into());
        NewMessage { key, ..in_trace(traces[number % traces.len()], None) }
    };
    let mut next = 0;
    for from in (0..MESSAGES).step_by(100) {
        producer.publish("orders", (from..from + 100).map(hop).collect()).await;
        while next < (from + 100) as i64 {
            let batch = consumer.batch().await;
            next = consumer.ack_below(&batch, offsets(&batch).last().unwrap() + 1).await.unwrap();
        }
    }
    // It missed nothing: what it was not told as it happened comes when it reads.
    let mut acked = BTreeSet::new();
    while acked.len() < MESSAGES {
        for hop in changed(&mut watcher).await.hops {
            let is_acked = hop.groups.iter().any(|group| group.state == HopState::Acked);
            acked.extend(is_acked.then_some(hop.offset));
        }
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_lets_some_traces_of_a_topic_through_and_always_the_same() {
    /// Of the ids from 1 to 16, those in the first half: every broker of every release has to find the same.
    const IN_SHARE: [u128; 8] = [1, 6, 7, 8, 10, 11, 12, 15];
    let bus = Bus::with_topic("orders", 1).await;
    let mut watchers = Vec::new();
    for subprotocol in BOTH {
        let mut watcher = bus.connect(subprotocol).await;
        let sampled = Watch { id: 0, trace_id: None, topic: Some("orders".into()), sample: Some(0.5) };
        watch(&mut watcher, sampled).await;
        watchers.push(watcher);
    }
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    // 17 and 18 are in the share too; what comes last is told last.
    for last in [17, 18] {
        for number in (1..=16).chain([last]) {
            producer.publish("orders", vec![in_trace(Uuid::from_u128(number), None)]).await;
        }
        for watcher in &mut watchers {
            let mut told = BTreeSet::new();
            while !told.contains(&last) {
                let seen = changed(watcher).await;
                assert_eq!(seen.left_out, 0);
                told.insert(seen.trace_id.as_u128());
            }
            told.remove(&last);
            assert_eq!(told.into_iter().collect::<Vec<_>>(), IN_SHARE);
        }
    }
    bus.stop().await;
}

fn to_partition(trace: Uuid, partition: u32) -> NewMessage {
    NewMessage { partition: Some(partition), ..in_trace(trace, None) }
}

fn all_of(topic: &str) -> Watch {
    Watch { id: 0, trace_id: None, topic: Some(topic.into()), sample: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_a_topic_follows_partitions_that_are_added_and_the_topic_when_it_is_made_again() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut watcher = bus.connect(Subprotocol::Json).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    producer.publish("orders", vec![to_partition(Uuid::now_v7(), 0)]).await; // before the watch
    watch(&mut watcher, all_of("orders")).await;
    let (http, url) = (reqwest::Client::new(), bus.server.url("/v1/topics/orders"));
    let grown = http.patch(&url).json(&serde_json::json!({"partitions": 3})).send().await.unwrap();
    assert!(grown.status().is_success(), "{grown:?}");
    for partition in [2, 0] {
        let trace = Uuid::now_v7();
        producer.publish("orders", vec![to_partition(trace, partition)]).await;
        assert_eq!(changed(&mut watcher).await.trace_id, trace, "in partition {partition}");
    }
    let deleted = http.delete(&url).send().await.unwrap();
    assert!(deleted.status().is_success(), "{deleted:?}");
    make_topic(&bus.server.address, "orders", 1).await;
    let trace = Uuid::now_v7();
    producer.publish("orders", vec![to_partition(trace, 0)]).await;
    let again = async {
        while changed(&mut watcher).await.trace_id != trace {} // the others stand otherwise, now that their topic is gone
    };
    again.await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_cannot_be_read_takes_no_trace_of_the_others_from_a_watch() {
    let bus = Bus::with_topic("orders", 2).await;
    let mut watcher = bus.connect(Subprotocol::MessagePack).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    producer.publish("orders", vec![to_partition(Uuid::now_v7(), 0), to_partition(Uuid::now_v7(), 1)]).await;
    watch(&mut watcher, all_of("orders")).await;
    let raw = bus.database.raw().await;
    let second = "(SELECT partition_id FROM laneway.partition WHERE number = 1)";
    let tables = raw
        .query(&format!("SELECT segment_id FROM laneway.segment WHERE partition_id = {second}"), &[])
        .await
        .unwrap();
    let tables: Vec<String> =
        tables.iter().map(|row| format!("laneway.message_s{}", row.get::<_, i64>(0))).collect();
    let lock = format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
    raw.batch_execute(&lock).await.unwrap();
    // As if another broker had written to it.
    let head = format!(
        "INSERT INTO laneway.head (partition_id, published_at, next_offset, bytes_total)
         SELECT {second}, clock_timestamp(), 2, 0"
    );
    bus.database.raw().await.batch_execute(&head).await.unwrap();
    let trace = Uuid::now_v7();
    producer.publish("orders", vec![to_partition(trace, 0)]).await;
    assert_eq!(changed(&mut watcher).await.trace_id, trace);
    raw.batch_execute("ROLLBACK").await.unwrap();
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_take_a_watch_more_looks_and_none_of_their_traces() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut watcher = bus.connect(Subprotocol::MessagePack).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    watch(&mut watcher, all_of("orders")).await;
    let traces: BTreeSet<Uuid> = (0..14).map(|_| Uuid::now_v7()).collect();
    let large = |trace: &Uuid| NewMessage { payload: vec![b'x'; 1 << 20].into(), ..in_trace(*trace, None) };
    producer.publish("orders", traces.iter().map(large).collect()).await;
    let mut told = BTreeSet::new();
    while told.len() < traces.len() {
        let seen = changed(&mut watcher).await;
        assert_eq!(seen.left_out, 0);
        told.insert(seen.trace_id);
    }
    assert_eq!(told, traces);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_watched_is_refused() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut socket = bus.connect(Subprotocol::Json).await;
    let topic = |topic: &str, sample| Watch { id: 0, trace_id: None, topic: Some(topic.into()), sample };
    for (mut wish, code, field) in [
        (one(Uuid::nil()), ErrorCode::Malformed, "trace_id"),
        (Watch { topic: Some("orders".into()), ..one(Uuid::now_v7()) }, ErrorCode::Malformed, "trace_id"),
        (Watch { trace_id: None, ..one(Uuid::nil()) }, ErrorCode::Malformed, "trace_id"),
        (Watch { sample: Some(0.5), ..one(Uuid::now_v7()) }, ErrorCode::Malformed, "sample"),
        (topic("orders", Some(0.0)), ErrorCode::Malformed, "sample"),
        (topic("orders", Some(1.5)), ErrorCode::Malformed, "sample"),
        (topic("nowhere", None), ErrorCode::UnknownTopic, "topic"),
    ] {
        wish.id = socket.id();
        let id = wish.id;
        socket.send(ClientFrame::Watch(wish)).await;
        let error = socket.error().await;
        assert_eq!(
            (error.id, error.code, error.field.as_deref()),
            (Some(id), code, Some(field)),
            "{error:?}"
        );
    }
    // A watch takes neither acks nor credit.
    let number = watch(&mut socket, topic("orders", Some(0.5))).await;
    socket.credit(number, 10, 10).await;
    assert_eq!(socket.error().await.code, ErrorCode::UnknownSubscription);
    bus.stop().await;
}
