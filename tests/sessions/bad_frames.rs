//! Frames that are refused: each with a typed error, after which the connection goes on, and nobody else notices.

use laneway_client::wire::{
    Batch, BrokerFrame, ClientFrame, ErrorFrame, Nack, NewMessage, Publish, Start, Subprotocol,
};
use laneway_client::{Class, ErrorCode as E};
use serde_json::{Value, json};

use crate::harness::socket::{
    BOTH, Seen, Socket, ack, make_topic, nack, offsets, quick_retries, subscribe, text,
};
use crate::harness::{Server, TestDatabase, wait};
use crate::pack;
use crate::witness::Witness;

async fn server() -> (TestDatabase, Server) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", 2).await;
    (database, server)
}

/// A frame that is wrong, and what is said about it.
struct Case {
    frame: Value,
    code: E,
    /// The member at fault.
    field: Option<&'static str>,
    /// Whether the id of the frame can be told.
    has_id: bool,
}

fn case(frame: Value, code: E, field: impl Into<Option<&'static str>>) -> Case {
    let (field, has_id) = (field.into(), frame.get("id").is_some());
    Case { frame, code, field, has_id }
}

async fn refused(socket: &mut Socket, case: &Case) -> ErrorFrame {
    let frame = pack::frame(socket.subprotocol, &case.frame);
    socket.send_raw(frame).await;
    let error = socket.error().await;
    let what = format!("{} as {}: {error:?}", case.frame, socket.subprotocol.name());
    assert_eq!((error.code, error.class), (case.code, Class::Refused), "{what}");
    if case.field.is_some() {
        assert_eq!(error.field.as_deref(), case.field, "{what}");
    }
    assert_eq!(error.id, case.frame["id"].as_u64().filter(|_| case.has_id), "{what}");
    assert!(!error.detail.is_empty(), "{what}");
    error
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

/// Wrong whatever the session has done so far.
fn always_wrong() -> Vec<Case> {
    let credit = json!({"messages": 1, "bytes": 1});
    let subscribe = |member: &str, value: Value| {
        let mut frame =
            json!({"type": "subscribe", "id": 7, "group": "g", "topic": "orders", "credit": credit});
        frame[member] = value;
        frame
    };
    let tail = |member: &str, value: Value| {
        let mut frame = json!({"type": "tail", "id": 7, "topic": "orders", "credit": credit});
        frame[member] = value;
        frame
    };
    let lane = |kind: &str, rest: Value| {
        let mut frame =
            json!({"type": kind, "id": 7, "subscription": 77, "partition": 0, "epoch": 1, "round": 1});
        rest.as_object().unwrap().iter().for_each(|(name, value)| frame[name] = value.clone());
        frame
    };
    let long = "x".repeat(250);
    let mut cases = vec![
        // Not a frame at all.
        case(json!({"type": "dance", "id": 7}), E::UnknownType, "type"),
        case(json!({"type": "welcome", "id": 7}), E::UnknownType, "type"),
        case(json!({"id": 7}), E::Malformed, "type"),
        case(json!([1, 2, 3]), E::Malformed, None),
        case(json!("heartbeat"), E::Malformed, None),
        case(json!(null), E::Malformed, None),
        case(json!({"type": 5, "id": 7}), E::Malformed, "type"),
        case(json!({"type": "heartbeat", "id": 7}), E::Malformed, None),
        // A member that is missing, unknown, or of another type.
        case(json!({"type": "unsubscribe", "id": 7}), E::Malformed, "subscription"),
        case(json!({"type": "unsubscribe", "subscription": 1}), E::Malformed, "id"),
        case(json!({"type": "unsubscribe", "id": 7, "subscription": "one"}), E::Malformed, "subscription"),
        case(json!({"type": "unsubscribe", "id": 7, "subscription": -1}), E::Malformed, "subscription"),
        case(
            json!({"type": "unsubscribe", "id": 7, "subscription": 1u64 << 32}),
            E::Malformed,
            "subscription",
        ),
        case(json!({"type": "unsubscribe", "id": 7, "subscription": 1, "colour": 1}), E::Malformed, None),
        case(subscribe("credit", json!({"messages": 1})), E::Malformed, "credit.bytes"),
        case(subscribe("credit", json!({"messages": 1, "bytes": "all"})), E::Malformed, "credit"),
        case(subscribe("start", json!("middle")), E::Malformed, "start"),
        case(subscribe("start", json!({"at": "noon"})), E::Malformed, "start"),
        case(subscribe("start", json!({"offset": -1})), E::Malformed, "start.offset"),
        case(subscribe("group", json!(null)), E::Malformed, "group"),
        case(json!({"type": "publish", "id": 7, "topic": "orders"}), E::Malformed, "messages"),
        case(json!({"type": "publish", "id": 7, "topic": "orders", "messages": 5}), E::Malformed, "messages"),
        case(lane("ack", json!({})), E::Malformed, "next"),
        case(lane("ack", json!({"next": -1})), E::Malformed, "next"),
        case(lane("ack", json!({"ranges": [[5, 5]]})), E::Malformed, "ranges"),
        case(lane("nack", json!({"offset": -1})), E::Malformed, "offset"),
        // Names.
        case(
            json!({"type": "publish", "id": 7, "topic": "nowhere", "messages": []}),
            E::InvalidMessage,
            "messages",
        ),
        case(subscribe("topic", json!("nowhere")), E::UnknownTopic, "topic"),
        case(tail("topic", json!("nowhere")), E::UnknownTopic, "topic"),
        case(subscribe("topic", json!("no where")), E::InvalidTopicName, "topic"),
        case(tail("topic", json!("..")), E::InvalidTopicName, "topic"),
        // Bounds.
        case(subscribe("credit", json!({"messages": 0, "bytes": 1})), E::InvalidCredit, "credit"),
        case(subscribe("credit", json!({"messages": 1, "bytes": 0})), E::InvalidCredit, "credit"),
        case(subscribe("credit", json!({"messages": u32::MAX, "bytes": 1})), E::InvalidCredit, "credit"),
        case(tail("credit", json!({"messages": 1, "bytes": u64::MAX})), E::InvalidCredit, "credit"),
        case(subscribe("batch", json!({"max_messages": 0})), E::InvalidSetting, "batch.max_messages"),
        case(subscribe("batch", json!({"max_bytes": 1u64 << 40})), E::InvalidSetting, "batch.max_bytes"),
        case(subscribe("batch", json!({"min_messages": 501})), E::InvalidSetting, "batch.min_messages"),
        case(subscribe("settings", json!({"max_attempts": 0})), E::InvalidSetting, "settings.max_attempts"),
        case(
            subscribe("settings", json!({"ack_deadline_ms": 1})),
            E::InvalidSetting,
            "settings.ack_deadline_ms",
        ),
        case(subscribe("settings", json!({"on_failure": "shrug"})), E::Malformed, "settings"),
        case(tail("partitions", json!([])), E::Malformed, "partitions"),
        case(tail("partitions", json!([1, 1])), E::Malformed, "partitions[1]"),
        case(tail("partitions", json!([0, 2])), E::PartitionOutOfRange, "partitions[1]"),
        // Subscriptions that do not exist.
        case(lane("ack", json!({"next": 1})), E::UnknownSubscription, "subscription"),
        case(lane("nack", json!({"offset": 1})), E::UnknownSubscription, "subscription"),
        case(lane("progress", json!({})), E::UnknownSubscription, "subscription"),
        case(
            json!({"type": "unsubscribe", "id": 7, "subscription": 77}),
            E::UnknownSubscription,
            "subscription",
        ),
        case(json!({"type": "untail", "id": 7, "subscription": 77}), E::UnknownSubscription, "subscription"),
        case(
            json!({"type": "credit", "subscription": 77, "messages": 1, "bytes": 1}),
            E::UnknownSubscription,
            "subscription",
        ),
        // Too deep: refused before anything else of it is looked at.
        Case {
            frame: json!({"type": "tail", "id": 7, "topic": nested(40)}),
            code: E::TooDeep,
            field: None,
            has_id: false,
        },
    ];
    for name in ["", ".", "..", "a b", "ü", "a/b", &long] {
        cases.push(case(subscribe("group", json!(name)), E::InvalidGroupName, "group"));
    }
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_that_is_wrong_is_answered_with_a_typed_error_and_the_connection_goes_on() {
    let (database, server) = server().await;
    for subprotocol in BOTH {
        let mut witness = Witness::new(&server.address, subprotocol).await;
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        for wrong in always_wrong() {
            refused(&mut socket, &wrong).await;
        }
        // A group that nobody was let into was not made either.
        let published = socket.publish("orders", vec![text("still here")]).await;
        assert!(published.units[0].error.is_none());
        witness.lives().await;
    }
    assert_eq!(
        database.number("SELECT count(*) FROM laneway.consumer_group WHERE name <> 'witness'").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_frame_are_refused_and_the_hundredth_in_a_row_ends_the_connection() {
    let (_database, server) = server().await;
    for subprotocol in BOTH {
        let mut witness = Witness::new(&server.address, subprotocol).await;
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let nonsense: [&[u8]; 5] = match subprotocol {
            Subprotocol::Json => [b"", b"{", b"}", b"{\"type\":\"ack\"", b"{\"type\":\"untail\",\"id\":1} x"],
            Subprotocol::MessagePack => [b"", b"\xc1", b"\x81", b"\xdf\xff\xff\xff\xff", b"\x80\x80"],
        };
        for round in 0..2 {
            for number in 0..99 {
                socket.send_raw(nonsense[number % nonsense.len()].to_vec()).await;
                let error = socket.error().await;
                assert_eq!((error.code, error.class), (E::Malformed, Class::Refused), "{error:?}");
            }
            if round == 0 {
                socket.send(ClientFrame::Heartbeat).await; // one that can be read: it speaks our language after all
            }
        }
        socket.send_raw(nonsense[0].to_vec()).await;
        assert_eq!(socket.error().await.code, E::Malformed);
        assert!(matches!(socket.seen().await, Seen::Closed(Some(_))));
        witness.lives().await;
    }
}

async fn wrong_ack(socket: &mut Socket, batch: &Batch, change: impl FnOnce(&mut Batch), next: i64) -> E {
    let mut batch = batch.clone();
    change(&mut batch);
    let error = socket.ack_below(&batch, next).await.unwrap_err();
    assert_eq!(error.class, Class::Refused);
    assert_eq!((error.subscription, error.partition), (Some(batch.subscription), Some(batch.partition)));
    assert!(error.field.is_some(), "{error:?}");
    error.code
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_of_what_is_not_held_was_not_sent_or_is_void_count_nothing() {
    let (_database, server) = server().await;
    for subprotocol in BOTH {
        let group = format!("group-{}", subprotocol.name());
        let mut witness = Witness::new(&server.address, subprotocol).await;
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let mut wanted = subscribe(&group, "orders");
        wanted.settings = Some(quick_retries(5));
        wanted.start = Some(Start::Latest);
        socket.subscribe_with(wanted).await.unwrap();
        let granted = [socket.granted().await, socket.granted().await];
        let first = granted.iter().find(|lane| lane.partition == 0).unwrap().committed_offset;
        let messages = (0..10).map(|number| NewMessage { partition: Some(0), ..text(number.to_string()) });
        socket.publish("orders", messages.collect()).await;
        let batch = socket.batch().await;
        assert_eq!(offsets(&batch), (first..first + 10).collect::<Vec<_>>());

        assert_eq!(
            wrong_ack(&mut socket, &batch, |batch| batch.partition = 99, first + 1).await,
            E::LeaseLost
        );
        assert_eq!(wrong_ack(&mut socket, &batch, |batch| batch.epoch += 1, first + 1).await, E::LeaseLost);
        assert_eq!(wrong_ack(&mut socket, &batch, |batch| batch.epoch -= 1, first + 1).await, E::LeaseLost);
        assert_eq!(wrong_ack(&mut socket, &batch, |_| {}, first + 11).await, E::BeyondSent);
        assert_eq!(wrong_ack(&mut socket, &batch, |_| {}, i64::MAX).await, E::BeyondSent);
        let beyond = ack(&batch, Some(first + 1), &[first + 3, first + 10]);
        assert_eq!(socket.ack(beyond).await.unwrap_err().code, E::BeyondSent);
        assert_eq!(socket.nack(&batch, first + 10, "never sent").await.unwrap_err().code, E::BeyondSent);
        // Nothing of all that has counted.
        assert_eq!(socket.ack(ack(&batch, None, &[first + 9])).await, Ok(first));
        assert_eq!(socket.nack(&batch, first + 9, "done").await.unwrap_err().code, E::Malformed);

        // A nack ends the round: below it acks of the old one count, from it on they do not.
        socket.nack(&batch, first + 4, "not now").await.unwrap();
        let again = socket.batch().await;
        assert_eq!((again.epoch, again.round), (batch.epoch, batch.round + 1));
        assert_eq!(offsets(&again), (first..first + 9).collect::<Vec<_>>());
        assert_eq!(again.attempts, [(first + 4, 1)]);
        let stale = socket.ack_below(&batch, first + 6).await.unwrap_err();
        assert_eq!((stale.code, stale.class), (E::StaleRound, Class::Refused));
        let stale = socket.ack(ack(&batch, None, &[first + 5])).await.unwrap_err();
        assert_eq!(stale.code, E::StaleRound);
        assert_eq!(socket.nack(&batch, first + 5, "void").await.unwrap_err().code, E::StaleRound);
        assert_eq!(socket.ack_below(&batch, first + 1).await, Ok(first + 4), "what lies below 4 has counted");
        assert_eq!(wrong_ack(&mut socket, &again, |batch| batch.round += 1, first + 5).await, E::StaleRound);
        assert_eq!(socket.ack_below(&again, first + 9).await, Ok(first + 10));
        witness.lives().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credit_subscriptions_and_groups_that_do_not_fit_are_refused_and_change_nothing() {
    let (_database, server) = server().await;
    for subprotocol in BOTH {
        let group = format!("group-{}", subprotocol.name());
        let mut witness = Witness::new(&server.address, subprotocol).await;
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let mut wanted = subscribe(&group, "orders");
        wanted.settings = Some(quick_retries(3));
        wanted.start = Some(Start::Latest);
        wanted.credit.messages = 2;
        let subscribed = socket.subscribe_with(wanted.clone()).await.unwrap();
        assert_eq!((subscribed.partitions, subscribed.settings.max_attempts), (2, 3));
        let number = subscribed.subscription;

        let error = socket.subscribe_with(wanted.clone()).await.unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (E::AlreadySubscribed, Some("group")));
        for (messages, bytes) in [(0, 0), (u32::MAX, 1), (1, u64::MAX)] {
            socket.credit(number, messages, bytes).await;
            let error = socket.error().await;
            assert_eq!((error.code, error.class), (E::InvalidCredit, Class::Refused));
            assert_eq!((error.id, error.subscription), (None, Some(number)));
        }
        // Another session that wants other settings is not let in; one that agrees, or does not say, is.
        let mut other = Socket::connect(&server.address, subprotocol).await;
        wanted.settings = Some(quick_retries(4));
        let error = other.subscribe_with(wanted.clone()).await.unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (E::GroupMismatch, Some("settings.max_attempts")));
        wanted.settings = None;
        let agreed = other.subscribe_with(wanted).await.unwrap();
        assert_eq!(agreed.settings, subscribed.settings);
        other.close().await;

        // The credit is still the two messages of the beginning.
        let messages = (0..5).map(|number| NewMessage { partition: Some(1), ..text(number.to_string()) });
        let mut lanes = 0;
        while lanes < 2 {
            // The other session may have had one of them for a moment.
            match socket.frame().await {
                BrokerFrame::LaneGranted(_) => lanes += 1,
                BrokerFrame::LaneRevoked(_) => lanes -= 1,
                BrokerFrame::LaneDraining(_) => {}
                other => panic!("{other:?}"),
            }
        }
        socket.publish("orders", messages.collect()).await;
        let batch = socket.batches(2).await.pop().unwrap();
        socket.credit(number, 1, 1).await;
        let more = socket.batch().await;
        assert_eq!(offsets(&more).len(), 1, "one more, as asked for");
        assert_eq!(offsets(&more)[0], offsets(&batch).last().unwrap() + 1);
        witness.lives().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_is_no_group_and_a_group_is_no_tail() {
    let (_database, server) = server().await;
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let group = socket.subscribe(&format!("g-{}", subprotocol.name()), "orders").await.subscription;
        socket
            .send_raw(pack::frame(
                subprotocol,
                &json!({"type": "tail", "id": 1, "topic": "orders", "start": "earliest", "credit": {"messages": 9, "bytes": 99}}),
            ))
            .await;
        let tail = socket
            .wait_for(|frame| match frame {
                BrokerFrame::Tailing(tailing) => Some(tailing.subscription),
                _ => None,
            })
            .await;
        for (kind, number) in [("untail", group), ("unsubscribe", tail)] {
            let wrong = case(
                json!({"type": kind, "id": 7, "subscription": number}),
                E::UnknownSubscription,
                "subscription",
            );
            refused(&mut socket, &wrong).await;
        }
        socket.publish("orders", vec![text("for both")]).await;
        let batch = socket
            .wait_for(|frame| match frame {
                BrokerFrame::Batch(batch) if batch.subscription == tail => Some(batch.clone()),
                _ => None,
            })
            .await;
        assert_eq!((batch.epoch, batch.round), (0, 0));
        let error = socket.ack_below(&batch, offsets(&batch)[0] + 1).await.unwrap_err();
        assert_eq!((error.code, error.class), (E::LeaseLost, Class::Refused));
        let id = socket.id();
        let refusal = nack(&batch, offsets(&batch)[0], "no");
        socket.send(ClientFrame::Nack(Nack { id: Some(id), ..refusal })).await;
        assert_eq!(socket.confirmed(id).await.unwrap_err().code, E::LeaseLost);
        socket.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_beyond_those_in_flight_are_refused_and_the_others_are_stored() {
    let (database, server) = server().await;
    let mut stored = 0;
    for subprotocol in BOTH {
        let (mut socket, welcome) =
            Socket::connect_with(&server.address, subprotocol, crate::harness::socket::hello()).await;
        let most = u64::from(welcome.limits.publishes_in_flight_max);
        socket.publish("orders", vec![text("the table is there")]).await;
        // Nothing can be written for a while.
        let mut client = database.raw().await;
        let hold = client.transaction().await.unwrap();
        hold.execute("SELECT FROM laneway.partition FOR NO KEY UPDATE", &[]).await.unwrap();
        for id in 0..most + 3 {
            let messages = vec![text(format!("{id}"))];
            let publish = Publish { id, topic: "orders".into(), producer_id: None, wait_ms: None, messages };
            socket.send(ClientFrame::Publish(publish)).await;
        }
        for id in most..most + 3 {
            let error = socket.error().await;
            assert_eq!((error.code, error.class), (E::TooManyPublishes, Class::Retry));
            assert_eq!(error.id, Some(id));
        }
        hold.rollback().await.unwrap();
        let mut answered = std::collections::BTreeSet::new();
        while answered.len() < most as usize {
            match socket.frame().await {
                BrokerFrame::Published(published) => {
                    assert!(published.units.iter().all(|unit| unit.error.is_none()), "{published:?}");
                    assert!(answered.insert(published.id));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(answered, (0..most).collect());
        socket.publish("orders", vec![text("there is room again")]).await;
        stored += most as i64 + 2;
        wait::until("exactly those to be stored", async || {
            database.number("SELECT count(*) FROM laneway.message").await == stored
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_breaks_a_rule_is_refused_as_a_whole_with_the_message_at_fault() {
    let (database, server) = server().await;
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let good = || NewMessage { partition: Some(0), ..text("good") };
        let long = || "x".repeat(2_000);
        let cases: Vec<(NewMessage, E, &str)> = vec![
            (text("x".repeat((1 << 20) + 1)), E::PayloadTooLarge, "payload"),
            (NewMessage { key: Some(long().into()), ..good() }, E::KeyTooLarge, "key"),
            (
                NewMessage { headers: [("h".into(), long().repeat(5))].into(), ..good() },
                E::HeadersTooLarge,
                "headers",
            ),
            (
                NewMessage { transaction_id: Some(long()), ..good() },
                E::TransactionIdTooLong,
                "transaction_id",
            ),
            (NewMessage { content_type: Some(String::new()), ..good() }, E::InvalidMessage, "content_type"),
            (NewMessage { partition: Some(2), ..good() }, E::PartitionOutOfRange, "partition"),
            (NewMessage { sequence: Some(0), ..good() }, E::InvalidMessage, "sequence"),
        ];
        for (wrong, code, field) in cases {
            let id = socket.id();
            let messages = vec![good(), wrong, good()];
            socket
                .send(ClientFrame::Publish(Publish {
                    id,
                    topic: "orders".into(),
                    producer_id: None,
                    wait_ms: None,
                    messages,
                }))
                .await;
            let error = socket.error().await;
            assert_eq!((error.id, error.code, error.class), (Some(id), code, Class::Refused), "{error:?}");
            assert_eq!(error.field, Some(format!("messages[1].{field}")), "{error:?}");
        }
        for topic in ["nowhere", "no where"] {
            let id = socket.id();
            let publish =
                Publish { id, topic: topic.into(), producer_id: None, wait_ms: None, messages: vec![good()] };
            socket.send(ClientFrame::Publish(publish)).await;
            let error = socket.error().await;
            assert!(matches!(error.code, E::UnknownTopic | E::InvalidTopicName), "{error:?}");
            assert_eq!((error.id, error.field.as_deref()), (Some(id), Some("topic")));
        }
        socket.close().await;
    }
    assert_eq!(database.number("SELECT count(*) FROM laneway.message").await, 0);
}
