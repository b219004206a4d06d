//! Encrypted topics on their less travelled paths: parked keys, what has expired, steps, brokers that have not heard of it, keys that
//! were closed under what is in doubt.

use std::time::Instant;

use laneway::limits::APPEND_PATIENCE;
use laneway_client::ErrorCode;
use laneway_client::topic::{AlterTopic, CreateTopic, Encryption};
use laneway_client::wire::{
    BrokerFrame, ClientFrame, NewMessage, OnExpiry, Publish, StepPublish, Subprotocol, Subscribe, Transact,
    WantedSettings,
};
use uuid::Uuid;

use crate::encryption::{SECRET, admin, make_encrypted, serve, serve_with, tables_with};
use crate::harness::socket::{Socket, ack, offsets, payloads, subscribe};
use crate::harness::{Server, TestDatabase, wait};
use crate::keys::{keyed, parked, parking};
use crate::to_partition;

async fn join(server: &Server, group: &str, settings: WantedSettings) -> Socket {
    let mut consumer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let wish = Subscribe { settings: Some(settings), ..subscribe(group, "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    consumer
}

/// Publishes secrets, each with the key that is named.
async fn publish_keyed(server: &Server, keys: &[&str]) {
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let texts: Vec<String> =
        keys.iter().enumerate().map(|(number, key)| format!("{key}:{SECRET} {number}")).collect();
    producer.publish("orders", keyed(texts.iter().map(String::as_str))).await;
    producer.close().await;
}

/// Publishes, and says what was refused.
async fn attempt(socket: &mut Socket, topic: &str, message: NewMessage) -> Result<(), ErrorCode> {
    let id = socket.id();
    let publish =
        Publish { id, topic: topic.into(), producer_id: None, messages: vec![message], wait_ms: None };
    socket.send(ClientFrame::Publish(publish)).await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => {
                Some(published.units[0].error.as_ref().map_or(Ok(()), |fault| Err(fault.code)))
            }
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err(error.code)),
            _ => None,
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_parked_and_what_has_expired_is_sealed_anew_and_comes_back_open() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &["a"]).await;
    make_encrypted(&server, "orders", 1).await;
    let admin = admin(&server);
    publish_keyed(&server, &["a", "b", "a"]).await;
    let mut consumer = join(&server, "billing", parking(1)).await;
    let batch = consumer.batch().await;
    consumer.nack(&batch, 0, "it is poison").await.unwrap();
    consumer.ack(ack(&batch, None, &[1])).await.unwrap();
    publish_keyed(&server, &["a"]).await;
    wait::until("everything of the key to be parked", async || {
        parked(&admin).await.first().is_some_and(|key| key.messages == 3)
    })
    .await;
    let first = parked(&admin).await.remove(0).first.unwrap();
    assert!(first.message.payload.get().contains(SECRET) && first.error.is_none(), "{first:?}");
    let copies = "SELECT count(*) FROM laneway.parked_message c JOIN laneway.message m USING (partition_id, \"offset\")
        WHERE c.data_key_id <> m.data_key_id AND c.payload <> m.payload";
    assert_eq!(database.number(copies).await, 3, "under keys of their own");
    assert_eq!(tables_with(&database, SECRET).await, [""; 0], "parked");
    // Too old for another group.
    let raw = database.raw().await;
    let older = "SET published_at = published_at - interval '1 hour'";
    raw.batch_execute(&format!("UPDATE laneway.message {older}; UPDATE laneway.head {older}")).await.unwrap();
    let young = WantedSettings {
        max_age_ms: Some(60_000),
        on_expiry: Some(OnExpiry::DeadLetter),
        ..WantedSettings::default()
    };
    let other = join(&server, "audit", young).await;
    wait::until("what is too old to be dead", async || {
        database.number("SELECT count(*) FROM laneway.dead_letter WHERE data_key_id IS NOT NULL").await == 4
    })
    .await;
    assert_eq!(tables_with(&database, SECRET).await, [""; 0], "expired");
    let dead = admin.list_dead_letters(&Default::default()).await.unwrap().dead_letters;
    assert!(dead.iter().all(|dead| dead.payload.get().contains(SECRET)), "{dead:?}");
    admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
    let batch = consumer.batch().await;
    assert_eq!(payloads(&batch), [0, 2, 0].map(|number| format!("a:{SECRET} {number}")));
    consumer.ack(ack(&batch, None, &offsets(&batch))).await.unwrap();
    wait::until("the key to go on", async || parked(&admin).await.is_empty()).await;
    consumer.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_copy_that_does_not_open_stops_its_key_and_no_other() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &["a"]).await;
    make_encrypted(&server, "orders", 1).await;
    let admin = admin(&server);
    publish_keyed(&server, &["a", "a", "a", "b"]).await;
    let mut consumer = join(&server, "billing", parking(1)).await;
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [0, 1, 2, 3]);
    consumer.nack(&batch, 0, "it is poison").await.unwrap();
    consumer.nack(&batch, 3, "it is poison").await.unwrap();
    wait::until("both keys to be parked", async || {
        parked(&admin).await.iter().map(|key| key.messages).sum::<u64>() == 4
    })
    .await;
    let flip = "UPDATE laneway.parked_message SET payload = set_byte(payload, 12, get_byte(payload, 12) # 1)
        WHERE \"offset\" = 1";
    let raw = database.raw().await;
    assert_eq!(raw.execute(flip, &[]).await.unwrap(), 1);
    for key in parked(&admin).await {
        admin.replay_parked(key.id).await.unwrap();
    }
    // What stands before it comes, and so does the other key.
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let batch = consumer.batch().await;
        seen.extend(offsets(&batch));
        consumer.ack(ack(&batch, None, &offsets(&batch))).await.unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 3]);
    let told = consumer.error().await;
    assert_eq!((told.code, told.partition), (ErrorCode::NotAuthentic, Some(0)), "{told:?}");
    assert!(told.subscription.is_some() && told.detail.contains("offset 1"), "{told:?}");
    server.logged("a parked key stops at a copy that does not open").await;
    publish_keyed(&server, &["b"]).await;
    assert_eq!(offsets(&consumer.batch().await), [4], "the other key goes on");
    wait::until("only what is done to be gone", async || {
        let left = parked(&admin).await;
        left.len() == 1 && left[0].messages == 2
    })
    .await;
    let first = parked(&admin).await.remove(0).first.unwrap();
    assert_eq!((first.error, first.message.payload.get()), (Some(ErrorCode::NotAuthentic), "null"));
    assert_eq!(raw.execute(flip, &[]).await.unwrap(), 1);
    assert_eq!(offsets(&consumer.batch().await), [1, 2], "it is looked at again");
    consumer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_as_it_is_once_encryption_is_answered_even_by_a_broker_that_has_not_heard_of_it() {
    let database = TestDatabase::new().await;
    let here = serve(&database, &["a"]).await;
    // It hears no hints, and believes what it knows of a topic for seconds.
    let there = serve_with(&database, &["a"], &["--no-prepared-statements"]).await;
    let topics = ["appended", "scheduled", "stepped", "orders"];
    for topic in topics {
        admin(&here).create_topic(&CreateTopic::new(topic, 1)).await.unwrap();
    }
    let mut socket = Socket::connect(&there.address, Subprotocol::MessagePack).await;
    socket.publish("orders", vec![to_partition(0, "work")]).await;
    socket.subscribe("billing", "orders").await;
    let work = socket.batch().await;
    let mut refused = Vec::new();
    for topic in &topics[..3] {
        socket.publish(topic, vec![to_partition(0, "plain")]).await;
        let sealed = AlterTopic { encryption: Some(Encryption::Aes256Gcm), ..AlterTopic::default() };
        admin(&here).alter_topic(topic, &sealed).await.unwrap();
        let mut result = Err(ErrorCode::Unavailable);
        while result.is_err() {
            result = match *topic {
                "stepped" => {
                    let publishes =
                        vec![StepPublish { topic: (*topic).into(), messages: vec![to_partition(0, SECRET)] }];
                    let acks = vec![ack(&work, Some(1), &[])];
                    let step = Transact { id: 0, step_id: Uuid::new_v4(), acks, publishes };
                    socket.transact(step).await.map(drop).map_err(|error| error.code)
                }
                "scheduled" => {
                    let later = NewMessage { delay_ms: Some(600_000), ..to_partition(0, SECRET) };
                    attempt(&mut socket, topic, later).await
                }
                _ => attempt(&mut socket, topic, to_partition(0, SECRET)).await,
            };
            refused.extend(result.err());
        }
    }
    assert!(!refused.is_empty() && refused.len() <= 3, "each once: {refused:?}");
    assert!(refused.iter().all(|code| *code == ErrorCode::Unavailable), "{refused:?}");
    assert_eq!(tables_with(&database, SECRET).await, [""; 0]);
    let sealed = "SELECT count(data_key_id) FROM laneway.";
    assert_eq!(database.number(&format!("{sealed}message")).await, 2);
    assert_eq!(database.number(&format!("{sealed}schedule")).await, 1);
    // A partition that comes later demands the same, and turned off it demands nothing.
    let wider = AlterTopic { partitions: Some(2), ..AlterTopic::default() };
    admin(&here).alter_topic("appended", &wider).await.unwrap();
    let demanding = "SELECT count(encrypted_at) FROM laneway.partition";
    assert_eq!(database.number(demanding).await, 4);
    let plain = AlterTopic { encryption: Some(Encryption::None), ..AlterTopic::default() };
    admin(&here).alter_topic("appended", &plain).await.unwrap();
    assert_eq!(database.number(demanding).await, 2);
    socket.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_in_doubt_whose_key_was_closed_holds_up_nobody() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &["a"]).await;
    make_encrypted(&server, "orders", 1).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    socket.publish("orders", vec![to_partition(0, "before")]).await;
    let (mut holder, raw) = (database.raw().await, database.raw().await);
    let hold = holder.transaction().await.unwrap();
    hold.execute("SELECT FROM laneway.partition FOR NO KEY UPDATE", &[]).await.unwrap();
    let id = socket.id();
    let message = NewMessage { sequence: Some(0), ..to_partition(0, "in doubt") };
    let numbered = Publish {
        id,
        topic: "orders".into(),
        producer_id: Some(Uuid::new_v4()),
        messages: vec![message],
        wait_ms: None,
    };
    socket.send(ClientFrame::Publish(numbered)).await;
    let waiting = "FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'laneway appender' AND wait_event_type = 'Lock'";
    let count = format!("SELECT count(*) {waiting}");
    wait::until("the flush to wait", async || database.number(&count).await >= 1).await;
    raw.execute("UPDATE laneway.data_key SET closed_at = clock_timestamp()", &[]).await.unwrap();
    raw.execute(&format!("SELECT pg_terminate_backend(pid) {waiting}"), &[]).await.unwrap();
    hold.rollback().await.unwrap();
    let since = Instant::now();
    let doubtful = socket
        .wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => Some(published.units[0].clone()),
            _ => None,
        })
        .await;
    assert_eq!(doubtful.error.unwrap().code, ErrorCode::OutcomeUnknown);
    wait::until("others to be stored", async || {
        attempt(&mut socket, "orders", to_partition(0, "after")).await.is_ok()
    })
    .await;
    assert!(since.elapsed() < APPEND_PATIENCE, "nobody has waited for it: {:?}", since.elapsed());
    assert_eq!(database.number("SELECT count(*) FROM laneway.message").await, 2);
    socket.close().await;
}
