//! Encrypted topics: what is stored of them, in every table and after every way of copying; rotation; nonces after crashes.

use std::collections::HashSet;

use laneway_client::Admin;
use laneway_client::topic::{AlterTopic, CreateTopic, Encryption};
use laneway_client::wire::{NewMessage, StepPublish, Subprotocol, Subscribe, Transact};
use uuid::Uuid;

use crate::harness::process::laneway;
use crate::harness::socket::{Socket, ack, payloads, quick_retries, subscribe};
use crate::harness::{Server, TestDatabase, wait};
use crate::to_partition;

/// What no table may hold.
pub const SECRET: &str = "TOP-SECRET";

/// A ring with some keys, each made from its name.
pub fn ring(names: &[&str]) -> String {
    let entry = |name: &&str| {
        let bytes: String = name.bytes().cycle().take(31).map(|byte| format!("{byte:02x}")).collect();
        format!("{name}:{bytes}01")
    };
    names.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// A broker with a ring, or without one.
pub async fn serve(database: &TestDatabase, names: &[&str]) -> Server {
    serve_with(database, names, &[]).await
}

pub async fn serve_with(database: &TestDatabase, names: &[&str], more: &[&str]) -> Server {
    let mut command = laneway();
    if !names.is_empty() {
        command.env("LANEWAY_KEY_RING", ring(names));
    }
    command.args(["serve", "--listen", "127.0.0.1:0", "--database-url", &database.url, "--lane-drain", "2s"]);
    Server::spawn_command(command.args(more)).listening().await
}

pub fn admin(server: &Server) -> Admin {
    Admin::new(&format!("ws://{}/v1/ws", server.address)).unwrap()
}

pub async fn make_encrypted(server: &Server, name: &str, partitions: u32) {
    let encryption = Some(Encryption::Aes256Gcm);
    let topic = CreateTopic { encryption, ..CreateTopic::new(name, partitions) };
    let made = admin(server).create_topic(&topic).await.unwrap();
    assert_eq!(made.topic.encryption, Encryption::Aes256Gcm);
}

/// In which tables a text stands, as text or as bytes.
pub async fn tables_with(database: &TestDatabase, text: &str) -> Vec<String> {
    let raw = database.raw().await;
    let tables = "SELECT c.relname::text FROM pg_class c
        WHERE c.relnamespace = 'laneway'::regnamespace AND c.relkind = 'r' ORDER BY 1";
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut found = Vec::new();
    for row in raw.query(tables, &[]).await.unwrap() {
        let table: String = row.get(0);
        let look = format!(
            "SELECT EXISTS (SELECT FROM laneway.{table} t WHERE position($1 IN t::text) > 0 OR position($2 IN t::text) > 0)"
        );
        if raw.query_one(&look, &[&text, &hex]).await.unwrap().get(0) {
            found.push(table);
        }
    }
    found
}

fn secret(number: impl std::fmt::Display) -> NewMessage {
    to_partition(0, format!("{SECRET} {number}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_table_holds_a_payload_of_an_encrypted_topic_whatever_way_it_has_gone() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &["a"]).await;
    make_encrypted(&server, "orders", 1).await;
    let admin = admin(&server);
    let mut socket = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let wish = Subscribe { settings: Some(quick_retries(1)), ..subscribe("billing", "orders") };
    socket.subscribe_with(wish).await.unwrap();
    socket.granted().await;
    // Published, delivered, given up.
    let keyed = NewMessage { key: Some("customer".into()), ..secret(0) };
    socket.publish("orders", vec![keyed]).await;
    let batch = socket.batch().await;
    assert_eq!(payloads(&batch), [format!("{SECRET} 0")]);
    socket.nack(&batch, 0, "it does not fit").await.unwrap();
    let dead = admin.list_dead_letters(&Default::default()).await.unwrap().dead_letters;
    assert!(dead[0].payload.get().contains(SECRET), "{dead:?}");
    assert_eq!(
        database.number("SELECT count(*) FROM laneway.dead_letter WHERE data_key_id IS NOT NULL").await,
        1
    );
    assert_eq!(tables_with(&database, SECRET).await, [""; 0], "dead letter");
    // Published again.
    admin.replay_dead_letter(dead[0].id).await.unwrap();
    let again = socket.batch().await;
    assert_eq!(payloads(&again), [format!("{SECRET} 0")]);
    // In a step, and waiting for its time.
    let step = Transact {
        id: 0,
        step_id: Uuid::new_v4(),
        acks: vec![ack(&again, Some(2), &[])],
        publishes: vec![StepPublish {
            topic: "orders".into(),
            messages: vec![secret(1), NewMessage { delay_ms: Some(600_000), ..secret("late") }],
        }],
    };
    socket.transact(step).await.unwrap();
    assert_eq!(payloads(&socket.batch().await), [format!("{SECRET} 1")]);
    socket.publish("orders", vec![NewMessage { delay_ms: Some(50), ..secret(2) }]).await;
    assert_eq!(payloads(&socket.batch().await), [format!("{SECRET} 2")]);
    let waiting = admin.list_schedules(&Default::default()).await.unwrap().schedules;
    assert!(waiting[0].payload.get().contains("late"), "{waiting:?}");
    assert_eq!(tables_with(&database, SECRET).await, [""; 0]);
    // Every read opens it: by offset, by search, by trace.
    let found: serde_json::Value = reqwest::get(server.url("/v1/topics/orders/partitions/0/messages?from=0"))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let texts: Vec<&str> = found["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["payload"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["0", "0", "1", "2"].map(|number| format!("{SECRET} {number}")));
    let sealed = "SELECT count(*) FROM laneway.message WHERE data_key_id IS NULL";
    assert_eq!(database.number(sealed).await, 0);
    assert_eq!(tables_with(&database, "customer").await.len(), 1, "the key of a message stays readable");
    socket.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_is_rotated_without_rewriting_and_an_old_key_goes_when_nothing_needs_it() {
    let database = TestDatabase::new().await;
    let mut first = serve(&database, &["a"]).await;
    make_encrypted(&first, "orders", 1).await;
    let mut socket = Socket::connect(&first.address, Subprotocol::Json).await;
    socket.publish("orders", vec![secret(0)]).await;
    socket.close().await;
    first.stop().await;
    let before = database.raw().await.query("SELECT payload FROM laneway.message", &[]).await.unwrap();
    let second = serve(&database, &["b", "a"]).await;
    let mut socket = Socket::connect(&second.address, Subprotocol::Json).await;
    socket.publish("orders", vec![secret(1)]).await;
    socket.subscribe("billing", "orders").await;
    socket.granted().await;
    let batches = socket.batches(2).await;
    let seen: Vec<String> = batches.iter().flat_map(payloads).collect();
    assert_eq!(seen, [format!("{SECRET} 0"), format!("{SECRET} 1")]);
    let now = database
        .raw()
        .await
        .query("SELECT payload FROM laneway.message ORDER BY \"offset\"", &[])
        .await
        .unwrap();
    assert_eq!(now[0].get::<_, Vec<u8>>(0), before[0].get::<_, Vec<u8>>(0), "nothing was rewritten");
    let names = "SELECT count(DISTINCT ring_key) FROM laneway.data_key";
    assert_eq!(database.number(names).await, 2);
    admin(&second).purge_topic("orders", &laneway_client::management::Purge::All).await.unwrap();
    wait::until("the old key to be needed no more", async || {
        database.number("SELECT count(*) FROM laneway.data_key WHERE ring_key = 'a'").await == 0
    })
    .await;
    assert_eq!(database.number(names).await, 1, "what is written with now stays");
    socket.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_counter_is_used_twice_under_a_key_however_brokers_end() {
    let database = TestDatabase::new().await;
    for life in 0..4 {
        let mut brokers = Vec::new();
        for _ in 0..2 {
            brokers.push(serve_with(&database, &["a"], &["--lease-ttl", "1s"]).await);
        }
        if life == 0 {
            let encryption = Some(Encryption::Aes256Gcm);
            let topic =
                CreateTopic { encryption, segment_messages: Some(16), ..CreateTopic::new("orders", 2) };
            admin(&brokers[0]).create_topic(&topic).await.unwrap();
        }
        let mut sending = Vec::new();
        for (number, broker) in brokers.iter().enumerate() {
            let mut socket = Socket::connect(&broker.address, Subprotocol::MessagePack).await;
            for round in 0..10 {
                let partition = (round + number) as u32 % 2;
                let message =
                    |n: usize| to_partition(partition, format!("{SECRET} {life} {number} {round} {n}"));
                socket.publish("orders", (0..5).map(message).collect()).await;
            }
            sending.push(socket);
        }
        for mut broker in brokers {
            match life % 2 {
                0 => broker.kill().await,
                _ => drop(broker.stop().await),
            }
        }
    }
    let pairs = "SELECT data_key_id, substring(payload FROM 1 FOR 9) FROM laneway.message";
    let rows = database.raw().await.query(pairs, &[]).await.unwrap();
    let seen: HashSet<(Uuid, Vec<u8>)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!((rows.len(), seen.len()), (4 * 2 * 50, 4 * 2 * 50));
    let keys = database.number("SELECT count(*) FROM laneway.data_key").await;
    assert!(keys > 4 * 2 * 2, "a key per broker and segment: {keys}");
    assert_eq!(database.number("SELECT count(DISTINCT salt) FROM laneway.data_key").await, keys);
    let reader = serve(&database, &["a"]).await;
    let mut socket = Socket::connect(&reader.address, Subprotocol::MessagePack).await;
    socket.subscribe("billing", "orders").await;
    let texts: HashSet<String> = socket.batches(400).await.iter().flat_map(payloads).collect();
    assert_eq!(texts.len(), 400, "all of them open, wherever they were sealed");
    socket.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption_is_turned_on_and_off_for_new_messages_only() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &["a"]).await;
    let admin = admin(&server);
    let made = admin.create_topic(&CreateTopic::new("orders", 1)).await.unwrap();
    assert!(made.topic.encryption.is_none());
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    let publish = async |socket: &mut Socket, text: &str| {
        socket.publish("orders", vec![to_partition(0, text)]).await;
    };
    publish(&mut socket, "plain 0").await;
    for (encryption, text) in [(Encryption::Aes256Gcm, "sealed 1"), (Encryption::None, "plain 2")] {
        let changes = AlterTopic { encryption: Some(encryption), ..AlterTopic::default() };
        let altered = admin.alter_topic("orders", &changes).await.unwrap();
        assert_eq!(altered.topic.encryption, encryption);
        publish(&mut socket, text).await;
    }
    assert_eq!(tables_with(&database, "sealed").await, [""; 0]);
    assert_eq!(tables_with(&database, "plain").await.len(), 1);
    socket.subscribe("billing", "orders").await;
    let texts: Vec<String> = socket.batches(3).await.iter().flat_map(payloads).collect();
    assert_eq!(texts, ["plain 0", "sealed 1", "plain 2"]);
    let url = server.url("/v1/topics");
    let wrong = serde_json::json!({ "name": "other", "encryption": "rot13" });
    let refused = reqwest::Client::new().post(url).json(&wrong).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 400);
    let refused: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(refused["code"], "malformed", "{refused}");
    socket.close().await;
}
