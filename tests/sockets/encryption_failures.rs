//! Encrypted topics that fail closed: missing and wrong keys, payloads that were changed, brokers taken for dead, logs.

use laneway_client::ErrorCode;
use laneway_client::wire::{
    BrokerFrame, ClientFrame, ErrorFrame, Publish, StepPublish, Subprotocol, Subscribe, Transact,
};
use nix::sys::signal::Signal;
use uuid::Uuid;

use crate::encryption::{SECRET, admin, make_encrypted, ring, serve, serve_with, tables_with};
use crate::harness::process::{directory, laneway, run, run_command};
use crate::harness::socket::{BOTH, Socket, ack, make_topic, payloads, quick_retries, subscribe};
use crate::harness::{Server, TestDatabase, wait};
use crate::to_partition;

/// What becomes of a publish that is refused as a whole.
async fn refused(socket: &mut Socket, topic: &str, payload: &str) -> ErrorFrame {
    let id = socket.id();
    let (topic, messages) = (topic.into(), vec![to_partition(0, payload)]);
    socket
        .send(ClientFrame::Publish(Publish { id, topic, producer_id: None, messages, wait_ms: None }))
        .await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => panic!("it was stored: {published:?}"),
            BrokerFrame::Error(error) if error.id == Some(id) => Some((**error).clone()),
            _ => None,
        })
        .await
}

/// The code of an HTTP problem, and its sentence.
async fn problem(server: &Server, path: &str) -> (u16, String, String) {
    let answer = reqwest::get(server.url(path)).await.unwrap();
    let status = answer.status().as_u16();
    let body: serde_json::Value = answer.json().await.unwrap();
    let word = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (status, word("code"), word("detail"))
}

async fn stored(database: &TestDatabase) -> i64 {
    database.number("SELECT count(*) FROM laneway.message").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_the_key_stores_nothing_and_gives_out_nothing() {
    let database = TestDatabase::new().await;
    let keeper = serve(&database, &["a"]).await;
    make_encrypted(&keeper, "orders", 1).await;
    make_topic(&keeper.address, "open", 1).await;
    let mut producer = Socket::connect(&keeper.address, Subprotocol::MessagePack).await;
    let wish = Subscribe { settings: Some(quick_retries(1)), ..subscribe("billing", "orders") };
    producer.subscribe_with(wish).await.unwrap();
    producer.publish("orders", vec![to_partition(0, format!("{SECRET} 0"))]).await;
    let batch = producer.batch().await;
    producer.nack(&batch, 0, "bad").await.unwrap();
    producer.publish("orders", vec![to_partition(0, format!("{SECRET} 1"))]).await;
    let id = admin(&keeper).list_dead_letters(&Default::default()).await.unwrap().dead_letters[0].id;
    for (names, missing) in [(&[][..], "no key ring"), (&["b"][..], "the key a (")] {
        let stranger = serve(&database, names).await;
        stranger.logged("that the ring of this broker lacks").await;
        for subprotocol in BOTH {
            let mut socket = Socket::connect(&stranger.address, subprotocol).await;
            if names.is_empty() {
                let error = refused(&mut socket, "orders", SECRET).await;
                assert_eq!(error.code, ErrorCode::KeyMissing, "{error:?}");
                assert!(error.detail.contains(missing), "{error:?}");
            }
            socket.publish("open", vec![to_partition(0, "others go on")]).await;
            // The lane stops at what does not open, and says so.
            let group = format!("audit{}{}", names.len(), u8::from(subprotocol == Subprotocol::Json));
            socket.subscribe(&group, "orders").await;
            socket.granted().await;
            let told = socket.error().await;
            assert_eq!((told.code, told.partition), (ErrorCode::KeyMissing, Some(0)), "{told:?}");
            assert!(told.subscription.is_some() && told.detail.contains("the key a ("), "{told:?}");
            socket.close().await;
        }
        for path in ["/v1/topics/orders/partitions/0/messages?from=0", &format!("/v1/dead-letters/{id}")] {
            let (status, code, detail) = problem(&stranger, path).await;
            assert_eq!((status, code.as_str()), (503, "key_missing"), "{detail}");
            assert!(detail.contains("the key a ("), "{detail}");
        }
        let pop = stranger.url(&format!("/v1/topics/orders/groups/pull{}/pop", names.len()));
        let body = serde_json::json!({ "start": "earliest" });
        let answer = reqwest::Client::new().post(pop).json(&body).send().await.unwrap();
        let answer: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(answer["code"], "key_missing", "{answer}");
        let replay = admin(&stranger).replay_dead_letter(id).await.unwrap_err();
        assert!(replay.to_string().contains("the key a ("), "{replay}");
        let text = reqwest::get(stranger.url("/metrics")).await.unwrap().text().await.unwrap();
        let failures =
            text.lines().find(|line| line.contains("encryption_failures_total{reason=\"key_missing\"}"));
        assert!(!failures.unwrap().ends_with(" 0"), "{failures:?}");
        let doctor = ["doctor", "--database-url", &database.url, "--url"];
        let said = run(&[&doctor[..], &[&format!("ws://{}/v1/ws", stranger.address)]].concat()).await;
        assert_eq!(said.code, 1, "{}", said.stdout);
        assert!(said.stdout.contains("lacks a ("), "{}", said.stdout);
    }
    assert_eq!(
        database.number("SELECT count(*) FROM laneway.dead_letter").await,
        1,
        "a replay that failed took nothing"
    );
    assert_eq!(tables_with(&database, SECRET).await, [""; 0]);
    producer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_a_broker_without_keys_acknowledges_nothing() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &[]).await;
    make_topic(&server.address, "orders", 1).await;
    make_encrypted(&server, "payments", 1).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    socket.publish("orders", vec![to_partition(0, "m")]).await;
    socket.subscribe("billing", "orders").await;
    let batch = socket.batch().await;
    let publishes = vec![StepPublish { topic: "payments".into(), messages: vec![to_partition(0, SECRET)] }];
    let acks = vec![ack(&batch, Some(1), &[])];
    let step = Transact { id: 0, step_id: Uuid::new_v4(), acks, publishes };
    let error = socket.transact(step).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::KeyMissing, "{error:?}");
    assert_eq!(stored(&database).await, 1);
    assert_eq!(socket.ack_below(&batch, 1).await.unwrap(), 1, "it may be acknowledged otherwise");
    socket.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_was_changed_or_moved_stops_its_lane_and_is_never_given_out() {
    let changes = [
        // A bit of the ciphertext.
        "UPDATE laneway.message SET payload = set_byte(payload, 12, get_byte(payload, 12) # 1) WHERE \"offset\" = 1",
        // Another trace: what the payload belongs to.
        "UPDATE laneway.message SET trace_id = gen_random_uuid() WHERE \"offset\" = 1",
        // A key under which it does not stand.
        "UPDATE laneway.message SET key = 'other' WHERE \"offset\" = 1",
        // A payload of another message.
        "UPDATE laneway.message m SET payload = o.payload FROM laneway.message o WHERE m.\"offset\" = 1 AND o.\"offset\" = 2",
        // What the data key is derived from.
        "UPDATE laneway.message SET data_key_id = gen_random_uuid() WHERE \"offset\" = 1",
    ];
    for change in changes {
        let database = TestDatabase::new().await;
        let mut first = serve(&database, &["a"]).await;
        make_encrypted(&first, "orders", 1).await;
        let mut socket = Socket::connect(&first.address, Subprotocol::MessagePack).await;
        let messages = (0..3).map(|n| to_partition(0, format!("{SECRET} {n}"))).collect();
        socket.publish("orders", messages).await;
        socket.close().await;
        first.stop().await; // its hot tail had them open
        assert_eq!(database.raw().await.execute(change, &[]).await.unwrap(), 1, "{change}");
        let second = serve(&database, &["a"]).await;
        let mut socket = Socket::connect(&second.address, Subprotocol::MessagePack).await;
        socket.subscribe("billing", "orders").await;
        assert_eq!(payloads(&socket.batch().await), [format!("{SECRET} 0")], "what stands before it comes");
        let told = socket.error().await;
        assert_eq!((told.code, told.partition), (ErrorCode::NotAuthentic, Some(0)), "{change}: {told:?}");
        assert!(told.detail.contains("offset 1"), "{told:?}");
        let (status, code, _) = problem(&second, "/v1/topics/orders/partitions/0/messages?from=1").await;
        assert_eq!((status, code.as_str()), (500, "not_authentic"));
        second.logged("a lane stops at a message that does not open").await;
        assert_eq!(
            database.number("SELECT count(*) FROM laneway.lane_commit").await,
            0,
            "nothing is skipped"
        );
        socket.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_taken_for_dead_writes_nothing_under_its_old_keys() {
    let database = TestDatabase::new().await;
    let frozen = serve_with(&database, &["a"], &["--lease-ttl", "1s"]).await;
    make_encrypted(&frozen, "orders", 1).await;
    let mut socket = Socket::connect(&frozen.address, Subprotocol::MessagePack).await;
    socket.publish("orders", vec![to_partition(0, format!("{SECRET} 0"))]).await;
    frozen.signal(Signal::SIGSTOP);
    let other = serve_with(&database, &["a"], &["--lease-ttl", "1s"]).await;
    wait::until("its key to be closed", async || {
        database.number("SELECT count(*) FROM laneway.data_key WHERE closed_at IS NULL").await == 0
    })
    .await;
    admin(&other).purge_topic("orders", &laneway_client::management::Purge::All).await.unwrap();
    wait::until("its key to be gone", async || {
        database.number("SELECT count(*) FROM laneway.data_key").await == 0
    })
    .await;
    frozen.signal(Signal::SIGCONT);
    // Refused or stored: never stored under what is gone.
    wait::until("it writes again", async || {
        let id = socket.id();
        let (topic, messages) = ("orders".into(), vec![to_partition(0, format!("{SECRET} again"))]);
        let publish = Publish { id, topic, producer_id: None, messages, wait_ms: None };
        socket.send(ClientFrame::Publish(publish)).await;
        socket
            .wait_for(|frame| match frame {
                BrokerFrame::Published(published) if published.id == id => {
                    Some(published.units[0].first_offset.is_some())
                }
                BrokerFrame::Error(error) if error.id == Some(id) => Some(false),
                _ => None,
            })
            .await
    })
    .await;
    let orphans = "SELECT count(*) FROM laneway.message m JOIN laneway.partition p USING (partition_id)
        WHERE m.\"offset\" >= p.start_offset
          AND NOT EXISTS (SELECT FROM laneway.data_key k WHERE k.data_key_id = m.data_key_id)";
    assert_eq!(database.number(orphans).await, 0);
    let mut reader = Socket::connect(&other.address, Subprotocol::MessagePack).await;
    reader.subscribe("billing", "orders").await;
    assert!(payloads(&reader.batch().await).contains(&format!("{SECRET} again")));
    reader.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_payloads_nor_keys_are_logged_at_any_level() {
    let database = TestDatabase::new().await;
    let mut command = laneway();
    command.env("LANEWAY_KEY_RING", ring(&["a"])).env("LANEWAY_LOG", "trace").env("RUST_LOG", "trace");
    command.args(["serve", "--listen", "127.0.0.1:0", "--database-url", &database.url]);
    let mut server = Server::spawn_command(&mut command).listening().await;
    make_encrypted(&server, "orders", 1).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    let wish = Subscribe { settings: Some(quick_retries(1)), ..subscribe("billing", "orders") };
    socket.subscribe_with(wish).await.unwrap();
    socket.publish("orders", vec![to_partition(0, SECRET)]).await;
    let batch = socket.batch().await;
    socket.nack(&batch, 0, "bad").await.unwrap();
    let dead = admin(&server).list_dead_letters(&Default::default()).await.unwrap().dead_letters;
    admin(&server).replay_dead_letter(dead[0].id).await.unwrap();
    assert_eq!(payloads(&socket.batch().await), [SECRET]);
    socket.close().await;
    server.stop().await;
    server.logged("stopped").await;
    let log = server.log().join("\n");
    assert!(log.contains("data key made"), "it logs: {} bytes", log.len());
    let secret = ring(&["a"]);
    let (_, key) = secret.split_once(':').unwrap();
    for word in [SECRET, key] {
        assert!(!log.contains(word), "{word} is in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_that_is_wrong_ends_the_start_in_one_sentence_without_the_key() {
    let home = directory();
    let file = home.path().join("keys");
    let path = file.to_str().unwrap();
    let key = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA";
    std::fs::write(&file, format!("a:{key}")).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--database-url", "postgresql://localhost/x"];
    let said = run(&[&serve[..], &["--key-ring-file", path]].concat()).await;
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("entry 1 of the key ring (a): a key is 32 bytes"), "{}", said.stderr);
    assert!(!said.stderr.contains(&key[..8]), "{}", said.stderr);
    let said = run(&[&serve[..], &["--key-ring-file", "/nowhere"]].concat()).await;
    assert!(said.stderr.contains("cannot read the key ring /nowhere"), "{}", said.stderr);
    let mut both = laneway();
    both.env("LANEWAY_KEY_RING", ring(&["a"])).args(serve).args(["--key-ring-file", path]);
    let said = run_command(&mut both).await;
    assert!(said.stderr.contains("the key ring is given twice"), "{}", said.stderr);
    let said = run(&["keys", "generate", "not a name"]).await;
    assert_eq!(said.code, 2, "{}", said.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_generated_used_from_a_file_and_listed_by_name() {
    let (database, home) = (TestDatabase::new().await, directory());
    let file = home.path().join("keys");
    let made = run(&["keys", "generate", "2026-11"]).await;
    std::fs::write(&file, &made.stdout).unwrap();
    let path = file.to_str().unwrap();
    let server = Server::start(&["--database-url", &database.url, "--key-ring-file", path]).await;
    server.logged("others can read the key ring").await;
    let url = format!("ws://{}/v1/ws", server.address);
    let said = run(&["topic", "create", "orders", "--encryption", "aes_256_gcm", "--url", &url]).await;
    assert_eq!(said.code, 0, "{}", said.stderr);
    let said = run(&["topic", "create", "other", "--encryption", "rot13", "--url", &url]).await;
    assert_eq!(said.code, 2, "{}", said.stderr);
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    socket.publish("orders", vec![to_partition(0, SECRET)]).await;
    socket.close().await;
    let shown = run(&["topic", "show", "orders", "--url", &url]).await.stdout;
    assert!(shown.contains("payloads encrypted (aes_256_gcm)"), "{shown}");
    let listed = run(&["keys", "list", "--url", &url]).await.stdout;
    let line = listed.lines().find(|line| line.trim_start().starts_with("2026-11")).unwrap();
    assert!(listed.contains("1 topic is encrypted") && line.contains("seals"), "{listed}");
    let keys = admin(&server).list_keys().await.unwrap();
    assert_eq!((keys.keys[0].data_keys, keys.keys[0].open_data_keys), (1, 1));
    let (_, key) = made.stdout.trim().split_once(':').unwrap();
    assert!(!serde_json::to_string(&keys).unwrap().contains(key) && !listed.contains(key));
    assert!(!server.log().join("\n").contains(key));
    let said = run(&["doctor", "--database-url", &database.url, "--url", &url]).await;
    assert!(said.stdout.contains("sealed under 2026-11"), "{}", said.stdout);
}
