//! Publishing over a socket: many messages, one answer, results per partition; once, in order, bit for bit.

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway_client::wire::{
    BrokerFrame, ClientFrame, Duplicate, NewMessage, Publish, Published, PublishedUnit, Subprotocol,
};
use laneway_client::{Class, ErrorCode};
use uuid::Uuid;

use crate::harness::socket::{BOTH, Socket, make_topic, payloads, text};
use crate::harness::{Server, TestDatabase};

async fn server(partitions: u32) -> (TestDatabase, Server) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", partitions).await;
    (database, server)
}

fn other(subprotocol: Subprotocol) -> Subprotocol {
    match subprotocol {
        Subprotocol::Json => Subprotocol::MessagePack,
        Subprotocol::MessagePack => Subprotocol::Json,
    }
}

fn to(partition: u32, payload: impl Into<String>) -> NewMessage {
    NewMessage { partition: Some(partition), ..text(payload) }
}

fn numbered(partition: u32, sequence: i64) -> NewMessage {
    NewMessage { sequence: Some(sequence), ..to(partition, format!("{partition}-{sequence}")) }
}

async fn publish_as(socket: &mut Socket, producer_id: Uuid, messages: Vec<NewMessage>) -> Published {
    let id = socket.id();
    let publish =
        Publish { id, topic: "orders".into(), producer_id: Some(producer_id), wait_ms: None, messages };
    socket.send(ClientFrame::Publish(publish)).await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => Some(published.clone()),
            BrokerFrame::Error(error) if error.id == Some(id) => panic!("{error:?}"),
            _ => None,
        })
        .await
}

fn unit(published: &Published, partition: u32) -> &PublishedUnit {
    published.units.iter().find(|unit| unit.partition == partition).unwrap()
}

/// Everything of a topic by partition, as a group gets it.
async fn received(socket: &mut Socket, group: &str, messages: usize) -> BTreeMap<u32, Vec<String>> {
    socket.subscribe(group, "orders").await;
    let mut by_partition: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for batch in socket.batches(messages).await {
        by_partition.entry(batch.partition).or_default().extend(payloads(&batch));
    }
    by_partition
}

#[tokio::test(flavor = "multi_thread")]
async fn many_messages_of_one_frame_are_stored_in_order_and_answered_by_partition() {
    let (_database, server) = server(4).await;
    make_topic(&server.address, "keys", 4).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let messages: Vec<NewMessage> =
            (0..400).map(|number| to(number % 4, format!("{turn}-{number}"))).collect();
        let published = socket.publish("orders", messages).await;
        assert_eq!(published.units.len(), 4);
        for partition in 0..4 {
            let unit = unit(&published, partition);
            let positions: Vec<u32> = (0..400).filter(|number| number % 4 == partition).collect();
            assert_eq!(unit.positions, positions);
            assert_eq!(unit.first_offset, Some(turn as i64 * 100));
            assert_eq!((&unit.duplicates, &unit.error), (&vec![], &None));
        }
        // The same key goes the same way, and nothing at all goes somewhere.
        let keyed = |key: &str| NewMessage { key: Some(Bytes::from(key.to_owned())), ..text("keyed") };
        let published = socket.publish("keys", vec![keyed("a"), keyed("b"), keyed("a")]).await;
        let with = |position| published.units.iter().find(|unit| unit.positions.contains(&position)).unwrap();
        assert_eq!(with(0).partition, with(2).partition);
        socket.close().await;
        let mut reader = Socket::connect(&server.address, other(subprotocol)).await;
        let found = received(&mut reader, &format!("reader-{turn}"), (turn + 1) * 400).await;
        for (partition, texts) in found {
            let mine: Vec<&String> =
                texts.iter().filter(|text| text.starts_with(&format!("{turn}-"))).collect();
            let expected: Vec<String> = (0..400)
                .filter(|number| number % 4 == partition)
                .map(|number| format!("{turn}-{number}"))
                .collect();
            assert_eq!(mine, expected.iter().collect::<Vec<_>>());
        }
        reader.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_refuses_does_not_hurt_another_one_of_the_same_frame() {
    let (database, server) = server(2).await;
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let producer = Uuid::new_v4();
        publish_as(&mut socket, producer, vec![numbered(0, 0), numbered(1, 0)]).await;
        let before = database.number("SELECT count(*) FROM laneway.message").await;
        // Partition 1 has left out a number; partition 0 goes on.
        let published =
            publish_as(&mut socket, producer, vec![numbered(1, 5), numbered(0, 1), numbered(1, 6)]).await;
        let refused = unit(&published, 1);
        let fault = refused.error.as_ref().unwrap();
        assert_eq!(
            (fault.code, fault.class, fault.expected),
            (ErrorCode::SequenceGap, Class::Refused, Some(1))
        );
        assert_eq!((&refused.positions, refused.first_offset), (&vec![0, 2], None));
        let stored = unit(&published, 0);
        assert_eq!((&stored.positions, &stored.error), (&vec![1], &None));
        assert!(stored.first_offset.is_some());
        assert_eq!(database.number("SELECT count(*) FROM laneway.message").await, before + 1);
        // With the number that was expected it goes on, too.
        let published = publish_as(&mut socket, producer, vec![numbered(1, 1)]).await;
        assert!(unit(&published, 1).error.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_one_copy_by_sequence_and_by_transaction_id() {
    let (database, server) = server(2).await;
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let producer = Uuid::new_v4();
        let first =
            publish_as(&mut socket, producer, vec![numbered(0, 0), numbered(1, 0), numbered(0, 1)]).await;
        let at = |published: &Published, partition| unit(published, partition).first_offset.unwrap();
        // Again, on another connection and in the other subprotocol, with something new behind it.
        let mut again = Socket::connect(&server.address, other(subprotocol)).await;
        let retried = publish_as(
            &mut again,
            producer,
            vec![numbered(0, 0), numbered(0, 1), numbered(0, 2), numbered(1, 0)],
        )
        .await;
        let zero = unit(&retried, 0);
        let offset = at(&first, 0);
        assert_eq!(
            zero.duplicates.iter().map(|duplicate| duplicate.position).collect::<Vec<_>>(),
            [0, 1],
            "{zero:?}"
        );
        for (place, duplicate) in zero.duplicates.iter().enumerate() {
            assert!(duplicate.offset.is_none_or(|found| found == offset + place as i64), "{duplicate:?}");
        }
        assert_eq!((&zero.positions, zero.first_offset), (&vec![0, 1, 2], Some(offset + 2)));
        let one = unit(&retried, 1);
        assert_eq!((one.duplicates.len(), one.first_offset), (1, None));

        let named = |id: &str| NewMessage { transaction_id: Some(id.into()), ..to(1, "named") };
        let id = Uuid::new_v4().to_string();
        let first = socket.publish("orders", vec![named(&id)]).await;
        let offset = at(&first, 1);
        let retried = again.publish("orders", vec![to(1, "new"), named(&id)]).await;
        let one = unit(&retried, 1);
        assert_eq!(one.duplicates, [Duplicate { position: 1, offset: Some(offset) }]);
        assert_eq!((&one.positions, one.first_offset), (&vec![0, 1], Some(offset + 1)));
    }
    assert_eq!(database.number("SELECT count(*) FROM laneway.message").await, 2 * 6);
}

/// Payloads that are hard to carry, with how JSON declares them, as it stands in the frame.
const HARD: &[(&str, &str, &[u8])] = &[
    ("text", r#""""#, b""),
    ("text", r#""caf\u00e9 \"q\" \\ \/ \n \ud83d\ude80 \u0000""#, "café \"q\" \\ / \n 🚀 \0".as_bytes()),
    (
        "json",
        r#"{"b" : 1.0e5, "a":[ ],"a":null, "big":123456789012345678901234567890}"#,
        br#"{"b" : 1.0e5, "a":[ ],"a":null, "big":123456789012345678901234567890}"#,
    ),
    ("json", "1.10", b"1.10"),
    ("json", r#""\u0041""#, br#""\u0041""#),
    ("json", "true", b"true"),
    ("base64", r#""""#, b""),
    ("base64", r#""AP+A/wD+""#, &[0x00, 0xff, 0x80, 0xff, 0x00, 0xfe]),
];

#[tokio::test(flavor = "multi_thread")]
async fn payloads_and_keys_arrive_bit_for_bit_in_either_subprotocol() {
    let (_database, server) = server(1).await;
    // JSON, written by hand.
    let mut json = Socket::connect(&server.address, Subprotocol::Json).await;
    let messages: Vec<String> = HARD
        .iter()
        .map(|(encoding, value, _)| {
            format!(
                r#"{{"payload":{value},"encoding":"{encoding}","key":{value},"key_encoding":"{encoding}","headers":{{"é":"\u0022"}}}}"#
            )
        })
        .collect();
    let frame =
        format!(r#"{{"messages":[{}],"topic":"orders","type":"publish","id":9}}"#, messages.join(","));
    json.send_raw(frame.into_bytes()).await;
    let published = json.wait_for(|frame| match frame {
        BrokerFrame::Published(published) => Some(published.clone()),
        BrokerFrame::Error(error) => panic!("{error:?}"),
        _ => None,
    });
    assert_eq!(published.await.units[0].first_offset, Some(0));
    // MessagePack: all bytes, and a text that only looks like JSON.
    let mut packed = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let all = NewMessage {
        payload: every_byte.clone().into(),
        key: Some(every_byte.clone().into()),
        trace_id: Some(Uuid::from_u128(7)),
        content_type: Some("application/octet-stream".into()),
        ..NewMessage::default()
    };
    let broken = NewMessage {
        payload: Bytes::from_static(b"{\"a\": tru"),
        content_type: Some("application/json".into()),
        ..NewMessage::default()
    };
    packed.publish("orders", vec![all, broken]).await;

    let mut expected: Vec<(Vec<u8>, Option<Vec<u8>>)> =
        HARD.iter().map(|(_, _, bytes)| (bytes.to_vec(), Some(bytes.to_vec()))).collect();
    expected.push((every_byte.clone(), Some(every_byte)));
    expected.push((b"{\"a\": tru".to_vec(), None));
    for (socket, group) in [(&mut json, "in-json"), (&mut packed, "in-msgpack")] {
        socket.subscribe(group, "orders").await;
        let batches = socket.batches(expected.len()).await;
        let records: Vec<_> = batches.into_iter().flat_map(|batch| batch.messages).collect();
        let found: Vec<(Vec<u8>, Option<Vec<u8>>)> = records
            .iter()
            .map(|record| (record.payload.to_vec(), record.key.as_ref().map(|key| key.to_vec())))
            .collect();
        assert_eq!(found, expected, "{group}");
        for (record, (encoding, _, _)) in records.iter().zip(HARD) {
            let is_json = *encoding == "json";
            assert_eq!(record.content_type.as_deref(), is_json.then_some("application/json"));
            assert_eq!(record.headers.as_ref().unwrap()["é"], "\"");
        }
        assert_eq!(records[HARD.len()].trace_id, Uuid::from_u128(7));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_publishes_in_flight_are_answered_once_each_and_stored_in_the_order_they_were_sent() {
    let (database, server) = server(2).await;
    for (turn, subprotocol) in BOTH.into_iter().enumerate() {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        for id in 0..32u32 {
            let messages = (0..5).map(|place| to(id % 2, format!("{turn}-{}", id * 5 + place))).collect();
            let publish = Publish {
                id: u64::from(id),
                topic: "orders".into(),
                producer_id: None,
                wait_ms: None,
                messages,
            };
            socket.send(ClientFrame::Publish(publish)).await;
        }
        let mut offsets: BTreeMap<u64, i64> = BTreeMap::new();
        while offsets.len() < 32 {
            match socket.frame().await {
                BrokerFrame::Published(Published { id, units }) => {
                    assert_eq!(units.len(), 1);
                    assert!(offsets.insert(id, units[0].first_offset.unwrap()).is_none(), "{id} twice");
                }
                frame => panic!("{frame:?}"),
            }
        }
        // What was answered is committed.
        let stored = database.number("SELECT count(*) FROM laneway.message").await;
        assert_eq!(stored, (turn as i64 + 1) * 160);
        let base = turn as i64 * 80;
        for (id, offset) in offsets {
            assert_eq!(offset, base + (id as i64 / 2) * 5, "publish {id}");
        }
        let mut reader = Socket::connect(&server.address, other(subprotocol)).await;
        let found = received(&mut reader, &format!("reader-{turn}"), (turn + 1) * 160).await;
        for (partition, texts) in found {
            let expected = (0..32u32).filter(|id| id % 2 == partition).flat_map(|id| id * 5..id * 5 + 5);
            let expected: Vec<String> = expected.map(|number| format!("{turn}-{number}")).collect();
            assert_eq!(texts[texts.len() - 80..], expected);
        }
        reader.close().await;
    }
}
