//! Both encodings of every frame, and what they refuse.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::message::Cause;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from),
        any::<String>().prop_map(Bytes::from),
        Just(Bytes::from_static(br#"{"a": [1, 2.50, {"b":"\u00e9"}]}"#)),
        Just(Bytes::from("[".repeat(40) + &"]".repeat(40))),
    ]
}

fn content_type() -> impl Strategy<Value = Option<String>> {
    prop_oneof![Just(None), Just(Some("application/json".to_owned())), any::<Option<String>>()]
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn headers() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(any::<String>(), any::<String>(), 0..4)
}

prop_compose! {
    fn cause()(topic in any::<String>(), partition in any::<u32>(), offset in any::<i64>()) -> Cause {
        Cause { topic, partition, offset }
    }
}

prop_compose! {
    fn new_message()(
        payload in bytes(), key in prop::option::of(bytes()), partition in any::<Option<u32>>(),
        trace_id in prop::option::of(uuid()), transaction_id in any::<Option<String>>(), headers in headers(),
        content_type in content_type(), sequence in any::<Option<i64>>(), cause in prop::option::of(cause()),
        links in prop::collection::vec(uuid(), 0..3), times in any::<(Option<String>, Option<u64>, Option<u64>)>(),
    ) -> NewMessage {
        let (deliver_at, delay_ms, ttl_ms) = times;
        NewMessage {
            payload, key, partition, trace_id, cause, links, transaction_id, headers, content_type, sequence, deliver_at,
            delay_ms, ttl_ms,
        }
    }
}

prop_compose! {
    // JSON writes moments of the calendar: years -9999 to 9999.
    fn record()(
        offset in any::<i64>(), published_at_us in -377_000_000_000_000_000_i64..253_000_000_000_000_000,
        trace_id in uuid(), key in prop::option::of(bytes()), transaction_id in any::<Option<String>>(),
        headers in prop::option::of(headers()), content_type in content_type(), payload in bytes(),
        cause in prop::option::of(cause()),
    ) -> Record {
        Record { offset, published_at_us, trace_id, cause, key, transaction_id, headers, content_type, payload }
    }
}

proptest! {
    #[test]
    fn what_is_published_arrives_bit_for_bit_in_both_encodings(
        id in any::<u64>(), topic in any::<String>(), producer_id in prop::option::of(uuid()),
        messages in prop::collection::vec(new_message(), 0..5),
    ) {
        let frame = ClientFrame::Publish(Publish { id, topic, producer_id, wait_ms: None, messages });
        for subprotocol in Subprotocol::ALL {
            let encoded = Bytes::from(subprotocol.encode_client(&frame));
            prop_assert_eq!(subprotocol.decode_client(&encoded), Ok(frame.clone()));
        }
    }

    #[test]
    fn what_is_delivered_arrives_bit_for_bit_in_both_encodings(
        subscription in any::<u32>(), partition in any::<u32>(), epoch in any::<i64>(), round in any::<u32>(),
        attempts in prop::collection::vec(any::<(i64, u32)>(), 0..3),
        messages in prop::collection::vec(record(), 0..5),
    ) {
        let frame = BrokerFrame::Batch(Batch { subscription, partition, epoch, round, attempts, messages });
        for subprotocol in Subprotocol::ALL {
            let encoded = Bytes::from(subprotocol.encode_broker(&frame));
            prop_assert_eq!(subprotocol.decode_broker(&encoded), Ok(frame.clone()));
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(frame in prop::collection::vec(any::<u8>(), 0..300)) {
        let frame = Bytes::from(frame);
        for subprotocol in Subprotocol::ALL {
            let _ = subprotocol.decode_client(&frame);
            let _ = subprotocol.decode_broker(&frame);
        }
    }

    #[test]
    fn an_ack_and_a_nack_are_the_same_in_both_encodings(
        id in any::<Option<u64>>(), subscription in any::<u32>(), epoch in any::<i64>(), round in any::<u32>(),
        next in 0..i64::MAX, ranges in prop::collection::vec((0..1_000_i64, 1..1_000_i64), 0..4),
        reason in any::<Option<String>>(), delay_ms in any::<Option<u64>>(),
    ) {
        let ranges = ranges.into_iter().map(|(from, length)| (from, from + length).into()).collect();
        let ack = Ack { id, subscription, partition: 1, epoch, round, next: Some(next), ranges };
        let nack = Nack { id, subscription, partition: 1, epoch, round, offset: next, reason, delay_ms, until: None };
        for frame in [ClientFrame::Ack(ack), ClientFrame::Nack(nack)] {
            for subprotocol in Subprotocol::ALL {
                let encoded = Bytes::from(subprotocol.encode_client(&frame));
                prop_assert_eq!(subprotocol.decode_client(&encoded), Ok(frame.clone()));
            }
        }
    }
}

fn json(frame: &str) -> Result<ClientFrame, FrameError> {
    Subprotocol::Json.decode_client(&Bytes::copy_from_slice(frame.as_bytes()))
}

fn msgpack(value: &serde_json::Value) -> Result<ClientFrame, FrameError> {
    Subprotocol::MessagePack.decode_client(&rmp_serde::to_vec_named(value).unwrap().into())
}

fn refused(frame: &str) -> (ErrorCode, Option<String>, Option<u64>) {
    let FrameError { code, field, id, .. } = json(frame).unwrap_err();
    (code, field, id)
}

#[test]
fn a_refusal_names_the_code_the_field_and_the_id() {
    use ErrorCode::{Malformed, TooDeep, UnknownType};
    for (frame, code, field, id) in [
        ("", Malformed, None, None),
        ("7", Malformed, None, None),
        ("{}", Malformed, Some("type"), None),
        (r#"{"id":7}"#, Malformed, Some("type"), Some(7)),
        (r#"{"type":7,"id":7}"#, Malformed, Some("type"), Some(7)),
        (r#"{"type":"welcome","id":7}"#, UnknownType, Some("type"), Some(7)),
        (r#"{"type":"heartbeat","type":"heartbeat"}"#, Malformed, None, None),
        (r#"{"type":"heartbeat","id":7}"#, Malformed, Some("id"), Some(7)),
        (r#"["heartbeat"]"#, Malformed, None, None),
        (r#"{"type":"hello"}"#, Malformed, Some("id"), None),
        (r#"{"type":"hello","id":-1}"#, Malformed, Some("id"), None),
        (r#"{"type":"hello","id":1,"colour":"red"}"#, Malformed, Some("colour"), Some(1)),
        (r#"{"type":"hello","id":1,"resume":{"session":"x"}}"#, Malformed, Some("resume"), Some(1)),
        (r#"{"type":"untail","id":1}"#, Malformed, Some("subscription"), Some(1)),
        (
            r#"{"type":"tail","id":1,"topic":"t","credit":{"messages":1}}"#,
            Malformed,
            Some("credit.bytes"),
            Some(1),
        ),
        (r#"{"type":"tail","id":1,"topic":"t","credit":[1,1]}"#, Malformed, Some("credit"), Some(1)),
        (
            r#"{"type":"tail","id":1,"topic":"t","credit":{"messages":1,"bytes":1},"start":{"offset":-1}}"#,
            Malformed,
            Some("start.offset"),
            Some(1),
        ),
        (
            r#"{"type":"ack","subscription":1,"partition":0,"epoch":1,"round":1}"#,
            Malformed,
            Some("next"),
            None,
        ),
        (
            r#"{"type":"ack","id":3,"subscription":1,"partition":0,"epoch":1,"round":1,"ranges":[[2,2]]}"#,
            Malformed,
            Some("ranges"),
            Some(3),
        ),
        (
            r#"{"type":"nack","subscription":1,"partition":0,"epoch":1,"round":1,"offset":-1}"#,
            Malformed,
            Some("offset"),
            None,
        ),
        (
            r#"{"type":"publish","id":1,"topic":"t","messages":[{"payload":"a"},{"payload":7}]}"#,
            Malformed,
            Some("messages[1].payload"),
            Some(1),
        ),
        (
            r#"{"type":"publish","id":1,"topic":"t","messages":[{"payload":"a","trace_id":"xyz"}]}"#,
            Malformed,
            Some("messages[0].trace_id"),
            Some(1),
        ),
        (&format!("{}{}", "[".repeat(33), "]".repeat(33)), TooDeep, None, None),
    ] {
        assert_eq!(refused(frame), (code, field.map(str::to_owned), id), "{frame}");
    }
}

#[test]
fn messagepack_refuses_what_json_refuses() {
    let frame = |extra: serde_json::Value| {
        let mut frame =
            serde_json::json!({"type": "tail", "id": 1, "topic": "t", "credit": {"messages": 1, "bytes": 1}});
        frame.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        msgpack(&frame)
    };
    assert!(frame(serde_json::json!({})).is_ok());
    for (extra, field) in [
        (serde_json::json!({"colour": 1}), "colour"),
        (serde_json::json!({"start": 0}), "start"),
        (serde_json::json!({"start": {"at": "x", "offset": 1}}), "start"),
        (serde_json::json!({"start": {"offset": -1}}), "start.offset"),
        (serde_json::json!({"credit": [1, 1]}), "credit"),
        (serde_json::json!({"credit": {"messages": 1}}), "credit.bytes"),
        (serde_json::json!({"credit": {"messages": -1, "bytes": 1}}), "credit"),
        (serde_json::json!({"id": "1"}), "id"),
        (serde_json::json!({"topic": null}), "topic"),
    ] {
        let error = frame(extra.clone()).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::Malformed, Some(field)), "{extra}");
    }
    let publish = serde_json::json!({"type": "publish", "id": 9, "topic": "t", "messages": [[1, "text"]]});
    let error = msgpack(&publish).unwrap_err();
    assert_eq!((error.field.as_deref(), error.id), (Some("messages[0].version"), Some(9)));
}

#[test]
fn a_frame_ends_where_its_map_ends() {
    let mut frame = Subprotocol::MessagePack.encode_client(&ClientFrame::Heartbeat);
    assert_eq!(Subprotocol::MessagePack.decode_client(&frame.clone().into()), Ok(ClientFrame::Heartbeat));
    let twice = b"\x82\xa4type\x07\xa4type\xa9heartbeat";
    assert!(Subprotocol::MessagePack.decode_client(&Bytes::from_static(twice)).is_err());
    frame.push(0xc0);
    assert!(Subprotocol::MessagePack.decode_client(&frame.into()).is_err());
    assert!(json(r#"{"type":"heartbeat"} {}"#).is_err());
    assert!(json(" {\"type\" : \"heartbeat\"}\n").is_ok());
}

#[test]
fn depth_counts_the_payload_and_ends_at_32() {
    let publish = |levels: usize| {
        let payload = "[".repeat(levels) + &"]".repeat(levels);
        json(&format!(
            r#"{{"type":"publish","id":1,"topic":"t","messages":[{{"payload":{payload},"encoding":"json"}}]}}"#
        ))
    };
    assert!(publish(bounds::FRAME_DEPTH_MAX - 3).is_ok());
    assert_eq!(publish(bounds::FRAME_DEPTH_MAX - 2).unwrap_err().code, ErrorCode::TooDeep);
    for (arrays, code) in [(31, ErrorCode::Malformed), (32, ErrorCode::TooDeep)] {
        let frame = [vec![0x81, 0xa1, b'x'], vec![0x91; arrays], vec![0xc0]].concat();
        assert_eq!(Subprotocol::MessagePack.decode_client(&frame.into()).unwrap_err().code, code);
    }
    let frame = [vec![0x91; 1 << 20], vec![0xc0]].concat();
    assert_eq!(Subprotocol::MessagePack.decode_client(&frame.into()).unwrap_err().code, ErrorCode::TooDeep);
}

#[test]
fn a_json_payload_implies_its_content_type_and_a_trace_id_may_be_hexadecimal() {
    let frame = json(
        r#"{"messages":[{"encoding":"json","payload":{"a" :1},"trace_id":"0123456789ABCDEF0123456789abcdef"}],
            "topic":"t","id":1,"type":"publish"}"#,
    );
    let Ok(ClientFrame::Publish(publish)) = frame else { panic!("{frame:?}") };
    assert_eq!(publish.messages[0].payload, br#"{"a" :1}"#.as_slice());
    assert_eq!(publish.messages[0].content_type.as_deref(), Some("application/json"));
    assert_eq!(
        publish.messages[0].trace_id,
        Some(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef))
    );
}

#[test]
fn payloads_and_keys_of_messagepack_are_slices_of_the_frame() {
    let message = NewMessage {
        payload: Bytes::from_static(b"payload"),
        key: Some(Bytes::from_static(b"key")),
        ..NewMessage::default()
    };
    let publish =
        Publish { id: 1, topic: "t".into(), producer_id: None, wait_ms: None, messages: vec![message] };
    let frame = Bytes::from(Subprotocol::MessagePack.encode_client(&ClientFrame::Publish(publish)));
    let Ok(ClientFrame::Publish(decoded)) = Subprotocol::MessagePack.decode_client(&frame) else { panic!() };
    let within = frame.as_ptr_range();
    for slice in [&decoded.messages[0].payload, decoded.messages[0].key.as_ref().unwrap()] {
        assert!(within.contains(&slice.as_ptr()));
    }
}

#[test]
fn a_publish_beyond_the_bound_is_refused_before_it_is_read() {
    let mut claim = vec![0x82, 0xa4];
    claim.extend(b"type\xa7publish\xa8messages\xdd\xff\xff\xff\xff");
    assert_eq!(Subprotocol::MessagePack.decode_client(&claim.into()).unwrap_err().code, ErrorCode::Malformed);
    let message = NewMessage::default();
    for (count, taken) in [(bounds::PUBLISH_MESSAGES_MAX, true), (bounds::PUBLISH_MESSAGES_MAX + 1, false)] {
        let messages = vec![message.clone(); count];
        let frame = ClientFrame::Publish(Publish {
            id: 1,
            topic: "t".into(),
            producer_id: None,
            wait_ms: None,
            messages,
        });
        for subprotocol in Subprotocol::ALL {
            let decoded = subprotocol.decode_client(&subprotocol.encode_client(&frame).into());
            assert_eq!(decoded.is_ok(), taken);
            if let Err(error) = decoded {
                assert_eq!((error.code, error.field.as_deref()), (ErrorCode::TooLarge, Some("messages")));
                assert_eq!(error.id, Some(1));
            }
        }
    }
}

#[test]
fn headers_that_are_no_object_of_strings_are_left_out_of_both_encodings() {
    for headers in ["", "[]", "null", r#"{"a":1}"#, r#"{"a":"b"},"offset":1"#] {
        let record = RecordRef {
            offset: 1,
            published_at_us: 0,
            trace_id: Uuid::nil(),
            cause: None,
            key: None,
            transaction_id: None,
            headers: Some(headers),
            content_type: None,
            payload: b"",
        };
        for subprotocol in Subprotocol::ALL {
            let mut body = Vec::new();
            subprotocol.encode_record(&record, &mut body);
            let frame = batch_frame(*subprotocol, &BatchHeader::default(), 1, [body.as_slice()].into_iter());
            let Ok(BrokerFrame::Batch(batch)) = subprotocol.decode_broker(&frame.into()) else {
                panic!("{headers}")
            };
            assert_eq!(batch.messages[0].headers, None);
        }
    }
}

#[test]
fn what_is_quoted_back_is_short_and_secrets_are_not_printed() {
    let error = json(&format!(r#"{{"type":"{}"}}"#, "x".repeat(1 << 16))).unwrap_err();
    assert!(error.detail.len() < 400, "{}", error.detail.len());
    let hello = json(r#"{"type":"hello","id":1,"token":"hunter2"}"#).unwrap();
    assert!(!format!("{hello:?}").contains("hunter2"));
}

#[test]
fn a_subprotocol_is_found_by_its_name() {
    for subprotocol in Subprotocol::ALL {
        assert_eq!(Subprotocol::from_name(subprotocol.name()), Some(*subprotocol));
    }
    assert_eq!(Subprotocol::from_name("laneway.v2.json"), None);
}
