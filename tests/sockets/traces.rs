//! Reading traces: the tree, what groups have made of it, links, and what is refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use laneway_client::trace::{Hop, HopState, Trace};
use laneway_client::wire::{
    BrokerFrame, ClientFrame, ErrorFrame, NewMessage, ReadTrace, Subprotocol, Subscribe,
};
use laneway_client::{Cause, ErrorCode};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::Bus;
use crate::harness::socket::{BOTH, Socket, make_topic, quick_retries, subscribe, text};

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
