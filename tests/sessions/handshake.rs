//! How a session opens: the upgrade, `hello`, `welcome`; and everything that is refused before.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::SinkExt as _;
use laneway_client::wire::{
    Ack, BrokerFrame, ClientFrame, Credit, CreditGrant, ErrorFrame, Hello, Publish, Start, Subprotocol,
    Subscribe, Tail, Token, Unsubscribe,
};
use laneway_client::{Class, ErrorCode};
use serde_json::json;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::harness::socket::{BOTH, Seen, Socket, hello, make_topic, subscribe, text};
use crate::harness::{Server, TestDatabase};
use crate::pack;
use crate::witness::Witness;

async fn server() -> (TestDatabase, Server) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    (database, server)
}

/// The status with which an upgrade is refused, and the body.
async fn refused(address: &str, headers: &[(&'static str, &str)]) -> (u16, serde_json::Value) {
    let mut request = format!("ws://{address}/v1/ws").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tokio_tungstenite::connect_async(request).await {
        Err(Error::Http(answer)) => {
            let body = answer.body().as_deref().unwrap_or_default();
            (answer.status().as_u16(), serde_json::from_slice(body).unwrap_or_default())
        }
        other => panic!("the upgrade is not refused: {other:?}"),
    }
}

/// The error that comes next, and the code of the close frame right after it.
async fn error_and_close(socket: &mut Socket) -> (ErrorFrame, Option<u16>) {
    let error = socket.error().await;
    match socket.seen().await {
        Seen::Closed(code) => (error, code),
        Seen::Frame(frame) => panic!("after {error:?} comes {frame:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_frame_is_hello_and_any_other_one_is_out_of_turn() {
    let (database, server) = server().await;
    make_topic(&server.address, "orders", 1).await;
    let credit = CreditGrant { messages: 1, bytes: 1 };
    let messages = vec![text("too early")];
    let early = [
        ClientFrame::Publish(Publish {
            id: 7,
            topic: "orders".into(),
            producer_id: None,
            wait_ms: None,
            messages,
        }),
        ClientFrame::Subscribe(Subscribe { id: 7, ..subscribe("g", "orders") }),
        ClientFrame::Tail(Tail {
            id: 7,
            topic: "orders".into(),
            partitions: None,
            start: None,
            credit,
            batch: None,
        }),
        ClientFrame::Unsubscribe(Unsubscribe { id: 7, subscription: 1 }),
        ClientFrame::Ack(Ack {
            id: Some(7),
            subscription: 1,
            partition: 0,
            epoch: 1,
            round: 1,
            next: Some(1),
            ranges: vec![],
        }),
        ClientFrame::Credit(Credit { subscription: 1, messages: 1, bytes: 1 }),
        ClientFrame::Heartbeat,
    ];
    for subprotocol in BOTH {
        let mut witness = Witness::new(&server.address, subprotocol).await;
        for frame in &early {
            let mut socket = Socket::upgraded(&server.address, subprotocol).await;
            socket.send(frame.clone()).await;
            let (error, close) = error_and_close(&mut socket).await;
            assert_eq!((error.code, error.class), (ErrorCode::OutOfTurn, Class::Fatal), "{frame:?}");
            assert_eq!((error.id, close), (frame.id(), Some(4005)), "{frame:?}");
        }
        // What cannot be read ends a connection that was not welcomed, too.
        let mut socket = Socket::upgraded(&server.address, subprotocol).await;
        socket.send_raw(pack::frame(subprotocol, &json!({"type": "hello", "id": 7, "colour": "red"}))).await;
        let (error, close) = error_and_close(&mut socket).await;
        assert_eq!((error.code, error.id, close), (ErrorCode::Malformed, Some(7), Some(4005)));
        witness.lives().await;
    }
    assert_eq!(stored(&database).await, 0, "nothing that came too early was done");
}

/// Messages of the topic `orders`.
async fn stored(database: &TestDatabase) -> i64 {
    database
        .number(
            "SELECT count(*) FROM laneway.message m JOIN laneway.partition p USING (partition_id)
             JOIN laneway.topic t USING (topic_id) WHERE t.name = 'orders'",
        )
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_hello_is_out_of_turn_and_a_token_is_unsupported() {
    let (_database, server) = server().await;
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        socket.send(ClientFrame::Hello(Hello { id: 9, ..hello() })).await;
        let (error, close) = error_and_close(&mut socket).await;
        assert_eq!((error.code, error.class), (ErrorCode::OutOfTurn, Class::Fatal));
        assert_eq!((error.id, close), (Some(9), Some(4005)));

        let mut socket = Socket::upgraded(&server.address, subprotocol).await;
        let token = Some(Token::new("sesame"));
        socket.send(ClientFrame::Hello(Hello { id: 3, token, ..hello() })).await;
        let (error, close) = error_and_close(&mut socket).await;
        assert_eq!((error.code, error.class), (ErrorCode::Unsupported, Class::Refused));
        assert_eq!((error.id, error.field.as_deref(), close), (Some(3), Some("token"), Some(4005)));
        assert!(!error.detail.contains("sesame"), "a token is never repeated: {}", error.detail);
    }
    assert!(!server.log().iter().any(|line| line.contains("sesame")), "nor logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_hello_is_closed_after_ten_seconds() {
    let (_database, server) = server().await;
    let since = Instant::now();
    let mut sockets = Vec::new();
    for subprotocol in BOTH {
        sockets.push(Socket::upgraded(&server.address, subprotocol).await);
    }
    for socket in &mut sockets {
        assert_eq!(socket.closed().await, Some(4000));
        let waited = since.elapsed();
        assert!(waited > Duration::from_millis(9_500) && waited < Duration::from_secs(14), "{waited:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_without_a_subprotocol_of_ours_or_from_elsewhere_is_refused_before_it_happens() {
    let (_database, server) = server().await;
    let ours = "laneway.v1.json";
    for offered in [None, Some("laneway.v2.json"), Some("mqtt, graphql-ws")] {
        let headers: Vec<_> = offered.iter().map(|offered| ("sec-websocket-protocol", *offered)).collect();
        let (status, body) = refused(&server.address, &headers).await;
        assert_eq!(status, 400, "{offered:?}: {body}");
    }
    for foreign in ["http://evil.example", "https://localhost.evil.example:7420", "null"] {
        let headers = [("sec-websocket-protocol", ours), ("origin", foreign)];
        let (status, body) = refused(&server.address, &headers).await;
        assert_eq!((status, body["code"].as_str()), (403, Some("foreign_host")), "{foreign}");
    }
    let headers = [("sec-websocket-protocol", ours), ("host", "evil.example")];
    let (status, body) = refused(&server.address, &headers).await;
    assert_eq!((status, body["code"].as_str()), (403, Some("foreign_host")));
    // The same from this machine is taken, and the first of several that we know is named in the answer.
    let mut request = format!("ws://{}/v1/ws", server.address).into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("origin", "http://localhost:3000".parse().unwrap());
    headers.insert("sec-websocket-protocol", "mqtt, laneway.v1.json, laneway.v1.msgpack".parse().unwrap());
    let (_stream, answer) = tokio_tungstenite::connect_async(request).await.unwrap();
    let named = answer.headers()["sec-websocket-protocol"].to_str().unwrap();
    assert!(Subprotocol::from_name(named).is_some(), "{named}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_wrong_kind_and_one_that_is_not_utf8_close_the_connection() {
    let (_database, server) = server().await;
    let heartbeat = |subprotocol: Subprotocol| subprotocol.encode_client(&ClientFrame::Heartbeat);
    for subprotocol in BOTH {
        let mut witness = Witness::new(&server.address, subprotocol).await;
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let wrong = match subprotocol {
            Subprotocol::Json => Message::Binary(heartbeat(subprotocol).into()),
            Subprotocol::MessagePack => Message::Text("{\"type\":\"heartbeat\"}".into()),
        };
        socket.stream.send(wrong).await.unwrap();
        assert_eq!(socket.closed().await, Some(1003));

        // Not welcomed yet: the same.
        let mut socket = Socket::upgraded(&server.address, subprotocol).await;
        let wrong = match subprotocol {
            Subprotocol::Json => Message::Binary(vec![1].into()),
            Subprotocol::MessagePack => Message::Text("hello".into()),
        };
        socket.stream.send(wrong).await.unwrap();
        assert_eq!(socket.closed().await, Some(1003));
        witness.lives().await;
    }
    for is_welcome in [false, true] {
        let mut socket = match is_welcome {
            true => Socket::connect(&server.address, Subprotocol::Json).await,
            false => Socket::upgraded(&server.address, Subprotocol::Json).await,
        };
        let bytes = b"{\"type\":\"heartbeat\xff\"}".to_vec();
        let frame = Frame::message(bytes, OpCode::Data(Data::Text), true);
        socket.stream.send(Message::Frame(frame)).await.unwrap();
        assert_eq!(socket.closed().await, Some(1007));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_the_largest_size_is_read_and_a_larger_one_closes_the_connection() {
    let (_database, server) = server().await;
    make_topic(&server.address, "orders", 1).await;
    let publish = |bytes: usize| {
        let messages = vec![text("x".repeat(bytes))];
        ClientFrame::Publish(Publish {
            id: 7,
            topic: "orders".into(),
            producer_id: None,
            wait_ms: None,
            messages,
        })
    };
    for subprotocol in BOTH {
        let mut witness = Witness::new(&server.address, subprotocol).await;
        let (mut socket, welcome) = Socket::connect_with(&server.address, subprotocol, hello()).await;
        let limit = welcome.limits.frame_bytes_max as usize;
        let around = subprotocol.encode_client(&publish(1 << 20)).len() - (1 << 20);
        let largest = subprotocol.encode_client(&publish(limit - around));
        assert_eq!(largest.len(), limit);
        socket.send_raw(largest).await;
        let error = socket.error().await; // it was read: only its payload is more than the topic takes
        assert_eq!((error.code, error.id), (ErrorCode::PayloadTooLarge, Some(7)));
        assert_eq!(error.field.as_deref(), Some("messages[0].payload"));
        let too_large = subprotocol.encode_client(&publish(limit - around + 1));
        // The broker need not read all of it, so writing may fail; the close frame is what counts.
        let message = match subprotocol {
            Subprotocol::Json => Message::Text(String::from_utf8(too_large).unwrap().into()),
            Subprotocol::MessagePack => Message::Binary(too_large.into()),
        };
        let _may_be_cut_short = socket.stream.send(message).await;
        assert_eq!(socket.closed().await, Some(1009));
        witness.lives().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn welcome_answers_hello_and_its_limits_are_true() {
    let (_database, server) = server().await;
    make_topic(&server.address, "orders", 1).await;
    let (mut seen, mut tokens) = (HashSet::new(), HashSet::new());
    for subprotocol in BOTH {
        for (asked, agreed) in
            [(None, 20_000), (Some(1), 1_000), (Some(5_000), 5_000), (Some(u32::MAX), 60_000)]
        {
            let hello = Hello { id: u64::MAX, heartbeat_ms: asked, ..hello() };
            let (_socket, welcome) = Socket::connect_with(&server.address, subprotocol, hello).await;
            assert_eq!((welcome.id, welcome.heartbeat_ms), (u64::MAX, agreed));
            assert_eq!((welcome.resume_grace_ms, &welcome.resume), (0, &None));
            assert!(seen.insert(welcome.session), "every session has an id of its own");
            assert!(tokens.insert(welcome.resume_token.as_str().to_owned()), "and a secret of its own");
        }
        let hello = Hello { resume_grace_ms: Some(u32::MAX), ..hello() };
        let (mut socket, welcome) = Socket::connect_with(&server.address, subprotocol, hello).await;
        assert_eq!(welcome.resume_grace_ms, 300_000);
        let limits = welcome.limits;
        // Messages of a publish.
        let many = |count: u32| (0..count).map(|number| text(number.to_string())).collect::<Vec<_>>();
        let published = socket.publish("orders", many(limits.publish_messages_max)).await;
        assert_eq!(published.units[0].positions.len(), limits.publish_messages_max as usize);
        let (id, messages) = (socket.id(), many(limits.publish_messages_max + 1));
        let publish = Publish { id, topic: "orders".into(), producer_id: None, wait_ms: None, messages };
        socket.send(ClientFrame::Publish(publish)).await;
        let error = socket.error().await;
        assert_eq!((error.id, error.code), (Some(id), ErrorCode::TooLarge));
        assert_eq!(error.field.as_deref(), Some("messages"));
        // Credit.
        let (messages, bytes) = (limits.credit_messages_max, limits.credit_bytes_max);
        for (messages, bytes) in [(messages + 1, bytes), (messages, bytes + 1)] {
            let mut wanted = subscribe("absurd", "orders");
            wanted.credit = CreditGrant { messages, bytes };
            let error = socket.subscribe_with(wanted).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidCredit, "{error:?}");
        }
        let mut wanted = subscribe("largest", "orders");
        wanted.credit = CreditGrant { messages, bytes };
        wanted.start = Some(Start::Latest);
        let largest = socket.subscribe_with(wanted).await.unwrap().subscription;
        // Subscriptions, tails counted.
        for number in 1..limits.subscriptions_max {
            match number % 2 {
                0 => drop(socket.subscribe_with(latest(&format!("g{number}"))).await.unwrap()),
                _ => drop(tail(&mut socket).await.unwrap()),
            }
        }
        let error = socket.subscribe_with(latest("one-more")).await.unwrap_err();
        assert_eq!((error.code, error.class), (ErrorCode::TooManySubscriptions, Class::Refused));
        assert_eq!(tail(&mut socket).await.unwrap_err().code, ErrorCode::TooManySubscriptions);
        // One that ends makes room for another.
        let id = socket.id();
        socket.send(ClientFrame::Unsubscribe(Unsubscribe { id, subscription: largest })).await;
        socket.wait_for(|frame| matches!(frame, BrokerFrame::Unsubscribed(_)).then_some(())).await;
        socket.subscribe_with(latest("one-more")).await.unwrap();
        socket.close().await;
    }
}

fn latest(group: &str) -> Subscribe {
    let start = Some(Start::Latest);
    Subscribe { start, ..subscribe(group, "orders") }
}

async fn tail(socket: &mut Socket) -> Result<u32, ErrorFrame> {
    let id = socket.id();
    let credit = CreditGrant { messages: 1, bytes: 1 };
    let tail = Tail { id, topic: "orders".into(), partitions: None, start: None, credit, batch: None };
    socket.send(ClientFrame::Tail(tail)).await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Tailing(tailing) if tailing.id == id => Some(Ok(tailing.subscription)),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((**error).clone())),
            _ => None,
        })
        .await
}
