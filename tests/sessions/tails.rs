//! Tails: reading without a group, from anywhere, within credit; nothing is committed.

use std::time::Duration;

use laneway_client::wire::{
    Batch, BatchOptions, BrokerFrame, ClientFrame, CreditGrant, ErrorFrame, NewMessage, Start, Subprotocol,
    Tail, TailedLane, Tailing, Untail,
};
use laneway_client::{Cause, Class, ErrorCode};
use serde_json::json;
use uuid::Uuid;

use crate::harness::socket::{BOTH, Socket, make_topic, offsets, text};
use crate::harness::{Server, TestDatabase, wait};

const PLENTY: CreditGrant = CreditGrant { messages: 100_000, bytes: 64 << 20 };

async fn server() -> (TestDatabase, Server) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", 3).await;
    (database, server)
}

fn tail(start: Option<Start>) -> Tail {
    Tail { id: 0, topic: "orders".into(), partitions: None, start, credit: PLENTY, batch: None }
}

async fn begin(socket: &mut Socket, mut tail: Tail) -> Result<Tailing, ErrorFrame> {
    let id = socket.id();
    tail.id = id;
    socket.send(ClientFrame::Tail(tail)).await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Tailing(tailing) if tailing.id == id => Some(Ok(tailing.clone())),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((**error).clone())),
            _ => None,
        })
        .await
}

async fn publish(socket: &mut Socket, partition: u32, count: usize) {
    let message = |number: usize| NewMessage { partition: Some(partition), ..text(number.to_string()) };
    socket.publish("orders", (0..count).map(message).collect()).await;
}

fn starts(tailing: &Tailing) -> Vec<(u32, i64)> {
    let mut lanes: Vec<(u32, i64)> = tailing
        .lanes
        .iter()
        .map(|TailedLane { partition, next_offset }| (*partition, *next_offset))
        .collect();
    lanes.sort_unstable();
    lanes
}

/// The offsets of each partition, in the order they come.
async fn collect(socket: &mut Socket, subscription: u32, messages: usize) -> [Vec<i64>; 3] {
    let mut found: [Vec<i64>; 3] = Default::default();
    while found.iter().map(Vec::len).sum::<usize>() < messages {
        let batch = socket
            .wait_for(|frame| match frame {
                BrokerFrame::Batch(batch) if batch.subscription == subscription => Some(batch.clone()),
                BrokerFrame::Error(error) => panic!("{error:?}"),
                _ => None,
            })
            .await;
        assert_eq!((batch.epoch, batch.round, batch.attempts.len()), (0, 0, 0));
        found[batch.partition as usize].extend(offsets(&batch));
    }
    found
}

async fn is_quiet(socket: &mut Socket) -> bool {
    socket.frame_within(Duration::from_millis(300)).await.is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_begins_at_the_first_message_the_next_one_a_time_or_an_offset() {
    let (database, server) = server().await;
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    publish(&mut producer, 0, 6).await;
    publish(&mut producer, 1, 4).await;
    let row = database.raw().await.query_one("SELECT clock_timestamp()::text", &[]).await.unwrap();
    let between = row.get::<_, String>(0).replacen(' ', "T", 1);
    publish(&mut producer, 0, 2).await;
    publish(&mut producer, 2, 1).await;
    let mut sizes = [8, 4, 1];
    for subprotocol in BOTH {
        let mut sockets = Vec::new();
        let cases = [
            (Some(Start::Earliest), [0, 0, 0]),
            (Some(Start::Latest), sizes),
            (None, sizes),
            (Some(Start::At(between.clone())), [6, 4, 0]),
            (Some(Start::Offset(3)), [3, 3, 3]),
        ];
        for (start, expected) in cases {
            let mut socket = Socket::connect(&server.address, subprotocol).await;
            let tailing = begin(&mut socket, tail(start.clone())).await.unwrap();
            assert_eq!(tailing.topic, "orders");
            let expected: Vec<(u32, i64)> = (0..).zip(expected).collect();
            assert_eq!(starts(&tailing), expected, "{start:?}");
            sockets.push((socket, tailing.subscription, expected));
        }
        for partition in 0..3 {
            publish(&mut producer, partition, 3).await;
            sizes[partition as usize] += 3;
        }
        for (mut socket, subscription, starts) in sockets {
            let from_to = starts.iter().zip(sizes).map(|((_, from), to)| (*from..to).collect::<Vec<i64>>());
            let expected: Vec<Vec<i64>> = from_to.collect();
            let count = expected.iter().map(Vec::len).sum();
            assert_eq!(collect(&mut socket, subscription, count).await.to_vec(), expected);
            assert!(is_quiet(&mut socket).await);
        }
    }
    // Nobody was a member of anything, and nothing was committed.
    for table in ["consumer_group", "member", "session", "lane", "lane_commit"] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM laneway.{table}")).await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_tells_traces_and_causes_as_they_were_published() {
    let (_database, mut server) = server().await;
    let trace = Uuid::from_u128(0x8000_0000_0000_0000_8000_0000_0000_0001);
    let mut producer = Socket::connect(&server.address, Subprotocol::Json).await;
    let in_trace = |partition, cause: Option<Cause>| NewMessage {
        trace_id: Some(trace),
        partition: Some(partition),
        cause,
        ..text("hop")
    };
    producer.publish("orders", vec![in_trace(2, None)]).await;
    let cause = Cause { topic: "orders".into(), partition: 2, offset: 0 };
    producer.publish("orders", vec![in_trace(1, Some(cause.clone()))]).await;
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        begin(&mut socket, Tail { partitions: Some(vec![1]), ..tail(Some(Start::Earliest)) }).await.unwrap();
        let seen = |batch: &Batch| {
            let message = batch.messages.last().unwrap();
            (message.trace_id, message.cause.clone())
        };
        // From the tables, or from memory as it comes.
        assert_eq!(seen(&socket.batch().await), (trace, Some(cause.clone())));
        producer.publish("orders", vec![in_trace(1, Some(cause.clone()))]).await;
        let mut offset = 0;
        while offset == 0 {
            let batch = socket.batch().await;
            assert_eq!(seen(&batch), (trace, Some(cause.clone())));
            offset = batch.messages.last().unwrap().offset;
        }
    }
    assert_eq!(server.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_reads_only_the_partitions_it_names_until_it_ends() {
    let (_database, server) = server().await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        let base = 5 * turn as i64;
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let some = Tail { partitions: Some(vec![2, 0]), ..tail(None) };
        let tailing = begin(&mut socket, some).await.unwrap();
        assert_eq!(starts(&tailing), [(0, base), (2, base)]);
        for partition in 0..3 {
            publish(&mut socket, partition, 2).await;
        }
        let mine = vec![base, base + 1];
        assert_eq!(collect(&mut socket, tailing.subscription, 4).await, [mine.clone(), vec![], mine]);
        assert!(is_quiet(&mut socket).await);
        // After untail nothing comes any more, and the number is not used again.
        let id = socket.id();
        socket.send(ClientFrame::Untail(Untail { id, subscription: tailing.subscription })).await;
        match socket.frame().await {
            BrokerFrame::Untailed(untailed) => {
                assert_eq!((untailed.id, untailed.subscription), (id, tailing.subscription));
            }
            other => panic!("{other:?}"),
        }
        for partition in 0..3 {
            publish(&mut socket, partition, 3).await;
        }
        assert!(is_quiet(&mut socket).await);
        socket.credit(tailing.subscription, 1, 1).await;
        assert_eq!(socket.error().await.code, ErrorCode::UnknownSubscription);
        let next = begin(&mut socket, tail(None)).await.unwrap();
        assert!(next.subscription > tailing.subscription);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_stays_within_its_credit_and_its_batches_within_their_size() {
    let (_database, server) = server().await;
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let messages = |bytes: usize| {
        (0..30).map(|_| NewMessage { partition: Some(1), ..text("x".repeat(bytes)) }).collect::<Vec<_>>()
    };
    producer.publish("orders", messages(100)).await;
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let few = Tail {
            credit: CreditGrant { messages: 7, bytes: 1 << 20 },
            batch: Some(BatchOptions { max_messages: Some(3), ..BatchOptions::default() }),
            ..tail(Some(Start::Earliest))
        };
        let number = begin(&mut socket, few).await.unwrap().subscription;
        let mut sizes = Vec::new();
        while sizes.iter().sum::<usize>() < 7 {
            sizes.push(socket.batch().await.messages.len());
        }
        assert_eq!(sizes, [3, 3, 1]);
        assert!(is_quiet(&mut socket).await, "seven were asked for");
        socket.credit(number, 2, 1).await;
        assert_eq!(offsets(&socket.batch().await), [7, 8]);
        assert!(is_quiet(&mut socket).await);
        // Bytes: the last message may overdraw them, the next one waits.
        let small =
            Tail { credit: CreditGrant { messages: 1_000, bytes: 250 }, ..tail(Some(Start::Earliest)) };
        let number = begin(&mut socket, small).await.unwrap().subscription;
        let mut found = Vec::new();
        while found.len() < 3 {
            found.extend(offsets(&socket.batch().await));
        }
        assert_eq!(found, [0, 1, 2], "250 bytes are two messages and a half");
        assert!(is_quiet(&mut socket).await);
        socket.credit(number, 0, 49).await; // 300 were sent, so this pays for what was overdrawn, but one
        assert!(is_quiet(&mut socket).await);
        socket.credit(number, 0, 2).await;
        assert_eq!(offsets(&socket.batch().await), [3]);
        socket.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_catches_up_and_follows_without_a_gap_while_messages_come() {
    const BEFORE: usize = 3_000;
    const LIVE: usize = 60;
    let (_database, server) = server().await;
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    for partition in 0..2 {
        publish(&mut producer, partition, BEFORE).await;
    }
    let publishing = tokio::spawn(async move {
        for _ in 0..LIVE {
            publish(&mut producer, 0, 5).await;
            publish(&mut producer, 1, 1).await;
        }
    });
    let follow = async |subprotocol: Subprotocol| {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let number = begin(&mut socket, tail(Some(Start::Earliest))).await.unwrap().subscription;
        let total = 2 * BEFORE + 6 * LIVE;
        let found = collect(&mut socket, number, total).await;
        assert_eq!(found[0], (0..(BEFORE + 5 * LIVE) as i64).collect::<Vec<_>>());
        assert_eq!(found[1], (0..(BEFORE + LIVE) as i64).collect::<Vec<_>>());
    };
    tokio::join!(follow(BOTH[0]), follow(BOTH[1]));
    publishing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_retention_has_overtaken_is_told_and_goes_on_where_it_can() {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let http = reqwest::Client::new();
    let topic =
        json!({"name": "orders", "partitions": 1, "segment_messages": 16, "retention_bytes": 1_000_000});
    let made = http.post(server.url("/v1/topics")).json(&topic).send().await.unwrap();
    assert!(made.status().is_success());
    let mut tails = Vec::new();
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let few =
            Tail { credit: CreditGrant { messages: 4, bytes: 16 << 20 }, ..tail(Some(Start::Earliest)) };
        let number = begin(&mut socket, few).await.unwrap().subscription;
        tails.push((socket, number));
    }
    // Far more than is kept, in the database as in memory.
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    const TOTAL: i64 = 160;
    for _ in 0..TOTAL / 8 {
        let messages = (0..8).map(|_| text("x".repeat(100_000))).collect();
        producer.publish("orders", messages).await;
    }
    for (socket, number) in &mut tails {
        assert_eq!(collect(socket, *number, 4).await[0], [0, 1, 2, 3]);
    }
    let mut start = 0;
    wait::until("retention to drop what was not sent", async || {
        let shown = http.get(server.url("/v1/topics/orders")).send().await.unwrap();
        let shown: serde_json::Value = shown.json().await.unwrap();
        start = shown["partition_details"][0]["start_offset"].as_i64().unwrap();
        start >= TOTAL - 32
    })
    .await;
    for (socket, number) in &mut tails {
        socket.credit(*number, 1_000, 32 << 20).await;
        let error = socket.error().await;
        assert_eq!((error.code, error.class), (ErrorCode::OutOfRange, Class::Refused));
        assert_eq!((error.id, error.subscription, error.partition), (None, Some(*number), Some(0)));
        let from = error.start.unwrap();
        assert!(from >= start, "{from} is still there, but {start} is not");
        let rest = collect(socket, *number, (TOTAL - from) as usize).await;
        assert_eq!(rest[0], (from..TOTAL).collect::<Vec<_>>());
    }
}
