//! Causes, links and traceparents: carried as they were, and refused when they cannot be.

use std::collections::BTreeMap;

use laneway_client::wire::{
    BrokerFrame, ClientFrame, ErrorFrame, NewMessage, Publish, StepPublish, Transact,
};
use laneway_client::{Cause, ErrorCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::Bus;
use crate::harness::quiet::seal;
use crate::harness::socket::{BOTH, Socket, ack, make_topic, text};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PARENT_TRACE: Uuid = Uuid::from_u128(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);

fn cause(topic: &str, partition: u32, offset: i64) -> Option<Cause> {
    Some(Cause { topic: topic.into(), partition, offset })
}

fn caused(cause: Option<Cause>) -> NewMessage {
    NewMessage { cause, partition: Some(0), ..text("effect") }
}

fn with_parent(parent: &str) -> NewMessage {
    let headers = BTreeMap::from([("traceparent".to_owned(), parent.to_owned())]);
    NewMessage { headers, partition: Some(0), ..text("effect") }
}

/// Publishes what must be refused.
async fn refused(socket: &mut Socket, topic: &str, message: NewMessage) -> ErrorFrame {
    let id = socket.id();
    let messages = vec![message];
    socket
        .send(ClientFrame::Publish(Publish {
            id,
            topic: topic.into(),
            producer_id: None,
            wait_ms: None,
            messages,
        }))
        .await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Error(error) if error.id == Some(id) => Some((**error).clone()),
            BrokerFrame::Published(published) if published.id == id => panic!("taken: {published:?}"),
            _ => None,
        })
        .await
}

const STORED: &str = "SELECT count(*) FROM laneway.message m JOIN laneway.partition p USING (partition_id)
    JOIN laneway.topic t USING (topic_id) WHERE t.name = 'charges'";

#[tokio::test(flavor = "multi_thread")]
async fn a_cause_is_delivered_as_it_was_and_decides_the_trace() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 3).await;
        make_topic(&bus.server.address, "charges", 1).await;
        let mut socket = bus.connect(subprotocol).await;
        let trace = Uuid::now_v7();
        let root = NewMessage { trace_id: Some(trace), partition: Some(2), ..text("root") };
        socket.publish("orders", vec![caused(None), root]).await;
        let root = cause("orders", 2, 0);
        // With its trace, and without: it joins that of its cause.
        let named = NewMessage { trace_id: Some(trace), ..caused(root.clone()) };
        socket.publish("charges", vec![named, caused(root.clone()), caused(None)]).await;
        socket.subscribe("billing", "charges").await;
        let batch = socket.batch().await;
        let seen: Vec<_> =
            batch.messages.iter().map(|message| (message.trace_id, message.cause.clone())).collect();
        assert_eq!(seen[..2], [(trace, root.clone()), (trace, root.clone())]);
        assert!(seen[2].0 != trace && seen[2].1.is_none());
        // Redelivered, read from the tables by a broker that has not seen it, and over HTTP.
        socket.nack(&batch, 0, "again").await.unwrap();
        assert_eq!(socket.batch().await.messages[1].cause, root);
        let url = bus.server.url("/v1/topics/charges/partitions/0/messages/1");
        let shown: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        assert_eq!(shown["cause"], json!({"topic": "orders", "partition": 2, "offset": 0}));
        let mut later = crate::harness::Server::on_database(&bus.database.url).await;
        let mut reader = Socket::connect(&later.address, subprotocol).await;
        reader.subscribe("audit", "charges").await;
        assert_eq!(reader.batch().await.messages[0].cause, root);
        reader.close().await;
        assert_eq!(later.stop().await, 0);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_cause_is_refused_and_nothing_is_stored() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 2).await;
        make_topic(&bus.server.address, "charges", 1).await;
        bus.publish("orders", 1, 0..3).await;
        let mut socket = bus.connect(subprotocol).await;
        for (named, word) in [
            (cause("nowhere", 0, 0), "does not exist"),
            (cause("no such name!", 0, 0), "does not exist"),
            (cause("orders", 2, 0), "which has 2"),
            (cause("orders", 0, 0), "no message yet"),
            (cause("orders", 1, 3), "no message yet"),
            (cause("orders", 1, -1), "no message yet"),
        ] {
            let error = refused(&mut socket, "charges", caused(named)).await;
            assert_eq!(error.code, ErrorCode::InvalidCause, "{error:?}");
            assert_eq!(error.field.as_deref(), Some("messages[0].cause"));
            assert!(error.detail.contains(word), "{error:?}");
        }
        let stranger = NewMessage { trace_id: Some(Uuid::now_v7()), ..caused(cause("orders", 1, 2)) };
        let error = refused(&mut socket, "charges", stranger).await;
        assert_eq!(error.code, ErrorCode::InvalidCause);
        assert!(error.detail.contains("belongs to trace"), "{error:?}");
        assert_eq!(bus.database.number(STORED).await, 0);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cause_that_retention_has_dropped_is_believed() {
    let bus = Bus::start().await;
    make_topic(&bus.server.address, "charges", 1).await;
    let short = json!({"name": "orders", "partitions": 1, "segment_messages": 16, "retention_bytes": 1});
    let made = reqwest::Client::new().post(bus.server.url("/v1/topics")).json(&short).send().await.unwrap();
    assert!(made.status().is_success());
    for first in [0, 10, 20, 30] {
        bus.publish("orders", 0, first..first + 10).await;
    }
    let store = bus.database.store();
    crate::harness::wait::until("retention", async || {
        seal(&store).await;
        store.retention_pass().await.unwrap();
        bus.database.number("SELECT max(start_offset) FROM laneway.partition").await > 0
    })
    .await;
    let mut socket = bus.connect(BOTH[0]).await;
    let trace = Uuid::now_v7();
    let late = NewMessage { trace_id: Some(trace), ..caused(cause("orders", 0, 0)) };
    socket.publish("charges", vec![late]).await;
    socket.subscribe("billing", "charges").await;
    let batch = socket.batch().await;
    assert_eq!((batch.messages[0].trace_id, batch.messages[0].cause.clone()), (trace, cause("orders", 0, 0)));
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_traceparent_gives_the_trace_and_goes_on_as_it_was() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("charges", 1).await;
        let mut socket = bus.connect(subprotocol).await;
        socket.publish("charges", vec![with_parent(PARENT)]).await;
        socket.subscribe("billing", "charges").await;
        let message = socket.batch().await.messages.remove(0);
        assert_eq!(message.trace_id, PARENT_TRACE);
        assert_eq!(message.headers.unwrap()["traceparent"], PARENT);
        let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        for parent in ["", "00-0af7", zero, "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"] {
            let error = refused(&mut socket, "charges", with_parent(parent)).await;
            assert_eq!(
                (error.code, error.field.as_deref()),
                (ErrorCode::InvalidMessage, Some("messages[0].headers"))
            );
        }
        let two = NewMessage { trace_id: Some(Uuid::now_v7()), ..with_parent(PARENT) };
        let error = refused(&mut socket, "charges", two).await;
        assert_eq!(error.field.as_deref(), Some("messages[0].trace_id"));
        let zero = NewMessage { trace_id: Some(Uuid::nil()), ..text("zero") };
        assert_eq!(refused(&mut socket, "charges", zero).await.code, ErrorCode::InvalidMessage);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_a_trace_id_may_be_a_traceparent() {
    let bus = Bus::with_topic("charges", 1).await;
    let post = async |body: Value| {
        let url = bus.server.url("/v1/topics/charges/message");
        let answer = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    assert_eq!(post(json!({"payload": "m", "trace_id": PARENT})).await.0, 200);
    let url = bus.server.url("/v1/topics/charges/partitions/0/messages/0");
    let shown: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    assert_eq!(
        (&shown["trace_id"], &shown["headers"]["traceparent"]),
        (&json!(PARENT_TRACE), &json!(PARENT))
    );
    let (status, error) =
        post(json!({"payload": "m", "cause": {"topic": "charges", "partition": 0, "offset": 9}})).await;
    assert_eq!((status, &error["code"], &error["field"]), (422, &json!("invalid_cause"), &json!("cause")));
    let (status, error) = post(json!({"payload": "m", "trace_id": "00-12-34-01"})).await;
    assert_eq!((status, &error["code"], &error["field"]), (400, &json!("malformed"), &json!("trace_id")));
    let (status, error) = post(json!({"payload": "m", "links": ["nonsense"]})).await;
    assert_eq!((status, &error["code"], &error["field"]), (400, &json!("malformed"), &json!("links[0]")));
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_acknowledges_one_message_is_caused_by_it() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        make_topic(&bus.server.address, "charges", 1).await;
        let mut socket = bus.connect(subprotocol).await;
        let trace = Uuid::now_v7();
        let root = |payload: &str| NewMessage { trace_id: Some(trace), partition: Some(0), ..text(payload) };
        socket.publish("orders", vec![root("a"), root("b"), root("c")]).await;
        socket.subscribe("billing", "orders").await;
        let batch = socket.batch().await;
        let other = Uuid::now_v7();
        let own = NewMessage { trace_id: Some(other), ..caused(None) };
        let step = |singles: &[i64], messages: Vec<NewMessage>| Transact {
            id: 0,
            step_id: Uuid::now_v7(),
            acks: vec![ack(&batch, None, singles)],
            publishes: vec![StepPublish { topic: "charges".into(), messages }],
        };
        let (one, two) = (step(&[0], vec![caused(None), own]), step(&[1, 2], vec![caused(None)]));
        // Sent again, it is the same step.
        socket.transact(one.clone()).await.unwrap();
        assert!(socket.transact(one).await.unwrap().repeated);
        socket.transact(two).await.unwrap();
        socket.subscribe("audit", "charges").await;
        let seen = socket.batch().await.messages;
        assert_eq!((seen[0].trace_id, seen[0].cause.clone()), (trace, cause("orders", 0, 0)));
        assert_eq!((seen[1].trace_id, seen[1].cause.clone()), (other, None));
        assert!(seen[2].trace_id != trace && seen[2].cause.is_none());
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_cause_refuses_the_whole_step_and_says_which_message() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        make_topic(&bus.server.address, "charges", 1).await;
        bus.publish("orders", 0, 0..2).await;
        let mut socket = bus.connect(subprotocol).await;
        socket.subscribe("billing", "orders").await;
        let batch = socket.batch().await;
        let step = |messages: Vec<NewMessage>| Transact {
            id: 0,
            step_id: Uuid::now_v7(),
            acks: vec![ack(&batch, None, &[0])],
            publishes: [vec![caused(None)], messages]
                .map(|messages| StepPublish { topic: "charges".into(), messages })
                .into(),
        };
        let stranger = NewMessage { trace_id: Some(Uuid::now_v7()), ..caused(cause("orders", 0, 1)) };
        for (message, code, field) in [
            (caused(cause("orders", 0, 2)), ErrorCode::InvalidCause, "publishes[1].messages[1].cause"),
            (caused(cause("nowhere", 0, 0)), ErrorCode::InvalidCause, "publishes[1].messages[1].cause"),
            (stranger, ErrorCode::InvalidCause, "publishes[1].messages[1].cause"),
            (with_parent("00-0af7"), ErrorCode::InvalidMessage, "publishes[1].messages[1].headers"),
        ] {
            let refused = socket.transact(step(vec![caused(None), message])).await.unwrap_err();
            assert_eq!((refused.code, refused.field.as_deref()), (code, Some(field)), "{refused:?}");
        }
        assert_eq!(bus.database.number(STORED).await, 0);
        socket.transact(step(vec![caused(cause("orders", 0, 1))])).await.unwrap();
        assert_eq!(bus.database.number(STORED).await, 2);
        bus.stop().await;
    }
}
