//! Reading traces: the tree, what groups have made of it, links, and what is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use laneway_client::trace::{Hop, HopState, Trace};
use laneway_client::wire::{
    BrokerFrame, ClientFrame, ErrorFrame, NewMessage, ReadTrace, StepPublish, Subprotocol, Subscribe,
    Transact,
};
use laneway_client::{Cause, ErrorCode};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::Bus;
use crate::harness::Server;
use crate::harness::socket::{BOTH, Socket, ack, make_topic, quick_retries, subscribe, text};
use crate::harness::wait::until;
use crate::transact::step;

async fn read(socket: &mut Socket, trace_id: Uuid) -> Result<Trace, ErrorFrame> {
    let id = socket.id();
    socket.send(ClientFrame::Trace(ReadTrace { id, trace_id })).await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Traced(traced) if traced.id == id => Some(Ok(traced.trace.clone())),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((**error).clone())),
            _ => None,
        })
        .await
}

fn in_trace(trace: Uuid, payload: &str, cause: Option<(&str, i64)>) -> NewMessage {
    let cause = cause.map(|(topic, offset)| Cause { topic: topic.into(), partition: 0, offset });
    NewMessage { trace_id: Some(trace), cause, partition: Some(0), ..text(payload) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_says_what_every_group_has_made_of_every_hop() {
    let bus = Bus::with_topic("orders", 1).await;
    make_topic(&bus.server.address, "charges", 1).await;
    let trace_id = Uuid::now_v7();
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    producer.publish("charges", vec![in_trace(Uuid::now_v7(), "stranger", None)]).await;
    let root = NewMessage { key: Some("customer-17".into()), ..in_trace(trace_id, "root", None) };
    producer.publish("orders", vec![root]).await;
    let effects = ["card", "cash", "gold"].map(|payload| in_trace(trace_id, payload, Some(("orders", 0))));
    producer.publish("charges", effects.to_vec()).await;
    // One group is done with the root; another fails at the first effect once and gives the second up.
    let mut intake = bus.connect(Subprotocol::Json).await;
    intake.subscribe("intake", "orders").await;
    let batch = intake.batch().await;
    intake.ack_below(&batch, 1).await.unwrap();
    let mut cashier = bus.connect(Subprotocol::MessagePack).await;
    let wish = Subscribe { settings: Some(quick_retries(2)), ..subscribe("cashier", "charges") };
    cashier.subscribe_with(wish).await.unwrap();
    let batch = cashier.batch().await;
    cashier.ack_below(&batch, 1).await.unwrap();
    cashier.nack(&batch, 1, "declined").await.unwrap();
    let batch = cashier.batch().await;
    assert_eq!(batch.messages[0].offset, 1);
    cashier.ack_below(&batch, 2).await.unwrap();
    cashier.nack(&batch, 2, "no such card").await.unwrap();
    let batch = cashier.batch().await;
    cashier.nack(&batch, 2, "still none").await.unwrap();
    let trace = read(&mut intake, trace_id).await.unwrap();
    let hops: Vec<(&str, i64, Option<usize>, u32)> =
        trace.hops.iter().map(|hop| (hop.topic.as_str(), hop.offset, hop.parent, hop.depth)).collect();
    assert_eq!(
        hops,
        [
            ("orders", 0, None, 0),
            ("charges", 1, Some(0), 1),
            ("charges", 2, Some(0), 1),
            ("charges", 3, Some(0), 1)
        ]
    );
    assert_eq!((trace.hops[0].key.as_deref(), trace.hops[0].size), (Some("customer-17"), 4));
    let states: Vec<(HopState, u32, Option<i64>)> = trace
        .hops
        .iter()
        .map(|hop| (hop.groups[0].state, hop.groups[0].attempts, hop.groups[0].ahead))
        .collect();
    assert_eq!(states[0], (HopState::Acked, 1, None));
    assert_eq!(states[1].0, HopState::Acked);
    assert_eq!(states[2].0, HopState::DeadLettered);
    assert!(trace.hops[2].groups[0].dead_letter.is_some());
    assert_eq!(states[3], (HopState::Waiting, 0, Some(0)));
    // The same over HTTP, in either form of the id, and for whoever has seen nothing of it.
    let mut later = crate::harness::Server::on_database(&bus.database.url).await;
    for server in [&bus.server, &later] {
        let answer = reqwest::get(server.url(&format!("/v1/traces/{}", trace_id.simple()))).await.unwrap();
        assert_eq!(answer.json::<Trace>().await.unwrap(), trace);
    }
    assert_eq!(later.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_trace_is_refused() {
    let bus = Bus::with_topic("orders", 1).await;
    for subprotocol in BOTH {
        let mut socket = bus.connect(subprotocol).await;
        let unknown = read(&mut socket, Uuid::now_v7()).await.unwrap_err();
        assert_eq!((unknown.code, unknown.field.as_deref()), (ErrorCode::UnknownTrace, Some("trace_id")));
        let zero = read(&mut socket, Uuid::nil()).await.unwrap_err();
        assert_eq!((zero.code, zero.field.as_deref()), (ErrorCode::Malformed, Some("trace_id")));
    }
    for (id, status, code) in [
        ("0198f5a01c2d7e3f8a4b5c6d7e8f9a0b", 404, "unknown_trace"),
        ("nonsense", 400, "malformed"),
        ("0198f5a01c2d7e3f8a4b5c6d7e8f9a0", 400, "malformed"),
        ("00000000-0000-0000-0000-000000000000", 400, "malformed"),
        ("00000000000000000000000000000000", 400, "malformed"),
        ("00000000000000000000000000000000/messages", 400, "malformed"),
    ] {
        let answer = reqwest::get(bus.server.url(&format!("/v1/traces/{id}"))).await.unwrap();
        assert_eq!(answer.status().as_u16(), status);
        assert_eq!(answer.json::<Value>().await.unwrap()["code"], json!(code));
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_seen_from_both_sides() {
    let bus = Bus::with_topic("orders", 1).await;
    let (old, new) = (Uuid::now_v7(), Uuid::now_v7());
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    socket.publish("orders", vec![in_trace(old, "old", None)]).await;
    let linked = NewMessage { links: vec![old, old], ..in_trace(new, "new", None) };
    socket.publish("orders", vec![linked.clone()]).await;
    let seen = read(&mut socket, new).await.unwrap();
    assert_eq!((seen.links, seen.linked_by), (vec![old.to_string()], vec![]));
    let seen = read(&mut socket, old).await.unwrap();
    assert_eq!((seen.links, seen.linked_by), (vec![], vec![new.to_string()]));
    for links in [vec![old; 17], vec![Uuid::nil()]] {
        let id = socket.id();
        let messages = vec![NewMessage { links, ..text("m") }];
        let publish = laneway_client::wire::Publish {
            id,
            topic: "orders".into(),
            producer_id: None,
            wait_ms: None,
            messages,
        };
        socket.send(ClientFrame::Publish(publish)).await;
        let error = socket.error().await;
        assert_eq!(
            (error.code, error.field.as_deref()),
            (ErrorCode::InvalidMessage, Some("messages[0].links"))
        );
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_may_link_what_it_publishes_to_other_traces() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        make_topic(&bus.server.address, "charges", 1).await;
        let (old, new) = (Uuid::now_v7(), Uuid::now_v7());
        let mut socket = bus.connect(subprotocol).await;
        socket.publish("orders", vec![in_trace(old, "old", None)]).await;
        socket.subscribe("billing", "orders").await;
        let batch = socket.batch().await;
        let linked = NewMessage { links: vec![old], ..in_trace(new, "new", None) };
        let publishes = vec![StepPublish { topic: "charges".into(), messages: vec![linked] }];
        let acks = vec![ack(&batch, Some(1), &[])];
        socket.transact(Transact { id: 0, step_id: Uuid::now_v7(), acks, publishes }).await.unwrap();
        let seen = read(&mut socket, new).await.unwrap();
        assert_eq!((seen.links, seen.linked_by), (vec![old.to_string()], vec![]));
        let seen = read(&mut socket, old).await.unwrap();
        assert_eq!((seen.links, seen.linked_by), (vec![], vec![new.to_string()]));
        bus.stop().await;
    }
}

/// When a group was given the one message that it has, and when it was done, in microseconds, as the tables say it.
async fn kept(bus: &Bus, group: &str) -> (i64, i64) {
    let sql = "SELECT (extract(epoch FROM t.delivered_at) * 1000000)::bigint, (extract(epoch FROM t.acked_at) * 1000000)::bigint
        FROM laneway.lane_time t JOIN laneway.consumer_group g USING (group_id) WHERE g.name = $1";
    let row = bus.database.raw().await.query_one(sql, &[&group]).await.unwrap();
    (row.get(0), row.get(1))
}

fn us(moment: &str) -> i64 {
    moment.parse::<Timestamp>().unwrap().as_microsecond()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_tells_when_and_how_long_on_the_database_clock_also_after_its_broker_was_killed() {
    const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let mut bus = Bus::with_topic("orders", 1).await;
    make_topic(&bus.server.address, "charges", 1).await;
    let trace_id = Uuid::now_v7();
    let began = bus.database.number(NOW).await;
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    socket.publish("orders", vec![in_trace(trace_id, "order", None)]).await;
    // The first group is done before the second, in whose hands the order is when it leads to a charge.
    for group in ["audit", "intake"] {
        socket.subscribe(group, "orders").await;
        let batch = socket.batch().await;
        tokio::time::sleep(Duration::from_millis(200)).await; // as if it worked on it: this is what is measured
        if group == "intake" {
            socket.publish("charges", vec![in_trace(trace_id, "charge", Some(("orders", 0)))]).await;
        }
        socket.ack_below(&batch, 1).await.unwrap();
    }
    socket.subscribe("cashier", "charges").await;
    let batch = socket.batch().await;
    socket.ack_below(&batch, 1).await.unwrap();
    let ended = bus.database.number(NOW).await;
    let trace = read(&mut socket, trace_id).await.unwrap();
    let groups: Vec<(&str, &str)> = trace
        .hops
        .iter()
        .flat_map(|hop| hop.groups.iter().map(|group| (hop.topic.as_str(), group.group.as_str())))
        .collect();
    assert_eq!(groups, [("orders", "audit"), ("orders", "intake"), ("charges", "cashier")]);
    let mut spent = BTreeMap::new();
    for hop in &trace.hops {
        let published = us(&hop.published_at);
        for group in &hop.groups {
            let (delivered, acked) = kept(&bus, &group.group).await;
            let told = [&group.delivered_at, &group.acked_at].map(|at| us(at.as_deref().unwrap()));
            assert_eq!(told, [delivered, acked], "{group:?}");
            assert!([began, published, delivered, acked, ended].is_sorted(), "{group:?} of {hop:?}");
            let took = (group.waiting_us.unwrap(), group.handling_us.unwrap());
            assert_eq!(took, (delivered - published, acked - delivered), "{group:?}");
            assert!(hop.topic == "charges" || (150_000..60_000_000).contains(&took.1), "{group:?}");
            spent.insert(group.group.clone(), took);
        }
    }
    // The audit led nowhere.
    let (intake, cashier) = (spent["intake"], spent["cashier"]);
    assert_eq!(trace.critical_path, [0, 1]);
    assert_eq!((trace.waiting_us, trace.handling_us), (intake.0 + cashier.0, intake.1 + cashier.1));
    bus.server.kill().await;
    bus.server = Server::start(&["--database-url", &bus.database.url, "--lease-ttl", "1s"]).await;
    for subprotocol in BOTH {
        let mut later = bus.connect(subprotocol).await;
        assert_eq!(read(&mut later, trace_id).await.unwrap(), trace);
    }
    let answer = reqwest::get(bus.server.url(&format!("/v1/traces/{trace_id}"))).await.unwrap();
    assert_eq!(answer.json::<Trace>().await.unwrap(), trace);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ahead_of_a_message_is_what_neither_acks_nor_steps_nor_retention_have_done() {
    let bus = Bus::with_topic("orders", 1).await;
    let trace_id = Uuid::now_v7();
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    bus.publish("orders", 0, 0..9).await;
    socket.publish("orders", vec![in_trace(trace_id, "last", None)]).await;
    let ahead = async |socket: &mut Socket| {
        let trace = read(socket, trace_id).await.unwrap();
        assert_eq!(trace.hops[0].offset, 9);
        trace.hops[0].groups[0].ahead
    };
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batches(10).await.remove(0);
    assert_eq!(ahead(&mut socket).await, Some(9));
    consumer.ack(ack(&batch, None, &[1, 4])).await.unwrap();
    assert_eq!(ahead(&mut socket).await, Some(7));
    consumer.transact(step(&batch, &[2, 3], "orders", &[])).await.unwrap();
    consumer.transact(step(&batch, &[6], "orders", &[])).await.unwrap();
    assert_eq!(ahead(&mut socket).await, Some(4), "of steps that no commit of the lane knows yet");
    consumer.close().await;
    until("the lane to be free", async || {
        bus.database.number("SELECT count(*) FROM laneway.lane WHERE session_id IS NULL").await == 1
    })
    .await;
    assert_eq!(ahead(&mut socket).await, Some(4));
    // As if retention had come by while nobody had the lane, and as if its commits had been lost.
    let raw = bus.database.raw().await;
    raw.batch_execute("UPDATE laneway.partition SET start_offset = 3").await.unwrap();
    assert_eq!(ahead(&mut socket).await, Some(3), "5, 7 and 8");
    raw.batch_execute("DELETE FROM laneway.lane_commit").await.unwrap();
    assert_eq!(
        ahead(&mut socket).await,
        Some(4),
        "4, 5, 7 and 8: 3 belongs to a step that reaches below the start"
    );
    raw.batch_execute("UPDATE laneway.partition SET start_offset = 0").await.unwrap();
    assert_eq!(ahead(&mut socket).await, Some(6));
    bus.stop().await;
}

/// A hop as the model knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Expected {
    /// Topic, partition and offset.
    place: (String, u32, i64),
    cause: Option<(String, u32, i64)>,
}

/// Publishes a random pipeline of one trace, with other traces in between; returns what was published.
async fn random_pipeline(
    socket: &mut Socket,
    random: &mut StdRng,
    topics: &[String],
) -> (Uuid, Vec<Expected>) {
    let trace_id = Uuid::from_u128(random.random());
    let mut published: Vec<Expected> = Vec::new();
    for _ in 0..random.random_range(1..25) {
        let topic = &topics[random.random_range(0..topics.len())];
        let mut messages = Vec::new();
        let mut causes = Vec::new();
        for _ in 0..random.random_range(1..4) {
            if random.random_bool(0.3) {
                messages.push(NewMessage { partition: Some(0), ..text("other") });
                causes.push(None);
                continue;
            }
            let cause = (!published.is_empty() && random.random_bool(0.8))
                .then(|| published[random.random_range(0..published.len())].place.clone());
            let named = cause.clone().map(|(topic, partition, offset)| Cause { topic, partition, offset });
            let trace_id = (named.is_none() || random.random_bool(0.5)).then_some(trace_id);
            let partition = Some(random.random_range(0..3));
            messages.push(NewMessage { trace_id, cause: named, partition, ..text("hop") });
            causes.push(Some(cause));
        }
        let answer = socket.publish(topic, messages).await;
        for unit in answer.units {
            for (place, position) in unit.positions.iter().enumerate() {
                if let Some(cause) = causes[*position as usize].clone() {
                    let offset = unit.first_offset.unwrap() + place as i64;
                    published.push(Expected { place: (topic.clone(), unit.partition, offset), cause });
                }
            }
        }
    }
    (trace_id, published)
}

/// Independent of the broker's tree: everything is looked up by place.
fn check(trace: &Trace, mut expected: Vec<Expected>) {
    let place = |topic: &str, partition: u32, offset: i64| (topic.to_owned(), partition, offset);
    let mut found: Vec<Expected> = trace
        .hops
        .iter()
        .map(|hop| Expected {
            place: place(&hop.topic, hop.partition, hop.offset),
            cause: hop.cause.as_ref().map(|cause| place(&cause.topic, cause.partition, cause.offset)),
        })
        .collect();
    let in_order = found.clone();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let causes: BTreeMap<_, _> = expected.iter().map(|hop| (hop.place.clone(), hop.cause.clone())).collect();
    for (at, hop) in trace.hops.iter().enumerate() {
        // Its parent is its cause, stands before it, and everything between hangs below that parent.
        assert_eq!(hop.parent.map(|parent| in_order[parent].place.clone()), in_order[at].cause);
        let ancestors = std::iter::successors(in_order[at].cause.clone(), |place| causes[place].clone());
        assert_eq!(hop.depth as usize, ancestors.count());
        if let Some(parent) = hop.parent {
            assert!(parent < at);
            assert!(
                trace.hops[parent + 1..=at].iter().all(|between| between.depth > trace.hops[parent].depth)
            );
        }
    }
    let path = &trace.critical_path;
    assert!(trace.hops[path[0]].parent.is_none());
    assert!(path.windows(2).all(|pair| trace.hops[pair[1]].parent == Some(pair[0])));
    let published = |hop: &Hop| hop.published_at.parse::<Timestamp>().unwrap();
    let last = trace.hops.iter().map(published).max().unwrap();
    assert_eq!(published(&trace.hops[*path.last().unwrap()]), last);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_pipelines_are_read_as_the_trees_they_are() {
    let bus = Bus::start().await;
    let topics: Vec<String> = (0..4).map(|number| format!("step{number}")).collect();
    for topic in &topics {
        make_topic(&bus.server.address, topic, 3).await;
    }
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut pipelines = Vec::new();
    for _ in 0..40 {
        pipelines.push(random_pipeline(&mut socket, &mut random, &topics).await);
    }
    for (trace_id, expected) in pipelines {
        match expected.is_empty() {
            true => assert_eq!(read(&mut socket, trace_id).await.unwrap_err().code, ErrorCode::UnknownTrace),
            false => check(&read(&mut socket, trace_id).await.unwrap(), expected),
        }
    }
    bus.stop().await;
}
